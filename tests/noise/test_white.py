"""White noise of planes, and one sigma of an image."""

from __future__ import annotations

import numpy as np
import pytest

from napari_gpu_denoise import NoiseEstimate, estimate_noise
from napari_gpu_denoise.errors import NonFiniteError
from reference.data import REASON, data_folder, microscopy_pairs, pictures


def noise(shape, sigma=10.0, seed=0):
    return np.random.default_rng(seed).normal(0, sigma, shape)


def scene(ny=256, nx=256):
    """Smooth shading, sharp edges and fine texture, each over a part of the picture."""
    y, x = np.mgrid[:ny, :nx]
    picture = 90 + 40 * np.sin(x / 40) + 30 * np.cos(y / 25)
    picture[(y - 70) ** 2 + (x - 80) ** 2 < 2500] += 50
    stripes = 25 * np.sin(2.1 * x) * np.sin(1.7 * y)
    return picture + np.where(y > ny // 2, stripes, 0)


def gaussian(image, axes=None) -> NoiseEstimate:
    return estimate_noise(image, axes, "gaussian")


def one(image, axes=None):
    (sigma,) = gaussian(image, axes).sigma
    return sigma


def filled(fill):
    """A masked head scan: most pixels hold one value and no noise."""
    y, x = np.mgrid[:200, :200]
    inside = (y - 100) ** 2 + (x - 90) ** 2 < 1200
    return np.where(inside, 300 + noise((200, 200)), fill)


def overexposed(low, high, sigma, top):
    """Areas whose noise is cut at 0 and at a highest value."""
    y, _ = np.mgrid[:300, :300]
    image = np.select([y < 100, y < 200], [low, (low + high) / 2], high) + noise(y.shape, sigma)
    return np.rint(image).clip(0, top)


def with_gaps(bad, step):
    image = 100 + noise((200, 200))
    image[::step, ::step] = bad
    return image


RECIPES = {  # image, sigma, relative error
    **{f"flat, {sigma}": (100 + noise((256, 256), sigma), sigma, 0.03) for sigma in (0.5, 5, 50)},
    **{f"scene, {sigma}": (scene() + noise((256, 256), sigma), sigma, 0.04) for sigma in (5, 50)},
    **{
        dtype: ((100 + noise((200, 200))).astype(dtype), 10, 0.03)
        for dtype in ("u1", ">i2", "u2", "i4", "u8", "f2", "f4")
    },
    **{f"thin {shape}": (noise(shape), 10, 0.08) for shape in ((1, 5000), (5000, 1), (3, 4000))},
    "rounded": (np.rint(100 + noise((300, 300), 1.0)).astype("u1"), (1 + 1 / 12) ** 0.5, 0.03),
    "64 bits": (
        np.random.default_rng(0).integers(0, 2**64, (100, 100), np.uint64),
        2**64 / 12**0.5,
        0.03,
    ),
    **{f"{b} {k}": (with_gaps(b, k), 10, 0.06) for b in (np.nan, np.inf, -np.inf) for k in (3, 50)},
    "overexposed, 8 bits": (overexposed(5, 260, 12, 255).astype("u1"), 12, 0.05),
    "overexposed, floats": (overexposed(5, 260, 12, 255).astype("f4"), 12, 0.05),
    "overexposed, 12 bits": (overexposed(2000, 4080, 50, 4095).astype("u2"), 50, 0.05),
    **{f"filled {fill}": (filled(fill), 10, 0.05) for fill in (0, -1000)},
    **{f"filled {fill}, integers": (filled(fill).astype("i2"), 10, 0.05) for fill in (0, -1000)},
    **{f"offset {k}": (noise((200, 200)) + k, 10, 0.03) for k in (1e6, -1e9, 1e12)},
    "far integers": (np.rint(noise((200, 200))).astype("i8") + 10**12, 10, 0.03),
    # Beyond what patches can be of, differences of neighbours tell.
    **{f"scale {k}": (k * noise((200, 200), 1), k, 0.03) for k in (1e-300, 1e-30, 1e30, 1e300)},
}


@pytest.mark.parametrize("name", RECIPES)
def test_known_noise(name):
    image, sigma, error = RECIPES[name]
    assert one(image) == pytest.approx(sigma, rel=error)


def test_standard_error_predicts_the_spread():
    picture = scene(128, 128)
    found = [gaussian(picture + noise(picture.shape, 10, seed)) for seed in range(30)]
    spread = np.std([each.sigma[0] for each in found], ddof=1)
    predicted = np.sqrt(np.mean([each.standard_error[0] ** 2 for each in found]))
    assert 0.6 < predicted / spread < 1.7


def test_clean_pictures_give_little():
    y, x = np.mgrid[:200, :200]
    assert one(0.5 * y + x) < 1e-6
    assert one(100 + 50 * np.sin(x / 9) * np.cos(y / 11)) < 0.01
    disc = 20 + 150 * np.clip(60 - np.hypot(y - 100, x - 90), 0, 1)
    assert one(disc.astype(np.uint8)) == 0
    assert one(disc + 30 * (x > 150)) < 1e-5  # rounding to single precision


def test_nothing_finite():
    image = noise((2, 40, 40))
    image[1] = np.nan
    for each, axes in ((image[1], "YX"), (image, "CYX")):
        with pytest.raises(NonFiniteError, match="give the noise"):
            gaussian(each, axes)
    assert one(image, "ZYX") == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (3, 1), (2, 2), (3, 3), (1, 9), (7, 5)])
def test_smaller_than_a_patch(shape):
    found = [one(50 + noise(shape, 5, seed)) for seed in range(100)]
    wanted = 5 if np.prod(shape) > 1 else 0
    assert np.sqrt(np.mean(np.square(found))) == pytest.approx(wanted, rel=0.12)
    assert one(np.full(shape, 7.3)) == 0
    # Blank planes tell nothing.
    stack = np.stack([np.zeros(shape), np.zeros(shape), noise(shape, 5)])
    assert one(stack, "TYX") == pytest.approx(one(stack[2]))


@pytest.mark.parametrize("axes", ["TCYX", "TSYX"])
def test_one_value_per_channel(axes):
    stack = np.array([2.0, 4.0, 8.0])[:, None, None] * noise((5, 3, 100, 100), 1.0)
    result = gaussian(stack, axes)
    assert result.sigma == pytest.approx((2, 4, 8), rel=0.03)
    assert len(result.standard_error) == 3
    last = gaussian(np.moveaxis(stack, 1, -1), axes.replace(axes[1], "") + axes[1])
    assert last.sigma == result.sigma


@pytest.mark.skipif(data_folder() is None, reason=REASON)
def test_photographs():
    """The accuracy the documentation claims, on every fourth picture of the Berkeley set."""
    clean = [picture.astype(np.float32) for picture in [*pictures("bsd68").values()][::4]]
    for sigma in (5, 20, 50):
        noisy = [picture + noise(picture.shape, sigma, i) for i, picture in enumerate(clean)]
        errors = np.abs([one(picture) / sigma - 1 for picture in noisy])
        assert errors.mean() <= 0.03, sigma
        assert errors.max() <= (0.25 if sigma < 10 else 0.15), sigma


@pytest.mark.skipif(data_folder() is None, reason=REASON)
def test_fluorescence():
    """Measured images: the noise is known from the mean of 400."""
    for noisy, mean in microscopy_pairs().values():
        slope, offset = np.polyfit(mean.ravel(), noisy.ravel(), 1)
        overall = np.std(noisy - slope * mean - offset)
        for dtype in (np.uint8, np.float32):
            assert gaussian(noisy.astype(dtype)).sigma == pytest.approx((overall,), rel=0.1)
