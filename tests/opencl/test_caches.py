"""Caches that others can write to, from which nothing is run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from napari_gpu_denoise.opencl import isolation

pytestmark = pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners and modes")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder that XDG_CACHE_HOME names; the other caches are at their usual places."""
    for variable in isolation._OF_DRIVERS:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_cache_of_this_user_is_used(folder, recwarn):
    isolation.refuse_shared_caches()
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
        isolation.refuse_shared_caches()
    assert os.environ[variable] != str(folder)
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
    known = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=known, check=True, capture_output=True, text=True
    )
    assert str(folder) not in ran.stdout and f"Others can write to {folder}" in ran.stderr
    assert not list(folder.iterdir())
