"""Bleaching and flicker are measured, and nothing else is taken for them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import ndimage

from napari_gpu_denoise.image import flicker
from napari_gpu_denoise.image.flicker import block_means, block_pixels, brightness_changes

IDENTITY = (1.0, 0.0)
SHAPE = (270, 480)
RIM = 64
SIGMAS = (0.0, 5.0, 20.0)


def cells(seed: int) -> np.ndarray:
    """Bright cells on a background of 100, up to 1000; wider than SHAPE, to pan over."""
    rng = np.random.default_rng(seed)
    shape = tuple(n + RIM for n in SHAPE)
    spots = np.zeros(shape)
    spots[rng.integers(0, shape[0], 60), rng.integers(0, shape[1], 60)] = rng.uniform(0.3, 1, 60)
    spots = ndimage.gaussian_filter(spots, 10)
    return 100 + 900 * spots / spots.max()


def texture(seed: int) -> np.ndarray:
    """Texture of several scales, 110 on average."""
    rng = np.random.default_rng(seed)
    levels = 110.0
    for size, deviation in ((4, 20), (16, 20), (64, 15)):
        layer = ndimage.gaussian_filter(
            rng.normal(size=[n + RIM for n in SHAPE]), size, mode="wrap"
        )
        levels = levels + deviation * layer / layer.std()
    return levels


SCENES = {make.__name__: [make(seed) for seed in range(3)] for make in (cells, texture)}


def view(scene: np.ndarray, dy: int = 0, dx: int = 0) -> np.ndarray:
    return scene[dy : dy + SHAPE[0], dx : dx + SHAPE[1]]


def change_between(before: np.ndarray, after: np.ndarray, noise: float) -> tuple[float, float]:
    """Gain and offset between two frames, given by their block means."""
    (found,) = brightness_changes(before[None], after[None], np.array([noise], np.float64))
    return tuple(found.tolist())


def measured(before: np.ndarray, after: np.ndarray, sigma: float, seed: int = 0) -> tuple:
    """The change between two frames that get noise."""
    rng = np.random.default_rng(seed)
    noise = sigma * math.sqrt(2 / block_pixels(before.shape))
    means = [block_means(f + rng.normal(0, sigma, f.shape)) for f in (before, after)]
    return change_between(*means, noise)


def error(change: tuple, gain: float, offset: float, levels: np.ndarray) -> float:
    """The largest error at dark and bright levels, relative to the difference of these."""
    ends = np.percentile(levels, [1, 99])
    return float(np.abs((change[0] - gain) * ends + change[1] - offset).max() / np.ptp(ends))


# Blocks.


@pytest.mark.parametrize("shape", [(64, 64), (32, 48), (270, 480), (540, 960), (16, 5000), (5, 7)])
def test_a_block_mean_is_that_of_its_pixels(shape):
    # The mean of a plane over a block is its value at the middle of the block.
    y, x = np.mgrid[: shape[0], : shape[1]].astype(float)
    rows, columns = (min(16, max(1, n // 4)) for n in shape)
    found = [block_means(plane).reshape(rows, columns) for plane in (y, x)]
    for means, n, axis in ((found[0], shape[0], 0), (found[1], shape[1], 1)):
        assert np.ptp(means, axis=1 - axis).max() < 1e-9
        line = np.take(means, 0, axis=1 - axis)
        assert np.ptp(np.diff(line)) < 1e-9 if len(line) > 2 else True
        assert abs(line.mean() - (n - 1) / 2) <= 1
        # Blocks lie side by side over the whole axis.
        assert len(line) == 1 or np.diff(line)[0] * len(line) > 0.8 * n


@pytest.mark.parametrize("shape", [(64, 64), (540, 960), (16, 9000), (1400, 1200)])
def test_the_noise_of_a_block_mean_is_what_its_pixels_say(shape):
    means = [block_means(np.random.default_rng(seed).normal(0, 10, shape)) for seed in range(6)]
    assert block_pixels(shape) >= 16 and block_pixels(shape) * len(means[0]) <= 65536
    assert np.std(means) * math.sqrt(block_pixels(shape)) == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize("dtype", ["uint8", ">u2", "int32", "float32", ">f4", "float64"])
def test_blocks_of_any_type_and_layout(dtype):
    colour = np.random.default_rng(0).integers(0, 200, (300, 500, 3)).astype(dtype)
    kept = colour.copy()
    frame = colour[..., 1]
    expected = block_means(np.ascontiguousarray(frame.astype("float64")))
    assert expected.shape == (256,) and expected.dtype == np.float64
    np.testing.assert_allclose(block_means(frame), expected, rtol=1e-12)
    np.testing.assert_allclose(block_means(np.asfortranarray(frame)), expected, rtol=1e-12)
    several = block_means(np.stack([frame, frame[::-1]]))
    np.testing.assert_array_equal(several, [block_means(frame), block_means(frame[::-1])])
    np.testing.assert_array_equal(colour, kept)


# What there is, is found.


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize(
    "gain, offset",
    [(0.98, 0), (0.89, 0), (0.7, 0), (1.1, 0), (1.3, 0), (1, 20), (0.9, 15)],
)
def test_a_change_of_a_static_scene(gain, offset, sigma):
    for seed, scene in enumerate(SCENES["cells"]):
        before = view(scene)
        change = measured(before, gain * before + offset, sigma, seed)
        assert error(change, gain, offset, before) <= 1e-6 + 0.0003 * sigma


@pytest.mark.parametrize("kind", SCENES)
@pytest.mark.parametrize("sigma, within", [(0, 0.001), (10, 0.012)])
@pytest.mark.parametrize("gain", [0.98, 0.89, 1.1])
def test_motion_in_a_third_of_the_blocks(kind, gain, sigma, within):
    for seed, scene in enumerate(SCENES[kind]):
        moves = np.zeros((16, 16))
        moves.flat[np.random.default_rng(seed).permutation(256)[:90]] = 1
        moves = np.pad(np.kron(moves, np.ones((16, 30))), ((7, 7), (0, 0))) > 0
        before = view(scene)
        after = gain * np.where(moves, view(scene, 30, 45), before)
        assert error(measured(before, after, sigma, seed), gain, 0, before) < within


def test_saturated_blocks_are_left_out():
    before = np.minimum(view(SCENES["texture"][0]), 170.0)
    after = np.minimum(1.2 * view(SCENES["texture"][0]), 170.0)
    saturated = np.mean(after == 170)
    assert 0.1 < saturated < 0.4
    assert error(measured(before, after, 2.0), 1.2, 0, before) < 0.03


def test_noise_in_the_first_frame_does_not_flatten_the_gain():
    # A contrast of twice the noise of a block: least squares would find 0.48.
    rng = np.random.default_rng(0)
    gains = []
    for _ in range(40):
        levels = rng.normal(100, 10, 256)
        before, after = levels + rng.normal(0, 5, 256), 0.6 * levels + rng.normal(0, 5, 256)
        gains.append(change_between(before, after, 5 * math.sqrt(2))[0])
    assert np.median(gains) == pytest.approx(0.6, abs=0.05)


def test_a_shift_alone_keeps_the_gain_at_one():
    # Contrasts from none to four times the noise.
    rng, gains = np.random.default_rng(0), []
    for contrast in (0, 2, 5, 20):
        for _ in range(25):
            levels = rng.normal(100, contrast, 256)
            before, after = (levels + shift + rng.normal(0, 5, 256) for shift in (0, -20))
            gains.append(change_between(before, after, 5 * math.sqrt(2))[0])
    assert np.mean(np.equal(gains, 1)) > 0.85
    assert np.abs(np.subtract(gains, 1)).max() < 0.2


# What there is not, is not found.


@pytest.mark.parametrize("kind", SCENES)
@pytest.mark.parametrize("sigma", (*SIGMAS, 60.0))
@pytest.mark.parametrize("dy, dx", [(0, 0), (0, 1), (2, 3), (10, 20), (40, 60)])
def test_no_change_of_scenes_that_are_still_or_pan(kind, sigma, dy, dx):
    for seed, scene in enumerate(SCENES[kind]):
        assert measured(view(scene), view(scene, dy, dx), sigma, seed) == IDENTITY


@pytest.mark.parametrize("sigma", SIGMAS)
def test_no_change_where_the_scene_is_cut(sigma):
    scenes = [view(scene) for kind in SCENES.values() for scene in kind]
    for first, second in itertools.permutations(scenes, 2):
        assert measured(first, second, sigma) == IDENTITY


@pytest.mark.parametrize("contrast, moved", [(0, 0), (1, 0.6), (1, 1), (3, 0.6), (50, 0.3)])
def test_no_change_of_blocks_that_are_hidden_by_noise_or_move(contrast, moved):
    rng = np.random.default_rng(0)
    levels, others = contrast * rng.normal(size=(2, 100, 256))
    frames = levels, np.where(rng.random(levels.shape) < moved, others, levels)
    noisy = (frame + rng.normal(size=frame.shape) for frame in frames)
    found = brightness_changes(*noisy, np.full(100, math.sqrt(2)))
    assert np.all(found == IDENTITY)


# Whatever comes in.


def test_too_few_or_constant_blocks_or_a_gain_beyond_all_bounds_are_no_change():
    few, enough = np.linspace(10, 50, 15), np.linspace(10, 50, 16)
    levels, flat = np.random.default_rng(0).normal(100, 20, 256), np.full(256, 7.0)
    assert change_between(enough, 0.8 * enough, 0.0)[0] == pytest.approx(0.8)
    pairs = [(few, 0.8 * few), (few[:0], few[:0]), (flat, flat), (flat, flat + 3)]
    for before, after in pairs + [(levels, gain * levels) for gain in (0.1, -1.0, 8.0)]:
        assert change_between(before, after, 0.0) == IDENTITY


def test_blocks_that_are_not_finite_are_left_out():
    before = np.random.default_rng(0).normal(100, 20, 256)
    after = 0.8 * before + 3
    before[3], after[7], after[9] = np.nan, np.inf, -np.inf
    change = change_between(before, after, 0.0)
    assert change == (pytest.approx(0.8), pytest.approx(3))
    assert change_between(before * np.nan, after, 0.0) == IDENTITY
    assert change_between(before, after, math.nan) == IDENTITY


@pytest.mark.parametrize("scale, level", [(1e-300, 0), (1e300, 0), (1e-30, 0), (1, 1e9)])
def test_levels_however_large_or_small(scale, level):
    before = np.random.default_rng(0).normal(100, 20, 256)
    after = 0.8 * before + 3
    gain, offset = change_between(level + scale * before, level + scale * after, 0.0)
    assert gain == pytest.approx(0.8, rel=1e-5)
    mapped = gain * (level + scale * 100) + offset
    assert mapped == pytest.approx(level + scale * 83, rel=1e-6)


def test_random_blocks_never_give_what_is_not_a_change():
    rng = np.random.default_rng(0)
    with np.errstate(all="raise", under="ignore"):
        for _ in range(500):
            count = rng.integers(0, 300)
            scale = 10.0 ** rng.integers(-300, 308)
            before = rng.choice([0, 1, 2, 1e-9, rng.normal()], count) * scale
            after = rng.choice([0, 1, -2, rng.normal()], count) * scale
            gain, offset = change_between(before, after, rng.choice([0.0, scale, 1e308]))
            assert 0.2 <= gain <= 5 and math.isfinite(offset)


@pytest.mark.parametrize("contrast", [0.0, 0.5, 1.5, 3.0, 30.0])
def test_frames_that_differ_by_noise_alone_are_told_at_once(contrast, monkeypatch):
    fitted, fit = [], flicker._robust_lines
    monkeypatch.setattr(
        flicker, "_robust_lines", lambda *given: fitted.append(given) or fit(*given)
    )
    rng = np.random.default_rng(0)
    scene = rng.normal(500, contrast, (200, 256))
    pair = [scene + rng.normal(0, 1, scene.shape) for _ in range(2)]
    found = brightness_changes(*pair, np.full(len(scene), math.sqrt(2)))
    assert (found == IDENTITY).all()
    assert sum(len(x) for x, *_ in fitted) <= 0.05 * len(scene)


def test_pairs_measured_together_have_the_changes_of_each_alone():
    rng = np.random.default_rng(0)
    before = rng.normal(100, 20, (24, 256))
    gains, noise = rng.choice([0.8, 1.0, 1.05, 9.0], (24, 1)), rng.choice([0.0, 1.0, 5.0], 24)
    after = gains * before + rng.normal(0, 1, before.shape) * noise[:, None]
    after[rng.random(after.shape) < 0.2] += 40  # moved
    before[3, 7], after[4], after[5], noise[6] = np.nan, np.inf, 12.0, np.nan
    kept = before.copy(), after.copy()
    found = brightness_changes(before, after, noise)
    alone = [change_between(*pair) for pair in zip(before, after, noise, strict=True)]
    np.testing.assert_array_equal(found, alone)
    assert 4 < alone.count(IDENTITY) < 20
    np.testing.assert_array_equal((before, after), kept)
    assert brightness_changes(before[:0], after[:0], noise[:0]).shape == (0, 2)
