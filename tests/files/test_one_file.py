"""Large TIFF stacks, denoised frame by frame: as if they had been read whole."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import tifffile

import napari_gpu_denoise as gd
from napari_gpu_denoise import errors
from napari_gpu_denoise.files import one_file, resuming
from napari_gpu_denoise.files.image_file import ImageFile
from napari_gpu_denoise.run import by_parts
from napari_gpu_denoise.run import part as parts_of_images
from scenes import bytes_per_pixel, noisy, small

VIDEO = small(gd.VBM3D, frames_before=2, frames_after=1)
FILTERS = {
    "vbm3d": VIDEO,
    "nl_means over time": small(gd.NLMeans, frames_before=1, frames_after=1),
    "nl_means": small(gd.NLMeans),
    "bm3d": small(gd.BM3D),
}


@pytest.fixture
def streamed(monkeypatch):
    """Take every stack for a large one, and tell how often one was streamed."""
    monkeypatch.setattr(one_file, "STREAMED_BYTES", 0)
    seen = []
    original = by_parts.FrameStream

    def counted(*given, **named):
        seen.append(given)
        return original(*given, **named)

    monkeypatch.setattr(by_parts, "FrameStream", counted)
    return seen


def written(tmp_path, image, axes, **options):
    path = tmp_path / "in.tif"
    tifffile.imwrite(path, image, metadata={"axes": axes}, **options)
    return path


def run(path, settings, sigma, **options):
    target = path.with_name("out.tif")
    report = gd.run_batch(path, settings, sigma, output=target, overwrite=True, **options)
    if report.failed:
        raise report.failed[0].error
    return tifffile.imread(target), report.done[0]


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize(
    ("axes", "shape", "options"),
    [
        ("TYX", (7, 33, 37), {}),
        ("TYX", (7, 33, 37), {"imagej": True}),
        ("TCYX", (5, 2, 33, 37), {"ome": True}),
        ("TZYX", (5, 3, 33, 37), {"imagej": True}),
        ("TYXS", (5, 33, 37, 3), {"photometric": "rgb"}),
        ("ZTYX", (2, 5, 33, 37), {"compression": "zlib"}),
    ],
)
def test_frame_by_frame_is_as_a_whole(streamed, tmp_path, name, axes, shape, options):
    dtype = "uint8" if axes.endswith("S") else "uint16"
    image = noisy(*shape, dtype=dtype)
    path = written(tmp_path, image, axes, **options)
    for sigma in (20.0, None):
        out, file = run(path, FILTERS[name], sigma, axes=axes)
        expected = gd.denoise(image, FILTERS[name], sigma, axes=axes)
        np.testing.assert_array_equal(out, expected.image)
        for field in ("settings", "sigma", "sigma_source", "axes", "saturated", "input_dtype"):
            assert getattr(file.record, field) == getattr(expected.record, field), field
        assert gd.read(path.with_name("out.tif")).history[-1]["filter"] == FILTERS[name].name
    assert len(streamed) == 2


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_the_range_of_all_frames_counts(streamed, tmp_path, dtype):
    image = (noisy(6, 33, 37) * np.linspace(1, 900, 6)[:, None, None] + 1e7).astype(dtype)
    path = written(tmp_path, image, "TYX")
    out, _ = run(path, VIDEO, 20.0)
    np.testing.assert_array_equal(out, gd.denoise(image, VIDEO, 20.0, axes="TYX").image)
    assert len(streamed) == 1


def test_sigma_of_frames_channels_and_places(streamed, tmp_path):
    image = noisy(5, 2, 33, 37, dtype="uint16")
    path = written(tmp_path, image, "TCYX", ome=True)
    planes = 5.0 + 3 * np.arange(10).reshape(5, 2)
    planes[2, 1] = 0
    places = np.full((33, 37), 15.0)
    places[:10] = 5
    for sigma in ((10, 30), planes, places):
        out, _ = run(path, VIDEO, sigma)
        np.testing.assert_array_equal(out, gd.denoise(image, VIDEO, sigma, axes="TCYX").image)
    assert len(streamed) == 3


def test_nan_is_refused_or_kept(streamed, tmp_path):
    image = noisy(5, 33, 37)
    image[3, 4:6, 7] = np.nan
    path = written(tmp_path, image, "TYX")
    with pytest.raises(errors.NonFiniteError, match="2 of 6105 pixels"):
        run(path, VIDEO, 20.0)
    out, file = run(path, VIDEO, 20.0, nonfinite="keep")
    expected = gd.denoise(image, VIDEO, 20.0, axes="TYX", nonfinite="keep")
    np.testing.assert_array_equal(out, expected.image)
    assert file.record.nonfinite == expected.record.nonfinite == 2


def test_a_cancelled_run_leaves_nothing(streamed, tmp_path, monkeypatch):
    """After a moment; what lasted longer can be resumed (test_unfinished.py)."""
    monkeypatch.setattr(resuming, "_SECONDS", 1e9)
    path = written(tmp_path, noisy(9, 33, 37, dtype="uint16"), "TYX")
    cancel, seen = threading.Event(), []

    def progress(state):
        seen.append((state.done, state.total))
        if state.done == 3:
            cancel.set()

    report = gd.run_batch(
        path, VIDEO, 20.0, output=tmp_path / "out.tif", progress=progress, cancel=cancel
    )
    assert report.cancelled
    assert (3, 9) in seen
    assert (9, 9) not in seen
    assert [p.name for p in tmp_path.iterdir()] == ["in.tif"]
    assert len(streamed) == 1


def test_what_does_not_fit_frame_by_frame_is_read_whole(streamed, tmp_path):
    settings = small(gd.VBM3D, frames_before=1, frames_after=1)
    # Larger than the smallest part, which reads 1.5 times the reach.
    ny, nx = (int(1.5 * sum(reach)) + 60 for reach in (settings.reach.y, settings.reach.x))
    image = noisy(4, ny, nx, dtype="uint16")
    path = written(tmp_path, image, "TYX")
    limit = int(ny * nx * (bytes_per_pixel(settings) - 16) * 0.8)
    out, _ = run(path, settings, 20.0, memory_limit=limit)
    np.testing.assert_array_equal(out, gd.denoise(image, settings, 20.0, axes="TYX").image)
    assert len(streamed) == 1


def test_alpha_of_a_long_stack_passes_as_it_is(streamed, tmp_path):
    image = noisy(5, 33, 37, 4, dtype="uint8")
    path = written(tmp_path, image, "TYXS", photometric="rgb", extrasamples=["unassalpha"])
    out, _ = run(path, VIDEO, 20.0)
    np.testing.assert_array_equal(out[..., 3], image[..., 3])
    expected = gd.denoise(image[..., :3], VIDEO, 20.0, axes="TYXS")
    np.testing.assert_array_equal(out[..., :3], expected.image)


def test_one_plane_is_read_whole(streamed, tmp_path):
    image = noisy(33, 37, dtype="uint16")
    out, _ = run(written(tmp_path, image, "YX"), small(gd.BM3D), 20.0)
    np.testing.assert_array_equal(out, gd.denoise(image, small(gd.BM3D), 20.0).image)
    assert not streamed


@pytest.mark.parametrize(
    ("settings", "axes", "shape", "options"),
    [
        (small(gd.BM3D), "ZYX", (4, 33, 37), {}),
        (small(gd.BM3D), "ZCYX", (3, 2, 33, 37), {"imagej": True}),
        (small(gd.BM3D, channels="joint"), "CZYX", (2, 3, 33, 37), {"ome": True}),
        (small(gd.BM3D), "ZYXS", (4, 33, 37, 3), {"photometric": "rgb"}),
        (small(gd.NLMeans, slices=1), "ZYX", (5, 33, 37), {"compression": "zlib"}),
        (small(gd.BM4D), "ZYX", (12, 33, 37), {}),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_stacks_without_time_are_filtered_in_parts(
    streamed, tmp_path, monkeypatch, settings, axes, shape, options
):
    monkeypatch.setattr(parts_of_images, "PART_BYTES", 1)
    image = noisy(*shape, dtype="uint8" if axes.endswith("S") else "uint16")
    path = written(tmp_path, image, axes, **options)
    with monkeypatch.context() as context:
        context.setattr(ImageFile, "loaded", None)  # nothing is read whole
        for sigma in (20.0, None):
            out, file = run(path, settings, sigma, axes=axes)
            expected = gd.denoise(image, settings, sigma, axes=axes)
            np.testing.assert_array_equal(out, expected.image)
            assert file.record.sigma == expected.record.sigma
    assert not streamed
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.tif", "out.tif"]


def test_small_stacks_are_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(by_parts, "FrameStream", None)
    path = written(tmp_path, noisy(4, 33, 37, dtype="uint16"), "TYX")
    run(path, VIDEO, 20.0)


@pytest.mark.parametrize(
    ("noise", "dtype"),
    [
        (gd.PoissonGaussian(2.0, 5.0, 3.0), "float32"),
        ((gd.PoissonGaussian(2.0, 5.0, 3.0), gd.PoissonGaussian(1.0, 9.0)), "uint16"),
        (gd.Rician(15.0), "float32"),
        (gd.Speckle(30.0, least=0.5), "float32"),
        (gd.Gaussian(20.0), "uint16"),
        ("poisson-gaussian", "uint16"),
    ],
    ids=str,
)
def test_models_of_noise(streamed, tmp_path, noise, dtype):
    image = noisy(4, 2, 40, 48, dtype=dtype)
    path = written(tmp_path, image, "TCYX", ome=True)
    for settings in (VIDEO, FILTERS["nl_means"], gd.Isoline()):
        out, file = run(path, settings, None, noise=noise, axes="TCYX")
        expected = gd.denoise(image, settings, noise=noise, axes="TCYX")
        np.testing.assert_array_equal(out, expected.image)
        for field in ("sigma", "sigma_source", "noise", "notes"):
            assert getattr(file.record, field) == getattr(expected.record, field), field
    assert len(streamed) == 3
