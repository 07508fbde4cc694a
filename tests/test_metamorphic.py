"""A filter gives the same pixels by every way, and obeys relations between images: random cases.

The first cases are tests; ``python tests/test_metamorphic.py --cases 5000 --first 1000 --processes
8`` tries others on the device that `choose()` takes, prints what fails, and counts; ``--cases 1
--first 1234`` repeats one. It needs neither pytest nor packages for files, which are skipped.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib.util
import multiprocessing
import re
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import tifffile

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.files import one_file
from napari_gpu_denoise.run import part as parts_of_images
from random_cases import INTEGERS, KINDS, MEASURED, TOLD, Case, Relation, draw_level, one_of
from zarr_stores import write_store

SUITE = 200  # cases that are tests
#: Tolerances, rms in units of sigma. Rounding of float32 changes a few decisions, such as which
#: patches match; if planes are moved, so are reference patches and the order of equal matches
#: (the largest of 8,000 cases on an H100 and its CPU: 0.57, of cubes of 2 x 4 x 8).
ROUNDED, MOVED = 0.02, 0.6


def by_name(case):
    function = getattr(gd, case.filter.name)
    yield function(case.image, settings=case.filter, **case.options())


def into_arrays(case):
    for order, byte_order in ("C=", "F>"):
        out = np.full_like(case.whole, 77, case.whole.dtype.newbyteorder(byte_order), order)
        case.denoised(out=out)
        yield out.astype(case.whole.dtype)


def in_place(case):
    copy = case.image.astype(case.dtype.newbyteorder("="))
    yield case.denoised(copy, out=copy, dtype="same"), case.denoised(dtype="same")


def chunks_into_an_array(case):
    out = np.zeros_like(case.whole)
    case.denoised(case.chunked(), out=out)
    yield out


def streamed(live, case):
    # Left alone, a stream takes its type from the noise of the first frame.
    options = case.options() | {"axes": case.axes[1:], "dtype": case.whole.dtype}
    if case.mode == "planes":
        options["sigma"] = options["sigma"].__getitem__
    yield np.array([*gd.stream(case.filter, iter(case.image), live=live, **options)])


def in_tiles(case):
    try:
        case.denoised(memory_limit=1)
    except DenoiseError as error:
        counts, needed = [], error.values["needed"]
    yield case.denoised(memory_limit=needed, progress=lambda _, total: counts.append(total))
    assert counts[-1] > 1, "nothing was cut"


def in_regions(case):
    names, chosen = {"Y": "rows", "X": "columns", "T": "frames", "Z": "slices"}, {}
    for letter, n in zip(case.axes, case.image.shape, strict=True):
        if letter in names:
            chosen[letter] = slice(*sorted(case.rng.choice(n + 1, 2, replace=False).tolist()))
    region = tuple(chosen.get(letter, slice(None)) for letter in case.axes)
    options = {names[letter]: part for letter, part in chosen.items()}
    for image in (case.image, case.chunked()):
        yield case.denoised(image, **options), case.whole[region]


def write(path, case):
    if path.suffix == ".tif":
        options = {"photometric": "minisblack", "metadata": {"axes": case.axes}}
        tifffile.imwrite(path, case.image, byteorder=one_of(case.rng, "<>"), **options)
    elif path.suffix == ".zarr":
        image = case.image.astype(case.dtype.newbyteorder("="))
        write_store(path, image, case.axes, chunks=tuple((n + 1) // 2 for n in image.shape))
    else:
        import nibabel

        nibabel.Nifti1Image(case.image.T, np.eye(4), dtype=case.dtype).to_filename(path)


def as_files(ending, case, by_parts=False):
    """Yield what a batch makes of the image, and then of another one."""
    size = mock.patch.object(one_file, "STREAMED_BYTES", 0 if by_parts else 1 << 27)
    small = {"PART_BYTES": 1, "_FRAMES_PER_MARGIN": 1, "_SMALLEST_PART": 1 << 10}
    parts = mock.patch.multiple(parts_of_images, **small)
    with tempfile.TemporaryDirectory() as folder, size, parts:
        cases = [case, replace(case, noisy=case.noisy[..., ::-1].copy())]
        paths, target = [Path(folder, f"{k}.{ending}") for k in range(2)], Path(folder, "results")
        for one, path in zip(cases, paths, strict=True):
            write(path, one)
        for file in gd.run_batch(paths, case.filter, output=target, **case.options()).failed:
            raise file.error
        for one, path in zip(cases, paths, strict=True):
            yield np.asarray(gd.read(target / path.name).data), one.whole


def in_two_threads(case):
    with ThreadPoolExecutor(2) as pool:
        yield from pool.map(lambda _: case.denoised(), range(2))


def another_offset(case):
    drawn = [draw_level(case.rng, case.dtype.str[1:]) for _ in range(40)]
    # The offset of a model is a float.
    most = 2**53 if case.mode == "model" else np.inf
    offset = one_of(case.rng, [o for gain, o in drawn if gain == case.gain and abs(o) < most])
    both = replace(case, offset=offset), case
    yield tuple(one.levels(one.denoised(dtype="same")) for one in both)


def another_gain(case):
    plain = replace(case, gain=1, offset=0, dtype=np.dtype("f8"))
    scaled = replace(plain, gain=one_of(case.rng, [0.01, 3.7, 1e4, 1e-6, 2.0**-40, 1e40]))
    yield tuple(one.levels(one.denoised(dtype="float64")) for one in (scaled, plain))


def planes_moved(case):
    flips = (lambda array, axis=axis: np.flip(array, axis) for axis in (-1, -2))
    for move in (*flips, lambda array: np.swapaxes(array, -1, -2)):
        yield move(case.moved(move))


def order_of_axes(case):
    order = case.rng.permutation(case.image.ndim)
    names = "".join(case.axes[k] for k in order)
    made = case.moved(lambda array: np.transpose(array, order), axes=names)
    yield np.transpose(made, np.argsort(order))


def repeated(case):
    return case.moved(lambda array: np.stack([array] * 3), first="R")


def beside_others(case):
    yield case.moved(lambda a: np.stack([a[::-1], a, a[..., ::-1]]), first="R")[1]


def channels_reversed(case):
    guided = {"guide": len(case.image) - 1} if getattr(case.filter, "guide", -1) == 0 else {}
    other = replace(case, filter=replace(case.filter, **guided))
    yield other.moved(lambda array: array[::-1])[::-1]


def other_memory(case):
    wide = np.zeros([2 * n for n in case.image.shape], case.dtype)
    strided = wide[(slice(None, None, 2),) * wide.ndim]
    strided[...] = case.image
    yield case.denoised(strided)
    yield case.denoised(np.asfortranarray(case.image))
    yield case.denoised(case.image[::-1, ::-1].copy()[::-1, ::-1])
    yield case.denoised(case.image.astype(case.dtype.newbyteorder()))


def sigma_in_other_forms(case):
    for shape in (case.image.shape[:-2], case.image.shape[-2:]):
        yield case.denoised(sigma=np.full(shape, case.sigma * case.gain))


def estimated_before(case):
    estimate = gd.estimate_noise(case.image, case.axes, device=case.own["device"])
    yield case.denoised(noise=estimate)


def as_a_float_type(case):
    dtype = np.result_type(case.dtype, np.float32)
    yield case.denoised(case.image.astype(dtype), dtype=dtype), case.denoised(dtype=dtype)


ANYWHERE = ("number", "model")  # noise that planes may have wherever they are
LEVELS = {"noise": TOLD, "additive": True, "in_levels": True}
ZARR = {"without": "Q", "package": "zarr"}
NIFTI = {"without": "CQ", "package": "nibabel", "types": (*INTEGERS, "f4", "f8")}
RELATIONS = [  # first the ways, which give the pixels that `denoise` gives of the array
    Relation("by name", by_name),
    Relation("into arrays", into_arrays),
    Relation("in place", in_place),
    Relation("lazily", lambda case: [case.lazily().compute()]),
    Relation("chunks into an array", chunks_into_an_array),
    Relation("stream", partial(streamed, False), ROUNDED, "T", noise=TOLD),
    Relation("live stream", partial(streamed, True), ROUNDED, "T", noise=TOLD),
    Relation("tiles", in_tiles, large=True),
    Relation("regions", in_regions, large=True),
    Relation("TIFF", partial(as_files, "tif")),
    Relation("TIFF by parts", partial(as_files, "tif", by_parts=True)),
    Relation("NIfTI", partial(as_files, "nii"), first="TZ", **NIFTI),
    Relation("OME-Zarr", partial(as_files, "ome.zarr"), **ZARR),
    Relation("OME-Zarr by parts", partial(as_files, "ome.zarr", by_parts=True), **ZARR),
    Relation("two threads", in_two_threads),
    Relation(
        "another offset", another_offset, ROUNDED, **LEVELS | {"types": (*INTEGERS, "f4", "f8")}
    ),
    Relation("another gain", another_gain, ROUNDED, **LEVELS),
    Relation("planes moved", planes_moved, MOVED, noise=TOLD),
    Relation("order of axes", order_of_axes, noise=(*MEASURED, "planes", *ANYWHERE)),
    Relation("one more axis", lambda case: case.moved(lambda array: array[None], first="R")),
    Relation("repeated", repeated, noise=ANYWHERE),
    Relation("beside others", beside_others, ROUNDED, noise=ANYWHERE),
    Relation("channels reversed", channels_reversed, ROUNDED, "C", noise=TOLD[:3]),
    Relation("other memory", other_memory),
    Relation("sigma in other forms", sigma_in_other_forms, ROUNDED, noise=("number",)),
    Relation("estimated before", estimated_before, ROUNDED, noise=("auto",), additive=True),
    Relation("as a float type", as_a_float_type, ROUNDED, noise=TOLD, types=(*INTEGERS[:6], "f2")),
]


def verdict_of(number: int, device=None) -> tuple[str, str, Case]:
    """Run a case: return whether it held, failed, was refused or skipped, why, and the case."""
    case, wrong, refused = Case.of(number, RELATIONS, device), [], ""
    if importlib.util.find_spec(case.relation.package) is None:
        return "skipped", f"no {case.relation.package}", case
    before = case.image.copy()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            wrong.append(case.fault())
            for result in case.relation.results(case):
                pair = result if type(result) is tuple else (result, case.whole)
                wrong.append(case.difference(*pair))
        except DenoiseError as error:
            refused = f"{type(error).__name__}: {error}"
        except Exception:
            wrong.append(traceback.format_exc(limit=-4))
    raw = [one for one in caught if issubclass(one.category, RuntimeWarning)]
    wrong += {f"{one.category.__name__}: {one.message} ({one.filename})" for one in raw}
    wrong += ["the input was changed"] * (case.image.tobytes() != before.tobytes())
    verdict = "FAILED" if any(wrong) else "refused" if refused else "held"
    return verdict, "; ".join(filter(None, [*wrong, refused])), case


def pytest_generate_tests(metafunc):
    metafunc.parametrize("number", range(SUITE))


def test_relations_hold(number, device):
    verdict, why, case = verdict_of(number, device)
    assert verdict == "held", f"{case.relation.name} {why}: {case}"


def told(number: int) -> tuple[str, str, str, str, str]:
    """Return verdict, reason, filter, relation and description of a case; end if it hangs."""
    faulthandler.dump_traceback_later(500, exit=True)
    verdict, why, case = verdict_of(number)
    faulthandler.cancel_dump_traceback_later()
    return verdict, " ".join(why.split()), *case.names, str(case)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("first", 0), ("cases", SUITE), ("processes", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options, counts, reasons = parser.parse_args(), Counter(), Counter()
    numbers = range(options.first, options.first + options.cases)
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        waiting = [pool.apply_async(told, [number]) for number in numbers]
        for number, one in zip(numbers, waiting, strict=True):
            try:
                verdict, why, *names, text = one.get(timeout=600)
            except multiprocessing.TimeoutError:  # its process ended, and another took its place
                case, verdict, why = Case.of(number, RELATIONS), "FAILED", "crashed or hung"
                names, text = case.names, str(case)
            counts.update((name, verdict) for name in (*names, "all"))
            if verdict == "FAILED":
                print(f"FAILED {number} {' '.join(names)}: {why}: {text}", flush=True)
            elif why:
                reasons[verdict, re.sub(r"[\d.]+", "#", why)] += 1
    for name in [*(kind.name for kind in KINDS), *(each.name for each in RELATIONS), "all"]:
        numbers = (f"{v} {counts[name, v]:<6}" for v in ("held", "FAILED", "refused", "skipped"))
        print(f"{name:24}", *numbers)
    for (verdict, why), count in reasons.most_common():
        print(f"{count} {verdict}: {why}")
    return int(counts["all", "FAILED"] > 0)


if __name__ == "__main__":
    sys.exit(main())
