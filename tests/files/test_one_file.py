"""Large TIFF stacks, denoised frame by frame or in parts: as if they had been read whole."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import tifffile

import napari_gpu_denoise as gd
from napari_gpu_denoise.files.image_file import BOOLEAN, ImageFile
from napari_gpu_denoise.run import by_parts
from scenes import bytes_per_pixel, noisy, small
from zarr_stores import write_store

VIDEO = small(gd.VBM3D, frames_before=2, frames_after=1)
PLAIN, BM3D = small(gd.NLMeans), small(gd.BM3D)
TOLD = ("settings", "sigma", "sigma_source", "noise", "axes", "saturated", "nonfinite", "notes")
TOLD += ("input_dtype", "output_dtype")


def written(tmp_path, image, axes, **options):
    path = tmp_path / "in.tif"
    tifffile.imwrite(path, image, metadata={"axes": axes}, **options)
    return path


def check(path, image, settings, sigma, axes, *, in_parts=False, **given):
    """Denoise a file; its pixels and its record are those of the image in memory."""
    target = path.with_name("out.tif")
    options = {"output": target, "overwrite": True, **given}
    with pytest.MonkeyPatch.context() as patched:
        if in_parts:  # nothing is read whole
            patched.setattr(ImageFile, "loaded", None)
        (file,) = gd.run_batch(path, settings, sigma, axes=axes, **options).files
    if file.error is not None:
        raise file.error
    given.pop("memory_limit", None)
    expected = gd.denoise(image, settings, sigma, axes=axes, **given)
    np.testing.assert_array_equal(tifffile.imread(target)[..., : image.shape[-1]], expected.image)
    for field in TOLD:
        assert getattr(file.record, field) == getattr(expected.record, field), field
    assert gd.read(target).history[-1]["filter"] == settings.name


@pytest.mark.parametrize("options", [{}, {"compression": "zlib"}, {"ome": True}])
def test_boolean_files_are_0_and_1_as_layers_are(tmp_path, options):
    image = np.random.default_rng(0).random((3, 33, 37)) < 0.6
    path = written(tmp_path, image, "TYX", **options)
    check(path, image.astype(np.uint8), PLAIN, 0.4, "TYX")
    check(path, image.astype(np.uint8), PLAIN, 0.4, "TYX", dtype="float32")
    assert BOOLEAN in gd.read(path).notes


@pytest.mark.parametrize(
    ("axes", "shape", "options"),
    [
        ("TZYX", (5, 3, 33, 37), {"imagej": True}),
        ("TYXS", (5, 33, 37, 3), {"photometric": "rgb"}),
        ("ZTYX", (2, 5, 33, 37), {"compression": "zlib"}),
    ],
)
def test_frame_by_frame_is_as_a_whole(streamed, tmp_path, axes, shape, options):
    """Other filters and kinds of noise: tests/test_ways.py."""
    image = noisy(*shape, dtype="uint8" if axes.endswith("S") else "uint16")
    path = written(tmp_path, image, axes, **options)
    for settings, sigma in ((VIDEO, None), (PLAIN, 20.0)):
        check(path, image, settings, sigma, axes)
    assert len(streamed) == 2


def test_alpha_of_a_long_stack_passes_as_it_is(streamed, tmp_path):
    image = noisy(5, 33, 37, 4, dtype="uint8")
    path = written(tmp_path, image, "TYXS", photometric="rgb", extrasamples=["unassalpha"])
    check(path, image[..., :3], VIDEO, 20.0, "TYXS")
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "out.tif")[..., 3], image[..., 3])


def test_a_cancelled_run_leaves_nothing(streamed, tmp_path, limits):
    """After a moment; what lasted longer can be resumed (test_unfinished.py)."""
    limits(brief_seconds=1e9)
    path = written(tmp_path, noisy(9, 33, 37, dtype="uint16"), "TYX")
    cancel, seen = threading.Event(), []

    def progress(state):
        seen.append((state.done, state.total))
        if state.done == 3:
            cancel.set()

    options = {"output": tmp_path / "out.tif", "progress": progress, "cancel": cancel}
    assert gd.run_batch(path, VIDEO, 20.0, **options).cancelled
    assert (3, 9) in seen and (9, 9) not in seen
    assert [p.name for p in tmp_path.iterdir()] == ["in.tif"]
    assert len(streamed) == 1


def test_what_is_read_whole(streamed, tmp_path, monkeypatch):
    """A plane, a small stack, and one whose frames do not fit, which are tried."""
    image = noisy(33, 37, dtype="uint16")
    check(written(tmp_path, image, "YX"), image, BM3D, 20.0, "YX")
    assert not streamed
    settings = small(gd.VBM3D, frames_before=1, frames_after=1)
    # Larger than the smallest part, which reads 1.5 times the reach.
    ny, nx = (int(1.5 * sum(reach)) + 60 for reach in (settings.reach.y, settings.reach.x))
    image = noisy(4, ny, nx, dtype="uint16")
    path = written(tmp_path, image, "TYX")
    limit = int(ny * nx * (bytes_per_pixel(settings) - 16) * 0.8)
    check(path, image, settings, 20.0, "TYX", memory_limit=limit)
    assert len(streamed) == 1
    monkeypatch.undo()
    monkeypatch.setattr(by_parts, "FrameStream", None)
    check(path, image, settings, 20.0, "TYX")


def test_large_files_are_filtered_as_recommended(tmp_path, monkeypatch, limits):
    """Without being read whole, where they are written part by part, too."""
    movie = np.random.default_rng(0).normal(100, 9, (5, 64, 64)).astype(np.uint16)
    paths = written(tmp_path, movie, "TYX"), tmp_path / "in.ome.zarr"
    write_store(paths[1], movie, "TYX", chunks=(1, 32, 32))
    monkeypatch.setattr(ImageFile, "loaded", None)
    limits(streamed_bytes=0)
    report = gd.run_batch(paths, gd.Recommended(), output=tmp_path / "out")
    advice = gd.recommend(movie, "TYX")
    expected = gd.denoise(movie, advice.filter, axes="TYX").image
    monkeypatch.undo()
    for file in report.files:
        assert file.error is None
        assert file.record.recommended == f"{advice.choice}, because {advice.reason}"
        np.testing.assert_array_equal(gd.read(file.output).data, expected)
