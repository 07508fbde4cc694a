"""What importing the package brings in, and who may import whom."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import tifffile

import napari_gpu_denoise as gd

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
HEAVY = {
    *("numpy", "scipy", "dask", "zarr", "tifffile", "imagecodecs", "pyopencl", "tqdm"),
    "nibabel",
    *("napari", "qtpy", "magicgui", "superqt", "PySide6", "PyQt5", "PyQt6", "npe2", "pyqtgraph"),
}


def modules_after(statement: str) -> set[str]:
    """Return the modules that a fresh process holds after a statement."""
    script = f"{statement}\nimport json, sys\nprint(json.dumps(list(sys.modules)))"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def imported_by(statement: str) -> set[str]:
    """Return the top-level modules that a fresh process holds after a statement."""
    return {name.split(".")[0] for name in modules_after(statement)}


def test_importing_the_package_loads_nothing_heavy():
    assert not imported_by("import napari_gpu_denoise") & HEAVY


def test_importing_the_library_touches_no_device_and_no_gui():
    modules = ("filters", "cli", "files.batch", "files.tiff", "files.nifti", "noise")
    modules += ("files.samples", "run.denoise", "run.stream", "run.by_parts", "image.flicker")
    statement = "\n".join(f"import napari_gpu_denoise.{module}" for module in modules)
    allowed = {"numpy", "tifffile", "imagecodecs", "scipy"}
    assert not imported_by(f"{statement}\nimport napari_gpu_denoise.opencl.device") & (
        HEAVY - allowed
    )


# Photon noise with a dark background, and camera noise: what is measured of the two needs most of
# `noise`.
@pytest.mark.parametrize(("law", "dark"), [("photons", 0.5), ("normal", 300)])
def test_a_run_imports_what_it_needs(tmp_path, law, dark):
    rng, clean = np.random.default_rng(0), np.linspace(dark, dark + 40, 96 * 96).reshape(96, 96)
    image = rng.poisson(clean) if law == "photons" else rng.normal(clean, 20)
    tifffile.imwrite(tmp_path / "in.tif", image.astype(np.uint16))
    arguments = ["nl-means", f"{tmp_path}/in.tif", "-o", f"{tmp_path}/out.tif", "--quiet"]
    run = f"from napari_gpu_denoise.cli import main\nassert main({arguments}) == 0"
    found = modules_after(run)
    assert not {name.split(".")[0] for name in found} & (
        HEAVY - {"numpy", "tifffile", "imagecodecs", "pyopencl"}
    )
    ours = {name.removeprefix("napari_gpu_denoise.") for name in found}
    from napari_gpu_denoise.filters import MODULES

    modules = {name.removeprefix("napari_gpu_denoise.") for name in MODULES.values()}
    assert ours & modules == {"filters.nl_means"}
    assert not ours & {
        "files.cluster",
        "noise.structure.find",
        "noise.structure.remove",
        "assessment",
    }


def test_the_plugin_lists_its_commands_without_qt_or_opencl():
    found = imported_by("import napari_gpu_denoise._napari")
    assert not found & {"pyopencl", "PySide6", "PyQt5", "PyQt6", "dask"}


def test_every_public_name_is_there_and_documented():
    for name in gd.__all__:
        value = getattr(gd, name)
        assert name in dir(gd)
        assert name == "__version__" or (value.__doc__ or "").strip(), name
    for settings in gd.FILTERS:
        assert getattr(gd, settings.__name__) is settings
        assert callable(getattr(gd, settings.name))
    with pytest.raises(AttributeError, match="no attribute 'bm5d'"):
        _ = gd.bm5d
    assert gd.__version__ == PROJECT["project"]["version"]


def test_every_module_but_the_plugin_is_in_the_contract_that_forbids_napari():
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    package = ROOT / "src" / "napari_gpu_denoise"
    modules = {
        path.stem
        for path in package.iterdir()
        if (path.suffix == ".py" or (path / "__init__.py").exists()) and path.stem != "__init__"
    }
    for contract in contracts:
        if contract["type"] == "forbidden" and "napari" in contract["forbidden_modules"]:
            free = {name.split(".")[-1] for name in contract["source_modules"]}
            assert free == modules - {"_napari"}
