"""Caches that others can write to, or nobody, and drivers that no file lists."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from napari_gpu_denoise.opencl import isolation

pytestmark = pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners and modes")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder that XDG_CACHE_HOME names; the other caches are at their usual places."""
    for variable in isolation._OF_DRIVERS:
        monkeypatch.setenv(variable, "")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_cache_of_this_user_is_used(folder, recwarn):
    isolation.use_own_caches.__wrapped__()
    assert os.environ["XDG_CACHE_HOME"] == str(folder) and not recwarn
    assert folder.stat().st_mode & 0o777 == 0o700
    assert not (folder.parent / ".nv").exists()


@pytest.mark.parametrize("variable", isolation._OF_DRIVERS)
def test_caches_that_others_can_write_to_are_not_used(folder, monkeypatch, variable):
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder.parent / "own"))
    monkeypatch.setenv(variable, str(folder))
    with pytest.warns(UserWarning, match="Others can write to .*cache"):
        isolation.use_own_caches.__wrapped__()
    assert os.environ[variable] != str(folder)
    assert isolation.is_private(os.environ[variable])


@pytest.mark.parametrize("fault", ["read-only", "full", "no home"])
def test_without_room_to_keep_programs_they_are_kept_for_the_process(folder, monkeypatch, fault):
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    if fault == "read-only":  # to root, too
        monkeypatch.setattr(os, "access", lambda place, mode: not folder.parent.samefile(place))
    elif fault == "full":
        usage = os.statvfs(folder.parent)
        nearly = namedtuple("usage", "total used free")(1 << 40, 1 << 40, usage.f_bsize)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: nearly)
    else:
        monkeypatch.setenv("HOME", "")
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.warns(UserWarning, match="Set XDG_CACHE_HOME and CUDA_CACHE_PATH") as warned:
        isolation.use_own_caches.__wrapped__()
    assert len(warned) == 1
    for variable in ("XDG_CACHE_HOME", "CUDA_CACHE_PATH"):
        assert isolation.is_private(os.environ[variable])


@pytest.mark.parametrize("members", [(), ("somebody",), ("another",)])
def test_only_a_group_of_this_user_alone_may_write(folder, monkeypatch, members):
    grp, pwd = pytest.importorskip("grp"), pytest.importorskip("pwd")
    folder.mkdir()
    folder.chmod(0o775)

    class Entry:
        pw_name = gr_name = "somebody"
        gr_mem = members

    monkeypatch.setattr(pwd, "getpwuid", lambda _: Entry)
    monkeypatch.setattr(grp, "getgrgid", lambda _: Entry)
    assert isolation.is_private(folder) == ("another" not in members)
    Entry.gr_name = "staff"
    assert not isolation.is_private(folder)


def test_pyopencl_unpickles_nothing_from_there(folder):
    folder.mkdir()
    folder.chmod(0o777)
    code = (
        "from napari_gpu_denoise.opencl.isolation import import_pyopencl\n"
        "import_pyopencl()\n"
        "from pyopencl.invoker import invoker_cache\n"
        "print(invoker_cache.container_dir)"
    )
    known = {name: value for name, value in os.environ.items() if value}
    known["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    ran = subprocess.run(
        [sys.executable, "-c", code], env=known, check=True, capture_output=True, text=True
    )
    assert str(folder) not in ran.stdout and f"Others can write to {folder}" in ran.stderr
    assert not list(folder.iterdir())


@pytest.fixture
def listing(tmp_path, tmp_path_factory, monkeypatch):
    """Return a folder that lists one driver; that of the package lists none itself."""
    for variable in isolation._OF_LOADERS:
        monkeypatch.setenv(variable, "")
    monkeypatch.setattr(isolation, "_LISTED", (str(tmp_path), str(tmp_path / "none")))
    monkeypatch.setattr(isolation, "_temporary", lambda: tmp_path_factory.mktemp("own"))
    tmp_path.joinpath("other.icd").write_text("libother.so.1\n")
    return tmp_path


@pytest.mark.skipif(sys.platform != "linux", reason="drivers are listed elsewhere")
def test_a_driver_that_no_file_lists_is_shown_to_the_loader(listing, monkeypatch):
    monkeypatch.setattr(isolation, "_DRIVERS", ("libm.so.6", "libnone.so.1", "libother.so.9"))
    assert isolation.list_drivers.__wrapped__() == ("libm.so.6",)
    shown = Path(os.environ["OCL_ICD_VENDORS"])
    found = {file.name: file.read_text().strip() for file in shown.iterdir()}
    assert found == {"other.icd": "libother.so.1", "libm.so.6.icd": "libm.so.6"}


@pytest.mark.skipif(sys.platform != "linux", reason="drivers are listed elsewhere")
@pytest.mark.parametrize("loader", ["/of/pyopencl/libOpenCL.so", "libOpenCL.so.1"])
def test_only_the_loader_of_the_system_reads_names_of_files(listing, monkeypatch, loader):
    monkeypatch.setattr(isolation, "_DRIVERS", ("libm.so.6",))
    monkeypatch.setattr(isolation, "loader", lambda: loader)
    monkeypatch.setenv("OCL_ICD_FILENAMES", "libm.so.6:libother.so.1")
    added = isolation.list_drivers.__wrapped__()
    assert added == (() if loader == "libOpenCL.so.1" else ("libm.so.6",))


@pytest.mark.skipif(sys.platform != "linux", reason="drivers are listed elsewhere")
@pytest.mark.parametrize("variable", [None, *isolation._OF_LOADERS])
def test_what_is_listed_or_named_by_the_user_stays(listing, monkeypatch, variable):
    monkeypatch.setattr(isolation, "_DRIVERS", ("libm.so.6",))
    if variable is None:
        listing.joinpath("m.icd").write_text("/usr/lib/libm.so.6")
    else:
        monkeypatch.setenv(variable, "chosen")
    before = dict(os.environ)
    assert isolation.list_drivers.__wrapped__() == () and dict(os.environ) == before
