"""Sigma: which shapes are taken, what they mean, and how large they may be."""

from __future__ import annotations

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import SigmaError
from napari_gpu_denoise.run.noise import Sigma, limit_sigma, resolve_sigma
from scenes import noisy

LENGTHS = {"T": 4, "Z": 3, "C": 2, "S": 3, "Y": 5, "X": 7, ".": 6, "Q": 1}


def image_of(axes: str) -> np.ndarray:
    return np.ones([LENGTHS[a] for a in axes])


def spread(sigma, axes: str) -> np.ndarray:
    """Return sigma of every pixel of an image with these axes."""
    image = image_of(axes)
    return np.broadcast_to(resolve_sigma(sigma, image, axes).array, image.shape)


@pytest.mark.parametrize(
    ("axes", "along"),
    [
        # One number a channel, a plane along the only other axis, or a plane along all of them.
        *(("CYX", "C"), ("YXC", "C"), ("TCYX", "C"), ("YCTX", "C"), ("YXS", "S"), ("QCYX", "C")),
        *(("TYX", "T"), ("YTX", "T"), (".YX", "."), ("QTYX", "T"), ("YXTQ", "T")),
        *(("TZYX", "TZ"), ("ZYTX", "ZT"), ("TCYX", "TC"), ("XYTC", "TC"), ("TZCYX", "TZC")),
        # A map, whatever the order of axes.
        *((axes, "YX") for axes in ("YX", "XY", "TYX", "YXC", "XTY", "ZTCXY")),
    ],
)
def test_numbers_lie_along_the_axes_that_their_shape_tells(axes, along):
    shape = [LENGTHS[a] for a in along]
    values = np.arange(float(np.prod(shape))).reshape(shape)
    found = resolve_sigma(values, image_of(axes), axes)
    turned = np.transpose(values, [along.index(a) for a in axes if a in along])
    expected = turned.reshape([LENGTHS[a] if a in along else 1 for a in axes])
    np.testing.assert_array_equal(
        spread(values, axes), np.broadcast_to(expected, image_of(axes).shape)
    )
    if along == "YX":
        assert found.values == pytest.approx((np.sqrt(np.mean(values**2)),))
        assert found.source == "given as a map from 0 to 34"
        assert max(spread(values, axes).strides) <= values.itemsize * 7  # planes are not copied
        # What was given may change afterwards.
        values[:] = 99
        assert found.array.max() == 34
    else:
        assert found.values == tuple(values.ravel())
        assert found.source == "given"


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_the_mean_of_a_map_does_not_overflow(scale):
    values = scale * np.arange(35.0).reshape(5, 7)
    expected = scale * np.sqrt(np.mean(np.arange(35.0) ** 2))
    assert resolve_sigma(values, image_of("YX"), "YX").values == pytest.approx((expected,))
    assert resolve_sigma(0 * values, image_of("YX"), "YX").values == (0.0,)


@pytest.mark.parametrize(
    ("axes", "shape"),
    [
        ("YX", (5,)),
        ("YX", (7, 5)),
        ("CYX", (3,)),
        ("CYX", (0,)),
        ("CYX", (2, 2)),
        ("TCYX", (4,)),  # one a channel, where there are channels
        ("TZYX", (4,)),
        ("TZYX", (3, 4)),
        ("TZYX", (12,)),
        ("TYX", (4, 5, 7)),
        ("TYX", (4, 5, 1)),
        ("TYX", (2, 1, 1)),
        ("TYX", (1, 1, 5, 7)),
    ],
)
def test_other_shapes_are_refused(axes, shape):
    with pytest.raises(SigmaError, match="give one number"):
        resolve_sigma(np.ones(shape), image_of(axes), axes)


def test_a_refusal_says_what_would_fit():
    with pytest.raises(SigmaError, match=r"3 values .*'CYX'.*each channel.*\(5, 7\)"):
        resolve_sigma([1, 2, 3], image_of("CYX"), "CYX")
    with pytest.raises(
        SigmaError, match=r"shape \(2, 2\).*\(4, 3\) for one value per plane.*\(5, 7\)"
    ):
        resolve_sigma(np.ones((2, 2)), image_of("TZYX"), "TZYX")
    with pytest.raises(SigmaError, match="is not a number"):
        resolve_sigma("much", image_of("YX"), "YX")


def test_a_shape_that_may_mean_two_things_is_refused_and_the_way_out_works():
    image, values = np.ones((4, 5, 4, 5)), np.arange(1.0, 21).reshape(4, 5)
    with pytest.raises(SigmaError, match=r"each plane or a map.*\(4, 5, 1, 1\).*\(1, 1, 4, 5\)"):
        resolve_sigma(values, image, "TZYX")
    planes = resolve_sigma(values[..., None, None], image, "TZYX")
    assert planes.values == tuple(values.ravel())
    plain = resolve_sigma(values[None, None], image, "TZYX")
    assert plain.source.startswith("given as a map")
    # As many planes as rows is no reason to ask.
    assert resolve_sigma([1, 2, 3, 4, 5], np.ones((5, 5, 5)), "TYX").values == (1, 2, 3, 4, 5)


@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf])
def test_every_value_is_checked(wrong):
    for shape, axes in (((5, 7), "TYX"), ((4,), "TYX"), ((4, 3), "TZYX"), ((), "YX")):
        values = np.ones(shape)
        values[(-1,) * len(shape)] = wrong
        with pytest.raises(SigmaError, match=f"sigma={wrong:g} is not a standard deviation"):
            resolve_sigma(values, image_of(axes), axes)


def test_an_estimate_names_its_method():
    image = noisy(2, 64, 64)
    image[1] += noisy(64, 64, sigma=40, seed=1) - 110
    found = resolve_sigma(None, image, "CYX")
    assert found.values[0] < found.values[1]
    np.testing.assert_array_equal(found.array, np.reshape(found.values, (2, 1, 1)))
    assert found.source == f"estimated: {gd.estimate_noise(image, 'CYX').method}"
    assert found.notes == ()
    assert resolve_sigma(None, image, "TYX").array.shape == (1, 1, 1)


def test_sigma_is_cut_off_far_above_the_range_of_the_image():
    image = np.zeros((300, 400), np.float32)
    sigma = np.array([[20.0]])
    assert clamped(sigma, image) is sigma  # nothing to measure it by
    image[1, 1] = 2  # a step through the image misses it
    np.testing.assert_array_equal(clamped(sigma, image), sigma)
    np.testing.assert_array_equal(clamped(100 * sigma, image), [[64.0]])
    spread = np.linspace(0, 100, 400)[None, :]
    np.testing.assert_array_equal(clamped(spread, image), np.minimum(spread, 64))
    whole = np.array([[0, 255]], np.uint8).repeat(100, axis=0)
    assert clamped(sigma, whole) is sigma


def test_sigma_beyond_the_range_of_the_image_is_told(device):
    image = np.random.default_rng(0).normal(100, 10, (40, 44)).astype(np.uint16)
    with pytest.warns(UserWarning, match="sigma, 1e.09, is more than the range of the image, "):
        gd.nl_means(image, sigma=1e9, device=device)
    span = float(np.ptp(image))
    for sigma, told in ((10.0, False), (span, False), (1.01 * span, True)):
        notes = gd.denoise(image, gd.NLMeans(), sigma, device=device).record.notes
        assert any(getattr(note, "code", "") == "range" for note in notes) == told


def clamped(array: np.ndarray, image: np.ndarray) -> np.ndarray:
    return limit_sigma(Sigma(array, (), ""), image).array
