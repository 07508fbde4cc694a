"""Patchwise NL-means (Davy and Ehret 2020, section 2.1, algorithms 1 and 4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.pixels import Launcher
from napari_gpu_denoise.filters.search.frame_links import (
    FrameSearch,
    InRing,
    RingPlan,
    RingTiles,
    frames_setting,
)
from napari_gpu_denoise.filters.search.patch_search import Grid, PatchSearch, SearchSettings
from napari_gpu_denoise.filters.volumes import slices_setting
from napari_gpu_denoise.noise.models import NoiseModel, Rician
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.filter import Context
from napari_gpu_denoise.protocol.plan import Launches, Sizes, TileSigma
from napari_gpu_denoise.protocol.settings import setting, within_bounds
from napari_gpu_denoise.protocol.tiles import Reach, Tile
from napari_gpu_denoise.run.denoise import filter_function
from napari_gpu_denoise.run.noise import measured_noise

if TYPE_CHECKING:
    from napari_gpu_denoise.noise.record import NoiseEstimate


class Plan(RingTiles):
    """Kernels and buffers of NL-means on one device; belongs to one thread."""

    def __init__(self, settings: NLMeans, arena: Arena):
        self.arena, search = arena, settings.search
        self.search = PatchSearch(search, arena)
        self._settings = settings
        self._group = _average_group(search, arena.device)
        squares = {"SQUARES": settings.rician}
        self._constants = {
            **self.search.constants,
            "WINDOW": search.window,
            **self._group,
            **squares,
        }
        self._aggregate = arena.kernel(
            "nl_means/aggregate_patches", {"PATCH": search.patch, "STEP": search.step, **squares}
        )

    def buffers(self, tile: Tile, is_map: bool = False) -> Sizes:
        """Return the buffers for a tile: those of the search, and the estimates of all patches."""
        patch, step = self.search.settings.patch, self.search.settings.step
        references = math.prod(Grid.of(span, patch, step).count for span in (tile.y, tile.x))
        estimates = 4 * tile.frames * references * patch**2
        return {**self.search.buffers(tile), "estimates": estimates}

    def enqueue(
        self, queue, tile: Tile, source, out, sigma: TileSigma, ring: InRing | None = None
    ) -> Launches:
        filtering, settings = self._settings, self.search.settings
        nt, nz, ny, nx = tile.shape
        snt, snz, sny, snx = tile.source_shape
        at = ring or InRing(0, snt, (0, nt * nz), self.hold(tile))
        run = Launcher(self.arena, queue, at.held)
        matches = self.search.enqueue(run, tile, source, (at.first, at.slots), at.alike)
        frames, estimates = nt * nz, at.held["estimates"]
        group_x, group_y = self._group["GROUP_X"], self._group["GROUP_Y"]
        across, down = -(-matches.columns.count // group_x), -(-matches.rows.count // group_y)
        is_map = sigma.variation is not None
        constants = {**self._constants, "SIGMA_MAP": is_map}
        run.run(
            *("average", self.arena.kernel("nl_means/average_patches", constants)),
            (settings.patch, across * down * group_x * group_y, frames),
            (settings.patch, group_x * group_y, 1),
            **{"padded": matches.padded, "groups_x": across, "estimates": estimates},
            **{"offsets": matches.offsets, "keys": matches.keys, "sigma": sigma.levels},
            **{"strength": filtering.strength, "flat": filtering.flat},
            **{**matches.layout, **matches.grid},
            **({"variation": sigma.variation, "map_pitch": snx} if is_map else {}),
        )
        run.over_pixels(
            *("aggregate", self._aggregate, nx, ny, frames),
            **{"estimates": estimates, **matches.grid, "tile": source, "first": at.first},
            **{"ring": at.slots, "tile_nz": snz, "tile_ny": sny, "tile_nx": snx},
            **{"t0": tile.t.margin, "z0": tile.z.margin, "y0": tile.y.margin, "x0": tile.x.margin},
            **{"nz": nz, "ny": ny, "nx": nx, "first_out": at.place[0], "out": out},
        )
        return run.launches


def _average_group(settings: SearchSettings, device: Device) -> dict[str, int]:
    """Return the build constants for the number of references that a work-group averages.

    A GPU copies what they can reach to local memory, unless the search spans several frames.
    """
    patch, step, neighbours = settings.patch, settings.step, settings.neighbours
    copies = device.float_lanes == 1 and not (any(settings.frames) or settings.slices)
    limit = min(device.local_memory, 32768)
    # Neighbours share the pixels that they copy; with more than 320 items that gains nothing.
    for across, down in ((16, 4), (8, 4), (4, 4), (4, 2), (2, 2), (1, 1)):
        items = patch * across * down
        height, width = ((n - 1) * step + patch + settings.window - 1 for n in (down, across))
        nbytes = across * down * (12 * neighbours + 8 * patch) + 4 * height * width
        if copies and nbytes <= limit and items <= min(320, device.max_group):
            return {"GROUP_X": across, "GROUP_Y": down, "LOCAL_TILE": 1}
    each = 12 * neighbours + 8 * patch
    count = max(1, min(limit // each, 128 // patch, device.max_group // patch))
    return {"GROUP_X": count, "GROUP_Y": 1, "LOCAL_TILE": 0}


LARGEST_TABLE = 1 << 16


@dataclass(frozen=True)
class NLMeans(FrameSearch):
    """Settings of patchwise NL-means.

    Every patch on a grid of spacing `step` is replaced by the weighted mean of the `neighbours`
    patches most similar to it in a search window; overlapping estimates are averaged with tent
    weights.
    """

    name: ClassVar[str] = "nl_means"
    title: ClassVar[str] = "NL-means"
    summary: ClassVar[str] = "Patchwise non-local means: fast, preserves edges and texture"
    presets: ClassVar[dict[str, dict]] = {
        "normal": {},
        "fine": {"patch": 5, "step": 1},
        "video": {"patch": 16, "frames_before": 4, "frames_after": 4},
    }

    patch: int = setting(8, "Patch width", bounds=(1, 32), unit="pixels")
    step: int = setting(
        4, "Spacing of reference patches (1 is slowest and best)", bounds=(1, 32), unit="pixels"
    )
    window: int = setting(21, "Search window width (odd)", bounds=(1, 101), unit="pixels", odd=True)
    neighbours: int = setting(
        16, "Number of most similar patches averaged, including the patch itself", bounds=(1, 64)
    )
    strength: float = setting(
        1.0, "Filtering strength h: decay of the weights", bounds=(0.05, 10.0), unit="sigma"
    )
    flat: float = setting(
        1.05,
        "Variance below which a group of patches is treated as flat; 0 turns this off",
        bounds=(0.0, 10.0),
        unit="sigma squared",
        advanced=True,
    )
    frames_before: int = frames_setting(0, "Earlier frames to search")
    frames_after: int = frames_setting(0, "Later frames to search")
    slices: int = slices_setting()
    rician: bool = setting(False, "Correct Rician bias (MRI magnitude images)")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step > self.patch:
            raise SettingsError(
                f"step={self.step} leaves gaps between patches of width {self.patch}: "
                "choose a step of at most the patch."
            )
        if self.offsets > LARGEST_TABLE:
            raise SettingsError(
                f"The search window holds {self.offsets} patches, more than {LARGEST_TABLE}: "
                "choose a smaller window, fewer frames or fewer slices."
            )

    @property
    def keeps_zero(self) -> bool:
        """Whether squares of grey levels are taken."""
        return self.rician

    @property
    def compares_brightness(self) -> bool:
        """Not of magnitudes: their bias could no longer be removed from shifted grey levels."""
        return not self.rician

    def estimate_sigma(self, image: Any, names: str) -> NoiseEstimate | None:
        """Return sigma of Rician noise; else None."""
        if not self.rician:
            return None
        found = measured_noise(image, names, "rician", None)
        return replace(found, method=f"Rician noise: {found.method}", notes=())

    def takes(self, models: Sequence[NoiseModel]) -> bool:
        """Whether these settings are for such noise; refuse settings for another kind."""
        # Well above sigma, Rician noise is nearly Gaussian and may be identified as such.
        if self.rician and not all(isinstance(m, Rician) or m.is_one_sigma() for m in models):
            told = ", ".join(sorted({model.name for model in models}))
            raise SettingsError(f"rician=True does not fit {told} noise: leave one of them out.")
        return self.rician

    @property
    def keeps_sigma(self) -> bool:
        """Whether it is needed for the Rician bias."""
        return self.rician

    def prepare(self, context: Context) -> Self:
        """Return the filter for an array; one that averages more if it keeps sigma."""
        fitting, factor = super().prepare(context), context.strength
        if not self.keeps_sigma or factor == 1:
            return fitting
        strength = within_bounds(self, "strength", self.strength * factor)
        flat = within_bounds(self, "flat", self.flat * factor**2)
        return replace(fitting, strength=strength, flat=flat)

    @property
    def offsets(self) -> int:
        """Number of patches in the search window."""
        return self.search.candidates

    @property
    def joint(self) -> str:
        """T and Z, if other frames or slices are searched."""
        return "T" * self.over_time + "Z" * bool(self.slices)

    @property
    def smallest(self) -> int:
        return self.patch

    @property
    def reach(self) -> Reach:
        """The search window and a patch."""
        return Reach.of(self.window // 2 + self.patch - 1, self.slices, self.search.frames)

    @property
    def operations_per_pixel(self) -> float:
        """Estimate for the plain search."""
        return 2.0 * self.offsets * self.patch**2 / self.step**2

    @property
    def search(self) -> SearchSettings:
        """Settings of the patch search."""
        frames = self.frames_before, self.frames_after
        return SearchSettings(
            self.patch, self.step, self.window, self.neighbours, frames, self.slices
        )

    def plan(self, arena: Arena) -> Plan | RingPlan:
        tiles = Plan(self, arena)
        return RingPlan(tiles, self.search.frames) if self.over_time else tiles


@filter_function(NLMeans)
def nl_means() -> None:
    """Denoise by patchwise NL-means.

    Parameters
    ----------
    {inputs}
    {profile}
        ``"fine"`` is ``patch=5, step=1``, better and slower; ``"video"`` is ``patch=16,
        frames_before=4, frames_after=4``, for time-lapses (needs an axis T).
    axes : str, optional
        Names of the axes, such as ``"TZYX"``, ``"CYX"`` or ``"YXC"``. Y and X are filtered; T and
        Z join the search only with `frames_before`, `frames_after` or `slices`; every other axis
        is independent. By default the last two are Y and X, the rest independent planes.
    {common}

    See Also
    --------
    denoise : The same with a record of the run, or for some of the frames.
    stream : The same for frames that arrive one by one.
    vbm3d : For time-lapses; follows motion.

    Notes
    -----
    The weights are ``exp(-max(d2 - 2 sigma**2, 0) / h**2)`` with ``h = strength * sigma`` and d2
    the mean squared difference of two patches. ``profile="fine"`` gives about 0.35 dB more than the
    defaults on photographs and takes about eight times as long. Work grows as
    ``pixels * (patch / step)**2 * window**2``, times the frames and slices searched. Repeated runs
    on one device are bit-identical: no atomic additions are used.

    Over time, a patch is found as long as it stays within the window; motion is not followed. Every
    frame is sent to the device once. With `flicker`, grey levels of other frames are mapped to
    those of the frame being filtered, if a gain and an offset of the whole frame explain the
    change; the result keeps its brightness. Constant frames are neither filtered nor used for
    others. Of identical frames only the nearest one is used, because copies contain the same noise.

    With `rician` squares are averaged and the result is ``sqrt(max(mean - 2 sigma**2, 0))``; groups
    whose mean square is at most ``2 * flat * sigma**2`` count as having no signal. Signals below
    sigma become too low. Brightness of frames is not compared.

    References
    ----------
    A. Davy and T. Ehret, "GPU acceleration of NL-means, BM3D and VBM3D", Journal of Real-Time
    Image Processing 18 (2020), section 2.1, algorithms 1 and 4, :doi:`10.1007/s11554-020-00945-4`.

    J. V. Manjón et al., "MRI denoising using non-local means", Medical Image Analysis 12 (2008),
    514-523, and N. Wiest-Daesslé et al., "Rician noise removal by non-local means filtering for low
    signal-to-noise ratio MRI", MICCAI 2008, :doi:`10.1007/978-3-540-85990-1_21`, for `rician`.

    Examples
    --------
    >>> out = nl_means(image, sigma=20)                              # doctest: +SKIP
    >>> out = nl_means(stack, axes="TYX", profile="fine")            # doctest: +SKIP
    >>> out = nl_means(stack, axes="TYX", profile="video")           # doctest: +SKIP
    """
