"""What the panel "Compare" draws: slices of two layers, and curves along a line."""

import dask.array as da
import numpy as np
import pytest
import tifffile
from napari.layers import Image, Labels
from numpy.testing import assert_allclose, assert_array_equal

import napari_gpu_denoise as gd
from _napari.inputs import Sliced
from napari_gpu_denoise._napari.compare.pair import (
    Pair,
    fits,
    luminance,
    partners,
    profile,
    results_in,
)
from napari_gpu_denoise._napari.layers.provenance import METADATA_KEY, first_origin
from napari_gpu_denoise.noise.models import (
    Gaussian,
    PoissonGaussian,
    Rician,
    SignalDependent,
    Speckle,
)

ALL = slice(None)


def made(data, source, **attributes):
    """A result of a layer."""
    record = {"filter": "x", "source": source.name, "source_id": str(source.unique_id)}
    known = ("frame", "axes", "noise")
    record |= {name: attributes.pop(name) for name in known if name in attributes}
    return Image(data, metadata={METADATA_KEY: record}, **attributes)


@pytest.fixture
def stack():
    return np.random.default_rng(0).integers(0, 1000, (4, 6, 8)).astype(np.uint16)


def curtain(pair, index, along, at, line=-1.0):
    """A plane of a pair with a line before a place along one of its axes."""
    out = np.empty([pair.shape[k] for k, each in enumerate(index) if each == ALL], pair.dtype)
    pair.draw_curtain(index, out, along, at, line)
    return out


def test_a_curtain_is_the_image_up_to_the_line(stack):
    before = Image(stack)
    pair = Pair(before, made(stack + 1.5, before))
    assert pair.dtype == np.float32
    expected = np.where(np.arange(8) < 3, stack, stack + 1.5)
    expected[..., 3] = -1
    assert_array_equal(curtain(pair, (2, ALL, ALL), 1, 3), expected[2])
    rows = np.where(np.arange(6)[:, None] < 2, stack, stack + 1.5)
    rows[:, 2] = 7
    assert_array_equal(curtain(pair, (1, ALL, ALL), 0, 2, line=7), rows[1])
    assert_array_equal(curtain(pair, (ALL, 0, ALL), 1, 3), expected[:, 0])
    for at, whole in ((0, stack + 1.5), (8, stack)):
        assert_array_equal(curtain(pair, (0, ALL, ALL), 1, at), whole[0])


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_colours(kind):
    colours = np.random.default_rng(1).integers(0, 256, (6, 8, 3)).astype(np.uint8)
    before = Image(colours, rgb=True)
    result = np.clip(colours.astype(np.int16) - 20, 0, 255).astype(kind)
    pair = Pair(before, made(result, before, rgb=True))
    # napari shows fractions from 0 to 1.
    assert pair.dtype == np.uint8
    out = np.empty_like(colours)
    pair.draw_curtain((ALL, ALL), out, 1, 4, 255)
    assert_array_equal(out[:, 5:], result[:, 5:])
    residual = pair.residual((ALL, ALL))
    assert residual.shape == (6, 8)
    expected = luminance(colours) - luminance(result)
    assert_allclose(residual, expected, atol=1e-4)
    assert np.isclose(luminance(np.array([255, 255, 255])), 255)


def pair_of(image, result, *models, axes="YX"):
    """An image with noise of these models, and its result."""
    looks = {"rgb": True} if axes[-1] == "S" else {"contrast_limits": (0, 1)}
    before = Image(image, **looks)
    told = {"noise": [each.as_dict() for each in models], "axes": axes} if models else {}
    return Pair(before, made(result, before, **told, **looks))


def residual_of(*args, **options):
    pair = pair_of(*args, **options)
    return pair.residual((ALL,) * pair.after.ndim)


def test_a_residual_keeps_small_differences_of_large_numbers():
    large, small = np.full((6, 8), 2**40 + 1, np.int64), np.zeros((6, 8), np.uint8)
    for image, change in ((large, 3), (small, -1)):
        residual = residual_of(image, (image.astype(np.int64) - change).astype(image.dtype))
        assert residual.dtype == np.float32
        assert_array_equal(residual, change)


PHOTONS = PoissonGaussian(0.5, 2.0, 100.0)
CELL = np.where(np.arange(400) < 200, 120.0, 900.0) * np.ones((300, 1))


def noisy(model, clean, seed=0):
    sigma = np.sqrt(model.variance(clean))
    return clean + np.random.default_rng(seed).normal(0, sigma)


def halves(residual):
    """The spread of a residual where the cell is, and where it is not."""
    return np.nanstd(residual[..., 200:]), np.nanstd(residual[..., :200])


@pytest.mark.parametrize("model", [PHOTONS, SignalDependent((100, 1000), (5, 40)), Speckle(8.0)])
def test_a_residual_of_noise_that_grows_shows_no_trace_of_the_cell(model):
    image, result = noisy(model, CELL), CELL.copy()
    # Noise that is the same everywhere stays in grey levels.
    assert not pair_of(image, result, Gaussian(9.0)).in_sigmas
    assert_allclose(residual_of(image, result, Gaussian(9.0)), image - CELL, atol=1e-3)
    image[0, 0] = result[0, 0] = np.nan  # which hides no other pixel
    residual = residual_of(image, result, model)
    assert np.isfinite(residual).sum() == CELL.size - 1
    assert_allclose(halves(residual), 1, rtol=0.02)


def test_a_residual_of_magnitudes_has_no_bias_in_the_background():
    signal = np.where(CELL > 500, 80.0, 0.0)
    real, imaginary = np.random.default_rng(3).normal(0, 10, (2, *signal.shape))
    residual = residual_of(np.hypot(signal + real, imaginary), signal, Rician(10.0))
    assert_allclose(halves(residual), 1, rtol=0.02)
    assert_allclose(np.mean(residual[:, :200]), 0, atol=0.02)


def test_each_channel_of_a_residual_has_its_own_noise():
    models = PHOTONS, PoissonGaussian(4.0, 1.0, 100.0)
    image = np.stack([noisy(model, CELL, seed) for seed, model in enumerate(models)])
    pair = pair_of(image, np.stack([CELL, CELL]), *models, axes="CYX")
    for shown in (*pair.residual((ALL, ALL, ALL)), pair.residual((1, ALL, ALL))):
        assert_allclose(halves(shown), 1, rtol=0.02)
    colours = np.repeat(CELL[..., None], 3, axis=-1)
    residual = residual_of(noisy(models[1], colours), colours, models[1], axes="YXS")
    assert_allclose(halves(residual), 1, rtol=0.02)


def test_a_residual_takes_the_noise_of_the_run_on_its_image():
    before = Image(noisy(PHOTONS, CELL))
    first = made(CELL, before, noise=[PHOTONS.as_dict()])
    second = made(CELL, first, noise=[Gaussian(1.0).as_dict()])
    second.metadata[METADATA_KEY]["history"] = [first.metadata[METADATA_KEY]]
    assert Pair(before, second).in_sigmas
    other = made(CELL, before, noise=[PHOTONS.as_dict()])
    assert not Pair(first, second).in_sigmas
    assert not Pair(first, other).in_sigmas  # two results of one image


def test_a_frame_lies_in_its_stack(stack):
    before = Image(stack)
    after = made(stack[2:3] + 1, before, frame=2, axes="TYX")
    assert fits(before, after)
    assert_array_equal(Pair(before, after).residual((0, ALL, ALL)), -1)
    # Two frames are no pair, and a frame is not what a stack is compared with.
    other = made(stack[1:2], before, frame=1, axes="TYX")
    assert not fits(other, after) and not fits(after, made(stack, before))
    assert fits(made(stack, before), after)


def test_partners_of_a_result(stack):
    source = Image(stack, name="s")
    first, second = made(stack, source, name="a"), made(stack, source, name="b")
    away = [
        Image(stack[:, :5], name="rows"),
        Image(stack[0], name="plane"),
        Image(np.zeros((4, 6, 8, 3), np.uint8), rgb=True, name="rgb"),
        Labels(stack, name="labels"),
        Image(stack, name="temporary", metadata={METADATA_KEY: {"temporary": "curtain"}}),
    ]
    layers = [source, *away, first, second]
    assert partners(second, layers) == [source, first]
    assert results_in(layers) == [second, first]
    assert results_in([first]) == []
    pyramid = Image([stack[0], stack[0, ::2, ::2]], multiscale=True)
    result = made(stack[0] + 1, pyramid)
    assert_array_equal(Pair(pyramid, result).residual((ALL, ALL)), -1)


def test_results_of_files_are_compared_with_the_file_that_their_record_names(viewer, tmp_path):
    """Not with another image of the same size, nor with results under the same name."""
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        tifffile.imwrite(tmp_path / f"{name}.tif", rng.integers(0, 200, (40, 48), dtype=np.uint16))
        for folder, filter in (("less", gd.NLMeans()), ("least", gd.NLMeans(step=4))):
            gd.run_batch(tmp_path / f"{name}.tif", filter, output=tmp_path / folder)
    gd.run_batch(tmp_path / "less" / "b.tif", gd.NLMeans(), output=tmp_path / "twice")
    for folder in ("least", "less", "twice", "."):
        for name in "ab"[folder == "twice" :]:
            viewer.open(tmp_path / folder / f"{name}.tif", plugin="napari-gpu-denoise")
    a_least, b_least, a_less, b_less, b_twice, a, b = viewer.layers
    found = {each: partners(each, viewer.layers)[0] for each in (a_less, b_less, a_least, b_least)}
    assert found == {a_less: a, b_less: b, a_least: a, b_least: b}
    assert first_origin(b_twice, viewer.layers) is b
    assert partners(b_twice, viewer.layers)[0] in (b_less, b_least)


def test_a_plane_at_a_time_is_read_of_what_is_not_in_memory(stack):
    lazy = Sliced(stack)
    before = Image(lazy, contrast_limits=(0, 1000), multiscale=False)
    pair = Pair(before, made(stack + 1, before))
    lazy.read.clear()
    first = curtain(pair, (1, ALL, ALL), 1, 4)
    assert len(lazy.read) == 1
    # No reading where only the line moves, and none for a residual of the same.
    second = curtain(pair, (1, ALL, ALL), 1, 0)
    assert_array_equal(pair.residual((1, ALL, ALL)), -1)
    assert len(lazy.read) == 1 and np.any(first != second)
    pair.forget()
    pair.residual((1, ALL, ALL))
    assert len(lazy.read) == 2

    def read(block):
        assert block.shape[0] <= 1, "computed as a whole"
        return block

    lazy = da.from_array(stack, chunks=(1, 6, 8)).map_blocks(read, meta=stack[:0])
    before = Image(lazy, contrast_limits=(0, 1000))
    assert_array_equal(Pair(before, made(stack, before)).residual((3, ALL, ALL)), 0)


def test_values_along_a_line():
    y, x = np.mgrid[:20, :30]
    before = Image((10 * y + x).astype(np.float32))
    pair = Pair(before, made(before.data, before))

    def along(*ends):
        (curve, _), _ = profile(pair, np.array(ends), (ALL, ALL), (0, 1))
        return curve.y

    found = along([2.0, 3.0], [12.0, 23.0])
    assert_allclose(found, np.linspace(23, 143, len(found)), atol=1e-3)
    assert len(found) >= 2 * np.hypot(10, 20)
    outside = np.array(along([-5.0, -5.0], [-5.0, 40.0]))
    assert_allclose(outside[[0, -1]], [0, 29])


@pytest.mark.parametrize(
    ("attributes", "length", "label"),
    [
        ({}, 6, "Distance (pixels)"),
        ({"scale": (1, 0.5, 0.5), "units": ("s", "um", "um")}, 3, "Distance (µm)"),
        ({"scale": (1, 1, 2), "units": ("s", "mm", "um")}, 12, "Distance (µm)"),
    ],
    ids=["pixels", "micrometres", "two units"],
)
def test_curves_before_and_after_in_physical_units(stack, attributes, length, label):
    before = Image(stack, **attributes)
    pair = Pair(before, made(stack * 2, before, **attributes))
    corners = np.array([[0.0, 2, 1], [0, 2, 7]])
    curves, found = profile(pair, corners, (3, ALL, ALL), (1, 2))
    assert found == label and [each.name for each in curves] == ["before", "after"]
    assert curves[0].x[-1] == pytest.approx(length)
    assert_allclose(curves[0].y[::2], stack[3, 2, 1:8])
    assert_allclose(curves[1].y, 2 * np.array(curves[0].y))
    # With rows and columns exchanged the line stays where it was drawn.
    turned, _ = profile(pair, corners, (3, ALL, ALL), (2, 1))
    assert_allclose(turned[0].y, curves[0].y)
