"""NL-means: flat regions, settings, and how far it looks; test_gpu_kernels compares with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.nl_means import NLMeans
from scenes import noisy

SIGMA = 20.0


def test_flat_regions_become_flat(device):
    image = 100 + np.rint(np.random.default_rng(0).normal(0, 5, (40, 40))).astype(np.float32)
    rough = gd.nl_means(image, 10, device=device, flat=0.0)
    flat = gd.nl_means(image, 10, device=device)
    assert np.std(flat) < np.std(rough)
    # All values of a group are below 1.05 sigma^2: every patch is its mean.
    mean = gd.nl_means(image, 10, device=device, patch=8, step=8, window=1, neighbours=1)
    blocks = image.reshape(5, 8, 5, 8).mean(axis=(1, 3))
    np.testing.assert_allclose(mean, np.kron(blocks, np.ones((8, 8))), rtol=1e-5)


# Settings


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"patch": 4, "step": 5}, "step=5 leaves gaps between patches of width 4"),
        ({"window": 10}, "window=10 must be odd"),
        ({"patch": 8.5}, "patch=8.5 is not a whole number"),
        ({"patch": "8.x"}, "patch='8.x' is not a whole number"),
        ({"patch": True}, "patch=True is not a whole number"),
        ({"window": 101, "frames_before": 8}, "holds 91809 patches, more than 65536"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, sentence):
    with pytest.raises(SettingsError, match=sentence):
        NLMeans(**changes)


def test_the_reach_is_the_farthest_pixel_that_matters(device):
    settings = NLMeans(patch=4, step=1, window=7, neighbours=49, flat=0.0, strength=10.0)
    image = np.rint(noisy(41, 43, sigma=SIGMA)).astype(np.float32)
    before = gd.denoise(image, settings, SIGMA, device=device).image
    changed = image.copy()
    changed[20, 21] += 3
    after = gd.denoise(changed, settings, SIGMA, device=device).image
    rows, columns = np.nonzero(after != before)
    reach = max(settings.reach.y)
    assert max(abs(rows - 20)) == reach == max(abs(columns - 21))


def test_the_longest_lists_on_a_wide_image(device):
    # PoCL kept the lists of a whole work-group on a thread's stack, and died of it.
    image = np.random.default_rng(0).normal(100, SIGMA, (200, 700)).astype(np.float32)
    out = gd.nl_means(image, SIGMA, neighbours=64, device=device)
    # Flat patches average 64 * 64 values, many of them shared.
    assert out.std() < SIGMA / 10
