"""What a single plane proves to be noise, and what stays because it may be texture."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageDraw
from scipy.ndimage import gaussian_filter

import napari_gpu_denoise as gd
from napari_gpu_denoise.noise.patches.spectra import spectra_of
from napari_gpu_denoise.noise.proof import (
    BLOCK,
    REACH,
    prediction_errors,
    smooth_patches_are_white,
)
from reference.data import REASON, data_folder, photograph, pictures

SHAPE = (192, 200)
Y, X = np.indices(SHAPE)
SMOOTH = 100 + 40 * np.sin(X / 19) + 30 * (Y > 90)


def noise(sigma, seed=0, shape=SHAPE):
    return np.random.default_rng(seed).normal(0, sigma, shape)


def texture(seed=1, width=0.7):
    found = gaussian_filter(noise(1, seed), width)
    return found / found.std()


@pytest.mark.skipif(data_folder() is None, reason=REASON)
def test_noise_is_proven_beside_clipped_parts():
    """The smoothest patches are those in which half of the noise is cut off."""
    noisy = photograph(512, 512) + noise(10, shape=(512, 512))
    found = gd.estimate_noise(noisy.clip(0, 255).round().astype(np.uint8))
    assert found.sigma[0] == pytest.approx(10, rel=0.1)


def test_texture_stays_unless_it_is_named():
    image = (SMOOTH + 9 * texture()).astype(np.float32)
    found = gd.estimate_noise(image)
    assert 0 < found.sigma[0] < 3 and found.verdict().endswith("at most slightly correlated")
    (note,) = [note for note in found.notes if getattr(note, "code", "") == "unproven"]
    assert note.values["model"] == "correlated" and "noise='correlated'" in note
    with pytest.warns(gd.errors.UnchangedWarning, match="may be fine texture"):
        kept = gd.bm3d(image, profile="fast")
    assert np.std(kept - image) < 1.5
    removed = gd.bm3d(image, profile="fast", noise="correlated")
    assert np.std(removed - SMOOTH) < 0.5 * np.std(image - SMOOTH)


def test_pixels_are_predicted_by_all_others_of_their_block():
    """As a fit without the pixel predicts it: a fit for each pixel."""
    side = BLOCK + 2 * REACH
    block = (SMOOTH + 4 * texture())[:side, :side]
    centred = block - block.mean()
    around = [(y, x) for y in range(-2, 3) for x in range(-2, 3) if (y, x) > (0, 0)]
    inner = np.s_[REACH : REACH + BLOCK]
    places = list(np.ndindex(BLOCK, BLOCK))

    def at(y, x):
        return np.array([centred[i + REACH + y, j + REACH + x] for i, j in places])

    pairs = np.stack([at(y, x) + at(-y, -x) for y, x in around], axis=1)
    target, errors = centred[inner, inner].ravel(), []
    for k in range(len(target)):
        others = np.arange(len(target)) != k
        fit = np.linalg.lstsq(pairs[others], target[others], rcond=None)[0]
        errors.append(target[k] - pairs[k] @ fit)
    expected = np.sqrt(np.mean(np.square(errors))), 1.4826 * np.median(np.abs(errors))
    assert prediction_errors([block]) == pytest.approx(expected, rel=1e-4)
    white = noise(3, shape=(300, 300)).astype(np.float32)
    assert prediction_errors([white]) == pytest.approx((3, 3), rel=0.05)
    for image, is_white in ((white, True), (texture(3, 0.7), False)):
        spectra = spectra_of(image.astype(np.float32))
        every = np.ones(len(spectra.mean), bool)
        assert smooth_patches_are_white(spectra, every, 3.0) == is_white
        assert not smooth_patches_are_white(spectra, every, 30.0)
    assert np.isnan(prediction_errors([block[:-1]])).all()


@pytest.mark.parametrize("deviation", [0, 1, 15])
def test_letters_on_white_paper_are_no_noise(deviation):
    # Nothing predicts their edges, and paper whose grey levels are cut off varies less than noise.
    page = Image.new("L", SHAPE[::-1], 255)
    for line in range(14):
        text = f"The quick brown fox {line} jumps over the lazy dog"
        ImageDraw.Draw(page).text((4, 4 + 13 * line), text, fill=0)
    seen = (np.asarray(page) + noise(deviation)).round().clip(0, 255).astype(np.uint8)
    assert gd.estimate_noise(seen).sigma[0] <= 1.1 * deviation


@pytest.mark.skipif(data_folder() is None, reason=REASON)
@pytest.mark.parametrize("sigma", [0, 1, 3])
def test_textured_photographs_are_not_made_worse(sigma):
    for name, image in list(pictures("trust").items())[::3]:
        clean = image[:192, :192].astype(np.float32)
        noisy = clean + noise(sigma, shape=clean.shape).astype(np.float32)
        result = gd.bm3d(noisy, profile="fast")
        before, after = (np.sqrt(np.mean((each - clean) ** 2)) for each in (noisy, result))
        assert after < 1.05 * before + 0.3 * (sigma == 0), name
