"""What is not image, such as padding, is left out of every estimate."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from napari_gpu_denoise import NoiseEstimate, estimate_noise
from napari_gpu_denoise.noise.correlation import noise_spectrum
from napari_gpu_denoise.noise.covariance import ChannelPatches
from napari_gpu_denoise.noise.frames import FramesInARow, noise_of_differences
from napari_gpu_denoise.noise.patches.selection import (
    Plane,
    _may_hold_square,
    blank_area,
    clipping_levels,
    not_image,
)
from napari_gpu_denoise.noise.patches.spectra import spectra_of
from napari_gpu_denoise.noise.photon import single_image_noise
from napari_gpu_denoise.noise.speckle import speckle_looks

SIDE = 144


def scene(low: float = 40, high: float = 210) -> np.ndarray:
    """A smooth scene between two grey levels."""
    smooth = gaussian_filter(np.random.default_rng(1).normal(size=(SIDE, SIDE)), 9)
    smooth -= smooth.min()
    return low + (high - low) * smooth / smooth.max()


def noisy(dtype: str, sigma: float = 10.0, seed: int = 0) -> np.ndarray:
    found = scene() + np.random.default_rng(seed).normal(0, sigma, (SIDE, SIDE))
    return found.astype(np.float32) if dtype == "float32" else np.rint(found).clip(0).astype(dtype)


def padded(image: np.ndarray, fill: float, top: int = 40, left: int = 40, more: int = 0):
    found = np.full(np.add(image.shape, (top + 40 + more, left + 40 + more)), fill, image.dtype)
    found[top : top + len(image), left : left + image.shape[1]] = image
    return found


def round_view(image: np.ndarray, fill: float) -> np.ndarray:
    y, x = np.indices(image.shape)
    inside = np.hypot(y - SIDE / 2, x - SIDE / 2) < SIDE / 2
    return np.where(inside, image, image.dtype.type(fill))


def sheared(image: np.ndarray, fill: float) -> np.ndarray:
    found = np.full((SIDE, 2 * SIDE), fill, image.dtype)
    for k, row in enumerate(image):
        found[k, k : k + SIDE] = row
    return found


FILLED = {
    "border": padded,
    "disc": round_view,
    "sheared": sheared,
    "page": lambda image, fill: padded(image, fill, 50, 60, more=150),
}
FILLS = {"float32": (0, 100, -1, np.nan), "uint16": (0, 100, 65535), "uint8": (0, 100, 255)}
CASES = [
    (dtype, fill, name)
    for dtype in FILLS
    for fill in FILLS[dtype]
    for name in (FILLED if fill == 100 else ["border"])
]


@pytest.mark.parametrize(("dtype", "fill", "name"), CASES)
def test_noise_is_that_without_the_padding(dtype, fill, name):
    found = estimate_noise(FILLED[name](noisy(dtype), fill))
    assert found.name == "gaussian"
    assert found.sigma[0] == pytest.approx(10, rel=0.05)
    assert found.white


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("widths", [12, ((0, 30), (9, 0))])
def test_noise_is_that_without_repeated_edges(dtype, widths):
    image = noisy(dtype)
    wide = np.pad(image, widths, mode="edge")
    assert blank_area(image) is None
    outside = np.ones(wide.shape, bool)
    (top, _), (left, _) = np.broadcast_to(widths, (2, 2))
    outside[top + 1 :, left + 1 :][: SIDE - 2, : SIDE - 2] = False
    repeated = blank_area(wide).pixels
    assert not repeated[~outside].any()
    assert repeated[outside].mean() > 0.85  # all but where edges end that nothing repeats
    found = estimate_noise(wide)
    assert found.name == "gaussian"
    assert found.white
    assert found.sigma[0] == pytest.approx(10, rel=0.05)
    assert any("repeated edges" in note for note in found.notes)


def test_what_was_left_out_is_said():
    plain = estimate_noise(noisy("float32"))
    assert (plain.notes, plain.blank_width) == ((), 0)
    found = estimate_noise(padded(noisy("float32"), 0))
    assert len(found.notes) == 1
    assert "constant areas" in found.notes[0]
    assert found.blank_width == 8
    assert NoiseEstimate.from_dict(found.as_dict()) == found


GRAIN = np.random.default_rng(0).gamma(4, 1 / 4, (SIDE, SIDE))
ESTIMATES = {
    "sigma": lambda fill: estimate_noise(fill(noisy("float32"), 3), model="gaussian").sigma[0],
    "spectrum": lambda fill: noise_spectrum(fill(noisy("float32"), 3)).sigma,
    "levels": lambda fill: (
        single_image_noise(spectra_of(fill(noisy("float32"), 3))).curve.variance[0] ** 0.5
    ),
    "looks": lambda fill: speckle_looks(
        Plane.of_image([fill((scene() * GRAIN).astype(np.float32), 120)])
    )[0],
}


@pytest.mark.parametrize("name", ESTIMATES)
def test_every_estimate_leaves_padding_out(name):
    found, expected = ESTIMATES[name](padded), ESTIMATES[name](lambda image, _: image)
    assert found == pytest.approx(expected, rel=0.08)


def test_channels_beside_padding():
    draw = np.random.default_rng(0).normal(0, 10, (2, SIDE, SIDE))
    image = (scene() + np.stack([draw[0], 0.6 * draw[0] + 0.8 * draw[1]])).astype(np.float32)
    wide = np.pad(image, ((0, 0), (40, 40), (40, 40)), constant_values=7)
    wide[1, :60] = 7  # not the same in all channels
    assert ChannelPatches.of(wide).covariance(False).correlation[0][1] == pytest.approx(
        0.6, abs=0.05
    )
    # An empty channel is not padding of the others.
    empty = np.concatenate([wide, np.zeros_like(wide[:1])])
    assert ChannelPatches.of(empty).covariance(False).correlation[0][1] == pytest.approx(
        0.6, abs=0.05
    )


def test_differences_of_frames_beside_moving_borders():
    rng = np.random.default_rng(0)
    stack = np.zeros((6, SIDE + 60, SIDE + 60), np.float32)
    for t, frame in enumerate(stack[:5]):  # the last one is empty
        frame[30:-30, 6 * t : 6 * t + SIDE + 20] = 5 * rng.poisson(60, (SIDE, SIDE + 20))
    found = noise_of_differences(FramesInARow.of(stack).differences)
    assert not found.grows
    level = found.gain * 300 + found.intercept
    assert level == pytest.approx(25 * 60, rel=0.1)


RNG = np.random.default_rng(2)
CHANCE = {  # constant squares are there by chance
    "counts, mean 0.05": RNG.poisson(0.05, (200, 200)).astype(np.uint16),
    "counts, mean 0.02, float": RNG.poisson(0.02, (200, 200)).astype(np.float32),
    "weak noise": np.rint(100 + RNG.normal(0, 0.25, (200, 200))).astype(np.uint8),
    "weak noise on a slope": np.rint(
        np.arange(200) / 20 + RNG.normal(0, 0.2, (200, 200)) + 50
    ).astype(np.uint8),
}


@pytest.mark.parametrize("name", CHANCE)
def test_constant_squares_by_chance_are_image(name):
    image = CHANCE[name]
    assert not_image([image]) == [None]
    # Unless they are far larger than chance would make them, and differ from what is beside them.
    wide = np.pad(image, 80, constant_values=7)
    assert not_image([wide])[0] is not None
    # Of several planes the one that shows the widest by chance says how wide they must be.
    light = np.pad(np.random.default_rng(0).normal(50, 5, image.shape), 80, constant_values=0)
    areas = [blank_area(plane) for plane in (light, wide)]
    assert areas[0].width == 8 < areas[1].width


def test_dark_parts_of_an_image_of_few_photons_are_image():
    rng = np.random.default_rng(4)
    cells = np.zeros((SIDE, SIDE))
    cells[rng.integers(0, SIDE, 10), rng.integers(0, SIDE, 10)] = 60
    image = rng.poisson(gaussian_filter(cells, 5) + 0.01)
    assert (image[::4, ::4] == 0).mean() > 0.7
    assert blank_area(image.astype(np.uint16)) is None


def test_an_image_that_is_constant_but_for_rare_values_has_no_noise():
    image = np.full((200, 200), 100, np.uint8)
    image[RNG.integers(0, 200, 100), RNG.integers(0, 200, 100)] = 200
    assert estimate_noise(image).sigma == (0.0,)
    drawing = np.where(scene() > 120, 200, 30).astype(np.uint8)
    assert estimate_noise(drawing).sigma == (0.0,)


@pytest.mark.parametrize("levels", [2, 5, 60])
def test_no_area_is_missed_by_the_look_at_some_rows(levels):
    """Areas of 16 x 16 pixels, and of half that along a border."""
    rng = np.random.default_rng(levels)
    for _ in range(200):
        plane = rng.integers(0, levels, rng.integers(16, 60, 2)).astype(np.uint8)
        y, x = (int(rng.integers(0, n - 15)) for n in plane.shape)
        y = rng.choice([-8, y, len(plane) - 8])
        plane[max(y, 0) : y + 16, x : x + 16] = 1
        assert _may_hold_square(plane)


def test_whole_numbers_are_clipped_as_their_integers_are():
    """Also where the values before the last one are frequent, as in a sky."""
    clean = np.linspace(235, 262, 128) * np.ones((96, 1))
    plane = (clean + np.random.default_rng(2).normal(0, 4, clean.shape)).clip(0, 255).round()
    levels = [clipping_levels(plane.astype(dtype)) for dtype in ("u1", "f4", "f8")]
    assert levels == [[255]] * 3
    assert not clipping_levels((plane + 0.25).astype("f4")[:, :64])
