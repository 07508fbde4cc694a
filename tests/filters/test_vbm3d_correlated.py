"""VBM3D of correlated noise: kernels and filter against the slow one, and what it is worth."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import napari_gpu_denoise as gd
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
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.search.video_search import VideoSearch
from napari_gpu_denoise.filters.vbm3d import VBM3D, CorrelatedVBM3D
from napari_gpu_denoise.noise.models import Correlated, CorrelatedPhotons, Gaussian
from reference import vbm3d as reference
from scenes import cut, frame, psnr, scene, small

LAG = np.arange(5.0)
SIGMA = 20.0


def table(down: float, across: float) -> tuple[tuple[float, ...], ...]:
    """Return the autocorrelation of white noise blurred with Gaussians of these widths, pixels."""
    y, x = (np.exp(-(LAG**2) / (4 * width**2)) for width in (down, across))
    return tuple(map(tuple, np.outer(y, x).tolist()))


BLURRED, STREAKS = table(0.9, 1.3), table(0.2, 1.5)
WHITE = tuple(map(tuple, np.outer(LAG == 0, LAG == 0).astype(float)))
MODEL = Correlated(SIGMA, BLURRED)
HARD_OR_WIENER = pytest.mark.parametrize("wiener", [False, True], ids=["hard", "Wiener"])


@pytest.fixture(scope="module")
def plain(device):
    return Plain.of(device)


def blur(shape, sigma: float = SIGMA, widths=(0.9, 1.3), seed: int = 0) -> np.ndarray:
    """Return noise of frames that share none."""
    noise = np.random.default_rng(seed).normal(size=shape)
    noise = gaussian_filter(noise, widths, axes=(-2, -1), mode="wrap")
    return sigma * noise / noise.std()


def video(*shape: int, **options) -> np.ndarray:
    return np.rint(scene(*shape) + blur(shape, **options)).clip(0, 255).astype(np.uint8)


# Groups


@HARD_OR_WIENER
@pytest.mark.parametrize("kernel", ["lanes", "shared"])
@pytest.mark.parametrize("overlap", [False, True], ids=["alone", "overlap"])
def test_groups_are_those_of_the_reference(plain, kernel, overlap, wiener):
    """Frames of unlike noise and brightness, a map, and channels of a spectrum each."""
    search = search_settings(
        **{"window": 7, "window_next": 3, "frames": (2, 1), "motion": False},
        **{"similar": 9.0, "per_frame": 4},
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


@pytest.mark.parametrize("changes", [{}, {"stack_basic": "dct", "frames_after": 0}], ids=str)
def test_the_filter_is_that_of_the_reference(optimised, device, finely, changes):
    frames = video(5, 33, 36)
    settings = VBM3D(flicker=False, step_final=6, **{"step_basic": 6, **changes})
    told = settings.for_noise((MODEL,))
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


def test_channels_with_a_spectrum_each_are_as_alone(device):
    frames = np.stack([video(3, 40, 44, seed=k) for k in range(3)], axis=1)
    settings = small(VBM3D)
    out = gd.vbm3d(frames, noise=THREE, axes="TCYX", device=device, **settings.as_dict())
    for c, model in enumerate(THREE[:2]):
        alone = gd.denoise(frames[:, c], settings, noise=model, axes="TYX", device=device).image
        np.testing.assert_array_equal(out[:, c], alone)


@pytest.mark.parametrize("channels", ["opponent", "joint"])
def test_mixed_channels_have_mixed_spectra(device, channels):
    frames = np.stack([video(3, 40, 44, seed=k) for k in range(3)], axis=1)
    settings = small(VBM3D, channels=channels)
    passes = settings.for_noise(THREE).passes
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
    [("YX", MODEL), ("YX", PHOTONS), ("CYX", THREE[:2]), ("YXS", (MODEL,))],
    ids=["correlated", "photons", "channels", "colours"],
)
def test_streams_and_pieces_of_them_are_the_whole(streaming_device, axes, noise):
    shape = {"YX": (40, 44), "CYX": (2, 40, 44), "YXS": (40, 44, 3)}[axes]
    frames = np.resize(video(7, 40, 44), (7, *shape))
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


@pytest.mark.parametrize("noise", [MODEL, PHOTONS], ids=["correlated", "photons"])
def test_parts_of_frames_and_repeated_runs_are_the_whole(device, noise):
    settings = small(VBM3D, frames_before=1, frames_after=1)
    frames = video(3, *frame(settings))
    options = {"noise": noise, "axes": "TYX", "device": device}
    whole = gd.denoise(frames, settings, **options).image
    totals = []
    tiled = gd.denoise(
        *(frames, settings),
        memory_limit=cut(settings),
        progress=lambda done, total: totals.append(total),
        **options,
    )
    assert totals[-1] >= 3 * len(frames)
    np.testing.assert_array_equal(tiled.image, whole)
    assert gd.denoise(frames, settings, **options).image.tobytes() == whole.tobytes()


# What is chosen, and what it is worth


def test_models_decide_what_runs():
    settings = VBM3D()
    assert settings.for_noise((Gaussian(3.0),)) is None
    assert settings.for_noise((Correlated(3.0, WHITE),)) is settings
    one = settings.for_noise((MODEL,))
    assert isinstance(one, CorrelatedVBM3D)
    assert one.shared_noise and one.joint == settings.joint
    assert settings.for_noise((MODEL,) * 3) == one
    several = settings.for_noise(THREE)
    assert pickle.loads(pickle.dumps(several)) == several
    assert settings.for_noise((PHOTONS,)).models == (PHOTONS.spectral,)
    with pytest.raises(SettingsError, match="3 noise models were given for 2 channels"):
        several.for_array("TCYX", (4, 2, 30, 30))


def test_a_spectrum_beats_every_single_sigma(device):
    clean = scene(5, 72, 80)
    frames = (clean + blur(clean.shape, 8.0)).astype(np.float32)
    best = max(
        psnr(gd.vbm3d(frames, sigma, axes="TYX", device=device), clean)
        for sigma in (4, 6, 8, 11, 14, 18, 24)
    )
    told = gd.vbm3d(frames, noise=replace(MODEL, sigma=8.0), axes="TYX", device=device)
    assert psnr(told, clean) > best + 0.5


def test_noise_that_colours_share_is_stronger_in_luminance(device):
    noise = blur((3, 1, 48, 56)) + 0.3 * blur((3, 3, 48, 56), seed=4)
    clean = scene(3, 48, 56)[:, None]
    frames = (clean + noise).astype(np.float32)

    def left(shared):
        told = tuple(Correlated(SIGMA, BLURRED, shared) for _ in range(3))
        # In groups of four hardly anything counts as common, and the threshold is for eight.
        settings = small(VBM3D, neighbours_basic=8, neighbours_final=8)
        return gd.denoise(frames, settings, noise=told, axes="TSYX", device=device).image

    # Measured: 26.7 and 25.2 dB.
    assert psnr(left(0.9), clean) > psnr(left(0.0), clean) + 1
    np.testing.assert_array_equal(left(0.0), left(0.2))
