"""The isoline filter: averages along lines of equal grey level (Perrot et al. 2014)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.channels import (
    JOINED,
    channels_setting,
    decide_channels,
    guide_setting,
)
from napari_gpu_denoise.filters.isoline.plan import Margins, Plan
from napari_gpu_denoise.noise.models import NoiseModel, Speckle
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.protocol.settings import setting
from napari_gpu_denoise.protocol.tiles import Reach
from napari_gpu_denoise.run.denoise import filter_function, shown_maps, with_settings
from napari_gpu_denoise.run.part import finish
from napari_gpu_denoise.run.record import Progress
from napari_gpu_denoise.run.request import Run

DIRECTIONS = 32  # of segments, 11.25 degrees apart


@dataclass(frozen=True)
class Isoline(Filter):
    """Settings of the isoline filter.

    Every pixel is averaged along the line of equal grey level through it: segments in the direction
    that fits best, each continued by the segment at its end.
    """

    name: ClassVar[str] = "isoline"
    title: ClassVar[str] = "Isoline"
    summary: ClassVar[str] = "Averages along lines of equal grey level: fast enough for live images"
    presets: ClassVar[dict[str, dict]] = {
        "normal": {},
        "fine": {"staircase": 15},
        "paper": {"choice": "hard", "thickness": 1, "staircase": 0},
    }

    method: str = setting(
        "hybrid",
        "How isolines are traced: along directions computed beforehand (pi-pd), the same except in "
        "flat regions (hybrid), or by trying all directions at every step (pi-ld, slow)",
        choices=("hybrid", "pi-pd", "pi-ld"),
    )
    choice: str = setting(
        "soft",
        "Weight directions and segments by how well they fit (soft), or pick the best one as in "
        "the paper (hard); pi-ld always picks",
        choices=("soft", "hard"),
    )
    segment_length: int = setting(5, "Length of a line segment", bounds=(2, 10), unit="pixels")
    max_length: int = setting(25, "Maximum length of an isoline", bounds=(2, 100), unit="pixels")
    thickness: int = setting(2, "Thickness of an isoline", bounds=(1, 3), unit="pixels")
    staircase: int = setting(
        11,
        "Window width of the staircase correction (odd); 0 turns it off",
        bounds=(0, 21),
        unit="pixels",
        odd=True,
    )
    channels: str = channels_setting("along shared isolines")
    guide: int = guide_setting("in which shared isolines are traced")
    criterion: str = setting(
        "additive",
        "Kind of noise: additive with standard deviation sigma, or multiplicative speckle "
        "(gamma-distributed; sigma is not used)",
        choices=("additive", "multiplicative"),
    )
    looks: float = setting(
        4.0,
        "Number of looks of the speckle: squared mean over variance in uniform regions",
        bounds=(0.1, 10000.0),
        unit="looks",
    )
    softness: float = setting(
        0.1,
        "Tolerance for directions that fit worse than the best one (soft)",
        bounds=(0.001, 10.0),
        unit="sigma squared",
        advanced=True,
    )
    t_max: float = setting(
        1.0, "T_max: log-ratio at which an isoline ends (hard)", bounds=(0.0, 1000.0), advanced=True
    )
    t2_max: float = setting(
        2.0,
        "T2_max: log-ratio above which a pixel is an edge (hard, hybrid)",
        bounds=(0.0, 1000.0),
        advanced=True,
    )
    deviation: int = setting(
        2,
        "Maximum turn from one segment to the next, in steps of 11.25 degrees (pi-ld)",
        bounds=(0, 16),
        advanced=True,
    )
    show: str = setting(
        "image",
        "Output: the denoised image, classes of pixels (0 flat, 1 edge, 2 isoline), or directions "
        "(in steps of 11.25 degrees)",
        choices=("image", "classes", "directions"),
        advanced=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_length < self.segment_length:
            raise SettingsError(
                f"max_length={self.max_length} is less than one segment of {self.segment_length}: "
                "choose at least the segment_length."
            )
        if self.show == "classes" and self.method == "pi-ld":
            raise SettingsError(
                "method='pi-ld' has no classes: choose show='directions' or method='hybrid'."
            )

    @property
    def soft(self) -> bool:
        """Whether directions and segments are weighted, not picked."""
        return self.choice == "soft" and self.method != "pi-ld"

    @property
    def segments(self) -> int:
        """Maximum number of segments of an isoline."""
        return self.max_length // self.segment_length

    @property
    def steps(self) -> int:
        """Segments added to either end of a weighted isoline."""
        return (self.segments - 1) // 2

    @property
    def share_beside(self) -> float:
        """Weight of the line on either side of a weighted one; binomial for a thickness of 3."""
        return (self.thickness - 1) / 8

    @property
    def relative_noise(self) -> float:
        """Standard deviation of multiplicative noise, relative to the mean; 0 if it is additive."""
        return self.looks**-0.5 if self.criterion == "multiplicative" else 0.0

    @property
    def keeps_zero(self) -> bool:
        """Whether noise multiplies grey levels."""
        return self.criterion == "multiplicative"

    @property
    def sigma_unused(self) -> str:
        """Multiplicative noise is given by its looks."""
        if self.criterion == "additive":
            return ""
        return f"not used: multiplicative noise of {self.looks:g} looks"

    @property
    def yields_map(self) -> bool:
        """Whether classes or directions are returned."""
        return self.show != "image"

    @property
    def joint(self) -> str:
        """Channels that share isolines."""
        return "C" if self.channels in JOINED else ""

    def for_array(self, names: str, shape: tuple[int, ...]) -> Self:
        """Return the settings for an array, with ``channels="auto"`` decided by its axes."""
        fitting = super().for_array(names, shape)
        if self.relative_noise == 0:
            return decide_channels(fitting, names, shape)
        # Opponent colours are differences: their noise is not multiplicative.
        if self.channels == "opponent":
            raise SettingsError(
                "channels='opponent' does not work with multiplicative noise: use 'separate' or "
                "'joint'."
            )
        wanted = "separate" if self.channels == "auto" else self.channels
        return decide_channels(replace(fitting, channels=wanted), names, shape)

    def for_noise(self, models: Sequence[NoiseModel]) -> Self | None:
        """Return settings for speckle, which the filter handles itself; None for other noise."""
        looks = {model.looks for model in models if isinstance(model, Speckle)}
        least, most = type(self).__dataclass_fields__["looks"].metadata["bounds"]
        if len(looks) != 1 or not least <= min(looks) <= most:
            return None
        channels = "separate" if self.channels == "opponent" else self.channels
        return replace(self, criterion="multiplicative", looks=min(looks), channels=channels)

    def with_strength(self, factor: float) -> tuple[Self, float]:
        """Return settings with the looks of stronger speckle, if they stand for sigma."""
        if self.criterion == "additive":
            return self, factor
        least, most = type(self).__dataclass_fields__["looks"].metadata["bounds"]
        return replace(self, looks=min(max(self.looks / factor**2, least), most)), 1.0

    @property
    def operations_per_pixel(self) -> float:
        """Estimate for tracing and for fitting planes."""
        if self.method == "pi-ld":
            tried = 1 + (self.segments - 1) * (2 * self.deviation + 1)
            return 8.0 * DIRECTIONS * self.segment_length * tried
        lines = 6.0 * DIRECTIONS * self.segment_length * (2 if self.soft else 1)
        return lines + 13.0 * self.staircase**2

    @property
    def reach(self) -> Reach:
        """The margin of the isolines and of the pixels compared around them."""
        return Margins.of(self).reach

    def plan(self, arena: Arena) -> Plan:
        """Return the plan for one device."""
        return Plan(self, arena)


@filter_function(Isoline)
def isoline() -> np.ndarray:
    """Denoise by averaging along lines of equal grey level.

    Parameters
    ----------
    {inputs}
    profile : {"normal", "fine", "paper"}, optional
        Settings to start from, by default ``"normal"``; settings given as keywords override it.
        ``"fine"`` is ``staircase=15``; ``"paper"`` is the hybrid filter exactly as published,
        ``choice="hard", thickness=1, staircase=0``.
    axes : str, optional
        Names of the axes, such as ``"TZYX"``, ``"CYX"`` or ``"YXS"``. Y and X are filtered, each
        plane separately. By default the last two are Y and X, the rest independent planes.
    {settings}
    {options}
    {fields}

    {outcome}

    See Also
    --------
    isoline_maps : Edge and direction maps.
    denoise : The same with a record of the run.

    Notes
    -----
    With the defaults, averages along lines of ``2 * segment_length + 1`` pixels in 16 directions,
    and over a small window for regions of low slope, are weighted by how well they predict nearby
    pixels. Planes are then fitted to the noisy pixels of a window, weighted by how similar these
    averages are (staircase correction). Isolines are followed both ways along the directions found,
    and their ends averaged. The work is about ``700 + 15 * staircase**2`` operations per pixel.

    ``choice="hard"`` is the method of the paper, except that the first pixel counts in the mean;
    sigma is then used by the staircase correction only. ``method="pi-ld"`` always picks the best
    direction; it is slow, and meant for comparison.

    References
    ----------
    G. Perrot, S. Domas, R. Couturier and N. Bertaux, "Fast GPU-based denoising filter using isoline
    levels", 2014, sections 3 to 5.

    A. Buades, B. Coll and J.-M. Morel, "The staircasing effect in neighborhood filters and its
    solution", IEEE Transactions on Image Processing 15 (2006), pages 1499 to 1505.

    Examples
    --------
    >>> out = isoline(image, sigma=20)                                     # doctest: +SKIP
    >>> out = isoline(image, criterion="multiplicative", looks=4)              # doctest: +SKIP
    >>> out = isoline(image, profile="paper")                              # doctest: +SKIP
    """


@dataclass(frozen=True)
class IsolineMaps:
    """Edge and direction maps of the isoline filter.

    Attributes
    ----------
    classes : ndarray of uint8, or None
        0 where the slope is low, 1 at edges, 2 where isolines are followed: everywhere with
        ``method="pi-pd"``. None with ``method="pi-ld"``, which has no classes.
    directions : ndarray of float32
        Direction of the isoline of each pixel in degrees, counter-clockwise from +x (y points
        down), from 0 to below `period`, in steps of 11.25. Unreliable where the slope is low.
    period : float
        Degrees after which directions repeat: 180 for lines (``choice="soft"``), 360 for segments
        that leave a pixel (``choice="hard"``).
    """

    classes: np.ndarray | None
    directions: np.ndarray
    period: float


@with_settings(Isoline, without=("dtype",))
def isoline_maps(
    image: ArrayLike,
    sigma: ArrayLike | None = None,
    *,
    frames: int | slice | None = None,
    slices: int | slice | None = None,
    progress: Callable[[int, int], None] | None = None,
    cancel: Any = None,
    **given: Any,
) -> IsolineMaps:
    """Return maps of edges, flat regions and isoline directions, as found by the isoline filter.

    Parameters
    ----------
    {inputs}
    profile : {"normal", "fine", "paper"}, optional
        Settings to start from, as `isoline` takes it.
    axes : str, optional
        Names of the axes, such as ``"TZYX"``, ``"CYX"`` or ``"YXS"``. By default the last two are Y
        and X, the rest independent planes.
    {settings}
    frames : int or slice, optional
        Frames along the axis T to return, by default all. The axis T stays.
    slices : int or slice, optional
        The same along the axis Z.
    {run}
    {fields}

    Returns
    -------
    IsolineMaps
        Arrays of the shape of `image`, without the channel axis where channels share their
        isolines.

    Raises
    ------
    {errors}

    See Also
    --------
    isoline : The filter.

    Notes
    -----
    With ``choice="soft"`` both maps consist of blocks of 2 by 2 pixels, because the filter weights
    directions by blocks. The class tells which of its averages fits best, although all contribute.
    The plane fit and the extension do not change the maps. Each map takes as long as the filter up
    to that step.

    Examples
    --------
    >>> maps = isoline_maps(image, sigma=20)                               # doctest: +SKIP
    >>> share_of_edges = (maps.classes == 1).mean()                        # doctest: +SKIP
    """
    steps = map_steps(image, Run.of(Isoline, sigma, given, without=("dtype",)), frames, slices)
    return finish(steps, progress, cancel, lost="no maps were")


def map_steps(
    image, run: Run, frames: int | slice | None = None, slices: int | slice | None = None
) -> Generator[Progress, None, IsolineMaps]:
    """Make the maps step by step, with progress after each tile; closing this stops the work."""
    job, maps = yield from shown_maps(image, run, _shown, frames, slices)
    classes = maps.get("classes")
    return IsolineMaps(
        classes=None if classes is None else classes.astype(np.uint8),
        directions=maps["directions"] * np.float32(360 / DIRECTIONS),
        period=180.0 if job.filter.soft else 360.0,
    )


def _shown(settings: Filter) -> list[str]:
    return ["directions"] + ["classes"] * (settings.method != "pi-ld")
