"""Random images and settings of any filter, with noise that is known; what a result must have.

A case is drawn from its number alone.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import dask.array as da
import numpy as np

import napari_gpu_denoise as gd
from scenes import follows_time, frame, needs_volume, scene, small

KINDS = gd.FILTERS
TOLD, MEASURED = ("number", "planes", "map", "model"), ("auto", "gaussian")
INTEGERS = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8")
#: Of float types: gains and offsets of levels of 0 to 255, up to the ends of the type.
FLOATS = {
    "f2": ((1, 0), (1, -128), (200, 0), (200, -25000), (0.01, 0)),
    "f4": ((1, 0), (1, 1e4), (1e4, -1e6), (1e4, 0), (1e36, 0), (1e36, -1e38), (1e-30, 0)),
    "f8": ((1, 0), (1, 1e9), (1e-12, 0), (1e-12, 1e-6), (1e150, 0), (1e150, 1e154), (1e-200, 0)),
}


@dataclass(frozen=True)
class Relation:
    """What must hold: a function of a case that returns results, alone or with what they equal."""

    name: str
    results: object
    tolerance: float = 0
    first: str = ""  # axes that must be there
    without: str = ""  # axes that must not
    noise: tuple = TOLD + MEASURED
    types: tuple = (*INTEGERS, *FLOATS)
    additive: bool = False  # holds for filters of additive noise only
    in_levels: bool = False  # results are levels of 0 to 255
    large: bool = False  # needs planes that can be cut into tiles
    package: str = "numpy"


def one_of(rng, values):
    return values[int(rng.integers(len(values)))]


def variations(kind) -> list[dict]:
    """Return changes of the settings of a filter, each of which takes another path."""
    specs = [spec for spec in fields(kind) if spec.name != "show"]
    chosen = [{s.name: c} for s in specs for c in s.metadata["choices"] or () if c != s.default]
    around = [{s.name: 1} for s in specs if s.metadata["needs_axis"] and type(s.default) is int]
    around += [{"frames_after": 0}] * follows_time(kind)
    around += [{"channels": "joint", "guide": 0}] * hasattr(kind, "guide")
    return [{}] * 5 + chosen + around * 2


def is_additive(settings: dict) -> bool:
    return not {"pearson", "multiplicative"} & {v for v in settings.values() if type(v) is str}


def draw_level(rng, code: str) -> tuple[float, float]:
    """Draw gain and offset: integers near both ends of the type, and between."""
    if code in FLOATS:
        return one_of(rng, FLOATS[code])
    limits = np.iinfo(code)
    gain = one_of(rng, [1, *(g for g in (100, 10**6, 10**13) if 512 * g < 2**limits.bits)])
    low, high = int(limits.min), int(limits.max) - 255 * gain
    return gain, one_of(rng, [low, high, min(max(low, 0), high), (low + high) // 2])


def spread_of(mode: str, sigma: float, axes: str, clean: np.ndarray) -> np.ndarray:
    """Return the standard deviation of the noise, in a shape that can be broadcast to the image."""
    if mode == "model":
        return np.sqrt(2 * clean + sigma**2 / 4)
    if mode == "map":
        y, x = np.indices(clean.shape[-2:]) / np.array(clean.shape[-2:])[:, None, None]
        spread = sigma * np.where((x < 0.2) & (y < 0.1), 0, 0.6 + x + 0.4 * (y > 0.5))
        return spread.reshape((1,) * (clean.ndim - 2) + spread.shape)
    planes = clean.shape[:-2] if mode == "planes" else (1,) * (clean.ndim - 2)
    # Slices that are filtered together share their noise.
    steps = [k for k, a in zip(np.indices(planes), axes, strict=False) if a != "Z"]
    return sigma * (1 + 0.1 * sum(steps, np.zeros(planes)))[..., None, None]


@dataclass
class Case:
    """A filter and an image: levels of 0 to 255, times a gain, from an offset on."""

    relation: Relation
    filter: object
    axes: str
    dtype: np.dtype
    gain: float
    offset: float
    mode: str
    sigma: float
    own: dict  # options of `denoise`, but for axes and noise
    clean: np.ndarray
    noisy: np.ndarray
    spread: np.ndarray  # of the noise
    rng: np.random.Generator

    @classmethod
    def of(cls, number: int, relations: list[Relation], device=None) -> Case:
        """Draw a case. Filters and relations take turns, all else is random."""
        rng, kind = np.random.default_rng(number), KINDS[number % len(KINDS)]
        relation = relations[number // len(KINDS) % len(relations)]
        changes = one_of(rng, variations(kind))
        if relation.additive and not is_additive(changes):
            changes = {}
        if "C" in relation.without and "channels" in changes:
            changes = {}
        needs = {s.metadata["needs_axis"] or "" for s in fields(kind) if s.name in changes}
        needs |= {"Z" * needs_volume(kind), "T" * follows_time(kind), "C" * ("channels" in changes)}
        needs |= {one_of(rng, ["C", "T", "Q", "", ""])} if len(needs - {""}) < 2 else set()
        outer = [a for a in "QTCZ" if a in needs and a not in relation.first + relation.without]
        axes, settings = "".join([relation.first, *outer, "YX"]), small(kind, **changes)
        sides = frame(settings) if relation.large else rng.integers(33, 62, 2).tolist()
        code, mode = one_of(rng, relation.types), one_of(rng, relation.noise)
        sigma = rng.uniform(6, 20)
        gain, offset = draw_level(rng, code)
        fits = is_additive(changes) and max(gain, 1 / gain, abs(offset)) < 1e5
        mode = mode if fits or mode not in ("model", "gaussian") else "number"
        clean = np.clip(
            scene(*({"T": 4, "Z": 5, "C": 3, "Q": 2}[a] for a in axes[:-2]), *sides), 8, 247
        )
        spread = spread_of(mode, sigma, axes, clean)
        noisy = np.clip(clean + spread * rng.normal(size=clean.shape), 0, 255)
        dtype = np.dtype(code).newbyteorder(one_of(rng, "==>"))
        own = {"device": device, "dtype": one_of(rng, ["auto", "same", "float32"][: 2 + fits])}
        if dtype.kind == "f" and mode in TOLD and rng.random() < 0.2:
            noisy[..., 12:14, 20], own["nonfinite"] = np.nan, "keep"
        levels = relation, settings, axes, dtype, gain, offset
        return cls(*levels, mode, sigma, own, clean, noisy, spread, rng)

    @property
    def names(self) -> tuple[str, str]:
        return self.filter.name, self.relation.name

    def __str__(self) -> str:
        image = f"{self.dtype} {self.axes} {self.clean.shape} x {self.gain:g} + {self.offset}"
        return f"{image}, noise {self.mode}, {self.own}, {self.filter}"

    @cached_property
    def image(self) -> np.ndarray:
        if self.dtype.kind == "f":
            return (self.noisy * self.gain + self.offset).astype(self.dtype)
        # Modulo 2**64 the sum is right for all integers.
        whole = np.rint(self.noisy * self.gain).astype(np.uint64)
        return (whole + np.uint64(self.offset % 2**64)).astype(self.dtype)

    def levels(self, stored: np.ndarray) -> np.ndarray:
        """Return the levels that an image or a result holds."""
        if stored.dtype.kind == "f":
            return (stored.astype(np.float64) - self.offset) / self.gain
        whole = stored.astype(np.uint64) - np.uint64(self.offset % 2**64)
        return whole.astype(np.int64) / self.gain

    def options(self, axes: str | None = None, move=np.asarray, **changes) -> dict:
        """Return the options of `denoise`, also for an image that is moved and has other axes."""
        axes, sigma, gain = axes or self.axes, move(self.spread) * self.gain, self.gain
        if self.mode == "model":
            noise = {"noise": gd.PoissonGaussian(2 * gain, self.sigma / 2 * gain, self.offset)}
        elif self.mode in MEASURED:
            noise = {"noise": self.mode}
        elif self.mode == "planes":
            noise = {"sigma": np.squeeze(sigma, (axes.index("Y"), axes.index("X")))}
        else:
            noise = {
                "sigma": sigma.reshape(sigma.shape[-2:]) if self.mode == "map" else sigma.item(0)
            }
        return self.own | {"axes": axes} | noise | changes

    def denoised(self, image=None, **changes) -> np.ndarray:
        image = self.image if image is None else image
        return gd.denoise(image, self.filter, **self.options(**changes)).image

    @cached_property
    def whole(self) -> np.ndarray:
        return self.denoised()

    def moved(self, move, axes: str = "", first: str = "") -> np.ndarray:
        """Return the result of an image that is moved, and its noise with it."""
        return self.denoised(move(self.image), axes=first + (axes or self.axes), move=move)

    def lazily(self) -> da.Array:
        return gd.denoise_lazy(self.chunked(), self.filter, **self.options())

    def chunked(self) -> da.Array:
        sizes = [int(self.rng.integers((n + 2) // 3, n + 1)) for n in self.image.shape]
        return da.from_array(self.image, chunks=sizes)

    def difference(self, made: np.ndarray, expected: np.ndarray) -> str:
        """Return how far a result is from what it must equal; empty if it is near enough."""
        if (made.shape, made.dtype) != (expected.shape, expected.dtype):
            return f"{made.dtype} {made.shape} in place of {expected.dtype} {expected.shape}"
        if np.array_equal(made, expected, equal_nan=made.dtype.kind == "f"):
            return ""
        levels = np.asarray if self.relation.in_levels else self.levels
        change = np.abs(levels(made) - levels(expected)) / self.sigma
        rms, most, count = np.sqrt(np.nanmean(change**2)), np.nanmax(change), np.sum(change > 0)
        near = rms <= self.relation.tolerance
        return "" if near else f"{count} differ: rms {rms:.3g}, at most {most:.3g} sigma"

    def fault(self) -> str:
        """Return what is wrong with the result of the image by itself."""
        known, whole = np.isfinite(self.noisy), self.whole
        kept = ~known | np.broadcast_to(self.spread == 0, known.shape)
        if not np.isfinite(whole[known]).all():
            return "the result is not finite"
        if not np.array_equal(whole[kept], self.image[kept].astype(whole.dtype), equal_nan=True):
            return "pixels without noise, or not finite, were changed"
        before, after = (
            np.sqrt(np.mean((self.levels(array) - self.clean)[known] ** 2))
            for array in (self.image, whole)
        )
        far = after > before + self.sigma and is_additive(vars(self.filter))
        return f"error of {before:.3g} before and {after:.3g} after" if far else ""
