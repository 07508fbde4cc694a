"""VBM3D of correlated noise: kernels and filter against the slow one, and what it is worth."""

from __future__ import annotations

import numpy as np
import pytest

import napari_gpu_denoise as gd
from filters.correlated_noise import BLURRED, SIGMA, STREAKS, WHITE, blur
from filters.one_pass import Plain
from filters.one_video_pass import (
    PATCHES,
    Run,
    Videos,
    compare,
    group_settings,
    lanes,
    search_settings,
    shared,
)
from napari_gpu_denoise.filters.search.video_search import VideoSearch
from napari_gpu_denoise.filters.vbm3d import VBM3D
from napari_gpu_denoise.noise.models import Correlated, CorrelatedPhotons
from reference import vbm3d as reference
from scenes import prepared, psnr, scene, small

MODEL = Correlated(SIGMA, BLURRED)
HARD_OR_WIENER = pytest.mark.parametrize("wiener", [False, True], ids=["hard", "Wiener"])


@pytest.fixture(scope="module")
def plain(device):
    return Plain.of(device)


def video(*shape: int, **options) -> np.ndarray:
    return np.rint(scene(*shape) + blur(shape, **options)).clip(0, 255).astype(np.uint8)


# Groups


@HARD_OR_WIENER
@pytest.mark.parametrize("kernel", ["lanes", "shared"])
@pytest.mark.parametrize("overlap", [False, True], ids=["alone", "overlap"])
def test_groups_are_those_of_the_reference(plain, kernel, overlap, wiener):
    """Frames of unlike noise and brightness, a map, and channels of a spectrum each."""
    search = search_settings(
        **{"window": 7, "window_next": 3, "frames": (2, 1)},
        **{"similar": 9.0, "per_frame": 4, "step": 7},
    )
    spectra = (STREAKS, BLURRED) if overlap else (BLURRED,)
    given = group_settings(search, "bior1.5", "haar", wiener, shared_noise=overlap, spectra=spectra)
    variant = lanes(search) if kernel == "lanes" else shared(4, 3, 2, 2)
    variation = np.linspace(0.6, 1, 26 * 38, dtype=np.float32).reshape(26, 38)
    run = Run(
        *(plain, given, variant, Videos.of(linked=True)),
        channels=len(spectra),
        variation=None if overlap else variation,
        search_variant=PATCHES if plain.device.float_lanes >= 4 else None,
    )
    assert 8 in compare(run)


# The filter


@pytest.fixture
def finely(monkeypatch):
    """As in test_vbm3d_groups."""
    monkeypatch.setattr(VideoSearch, "covering", lambda self, width: 64)


@pytest.mark.parametrize("changes", [{}, {"frames_after": 0}], ids=str)
def test_the_filter_is_that_of_the_reference(optimised, device, finely, changes):
    frames = video(5, 33, 36)
    settings = VBM3D(step_final=6, **{"step_basic": 6, **changes})
    told = prepared(settings, "TYX", noise=(MODEL,))
    out = gd.denoise(frames, settings, noise=MODEL, axes="TYX", dtype="float32", device=device)
    expected = reference.vbm3d(frames, SIGMA, told, table=BLURRED)
    error = np.abs(out.image - expected)
    # A coefficient may lie at the threshold.
    assert np.quantile(error, 0.99) < 3e-3
    assert error.max() < 0.1 * SIGMA
    assert np.abs(out.image - frames).max() > 10


def test_a_white_spectrum_is_as_white_noise(device):
    frames = video(4, 40, 44)
    expected = gd.vbm3d(frames, SIGMA, axes="TYX", device=device)
    white = gd.vbm3d(frames, noise=Correlated(SIGMA, WHITE), axes="TYX", device=device)
    np.testing.assert_array_equal(white, expected)


THREE = (MODEL, Correlated(12.0, STREAKS), Correlated(25.0, WHITE))


@pytest.mark.parametrize("channels", ["opponent", "joint"])
def test_mixed_channels_have_mixed_spectra(device, channels):
    frames = np.stack([video(3, 40, 44, seed=k) for k in range(3)], axis=1)
    settings = small(VBM3D, channels=channels)
    passes = prepared(settings, "TCYX", noise=THREE).passes
    assert [len(one.spectra) for one in passes.values()] == [3, 3]
    out = gd.denoise(frames, settings, noise=THREE, axes="TCYX", device=device).image
    turned = gd.denoise(
        np.moveaxis(frames, 1, -1), settings, noise=THREE, axes="TYXC", device=device
    )
    np.testing.assert_array_equal(np.moveaxis(turned.image, -1, 1), out)
    assert psnr(out, scene(3, 40, 44)[:, None]) > psnr(frames, scene(3, 40, 44)[:, None]) + 2


PHOTONS = CorrelatedPhotons(2.0, 6.0, autocorrelation=BLURRED)


# One result, however it is got


@pytest.mark.parametrize(
    ("axes", "noise"),
    [("YX", PHOTONS), ("CYX", THREE[:2]), ("YXS", (MODEL,))],
    ids=["photons", "channels", "colours"],
)
def test_streams_and_pieces_of_them_are_the_whole(streaming_device, axes, noise):
    shape = {"YX": (26, 30), "CYX": (2, 26, 30), "YXS": (26, 30, 3)}[axes]
    frames = np.resize(video(7, 26, 30), (7, *shape))
    settings = small(VBM3D, frames_before=2, frames_after=1)
    options = {"noise": noise, "device": streaming_device}
    whole = gd.denoise(frames, settings, axes="T" + axes, **options).image
    options["dtype"] = whole.dtype
    for live in (False, True):
        out = list(gd.stream(settings, frames, axes=axes, live=live, **options))
        np.testing.assert_array_equal(out, whole)
    for part in (slice(2, 4), slice(6, 7)):
        some = gd.denoise(frames, settings, axes="T" + axes, frames=part, **options).image
        np.testing.assert_array_equal(some, whole[part])
