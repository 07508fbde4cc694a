"""Channels: which are filtered together, what is refused, and what they gain."""

from __future__ import annotations

import numpy as np
import pytest

import napari_gpu_denoise as gd
from filters.cases import COLOURED
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.channels import OPPONENT, mixtures_for
from napari_gpu_denoise.noise.covariance import ChannelCovariance
from napari_gpu_denoise.noise.models.base import channel_correlations
from scenes import prepared, psnr, scene

SMALL = {
    gd.BM3D: {"window_basic": 7, "window_final": 7},
    gd.Isoline: {"max_length": 5, "staircase": 5},
}
KINDS = pytest.mark.parametrize("kind", SMALL, ids=lambda kind: kind.name)


def clean_colours(ny: int, nx: int, contrast: float = 40.0) -> np.ndarray:
    """Return three channels: shades of one scene, and hues."""
    y, x = np.indices((ny, nx))
    hues = np.multiply.outer((contrast, 0, -contrast), (x // 13 + y // 11) % 2)
    return np.multiply.outer((1.0, 0.8, 0.6), scene(ny, nx)) + hues


def colours(ny: int = 34, nx: int = 39, sigmas=(12.4, 20.37, 31.1), seed=0, contrast=40.0):
    """Return the same with noise, a sigma for each channel."""
    clean = clean_colours(ny, nx, contrast)
    noise = np.random.default_rng(seed).normal(0, 1, clean.shape)
    return (clean + np.reshape(sigmas, (3, 1, 1)) * noise).astype(np.float32)


@KINDS
def test_what_channels_are_by_themselves(device, kind):
    """Colour is what the axis says, not what has three planes."""
    image = colours()

    def run(channels, axes, planes=image, **changes):
        settings = kind(channels=channels, **SMALL[kind], **changes)
        return gd.denoise(planes, settings, 20.0, axes=axes, device=device).image

    np.testing.assert_array_equal(run("auto", "SYX"), run("opponent", "CYX"))
    np.testing.assert_array_equal(run("auto", "CYX"), run("separate", "SYX"))
    np.testing.assert_array_equal(run("auto", "SYX", image[:2]), run("separate", "SYX", image[:2]))
    np.testing.assert_array_equal(run("joint", "CYX", image[:1]), run("separate", "CYX", image[:1]))
    kinds = [run(channels, "CYX") for channels in ("separate", "joint", "opponent")]
    assert len({made.tobytes() for made in kinds}) == 3
    for one, plane in zip(kinds[0], image, strict=True):
        np.testing.assert_array_equal(one, run("auto", "YX", plane))
    refused = [
        ("opponent", "CYX", image[:2], {}, "needs three channels.* there are 2: use"),
        ("opponent", "TYX", image, {}, "needs three channels.* there are 1: use"),
    ]
    if kind is gd.Isoline:
        # Differences of channels are no grey levels that speckle multiplies.
        speckle = {"criterion": "multiplicative"}
        found = run("auto", "SYX", **speckle), run("separate", "CYX", **speckle)
        np.testing.assert_array_equal(*found)
        refused.append(("opponent", "SYX", image, speckle, "opponent.*does not work with mult"))
    for channels, axes, planes, changes, sentence in refused:
        with pytest.raises(SettingsError, match=sentence) as caught:
            run(channels, axes, planes, **changes)
        assert str(caught.value).endswith(".")


@KINDS
def test_channels_are_better_together(device, kind):
    """Edges of hue the luminance does not see, where noise differs matches are shared best."""

    def gains(clean, sigmas, *ways):
        noise = np.random.default_rng(1).normal(0, 1, clean.shape)
        image = clean + np.reshape(sigmas, (-1, 1, 1)) * noise
        options = {"axes": "CYX", "device": device}
        return [
            psnr(gd.denoise(image, kind(channels=way), sigmas, **options).image, clean)
            for way in ways
        ]

    separate, joint, opponent = gains(
        clean_colours(80, 96), 3 * (25,), "separate", "joint", "opponent"
    )
    assert opponent > separate + (1 if kind is gd.BM3D else 0.2)
    assert opponent > joint + 0.5 or kind is gd.BM3D
    shades = np.multiply.outer((1.0, 0.8, 0.6), scene(80, 96))
    sigmas = (10, 20, 40) if kind is gd.BM3D else 3 * (25,)
    separate, joint = gains(shades, sigmas, "separate", "joint")
    assert joint > separate + 0.5


def covariance_of(correlation, sigmas=(15, 15, 15)):
    """Return a covariance of three channels with the same correlation of any two."""
    return np.outer(sigmas, sigmas) * (correlation + (1 - correlation) * np.eye(3))


COVARIANCES = {
    "alike": covariance_of(0.6),
    "equal": covariance_of(1.0),
    "opposed": covariance_of(-0.4),
    "of unequal strength": covariance_of(0.5, (20, 10, 15)),
    "of a colour matrix": 60 * np.array([[3.2, -1.2, 0], [-1.2, 2.7, -0.9], [0, -0.9, 2.5]]),
}
SHARED = pytest.mark.parametrize("covariance", COVARIANCES.values(), ids=COVARIANCES)


@SHARED
def test_mixtures_of_channels_that_share_noise(covariance):
    matrix, inverse, strengths = mixtures_for(covariance)
    np.testing.assert_allclose(inverse @ matrix, np.eye(3), atol=1e-12)
    made = matrix @ covariance @ matrix.T
    sigmas = strengths * np.sqrt(matrix**2 @ np.diag(covariance))
    np.testing.assert_allclose(np.diag(made), sigmas**2, atol=1e-3 * np.trace(covariance))
    np.testing.assert_allclose(made[0, 1:] / sigmas[0], 0, atol=0.01 * sigmas[0])
    # What all channels have in common is in the luminance, not in the others.
    seen = np.abs(matrix @ np.ones(3)) / sigmas
    assert seen[0] > 5 * seen[1:].max() or covariance[0, 1] > 0.9 * covariance[0, 0]
    if np.ptp(np.diag(covariance)) == 0:
        np.testing.assert_allclose(matrix, OPPONENT, atol=1e-9)
    # Three channels cannot all be opposed; what was told may be nonsense, results are not.
    assert all(np.isfinite(part).all() for part in mixtures_for(covariance_of(-1.0)))


@SHARED
def test_three_numbers_tell_how_channels_correlate(covariance):
    sigmas = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(sigmas, sigmas)
    tables = [tuple(map(tuple, each)) for each in (covariance, 0 * covariance, correlation)]
    shared = ChannelCovariance(*tables, 100).shared
    models = [gd.Gaussian(s, each) for s, each in zip(sigmas, shared, strict=True)]
    np.testing.assert_allclose(channel_correlations(models, 3), correlation, atol=1e-12)


def test_what_channels_do_not_share_changes_nothing():
    alone, shared = (gd.Gaussian(15.0), gd.PoissonGaussian(2.0, 3.0)), gd.Gaussian(15.0, 0.5)
    for settings in (gd.BM3D(channels="opponent"), gd.VBM3D(channels="opponent")):
        for model in alone:
            assert prepared(settings, "CYX", noise=(model,) * 3) == prepared(settings, "SYX")
        nothing = prepared(settings, "CYX", noise=(shared, gd.Gaussian(0.0), shared))
        assert nothing == prepared(settings, "SYX")
        told = prepared(settings, "SYX", noise=(shared,))
        assert told.mixtures.strengths[0] == pytest.approx(2**0.5, rel=2e-3)
        assert told.passes == settings.passes
    for settings, axes in ((gd.BM3D(channels="joint"), "SYX"), (gd.BM4D(), "SZYX")):
        assert prepared(settings, axes, noise=(shared,)).noise == ()


@pytest.mark.parametrize("name", ["alike", "of unequal strength", "of a colour matrix"])
@pytest.mark.parametrize(("settings", "planes"), COLOURED.values(), ids=COLOURED)
def test_noise_that_colours_share_is_removed(device, settings, planes, name):
    """Told how channels correlate, filters are better than without, and than channel by channel."""
    covariance = COVARIANCES[name]
    values, vectors = np.linalg.eigh(covariance)
    random = np.random.default_rng(2).normal(0, np.sqrt(values), (*planes, 64, 72, 3))
    clean = np.moveaxis(clean_colours(64, 72, 10.0), 0, -1)
    image = (clean + random @ vectors.T).astype(np.float32)
    sigmas = np.sqrt(np.diag(covariance))
    shared = ((covariance / np.outer(sigmas, sigmas)).sum(axis=1) - 1) / 2

    def quality(axes, **told):
        models = [gd.Gaussian(*each) for each in zip(*told.values(), strict=True)]
        options = {"axes": "T" * len(planes) + axes, "device": device}
        return psnr(gd.denoise(image, settings, noise=models, **options).image, clean)

    together = quality("YXS", sigma=sigmas, shared=shared)
    assert together > quality("YXS", sigma=sigmas) + 0.5
    assert together > quality("YXC", sigma=sigmas) + 0.5
