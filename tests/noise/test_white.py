"""White noise of planes, and one sigma of an image."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

from napari_gpu_denoise import NoiseEstimate, estimate_noise
from napari_gpu_denoise.errors import AxesError, ImageError, NonFiniteError
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


def cells(ny=256, nx=256, background=20.0):
    """Bright discs of several levels with soft edges, on a dark ground: a sixth of the picture."""
    y, x = np.mgrid[:ny, :nx]
    picture = np.full((ny, nx), background)
    for i, (cy, cx) in enumerate(np.random.default_rng(5).uniform(20, 236, (18, 2))):
        picture += (60 + 25 * i) / (1 + np.exp((np.hypot(y - cy, x - cx) - 14) / 2))
    return picture


def photons(picture, gain=1.0, read=0.0, seed=0):
    """Return a picture with photon and read noise, and the overall deviation of that noise."""
    rng = np.random.default_rng(seed)
    noisy = gain * rng.poisson(picture / gain) + rng.normal(0, read, picture.shape)
    return noisy, np.sqrt(np.mean(gain * picture + read**2))


def gaussian(image, axes=None) -> NoiseEstimate:
    return estimate_noise(image, axes, "gaussian")


def one(image, axes=None):
    (sigma,) = gaussian(image, axes).sigma
    return sigma


@pytest.mark.parametrize("sigma", [0.5, 5, 50])
def test_known_noise_on_flat_ground(sigma):
    assert one(100 + noise((256, 256), sigma)) == pytest.approx(sigma, rel=0.03)


@pytest.mark.parametrize("sigma", [5, 10, 50])
def test_texture_is_not_read_as_noise(sigma):
    picture = scene() + noise((256, 256), sigma)
    assert one(picture) == pytest.approx(sigma, rel=0.04)
    # The test means something: reading all of the picture alike would fail it at low noise.
    if sigma == 5:
        fine = picture[1:, 1:] - picture[1:, :-1] - picture[:-1, 1:] + picture[:-1, :-1]
        assert np.median(np.abs(fine)) / 0.6745 / 2 > 1.5 * sigma


def test_standard_error_predicts_the_spread():
    picture = scene(128, 128)
    found = [gaussian(picture + noise(picture.shape, 10, seed)) for seed in range(30)]
    spread = np.std([each.sigma[0] for each in found], ddof=1)
    predicted = np.sqrt(np.mean([each.standard_error[0] ** 2 for each in found]))
    assert 0.6 < predicted / spread < 1.7


@pytest.mark.parametrize("value", [0, 117, 0.1, 1e15 + 0.125])
@pytest.mark.parametrize("dtype", ["u1", ">u2", "i4", "u8", "f4", "f8"])
def test_constant_image_has_no_noise(dtype, value):
    result = gaussian(np.full((40, 50), value).astype(dtype))
    assert (result.sigma, result.standard_error) == ((0.0,), (0.0,))


def test_clean_pictures_give_little():
    y, x = np.mgrid[:200, :200]
    assert one(0.5 * y + x) < 1e-6
    assert one(100 + 50 * np.sin(x / 9) * np.cos(y / 11)) < 0.01
    disc = 20 + 150 * np.clip(60 - np.hypot(y - 100, x - 90), 0, 1)
    assert one(disc.astype(np.uint8)) == 0
    assert one(disc + 30 * (x > 150)) < 1e-5  # rounding to single precision


@pytest.mark.parametrize("dtype", ["u1", ">i2", "u2", "i4", "u8", "f2", "f4"])
def test_dtypes(dtype):
    image = (100 + noise((200, 200))).astype(dtype)
    assert one(image) == pytest.approx(10, rel=0.03)


def test_input_is_not_modified():
    image = (100 + noise((60, 60))).clip(0, 120)
    image[3, 4] = np.nan
    image.flags.writeable = False
    before = image.tobytes()
    gaussian(image)
    assert image.tobytes() == before


@pytest.mark.parametrize("offset", [1e6, -1e9, 1e12])
def test_large_offsets(offset):
    image = noise((200, 200), 20.0)
    assert one(image + offset) == pytest.approx(one(image), 1e-3)
    whole = np.rint(image).astype(np.int64)
    assert one(whole + int(offset)) == pytest.approx(one(whole), 1e-6)


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e300])
def test_extreme_scales(scale):
    image = noise((200, 200), 1.0)
    # Beyond what patches can be of, differences of neighbours tell.
    rel = 1e-5 if 1e-60 < scale < 1e60 else 0.03
    assert one(image * scale) == pytest.approx(scale * one(image), rel)


def test_whole_range_of_64_bits():
    image = np.random.default_rng(0).integers(0, 2**64, (100, 100), np.uint64)
    assert one(image) == pytest.approx(2**64 / 12**0.5, rel=0.03)


def test_rounding_counts_as_noise():
    image = np.rint(100 + noise((300, 300), 1.0)).astype(np.uint8)
    assert one(image) == pytest.approx((1 + 1 / 12) ** 0.5, rel=0.03)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("step", [3, 9, 50])
def test_nonfinite_pixels_are_left_out(bad, step):
    image = 100 + noise((200, 200))
    image[::step, ::step] = bad
    assert one(image) == pytest.approx(10, rel=0.06)


def test_nothing_finite():
    image = noise((2, 40, 40))
    image[1] = np.nan
    for each, axes in ((image[1], "YX"), (image, "CYX")):
        with pytest.raises(NonFiniteError, match="give the noise"):
            gaussian(each, axes)
    assert one(image, "ZYX") == pytest.approx(10, rel=0.1)


def test_saturated_highlights():
    """An overexposed half, and a dark one whose noise is cut at zero."""
    y, _ = np.mgrid[:300, :300]
    image = np.select([y < 100, y < 200], [5.0, 120.0], 260.0) + noise((300, 300), 12)
    clipped = np.rint(image).clip(0, 255)
    for dtype in (np.uint8, np.float32):
        assert one(clipped.astype(dtype)) == pytest.approx(12, rel=0.05)
    _, x = np.mgrid[:200, :200]
    image = np.where(x > 80, 4080, 2000) + noise((200, 200), 50)  # a camera of 12 bits
    assert one(np.rint(image).clip(0, 4095).astype(np.uint16)) == pytest.approx(50, rel=0.05)


@pytest.mark.parametrize("fill", [0, -1000])
def test_filled_background(fill):
    """A masked head scan: most pixels hold one value and no noise."""
    y, x = np.mgrid[:200, :200]
    inside = (y - 100) ** 2 + (x - 90) ** 2 < 1200
    image = np.where(inside, 300 + noise((200, 200)), fill)
    assert one(image) == pytest.approx(10, rel=0.05)
    assert one(image.astype(np.int16)) == pytest.approx(10, rel=0.05)


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (3, 1), (2, 2), (3, 3), (1, 9), (7, 5)])
def test_smaller_than_a_patch(shape):
    found = [one(50 + noise(shape, 5, seed)) for seed in range(400)]
    wanted = 5 if np.prod(shape) > 1 else 0
    assert np.sqrt(np.mean(np.square(found))) == pytest.approx(wanted, rel=0.12)
    assert one(np.full(shape, 7.3)) == 0


@pytest.mark.parametrize("shape", [(1, 5000), (5000, 1), (3, 4000), (9, 2000)])
def test_thin_images(shape):
    assert one(noise(shape)) == pytest.approx(10, rel=0.08)


@pytest.mark.parametrize("axes", ["TCYX", "TSYX"])
def test_one_value_per_channel(axes):
    stack = np.array([2.0, 4.0, 8.0])[:, None, None] * noise((5, 3, 100, 100), 1.0)
    result = gaussian(stack, axes)
    assert result.sigma == pytest.approx((2, 4, 8), rel=0.03)
    assert len(result.standard_error) == 3
    last = gaussian(np.moveaxis(stack, 1, -1), axes.replace(axes[1], "") + axes[1])
    assert last.sigma == result.sigma


def test_axes_without_channels_share_one_value():
    stack = np.array([1.0, 2.0, 30.0])[:, None, None] * noise((3, 100, 100), 1.0)
    result = gaussian(stack, "ZYX")
    assert result.sigma == pytest.approx((2,), rel=0.05), "the median over the planes"
    assert result.standard_error[0] > 1, "planes that differ make it uncertain"
    assert result.planes == 3
    assert one(noise((40, 5, 60)), "XTY") == pytest.approx(10, rel=0.1)


def test_blank_planes_are_left_out():
    stack = noise((8, 64, 64))
    stack[3:] = 0
    assert one(stack) == pytest.approx(10, rel=0.05)
    assert one(np.zeros((8, 64, 64))) == 0


def test_a_large_stack_is_sampled():
    """Few planes are read, evenly spread, and never the same plane of each volume only."""
    read = set()

    def plane(block_info=None):
        t, z = block_info[None]["chunk-location"][:2]
        read.add((t, z))
        return noise((1, 1, 64, 64), seed=100 * t + z)

    chunks = ((1,) * 10, (1,) * 24, (64,), (64,))
    stack = da.map_blocks(plane, chunks=chunks, dtype=float, meta=np.empty((0,) * 4))
    result = gaussian(stack, "TZYX")
    assert result.planes == len(read) < 60
    assert result.sigma[0] == pytest.approx(10, rel=0.05)
    assert {(2, 3), (2, 21), (7, 9), (7, 15)} <= read


@pytest.mark.parametrize(
    ("image", "axes", "error"),
    [
        (np.zeros((0, 5)), None, ImageError),
        (np.zeros((5, 5), bool), None, ImageError),
        (np.zeros((5, 5), complex), None, ImageError),
        (np.zeros((5, 5)), "TYX", AxesError),
        (np.zeros(5), None, AxesError),
    ],
)
def test_what_is_no_image(image, axes, error):
    with pytest.raises(error):
        gaussian(image, axes)


@pytest.mark.parametrize("gain", [0.3, 3])
@pytest.mark.parametrize("read", [0, 3])
def test_photon_noise(gain, read):
    """One sigma is the root of the mean variance, and the estimate says what that hides."""
    _, x = np.mgrid[:256, :256]
    for picture in (cells(), 20 + 1.5 * x + 10 * np.sin(x / 9)):
        image, overall = photons(picture, gain, read)
        result = gaussian(image)
        assert result.sigma == pytest.approx((overall,), rel=0.1)
        assert "brightness" in result.method
        (note,) = (each for each in result.notes if "grows with brightness" in each)
        dark, bright = (float(part.split()[0]) for part in note.split(" from ")[1].split(" to "))
        low, high, top = np.sqrt(gain * np.quantile(picture, [0.04, 0.9, 1]) + read**2)
        assert dark == pytest.approx(low, rel=0.15)
        assert 0.95 * high < bright < 1.05 * top


@pytest.mark.parametrize("sigma", [1, 5, 30])
def test_texture_is_no_trend(sigma):
    """The brighter, the more texture; but the noise is the same everywhere."""
    y, x = np.mgrid[:256, :256]
    grass = np.sin(2.1 * x) * np.sin(1.7 * y) + np.sin(0.9 * x + 1.3 * y)
    for picture in (scene(), 40 + 0.6 * x + 0.08 * x * grass, cells()):
        result = gaussian(picture + noise(picture.shape, sigma))
        assert "brightness" not in result.method


def test_noise_cut_at_zero_is_no_trend():
    _, x = np.mgrid[:300, :300]
    image = np.rint(0.5 * x + noise((300, 300), 12)).clip(0, 255)
    for dtype in (np.uint8, np.float32):
        result = gaussian(image.astype(dtype))
        assert "brightness" not in result.method
        assert result.sigma == pytest.approx((12,), rel=0.05)


@pytest.mark.skipif(data_folder() is None, reason=REASON)
def test_photographs():
    """The accuracy the documentation claims, on the 68 pictures of the Berkeley set."""
    clean = [picture.astype(np.float32) for picture in pictures("bsd68").values()]
    assert len(clean) == 68
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
