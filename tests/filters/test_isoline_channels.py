"""Channels that share their isolines, on a device against the slow filters in NumPy."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import napari_gpu_denoise as gd
from filters.slow_isoline import slow
from filters.test_channels import colours
from napari_gpu_denoise.filters.isoline import Isoline

SIGMAS = (12.4, 20.37, 31.1)
JOINT = Isoline(channels="joint")


def agree(out, expected) -> None:
    """Check channels of the device.

    As in test_isoline.py, the last bit of a float may choose another direction in a pixel or two.
    """
    error = np.abs(np.asarray(out, np.float64) - expected)
    differ = np.sum(np.any(error > 2e-3, axis=0))
    assert differ <= max(2, 0.002 * error[0].size), (differ, error.max())
    assert error.max() < 90


@pytest.mark.parametrize("choice", ["soft", "hard"])
def test_channels_may_come_last(device, choice):
    image, settings = colours(), dataclasses.replace(JOINT, choice=choice)
    out = gd.denoise(image, settings, SIGMAS, axes="CYX", device=device).image
    last = np.moveaxis(image, 0, -1)
    turned = gd.denoise(last, settings, SIGMAS, axes="YXS", device=device).image
    np.testing.assert_array_equal(np.moveaxis(turned, -1, 0), out)


def test_channels_without_noise_are_left_out_and_stay(device):
    image, sigmas = colours(), (0.0, 20.37, 31.1)
    out = gd.denoise(image, JOINT, sigmas, axes="CYX", device=device).image
    np.testing.assert_array_equal(out[0], image[0])
    agree(out[1:], slow(image[1:], JOINT, sigmas[1:]))


@pytest.mark.parametrize("shape", [(1, 1), (7, 1), (2, 3)])
def test_tiny_joint_channels(device, shape):
    image = colours(*shape)
    for changes in ({}, {"choice": "hard"}, {"method": "pi-ld"}, {"staircase": 0}):
        settings = dataclasses.replace(JOINT, **changes)
        out = gd.denoise(image, settings, SIGMAS, axes="CYX", device=device).image
        assert np.all(np.isfinite(out))
        if settings.soft:
            agree(out, slow(image, settings, SIGMAS))


def test_all_channels_show_the_isolines_of_the_guide(device):
    image = colours()
    luminance = image.mean(axis=0) * np.sqrt(3)
    for channels in ("joint", "opponent"):
        for show in ("classes", "directions"):
            settings = Isoline(channels=channels, show=show)
            out = gd.denoise(image, settings, 20.0, axes="CYX", device=device).image
            alone = Isoline(show=show)
            expected = gd.denoise(luminance, alone, 20.0, device=device).image
            for one in out:
                assert np.mean(one != expected) < 0.01
