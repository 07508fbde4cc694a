"""NL-means of magnitudes (Rician noise), and of noise whose variance grows with brightness."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import napari_gpu_denoise as gd
from filters.test_nl_means import Stages, slow, variants
from flows import filtered
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.nl_means import NLMeans
from napari_gpu_denoise.opencl.program import session
from reference import nl_means as reference
from scenes import prepared, psnr, scene

TYPES = ["uint8", "int16", "uint64", "float64"]


def cut_off(settings: NLMeans) -> float:
    """Return by what share a weight may be wrong: distances are read from keys, less some bits."""
    bits = max(1, (settings.offsets - 1).bit_length())
    return 4 * 4 / settings.strength**2 * 2.0 ** (bits - 24)


def magnitudes(*shape: int, seed: int = 0) -> np.ndarray:
    """Return the scene, dark on its left, with Rician noise rounded to whole numbers.

    Their distances are exact, so that every search finds the same patches.
    """
    clean = scene(*shape) * np.minimum(np.arange(shape[-1]) / (0.4 * shape[-1]), 1) ** 3
    real, imaginary = np.random.default_rng(seed).normal(0, 20.0, (2, *shape))
    return np.rint(np.hypot(clean + real, imaginary)).astype(np.float32)


def background(*shape: int, sigma: float, signal: float = 0.0, seed: int = 1) -> np.ndarray:
    """Return magnitudes of one signal."""
    real, imaginary = np.random.default_rng(seed).normal(0, sigma, (2, *shape))
    return np.hypot(signal + real, imaginary).astype(np.float32)


def speckled(*shape: int, sigma: float = 2.0, seed: int = 0) -> np.ndarray:
    """Return the scene, dark on its left, with noise of variance sigma^2 times the grey level."""
    clean = scene(*shape) * np.minimum(0.1 + np.arange(shape[-1]) / shape[-1], 1)
    noise = np.random.default_rng(seed).normal(0, sigma, shape)
    return (clean + np.sqrt(clean) * noise).astype(np.float32)


def squares(*shape: int, seed: int = 0) -> np.ndarray:
    """Return the same of square numbers: the distances of their roots are exact, in any order."""
    return np.rint(np.sqrt(np.maximum(speckled(*shape, seed=seed), 0))) ** 2


def same_squares(out, expected, settings: NLMeans, sigma: float, top: float = 300.0) -> None:
    """Compare squares, which are what was averaged: near 0 their roots differ by much more."""
    assert np.all(out >= 0)
    bound = 2 * top * 4 * sigma * cut_off(settings) + 1e-6 * top**2
    squared = out.astype(np.float64) ** 2, np.asarray(expected) ** 2
    np.testing.assert_allclose(*squared, rtol=0, atol=bound)


def bound(settings: NLMeans, sigma: float, top: float = 300.0) -> float:
    """Return how far a pixel may be from the reference: see `cut_off`; noise is sigma sqrt(top)."""
    return 4 * sigma * top**0.5 * cut_off(settings) + 1e-6 * top


def same_levels(out, expected, settings: NLMeans, sigma: float) -> None:
    np.testing.assert_allclose(out, expected, rtol=0, atol=bound(settings, sigma))


@dataclasses.dataclass(frozen=True)
class Law:
    """A law of noise: its setting, an image of it, its sigma, and how results are compared."""

    setting: dict
    image: object
    sigma: float
    same: object

    def settings(self, **changes) -> NLMeans:
        return NLMeans(**self.setting, **{"patch": 4, "step": 2, "window": 7, **changes})


LAWS = {
    "rician": Law({"rician": True}, magnitudes, 20.0, same_squares),
    "pearson": Law({"distance": "pearson"}, squares, 2.0, same_levels),
}
PEARSON, RICIAN = LAWS["pearson"], LAWS["rician"]


@pytest.fixture(params=LAWS)
def law(request) -> Law:
    return LAWS[request.param]


DEFAULT = {"patch": 8, "step": 4, "window": 9}
PATHS = [
    ("YX", DEFAULT),
    ("YX", {"patch": 5, "step": 1}),
    ("YX", {**DEFAULT, "step": 3}),
    ("YX", {"patch": 1, "step": 1, "window": 5}),
    ("YX", {**DEFAULT, "flat": 0.0, "strength": 0.5}),
    ("YX", {**DEFAULT, "flat": 3.0}),
    ("TYX", {"window": 5, "frames_before": 2, "frames_after": 1}),
    ("ZYX", {"window": 5, "slices": 1}),
    ("TZYX", {"window": 5, "frames_before": 1, "slices": 1}),
]
# References of these axes take (t, z, y, x).
SHAPES = {"YX": (31, 38), "TYX": (4, 1, 15, 21), "ZYX": (1, 4, 15, 21), "TZYX": (3, 2, 15, 13)}


@pytest.mark.parametrize(("axes", "changes"), PATHS, ids=str)
def test_it_is_the_reference(device, law, axes, changes):
    settings, image = law.settings(**changes), law.image(*SHAPES[axes])
    axes = axes if axes == "YX" else "TZYX"
    applied = prepared(settings, axes, image.shape)
    out = filtered(image, applied, session(device), law.sigma, axes)
    expected = slow(image, settings, law.sigma)
    if "rician" in law.setting and axes == "YX":
        assert np.any(expected == 0)
    law.same(out, expected, settings, law.sigma)


def test_a_map_of_sigma_is_that_of_the_reference(device, law):
    settings, image = law.settings(patch=5), law.image(30, 33)
    y, x = np.indices(image.shape)
    sigma = 2.0 ** ((y // 9 + x // 11) % 3 + 3 * (law.sigma > 8))
    applied = prepared(settings, "YX", image.shape)
    out = filtered(image, applied, session(device), sigma, "YX")
    law.same(out, slow(image, settings, sigma), settings, sigma.max())


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_is_seen_from_0(device, law, dtype):
    """A common level is no offset here: without it roots and squares tell nothing of the signal."""
    settings = law.settings()
    image = np.minimum(law.image(25, 28) + 30, 255)
    expected = gd.denoise(image, settings, law.sigma, device=device).image
    given = image.astype(dtype)
    out = gd.denoise(given, settings, law.sigma, device=device, dtype="float32").image
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-4)
    whole = gd.denoise(given, settings, law.sigma, device=device).image
    np.testing.assert_array_equal(whole, out if whole.dtype.kind == "f" else np.rint(out))


@pytest.mark.parametrize("scale", [2.0**-40, 2.0**40])
def test_levels_of_any_size(device, law, scale):
    """Sigma has the unit of a grey level, or that of its root."""
    settings, image = law.settings(), law.image(25, 28).astype(np.float64)
    if law is PEARSON:
        # The largest value becomes a quarter to a half: with this one by a power of four.
        image[0, 0] = 17**2
        assert image.max() == 17**2
    factor = scale if law is RICIAN else scale**0.5
    expected = gd.denoise(image, settings, law.sigma, device=device).image
    out = gd.denoise(image * scale, settings, law.sigma * factor, device=device).image
    np.testing.assert_allclose(out / scale, expected, rtol=1e-5, atol=1e-2)


@pytest.mark.parametrize("axes", ["YX", "YXS", "TXY"])
def test_sigma_is_estimated_by_the_law(device, law, axes):
    sigmas = np.multiply((0.5, 1.5) if "S" in axes else (1,), law.sigma)
    planes = []
    for sigma in sigmas:
        if law is RICIAN:
            # Many pixels show background, where magnitudes vary by 0.66 sigma.
            signal = np.zeros((128, 128))
            signal[40:80, 50:90] = 300
            planes.append(background(128, 128, sigma=sigma, signal=signal, seed=3))
        else:
            planes.append(speckled(140, 150, sigma=sigma, seed=7))
    image = np.stack(planes) if len(axes) > 2 else planes[0]
    image = np.transpose(image, {"YXS": (1, 2, 0), "TXY": (0, 2, 1), "YX": (0, 1)}[axes])
    before, settings = image.copy(), NLMeans(**law.setting)
    found = settings.estimate_sigma(image, axes)
    rtol = 0.05 if law is RICIAN else 0.06
    np.testing.assert_allclose(found.sigma, sigmas, rtol=rtol)
    np.testing.assert_array_equal(image, before)
    result = gd.denoise(image, settings, axes=axes, device=device)
    assert result.record.sigma == found.sigma
    told = "Rician" if law is RICIAN else "variance over mean"
    assert told in result.record.sigma_source
    assert NLMeans().estimate_sigma(image, axes) is None
    if law is RICIAN:
        assert all(0 < error < 0.1 * law.sigma for error in found.standard_error)


def test_brightness_is_followed_where_the_law_can_be_told(device):
    """Shifted magnitudes would have other squares; told as an additive one, the sigma of roots
    would be 14 times too small, and noise a flicker."""

    def changed(image, sigma, **setting) -> bool:
        found = [
            gd.nl_means(image, sigma, axes="TYX", frames_before=2, flicker=f, **setting)
            for f in (True, False)
        ]
        return not np.array_equal(*found)

    fading = np.array([1.0, 0.9, 0.8, 0.7], "f4")[:, None, None]
    assert not changed(magnitudes(4, 70, 70) * fading, 5, device=device, **RICIAN.setting)
    assert changed(magnitudes(4, 70, 70) * fading, 5, device=device)
    steady = speckled(4, 70, 70, sigma=4.0) + 100
    assert not changed(steady, 4.0, device=device, **PEARSON.setting)
    assert changed(steady * fading, 4.0, device=device, **PEARSON.setting)


# Variance that grows with brightness


def test_every_search_finds_the_matches_of_the_reference(device):
    settings, image = PEARSON.settings(), squares(27, 31)
    tried = variants(settings, device)[2:]  # widest lanes, and what shares distances
    assert len({variant.kernel for variant in tried}) >= 2
    first = Stages(image, settings, device, tried[0])
    roots = 2 * np.sqrt(first.volume.astype(np.float64))
    for number in range(0, len(first.positions), 5):
        expected = reference.search(
            roots, first.positions[number], first.offsets, settings.patch, settings.neighbours
        )
        np.testing.assert_array_equal(first.matches(number), expected)
    for variant in tried[1:]:
        keys = Stages(image, settings, device, variant).keys
        np.testing.assert_array_equal(keys, first.keys, err_msg=str(variant))


def test_levels_of_0_and_below(device):
    """Roots of what is not positive are 0; means are those of the pixels as they are."""
    settings, image = PEARSON.settings(), squares(27, 31)
    image[:9] = 0
    image[12:16, 5:20] = -49
    image[20:24, ::3] = -100
    out = gd.denoise(image, settings, 2.0, device=device).image
    same_levels(out, slow(image, settings, 2.0), settings, 2.0)
    np.testing.assert_array_equal(out[:4], 0)
    for value in (0.0, -3.0, 0.37):
        image = np.full((2, 30, 34), value, np.float32)
        out = gd.nl_means(image, 2.0, distance="pearson", device=device)
        np.testing.assert_array_equal(out, image)


def test_it_keeps_the_mean_and_gains_where_the_law_holds(device):
    rng = np.random.default_rng(5)
    clean = scene(128, 128) * np.linspace(0.05, 1, 128)
    image = (clean + np.sqrt(clean) * rng.normal(0, 3, clean.shape)).astype(np.float32)
    out = gd.nl_means(image, distance="pearson", device=device)
    assert abs(np.mean(out - clean)) < 0.01 * clean.mean()
    usual = max(psnr(gd.nl_means(image, s, device=device), clean) for s in (15, 20, 25, 30))
    assert psnr(out, clean) > usual + 0.3


def test_noise_that_neighbours_share_counts_in_full(device):
    noise = gaussian_filter(np.random.default_rng(8).normal(size=(200, 210)), 1.0)
    clean = np.linspace(40, 200, 210)
    image = clean + np.sqrt(clean) * 2.0 * noise / noise.std()
    found = NLMeans(distance="pearson").estimate_sigma(image, "YX")
    assert found.sigma[0] == pytest.approx(2.0, rel=0.15)
    assert "correlated" in found.method
    flat = np.full((40, 40), 50, np.uint8)
    assert NLMeans(distance="pearson").estimate_sigma(flat, "YX").sigma == (0.0,)
    np.testing.assert_array_equal(gd.nl_means(flat, distance="pearson", device=device), flat)


# Magnitudes


@pytest.mark.parametrize(("level", "left"), [(100.0, (1e4 - 800) ** 0.5), (20.0, 0.0)])
def test_a_constant_image_loses_the_bias_of_its_square(device, level, left):
    image = np.full((30, 34), level, np.float32)
    out = gd.nl_means(image, 20.0, rician=True, device=device)
    np.testing.assert_allclose(out, left, rtol=1e-6)


@pytest.mark.parametrize("ratio", [0.0, 1.5, 4.0])
def test_signals_are_found_where_magnitudes_are_biased(device, ratio):
    """Means of magnitudes are too high by 12 % of sigma even at a signal of 4 sigma."""
    image = background(96, 96, sigma=20.0, signal=20 * ratio)

    def error(**changes) -> float:
        return abs(gd.nl_means(image, 20.0, device=device, **changes).mean() / 20 - ratio)

    # Patches chosen for being alike are on the side of the many: darker than the mean.
    assert error(rician=True) < (0.1 if ratio else 0.05)
    if ratio:
        # Means over all of a large patch: nothing is chosen.
        alone = {"patch": 32, "step": 32, "window": 1, "neighbours": 1, "flat": 1.3}
        assert error(**alone) > 0.1
        assert error(**alone, rician=True) < 0.02
    else:
        assert error() > 1


# Models of noise


def test_models_of_noise_that_a_law_fits():
    for model in (gd.Gaussian(3.0), gd.Rician(3.0), gd.Speckle(4.0)):
        with pytest.raises(SettingsError, match=r"noise level from sigma.*" + model.name):
            NLMeans(distance="pearson").takes((model,))
    with pytest.raises(SettingsError, match="choose one of them"):
        NLMeans(rician=True, distance="pearson")
    on, off = NLMeans(rician=True), NLMeans()
    assert on.takes((gd.Rician(3.0),)) and on.takes((gd.Gaussian(3.0),))
    for models in ((gd.Rician(3.0), gd.Rician(4.0)), (gd.Gaussian(3.0),), (gd.Speckle(4.0),)):
        assert not off.takes(models)
    with pytest.raises(SettingsError, match="rician=True does not fit speckle noise"):
        on.takes((gd.Speckle(4.0),))


def test_a_model_is_sigma_where_it_is_on_and_else_stabilised(device):
    image, model = magnitudes(25, 28), gd.Rician(20.0)
    expected = gd.nl_means(image, 20.0, rician=True, device=device)
    told = gd.nl_means(image, noise=model, rician=True, device=device)
    np.testing.assert_array_equal(told, expected)
    by_hand = gd.nl_means(model.stabilise(image), model.sigma_after, device=device)
    result = gd.nl_means(image, noise=model, device=device)
    np.testing.assert_allclose(result, model.inverse(by_hand), atol=0.2)
