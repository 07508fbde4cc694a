"""What every filter promises, checked for each entry of FILTERS.

Conversion of dtypes, memory layouts and orders of axes happen before a filter sees an image. Their
full lists are checked with the first filter, and cases that differ in kind with each.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading

import dask.array as da
import nibabel
import numpy as np
import pytest
import tifffile

import napari_gpu_denoise as gd
from flows import Remembered
from napari_gpu_denoise import errors
from napari_gpu_denoise.files import formats
from napari_gpu_denoise.files.resuming import FileArray
from napari_gpu_denoise.files.tiff import reading
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.protocol.settings import setting_fields
from napari_gpu_denoise.run.denoise import denoise_image
from napari_gpu_denoise.run.progress import COMPILING, Step
from scenes import (
    cut,
    follows_time,
    frame,
    joining,
    needs_volume,
    noisy,
    prepared,
    psnr,
    scene,
    small,
    with_slices,
)
from zarr_stores import write_store

DTYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
DTYPES += ["float16", "float32", "float64"]


@pytest.fixture(params=FILTERS, ids=lambda kind: kind.name)
def kind(request):
    """Each filter: the class of its settings."""
    return request.param


def cases(names: str, every: list, once: list = (), where=lambda kind, case: True):
    """Parametrise a test: with each filter the cases of `every`, with the first those of `once`.

    Those of `every` are left out that a filter does not have, as `where` says.
    """
    pairs = [(kind, case) for kind in FILTERS for case in every if where(kind, case)]
    pairs += [(FILTERS[0], case) for case in once]
    values = [(kind, *(case if "," in names else [case])) for kind, case in pairs]
    ids = ["-".join(str(one) for one in (kind.name, *rest)) for kind, *rest in values]
    return pytest.mark.parametrize(f"kind,{names}", values, ids=ids)


def denoise(image, settings, sigma=20.0, axes=None, way=gd.denoise, **options):
    """Filter as `gd.denoise` does, or another way; to a filter of volumes, planes are slices."""
    image, axes, sigma, deeper = with_slices(type(settings), image, axes, sigma)
    result = way(image, settings, sigma, axes=axes, **options)
    if deeper and way is gd.denoise:
        return dataclasses.replace(result, image=result.image[0])
    return result[0] if deeper else result


def lazily(image, settings, sigma=20.0, **options):
    """Filter as `denoise` does, lazily."""
    return denoise(image, settings, sigma, way=gd.denoise_lazy, **options)


def called(image, settings, sigma=20.0, **options) -> np.ndarray:
    """Filter by the function of the filter, as `denoise` does."""

    def way(image, settings, sigma, **options):
        return getattr(gd, settings.name)(image, sigma, settings=settings, **options)

    return denoise(image, settings, sigma, way=way, **options)


def run(image, settings, sigma=20.0, **options) -> np.ndarray:
    return denoise(image, settings, sigma, **options).image


def stack_axes(kind, ndim: int = 3) -> str | None:
    """Return axes of a stack of planes: none but Y and X, unless the filter must know of time."""
    return "QTYX"[-ndim:] if follows_time(kind) else None


def needed_axes(kind) -> str:
    needed = {spec.metadata["needs_axis"] for spec in setting_fields(kind)}
    return "".join(axis for axis in "TZ" if axis in needed)


def takes_sigma(kind) -> bool:
    """Return whether a filter needs to know the noise; a median, for one, does not."""
    return not kind().sigma_unused


TOLD = pytest.mark.parametrize("kind", [k for k in FILTERS if takes_sigma(k)], ids=lambda k: k.name)


# What goes in and what comes out


@cases(
    "value,dtype",
    every=[(0.1, "float32"), (255, "uint8"), (2**63 + 12345, "uint64"), (-1e300, "float64")],
    once=[
        (0, "float32"),
        (-3.3e20, "float32"),
        (1e-30, "float32"),
        (7, "uint8"),
        (41234, "uint16"),
        (-12345, "int16"),
        (-(2**62) - 1, "int64"),
        (1e9 + 1 / 3, "float64"),
    ],
)
def test_a_constant_image_is_unchanged_to_the_last_bit(kind, device, value, dtype):
    image = np.full((3, 2, 33, 41), value, dtype)
    settings = joining(kind, "TZ")
    for sigma in (0.5, 20):
        out = run(image, settings, sigma, axes="TZYX", dtype="same", device=device)
        assert out.dtype == image.dtype
        assert out.tobytes() == image.tobytes()


@cases(
    "shape,axes,dtype",
    every=[
        ((31, 37), None, "float16"),
        ((3, 31, 37), None, "uint16"),
        ((2, 3, 31, 37), None, "float64"),
        ((2, 3, 31, 37), "TZYX", "int8"),
        ((31, 37, 3), "YXS", "uint8"),
        ((3, 31, 37, 2), "CYXT", "int64"),
    ],
    once=[((3, 31, 37, 2), "CYXT", dtype) for dtype in DTYPES if dtype != "int64"],
)
def test_shape_and_dtype_are_kept(kind, device, shape, axes, dtype):
    image = np.resize(noisy(31, 37, dtype="uint8") // 2, shape).astype(dtype)
    if axes is None and len(shape) > 2:
        axes = stack_axes(kind, len(shape))
    result = denoise(image, small(kind), 10, axes=axes, device=device)
    assert result.image.shape == shape
    assert result.image.dtype == np.dtype(dtype)
    assert result.record.input_dtype == result.record.output_dtype == dtype
    assert not np.array_equal(result.image, image)


@cases("dtype", every=["uint8"], once=["float32", "float64", "int32"])
def test_another_dtype_can_be_asked_for(kind, device, dtype):
    image = noisy(31, 37, dtype="uint16")
    fine = run(image, small(kind), device=device, dtype="float32")
    out = run(image, small(kind), device=device, dtype=dtype)
    assert out.dtype == np.dtype(dtype)
    if takes_sigma(kind):  # others may choose pixels instead of averaging them
        assert np.any(fine != np.rint(fine))
    np.testing.assert_array_equal(out, fine if out.dtype.kind == "f" else np.rint(fine))


def memory_layouts(image: np.ndarray):
    wide = np.zeros((2 * image.shape[0], 3 * image.shape[1]), image.dtype)
    wide[::2, ::3] = image
    frozen = image.copy()
    frozen.setflags(write=False)
    return {
        "plain": image,
        "read-only": frozen,
        "strided": wide[::2, ::3],
        "backwards": image[::-1, ::-1].copy()[::-1, ::-1],
        "Fortran order": np.asfortranarray(image),
        "big-endian": image.astype(image.dtype.newbyteorder(">")),
        "little-endian": image.astype(image.dtype.newbyteorder("<")),
    }


@cases("dtype", every=["uint16"], once=["uint8", "float32", "float64"])
def test_input_is_untouched_whatever_its_memory_layout(kind, device, dtype):
    image = noisy(33, 41, dtype=dtype)
    expected = run(image, small(kind), device=device)
    for name, given in memory_layouts(image).items():
        before = given.tobytes()
        out = run(given, small(kind), device=device)
        assert given.tobytes() == before, name
        np.testing.assert_array_equal(out, expected, err_msg=name)
        assert out.dtype.isnative
        assert not np.shares_memory(out, given)
    exact = image.astype(np.float64)
    np.testing.assert_array_equal(
        run(exact.tolist(), small(kind), device=device), run(exact, small(kind), device=device)
    )


# The same result, however it is got


def test_repeated_runs_are_bitwise_equal(kind, device):
    image = noisy(3, 61, 67)
    first = run(image, joining(kind, "T"), axes="TYX", device=device)
    for _ in range(4):
        again = run(image, joining(kind, "T"), axes="TYX", device=device)
        assert again.tobytes() == first.tobytes()


def test_two_threads_at_once_give_what_one_after_the_other_gives(kind, device):
    settings = small(kind)
    images = [noisy(*frame(settings), seed=k) for k in range(6)]
    expected = [run(image, settings, device=device) for image in images]
    results, failures = {}, []
    start = threading.Barrier(2)

    def work(numbers):
        try:
            start.wait()
            for k in numbers:
                results[k] = run(images[k], settings, device=device, memory_limit=cut(settings))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(range(k, 6, 2),)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for k, image in enumerate(expected):
        np.testing.assert_array_equal(results[k], image)


def test_axes_of_length_one_change_nothing(kind, device):
    image = noisy(45, 52)
    flat = run(image, small(kind), device=device)
    # One that always follows time keeps its settings; others are set to look at no other frame.
    joined = small(kind) if follows_time(kind) else joining(kind, "TZ")
    deep = run(image[None, None], joined, axes="TZYX", device=device)
    np.testing.assert_array_equal(deep[0, 0], flat)
    column = run(image[:, None, :, None], joined, axes="YTXZ", device=device)
    np.testing.assert_array_equal(column[:, 0, :, 0], flat)


@cases(
    "axes",
    every=["TZYX", "SCYX"],
    once=[None, "QRYX", "RZYX"],
    # Those that join slices, or time whatever their settings: the next two tests.
    where=lambda kind, axes: axes == "SCYX" or not (follows_time(kind) or needs_volume(kind)),
)
def test_planes_are_independent_unless_joined(kind, device, axes):
    image = noisy(2, 3, 40, 44)
    out = run(image, small(kind), axes=axes, device=device)
    for t, z in np.ndindex(2, 3):
        alone = run(image[t, z], small(kind), device=device)
        np.testing.assert_array_equal(out[t, z], alone)


@pytest.mark.parametrize("axes", [None, ".YX", "Y.X"])
def test_stacks_that_may_be_time_must_be_named_where_it_matters(kind, device, axes):
    image, options = noisy(31, 3, 31) if axes == "Y.X" else noisy(3, 31, 31), {"device": device}
    for way in (run, called, lazily):
        if follows_time(kind):
            with pytest.raises(errors.AxesError, match=r"no axis is named T: .* as axes='TYX'"):
                way(image, small(kind), 20.0, axes=axes, **options)
        else:
            assert way(image, small(kind), 20.0, axes=axes, **options).shape == image.shape
    # One plane is no time-lapse, and a letter of any kind is a name.
    one = image[:, :1] if axes == "Y.X" else image[:1]
    single = run(one, small(kind), axes=axes, **options)
    np.testing.assert_array_equal(np.squeeze(single), run(np.squeeze(one), small(kind), **options))
    assert run(image, small(kind), axes=(axes or ".YX").replace(".", "Q")).shape == image.shape


@cases(
    "axes",
    every=["TZYX", "TCYX", "TQYX"],
    where=lambda kind, axes: "Z" not in axes or not needs_volume(kind),
)
def test_frames_that_are_not_looked_at_change_nothing(kind, device, axes):
    image = noisy(3, 2, 40, 44)
    settings = joining(kind, "TZ", count=0)
    out = run(image, settings, axes=axes, device=device)
    for k in range(2):
        # The other axes part videos that do not know of each other.
        alone = run(image[:, k], settings, axes="TYX", device=device)
        np.testing.assert_array_equal(out[:, k], alone)
    changed = image.copy()
    changed[1] = 255 - changed[1]
    other = run(changed, settings, axes=axes, device=device)
    np.testing.assert_array_equal(other[::2], out[::2])
    assert not np.array_equal(other[1], out[1])


def test_joined_axes_are_used(kind, device):
    for axis in needed_axes(kind):
        settings, names = joining(kind, axis), axis + "YX"
        # Plane 0 sees the last one within reach, and none beyond.
        beyond = 1 + getattr(settings.reach, axis.lower())[1]
        image = noisy(beyond + 3, 40, 44)
        alone = run(image, joining(kind, axis, count=0), axes=names, device=device)
        joined = run(image, settings, axes=names, device=device)
        assert not np.array_equal(joined[2], alone[2])
        changed = image.copy()
        changed[beyond] = 255 - changed[beyond]
        far = run(changed, settings, axes=names, device=device)
        np.testing.assert_array_equal(far[0], joined[0])
        assert not np.array_equal(far[1], joined[1])


def test_sigma_for_each_channel_and_plane(kind, device):
    image = noisy(2, 3, 40, 44)
    sigma = np.array([[10, 0, 30], [15, 20, 5.5]])
    outer = "Q" if follows_time(kind) else "T"
    inner = "R" if needs_volume(kind) else "Z"
    axes = outer + inner + "YX"
    result = denoise(image, small(kind), sigma, axes=axes, device=device)
    for t, z in np.ndindex(2, 3):
        alone = run(image[t, z], small(kind), sigma[t, z], device=device)
        np.testing.assert_array_equal(result.image[t, z], alone)
    np.testing.assert_array_equal(result.image[0, 1], image[0, 1])
    if takes_sigma(kind):
        assert result.record.sigma == (10, 0, 30, 15, 20, 5.5)
        assert result.record.sigma_source == "given"
    turned = np.transpose(image, (2, 1, 3, 0))
    last = run(turned, small(kind), sigma.T, axes=f"Y{inner}X{outer}", device=device)
    np.testing.assert_array_equal(np.transpose(last, (3, 1, 0, 2)), result.image)
    axes = inner + "YX" if follows_time(kind) else None
    row = run(image[0], small(kind), sigma[0], axes=axes, device=device)
    np.testing.assert_array_equal(row, result.image[0])
    pair = image[0, ::2]
    for axes, given in (("CYX", pair), ("YXS", np.moveaxis(pair, 0, -1))):
        made = run(given, small(kind), (10, 30), axes=axes, device=device)
        np.testing.assert_array_equal(made if axes == "CYX" else np.moveaxis(made, -1, 0), row[::2])


@TOLD
def test_a_map_counts_where_it_is(kind, device):
    settings = small(kind)
    reach = settings.reach
    width = reach.x[0] + 12
    image = noisy(24, 2 * width)
    sigma = np.broadcast_to(np.where(np.arange(2 * width) < width, 10.0, 20.0), image.shape)
    out = run(image, settings, sigma, device=device)
    # Sums in fixed point are as fine as the largest sigma lets them be: 1e-5 of it, divided by
    # weights of 1 / 250; ten times as coarse where patches are matched from many frames.
    rounding = 0.1 if follows_time(kind) else 0.01
    sides = ((slice(0, 12), 10, rounding), (slice(-12, None), 20, 0))
    for side, value, rounding in sides:
        expected = run(image, settings, value, device=device)
        np.testing.assert_allclose(out[:, side], expected[:, side], rtol=0, atol=rounding)
    assert not np.array_equal(out, run(image, settings, 20, device=device))
    across = run(image.T, settings, sigma.T, device=device)
    turned = run(image.T, settings, sigma, axes="XY", device=device)
    np.testing.assert_array_equal(turned.T, out)
    for side, value, rounding in sides:
        expected = run(image.T, settings, value, device=device)
        np.testing.assert_allclose(across[side], expected[side], rtol=0, atol=rounding)


def opened(kind: str, folder, image: np.ndarray, held: contextlib.ExitStack):
    """Return an image as a source of a kind, none of which is an array in memory."""
    if kind == "dask":
        return da.from_array(image, chunks=(2, 16, 16))
    if kind == "memory map":
        np.save(folder / "in.npy", image)
        return np.load(folder / "in.npy", mmap_mode="r")
    if kind == "temporary file":
        file = held.enter_context((folder / "in.raw").open("w+b"))
        store = FileArray(file, image.shape, image.dtype)
        store[...] = image
        return store
    if kind.startswith("zarr"):
        zarr = pytest.importorskip("zarr", reason="zarr is not installed")
        path = write_store(folder / "in.ome.zarr", image, "ZYX", chunks=(1, 16, 16))
        if kind == "zarr":
            return zarr.open_group(str(path), mode="r")["0"]
    elif kind == "NIfTI":
        path = folder / "in.nii"
        nibabel.save(nibabel.Nifti1Image(image.T, np.eye(4)), path)
    else:
        path = folder / "in.tif"
        tile = (16, 16) if "tiles" in kind else None
        tifffile.imwrite(path, image, metadata={"axes": "ZYX"}, tile=tile)
    return held.enter_context(formats.open_stack(path)).data


def taken(kind: str, folder, like: np.ndarray, held: contextlib.ExitStack):
    """Return a sink of a kind for a result."""
    if kind == "array":
        return np.empty_like(like)
    if kind == "memory map":
        return np.lib.format.open_memmap(folder / "out.npy", "w+", like.dtype, like.shape)
    if kind == "temporary file":
        file = held.enter_context((folder / "out.raw").open("w+b"))
        return FileArray(file, like.shape, like.dtype)
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    return zarr.create_array(
        str(folder / "out.zarr"), shape=like.shape, dtype=like.dtype, chunks=(1, 16, 16)
    )


SINKS = ("array", "memory map", "temporary file", "zarr")
SOURCES = ("dask", "memory map", "temporary file", "zarr", "zarr, as a file", "NIfTI", "TIFF")
SOURCES += ("large planes in strips", "large planes in tiles")


@pytest.mark.parametrize(
    ("source", "sink"),
    [(one, SINKS[k % len(SINKS)]) for k, one in enumerate(SOURCES)]
    + [("TIFF", sink) for sink in SINKS],
)
def test_sources_and_sinks(device, tmp_path, monkeypatch, limits, source, sink):
    """From any source to any sink, in parts, the result is that in memory."""
    limits(part_bytes=1)
    if source.startswith("large"):
        monkeypatch.setattr(reading, "LARGE_PLANE", 1)
    image, settings = noisy(5, 24, 26, dtype="uint16"), small(FILTERS[0])
    expected = gd.denoise(image, settings, 20.0, axes="ZYX", device=device, dtype="same").image
    with contextlib.ExitStack() as held:
        given = opened(source, tmp_path, image, held)
        assert (tuple(given.shape), given.dtype) == (image.shape, image.dtype)
        for index in (1, (..., slice(3, 9)), (slice(1, 3), slice(5, 20, 2), 7)):
            np.testing.assert_array_equal(np.asarray(given[index]), image[index])
        out = taken(sink, tmp_path, image, held)
        result = gd.denoise(given, settings, 20.0, axes="ZYX", device=device, out=out)
        assert result.image is out
        np.testing.assert_array_equal(np.asarray(out[...]), expected)
        np.testing.assert_array_equal(np.asarray(given[...]), image)


# It denoises


@pytest.mark.parametrize(
    ("sigma", "told", "gain"), [(5, True, 2.5), (20, False, 6.0), (50, True, 8.0)]
)
def test_psnr_rises(kind, device, sigma, told, gain):
    clean = scene(128, 160)
    image = clean + np.random.default_rng(1).normal(0, sigma, clean.shape)
    before = psnr(image, clean)
    out = run(image, kind(), sigma if told else None, device=device)
    assert psnr(out, clean) >= before + (gain if takes_sigma(kind) else 0.5)


# More than `joining` gives, for a gain that shows.
_WIDER = {
    "nl_means": {"window": 15, "neighbours": 24},
    "nl_means_pixelwise": {"patch": 5, "window": 13},
    "vbm3d": {"neighbours_final": 8},
    "bm4d": {"neighbours_final": 8},
}


@cases("axes", every=["T", "Z"], where=lambda kind, axis: axis in needed_axes(kind))
def test_joining_still_frames_helps(kind, device, axes):
    clean = np.broadcast_to(scene(96, 96), (5, 96, 96))
    image = clean + np.random.default_rng(2).normal(0, 20, clean.shape)
    names = axes + "YX"
    apart = {s.name: 0 for s in setting_fields(kind) if s.name in ("frames_before", "frames_after")}
    options = {"axes": names, "device": device, "frames" if axes == "T" else "slices": 2}
    alone = run(image, kind(**apart if axes == "T" else {}), **options)
    joined = run(image, joining(kind, axes, **_WIDER.get(kind.name, {})), **options)
    assert psnr(joined, clean[2]) >= psnr(alone, clean[2]) + 0.5


# Hard cases


@pytest.mark.parametrize(
    "shape", [(1, 1), (1, 50), (50, 1), (2, 3), (7, 7), (8, 8), (9, 9), (9, 300), (300, 9)]
)
def test_images_smaller_than_a_patch(kind, device, shape):
    for settings in (small(kind), kind()):
        result = denoise(noisy(*shape), settings, 20, device=device)
        assert result.image.shape == shape
        assert np.all(np.isfinite(result.image))
        applied = prepared(settings, *("ZYX", (1, *shape)) if needs_volume(kind) else ("YX", shape))
        extended = min(shape) < applied.smallest
        assert any("mirror" in note for note in result.record.notes) == extended


@cases(
    "dtype",
    every=["int64"],
    once=["int32", "uint32", "uint64"],
    where=lambda kind, _: takes_sigma(kind),
)
def test_the_full_range_of_wide_integers(kind, device, dtype):
    limits = np.iinfo(dtype)
    span = float(limits.max) - float(limits.min)
    clean = limits.min + (0.05 + 0.9 * (scene(64, 72) - 30) / 190) * span
    noise = np.random.default_rng(0).normal(0, 0.02 * span, clean.shape)
    top = np.nextafter(float(limits.max), 0)
    image = np.clip(clean + noise, float(limits.min), top).astype(dtype)
    out = run(image, kind(), 0.02 * span, device=device).astype(np.float64)
    assert psnr(out, clean, span) > psnr(image.astype(np.float64), clean, span) + 1


def test_saturated_values_are_counted(kind, device):
    image = noisy(45, 52, dtype="float32") + 90
    fine = run(image, small(kind), device=device)
    result = denoise(image, small(kind), 20, dtype="uint8", device=device)
    over = int(np.count_nonzero(np.rint(fine) > 255))
    assert over > 10
    assert result.record.saturated == over
    np.testing.assert_array_equal(result.image, np.clip(np.rint(fine), 0, 255))
    with pytest.warns(errors.SaturationWarning, match=str(over)):
        called(image, small(kind), 20, dtype="uint8", device=device)


def test_sigma_zero_returns_the_image(kind, device):
    for dtype in ("uint8", "uint16", "float32", "float64"):
        image = noisy(3, 20, 22, dtype=dtype)
        result = denoise(image, small(kind), 0, axes=stack_axes(kind), device=device)
        np.testing.assert_array_equal(result.image, image)
        assert not np.shares_memory(result.image, image)
        assert any("sigma is 0" in note for note in result.record.notes)
    image = noisy(2, 20, 22)
    mixed = run(image, small(kind), (0, 20), axes="CYX", device=device)
    np.testing.assert_array_equal(mixed[0], image[0])
    np.testing.assert_array_equal(mixed[1], run(image[1], small(kind), 20, device=device))
    assert run(noisy(9, 9, dtype="uint8"), small(kind), 0, dtype="int32").dtype == np.int32


@pytest.mark.parametrize(
    ("sigma", "axes"), [(1e-300, "YXS"), (1e-30, "YX"), (1e-12, "YX"), (1e12, "YX"), (1e30, "YX")]
)
def test_extreme_sigma_gives_finite_results_within_the_range_of_the_image(
    kind, device, sigma, axes
):
    image = noisy(*(30, 34, 3)[: len(axes)])
    out = run(image, small(kind), sigma, axes=axes, device=device)
    assert np.all(np.isfinite(out))
    assert image.min() - 1e-3 <= out.min() <= out.max() <= image.max() + 1e-3
    if sigma < 1e-9 and takes_sigma(kind):
        np.testing.assert_allclose(out, image, rtol=1e-5)


# NaN and infinity


def test_nonfinite_pixels_stay_and_do_not_spread(kind, device):
    settings = joining(kind, "T")
    reach = settings.reach
    up, left = max(reach.y) + 24, max(reach.x) + 24
    clean = noisy(3, 2 * up + 20, 2 * left + 24)
    image = clean.copy()
    image[1, up + 10, left + 11] = np.nan
    image[1, up + 12, left + 11] = np.inf
    image[1, up + 9 : up + 11, left + 13 : left + 15] = -np.inf
    odd = ~np.isfinite(image)
    result = denoise(image, settings, 20, axes="TYX", nonfinite="keep", device=device)
    out = result.image
    np.testing.assert_array_equal(out[odd], image[odd])
    assert np.all(np.isfinite(out[~odd]))
    assert result.record.nonfinite == np.count_nonzero(odd) == 6
    # Pixels that cannot see the odd ones are as if those were not there.
    expected = run(clean, settings, axes="TYX", device=device)
    y, x = np.mgrid[: clean.shape[1], : clean.shape[2]]
    near = np.abs(y - up - 10.5) <= max(reach.y) + 2
    near &= np.abs(x - left - 12.5) <= max(reach.x) + 3
    assert not near.all()
    np.testing.assert_array_equal(out[:, ~near], expected[:, ~near])
    # Those that can are still close.
    change = np.abs(out - expected)[~odd]
    assert 0 < change.max() < 3 * 20
    assert np.sqrt(np.mean(change**2)) < 2


def test_planes_of_nothing_but_nan_stay_and_need_a_float_result(kind, device):
    image, options = noisy(2, 30, 34), {"nonfinite": "keep", "device": device}
    image[0] = np.nan
    # Where frames are joined, one that is not there changes nothing in the others.
    out = run(image, small(kind), axes=stack_axes(kind), **options)
    assert np.all(np.isnan(out[0]))
    np.testing.assert_array_equal(out[1], run(image[1], small(kind), device=device))
    assert np.all(np.isnan(run(image[0], small(kind), **options)))
    with pytest.raises(errors.NonFiniteError, match="float32"):
        run(image[0], small(kind), dtype="uint8", **options)


# Others are checked before the filter counts: tests/image, tests/run/test_sigma.py.
BAD = {
    "NaN sigma": ({"sigma": math.nan}, errors.SigmaError, "nan.*positive"),
    "no Y": ({"axes": "ZX"}, errors.AxesError, "no Y"),
    "no pixels": ({"image": np.ones((0, 5))}, errors.ImageError, "no pixels"),
    "NaN": ({"image": np.full((5, 5), np.nan)}, errors.NonFiniteError, "25 of 25.*keep"),
    "infinity": ({"image": np.full((5, 5), np.inf)}, errors.NonFiniteError, "25 of 25.*keep"),
    "no such device": ({"device": 99}, errors.NoDeviceError, "99.*choose one of"),
    "no such name": ({"device": "abacus"}, errors.NoDeviceError, "abacus.*choose one of"),
    "no memory": ({"memory_limit": 1}, errors.DeviceMemoryError, "at least"),
}
EVERY = ["NaN", "no pixels", "NaN sigma", "no Y", "no memory"]


@cases("case", every=EVERY, once=sorted(BAD.keys() - set(EVERY)))
def test_bad_input_raises_a_named_error_with_a_sentence(kind, device, case):
    changes, error, sentence = BAD[case]
    options = {"image": np.ones((20, 20), np.float32), "sigma": 1.0, "device": device, **changes}
    ndim = np.ndim(options["image"])
    if ndim > 2:
        options["axes"] = "QZYX"[-ndim:] if needs_volume(kind) else stack_axes(kind, ndim)
    elif ndim == 2 and "axes" not in changes:
        options["image"], options["axes"], *_ = with_slices(kind, options["image"], None)
    with pytest.raises(error, match=sentence) as caught:
        gd.denoise(filter=small(kind), **options)
    text = str(caught.value)
    assert isinstance(caught.value, errors.DenoiseError)
    assert text.endswith(".") or "choose" in text
    assert len(text) > 30


def test_settings_that_need_an_axis_say_so(kind, device):
    for axis in needed_axes(kind):
        with pytest.raises(errors.AxesError, match=f"needs an axis {axis}"):
            run(np.ones((3, 20, 20)), joining(kind, axis), device=device)


def test_settings_out_of_bounds_say_so(kind):
    for spec in setting_fields(kind):
        bounds = spec.metadata["bounds"]
        if bounds is not None:
            for value in (bounds[0] - 1, bounds[1] + 1):
                with pytest.raises(errors.SettingsError, match=f"{spec.name}=.*out of bounds"):
                    kind(**{spec.name: value})
        for value in ("many", math.nan, None, [1]):
            if not isinstance(spec.default, str):
                with pytest.raises(errors.SettingsError, match=spec.name):
                    kind(**{spec.name: value})
    with pytest.raises(errors.SettingsError, match="no setting 'wrong'"):
        kind.of(None, wrong=1)


# While it runs


def in_tiles(settings, device) -> dict:
    """Return the options of a run of a stack that is cut into tiles."""
    axes = stack_axes(type(settings))
    return {"axes": axes, "device": device, "memory_limit": cut(settings)}


def test_progress_goes_from_nothing_to_all(kind, device):
    settings, steps = small(kind), []

    def progress(done, total):
        steps.append((done, total, threading.get_ident()))

    run(noisy(3, *frame(settings)), settings, **in_tiles(settings, device), progress=progress)
    total = steps[0][1]
    assert total >= 5
    # Frames may be done several at once, tiles are not.
    counts = [k for k, *_ in steps] if follows_time(kind) else list(range(total + 1))
    assert counts == sorted(set(counts))
    assert (counts[0], counts[-1]) == (0, total)
    assert steps == [(k, total, threading.get_ident()) for k in counts]


@pytest.mark.parametrize("when", [0, 1, 3])
def test_cancel_stops_at_the_next_tile(kind, device, when):
    settings = small(kind)
    image, event, steps = noisy(3, *frame(settings)), threading.Event(), []
    before = image.tobytes()

    def progress(done, total):
        steps.append((done, total))
        if done >= when:
            event.set()

    with pytest.raises(errors.Cancelled, match="cancelled"):
        run(image, settings, **in_tiles(settings, device), progress=progress, cancel=event)
    # Frames may be done several at once, tiles are not.
    reached = next(done for done, _ in steps if done >= when)
    assert reached == when or follows_time(kind)
    assert steps[-1][0] == reached < steps[-1][1]
    assert image.tobytes() == before
    # The device is free for the next run.
    run(image, settings, axes=stack_axes(kind), device=device, cancel=threading.Event())


def test_steps_come_before_and_after_each_tile(kind, device):
    settings = small(kind)
    image = noisy(3, *frame(settings))
    given, axes, *_ = with_slices(kind, image, stack_axes(kind))
    asked = gd.Run(settings, 20, **in_tiles(settings, device) | {"axes": axes})
    told = Remembered()
    denoise_image(given, asked, progress=told)
    assert told.steps[0] == Step(0, 0, COMPILING)
    first = told.steps[1]
    # Steps on the way to the first frame tell of none.
    second = next(step for step in told.steps if step.done)
    assert first.done == 0
    assert second.done >= 1 if follows_time(kind) else second.done == 1
    assert first.unit == second.unit == ("part of a frame" if follows_time(kind) else "tile")
    assert second.total == first.total > second.done


def test_the_record_tells_where_a_result_comes_from(kind, device):
    image = noisy(2, 45, 52, dtype="uint8")
    image, axes, *_ = with_slices(kind, image, "TYX")
    record = denoise(image, small(kind), None, axes=axes, device=device).record
    assert record.version == gd.__version__
    assert record.filter == kind.name
    assert record.settings == small(kind).as_dict()
    if takes_sigma(kind):
        assert record.sigma_source.startswith("estimated: ")
        assert record.sigma == gd.estimate_noise(image, axes, device=device).sigma
    else:
        assert (record.sigma, record.sigma_source) == ((), kind().sigma_unused)
    assert record.axes == axes
    assert record.device == str(device)
    assert record.as_dict()["sigma"] == list(record.sigma)
    given = denoise(image, small(kind), 3, axes=axes, device=device).record
    assert given.sigma_source == ("given" if takes_sigma(kind) else kind().sigma_unused)
