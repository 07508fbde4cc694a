"""Gain and read noise from pairs of frames."""

from __future__ import annotations

import imageio.v3 as imageio
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from napari_gpu_denoise.errors import NonFiniteError
from napari_gpu_denoise.noise.photon_pairs import neighbours, pairs_noise
from reference.data import REASON, data_folder


def frames(picture, number, gain=2.0, read=5.0, offset=0.0, seed=0):
    rng = np.random.default_rng(seed)
    shape = (number, *picture.shape)
    electrons = rng.poisson(np.broadcast_to(picture, shape) / gain)
    return offset + gain * electrons + rng.normal(0, read, shape)


def of_pairs(*pairs):
    return pairs_noise(pairs)


def of_stack(stack):
    return of_pairs(*neighbours(stack))


def textured(ny=256, nx=256):
    """Texture everywhere: a single image would not do."""
    y, x = np.mgrid[:ny, :nx]
    return 150 + 0.4 * x + 100 * np.sin(2.1 * x) * np.sin(1.7 * y)


def test_flat_and_dark_pairs():
    flat = [frames(np.full((128, 128), level), 2, 0.3, 3, 20) for level in (100.0, 900, 3000)]
    dark = frames(np.zeros((128, 128)), 2, 0.3, 3, 20)
    found = of_pairs(*map(tuple, flat), tuple(dark))
    assert found.gain == pytest.approx(0.3, rel=0.04)
    assert np.sqrt(found.gain * 20 + found.intercept) == pytest.approx(3, rel=0.06)
    assert found.intercept == pytest.approx(9 - 0.3 * 20, abs=0.7)
    # Nothing tells how much of the intercept is the offset's.
    assert of_pairs(*map(tuple, flat)).offset == 0


@pytest.mark.parametrize(("factor", "constant"), [(1, 40), (0.95, 0)])
def test_flicker_and_bleaching_do_no_harm(factor, constant):
    first, second = frames(textured(), 2)
    steady = of_pairs((first, second))
    found = of_pairs((first, factor * second + constant))
    assert abs(steady.gain - 2) < 3 * steady.gain_error < 0.5
    assert found.gain == pytest.approx(steady.gain, rel=0.08)
    # The test means something: the difference itself varies by much more.
    assert np.square(first - factor * second - constant).mean() / 2 > 1.05 * (2 * 200 + 25)


def test_a_stack_of_a_textured_scene():
    found = of_stack(frames(textured(), 6))
    assert found.gain == pytest.approx(2, rel=0.05)
    assert found.read_noise == pytest.approx(5, abs=4 * found.read_noise_error + 0.5)
    assert all(found.curve.used)


def test_moving_places_are_left_out():
    stack = frames(textured(), 6)
    for t, frame in enumerate(stack):
        frame[40:120, 30 + 15 * t : 110 + 15 * t] = frames(np.full((80, 80), 700.0), 1, seed=t)
    found = of_stack(stack)
    assert found.gain == pytest.approx(2, rel=0.08)
    # The test means something: all pixels alike are far off.
    assert np.diff(stack, axis=0)[:, 40:120, 30:190].var() / 2 > 5 * (2 * 300 + 25)


def test_places_that_move_at_the_same_brightness_are_left_out():
    """Foliage: brightness does not tell it from what stands still."""
    stack = frames(textured(), 6)
    rng = np.random.default_rng(1)
    _, x = np.mgrid[:256, :256]
    for frame in stack:
        leaves = 150 + 0.4 * x + 80 * rng.standard_normal((32, 32)).repeat(8, 0).repeat(8, 1)
        frame[40:100] = leaves[40:100] + rng.normal(0, 20, (60, 256))
    found = of_stack(stack)
    assert found.gain * 200 + found.intercept == pytest.approx(425, rel=0.08)
    assert np.diff(stack, axis=0).var() / 2 > 2 * 425


def test_correlated_noise_is_measured_in_full():
    white = np.random.default_rng(0).normal(0, 1, (5, 256, 256))
    noise = gaussian_filter(white, (0, 1, 1))
    stack = textured() + 10 * noise / noise.std()
    found = of_stack(stack)
    assert found.gain * 200 + found.intercept == pytest.approx(100, rel=0.08)


def test_saturated_levels_are_left_out():
    _, x = np.mgrid[:256, :256]
    stack = np.rint(frames(20.0 + x, 4).clip(0, 200)).astype(np.uint16)
    found = of_stack(stack)
    assert found.gain == pytest.approx(2, rel=0.1)
    assert not found.curve.used[-1]


def test_standard_error_predicts_the_spread():
    found = [of_stack(frames(textured(128, 128), 3, seed=seed)) for seed in range(20)]
    spread = np.std([each.gain for each in found], ddof=1)
    predicted = np.sqrt(np.mean([each.gain_error**2 for each in found]))
    assert 0.5 < predicted / spread < 2.5


@pytest.mark.parametrize("value", [0, 40])
def test_equal_frames_have_no_noise(value):
    for found in (
        of_stack(np.full((4, 40, 40), value, np.uint16)),
        of_pairs((textured(), textured())),
    ):
        assert (found.gain, found.intercept, found.read_noise, found.gain_error) == (0, 0, 0, 0)


def test_nonfinite_pixels_are_left_out():
    stack = frames(textured(), 4)
    stack[:, ::30, ::30] = np.nan
    assert of_stack(stack).gain == pytest.approx(2, rel=0.08)
    with pytest.raises(NonFiniteError):
        of_stack(np.full((3, 20, 20), np.nan))


@pytest.mark.skipif(data_folder() is None, reason=REASON)
def test_pairs_of_a_sensor():
    folder = data_folder() / "sensor/emva_ccd12"

    def pair(name):
        return tuple(imageio.imread(folder / f"{name}_snap_00{i}.png") for i in (1, 2))

    dark = pair("d_000")
    found = of_pairs(*(pair(f"b_{k:03}") for k in (0, 6, 12, 24, 36)), dark)
    assert found.gain == pytest.approx(0.28, rel=0.05)
    assert found.gain * np.mean(dark) + found.intercept == pytest.approx(9.45, rel=0.2)
