"""Gain and read noise from single images."""

from __future__ import annotations

import json
from dataclasses import asdict

import imageio.v3 as imageio
import numpy as np
import pytest

from napari_gpu_denoise.errors import AxesError, NonFiniteError
from napari_gpu_denoise.noise.photon import robust_line, single_image_noise, weighted_line
from reference.data import REASON, data_folder, pictures


def photons(picture, gain, read, seed=0):
    rng = np.random.default_rng(seed)
    return gain * rng.poisson(picture / gain) + rng.normal(0, read, picture.shape)


def shading(ny=256, nx=256):
    """Smooth shading, sharp edges, and fine texture in the lower half."""
    y, x = np.mgrid[:ny, :nx]
    picture = 60 + 0.6 * x + 20 * np.cos(y / 25)
    picture[(y - 70) ** 2 + (x - 80) ** 2 < 2500] += 50
    return picture + np.where(y > ny // 2, 15 * np.sin(2.1 * x) * np.sin(1.7 * y), 0)


@pytest.mark.parametrize(("gain", "read"), [(0.5, 2), (2, 5), (5, 2), (5, 10)])
def test_known_gain_and_read_noise(gain, read):
    found = [single_image_noise(photons(shading(), gain, read, seed)) for seed in range(8)]
    gains = np.array([each.gain for each in found])
    assert gains.mean() == pytest.approx(gain, rel=0.05)
    intercepts = np.array([each.intercept for each in found])
    assert abs(intercepts.mean() - read**2) < 0.13 * (100 * gain + read**2)
    predicted = np.sqrt(np.mean([each.gain_error**2 for each in found]))
    assert 0.4 < predicted / gains.std(ddof=1) < 4  # fine texture in half of it: it might be worse


def test_an_offset_is_seen_as_a_negative_intercept():
    found = single_image_noise(1000 + photons(shading(), 2, 0))
    assert found.gain == pytest.approx(2, rel=0.12)
    assert found.intercept < 0
    assert found.offset == pytest.approx(1000, rel=0.03)
    assert found.read_noise == 0
    assert np.isfinite(found.read_noise_error)


def test_noise_that_does_not_grow():
    found = single_image_noise(shading() + np.random.default_rng(0).normal(0, 8, (256, 256)))
    assert abs(found.gain) < 4 * found.gain_error
    # The line through the middle of the picture is what one sigma would be.
    assert found.gain * 140 + found.intercept == pytest.approx(64, rel=0.15)


def test_clipped_levels_are_left_out():
    """The bright third is cut off: its variance falls to nothing."""
    _, x = np.mgrid[:256, :256]
    image = np.rint(photons(20 + 1.0 * x, 2, 3).clip(0, 200)).astype(np.uint16)
    found = single_image_noise(image)
    assert found.gain == pytest.approx(2, rel=0.1)
    curve = found.curve
    assert not curve.used[-1]
    assert all(mean < 185 for mean, used in zip(curve.mean, curve.used, strict=True) if used)


def test_the_curve_lies_on_the_line():
    found = single_image_noise(photons(shading(), 2, 5))
    curve = found.curve
    assert list(curve.mean) == sorted(curve.mean)
    used = np.array(curve.used)
    mean, variance = np.array(curve.mean)[used], np.array(curve.variance)[used]
    many = np.array(curve.count)[used] >= 100
    assert variance[many] == pytest.approx(2 * mean[many] + 25, rel=0.2)
    assert json.loads(json.dumps(asdict(found)))["curve"]["count"] == list(curve.count)


def test_several_exposures_make_one_curve():
    levels = np.array([50.0, 400, 1500, 3000])[:, None, None]
    found = single_image_noise(photons(levels * np.ones((4, 128, 128)), 0.3, 3))
    assert found.gain == pytest.approx(0.3, rel=0.05)
    assert found.read_noise == pytest.approx(3, rel=0.3)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nonfinite_pixels_are_left_out(bad):
    image = photons(shading(), 2, 5)
    image[::20, ::20] = bad
    assert single_image_noise(image).gain == pytest.approx(2, rel=0.15)


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (3, 3), (9, 9), (2, 100), (64, 64)])
@pytest.mark.parametrize("value", [0, 7.3])
def test_constant_image_has_no_noise(shape, value):
    found = single_image_noise(np.full(shape, value))
    numbers = (found.gain, found.gain_error, found.intercept, found.read_noise, found.offset)
    assert numbers == (0, 0, 0, 0, 0)


def test_input_is_not_modified():
    image = photons(shading(), 2, 5)
    image.flags.writeable = False
    before = image.tobytes()
    single_image_noise(image)
    assert image.tobytes() == before


def test_refusals():
    with pytest.raises(AxesError, match="at least two axes"):
        single_image_noise(np.zeros(5))
    with pytest.raises(NonFiniteError):
        single_image_noise(np.full((20, 20), np.nan))


def test_lines():
    x = np.arange(1.0, 9)
    gain, intercept, covariance = weighted_line(x, 3 * x + 2, np.ones(8))
    assert (gain, intercept) == pytest.approx((3, 2))
    assert covariance[0, 0] == pytest.approx(1 / np.square(x - x.mean()).sum())
    y = 3 * x + 2
    y[5] *= 4
    gain, intercept, _, used = robust_line(x, y, np.full(8, 0.02), 1.0)
    assert (gain, intercept) == pytest.approx((3, 2), rel=0.1)
    assert not used[5]
    assert weighted_line(np.ones(4), y[:4], np.ones(4))[0] == 0


@pytest.mark.skipif(data_folder() is None, reason=REASON)
def test_single_flat_fields_of_a_sensor():
    folder = data_folder() / "sensor/emva_ccd12"
    frames = [imageio.imread(folder / f"b_{k:03}_snap_001.png") for k in (0, 6, 12, 24, 36)]
    assert single_image_noise(np.stack(frames)).gain == pytest.approx(0.28, rel=0.15)


@pytest.mark.skipif(data_folder() is None, reason=REASON)
@pytest.mark.parametrize(("gain", "read"), [(0.5, 2), (2, 5), (5, 10)])
def test_photographs(gain, read):
    clean = list(pictures("bsd68").values())[::4]
    found = [
        single_image_noise(photons(each.astype(float), gain, read, i))
        for i, each in enumerate(clean)
    ]
    error = np.array([each.gain / gain - 1 for each in found])
    assert abs(error.mean()) <= 0.05
    assert np.median(np.abs(error)) <= 0.05
    reads = np.array([each.read_noise for each in found])
    errors = np.array([each.read_noise_error for each in found])
    assert np.all(errors > 0)
    assert np.median(np.abs(reads - read) / errors) < 3
