"""A run that is prepared: what is checked, what is read for it, and what its parts read."""

from __future__ import annotations

import pickle
from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
import tifffile

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import (
    AxesError,
    DenoiseError,
)
from napari_gpu_denoise.run.input import Block
from napari_gpu_denoise.run.job import start
from napari_gpu_denoise.run.record import DeviceReport, Tally
from napari_gpu_denoise.run.request import Run
from scenes import IMAGE_FILTERS, joining, noisy, small

SIZES = {"T": 9, "Z": 7, "C": 2, "Y": 64, "X": 70}


class Unread:
    """An array of which no pixel may be read."""

    def __init__(self, *shape: int, dtype="uint16"):
        self.shape, self.dtype, self.ndim = shape, np.dtype(dtype), len(shape)

    def __getitem__(self, index):
        raise AssertionError(f"read at {index}")


def job_of(kind, axes: str, **changes):
    image = Unread(*(SIZES[a] for a in axes))
    return start(Run(joining(kind, axes, **changes), 20.0, axes=axes), image)


def test_nothing_is_read_where_the_noise_is_given():
    for kind in IMAGE_FILTERS:
        job = job_of(kind, "TCYX")
        assert (job.names, job.shape) == ("TCYX", (9, 2, 64, 70))
        assert job.dtypes == (np.dtype("uint16"), np.dtype("uint16"))
        assert job.sigma.values == (20.0,)
        assert job.levels is None  # parts of 16 bits or less need none in common
        assert not job.stabilised
    run = Run(gd.NLMeans(), noise=gd.Gaussian(20.0), axes="TYX")
    assert start(run, Unread(9, 64, 70)).sigma.values == (20.0,)


def test_a_job_is_sent_without_pixels_and_without_a_device(device):
    image = noisy(300, 310, dtype="uint16")
    block = Block.of(image, "YX", "raise")
    for noise in (None, gd.PoissonGaussian(2.0, 3.0), "gaussian"):
        run = Run(small(gd.BM3D), None if noise else 20.0, noise=noise, device=device)
        job = start(run, block)
        sent = pickle.dumps(job)
        assert len(sent) < 20_000
        assert b"pyopencl" not in sent
        again = pickle.loads(sent)
        assert again.device.name == device.name
        assert (again.filter, again.levels, again.names) == (job.filter, job.levels, job.names)
        np.testing.assert_array_equal(again.sigma.array, job.sigma.array)
    by_name = Run(small(gd.BM3D), 20.0, device=device.address)
    assert start(by_name, block).device == device


def test_a_run_holds_parsed_values():
    model = gd.Gaussian(3.0)
    run = Run(gd.BM3D(), [6, 18], noise=model, dtype="float32", memory_limit="2K")
    assert (run.sigma, run.noise, run.dtype) == ((6.0, 18.0), (model,), np.dtype("float32"))
    assert run == Run(gd.BM3D(), (6.0, 18.0), noise=(model,), dtype=np.float32, memory_limit=2048)
    assert Run(gd.BM3D(), np.int64(5), dtype="auto") == Run(gd.BM3D(), 5.0)
    wrong = {"sigma": "a", "noise": gd.BM3D(), "dtype": "complex64"}
    for name, value in wrong.items():
        with pytest.raises(DenoiseError, match=name):
            Run(gd.BM3D(), **{name: value})


def test_the_first_of_many_frames_is_in_time():
    frame = Block.of(noisy(40, 44), "YX", "raise")
    run = Run(small(gd.NLMeans, frames_before=1), 1e5)
    with pytest.raises(AxesError, match="needs an axis T"):
        start(run, frame)
    job = start(run, frame, is_stream_frame=True)
    assert job.filter.over_time
    # The others may be of a larger range, but not of any.
    assert job.sigma.array.max() == 1e5
    assert start(Run(small(gd.NLMeans), 1e5), frame).sigma.array.max() < 1e4
    assert start(replace(run, sigma=1e9), frame, is_stream_frame=True).sigma.array.max() < 1e7


def test_the_record_says_what_was_not_filtered(device):
    image = noisy(5, 44, dtype="uint8")
    made = image // 2 + np.uint8(image.mean() / 2)
    for sigma, said in ((0.0, "returned unchanged"), (20.0, "mirroring to at least")):
        job = start(Run(small(gd.BM3D), sigma, device=device), Block.of(image, "YX", "raise"))
        record = job.record(DeviceReport(Tally(3, 0)), lambda: (image, made), str(device))
        assert record.saturated == 3
        (note,) = record.notes
        assert said in note


SETTINGS = gd.NLMeans(window=5, neighbours=4)


def counts(mean: float, shape=(40, 50), seed=0) -> np.ndarray:
    ramp = np.linspace(0.5, 1.5, shape[-1])
    return np.random.default_rng(seed).poisson(mean * ramp, shape).astype(np.uint16)


def ways(image, folder, device, **options):
    """Yield the result of each way in, for a stack of two frames."""
    stack = np.stack([image, image])
    options = {"device": device, **options}
    yield gd.denoise(image, SETTINGS, **options).image
    lazy = da.from_array(stack, chunks=(1, 40, 50))
    yield gd.denoise_lazy(lazy, SETTINGS, axes="TYX", **options).compute()[0]
    yield next(iter(gd.stream(SETTINGS, stack, **options)))
    tifffile.imwrite(folder / "in.tif", image, photometric="minisblack")
    report = gd.run_batch(folder / "in.tif", SETTINGS, output=folder / "out.tif", **options)
    assert not report.failed, report.failed[0].error
    yield tifffile.imread(folder / "out.tif")


@pytest.mark.parametrize("sigma", [3.0, 30.0])
def test_integers_become_floats_where_noise_is_weak(tmp_path, device, sigma):
    image = noisy(40, 50, dtype="uint8")
    for result in ways(image, tmp_path, device, sigma=sigma):
        assert result.dtype == ("float32" if sigma < 8 else "uint8")


@pytest.mark.parametrize("given", ["auto", None, "same", "uint16"])
def test_few_photons_keep_their_fractions(tmp_path, device, given):
    model, image = gd.PoissonGaussian(1.0, 0.0), counts(4)
    made = list(ways(image, tmp_path, device, noise=model, dtype=given))
    exact = gd.denoise(image, SETTINGS, noise=model, dtype="float32", device=device).image
    for result in made:
        if given in ("auto", None):
            np.testing.assert_array_equal(result, exact)
        else:
            assert result.dtype == "uint16"


def test_the_record_says_why(device):
    model = gd.PoissonGaussian(1.0, 0.0)
    result = gd.denoise(counts(4), SETTINGS, noise=model, device=device)
    (note,) = (note for note in result.record.notes if "float32" in note)
    assert "rounding to uint16" in note and "dtype='same'" in note
    assert result.record.output_dtype == "float32"
    bright = gd.denoise(counts(4000), SETTINGS, noise=model, device=device)
    assert bright.image.dtype == np.uint16
    assert not [note for note in bright.record.notes if "float32" in note]


IMAGE = noisy(40, 50, 3, dtype="uint8")


@pytest.mark.parametrize(
    ("image", "sigma", "axes", "dtype"),
    [
        (IMAGE, 2, "YXS", "uint8"),
        (IMAGE[..., 0], 0, "YX", "uint8"),
        (IMAGE[..., 0].astype("int32"), 2, "YX", "int32"),
        (IMAGE[..., 0].astype("float64"), 2, "YX", "float64"),
        # The weakest channel decides.
        (IMAGE[..., :2], (20, 2), "YXC", "float32"),
        (IMAGE[..., :2], (20, 20), "YXC", "uint8"),
    ],
)
def test_what_keeps_its_type(device, image, sigma, axes, dtype):
    assert gd.nl_means(image, sigma, axes=axes, device=device).dtype == dtype


def test_a_place_for_the_result_decides(device):
    image, options = IMAGE[..., 0], {"device": device}
    out = np.zeros(image.shape, np.uint8)
    assert gd.denoise(image, SETTINGS, 2, out=out, **options).image is out
    rounded = np.rint(gd.nl_means(image, 2, settings=SETTINGS, **options))
    np.testing.assert_array_equal(out, rounded)
    made = gd.denoise(image, SETTINGS, 2, out=np.zeros, **options).image
    assert made.dtype == np.float32
