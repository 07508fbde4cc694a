"""BM3D of correlated noise: kernels and filter against the slow one, and what it is worth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import napari_gpu_denoise as gd
from filters.correlated_noise import BLURRED, CUT, OPPOSED, SIGMA, STREAKS, WHITE, blur
from filters.one_pass import Images, Plain, Run, compare, lanes, settings, shared, slow
from napari_gpu_denoise.filters.bm3d.filter import BM3D
from napari_gpu_denoise.filters.bm3d.groups import (
    STACK_TRANSFORMS,
    TRANSFORMS,
    covariances,
    extended_autocorrelation,
    halved,
)
from napari_gpu_denoise.noise.models import Correlated
from reference import bm3d_correlated as reference
from scenes import cut, noisy, prepared, scene

HARD_OR_WIENER = pytest.mark.parametrize("wiener", [False, True], ids=["hard", "Wiener"])


@pytest.fixture(scope="module")
def plain(device):
    return Plain.of(device)


class Spectral(Run):
    """A pass whose frames have the spectra of its settings, in turn."""

    def group(self, *place: int):
        frame, spectra = place[0], self.given.spectra
        basic = self.images.basic[frame].astype(float) if self.given.wiener else None
        noisy, sigma = self.images.noisy[frame].astype(float), SIGMA * self.variation.astype(float)
        how = slow(self.given), spectra[frame % len(spectra)], basic
        return reference.filter_group(noisy, self.matches(*place), sigma, *how)


# Groups


@pytest.mark.parametrize("variant", [lanes(), shared(4)], ids=lambda v: v.kernel)
@pytest.mark.parametrize("stack", STACK_TRANSFORMS)
def test_every_group_is_that_of_the_reference(plain, variant, stack):
    # Each transform, and each stack, meets both ways to shrink.
    odd = STACK_TRANSFORMS.index(stack) + (variant != lanes())
    for number, transform in enumerate(TRANSFORMS):
        spectra, wiener = ((BLURRED, STREAKS, CUT)[number],), (number + odd) % 2 == 1
        given = settings(8, transform, stack, wiener, shared_noise=stack == "haar", spectra=spectra)
        run = Spectral(plain, given, variant, Images.of())
        assert compare(run) == {1, 2, 4, 8}, transform


SIZES = [(1, lanes()), (2, lanes()), (16, lanes()), (32, lanes())]
SIZES += [(2, shared(2)), (4, shared(2)), (8, shared(2)), (16, shared(16)), (32, shared(8))]


@pytest.mark.parametrize(("neighbours", "variant"), SIZES, ids=str)
def test_groups_of_all_sizes(plain, neighbours, variant):
    wiener = SIZES.index((neighbours, variant)) % 2 == 1
    transform = TRANSFORMS[neighbours.bit_length() % 3]
    # In the wider window some patches are too far from each other to share noise.
    given = settings(neighbours, transform, "haar", wiener, window=31, step=7, shared_noise=True)
    run = Spectral(plain, replace(given, spectra=(BLURRED,)), variant, Images.of())
    assert compare(run) >= {neighbours}


@pytest.mark.parametrize("variant", [lanes(), shared(4)], ids=lambda v: v.kernel)
def test_every_channel_has_its_spectrum(plain, variant):
    given = settings(8, "dct", "haar", shared_noise=True, spectra=(STREAKS, BLURRED))
    run = Spectral(plain, given, variant, Images.of(2))
    assert compare(run) == {1, 2, 4, 8}
    alike = Run(plain, replace(given, spectra=(STREAKS,)), variant, Images.of(2))
    np.testing.assert_array_equal(alike.out[0], run.out[0])
    assert not np.array_equal(alike.out[1], run.out[1])


@HARD_OR_WIENER
@pytest.mark.parametrize("variant", [lanes(), shared(4)], ids=lambda v: v.kernel)
def test_a_white_spectrum_gives_what_white_noise_gives(plain, variant, wiener):
    overlap = wiener == (variant == lanes())
    given = settings(8, "bior1.5", "haar", wiener, shared_noise=overlap)
    white = Run(plain, given, variant, Images.of())
    told = Run(plain, replace(given, spectra=(WHITE,)), variant, Images.of())
    # A coefficient may lie at the threshold; and weights are rounded.
    error = np.abs(told.out - white.out) / SIGMA
    assert np.mean(error) < 1e-4
    assert np.mean(error > 1e-3) < 0.01
    assert not np.array_equal(white.out, white.images.noisy)


# Covariances


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_covariances_are_those_of_all_pairs_of_pixels(transform):
    for given in (WHITE, BLURRED, STREAKS, CUT, OPPOSED):
        found = covariances(transform, given)
        for dy, dx in ((0, 0), (1, 0), (0, 3), (7, 2), (11, 11), (4, 9)):
            expected = reference.shared(given, transform, dy, dx)
            np.testing.assert_allclose(found[dy, dx], expected, atol=1e-12)
            np.testing.assert_allclose(
                reference.shared(given, transform, -dy, dx), expected, atol=1e-12
            )


def test_variances_are_those_of_noise_that_is_drawn():
    noise = blur((2048, 2048), sigma=1.0)
    patches = noise.reshape(256, 8, 256, 8).swapaxes(1, 2)
    matrix = reference.transform_matrix("dct")
    drawn = np.square(matrix @ patches @ matrix.T).mean(axis=(0, 1))
    np.testing.assert_allclose(covariances("dct", BLURRED)[0, 0], drawn, rtol=0.02, atol=0.02)


def test_a_table_that_is_cut_off_is_extended():
    np.testing.assert_allclose(extended_autocorrelation(BLURRED)[:5, :5], BLURRED, atol=1e-3)
    y, x = np.indices((10, 10))
    whole = np.exp(-(y**2 + x**2) / (4 * 2.0**2))
    found = extended_autocorrelation(whole[:5, :5])
    assert whole[0, 5] > 0.2
    np.testing.assert_allclose(found[:10, :10], whole, atol=0.07)
    found = extended_autocorrelation(CUT)
    lag = np.arange(33)
    cosines = np.cos(2 * np.pi * np.outer(lag, lag) / 64) * np.where(lag % 32, 2, 1)
    assert (cosines @ np.pad(CUT, (0, 28)) @ cosines.T).min() < -1
    assert (cosines @ found @ cosines.T).min() > 0
    assert found[0, 0] == 1
    assert np.all(covariances("dct", CUT)[0, 0] > 0)


# The filter


def agree(out, expected, sigma=SIGMA) -> None:
    """As in test_bm3d."""
    error = np.abs(out - expected) / sigma
    assert error.mean() < 3e-3
    assert np.mean(error > 1e-2) < 0.05
    assert error.max() < 0.4


SMALL = {"window_basic": 15, "window_final": 15, "neighbours_basic": 8, "neighbours_final": 8}
SMALL |= {"scales": 1}


@pytest.mark.parametrize(
    ("changes", "given"),
    [
        ({}, BLURRED),
        ({}, OPPOSED),
        ({"prefiltered": True}, OPPOSED),
        ({"stack_basic": "hadamard", "transform_final": "dft"}, STREAKS),
    ],
    ids=str,
)
def test_images_are_those_of_the_reference(device, changes, given):
    image = np.rint(scene(40, 45) + blur((40, 45))).astype(np.float32)
    chosen = BM3D(**{**SMALL, "step_basic": 4, "step_final": 4, **changes})
    filter = prepared(chosen, noise=(Correlated(SIGMA, given),))
    out = gd.denoise(image, filter, SIGMA, device=device).image
    settled = replace(white(filter), channels="separate")
    agree(out, reference.bm3d_correlated(image[None], [SIGMA], [given], settled)[0])


def white(filter: BM3D) -> BM3D:
    """Return the same settings without a spectrum."""
    return replace(filter, noise=())


SIGMAS = (12.4, 20.37, 31.1)
TABLES = (BLURRED, STREAKS, WHITE)


def colours(seed: int = 0) -> np.ndarray:
    shades = np.multiply.outer((1.0, 0.8, 0.6), scene(26, 31))
    noise = np.array([blur((26, 31), 2 * (0.5 + k,), s, seed + k) for k, s in enumerate(SIGMAS)])
    return np.rint(shades + noise).astype(np.float32)


def models(tables=TABLES) -> tuple[Correlated, ...]:
    return tuple(map(Correlated, SIGMAS, tables))


KINDS = [
    {"channels": "separate"},
    {"channels": "opponent"},
    {"channels": "joint"},
    {"channels": "joint", "prefiltered": True},
    {"channels": "opponent", "prefiltered": True},
]


@pytest.mark.parametrize("changes", KINDS, ids=str)
def test_channels_with_a_spectrum_each(device, changes):
    image = colours()
    filter = prepared(BM3D(**SMALL, **changes), "CYX", noise=models())
    together = filter.channels != "separate"
    for name, each in filter.passes.items():  # joined channels are searched in one image
        assert len(each.spectra) == (1 if together and name == "prefilter" else 3)
    out = gd.denoise(image, filter, SIGMAS, axes="CYX", device=device).image
    expected = reference.bm3d_correlated(image, SIGMAS, TABLES, white(filter))
    for one, told, sigma in zip(out, expected, SIGMAS, strict=True):
        agree(one, told, sigma)
    last = np.moveaxis(image, 0, -1)
    turned = gd.denoise(last, filter, SIGMAS, axes="YXC", device=device).image
    np.testing.assert_array_equal(np.moveaxis(turned, -1, 0), out)


def test_tiles_change_nothing(device):
    image = np.stack([noisy(260, 71, seed=k) for k in range(3)])
    changes = {"neighbours_basic": 4, "neighbours_final": 4, "step_basic": 6, "step_final": 6}
    changes |= {"window_basic": 5, "window_final": 5, "channels": "opponent", "scales": 2}
    filter = prepared(BM3D(**changes), "CYX", noise=models())

    def run(limit=None):
        told = []
        out = gd.denoise(
            *(image, filter, SIGMAS),
            axes="CYX",
            device=device,
            memory_limit=limit,
            progress=lambda done, total: told.append(total),
        )
        return out.image, told[-1]

    whole, one = run()
    tiled, several = run(cut(filter) * 2)
    assert several > one
    np.testing.assert_array_equal(tiled, whole)


# Scales


def halve(image: np.ndarray) -> np.ndarray:
    even = np.pad(image, [(0, n % 2) for n in image.shape], mode="edge")
    return even.reshape(len(even) // 2, 2, -1, 2).mean(axis=(1, 3))


def enlarge(image: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Smooth an image by 1/4, 1/2, 1/4 and enlarge it linearly, with its ends repeated."""
    for axis, length in enumerate(shape):
        ends = [(3, 3) if k == axis else (0, 0) for k in range(2)]
        image = np.apply_along_axis(
            np.convolve, axis, np.pad(image, ends, mode="edge"), [0.25, 0.5, 0.25], "valid"
        )
        at = (np.arange(length) - 0.5) / 2 + 2  # two more pixels come before the first one
        share = np.expand_dims(at % 1, 1 - axis)
        low, high = (np.take(image, at.astype(int) + k, axis) for k in (0, 1))
        image = (1 - share) * low + share * high
    return image


def test_two_scales_replace_the_coarse_part(device):
    model = Correlated(SIGMA, BLURRED)
    image = np.rint(scene(75, 95) + blur((75, 95))).astype(np.float32)
    one = prepared(BM3D(**SMALL), noise=(model,))
    fine = gd.denoise(image, one, SIGMA, device=device).image.astype(float)
    half = replace(one, noise=(halved(model),))
    coarse = gd.denoise(halve(image).astype(np.float32), half, halved(model).sigma, device=device)
    expected = fine + enlarge(coarse.image - halve(fine), image.shape)
    two = replace(one, scales=2)
    # A pixel of the halved image is two wide, and smoothing and enlarging it look further.
    assert two.reach.y[0] >= 2 * one.reach.y[0] + 4
    told = gd.denoise(image, two, SIGMA, device=device).image
    np.testing.assert_allclose(told, expected, atol=2e-3 * SIGMA)
    assert np.abs(told - fine).mean() > 0.05 * SIGMA


def test_noise_of_halved_images():
    noise = blur((2048, 2048))
    half = halved(Correlated(SIGMA, BLURRED))
    drawn = halve(noise)
    assert half.sigma == pytest.approx(drawn.std(), rel=0.02)
    for dy, dx in ((0, 1), (1, 0), (1, 2)):
        product = drawn[: 1024 - dy, : 1024 - dx] * drawn[dy:, dx:]
        assert half.autocorrelation[dy][dx] == pytest.approx(product.mean() / drawn.var(), abs=0.02)
    assert halved(Correlated(3.0, WHITE)).sigma == pytest.approx(1.5, rel=0.01)


def test_only_noise_of_long_range_is_filtered_on_several_scales():
    def scales(given, shape=(512, 512)):
        return prepared(BM3D(), "YX", shape, (Correlated(3.0, given),)).scales

    weak = tuple(map(tuple, np.outer(*2 * [[1, 0.15, 0, 0, 0]]).tolist()))
    assert scales(weak) == scales(OPPOSED) == 1
    assert scales(CUT) == 3
    assert scales(CUT, (512, 127)) == 2
    assert scales(CUT, (64, 512)) == 2
    assert scales(CUT, (63, 512)) == 1
