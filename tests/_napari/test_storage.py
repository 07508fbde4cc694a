"""Large results lie in a temporary file that goes with them."""

import gc
import os
import shutil
import sys
import weakref

import numpy as np
import pytest

from napari_gpu_denoise._napari.layers import arrays
from napari_gpu_denoise.errors import OutputError

pytestmark = pytest.mark.gui


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "LARGEST_IN_MEMORY", 1000)
    monkeypatch.setattr(arrays, "_folder", lambda: str(tmp_path))
    return tmp_path


def test_small_results_stay_in_memory(folder):
    image, place = arrays.allocate((9, 55), np.dtype(np.uint16))
    assert place is None and image.flags.owndata


def test_the_file_goes_with_its_last_array(folder):
    image, place = arrays.allocate((10, 50), np.dtype(np.uint16))
    assert place == str(folder)
    image[...] = 7
    assert (image == 7).all() and image.flags.writeable
    mapping = weakref.ref(image.base)
    part = image[3:]
    del image
    gc.collect()
    assert (part == 7).all()
    del part
    gc.collect()
    assert mapping() is None
    assert not list(folder.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="the file has a name there until it is closed")
def test_nothing_is_left_however_the_program_ends(folder):
    image, _ = arrays.allocate((10, 50), np.dtype(np.uint16))
    assert image.base is not None and not list(folder.iterdir())


def test_a_disk_without_room_is_told_before_the_run(folder, monkeypatch):
    usage = shutil.disk_usage(folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=999_999))
    with pytest.raises(OutputError, match=r"takes 2 GB, but .* only 0\.001 GB free.*TMPDIR"):
        arrays.allocate((1000, 1_000_000), np.dtype(np.uint16))


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="not reserved there")
def test_a_disk_that_fills_up_is_told(folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OutputError, match="free some there"):
        arrays.allocate((10, 50), np.dtype(np.uint16))
    assert not list(folder.iterdir())


def test_the_folder_is_the_one_chosen_by_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert arrays._folder() == str(tmp_path)
