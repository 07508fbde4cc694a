"""What the isoline filter saw in an image: the class of each pixel, and directions of isolines."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

import numpy as np

from napari_gpu_denoise import run
from napari_gpu_denoise.axes import Levels, channel_axis, check_axes, check_numbers
from napari_gpu_denoise.errors import Cancelled
from napari_gpu_denoise.filters.isoline import Isoline
from napari_gpu_denoise.filters.isoline_patterns import DIRECTIONS
from napari_gpu_denoise.noise_choice import resolve_noise
from napari_gpu_denoise.pipeline import Progress
from napari_gpu_denoise.prepare import along_time, fill_nonfinite, settings_for, wanted_frames


@dataclass(frozen=True)
class IsolineMaps:
    """What the isoline filter saw in an image.

    Attributes
    ----------
    classes : ndarray of uint8, or None
        0 where the slope is low, 1 at edges, 2 where isolines are followed: everywhere with
        ``method="pi-pd"``. None with ``method="pi-ld"``, which has no classes.
    directions : ndarray of float32
        Direction of the isoline of each pixel in degrees, counter-clockwise from +x (y points
        down), from 0 to below `period`, in steps of 11.25. Where the slope is low it means little.
    period : float
        Degrees after which directions repeat: 180 of lines, as ``choice="soft"`` finds them, 360
        of ways to leave a pixel, as ``choice="hard"`` does.
    """

    classes: np.ndarray | None
    directions: np.ndarray
    period: float


def isoline_maps(
    image,
    sigma=None,
    *,
    noise=None,
    axes: str | None = None,
    settings: Isoline | None = None,
    profile: str | None = None,
    frames: int | slice | None = None,
    nonfinite: str = "raise",
    device=None,
    memory_limit: int | None = None,
    progress=None,
    cancel=None,
    **changes,
) -> IsolineMaps:
    """Show what the isoline filter sees in an image: classes of pixels, directions of isolines.

    Parameters
    ----------
    image : array_like
        Pixels of any real type, two or more axes. Never modified.
    sigma : float, array_like or None, optional
        Standard deviation of the noise in grey levels of the image, as `isoline` takes it. None
        measures the noise. Where it is 0 there is nothing to filter: both maps are 0.
    noise : NoiseModel, NoiseEstimate, str or float, optional
        A model of the noise, as `isoline` takes it.
    axes : str, optional
        Names of the axes, such as ``"TZYX"``, ``"CYX"`` or ``"YXS"``. By default the last two are Y
        and X, the rest independent planes.
    settings : Isoline, optional
        Settings to start from; single ones can be given as keywords. `show` does not matter.
    profile : {"normal", "fine", "paper"}, optional
        Settings to start from instead.
    frames : int or slice, optional
        Which frames along the axis T are wanted, by default all. The axis T stays.
    nonfinite : {"raise", "keep"}, optional
        Refuse NaN and infinity, or look at the others without letting them spread; both maps are
        then 0 there.
    device : Device, int, str or None, optional
        Where to run; by default the best device there is.
    memory_limit : int, optional
        Largest number of bytes of device memory to use.
    progress : callable, optional
        Called as ``progress(done, total)`` with numbers of tiles.
    cancel : object with ``is_set()``, optional
        An event that stops the run at the next tile.
    **changes
        Fields of `Isoline`, as `isoline` takes them.

    Returns
    -------
    IsolineMaps
        Arrays of the shape of `image`, without the channel axis where channels share their
        isolines.

    Raises
    ------
    SettingsError, AxesError, SigmaError, ImageError, NonFiniteError
        If the input does not fit.
    NoDeviceError, DeviceMemoryError, KernelError
        If the device does not.
    Cancelled
        If `cancel` was set.

    See Also
    --------
    isoline : The filter.

    Notes
    -----
    With ``choice="soft"`` both maps are made of blocks of 2 by 2 pixels, as the filter weighs
    directions by blocks; the class tells which of its means fits best, though all count. Planes and
    the extension do not change them. The cost is that of the filter up to there, once for each map.

    Examples
    --------
    >>> maps = isoline_maps(image, sigma=20)                               # doctest: +SKIP
    >>> share_of_edges = (maps.classes == 1).mean()                        # doctest: +SKIP
    """
    steps = map_steps(
        image,
        Isoline.of(settings, profile=profile, **changes),
        sigma,
        noise=noise,
        axes=axes,
        frames=frames,
        nonfinite=nonfinite,
        device=device,
        memory_limit=memory_limit,
    )
    try:
        while True:
            step = next(steps)
            if progress is not None:
                progress(step.done, step.total)
            if cancel is not None and cancel.is_set():
                raise Cancelled("The run was cancelled: no maps were made.")
    except StopIteration as end:
        return end.value
    finally:
        steps.close()


def map_steps(
    image,
    settings: Isoline,
    sigma=None,
    *,
    noise=None,
    axes: str | None = None,
    frames: int | slice | None = None,
    nonfinite: str = "raise",
    device=None,
    memory_limit: int | None = None,
) -> Generator[Progress, None, IsolineMaps]:
    """Make the maps step by step: `isoline_maps` as a generator, for whoever drives it.

    Yields
    ------
    Progress
        After each tile of each map. Closing the generator stops the work.

    Returns
    -------
    IsolineMaps
        As the value of ``StopIteration``.
    """
    array = np.asarray(image)
    names = check_axes(axes, array.shape)
    check_numbers(array)
    applied = settings_for(settings, names, array.shape)
    array, odd = fill_nonfinite(array, names, nonfinite)
    Levels.of(array)  # refuses NaN and infinity, before noise is made of them
    # Once for both maps.
    _, found = resolve_noise(sigma, noise, array, names, applied)
    inner = along_time(wanted_frames(frames, names, array.shape), names)
    joined = channel_axis(names) if applied.joint else None

    shown = ["directions"] + ["classes"] * (applied.method != "pi-ld")
    maps: dict[str, np.ndarray] = {}
    for number, show in enumerate(shown):
        steps = run.denoise_steps(
            array,
            replace(applied, show=show),
            None if found.models else found.array,
            noise=found.models or None,
            axes=names,
            frames=frames,
            dtype=np.float32,
            device=device,
            memory_limit=memory_limit,
        )
        values = (yield from _part(steps, number, len(shown))).image
        if odd is not None:
            values[odd[inner]] = 0
        # Joined channels have one map; it is 0 in those without noise.
        maps[show] = values if joined is None else values.max(axis=joined)
    classes = maps.get("classes")
    return IsolineMaps(
        classes=None if classes is None else classes.astype(np.uint8),
        directions=maps["directions"] * np.float32(360 / DIRECTIONS),
        period=180.0 if applied.soft else 360.0,
    )


def _part(steps: Generator, number: int, count: int) -> Generator[Progress, None, run.Result]:
    """Drive one of `count` runs of as many tiles each."""
    try:
        while True:
            step = next(steps)
            done = number * step.total + step.done
            yield Progress(done, count * step.total, step.unit)
    except StopIteration as end:
        return end.value
    finally:
        steps.close()
