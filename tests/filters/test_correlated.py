"""What filters make of models of correlated noise, and what they gain where they are told one."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

import napari_gpu_denoise as gd
from filters.cases import COLOURED
from filters.correlated_noise import BLURRED, OPPOSED, STREAKS, WHITE, blur, model, table
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.noise.models import Correlated, CorrelatedPhotons, Gaussian, Rician
from scenes import prepared, psnr, scene

KINDS = {gd.BM3D: "CYX", gd.VBM3D: "TCYX", gd.BM4D: "CZYX"}
PLANE, DEEP, NEAR = model(0.7, 1.0), model(0.7, 1.0, 0.5), model(0.6, 0.6)


@pytest.mark.parametrize("kind", KINDS, ids=lambda one: one.name)
def test_models_decide_what_runs(kind):
    settings, axes = kind(), KINDS[kind]
    one, white = Correlated(3.0, BLURRED), Correlated(3.0, WHITE)
    for unchanged in (Gaussian(3.0), Rician(3.0)):
        assert not settings.takes((unchanged,))
        assert not settings.takes((one, unchanged))
        assert prepared(settings, axes, noise=(unchanged,)).noise == ()
    assert settings.takes((white,)) and settings.takes((one,))
    assert prepared(settings, axes, noise=(white,)) == prepared(settings, axes)
    told = prepared(settings, axes, noise=(one,))
    assert told.noise == (one,) and told.joint == settings.joint
    assert prepared(settings, axes, noise=(one,) * 3) == told
    photons = CorrelatedPhotons(2.0, 6.0, autocorrelation=BLURRED)
    assert prepared(settings, axes, noise=(photons,)).noise == (photons.spectral,)
    several = prepared(settings, axes, noise=(one, Correlated(3.0, STREAKS), white))
    assert set(several.joint) == {*settings.joint, "C"} - ({"C"} if kind is gd.VBM3D else set())
    assert pickle.loads(pickle.dumps(several)) == several
    assert {len(stage.spectra) for stage in several.passes.values()} == {3}
    with pytest.raises(SettingsError, match="3 noise models were given for 2 channels"):
        prepared(several, axes, [4 if a == "T" else 2 if a == "C" else 30 for a in axes])


def test_models_of_slices_decide_what_runs():
    settings, white = gd.BM4D(cube="4x4x4"), Correlated(3.0, WHITE)
    along = replace(white, along_z=(1, 0.4))
    assert prepared(settings, "ZYX", noise=(along,)).noise == (along,)
    assert prepared(gd.BM3D(), noise=(along,)).noise == ()
    one = prepared(settings, "ZYX", noise=(PLANE,))
    assert one.reach.y[0] == settings.reach.y[0] + 3
    assert list(one.passes) == ["prefilter", "basic", "final"]
    assert "prefilter" not in prepared(settings, "ZYX", noise=(NEAR,)).passes
    moving = prepared(replace(settings, frames_before=1), "TCZYX", noise=(PLANE, DEEP))
    (mean,) = moving.passes["basic"].spectra
    assert mean.along_z[1] == pytest.approx(DEEP.along_z[1] / 2)


def test_auto_smooths_what_is_searched_where_neighbours_are_alike():
    def chosen(given):
        return prepared(gd.BM3D(), noise=(Correlated(3.0, given),))

    assert "prefilter" not in gd.BM3D().passes
    assert chosen(BLURRED).passes["prefilter"].threshold == 3.0
    assert chosen(BLURRED).reach.y[0] > gd.BM3D().reach.y[0]
    assert "prefilter" in chosen(STREAKS).passes
    assert "prefilter" not in chosen(OPPOSED).passes


# A filter, its axes, planes that are filtered together, widths and sigma of the noise, and other
# levels of white noise.
GAINS = [
    (gd.BM3D(), "YX", (), (1.2, 1.2), 8.0, (4, 6, 8, 11, 14, 18, 24)),
    (gd.VBM3D(), "TYX", (4,), (0.9, 1.3), 8.0, (4, 6, 8, 11, 14, 18, 24)),
    (gd.BM4D(cube="4x4x4"), "ZYX", (8,), (0.0, 1.0, 1.0), 10.0, (10, 15, 22)),
    (gd.BM4D(cube="4x4x4"), "ZYX", (8,), (0.7, 1.0, 1.0), 10.0, (10, 15, 22)),
]


@pytest.mark.parametrize(
    ("settings", "axes", "planes", "widths", "sigma", "others"),
    GAINS,
    ids=["bm3d", "vbm3d", "bm4d of a plane", "bm4d"],
)
def test_a_spectrum_beats_every_single_sigma(device, settings, axes, planes, widths, sigma, others):
    clean = np.broadcast_to(scene(56, 64), (*planes, 56, 64))
    if "T" in axes:
        clean = scene(*planes, 56, 64)
    image = (clean + blur(clean.shape, widths, sigma)).astype(np.float32)
    options = {"axes": axes, "device": device}
    z, y, x = (0.0, *widths)[-3:]
    noise = Correlated(sigma, table(y, x)) if "Z" not in axes else model(y, x, z, sigma)
    told = psnr(gd.denoise(image, settings, noise=noise, **options).image, clean)
    white = [psnr(gd.denoise(image, settings, one, **options).image, clean) for one in others]
    assert told > max(white) + (0.5 if "Z" not in axes else 0)


@pytest.mark.parametrize(("settings", "planes"), COLOURED.values(), ids=COLOURED)
def test_noise_that_colours_share_is_stronger_in_luminance(device, settings, planes):
    shape = (*planes, 1, 48, 56)
    noise = blur(shape) + 0.3 * blur((*planes, 3, 48, 56), seed=4)
    clean = scene(*shape)
    image = (clean + noise).astype(np.float32)
    axes = "TSYX" if planes else "SYX"

    def left(shared):
        told = tuple(Correlated(20.0, BLURRED, shared) for _ in range(3))
        return gd.denoise(image, settings, noise=told, axes=axes, device=device).image

    assert psnr(left(0.9), clean) > psnr(left(0.0), clean) + 0.97
    np.testing.assert_array_equal(left(0.0), left(0.2))
