"""Edge and direction maps of the isoline filter."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from napari_gpu_denoise.filters.isoline.filter import Isoline
from napari_gpu_denoise.filters.isoline.settings import DIRECTIONS
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.run.denoise import shown_maps
from napari_gpu_denoise.run.record import Progress, finish
from napari_gpu_denoise.run.request import Run, with_settings


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
    {image}
    {sigma}
    {noise}
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
