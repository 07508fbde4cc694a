"""Pixelwise NL-means: flicker, maps of pixels averaged, and slices that are far apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import napari_gpu_denoise as gd
from scenes import altered, noisy, prepared, psnr, scene


def test_flicker_of_joint_channels_is_corrected(device):
    clean = np.broadcast_to(scene(64, 72), (2, 5, 64, 72))
    gains = np.array([[1, 0.7, 1.2, 0.9, 1], [1, 1, 1, 1, 1.3]])[..., None, None]
    image = (clean + np.random.default_rng(0).normal(0, 8, clean.shape)) * gains
    scores = []
    followed = gd.NLMeansPixelwise(frames_before=2, frames_after=2, channels="joint")
    for settings in (followed, altered(followed, compares_brightness=False)):
        out = gd.denoise(image, settings, 8, axes="CTYX", device=device).image
        scores.append(psnr(out / gains, clean))
    assert scores[0] > scores[1] + 0.5


def test_pixels_averaged_of_joint_channels_are_one_map(device):
    options = {"axes": "CYX", "show": "pixels", "device": device}
    count = gd.nl_means_pixelwise(noisy(3, 30, 34), 20, channels="joint", **options)
    np.testing.assert_array_equal(count, count[:1].repeat(3, axis=0))
    apart = gd.nl_means_pixelwise(noisy(3, 30, 34), (20, 0, 20), **options)
    assert not apart[1].any() and apart[0].min() >= 1


def test_fewer_slices_where_they_are_far_apart():
    volume = gd.NLMeansPixelwise.of(profile="volume", voxel=(3, 1, 1))
    flat = noisy(6, 40, 40) - scene(6, 40, 40)  # noise, which does not tell
    fitting = prepared(volume, "ZYX", flat.shape, image=flat)
    (why,) = fitting.notes
    assert (fitting.slices, fitting.patch_slices, fitting.patch) == (1, 0, 5)
    assert why.startswith("according to the voxel size, slices are 3 pixels apart")
    assert prepared(fitting, "ZYX", flat.shape, image=flat) == fitting
    # The image comes first: these slices are the same.
    alike = np.repeat(scene(1, 40, 40), 6, axis=0)
    for unchanged in (volume.spaced(alike, "ZYX"), volume.spaced(flat[:1], "ZYX")):
        assert unchanged == volume and not unchanged.notes
    off = replace(volume, spacing="off")
    assert off.spaced(flat, "ZYX") == off
    near = gd.NLMeansPixelwise.of(profile="volume", voxel="1, 1, 1")
    assert near.spaced(flat, "ZYX") == near


def test_the_result_says_how_many_slices_were_taken(device):
    image = noisy(6, 20, 20) - scene(6, 20, 20) + 100
    options = {"axes": "ZYX", "device": device}
    far = gd.NLMeansPixelwise.of(profile="volume", voxel=(30, 1, 1))
    record = gd.denoise(image, far, 20.0, **options).record
    assert any("slices=1" in note for note in record.notes)
    assert record.settings["slices"] == 3
