"""The wheel holds the package, the kernels and the samples, and asks for what it needs."""

from __future__ import annotations

import email.parser
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "napari_gpu_denoise"
QT = re.compile(r"pyqt(?!graph)|pyside|napari\[", re.IGNORECASE)


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The folder with the source archive, and the wheel that was built from that archive."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built) -> zipfile.ZipFile:
    (file,) = built.glob("*.whl")
    return zipfile.ZipFile(file)


def text_in(wheel: zipfile.ZipFile, end: str) -> str:
    """Return the text of the file whose name ends so."""
    (name,) = (n for n in wheel.namelist() if n.endswith(end))
    return wheel.read(name).decode()


@pytest.fixture(scope="module")
def metadata(wheel):
    return email.parser.Parser().parsestr(text_in(wheel, ".dist-info/METADATA"))


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


def test_the_wheel_holds_the_package_its_folders_and_nothing_else(wheel):
    expected = {
        f"{PACKAGE}/{name}": data for name, data in contents(ROOT / "src" / PACKAGE).items()
    }
    for folder in ("kernels", "sample_data", "docs/guide", "docs/methods"):
        held = contents(ROOT / folder)
        assert len(held) >= 3
        expected |= {f"{PACKAGE}/{folder}/{name}": data for name, data in held.items()}
    found = {name for name in wheel.namelist() if ".dist-info/" not in name}
    strangers = found ^ expected.keys()
    assert all(name.startswith(f"{PACKAGE}/docs/") for name in strangers), strangers
    for file, data in expected.items():
        assert wheel.read(file) == data, file
    assert f"{PACKAGE}/_napari/napari.yaml" in found


def test_the_source_archive_holds_tests_scripts_and_docs(built):
    (file,) = built.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert names >= {"README.md", "LICENSE", "tests/conftest.py", "scripts/test.sh"}
    assert names >= {"docs/README.md", "kernels/README.md", "sample_data/README.md"}
    assert not any(".venv" in name or "__pycache__" in name for name in names)


def test_the_metadata_say_what_is_needed(wheel, metadata):
    assert metadata["Name"] == "napari-gpu-denoise"
    assert metadata["Requires-Python"] == ">=3.11"
    assert "Framework :: napari" in metadata.get_all("Classifier")
    assert metadata["Description-Content-Type"] == "text/markdown"
    extras = {"cpu", "napari", "all", "test", "benchmark"}
    assert set(metadata.get_all("Provides-Extra")) >= extras
    assert metadata["License-Expression"] == "BSD-3-Clause"
    assert metadata.get_all("License-File") == ["LICENSE"]
    assert text_in(wheel, "/licenses/LICENSE") == (ROOT / "LICENSE").read_text(encoding="utf-8")


def requirements(metadata, extra: str | None = None) -> list[str]:
    mark = "extra ==" if extra is None else f"extra == '{extra}'"
    lines = [line.replace('"', "'") for line in metadata.get_all("Requires-Dist")]
    return [line for line in lines if (mark in line) == (extra is not None)]


def test_napari_and_qt_are_never_needed_by_the_library(metadata):
    base = requirements(metadata)
    assert {re.match(r"[\w.-]+", line)[0] for line in base} >= {"numpy", "pyopencl", "tifffile"}
    assert not [line for line in base if re.match("napari|qtpy|magicgui|superqt|pyqtgraph", line)]
    for extra in (None, *metadata.get_all("Provides-Extra")):
        lines = requirements(metadata, extra)
        bindings = [ln for ln in lines if QT.search(ln.replace("napari-gpu-denoise[", ""))]
        if extra not in ("all", "test"):
            assert not bindings, extra


def test_the_entry_points_lead_to_what_is_there(wheel):
    text = text_in(wheel, "/entry_points.txt")
    assert f"gpu-denoise = {PACKAGE}.cli:main" in text
    assert f"[napari.manifest]\nnapari-gpu-denoise = {PACKAGE}._napari:napari.yaml" in text


def test_an_installed_wheel_finds_its_own_kernels_and_samples(wheel, tmp_path):
    wheel.extractall(tmp_path)
    script = (
        "import napari_gpu_denoise as gd\n"
        "from napari_gpu_denoise import samples\n"
        "from napari_gpu_denoise.opencl.source import expand, kernel_folder\n"
        "print(gd.__file__, kernel_folder(), *map(samples.path, samples.names()), sep='\\n')\n"
        "assert all(expand(str(f.relative_to(kernel_folder()))) for f in\n"
        "           kernel_folder().rglob('*.cl'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    places = done.stdout.splitlines()
    assert len(places) >= 3
    for place in places:
        assert Path(place).is_relative_to(tmp_path), place
        assert Path(place).exists()
