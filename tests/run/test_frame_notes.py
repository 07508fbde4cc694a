"""What is noted of a frame before it is filtered."""

from __future__ import annotations

import numpy as np
import pytest

from napari_gpu_denoise.image.flicker import block_pixels
from napari_gpu_denoise.image.levels import Levels
from napari_gpu_denoise.protocol.plan import FrameNote
from napari_gpu_denoise.run.flow.frame_flow import note_frame
from scenes import noisy

SIGMA = np.array([12.0])


@pytest.mark.parametrize("sigma", [(0.0,), (0.0, 0.0), (0.0, 3.0)])
def test_a_frame_without_any_noise_is_empty(sigma):
    assert FrameNote(np.array(sigma)).empty == (not any(sigma))


@pytest.mark.parametrize("level", [0, 117.25, np.nan])
@pytest.mark.parametrize("brightness", [False, True])
def test_a_dropped_frame_is_empty_whatever_its_level(level, brightness):
    planes = [np.full((1, 40, 44), level), np.full((1, 40, 44), 3.0)]
    note = note_frame(planes, np.array([12.0, 9.0]), Levels(0, 1.0), brightness=brightness)
    # NaN equals nothing, itself included.
    assert note.empty == (level == level)
    if note.empty:
        assert note.means is None and note.sigma.shape == (2,)


@pytest.mark.parametrize("place", [(0, 0), (17, 23), (39, 43), (8, 9)])
def test_one_pixel_that_differs_makes_a_frame_of_it(place):
    plane = np.full((1, 40, 44), 7, np.uint8)
    plane[0][place] += 1
    assert not note_frame([plane], SIGMA, Levels(0, 1.0), brightness=False).empty
    # So does another channel, be the first one dropped.
    planes = [np.full((1, 40, 44), 7, np.uint8), plane]
    assert not note_frame(planes, np.array([12.0, 9.0]), Levels(0, 1.0), brightness=False).empty


def test_means_are_those_of_the_blocks_in_the_units_of_the_pixels():
    planes = [noisy(1, 64, 96), noisy(1, 64, 96, seed=1) + 50]
    sigma, levels = np.array([12.0, 9.0]), Levels(100, 4.0)
    note = note_frame(planes, sigma, levels, brightness=True)
    np.testing.assert_array_equal(note.sigma, sigma)
    assert note.block_pixels == block_pixels((64, 96))
    assert note.means.shape[0] == 2
    # Blocks of one size: their means have the mean of the frame.
    for means, plane in zip(note.means, planes, strict=True):
        np.testing.assert_allclose(means.mean(), (plane.mean() - 100) / 4, rtol=1e-5)
    plain = note_frame(planes, sigma, Levels(0, 1.0), brightness=True)
    np.testing.assert_allclose(note.means, (plain.means - 100) / 4)


def test_brightness_is_compared_if_asked_for_and_of_planes_alone():
    assert note_frame([noisy(1, 64, 64)], SIGMA, Levels(0, 1.0), brightness=False).means is None
    # A run may see some of the slices of a volume only.
    volume, sigma = noisy(3, 64, 64), np.array([12.0, 0.0, 9.0])
    note = note_frame([volume], sigma, Levels(0, 1.0), brightness=True)
    assert note.means is None
    np.testing.assert_array_equal(note.sigma, sigma)
    note = note_frame([np.full((3, 64, 64), 7.0)], sigma, Levels(0, 1.0), brightness=True)
    assert not note.empty


def test_whole_volumes_are_compared_and_may_be_empty():
    volume = noisy(3, 64, 64)
    levels, sigma = Levels(0, 1.0), np.full(3, 12.0)
    note = note_frame([volume], sigma, levels, brightness=True, whole=True)
    planes = [note_frame([plane[None]], SIGMA, levels, brightness=True) for plane in volume]
    np.testing.assert_allclose(note.means, np.mean([plane.means for plane in planes], axis=0))
    assert note.block_pixels == 3 * planes[0].block_pixels
    constant = np.full((3, 64, 64), 7.0)
    assert note_frame([constant], sigma, levels, brightness=True, whole=True).empty


@pytest.mark.parametrize("brightness", [False, True])
def test_frames_are_told_apart_by_their_noise(brightness):
    def digest(*planes):
        sigma = np.full(len(planes), 12.0)
        return note_frame(list(planes), sigma, Levels(0, 1.0), brightness=brightness).digest

    plane, other = noisy(1, 200, 70), noisy(1, 200, 70, seed=1)
    assert digest(plane) == digest(plane.copy()) is not None
    assert len({digest(plane), digest(other), digest(plane, other), digest(other, plane)}) == 4
    padded = np.zeros((1, 200, 70), np.float32)
    padded[0, 1, 5] = 3.0  # what tells frames apart is not read
    assert digest(padded) is None
