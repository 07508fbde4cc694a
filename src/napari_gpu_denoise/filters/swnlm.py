"""Shapiro-Wilk NL-means (van der Vuurst 2023; Yamanappa et al. 2018)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar

import numpy as np

from napari_gpu_denoise.filters.pixels import Launcher
from napari_gpu_denoise.filters.pixelwise import NLMeansPixelwise
from napari_gpu_denoise.filters.pixelwise import Plan as ExactPlan
from napari_gpu_denoise.filters.search.frame_links import InRing
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.memory import Arena, constant_buffer
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.protocol.plan import Launches, Sizes, TilePlan, TileSigma
from napari_gpu_denoise.protocol.settings import setting
from napari_gpu_denoise.protocol.tiles import Reach, Tile
from napari_gpu_denoise.run.denoise import filter_function

_LARGEST = (0.0, 0.221157, -0.147981, -2.071190, 4.434685, -2.706056)
_SECOND = (0.0, 0.042981, -0.293762, -1.752461, 5.682633, -3.582633)


def _polynomial(coefficients: tuple[float, ...], x: float) -> float:
    return sum(c * x**k for k, c in enumerate(coefficients))


def royston_weights(n: int) -> np.ndarray:
    """Return the weights of the largest of n values, the second largest, and so on to the median.

    Those of the smallest ones are the same, with the other sign; n is at least 6.
    """
    scores = [NormalDist().inv_cdf((n - k - 3 / 8) / (n + 1 / 4)) for k in range(n // 2)]
    m = np.array(scores, np.float64)
    squares = 2 * (m @ m)
    largest = m[0] / math.sqrt(squares) + _polynomial(_LARGEST, n**-0.5)
    second = m[1] / math.sqrt(squares) + _polynomial(_SECOND, n**-0.5)
    rest = squares - 2 * m[0] ** 2 - 2 * m[1] ** 2
    found = m * math.sqrt((1 - 2 * largest**2 - 2 * second**2) / rest)
    found[:2] = largest, second
    return found


def royston_limit(n: int, alpha: float) -> float:
    """Return the W below which n normal values fall with probability alpha; n is at least 4."""
    if alpha <= 0:
        return 0.0
    z = NormalDist().inv_cdf(alpha)
    if n < 12:
        mean = _polynomial((0.5440, -0.39978, 0.025054, -0.0006714), n)
        deviation = math.exp(_polynomial((1.3822, -0.77857, 0.062767, -0.0020322), n))
        return 1 - math.exp(-2.273 + 0.459 * n - math.exp(deviation * z - mean))
    log_n = math.log(n)
    mean = _polynomial((-1.5861, -0.31082, -0.083751, 0.0038915), log_n)
    deviation = math.exp(_polynomial((-0.4803, -0.082676, 0.0030302), log_n))
    return 1 - math.exp(mean - deviation * z)


# Work-items of a group on a GPU, fewest along x, and the local memory that it may take.
_ACROSS, _DOWN, _FEWEST = 32, 4, 8
_LOCAL_BYTES = 40960
# Rows and vectors that a work-item takes on a CPU.
_ROWS = 16
_VECTORS = 4


@dataclass(frozen=True)
class Group:
    """A work-group on a GPU: its shape, and the offsets that it compares at a time."""

    across: int
    down: int
    chunk: int

    @classmethod
    def of(cls, patch: int, window: int, device: Device) -> Group | None:
        """Return the group for a device; None where there is no room for one, and on CPUs."""
        down = _DOWN
        across = min(_ACROSS, device.max_group // down)
        if device.float_lanes > 1 or across < _FEWEST:
            return None
        tile = (across + window + patch - 2) * (down + window + patch - 2)
        sums = (across + window - 1) * (down + window - 1)
        held = 4 * (tile + sums + across * down)
        room = min(device.local_memory, max(_LOCAL_BYTES, held + 8192)) - held
        most = min(room // (4 * down * (across + patch - 1)), 32)
        if most < 1:
            return None
        # All chunks of a row of the window are of about the same size.
        return cls(across, down, -(-window // -(-window // most)))


class Plan(TilePlan):
    """Kernels and buffers of the filter on one device; belongs to one thread.

    `exact` filters pixels that too few resemble; None leaves them as they are.
    """

    def __init__(self, settings: SWNLM, exact: ExactPlan | None, arena: Arena):
        self.arena, self.settings, self.exact = arena, settings, exact
        device = arena.device
        n = settings.patch**2
        self._weights = constant_buffer(arena.session, royston_weights(n).astype(np.float32))
        self._least = np.float32(royston_limit(n, settings.alpha))
        self._limits = _limits(settings)
        self._around = settings.window // 2 + settings.patch // 2
        constants = {
            "PATCH": settings.patch,
            "WINDOW": settings.window,
            "SHOW": settings.yields_map,
        }
        group = Group.of(settings.patch, settings.window, device)
        if group is not None:
            self._block = group.across, group.down
            self._group = (*self._block, 1)
            self._kernel = "swnlm/average_group"
            sizes = {"GROUP_X": group.across, "GROUP_Y": group.down, "CHUNK": group.chunk}
            self._beyond = 0
        else:
            lanes = device.lanes
            self._block = (lanes * _VECTORS, _ROWS)
            self._group = (1, 1, 1)
            self._kernel = "swnlm/average_lanes"
            sizes = {"LANES": lanes, "ROWS": _ROWS, "VECTORS": _VECTORS}
            self._beyond = lanes
        self._constants = {**constants, **sizes}

    def buffers(self, tile: Tile, is_map: bool = False) -> Sizes:
        """Return the buffers for a tile: the image with its surroundings, and sums of patches."""
        pny, pitch = self._padded(tile)
        frames = tile.frames
        sizes = {"swnlm padded": frames, "swnlm sums": frames}
        if is_map:
            sizes["swnlm variation"] = 1
        exact = {} if self.exact is None else self.exact.buffers(tile, is_map)
        return exact | {name: 4 * count * pny * pitch for name, count in sizes.items()}

    def _padded(self, tile: Tile) -> tuple[int, int]:
        """Return the shape of the image with its surroundings, whose rows have whole blocks."""
        across = self._block[0]
        pitch = -(-tile.x.size // across) * across + 2 * self._around + self._beyond
        return tile.y.size + 2 * self._around, pitch

    def enqueue(self, queue, tile: Tile, source, out, sigma: TileSigma) -> Launches:
        held = self.hold(tile, sigma.variation is not None)
        settings, (pny, pitch) = self.settings, self._padded(tile)
        nt, nz, ny, nx = tile.shape
        frames = nt * nz

        run = Launcher(self.arena, queue)

        def mirrored(pixels, name: str, planes: tuple[int, int]):
            run.pad(
                *(pixels, (*planes, *tile.source_shape[2:]), held[name], (*planes, pny, pitch)),
                (0, 0, self._around - tile.y.margin, self._around - tile.x.margin),
                mirrored=(self._around, tile),
            )
            return held[name]

        if self.exact is not None:
            # The others are overwritten.
            alone = InRing(0, nt, (0, frames), held)
            run.launches += self.exact.enqueue(queue, tile, source, out, sigma, alone)
        padded, variation = mirrored(source, "swnlm padded", (nt, nz)), None
        if sigma.variation is not None:
            variation = mirrored(sigma.variation, "swnlm variation", (1, 1))
        run.over_pixels(
            *("sums", self.arena.kernel("swnlm/sum_patches", {"PATCH": settings.patch})),
            *(pitch, pny, frames),
            **{"padded": padded, "pny": pny, "pitch": pitch, "sums": held["swnlm sums"]},
        )
        constants = {**self._constants, "SIGMA_MAP": variation is not None}
        blocks = (-(-nx // self._block[0]), -(-ny // self._block[1]), frames)
        run.run(
            *("similar", self.arena.kernel(self._kernel, constants)),
            tuple(n * size for n, size in zip(blocks, self._group, strict=True)),
            self._group,
            **{"padded": padded, "sums": held["swnlm sums"], "pny": pny, "pitch": pitch},
            **{"ny": ny, "nx": nx, "levels": sigma.levels, "variation": variation},
            **{"weights": self._weights, "limits": self._limits, "least": self._least},
            **{"fewest": settings.fewest, "keep": self.exact is None, "out": out},
        )
        return run.launches


# What lonely pixels fall back to.
_EXACT = NLMeansPixelwise(channels="separate")


def _limits(settings: SWNLM) -> np.ndarray:
    """Return the limits of the tests of mean and deviation, as normality.h takes them."""
    n = settings.patch**2
    error = settings.widen / settings.patch
    largest = (n / (1 - error)) ** 2 if error < 1 else math.inf
    return np.array([settings.widen**2, (n / (1 + error)) ** 2, largest, 0], np.float32)


@dataclass(frozen=True)
class SWNLM(Filter):
    """Settings of NL-means with the Shapiro-Wilk settings.

    Pixels of a window are averaged if the differences of their patches have the mean, the standard
    deviation and the distribution of noise.
    """

    name: ClassVar[str] = "swnlm"
    title: ClassVar[str] = "Shapiro-Wilk NL-means"
    summary: ClassVar[str] = "Mean of pixels whose patches differ like noise, by statistical tests"
    presets: ClassVar = {
        "normal": {},
        "paper": {"patch": 7, "fewest": 1, "fallback": "keep"},
    }

    patch: int = setting(5, "Patch width (3, 5 or 7)", choices=(3, 5, 7), unit="pixels")
    window: int = setting(21, "Search window width (odd)", bounds=(3, 41), unit="pixels", odd=True)
    alpha: float = setting(
        0.05,
        "Probability of rejecting patches that differ by noise alone, in the Shapiro-Wilk test; 0 "
        "turns the test off",
        bounds=(0.0, 0.5),
    )
    widen: float = setting(
        1.0,
        "Limits for the tests of mean and standard deviation: larger values average more pixels",
        bounds=(0.5, 4.0),
        unit="standard errors",
    )
    fewest: int = setting(
        8, "Minimum number of similar pixels; with fewer, the fallback applies", bounds=(1, 400)
    )
    fallback: str = setting(
        "exact",
        "Result for a pixel with too few similar ones: that of exact pixelwise NL-means with "
        "default settings (exact), or the noisy pixel (keep)",
        choices=("exact", "keep"),
    )
    show: str = setting(
        "image",
        "Output: the denoised image, or the number of pixels averaged (1 where none was similar)",
        choices=("image", "pixels"),
        advanced=True,
    )

    @property
    def reach(self) -> Reach:
        """Half a window and half a patch, or those of the fallback."""
        each = self.window // 2 + self.patch // 2
        return Reach.of(max(each, _EXACT.reach.y[0]) if self._falls_back else each)

    @property
    def yields_map(self) -> bool:
        return self.show != "image"

    @property
    def _falls_back(self) -> bool:
        """Whether exact NL-means is needed."""
        return self.fallback == "exact" and not self.yields_map

    @property
    def operations_per_pixel(self) -> float:
        """About 35 for each pixel of the window; a third of the patches is sorted."""
        exchanges = {3: 26, 5: 138, 7: 383}[self.patch]
        exact = _EXACT.operations_per_pixel if self._falls_back else 0.0
        return exact + self.window**2 * (35.0 + 0.7 * exchanges)

    def plan(self, arena: Arena) -> Plan:
        exact = ExactPlan(_EXACT, arena) if self._falls_back else None
        return Plan(self, exact, arena)


@filter_function(SWNLM)
def swnlm() -> None:
    """Denoise by averaging pixels whose patches differ like noise.

    Parameters
    ----------
    {inputs}
    {profile}
        ``"paper"`` is the filter as published, ``patch=7, fewest=1, fallback="keep"``.
    axes : str, optional
        Names of the axes, such as ``"TZYX"``, ``"CYX"`` or ``"YXS"``. Y and X are filtered, each
        plane separately. By default the last two are Y and X, the rest independent planes.
    {common}

    See Also
    --------
    nl_means_pixelwise : Exact NL-means, which `fallback` uses: better, and faster.
    nl_means : Averages whole patches: better.

    Notes
    -----
    The differences of two patches, divided by the standard deviation that noise alone would give
    them, are tested three times: their mean and their standard deviation must be within ``widen``
    standard errors of 0 and 1, and their Shapiro-Wilk statistic W above the limit for ``alpha``. W
    is the weight of a pixel that passes; a pixel itself has the largest weight of the others. The
    image is mirrored at its borders. Results are means of noisy pixels: they never leave the range
    of the image. Repeated runs on one device are bit-identical, with any tiles. ``show="pixels"``
    returns how many pixels are averaged, 1 where none is similar, 0 where there is no noise.

    W hardly matters: it rejects one in twenty of the patches that pass the other tests, as for pure
    noise, and without it (``alpha=0``) results are slightly better.

    References
    ----------
    B. van der Vuurst, "Efficient implementation of Non Local Means algorithm", University of
    Groningen, 2023, section 2.3 and algorithm 3.

    W. Yamanappa, P. V. Sudeep, M. K. Sabu and J. Rajan, "Non-local means image denoising using
    Shapiro-Wilk similarity measure", IEEE Access 6 (2018), 66914-66922.

    P. Royston, "Remark AS R94: A remark on algorithm AS 181: The W-test for normality", Applied
    Statistics 44 (1995), 547-551.

    Examples
    --------
    >>> out = swnlm(image, sigma=20)                                       # doctest: +SKIP
    >>> out = swnlm(image, profile="paper")                                # doctest: +SKIP
    """
