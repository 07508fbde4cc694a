"""A filter gives the same pixels by every way, and obeys relations between images: random cases.

The first cases are tests; ``python tests/test_metamorphic.py --cases 5000 --first 1000 --processes
8`` tries others on the device that `choose()` takes, prints what fails, and counts; ``--cases 1
--first 1234`` repeats one. It needs no pytest; cases of files whose package is missing are refused.
"""

from __future__ import annotations

import argparse
import faulthandler
import multiprocessing
import re
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from unittest import mock

import dask.array as da
import numpy as np
import tifffile

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.files.one_file import with_voxel
from napari_gpu_denoise.protocol.settings import setting_fields
from napari_gpu_denoise.run import request
from scenes import SMALL_PARTS, frame, scene, small
from zarr_stores import write_store

EXACT = ("out=", "in place", "lazily", "tiles", "region", "tif", "nii", "ome.zarr", "two threads")
EXACT += ("order of axes", "one more axis", "repeated", "other memory")
NEAR = ("stream", "another offset", "another gain", "beside others", "channels reversed")
NEAR += ("sigma in other forms", "estimated before", "as a float type")
#: Tolerances, rms in units of sigma. Rounding of float32 changes a few decisions, such as which
#: patches match; if planes are moved, so are reference patches and the order of equal matches
#: (the largest of 16,000 cases on an H100 and its CPU: 0.029; 0.57, of cubes of 2 x 4 x 8).
TOLERANCES = dict.fromkeys(EXACT, 0) | dict.fromkeys(NEAR, 0.03) | {"planes moved": 0.6}
SUITE = len(gd.FILTERS) * len(TOLERANCES)  # cases that are tests: each filter in each relation
SHARING = 4  # relations that have the same settings
#: Relations that test_ways and test_contract try with every filter, too.
ELSEWHERE = {"out=", "in place", "lazily", "tiles", "tif", "stream", "two threads", "one more axis"}
ELSEWHERE |= {"repeated", "other memory", "order of axes"}
#: Those that are tests come first: neighbours share settings, and so what is built.
RELATIONS = sorted(TOLERANCES, key=ELSEWHERE.__contains__)
SIZES = {"Q": 2, "T": 4, "C": 3, "Z": 5}
AXES = ("YX", "TYX", "CYX", "ZYX", "QYX", "TCYX", "TZYX", "CZYX", "QTYX", "QCYX", "QZYX")
TOLD, MEASURED = ("number", "planes", "map", "model"), ("auto", "gaussian")
TYPES = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8")
#: Of float types: gains and offsets of levels of 0 to 255, up to the ends of the type.
FLOATS = {
    "f2": ((1, 0), (1, -128), (200, 0), (200, -25000), (0.01, 0)),
    "f4": ((1, 0), (1, 1e4), (1e4, -1e6), (1e4, 0), (1e36, 0), (1e36, -1e38), (1e-30, 0)),
    "f8": ((1, 0), (1, 1e9), (1e-12, 1e-6), (1e40, 0), (1e150, 0), (1e150, 1e154), (1e-200, 0)),
}


def draw_settings(rng: Random, kind):
    """Draw settings of which one differs from its default, mostly: another path is taken."""
    specs = [spec for spec in setting_fields(kind) if spec.name != "show"]
    looks = {s.name: (0, 1, 1) for s in specs if s.metadata["needs_axis"] and s.type == "int"}
    values = {s.name: s.metadata["choices"] or looks.get(s.name, ()) for s in specs}
    changes = [{name: value} for name, several in values.items() for value in several]
    return small(kind, **rng.choice([{}, *changes]))


def draw_level(rng: Random, code: str) -> tuple[float, float]:
    """Draw gain and offset: integers near both ends of the type, and between."""
    if code in FLOATS:
        return rng.choice(FLOATS[code])
    limits = np.iinfo(code)
    gain = rng.choice([1, *(g for g in (100, 10**6, 10**13) if 512 * g < 2**limits.bits)])
    low, high = int(limits.min), int(limits.max) - 255 * gain
    return gain, rng.choice([low, high, min(max(low, 0), high), (low + high) // 2])


class Case:
    """A filter and an image: levels of 0 to 255, times a gain, from an offset on."""

    def __init__(self, relation: str, settings, seed: int, device=None, **changes):
        """Draw a case from a seed, but for attributes that are given."""
        self.relation, self.drawn_from = relation, (relation, settings, seed, device)
        self.rng = rng = Random(seed)
        self.filter, code = settings, rng.choice(TYPES)
        specs = setting_fields(type(settings))
        changed = [s for s in specs if getattr(settings, s.name) != s.default]
        needed = {*self.filter.joint} | {s.metadata["needs_axis"] or "Y" for s in changed}
        self.axes = rng.choice([axes for axes in AXES if needed <= {*axes}])
        large = relation in ("tiles", "region")
        self.sides = frame(self.filter) if large else (rng.randint(33, 49), rng.randint(33, 49))
        self.dtype = np.dtype(code).newbyteorder(rng.choice("==>"))
        self.level, self.noise_seed = draw_level(rng, code), rng.getrandbits(32)
        self.mode, self.sigma = rng.choice(TOLD + MEASURED), rng.uniform(6, 20)
        self.own = {"device": device, "dtype": rng.choice(["auto", "same", "float32"])}
        if code in FLOATS and self.mode in TOLD and rng.random() < 0.2:
            self.own["nonfinite"] = "keep"
        vars(self).update(changes)
        self.gain, self.offset = self.level
        self.additive = "multiplicative" not in map(str, vars(self.filter).values())
        sizes = (min(SIZES[a], 3) if large else SIZES[a] for a in self.axes[:-2])
        self.clean = scene(*sizes, *self.sides).clip(8, 247)
        noise = np.random.default_rng(self.noise_seed).normal(size=self.clean.shape)
        self.noisy = np.clip(self.clean + noise * self.spread(), 0, 255)
        if "nonfinite" in self.own:
            self.noisy[..., 12:14, 20] = np.nan
        self.image = self.stored(self.noisy)
        chunks = [rng.randint((n + 2) // 3, n) for n in self.image.shape]
        self.chunked = da.from_array(self.image, chunks=chunks)

    def but(self, **changes) -> Case:
        """Return the same case with other attributes."""
        return Case(*self.drawn_from, **changes)

    def __str__(self) -> str:
        image = f"{self.dtype} {self.axes} {self.clean.shape} x {self.gain:g} + {self.offset}"
        return f"{self.relation}: {image}, noise {self.mode}, {self.own}, {self.filter}"

    def can_hold(self) -> bool:
        """Return whether float32 holds what it must, and the relation is one of such cases."""
        mode, code, told = self.mode, self.dtype.str[1:], self.mode in TOLD
        near = self.additive and max(self.gain, 1 / self.gain, abs(self.offset)) < 1e5
        if (mode in ("model", "gaussian") or self.own["dtype"] == "float32") and not near:
            return False
        if self.filter.sigma_unused and mode not in ("number", "planes", "map"):
            return False
        conditions = {
            "stream": told and self.axes[0] == "T",
            "nii": self.axes in ("ZYX", "TZYX") and code != "f2",
            "ome.zarr": "Q" not in self.axes,
            "another offset": told and self.additive and self.dtype.kind != "f",
            "another gain": told and self.additive and code in ("f4", "f8"),
            "planes moved": told,
            "order of axes": mode in ("number", "planes", "model"),
            "repeated": mode in ("number", "model"),
            "beside others": mode in ("number", "model"),
            "channels reversed": "C" in self.axes and mode in TOLD[:3],
            "sigma in other forms": mode == "number",
            "estimated before": mode == "auto" and self.additive,
            "as a float type": told and self.dtype.itemsize < 8,
        }
        return conditions.get(self.relation, True)

    def spread(self) -> np.ndarray:
        """Return the standard deviation of the noise at each pixel, in levels."""
        places = dict(zip(self.axes, np.indices(self.clean.shape), strict=True))
        y, x = places["Y"] / self.sides[0], places["X"] / self.sides[1]
        if self.mode == "model":
            return np.sqrt(2 * self.clean + self.sigma**2 / 4)
        if self.mode == "map":
            return self.sigma * np.where((x < 0.2) & (y < 0.1), 0, 0.6 + x + 0.4 * (y > 0.5))
        # Slices that are filtered together share their noise.
        steps = sum(places.get(a, 0) for a in "QTC") if self.mode == "planes" else 0
        return self.sigma * (1 + 0.1 * steps + 0 * y)

    def stored(self, levels: np.ndarray) -> np.ndarray:
        """Return levels as the image holds them; integers of Python have no ends."""
        whole = levels * self.gain
        whole = whole if self.dtype.kind == "f" else np.rint(whole).astype(np.int64)
        return (whole.astype(object) + self.offset).astype(self.dtype)

    def levels(self, stored: np.ndarray) -> np.ndarray:
        """Return the levels that an image or a result holds."""
        return (stored.astype(object) - self.offset).astype(np.float64) / self.gain

    def options(self, axes: str = "", move=np.asarray, **changes) -> dict:
        """Return the options of `denoise`, also for an image that is moved and has other axes."""
        axes, gain, spread = axes or self.axes, self.gain, move(self.spread()) * self.gain
        planes, outer = (axes.index("Y"), axes.index("X")), tuple(range(spread.ndim - 2))
        told = {"number": spread.max(), "planes": spread.max(planes), "map": spread.max(outer)}
        noise = {"sigma": told[self.mode]} if self.mode in told else {"noise": self.mode}
        if self.mode == "model":
            noise = {"noise": gd.PoissonGaussian(2 * gain, self.sigma / 2 * gain, self.offset)}
        return self.own | {"axes": axes} | noise | changes

    def denoised(self, image=None, **changes) -> np.ndarray:
        image = self.image if image is None else image
        return gd.denoise(image, self.filter, **self.options(**changes)).image

    def check_whole(self, whole: np.ndarray) -> None:
        """Check the result of the image by itself."""
        known, given = np.isfinite(self.noisy), self.image.astype(whole.dtype)
        kept = ~known | (self.spread() == 0)
        assert np.isfinite(whole[known]).all(), "the result is not finite"
        same = np.array_equal(whole[kept], given[kept], equal_nan=True)
        assert same, "pixels without noise, or not finite, were changed"
        images = self.levels(self.image), self.levels(whole)
        before, after = (np.sqrt(np.mean((one - self.clean)[known] ** 2)) for one in images)
        near = after <= before + self.sigma or not self.additive
        assert near, f"error of {before:.3g} before and {after:.3g} after"

    def check_equal(self, made: np.ndarray, expected: np.ndarray) -> None:
        """Check that a result is near enough to what it must equal."""
        types = [(array.dtype, array.shape) for array in (made, expected)]
        assert types[0] == types[1], f"made and expected: {types}"
        change = np.abs(self.levels(made) - self.levels(expected)) / self.sigma
        change[np.isnan(made) & np.isnan(expected)] = 0
        rms, count = np.sqrt(np.mean(change**2)), np.sum(change != 0)
        near = rms <= TOLERANCES[self.relation] > 0
        text = f"{count} differ: rms {rms:.3g}, at most {change.max():.3g} sigma"
        assert near or np.array_equal(made, expected, equal_nan=True), text


def results_of(case: Case, whole: np.ndarray):
    """Yield results of a case by its way or relation, and what each must equal."""
    name, rng, image, axes = case.relation, case.rng, case.image, case.axes
    order = rng.sample(range(image.ndim), image.ndim)
    planes = [lambda a: a[..., ::-1], lambda a: a[..., ::-1, :], lambda a: a.swapaxes(-1, -2)]
    moves = {  # the result of an image that is moved is the result, moved
        "planes moved": (rng.choice(planes), axes),
        "order of axes": (lambda a: a.transpose(order), "".join(axes[k] for k in order)),
        "one more axis": (lambda a: a[None], "R" + axes),
        "repeated": (lambda a: np.stack([a] * 3), "R" + axes),
        "channels reversed": (lambda a: np.flip(a, axes.index("C")), axes),
    }
    if name in moves:
        move, named = moves[name]
        yield case.denoised(move(image), axes=named, move=move), move(whole)
    elif name == "beside others":
        beside, move = np.stack([image[::-1], image, image[..., ::-1]]), lambda a: np.stack([a] * 3)
        yield case.denoised(beside, axes="R" + axes, move=move)[1], whole
    elif name == "out=":
        for source, memory, byte_order in ((image, "C", ">"), (case.chunked, "F", "=")):
            out = np.full_like(whole, 77, whole.dtype.newbyteorder(byte_order), memory)
            case.denoised(source, out=out)
            yield out.astype(whole.dtype), whole
    elif name == "in place":
        copy = image.astype(case.dtype.newbyteorder("="))
        yield case.denoised(copy, out=copy, dtype="same"), case.denoised(dtype="same")
    elif name == "lazily":
        yield gd.denoise_lazy(case.chunked, case.filter, **case.options()).compute(), whole
    elif name == "stream":
        # Left alone, a stream takes its type from the noise of the first frame.
        options = case.options(dtype=whole.dtype) | {"axes": axes[1:]}
        if case.mode == "planes":
            options["sigma"] = options["sigma"].__getitem__
        for live in (False, True):
            yield np.array([*gd.stream(case.filter, iter(image), live=live, **options)]), whole
    elif name == "tiles":
        totals = []
        try:
            case.denoised(memory_limit=1)
        except DenoiseError as error:
            needed = error.values["needed"]
        made = case.denoised(memory_limit=needed, progress=lambda _, total: totals.append(total))
        assert totals[-1] > 1, "nothing was cut"
        yield made, whole
    elif name == "region":
        names = {"T": "frames", "Z": "slices", "Y": "rows", "X": "columns"}
        ends = [sorted(rng.sample(range(n + 1), 2)) for n in image.shape]
        parts = {a: slice(*both) for a, both in zip(axes, ends, strict=True) if a in names}
        region = tuple(parts.get(a, slice(None)) for a in axes)
        for source in (image, case.chunked):
            yield case.denoised(source, **{names[a]: parts[a] for a in parts}), whole[region]
    elif name == "two threads":
        with ThreadPoolExecutor(2) as pool:
            yield from pool.map(lambda _: (case.denoised(), whole), range(2))
    elif name in ("another offset", "another gain"):
        drawn = [draw_level(rng, case.dtype.str[1:]) for _ in range(40)]
        drawn = [each for each in drawn if each[0] == case.gain or name == "another gain"]
        if case.mode == "model":  # its offset is a float
            drawn = [each for each in drawn if max(1 / each[0], *map(abs, each)) < 2**53]
        other, expected = case.but(level=rng.choice(drawn)), case.denoised(dtype="same")
        levels = other.levels(other.denoised(dtype="same"))
        yield case.stored(levels).astype(expected.dtype), expected
    elif name == "other memory":
        strided, swapped = (
            np.repeat(image, 2, -1)[..., ::2],
            image.astype(image.dtype.newbyteorder()),
        )
        backwards = image[::-1, ::-1].copy()[::-1, ::-1]
        for same in (strided, backwards, swapped, np.asfortranarray(image)):
            yield case.denoised(same), whole
    elif name == "sigma in other forms":
        for shape in (image.shape[:-2], image.shape[-2:]):
            yield case.denoised(sigma=np.full(shape, case.sigma * case.gain)), whole
    elif name == "estimated before":
        estimate = gd.estimate_noise(image, axes, device=case.own["device"])
        yield case.denoised(noise=estimate), whole
    elif name == "as a float type":
        dtype = np.result_type(case.dtype, np.float32)
        yield case.denoised(image.astype(dtype), dtype=dtype), case.denoised(dtype=dtype)
    else:
        yield from results_of_batch(case, case.but(noise_seed=1))


def results_of_batch(*cases: Case):
    """Yield what a batch writes, whole or by parts, and what each result must equal."""
    rng, ending, filter = cases[0].rng, cases[0].relation, cases[0].filter
    limits = replace(SMALL_PARTS, streamed_bytes=rng.choice([0, 1 << 27]))
    parts = mock.patch.object(request, "USUAL_LIMITS", limits)
    with tempfile.TemporaryDirectory() as folder, parts:
        files = {Path(folder, f"{k}.{ending}"): case for k, case in enumerate(cases)}
        for path, case in files.items():
            native = case.image.astype(case.dtype.newbyteorder("="))
            if ending == "tif":
                options = {"photometric": "minisblack", "metadata": {"axes": case.axes}}
                tifffile.imwrite(path, native, byteorder=rng.choice("<>"), **options)
            elif ending == "ome.zarr":
                write_store(path, native, case.axes, chunks=[(n + 1) // 2 for n in native.shape])
            else:
                import nibabel

                nibabel.Nifti1Image(native.T, np.eye(4), dtype=case.dtype).to_filename(path)
        target = Path(folder, "results")
        for file in gd.run_batch([*files], filter, output=target, **cases[0].options()).failed:
            raise file.error
        for path, case in files.items():
            sized = with_voxel(filter, gd.read(path))  # files tell the size of voxels
            expected = gd.denoise(case.image, sized, **case.options()).image
            yield np.asarray(gd.read(target / path.name).data), expected


def drawn_case(number: int, device=None) -> Case:
    """Draw a case from its number alone. Filters and relations take turns.

    Some relations in a row have the same settings, if they hold for these: kernels are built once.
    """
    rng, (turn, place) = Random(number), divmod(number, len(gd.FILTERS))
    kind, relation = gd.FILTERS[place], RELATIONS[turn % len(RELATIONS)]
    for tried in count():
        settings = draw_settings(Random(f"{kind.name} {turn // SHARING} {tried}"), kind)
        for _ in range(50):
            case = Case(relation, settings, rng.getrandbits(32), device)
            if case.can_hold():
                return case


def verdict_of(number: int, device=None) -> tuple[str, str]:
    """Run a case: return whether it held, failed or was refused, and why; end if it hangs."""
    case = drawn_case(number, device)
    before = case.image.tobytes()
    faulthandler.dump_traceback_later(500, exit=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            whole = case.denoised()
            case.check_whole(whole)
            for made, expected in results_of(case, whole):
                case.check_equal(made, expected)
        assert case.image.tobytes() == before, "the input was changed"
    except (DenoiseError, ModuleNotFoundError) as error:
        return "refused", f"{type(error).__name__}: {error}"
    except Exception:
        return "FAILED", traceback.format_exc(limit=-4)
    finally:
        faulthandler.cancel_dump_traceback_later()
    return "held", ""


def pytest_generate_tests(metafunc):
    import pytest

    tests = len(gd.FILTERS) * len(TOLERANCES.keys() - ELSEWHERE)
    rest = [pytest.param(n, marks=pytest.mark.thorough) for n in range(tests, SUITE)]
    metafunc.parametrize("number", [*range(tests), *rest])


def test_relations_hold(number, device):
    assert verdict_of(number, device) == ("held", ""), drawn_case(number)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("first", 0), ("cases", SUITE), ("processes", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options, counts, reasons = parser.parse_args(), Counter(), Counter()
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        numbers = range(options.first, options.first + options.cases)
        waiting = {number: pool.apply_async(verdict_of, [number]) for number in numbers}
        for number, one in waiting.items():
            case = drawn_case(number)
            try:
                verdict, why = one.get(timeout=600)
            except multiprocessing.TimeoutError:  # its process ended, and another took its place
                verdict, why = "FAILED", "crashed or hung"
            counts.update((name, verdict) for name in (case.filter.name, case.relation, "all"))
            if verdict == "FAILED":
                print(f"FAILED {number} {case}: {' '.join(why.split())}", flush=True)
            reasons[re.sub(r"[\d.]+", "#", why)] += verdict == "refused"
    for name in [*(kind.name for kind in gd.FILTERS), *TOLERANCES, "all"]:
        print(f"{name:24}", *(f"{v} {counts[name, v]:<6}" for v in ("held", "FAILED", "refused")))
    print(*(f"{count} refused: {why}" for why, count in (+reasons).items()), sep="\n")
    return int(counts["all", "FAILED"] > 0)


if __name__ == "__main__":
    sys.exit(main())
