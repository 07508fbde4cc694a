"""Gain and read noise from pairs of frames."""

from __future__ import annotations

import imageio.v3 as imageio
import numpy as np
import pytest

from napari_gpu_denoise.errors import NonFiniteError
from napari_gpu_denoise.noise.frames import FramesInARow, noise_of_differences
from reference.data import REASON, data_folder


def frames(picture, number, gain=2.0, read=5.0, offset=0.0, seed=0):
    rng = np.random.default_rng(seed)
    electrons = rng.poisson(np.broadcast_to(picture, (number, *picture.shape)) / gain)
    return offset + gain * electrons + rng.normal(0, read, electrons.shape)


def of_pairs(*pairs):
    return noise_of_differences(FramesInARow(pairs).differences)


def of_stack(stack):
    return noise_of_differences(FramesInARow.of(stack).differences)


def textured(side=256):
    """Texture everywhere: a single image would not do."""
    y, x = np.mgrid[:side, :side]
    return 150 + 0.4 * x + 100 * np.sin(2.1 * x) * np.sin(1.7 * y)


def test_flat_and_dark_pairs():
    levels = (0.0, 100, 900, 3000)
    pairs = [tuple(frames(np.full((128, 128), level), 2, 0.3, 3, 20)) for level in levels]
    found = of_pairs(*pairs)
    assert found.gain == pytest.approx(0.3, rel=0.04)
    assert np.sqrt(found.gain * 20 + found.intercept) == pytest.approx(3, rel=0.06)
    # Nothing tells how much of the intercept is the offset's.
    assert of_pairs(*pairs[1:]).offset == 0


@pytest.mark.parametrize(("factor", "constant"), [(1, 40), (0.95, 0)])
def test_flicker_and_bleaching_do_no_harm(factor, constant):
    first, second = frames(textured(), 2)
    steady = of_pairs((first, second))
    found = of_pairs((first, factor * second + constant))
    assert abs(steady.gain - 2) < 3 * steady.gain_error < 0.5
    assert found.gain == pytest.approx(steady.gain, rel=0.08)


def object_moves(stack):
    for t, frame in enumerate(stack):
        frame[40:120, 30 + 15 * t : 110 + 15 * t] = frames(np.full((80, 80), 700.0), 1, seed=t)


def leaves_move(stack):
    """Foliage: brightness does not tell it from what stands still."""
    rng = np.random.default_rng(1)
    _, x = np.mgrid[:256, :256]
    for frame in stack:
        leaves = 150 + 0.4 * x + 80 * rng.standard_normal((32, 32)).repeat(8, 0).repeat(8, 1)
        frame[40:100] = leaves[40:100] + rng.normal(0, 20, (60, 256))


def pixels_are_missing(stack):
    stack[:, ::30, ::30] = np.nan


@pytest.mark.parametrize("spoilt", [list, object_moves, leaves_move, pixels_are_missing])
def test_a_textured_scene(spoilt):
    stack = frames(textured(), 6)
    spoilt(stack)
    if spoilt is leaves_move:
        assert FramesInARow.of(stack).still_noise() is None
        return
    found = of_stack(stack)
    assert found.gain == pytest.approx(2, rel=0.08)
    assert found.gain * 200 + found.intercept == pytest.approx(425, rel=0.08)


def test_saturated_levels_are_left_out():
    _, x = np.mgrid[:256, :256]
    stack = np.rint(frames(20.0 + x, 4).clip(0, 200)).astype(np.uint16)
    found = of_stack(stack)
    assert found.gain == pytest.approx(2, rel=0.1)
    assert not found.curve.used[-1]


def test_equal_frames_have_no_noise():
    for found in (
        of_stack(np.full((4, 40, 40), 40)),
        of_pairs((textured(), textured())),
    ):
        assert (found.gain, found.intercept, found.read_noise, found.gain_error) == (0, 0, 0, 0)
    with pytest.raises(NonFiniteError):
        of_stack(np.full((3, 20, 20), np.nan))


@pytest.mark.skipif(data_folder() is None, reason=REASON)
def test_pairs_of_a_sensor():
    names = (*(f"b_{k:03}" for k in (0, 6, 12, 24, 36)), "d_000")
    folder = data_folder() / "sensor/emva_ccd12"
    pairs = [
        tuple(imageio.imread(folder / f"{name}_snap_00{i}.png") for i in (1, 2)) for name in names
    ]
    found = of_pairs(*pairs)
    assert found.gain == pytest.approx(0.28, rel=0.05)
    assert found.gain * np.mean(pairs[-1]) + found.intercept == pytest.approx(9.45, rel=0.2)
