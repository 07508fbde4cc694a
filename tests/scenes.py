"""Synthetic images, and small settings of any filter, for the tests."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

import napari_gpu_denoise as gd
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.noise.models import Correlated, CorrelatedPhotons
from napari_gpu_denoise.opencl.device import choose
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.program import session
from napari_gpu_denoise.protocol.filter import Context
from napari_gpu_denoise.protocol.settings import setting_fields
from napari_gpu_denoise.run.flow import tile_flow
from napari_gpu_denoise.run.request import Limits

_TABLE = np.exp(-np.add.outer(np.arange(5) ** 2, 3 * np.arange(5) ** 2) / 5)
# One of each noise model. Those of STABILISED have kernels of their own.
NOISE_MODELS = (
    gd.Gaussian(3.0),
    Correlated(4.5, _TABLE),
    gd.PoissonGaussian(0.28, 3.1, 14.7),
    CorrelatedPhotons(2.0, 3.0, 1.0, autocorrelation=_TABLE, shared=0.5),
    gd.SignalDependent((20.0, 60.0, 100.0, 150.0, 190.0), (2.2, 3.0, 9.0, 6.0, 7.4)),
    gd.Rician(6.5),
    gd.Speckle(4.0, least=0.18),
)
STABILISED = [each for each in NOISE_MODELS if not (each.additive or each.models_correlation)]

# Every file is taken for a large one, of small parts, and a moment of work is worth to be kept.
SMALL_PARTS = Limits(0, 1, 1, 1 << 10, 0.0)

# Settings small enough for quick tests; those of a filter that is not listed keep their defaults.
SMALL = {
    "nl_means": {"patch": 4, "step": 2, "window": 7, "neighbours": 4},
    "nl_means_pixelwise": {"patch": 3, "window": 7},
    "bm3d": {
        **{"step_basic": 4, "window_basic": 9, "neighbours_basic": 4},
        **{"step_final": 4, "window_final": 7, "neighbours_final": 4},
    },
    "bm4d": {
        **{"step_basic": 4, "window_basic": 5, "neighbours_basic": 4},
        **{"step_final": 4, "window_final": 5, "neighbours_final": 4},
    },
    "swnlm": {"patch": 3, "window": 7},
    # Frames stay at their defaults, which alone need no axis T.
    "vbm3d": {
        **{"window_nearest": 5, "step_basic": 4, "neighbours_basic": 4},
        **{"step_final": 4, "neighbours_final": 4},
    },
}


def small(filter_class, **changes):
    """Return settings of a filter that need little work."""
    return filter_class(**{**SMALL.get(filter_class.name, {}), **changes})


def altered(settings, **attributes):
    """Return the same settings of a filter that differs in attributes of its class."""
    kind = type(settings)
    given = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    return type(kind.__name__, (kind,), attributes)(**given)


def first_pass(settings):
    """Return the settings of a filter that ends after its first pass."""
    return altered(settings, stages=("basic",))


def prepared(settings, axes: str = "YX", shape=None, noise=(), image=None):
    """Return a filter prepared for an image of some shape, by default a large one."""
    lengths = {"C": max(len(noise), 1), "S": 3, "T": 9, "Z": 9}
    shape = shape or tuple(lengths.get(axis, 512) for axis in axes)
    return settings.prepare(Context(axes, tuple(shape), tuple(noise), image))


def joining(filter_class, axes: str, count: int = 1, **changes):
    """Return small settings that look so many frames or slices to each side, along axes named."""
    wanted = {
        s.name: count
        for s in setting_fields(filter_class)
        if (s.metadata["needs_axis"] or " ") in axes and type(s.default) is int
    }
    return small(filter_class, **{**wanted, **changes})


def follows_time(filter_class) -> bool:
    """Return whether a filter looks along T whatever its settings: that axis must then be named."""
    return "T" in filter_class().joint


def needs_volume(filter_class) -> bool:
    """Return whether a filter works on volumes alone: the axis Z must then be there."""
    return "Z" in filter_class().joint


def filters_and_axes():
    """Yield each filter with axes, and with T or channels in front where it makes use of them."""
    for kind in FILTERS:
        axes = "ZYX" if needs_volume(kind) else "YX"
        yield kind, axes
        if kind.name in ("vbm3d", "bm4d", "nl_means"):
            yield kind, f"T{axes}"
        if hasattr(kind, "channels"):
            yield kind, f"C{axes}"


IMAGE_FILTERS = tuple(kind for kind in FILTERS if not needs_volume(kind))


def with_slices(kind, image, axes, sigma=None):
    """Return image, axes and sigma with an axis Z of one slice before all others, if it is needed.

    The last value returned says whether it was put there.
    """
    names = axes or "." * (np.ndim(image) - 2) + "YX"
    if not needs_volume(kind) or "Z" in names:
        return image, axes, sigma, False
    places = [names.index(a) for a in "YX"]
    planes = tuple(np.delete(np.shape(image), places))
    if np.ndim(sigma) > 1 and np.shape(sigma) == planes:
        sigma = np.asarray(sigma)[None]
    return image[None] if hasattr(image, "shape") else [image], "Z" + names, sigma, True


def frame(settings) -> tuple[int, int]:
    """Return a height and width of which `cut` makes tiles, however far the filter looks."""
    # Tiles have 4096 pixels at least.
    return max(57 + 3 * sum(settings.reach.y), 3 * 4096 // 71 + 5), 71


def bytes_per_pixel(settings, is_map: bool = False, channels: int = 1) -> float:
    """Return the device memory that a pixel of a tile takes on the device that is chosen."""
    arena = Arena(session(choose(None)))
    return tile_flow.bytes_per_pixel(settings.plan(arena), settings, channels, is_map)


def cut(settings, is_map: bool = False, slices: int = 1) -> int:
    """Return a memory limit that cuts a `frame` in three or more; a volume has so many slices."""
    rows, columns = frame(settings)
    pixels = (math.ceil(rows / 3) + sum(settings.reach.y)) * columns
    # A filter for correlated noise has models, without which none can be made.
    kind = next(one for one in FILTERS if isinstance(settings, one))
    pixels *= slices if needs_volume(kind) else 1
    return math.ceil(max(pixels, 4096) * bytes_per_pixel(settings, is_map))


class Stored:
    """An array that is not in memory: it is read and written by NumPy indexing."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __getitem__(self, index):
        return self.array[index]

    def __setitem__(self, index, values):
        self.array[index] = values


def scene(*shape: int) -> np.ndarray:
    """Return a clean image, 30 to 220: shading, edges, texture; it moves from plane to plane."""
    *outer, ny, nx = shape
    y, x = np.arange(ny, dtype=np.float64)[:, None], np.arange(nx, dtype=np.float64)
    down, texture = np.cos(y / 13), 20 * np.sin(0.9 * x + 0.4 * y) * (y > 0.6 * ny)
    planes = []
    for k in range(int(np.prod(outer, dtype=int))):
        clean = 110 + 30 * np.sin((x + k) / 17) * down
        clean += 40 * (((x + k) // 19 + y // 14) % 2)
        clean += texture
        planes.append(clean)
    return np.reshape(planes, shape)


def noisy(*shape: int, sigma: float = 20.0, seed: int = 0, dtype="float32") -> np.ndarray:
    """Return the scene with white Gaussian noise; integers are rounded and clipped."""
    noise = np.random.default_rng(seed).normal(0, sigma, shape)
    image = scene(*shape) + noise
    if np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        image = np.clip(np.rint(image), max(limits.min, 0), min(limits.max, 255))
    return image.astype(dtype)


def psnr(image: np.ndarray, clean: np.ndarray, peak: float = 255.0) -> float:
    """Return the peak signal-to-noise ratio in dB."""
    error = np.mean((np.asarray(image, np.float64) - clean) ** 2)
    return float(10 * np.log10(peak**2 / error))
