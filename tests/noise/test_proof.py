"""What a single plane proves to be noise, and what stays because it may be texture."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import napari_gpu_denoise as gd
from napari_gpu_denoise.noise.patches.spectra import read_spectra
from napari_gpu_denoise.noise.proof import BLOCK, REACH, SmoothPatches, prediction_error
from reference.data import REASON, data_folder, photograph, pictures

SHAPE = (192, 200)
Y, X = np.indices(SHAPE)
SMOOTH = 100 + 40 * np.sin(X / 19) + 30 * (Y > 90)


def noise(sigma, seed=0, shape=SHAPE):
    return np.random.default_rng(seed).normal(0, sigma, shape)


def texture(seed=1, width=0.7):
    found = gaussian_filter(noise(1, seed), width)
    return found / found.std()


@pytest.mark.parametrize("sigma", [0.5, 5, 30])
@pytest.mark.parametrize("axes", ["YX", "ZYX", "CYX"])
def test_white_noise_is_proven(sigma, axes):
    shape = SHAPE if axes == "YX" else (3, *SHAPE)
    found = gd.estimate_noise((SMOOTH + noise(sigma, shape=shape)).astype(np.float32), axes)
    assert found.sigma == pytest.approx([sigma] * len(found.sigma), rel=0.05)
    assert not any(getattr(note, "code", "") == "unproven" for note in found.notes)


@pytest.mark.skipif(data_folder() is None, reason=REASON)
def test_noise_is_proven_beside_clipped_parts():
    """The smoothest patches are those in which half of the noise is cut off."""
    noisy = photograph(512, 512) + noise(10, shape=(512, 512))
    found = gd.estimate_noise(noisy.clip(0, 255).round().astype(np.uint8))
    assert found.sigma[0] == pytest.approx(10, rel=0.1)


def test_texture_stays_unless_it_is_named():
    image = (SMOOTH + 9 * texture()).astype(np.float32)
    found = gd.estimate_noise(image)
    assert found.name == "gaussian" and found.sigma[0] < 3
    (note,) = [note for note in found.notes if getattr(note, "code", "") == "unproven"]
    assert note.values["model"] == "correlated" and "noise='correlated'" in note
    with pytest.warns(gd.errors.UnchangedWarning, match="may be fine texture"):
        kept = gd.bm3d(image, profile="fast")
    assert np.std(kept - image) < 1.5
    removed = gd.bm3d(image, profile="fast", noise="correlated")
    assert np.std(removed - SMOOTH) < 0.5 * np.std(image - SMOOTH)


def colours(own, common=0.0):
    """Return an image (y, x, colour) of what each colour has alone, and what all have."""
    return (SMOOTH[..., None] + np.stack(own, axis=-1) + np.asarray(common)[..., None]).astype(
        np.float32
    )


def test_colours_prove_correlated_noise():
    """What they do not share has the spectrum of the noise; of texture they share all."""
    blurred = [8 * texture(seed, 0.8) for seed in range(4)]
    found = gd.estimate_noise(colours(blurred[:3], blurred[3]), "YXS")
    assert found.name == "correlated"
    assert found.sigma == pytest.approx([8 * 2**0.5] * 3, rel=0.12)
    assert found.models[0].shared == pytest.approx(0.5, abs=0.1)
    white = [noise(2, seed) for seed in range(3)]
    found = gd.estimate_noise(colours(white, blurred[3]), "YXS")
    assert found.name == "gaussian"
    assert max(found.sigma) < 5


def test_grey_images_in_colour_prove_nothing_more():
    image = colours([0 * SMOOTH] * 3, 9 * texture())
    found = gd.estimate_noise(image, "YXS")
    assert max(found.sigma) < 3
    assert any(getattr(note, "code", "") == "unproven" for note in found.notes)


@pytest.mark.parametrize("sigma", [0, 3])
def test_claims_far_above_what_cannot_be_predicted(sigma):
    """Objects without noise on a background without any, as of a scanner of today."""
    image = np.where((Y - 90) ** 2 + (X - 90) ** 2 < 50**2, 20 * texture(3, 2), 0)
    found = gd.estimate_noise((image + noise(sigma)).astype(np.float32))
    assert found.sigma[0] == pytest.approx(sigma, abs=0.3)


def test_notes_name_the_channel():
    image = np.stack([SMOOTH + 9 * texture(seed) for seed in (1, 2)]).astype(np.float32)
    found = gd.estimate_noise(image, "CYX")
    codes = [(note, getattr(note, "code", "")) for note in found.notes]
    assert any(code == "unproven" and "channel 1" in note for note, code in codes)
    assert max(found.sigma) < 3


def test_all_of_a_texture_is_kept_and_said():
    """Whatever the smoothest patches hold differs from patch to patch, and can be predicted."""
    image = (SMOOTH + (2 + 8 * np.abs(texture(2, 6))) * texture(3, 0.6)).astype(np.float32)
    found = gd.estimate_noise(image)
    assert found.sigma == (0.0,) and found.verdict().startswith("no noise is proven")
    with pytest.warns(gd.errors.UnchangedWarning, match="nothing is removed"):
        np.testing.assert_array_equal(gd.bm3d(image, profile="fast"), image)


def test_white_patches_look_white():
    spectra = read_spectra([noise(7, shape=(256, 256)).astype(np.float32)])
    found = SmoothPatches.of(spectra, np.ones(len(spectra.mean), bool))
    assert found.sigma == pytest.approx(7, rel=0.06)
    assert found.flatness == pytest.approx(1, abs=0.15)
    assert found.dispersion == pytest.approx(1, abs=0.3)
    assert found.prove(7.0) and not found.prove(20.0)


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
    assert prediction_error([block]) == pytest.approx(np.sqrt(np.mean(np.square(errors))), rel=1e-4)
    assert prediction_error([noise(3, shape=(300, 300))]) == pytest.approx(3, rel=0.05)
    assert np.isnan(prediction_error([block[:-1]]))


@pytest.mark.skipif(data_folder() is None, reason=REASON)
@pytest.mark.parametrize("sigma", [0, 1, 3])
def test_textured_photographs_are_not_made_worse(sigma):
    for name, image in list(pictures("trust").items())[::3]:
        clean = image[:192, :192].astype(np.float32)
        noisy = clean + noise(sigma, shape=clean.shape).astype(np.float32)
        result = gd.bm3d(noisy, profile="fast")
        before, after = (np.sqrt(np.mean((each - clean) ** 2)) for each in (noisy, result))
        assert after < 1.05 * before + 0.3 * (sigma == 0), name
