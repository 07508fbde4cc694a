"""Exact pixelwise NL-means (Goossens et al. 2010; Buades et al. 2005)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from napari_gpu_denoise.filters import volumes
from napari_gpu_denoise.filters.channels import JointFilter
from napari_gpu_denoise.filters.pixels import Launcher
from napari_gpu_denoise.filters.search.frame_links import (
    FrameSearch,
    InRing,
    RingPlan,
    RingTiles,
    frames_setting,
)
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.memory import Arena, constant_buffer
from napari_gpu_denoise.protocol.filter import Context
from napari_gpu_denoise.protocol.plan import Launches, Sizes, TileSigma
from napari_gpu_denoise.protocol.settings import setting
from napari_gpu_denoise.protocol.tiles import Reach, Tile
from napari_gpu_denoise.run.denoise import filter_function

# Vectors of a block on a CPU; work-items of a row of a group on a GPU, and most rows of them.
_VECTORS = 8
_ITEMS = 32
_MOST_GROUP_Y = 2
# Most rows of a block, and most pixels to compare that an item of a GPU can keep in registers.
_MOST_ROWS = {"CPU": 10, "GPU": 8}
_HELD = 104
# Bytes of local memory of a group, and offsets along y for which it should hold pixels.
_LOCAL_BYTES = 49152
_CHUNK = 8


@dataclass(frozen=True)
class Group:
    """How a work-group of a GPU shares its work; see average_columns.cl for the names."""

    group_y: int
    columns: int
    chunk: int
    pair: int
    held: bool

    @classmethod
    def of(cls, settings: NLMeansPixelwise, device: Device, rows: int, planes: int) -> Group | None:
        """Return the work-group for a number of planes; None if they do not fit local memory."""
        offsets, reached = settings.window, rows + settings.patch - 1
        columns = 4 if planes == 1 else 2
        held = reached * columns * planes <= _HELD
        # Offsets that share what they read; with more planes there are too few registers.
        pair = 3 if planes <= 2 else 1
        if not held:
            pair = 2
        elif 8 * (-offsets % pair) > offsets:  # wasted, where the last ones are fewer
            pair = 1
        across = columns * (_ITEMS + 2 * -(-(settings.window // 2) // columns))
        limit = min(device.local_memory, _LOCAL_BYTES)
        most = -(-offsets // pair) * pair
        # As many offsets at a time as fit, but rather fewer items than very few offsets.
        for least in (min(_CHUNK, most), pair):
            for group_y in range(_MOST_GROUP_Y, 0, -1):
                if _ITEMS * group_y > device.max_group:
                    continue
                high = group_y * rows + settings.patch - 1
                taken = 0 if held else 4 * columns * _ITEMS * planes * high
                taken += 0 if device.is_nvidia else 8 * columns * _ITEMS * group_y * rows
                chunk = (limit - taken) // (4 * planes * across) - high + 1
                chunk = min(chunk, most) // pair * pair
                if chunk >= least:
                    return cls(group_y, columns, chunk, pair, held)
        return None


@dataclass(frozen=True)
class Blocks:
    """How the pixels of a tile are shared out.

    A block has `rows` x `width` pixels and begins at multiples of `rows` and of `split` of the
    image. `lanes` is the length of a vector; `group` the work-groups on a GPU, None for the kernel
    of CPUs. `around` is how far the search and a patch reach, `left` how many pixels of a row lie
    before the first that a group compares on a GPU; the first group yields `early` columns too
    many, before the first pixel.
    """

    rows: int
    width: int
    lanes: int
    around: int
    group: Group | None = None
    left: int = 0
    halo: int = 0
    early: int = 0

    @classmethod
    def of(cls, settings: NLMeansPixelwise, device: Device, channels: int) -> Blocks:
        """Return the blocks that suit a device, for channels that are filtered together."""
        radius, window = settings.patch // 2, settings.window // 2
        lanes = device.lanes
        most = _MOST_ROWS["CPU" if lanes > 1 else "GPU"]
        # Whole runs of patches, see column_sums.h.
        rows = settings.patch * (most // settings.patch) or 8
        around = radius + window
        if lanes == 1:
            planes = channels * (2 * settings.patch_slices + 1)
            group = Group.of(settings, device, rows, planes)
            if group is not None:
                columns = group.columns
                halo = -(-radius // columns)
                left = -(-window // columns) * columns
                # In whole items, those columns whose patches a row of items knows.
                width = (columns * _ITEMS - 2 * radius) // columns * columns
                early = columns * halo - radius
                return cls(rows, width, 1, around, group, left, halo, early)
        return cls(rows, lanes * _VECTORS, lanes, around)

    @property
    def split(self) -> int:
        """Parts that rows are split into, see search/pad_far.cl."""
        return self.group.columns if self.group else 1

    def skipped(self, tile: Tile) -> tuple[int, int]:
        """Return the rows and columns that the first block has before a tile."""
        return tile.y.start % self.rows, tile.x.start % self.split

    def counts(self, tile: Tile) -> tuple[int, int]:
        """Return the blocks along y and x; on a GPU whole groups of them."""
        skip_y, skip_x = self.skipped(tile)
        down = -(-(skip_y + tile.y.size) // self.rows)
        if self.group:
            down = -(-down // self.group.group_y) * self.group.group_y
        return down, -(-(self.early + skip_x + tile.x.size) // self.width)

    def shape(self, tile: Tile) -> tuple[int, int]:
        """Return the shape of a frame with room around it."""
        down, across = self.counts(tile)
        room = 2 * self.around + self.lanes
        if self.group:
            room = 2 * self.left + 2 * self.group.columns * self.halo
        return down * self.rows + 2 * self.around, -(-(across * self.width + room) // 4) * 4

    def corner(self, tile: Tile) -> tuple[int, int]:
        """Return the place (y, x) of the first pixel of such a frame in the image."""
        skip_y, skip_x = self.skipped(tile)
        room = self.left + self.group.columns * self.halo if self.group else self.around
        return tile.y.start - skip_y - self.around, tile.x.start - skip_x - room

    def grid(self, tile: Tile) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Return global and local size of the launch that filters a tile."""
        down, across = self.counts(tile)
        frames = tile.frames
        if not self.group:
            return (across, down, frames), (1, 1, 1)
        return (across * _ITEMS, down, frames), (_ITEMS, self.group.group_y, 1)


_WEIGHTS = ("exp", "plain", "bisquare")


class Plan(RingTiles):
    """Kernels and buffers of pixelwise NL-means on one device; belongs to one thread."""

    def __init__(self, settings: NLMeansPixelwise, arena: Arena):
        self.arena, self.settings = arena, settings
        device = arena.device
        self._taps = constant_buffer(arena.session, taps(settings))
        self._constants = {
            "RADIUS": settings.patch // 2,
            "RADIUS_Z": settings.patch_slices,
            "WINDOW": settings.window // 2,
            "WINDOW_Z": settings.slices,
            "BEFORE": settings.frames_before,
            "AFTER": settings.frames_after,
            "GAUSSIAN": settings.patch_shape == "gaussian",
            "WEIGHTS": _WEIGHTS.index(settings.weights),
            "COUNTS": settings.yields_map,
            "NVIDIA": device.float_lanes == 1 and device.is_nvidia,
        }

    def buffers(self, tile: Tile, is_map: bool = False) -> Sizes:
        """Return the buffers for a tile: its frames with room around them."""
        frames = tile.channels * tile.source_shape[0] * tile.source_shape[1]
        return {"spread": 4 * frames * math.prod(self._blocks(tile).shape(tile))}

    def _blocks(self, tile: Tile) -> Blocks:
        return Blocks.of(self.settings, self.arena.device, tile.channels)

    def enqueue(
        self, queue, tile: Tile, source, out, sigma: TileSigma, ring: InRing | None = None
    ) -> Launches:
        settings = self.settings
        nt, nz, ny, nx = tile.shape
        snt, snz, _, snx = tile.source_shape
        at = ring or InRing(0, snt, (0, nt * nz), self.hold(tile))
        blocks = self._blocks(tile)
        pny, pitch = blocks.shape(tile)
        skip_y, skip_x = blocks.skipped(tile)
        run, (top, left) = Launcher(self.arena, queue), blocks.corner(tile)
        run.pad(
            *(source, tile.source_shape, at.held["spread"], (snt, snz, pny, pitch)),
            (0, 0, tile.y.source_start - top, tile.x.source_start - left),
            **{"channels": tile.channels, "split": blocks.split, "ring": (at.first, at.slots)},
            **{"alike": at.alike, "mirrored": (settings.patch // 2, tile)},
        )
        constants = {
            **self._constants,
            "CHANNELS": tile.channels,
            "SIGMA_MAP": sigma.variation is not None,
        }
        constants["ROWS"], more = blocks.rows, {}
        if blocks.group:
            name, more, group = "columns", {"skip_x": skip_x}, blocks.group
            constants |= {"GROUP_Y": group.group_y, "CHUNK": group.chunk, "PAIR": group.pair}
            even = tile.channels == 1 or sigma.even
            constants["EVEN"] = even and not constants["GAUSSIAN"]
            constants |= {"HELD": group.held, "COLUMNS": group.columns}
        else:
            name = "rows"
            constants |= {"WIDTH": blocks.width, "LANES": blocks.lanes}
        first_out, frames_out = at.place
        run.run(
            *("average", self.arena.kernel(f"pixelwise/average_{name}", constants)),
            *blocks.grid(tile),
            **{"spread": at.held["spread"], "snt": snt, "snz": snz},
            **{"pny": pny, "pitch": pitch, "skip": skip_y, **more},
            **{"t0": tile.t.margin, "z0": tile.z.margin},
            **{"z_start": tile.z.source_start, "length_z": tile.z.length},
            **{"nt": nt, "nz": nz, "ny": ny, "nx": nx},
            **{"levels": sigma.levels, "variation": sigma.variation, "map_nx": snx},
            **{"map_y": tile.y.margin, "map_x": tile.x.margin},
            **{"strength": settings.strength, "taps": self._taps, "out": out},
            **{"first_out": first_out, "frames_out": frames_out},
        )
        return run.launches


def taps(settings: NLMeansPixelwise) -> np.ndarray:
    """Return the weights of a patch along y and x, then along z; each sums to 1, or all are 1."""
    made = []
    for width in (settings.patch, 2 * settings.patch_slices + 1):
        weights = np.ones(width)
        if settings.patch_shape == "gaussian":
            places = np.arange(width) - width // 2
            weights = np.exp(-(places**2) / 2)
            weights /= weights.sum()
        made.append(weights)
    return np.concatenate(made).astype(np.float32)


@dataclass(frozen=True)
class NLMeansPixelwise(FrameSearch, JointFilter):
    """Settings of exact pixelwise NL-means.

    Every pixel is replaced by the weighted mean of all pixels in a search window, weighted by the
    similarity of the patches around them.
    """

    name: ClassVar[str] = "nl_means_pixelwise"
    title: ClassVar[str] = "NL-means, pixelwise"
    summary: ClassVar[str] = "Exact pixelwise non-local means: weighted means of single pixels"
    presets: ClassVar[dict[str, dict]] = {
        "exact": {},
        "conventional": {
            **{"patch": 7, "window": 21, "strength": 1.0, "weights": "plain"},
            "patch_shape": "gaussian",
        },
        "goossens": {"patch": 9, "window": 21, "strength": 2.1, "weights": "bisquare"},
        "volume": {
            **{"patch": 3, "patch_slices": 1, "window": 7, "slices": 3, "spacing": "auto"},
        },
    }

    patch: int = setting(5, "Patch width (odd)", bounds=(1, 31), unit="pixels", odd=True)
    window: int = setting(13, "Search window width (odd)", bounds=(1, 101), unit="pixels", odd=True)
    strength: float = setting(
        0.75, "Filtering strength h: decay of the weights", bounds=(0.05, 10.0), unit="sigma"
    )
    weights: str = setting(
        "exp",
        "Weights by the distance d of patches: exp(-max(d - 2 sigma^2, 0) / h^2), plain exp(-d / "
        "h^2), or bisquare (1 - d / h^2)^2 up to h",
        choices=("exp", "plain", "bisquare"),
    )
    patch_shape: str = setting(
        "box",
        "Weights of the pixels within a patch: all equal (box), or Gaussian",
        choices=("box", "gaussian"),
    )
    frames_before: int = frames_setting(0, "Earlier frames to search")
    frames_after: int = frames_setting(0, "Later frames to search; 0 filters without delay")
    slices: int = volumes.slices_setting()
    patch_slices: int = setting(
        0,
        "Slices above and below that belong to a patch",
        bounds=(0, 8),
        unit="slices",
        needs_axis="Z",
    )
    spacing: str = setting(
        "off",
        "Whether slices and patch_slices are lengths in pixels (auto: fewer slices if they are far "
        "apart, as measured in the image or given by the voxel size) or numbers of slices (off)",
        choices=("off", "auto"),
        advanced=True,
    )
    voxel: str = volumes.voxel_setting("the distance of slices")
    channels: str = setting(
        "auto",
        "Filter channels separately, or all with the same weights (joint); auto is joint for RGB "
        "and separate otherwise",
        choices=("auto", "separate", "joint"),
    )
    show: str = setting(
        "image",
        "Output: the denoised image, or the number of pixels averaged",
        choices=("image", "pixels"),
        advanced=True,
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "voxel", volumes.voxel_text(self.voxel))
        super().__post_init__()

    def spaced(self, image: Any, names: str) -> Self:
        """Return the settings with as many slices as they are long in pixels."""
        deep = self.slices or self.patch_slices
        if self.spacing == "off" or not deep or image.shape[names.index("Z")] < 2:
            return self
        ratio, why = volumes.distance_of(image, names, self.voxel)
        slices = max(round(self.slices / ratio), 1) if self.slices else 0
        around = round(self.patch_slices / ratio)
        if (slices, around) == (self.slices, self.patch_slices):
            return self
        # Patches keep about as many voxels: their distances would be the less certain.
        wide = self.patch * math.sqrt((2 * self.patch_slices + 1) / (2 * around + 1))
        patch = min(2 * round((wide - 1) / 2) + 1, 31)
        shape = f"{2 * around + 1}x{patch}x{patch}"
        notes = *self.notes, f"{why}: slices={slices}, patches of {shape} voxels"
        changes = {"slices": slices, "patch_slices": around, "patch": patch, "spacing": "off"}
        return replace(self, **changes, notes=notes)

    def prepare(self, context: Context) -> Self:
        """Return the filter for an array, with its channels and slices."""
        fitting = super().prepare(context).with_channels(context, "joint")
        return fitting if context.image is None else fitting.spaced(context.image, context.names)

    @property
    def joint(self) -> str:
        """Channels that share weights; T and Z, if other frames or slices are looked at."""
        deep = self.slices or self.patch_slices
        return "C" * (self.channels == "joint") + "T" * self.over_time + "Z" * bool(deep)

    @property
    def yields_map(self) -> bool:
        return self.show != "image"

    @property
    def reach(self) -> Reach:
        """The search window and half a patch."""
        around, deep = self.window // 2 + self.patch // 2, self.slices + self.patch_slices
        return Reach.of(around, deep, (self.frames_before, self.frames_after))

    @property
    def offsets(self) -> int:
        """Number of pixels in the search window."""
        frames = self.frames_before + 1 + self.frames_after
        return self.window**2 * (2 * self.slices + 1) * frames

    @property
    def operations_per_pixel(self) -> float:
        """Those of all offsets: sums over patches, weights, and sums."""
        sums = 4.0 * self.patch if self.patch_shape == "gaussian" else 8.0 + self.patch
        return self.offsets * (12.0 + sums * (2 * self.patch_slices + 1))

    def plan(self, arena: Arena) -> Plan | RingPlan:
        tiles = Plan(self, arena)
        return RingPlan(tiles, self.reach.t) if self.over_time else tiles


@filter_function(NLMeansPixelwise)
def nl_means_pixelwise() -> None:
    """Denoise by exact pixelwise NL-means.

    Parameters
    ----------
    {inputs}
    {profile}
        ``"conventional"`` has Gaussian patches of 7 x 7 pixels, a window of 21 and plain weights
        with h = sigma; ``"goossens"`` patches of 9, a window of 21 and bisquare weights;
        ``"volume"`` patches of 3 x 3 x 3 and a window of 7 x 7 x 7 voxels, with fewer slices where
        these are far apart (needs an axis Z).
    axes : str, optional
        Names of the axes, such as ``"TYX"``, ``"ZYX"``, ``"CYX"`` or ``"YXS"``. Y and X are
        filtered; T and Z join with `frames_before`, `frames_after`, `slices` or `patch_slices`,
        channels by `channels`; every other axis is independent. By default the last two are Y and
        X, the rest independent planes.
    {common}

    See Also
    --------
    nl_means : Averages whole patches: 0.2 to 0.5 dB better, and as fast.
    denoise : The same with a record of the run, or for some of the frames.
    stream : The same for frames that arrive one by one.

    Notes
    -----
    The distance d of two patches is the mean of their squared differences over pixels and channels,
    each divided by its noise. Results are means of pixels: they never leave the range of the
    window, and joint channels are averaged by the same weights. Patches are mirrored at the
    borders; pixels outside are not averaged. Other filters have a better PSNR.

    ``show="pixels"`` returns how many pixels are averaged for each, ``(sum of weights)**2 / (sum of
    squared weights)``; 0 where the image has no noise. It is not an error bar.

    For noise that is correlated between pixels use `bm3d`. Other frames and slices are searched at
    the same place; motion is not followed. The work is about ``window**2 * (20 + patch)``
    operations a pixel, times frames and slices. Repeated runs on one device are bit-identical, with
    any tiles.

    References
    ----------
    B. Goossens, H. Luong, J. Aelterman, A. Pižurica and W. Philips, "A GPU-accelerated real-time
    NLMeans algorithm for denoising color video sequences", ACIVS 2010, 46-57,
    :doi:`10.1007/978-3-642-17691-3_5`.

    A. Buades, B. Coll and J.-M. Morel, "A review of image denoising algorithms, with a new one",
    Multiscale Modeling & Simulation 4 (2005), 490-530, :doi:`10.1137/040616024`.

    Examples
    --------
    >>> out = nl_means_pixelwise(image, sigma=20)                        # doctest: +SKIP
    >>> out = nl_means_pixelwise(video, axes="TYX", frames_before=2)     # doctest: +SKIP
    >>> out = nl_means_pixelwise(series, axes="CZYX", channels="joint")  # doctest: +SKIP
    """
