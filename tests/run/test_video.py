"""Videos that bleach and flicker, and those that do not."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy import ndimage

import napari_gpu_denoise as gd
from frames_over_time import SETTINGS, eventful, run
from napari_gpu_denoise.filters import VBM3D, NLMeans
from scenes import altered, noisy, psnr, scene, small

OVER_TIME = {
    "vbm3d": (small(VBM3D), 1.0, 1.3),
    "vbm3d causal": (small(VBM3D, frames_before=4, frames_after=0), 1.0, 1.3),
    "nl_means": (small(NLMeans, frames_before=2, frames_after=2), 0.3, 0.02),
}


def losses(settings, device, clean, image, gain, offset) -> list[float]:
    """Return what a change of brightness, undone afterwards, costs followed, and not."""
    base, found = psnr(run(image, settings, device, 10), clean), []
    for chosen in (settings, altered(settings, compares_brightness=False)):
        out = run(gain * image + offset, chosen, device, 10 * gain.ravel())
        found.append(base - psnr((out - offset) / gain, clean))
    return found


STILL = np.broadcast_to(scene(96, 112), (12, 96, 112))
FADING = [np.linspace(1, end, 12)[:, None, None] for end in (0.6, 0.7)]
ALTERNATING = 1 + 0.1 * (-1.0) ** np.arange(12)[:, None, None]
# What a change of brightness may cost, in decibels, and what is lost at least if it is ignored.
# Measured: 0.03 and 1.2 to 1.4 for bleaching (NL-means 0.01 and 0.7), 0.02 and 1.5 to 1.8 for
# frames that alternate (0.01 and 0.04). Slow bleaching may pass for motion: up to 0.4 dB.
CHANGES = {
    "bleaching": (STILL, FADING[0], 0, 0.1, 1),
    "bleaching above an offset": (STILL, FADING[0], 60, 0.1, 1),
    "alternating": (STILL, ALTERNATING, 0, 0.1, 2),
    "alternating above an offset": (STILL, ALTERNATING, 60, 0.1, 2),
    "bleaching in motion": (scene(12, 96, 112), FADING[1], 0, 0.5, None),
    "alternating in motion": (scene(12, 96, 112), ALTERNATING, 0, 0.1, None),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", OVER_TIME)
def test_brightness_is_followed(device, name, change):
    clean, gain, offset, most, place = CHANGES[change]
    settings = OVER_TIME[name][0]
    if place == 2 and isinstance(settings, VBM3D):
        # Frames of one brightness, every second one, must not suffice to fill the groups.
        settings = dataclasses.replace(settings, neighbours_basic=8, neighbours_final=8)
    image = clean + np.random.default_rng(0).normal(0, 10, clean.shape)
    on, off = losses(settings, device, clean, image, gain, offset)
    assert on < most
    assert off > on + (0.1 if place is None else OVER_TIME[name][place])


def panned(count: int, step: int) -> np.ndarray:
    wide = scene(96, 112 + step * count)
    return np.stack([wide[:, step * k : step * k + 112] for k in range(count)])


SCENES = {
    "still": STILL,
    "in motion": scene(12, 96, 112),
    "panned by 1": panned(12, 1),
    "panned by 5": panned(12, 5),
    "an object": np.stack(
        [np.where(np.hypot(*np.mgrid[-48:48, -20 - 6 * k : 92 - 6 * k]) < 14, 230, scene(96, 112))
         for k in range(12)]
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", SCENES)
@pytest.mark.parametrize("name", OVER_TIME)
def test_where_nothing_bleaches_nothing_is_done(device, name, which):
    settings = OVER_TIME[name][0]
    clean = SCENES[which]
    for sigma in (2, 30):
        image = clean + np.random.default_rng(sigma).normal(0, sigma, clean.shape)
        on, off = (
            run(image, chosen, device, sigma)
            for chosen in (settings, altered(settings, compares_brightness=False))
        )
        np.testing.assert_array_equal(on, off)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("where", [0, 8, (3, 4), (4, 6)])
def test_a_dropped_frame_comes_back_and_disturbs_no_other(device, name, where):
    settings, stack = SETTINGS[name], eventful(9, 48, 52)
    where = np.ravel(where)
    found = []
    for level in (0, 117.3, 255):
        stack[where] = level
        out = run(stack, settings, device)
        np.testing.assert_array_equal(out[where], stack[where])
        found.append(np.delete(out, where, 0))
    # Be it dropped, or told to be without noise, whatever it shows.
    stack[where] = noisy(len(where), 48, 52, seed=7)
    sigma = np.full(9, 20.0)
    sigma[where] = 0
    out = run(stack, settings, device, sigma)
    np.testing.assert_array_equal(out[where], stack[where])
    found.append(np.delete(out, where, 0))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
    if tuple(where) in ((0,), (8,)):
        # At an end it is as if it were not there.
        alone = run(np.delete(stack, where, 0), settings, device)
        np.testing.assert_array_equal(found[0], alone)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("channels", ["separate", "opponent", "joint"])
def test_a_dropped_frame_of_channels_comes_back_to_the_bit(device, channels, dtype):
    settings = small(VBM3D, frames_before=1, frames_after=1, channels=channels)
    image = noisy(5, 40, 44, 3, dtype=dtype)
    image[2] = np.array([7.3, 41.9, 201.1]).astype(dtype)
    out = run(image, settings, device, axes="TYXS")
    np.testing.assert_array_equal(out[2], image[2])
    assert np.all(out[[0, 1, 3, 4]].std(axis=(1, 2)) > 5)


@pytest.mark.parametrize("case", ["constant", "sigma 0"])
@pytest.mark.parametrize("channels", ["separate", "opponent", "joint"])
def test_a_channel_with_nothing_to_filter_leaves_the_others_to_be_filtered(device, channels, case):
    # As the empty blue of many RGB files.
    settings = small(VBM3D, frames_before=1, frames_after=1, channels=channels)
    clean = scene(5, 48, 52, 3)
    image = noisy(5, 48, 52, 3, sigma=10)
    sigma = (10, 10, 0)
    if case == "constant":
        clean[..., 2] = image[..., 2] = 0
        sigma = 10
    out = run(image, settings, device, sigma, "TYXS")
    # Opponent colours share what is removed; else nothing is taken from what holds nothing.
    exact = (channels, case) != ("opponent", "constant")
    np.testing.assert_allclose(out[..., 2], image[..., 2], rtol=0, atol=0 if exact else 20)
    assert psnr(out[..., :2], clean[..., :2]) > psnr(image[..., :2], clean[..., :2]) + 4


def texture(low: float, high: float, seed: int = 1) -> np.ndarray:
    values = ndimage.gaussian_filter(np.random.default_rng(seed).normal(size=(64, 72)), 3)
    return low + (high - low) * (values - values.min()) / np.ptp(values)


@pytest.mark.parametrize("name", SETTINGS)
def test_scenes_without_similar_patches_are_filtered_as_if_alone(device, name):
    # Nothing is matched across the cut: not a bit differs.
    clean = np.concatenate([scene(5, 64, 72), np.broadcast_to(texture(500, 900), (5, 64, 72))])
    image = (clean + np.random.default_rng(0).normal(0, 10, clean.shape)).astype(np.float32)
    out = run(image, SETTINGS[name], device, 10)
    for part in (slice(0, 5), slice(5, 10)):
        np.testing.assert_array_equal(out[part], run(image[part], SETTINGS[name], device, 10))


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("name", SETTINGS)
def test_stacks_shorter_than_the_window(device, name, count):
    clean = np.broadcast_to(scene(64, 72), (count, 64, 72))
    image = (clean + np.random.default_rng(0).normal(0, 20, clean.shape)).astype(np.float32)
    settings, out = SETTINGS[name], run(image, SETTINGS[name], device)
    best = {"vbm3d causal": -1, "vbm3d ahead": 0}.get(name, count // 2)
    alone = run(image[best][None], settings, device)[0]
    assert psnr(out[best], clean[0]) > psnr(alone, clean[0]) + 0.3
    # Frames that are not there are as frames that were dropped.
    padded = np.full((count + 10, 64, 72), 99, np.float32)
    padded[5 : 5 + count] = image
    np.testing.assert_array_equal(run(padded, settings, device)[5 : 5 + count], out)


@pytest.mark.parametrize("kind", [VBM3D, gd.NLMeans], ids=lambda kind: kind.name)
def test_frames_that_are_stored_twice_count_once(device, kind):
    """Noise that frames share is not taken for signal, and motion is followed past them."""
    steps, wide = range(5), scene(48, 72)
    clean = np.stack([wide[:, 3 * t : 3 * t + 56] for t in steps])
    image = (clean + np.random.default_rng(0).normal(0, 20, clean.shape)).astype(np.float32)

    def left(reach, times):
        settings = small(kind, frames_before=reach, frames_after=reach)
        out = run(image.repeat(times, 0), settings, device)
        return np.sqrt(np.mean(np.square(out - clean.repeat(times, 0))))

    assert left(2, 2) < 1.1 * left(1, 1)


def test_maps_over_time_are_in_their_own_units(device):
    image = noisy(4, 40, 44)
    options = {"axes": "TYX", "frames_before": 1, "window": 7, "show": "pixels", "device": device}
    image[2] = 7  # nothing to filter
    plain = gd.nl_means_pixelwise(image, 20, **options)
    wide = image.astype(np.float64) * 1000 + 5e6
    np.testing.assert_allclose(gd.nl_means_pixelwise(wide, 2e4, **options), plain, 1e-4)
    assert not plain[2].any() and plain[[0, 1, 3]].min() >= 1


def test_planes_without_time_are_told(device):
    stack, note = noisy(2, 12, 13), "no axis is named T: each plane is filtered by itself"
    for axes in ("ZYX", "TYX"):
        record = gd.denoise(stack, small(VBM3D), 20.0, axes=axes, device=device).record
        assert (note in record.notes) == ("T" not in axes)
