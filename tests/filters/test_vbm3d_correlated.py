"""VBM3D of correlated noise; test_gpu_kernels compares it with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import napari_gpu_denoise as gd
from filters.correlated_noise import BLURRED, SIGMA, STREAKS, WHITE, blur
from napari_gpu_denoise.filters.vbm3d import VBM3D
from napari_gpu_denoise.noise.models import Correlated, CorrelatedPhotons
from scenes import prepared, psnr, scene, small

MODEL = Correlated(SIGMA, BLURRED)


def video(*shape: int, **options) -> np.ndarray:
    return np.rint(scene(*shape) + blur(shape, **options)).clip(0, 255).astype(np.uint8)


THREE = (MODEL, Correlated(12.0, STREAKS), Correlated(25.0, WHITE))


@pytest.mark.parametrize("channels", ["opponent", "joint"])
def test_mixed_channels_have_mixed_spectra(device, channels):
    frames = np.stack([video(3, 40, 44, seed=k) for k in range(3)], axis=1)
    settings = small(VBM3D, channels=channels)
    passes = prepared(settings, "TCYX", noise=THREE).passes
    assert [len(one.spectra) for one in passes.values()] == [3, 3]
    out = gd.denoise(frames, settings, noise=THREE, axes="TCYX", device=device).image
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
