"""Results that are nearly the image say so."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import UnchangedWarning
from napari_gpu_denoise.run.record import change_note
from scenes import Stored, noisy

SETTINGS = gd.NLMeans(window=5, neighbours=4)


def notes(record) -> list[str]:
    return [note for note in record.notes if "nearly the same as the image" in note]


@pytest.mark.parametrize("axes", ["YX", "TYX", "YXS"])
@pytest.mark.parametrize("lazy", [False, True])
def test_a_sigma_far_too_small_is_noted(device, axes, lazy):
    shape = {"YX": (40, 50), "TYX": (3, 40, 50), "YXS": (40, 50, 3)}[axes]
    image = noisy(*shape)
    if axes == "TYX":
        image[2] /= 10  # the frame in the middle is looked at
    given, out = (Stored(image), np.empty_like(image)) if lazy else (image, None)
    options = {"axes": axes, "out": out, "device": device}
    (note,) = notes(gd.denoise(given, SETTINGS, 0.2, **options).record)
    assert "0% less" in note and "noise='correlated'" in note
    assert not notes(gd.denoise(given, SETTINGS, 20, **options).record)
    # A map of what a filter found in the image is no result to compare, however it varies.
    steps = np.where(image > 165, np.float32(0.5), np.float32(0))
    directions = {"filter": gd.Isoline(show="directions"), "sigma": 0.2, "axes": axes}
    assert not notes(gd.denoise(steps, **directions, device=device).record)


def test_only_measured_noise_is_warned_of(device):
    blank = np.full((40, 50), 7, np.uint8)
    options = {"settings": SETTINGS, "device": device}
    with pytest.warns(UnchangedWarning, match="sigma is 0"):
        gd.nl_means(blank, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gd.nl_means(blank, 0, **options)
        gd.nl_means(noisy(40, 50), 0.2, **options)
        gd.nl_means(noisy(40, 50), **options)


def test_share_of_the_variation():
    image = np.random.default_rng(0).normal(0, 10, (3, 60, 70))
    assert change_note(image, image * 0.9, "TYX") is None
    assert "3% less" in change_note(image, image * 0.97, "TYX")
    assert "0% less" in change_note(image, image * 1.2, "CYX")
    assert change_note(np.zeros((5, 5)), np.zeros((5, 5)), "YX") is None
    assert change_note(np.zeros((5, 1)), np.zeros((5, 1)), "YX") is None
    holes = np.where(image > 20, np.nan, image)
    assert "0% less" in change_note(holes, holes, "TYX")
    steps = np.kron(np.eye(8), np.ones((8, 8)))
    assert "0% less" in change_note(steps, steps, "YX")
