"""The wheel holds package, kernels and samples, asks for what it needs, and installs."""

from __future__ import annotations

import email.parser
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

from napari_gpu_denoise import samples
from tools.conftest import load

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "napari_gpu_denoise"
#: Where the project would live, as the release workflow says.
URL = "https://example.org/owner/name"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
#: Extras that a user installs.
EXTRAS = sorted(PROJECT["optional-dependencies"].keys() - {"benchmark", "docs", "test"})
QT = re.compile(r"pyqt(?!graph)|pyside|napari\[", re.IGNORECASE)


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The folder with the source archive, and the wheel that was built from that archive."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    environment = {**os.environ, "GPU_DENOISE_URL": URL}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
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
        if folder == "sample_data":  # without truths, the script, and the largest sample
            files = {samples.info(name).file for name in samples.names()} - {"diffusion.nii.gz"}
            held = {name: held[name] for name in {*files, "README.md"}}
        assert len(held) >= 3
        expected |= {f"{PACKAGE}/{folder}/{name}": data for name, data in held.items()}
    found = {name for name in wheel.namelist() if ".dist-info/" not in name}
    strangers = found ^ expected.keys()
    assert all(name.startswith(f"{PACKAGE}/docs/") for name in strangers), strangers
    for file, data in expected.items():
        assert wheel.read(file) == data, file
    assert f"{PACKAGE}/_napari/napari.yaml" in found


def test_links_of_the_installed_pages_lead_to_pages_that_are_installed(wheel):
    pages = {name: text_in(wheel, name) for name in wheel.namelist() if "/docs/" in name}
    dead = [
        (name, link)
        for name, text in pages.items()
        for link in re.findall(r"(?<!!)\[[^]]*\]\(([^)#:]+)(?:#[^)]*)?\)", text)
        if os.path.normpath(os.path.join(os.path.dirname(name), link)) not in pages
    ]
    assert len(pages) > 10 and not dead


def test_the_wheel_is_small(built):
    (file,) = built.glob("*.whl")
    assert file.stat().st_size < 3_000_000, "leave out, or compress better"


def test_the_source_archive_holds_tests_scripts_tools_and_docs(built):
    (file,) = built.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert names >= {"README.md", "LICENSE", "tests/conftest.py", "scripts/test.sh"}
    assert names >= {"docs/README.md", "kernels/README.md", "sample_data/README.md"}
    assert names >= {"tools/published.py", "tools/quality.py", "tools/warm.py"}
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


def test_the_page_of_a_release_has_addresses_and_leads_to_the_repository(metadata):
    """What the package index shows, and the napari hub, which reads it from there."""
    urls = dict(line.split(", ") for line in metadata.get_all("Project-URL"))
    assert urls.keys() >= {"Homepage", "Source", "Documentation", "Issues"}
    assert all(url.startswith(URL) for url in urls.values())
    assert metadata["Author"]
    text = metadata.get_payload()
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 10 and not [link for link in links if not link.startswith(("https:", "#"))]
    images = [link for link in links if link.startswith(f"{URL}/raw/main/")]
    linked = [link for link in links if link.startswith(f"{URL}/blob/main/")]
    assert len(images) >= 3 and len(linked) > 10
    for link in images + linked:
        path = link.split("/main/")[1].partition("#")[0]
        assert (ROOT / path).exists(), link
        assert path.endswith((".png", ".gif")) == (link in images)


def test_without_an_address_the_page_is_the_readme(monkeypatch):
    monkeypatch.delenv("GPU_DENOISE_URL", raising=False)
    found: dict = {}
    load("metadata", "scripts").ReleaseMetadata(str(ROOT), {}).update(found)
    assert found.keys() == {"readme"}
    assert found["readme"]["text"] == (ROOT / "README.md").read_text(encoding="utf-8")


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
        "from napari_gpu_denoise.opencl.program import expand, kernel_folder\n"
        "print(gd.__file__, kernel_folder(), *map(samples.path, samples.names()[:3]), sep='\\n')\n"
        "try:\n"
        "    samples.path('diffusion')\n"
        "except gd.errors.FileError as error:\n"
        "    assert 'sample_data of the repository' in str(error)\n"
        "else:\n"
        "    raise AssertionError('installed')\n"
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


#: Packages of the index, and what conda-forge calls them.
CONDA_NAMES = {
    "dask[array]": "dask-core",
    "pocl-binary-distribution": "pocl-cpu",
    "intel-opencl-rt": "pocl-cpu",
}


def test_the_recipe_for_conda_forge_asks_for_what_the_package_does():
    recipe = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8"))
    assert recipe["context"]["version"] == PROJECT["version"]
    assert f">={recipe['context']['python_min']}" == PROJECT["requires-python"]
    assert recipe["about"]["summary"] == PROJECT["description"]
    for name, target in PROJECT["scripts"].items():
        assert f"{name} = {target}" in recipe["build"]["python"]["entry_points"]
    extras = PROJECT["optional-dependencies"]
    wanted = {}
    for line in (*PROJECT["dependencies"], *extras["cpu"], *extras["zarr"], *extras["napari"]):
        name, at_least = re.match(r"([\w.-]+(?:\[\w+\])?)(>=[\w.]+)?", line).groups()
        wanted[CONDA_NAMES.get(name, name)] = at_least
    # An environment with napari has a Qt; the command line needs neither.
    allowed = {"napari": wanted.pop("napari"), "distributed": extras["cluster"][0][11:]}
    del wanted["pocl-cpu"]  # has versions of its own
    needed = recipe["requirements"]
    assert set(needed["run"]) == {
        "python >=${{ python_min }}",
        "pocl-cpu",
        *(f"{name} {at_least}" for name, at_least in wanted.items()),
    }
    assert set(needed["run_constraints"]) == {f"{name} {text}" for name, text in allowed.items()}


@pytest.mark.parametrize("system", ["linux-64", "linux-aarch64", "osx-arm64", "osx-64", "win-64"])
def test_the_recipe_is_one_for_every_system(system):
    rattler_build = pytest.importorskip("rattler_build", reason="pip install py-rattler-build")
    recipe = rattler_build.Stage0Recipe.from_file(ROOT / "recipe" / "recipe.yaml")
    platform = rattler_build.PlatformConfig(target_platform=system)
    config = rattler_build.RenderConfig(platform=platform)
    (made,) = recipe.render(rattler_build.VariantConfig(), config)
    needed = made.recipe.to_dict()["requirements"]["run"]
    assert "python >=3.11" in needed and "pocl-cpu" in needed


@pytest.fixture(scope="module")
def install(tmp_path_factory, index):
    """Return a function that installs what is named into an empty environment: its programs."""

    def into_an_empty_environment(wanted: str) -> Path:
        folder = tmp_path_factory.mktemp("environment")
        venv.create(folder, symlinks=os.name != "nt")
        programs = folder / ("Scripts" if os.name == "nt" else "bin")
        done = pip("--python", str(folder), "install", "--no-compile", wanted)
        assert done.returncode == 0, done.stdout + done.stderr
        return programs

    return into_an_empty_environment


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> None:
    """Skip what needs packages if they cannot be fetched here."""
    folder = str(tmp_path_factory.mktemp("index"))
    done = pip("download", "--retries", "0", "--no-deps", "--dest", folder, "tqdm")
    if done.returncode:
        pytest.skip(f"no package index can be reached: {done.stderr.strip().splitlines()[-1]}")


def pip(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def output(*command: str | Path, folder: Path) -> str:
    """Return what a command prints that has nothing of the environment of the tests."""
    left_out = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    environment = {name: text for name, text in os.environ.items() if name not in left_out}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_works_in_an_empty_environment(built, install, tmp_path):
    (file,) = built.glob("*.whl")
    programs = install(str(file))
    command = programs / "gpu-denoise"
    version = output(command, "--version", folder=tmp_path)
    assert version.strip() == f"gpu-denoise {PROJECT['version']}"
    output(command, "sample", "mri", folder=tmp_path)
    devices = subprocess.run([command, "devices"], capture_output=True, text=True)
    # What the environment of the tests has by pip, an empty one has not.
    if not devices.returncode:
        output(command, "nl-means", "mri.ome.tif", "-o", "denoised.ome.tif", folder=tmp_path)
        assert (tmp_path / "denoised.ome.tif").stat().st_size > 10_000


#: What shows that an extra works: the command and a part of what it prints.
SHOWN = {
    None: ("gpu-denoise", "--version", PROJECT["version"]),
    "cpu": ("gpu-denoise", "devices", "CPU"),
    "zarr": ("python", "-c", "import zarr, napari_gpu_denoise.files.zarr; print('read')", "read"),
    "formats": (
        "python",
        "-c",
        "import av, bioio_czi, bioio_lif, bioio_nd2, pydicom; print(1)",
        "1",
    ),
    "cluster": ("python", "-c", "import distributed; print('workers')", "workers"),
    "napari": ("npe2", "validate", "napari-gpu-denoise", "valid"),
    "all": ("npe2", "validate", "--imports", "napari-gpu-denoise", "valid"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("extra", [None, *EXTRAS])
def test_archive_and_extras_work_in_an_empty_environment(extra, built, install, tmp_path):
    (file,) = built.glob("*.whl" if extra else "*.tar.gz")
    programs = install(f"{file}[{extra}]" if extra else str(file))
    *command, expected = SHOWN.get(extra, SHOWN[None])
    assert expected in output(programs / command[0], *command[1:], folder=tmp_path)
