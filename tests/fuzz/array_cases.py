"""Arrays and arguments, right and wrong, for the functions that take arrays."""

from __future__ import annotations

import threading
from random import Random
from typing import Any

import dask.array as da
import numpy as np

import napari_gpu_denoise as gd
from fuzz.watching import Case, Loss
from napari_gpu_denoise.protocol.settings import setting_fields
from scenes import SMALL

NAN, INF = float("nan"), float("inf")
DTYPES = (
    *("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", ">u2", ">f4", ">i8"),
    *("?", "g", "c8", "O", "S3", "U2", "M8[s]", "m8[s]", "V3", "i4,f4"),
)
SHAPES = ((12, 14), (9, 16), (3, 12, 14), (12, 14, 3), (2, 2, 9, 9), (1, 2, 1, 8, 8))
ODD_SHAPES = (
    *((1, 14), (14, 1), (1, 1), (3, 500), (500, 2), (0, 5), (5, 0), (17, 17, 4), (0, 12, 14)),
    *((1, 1, 1, 1), (), (5,), (0,), (2, 1, 8, 8, 1), (1,) * 7),
)
AXES = {
    2: (None, None, "YX", "yx", "XY", " YX "),
    3: (None, "TYX", "ZYX", "CYX", "YXC", "YXS", "YTX", "QYX", ".YX"),
    4: (None, "TZYX", "TCYX", "..YX", "CZYX", "YXTC"),
    5: (None, "TZCYX", "TZYXS"),
}
WRONG_AXES = ("YY", "TX", "", "Y", "YXYX", "ÄX", 5, b"YX", ["Y", "X"], "TZCYXS", "TYX", "YX")
JUNK = (
    *(None, "x", "", -1, 0, 1, 0.5, 10**9, 10**400, NAN, INF, -INF, 1j, True, False, b"x", [], {}),
    *([1, 2], {"a": 1}, object(), np.zeros(0), np.ones((2, 2)), np.float32(3), "1e999"),
    *(2**63, "\0", "ä", slice(None), Ellipsis, lambda *given: None),
)
WORDS = {
    "noise": ("auto", "gaussian", "poisson-gaussian", "rician", "speckle", 5.0),
    "dtype": ("same", "float32", "uint8", "i2", ">f4", "f2", "u8", "f8", np.int16),
    "nonfinite": ("keep", "keep", "keep", "raise"),
    "memory_limit": (1, 100, "200k", "1M", "64M", "64M", 1e6, np.int64(10**7), "1.5 MB"),
    "sigma": (0, 10, 10, 10.0, 3, 25, 1e-300, 5e-324, 1e300, [10], [5, 6], [1, 2, 3], None),
}


def pixels(rng: Random, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return pixels of any type, often with values at the ends of their range."""
    values = np.random.default_rng(rng.randrange(2**32))
    kind = rng.randrange(12)
    image = values.normal(120, 30, shape) if kind > 1 else np.full(shape, 7.0 * kind)
    if kind == 2:
        image = image * rng.choice((1e300, 1e30, 1e-30, 1e-310, 1e18, -1e9, 1e-7))
    elif kind == 3:
        image = image * 1e-3 + rng.choice((1e9, -1e15, 1e5))
    spoilt = values.random(shape) < rng.choice((0.02, 0.5, 1.1))
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            image = image.astype(dtype)
        if kind in (4, 5, 6) and image.size:
            most = np.finfo(dtype).max
            image[spoilt] = rng.choice((NAN, INF, -INF, most, -most, -0.0))
        return image
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if kind in (4, 5):
            return values.integers(limits.min, limits.max, shape, dtype.newbyteorder("="), True)
        with np.errstate(invalid="ignore"):
            return np.clip(image, float(limits.min), float(limits.max)).astype(dtype)
    try:
        return np.clip(image, 0, 255).astype(np.uint8).astype(dtype)
    except (TypeError, ValueError):
        return np.zeros(shape, dtype)


def some_shape(rng: Random) -> tuple[int, ...]:
    """Return a shape, now and then an odd one."""
    return rng.choice(SHAPES if rng.randrange(4) else ODD_SHAPES)


def array(rng: Random, shape: tuple[int, ...] | None = None) -> Any:
    """Return an image as users may hold it: an array in some layout, a list, dask, or no image."""
    if rng.randrange(25) == 0:
        return rng.choice(JUNK)
    shape = some_shape(rng) if shape is None else shape
    common = rng.randrange(6) > 0
    dtype = np.dtype(rng.choice(DTYPES[:13] if common else DTYPES))
    image = np.asarray(pixels(rng, shape, dtype)).astype(dtype)
    way = rng.randrange(14)
    if way == 0:
        return np.asfortranarray(image)
    if way == 1 and image.ndim:
        return image[::-1]
    if way == 2:
        return image.tolist()
    if way == 3 and dtype.kind not in "OV":
        return da.from_array(image, chunks=rng.choice((-1, 5)))
    if way == 4:
        image.flags.writeable = False
    if way == 5:
        return np.ma.masked_array(image, np.zeros(image.shape, bool))
    if way == 6 and dtype.kind in "iuf" and image.size:
        return np.ma.masked_array(image, np.arange(image.size).reshape(image.shape) == 0)
    if way == 7 and image.ndim == 2 and dtype.kind in "iuf":
        return np.asmatrix(image)
    return image


def argument(rng: Random, name: str, image: Any) -> Any:
    """Return a value of the right kind for an argument."""
    if name == "noise" and rng.randrange(2):
        return model(rng)
    if name == "axes":
        return rng.choice(AXES.get(len(getattr(image, "shape", "YX")), (None,)))
    if name == "device":
        return gd.choose().index if rng.randrange(2) else None
    return rng.choice(WORDS[name])


def model(rng: Random) -> Any:
    """Return a noise model or several; some are refused when they are made."""
    values = (0, 1, 3.5, 20, 1e-12, 1e12, 1e-200, 1e200, -1, NAN, "x")
    one = rng.choice(values)
    kinds = (
        lambda: gd.Gaussian(one),
        lambda: gd.Rician(one),
        lambda: gd.Speckle(one),
        lambda: gd.PoissonGaussian(one, rng.choice(values), rng.choice(values)),
    )
    made = rng.choice(kinds)()
    return rng.choice((made, made, (made,), [made, made], (made, 5), ()))


def some_filter(rng: Random) -> Any:
    """Return a filter with small settings, now and then none; wrong settings are refused here."""
    if rng.randrange(25) == 0:
        return rng.choice((*JUNK, gd.NLMeans, "nl_means"))
    kind, given = some_settings(rng)
    return kind.of(**given)


def some_settings(rng: Random) -> tuple[type, dict[str, Any]]:
    """Return a class of filters and settings, few of them right, so that few kernels are built."""
    kind = rng.choice((gd.NLMeans, gd.NLMeans, gd.NLMeans, *gd.FILTERS))
    given = dict(SMALL.get(kind.name, {}))
    also = {
        "nl_means": ({}, {}, {"frames_before": 1}, {"slices": 1}, {"rician": True}),
        "vbm3d": ({"frames_before": 1, "frames_after": 1},),
    }
    given |= rng.choice(also.get(kind.name, ({},)))
    if rng.randrange(15) == 0:
        names = [field.name for field in setting_fields(kind)]
        given[rng.choice((*names, "unknown"))] = rng.choice(JUNK)
    return kind, given


def image_for(rng: Random, joint: str) -> Any:
    """Return an image that mostly has the axes that a filter joins."""
    return array(rng, (3, 9, 14) if joint and rng.randrange(6) else None)


def options(rng: Random, names: tuple[str, ...], image: Any, joint: str = "") -> dict[str, Any]:
    """Return some options, in a third of all cases one that is wrong.

    Sigma is mostly given, since a measurement takes longer. `joint` names an axis that is needed.
    """
    given = {}
    for name in names:
        often = {"sigma": 5, "axes": 3}.get(name, 1)
        if rng.randrange(6) < often:
            given[name] = argument(rng, name, image)
    if "sigma" in names and "noise" not in given:
        given.setdefault("sigma", 10)
    if joint and "axes" in names and np.shape(image) == (3, 9, 14):
        given["axes"] = f"{joint[0]}YX"
    if rng.randrange(3) == 0:
        name = rng.choice(names)
        given[name] = rng.choice((*JUNK, *WRONG_AXES) if name == "axes" else JUNK)
    return given


RUN = ("sigma", "axes", "noise", "dtype", "nonfinite", "memory_limit", "device")


def some_call(rng: Random) -> tuple[Any, Any, dict[str, Any]]:
    """Return a filter, an image and options, as `denoise` takes them."""
    filter = some_filter(rng)
    image = image_for(rng, joint_of(filter))
    return filter, image, options(rng, RUN, image, joint_of(filter))


def denoise_case(rng: Random) -> Case:
    """Call `gd.denoise`, or the function of a filter, with frames and an array for the result."""
    filter, image, given = some_call(rng)
    by_name = isinstance(filter, gd.FILTERS) and rng.randrange(3) == 0
    if by_name and rng.randrange(6) == 0:
        stopped = threading.Event()
        stopped.set()
        name = rng.choice(("cancel", "progress", "profile", "settings"))
        given[name] = rng.choice((stopped, *JUNK))
    elif not by_name and rng.randrange(4) == 0:
        given["axes"] = {2: "YX", 3: "TYX", 4: "TCYX"}.get(np.ndim(image))
        some = (0, 1, -1, 5, slice(None), slice(1), slice(0, 0), slice(None, None, -1), [0])
        wrong = (np.int64(1), slice("a"), slice(0.5), *JUNK)
        given["frames"] = rng.choice(rng.choice((some, some, wrong)))
    if rng.randrange(6) == 0:
        given["out"] = result_array(rng, image)

    def run() -> None:
        before = copied(image)
        shared = isinstance(image, np.ndarray) and given.get("out") is image
        if by_name:
            own = {} if "settings" in given else {"settings": filter}
            out = getattr(gd, filter.name)(image, **own, **given)
            out = out.compute(scheduler="synchronous") if isinstance(out, da.Array) else out
        else:
            result = gd.denoise(image, filter, **given)
            out = result.image
            repr(result.record.as_dict())
        if given.get("out") is not None and out is not given["out"]:
            raise Loss("the result is not in out=")
        check(None if shared else image, before, out, given, is_biased(filter))

    return Case(f"denoise{' by name' * by_name}({shown(image)}, {filter}, **{given})", run)


def joint_of(filter: Any) -> str:
    """Return the axis that a filter needs besides Y and X; none if it is no filter."""
    joint = getattr(filter, "joint", "")
    return joint.strip("C") if isinstance(joint, str) else ""


def result_array(rng: Random, image: Any) -> Any:
    """Return an array for a result: one that fits, or one that does not."""
    try:
        fitting = np.zeros(np.shape(image), getattr(image, "dtype", np.float64))
    except (TypeError, ValueError):
        return np.zeros((12, 14))
    locked = fitting.copy()
    locked.flags.writeable = False
    wrong = (np.zeros((3, 3)), np.zeros(fitting.shape, "c8"))
    chunked = da.zeros((12, 14))
    junk = [one for one in JUNK if not callable(one)]  # a function is asked for an array
    return rng.choice((fitting, fitting, locked, image, fitting.T, *wrong, chunked, *junk))


def lazy_case(rng: Random) -> Case:
    """Call `gd.denoise_lazy` and compute its result."""
    filter, image, given = some_call(rng)
    if isinstance(image, np.ndarray) and image.dtype.kind not in "OV" and rng.randrange(2):
        image = da.from_array(image, chunks=rng.choice((-1, 5, 1)))

    def run() -> None:
        lazy = gd.denoise_lazy(image, filter, **given)
        out = lazy.compute(scheduler="synchronous")
        if (lazy.shape, lazy.dtype) != (out.shape, out.dtype):
            raise Loss(f"{lazy} computes to {shown(out)}")
        check(image, copied(image), out, given, is_biased(filter))

    return Case(f"denoise_lazy({shown(image)}, {filter}, **{given})", run)


def stream_case(rng: Random) -> Case:
    """Call `gd.stream` with frames that may differ."""
    filter = some_filter(rng)
    shape = some_shape(rng)
    first = array(rng, shape)
    frames: Any = [first] * rng.choice((0, 1, 2, 3))
    if frames and rng.randrange(6) == 0:
        frames.append(array(rng, rng.choice((shape, shape, (5, 5)))))
    if rng.randrange(20) == 0:
        frames = rng.choice(JUNK)
    given = options(rng, RUN, first)
    if "T" in str(given.get("axes")) and rng.randrange(8):
        given["axes"] = None  # of one frame
    if rng.randrange(8) == 0:
        given["sigma"] = rng.choice((lambda n: 10, lambda n: [n, n], lambda n: None, lambda n: "x"))
    if rng.randrange(4) == 0:
        given["live"] = rng.choice(JUNK) if rng.randrange(6) == 0 else True

    def run() -> None:
        outs = list(gd.stream(filter, frames, **given))
        if len(outs) != len(frames):
            raise Loss(f"{len(outs)} results of {len(frames)} frames")
        for frame, out in zip(frames, outs, strict=True):
            check(frame, copied(frame), out, given, is_biased(filter))

    told = list(map(shown, frames)) if isinstance(frames, list) else frames
    return Case(f"stream({filter}, {told}, **{given})", run)


def estimate_case(rng: Random) -> Case:
    """Call `gd.estimate_noise`, and use what it returns."""
    image = array(rng)
    given = options(rng, ("axes", "device"), image)
    if rng.randrange(3) == 0:
        given["model"] = rng.choice((*WORDS["noise"], *JUNK))

    def run() -> None:
        before = copied(image)
        found = gd.estimate_noise(image, **given)
        found.summary(), found.verdict()
        again = gd.NoiseEstimate.from_dict(found.as_dict())
        if again.as_dict() != found.as_dict():
            raise Loss("the estimate changes when it is written and read")
        if not all(np.isfinite(found.sigma)) or min(found.sigma) < 0:
            raise Loss(f"sigma is {found.sigma}")
        unchanged(image, before)

    return Case(f"estimate_noise({shown(image)}, **{given})", run)


def is_biased(filter: Any) -> bool:
    """Return whether a filter corrects the bias of Rician noise."""
    return getattr(filter, "rician", False)


def shown(image: Any) -> str:
    """Return an image in a few words."""
    if not hasattr(image, "dtype") or not hasattr(image, "shape"):
        return repr(image)[:80]
    ends = ""
    if getattr(image, "size", 0) and image.dtype.kind in "iuf" and isinstance(image, np.ndarray):
        ends = f" {np.min(image)}…{np.max(image)}"
    return f"<{type(image).__name__} {image.shape} {image.dtype}{ends}>"


def copied(image: Any) -> Any:
    """Return a copy of an array in memory, to see whether it is changed."""
    return image.copy() if isinstance(image, np.ndarray) else None


def unchanged(image: Any, before: Any) -> None:
    """Raise `Loss` if an image was changed."""
    if before is None or image is None or before.dtype.kind == "O":
        return
    if np.ma.getdata(image).tobytes() != np.ma.getdata(before).tobytes():
        raise Loss("the input was changed")


def check(image: Any, before: Any, out: Any, given: dict[str, Any], biased: bool = False) -> None:
    """Raise `Loss` if a result is not of the shape, type and rough range of its image.

    `biased` says that the filter corrects a bias, which moves all grey levels.
    """
    unchanged(image, before)
    image = np.asarray(image if before is None else before)
    if not hasattr(out, "shape"):
        raise Loss(f"the result is {out!r}")
    frames = given.get("frames")
    if frames is None and out.shape != image.shape:
        raise Loss(f"a result of shape {out.shape} for {image.shape}")
    wanted = given.get("dtype")
    if not isinstance(wanted, (str, type(None))) and wanted is not np.int16:
        return
    same = wanted in (None, "same")
    dtype = image.dtype.newbyteorder("=") if same else np.dtype(wanted)
    # Where rounding would cost quality, the result of integers is float32.
    kept = wanted is None and dtype.kind in "iu" and out.dtype == np.float32
    kept |= wanted is None and "out" in given  # whose type it then has
    if out.dtype not in (dtype, dtype.newbyteorder("=")) and not kept:
        raise Loss(f"a result of type {out.dtype} instead of {dtype}")
    out = np.asarray(out)
    if "out" in given:
        return
    if frames is None and image.dtype.kind == out.dtype.kind == "f":
        bad = ~np.isfinite(image)
        if not np.array_equal(np.isfinite(out), ~bad):
            raise Loss(f"{np.count_nonzero(~np.isfinite(out) & ~bad)} results are not finite")
        if not np.array_equal(image[bad], out[bad].astype(image.dtype), equal_nan=True):
            raise Loss("NaN or infinity was not kept")
    if frames is None and given.get("noise") is None and image.size and same and not biased:
        known = image[np.isfinite(image)].astype(np.longdouble)
        if known.size:
            span = known.max() - known.min()
            found = out[np.isfinite(out)].astype(np.longdouble)
            # Filters average, up to overshoots and the rounding of float32.
            room = span + np.abs(known).max() * 1e-6
            if found.size and (
                found.max() > known.max() + room or found.min() < known.min() - room
            ):
                raise Loss(f"results of {found.min()}…{found.max()}")
    kept = isinstance(given.get("sigma"), int) and given["sigma"] == 0
    equal = frames is not None or np.array_equal(image, out, equal_nan=image.dtype.kind == "f")
    if kept and same and not equal:
        raise Loss("sigma is 0, and pixels were changed")
