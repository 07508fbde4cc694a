"""A TIFF stack denoised frame by frame: neither it nor the result is ever whole in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from napari_gpu_denoise import io
from napari_gpu_denoise.axes import (
    Levels,
    check_axes,
    check_numbers,
    is_plain,
    output_dtype,
    value_range,
)
from napari_gpu_denoise.errors import Cancelled, DeviceMemoryError, NonFiniteError, OutputError
from napari_gpu_denoise.noise_choice import resolve_noise
from napari_gpu_denoise.pipeline import Filter
from napari_gpu_denoise.prepare import settings_for
from napari_gpu_denoise.run import Record
from napari_gpu_denoise.sigma import Sigma, from_zero
from napari_gpu_denoise.streaming import FrameStream

# Smaller stacks are read whole: one reading does for the range of values, noise and filter.
STREAMED_BYTES = 1 << 27


def denoise_stack(
    path: Path,
    target: Path,
    settings: Filter,
    sigma: Any,
    *,
    noise: Any = None,
    axes: str | None,
    dtype,
    nonfinite: str,
    device,
    memory_limit: int | None,
    overwrite: bool,
    progress: Callable[[int, int], None],
    cancel,
) -> tuple[io.Picture, Record, tuple[str, ...]] | None:
    """Denoise a large stack along time, frame by frame, into another file.

    Parameters
    ----------
    path, target : Path
        The file, and the new one.
    settings, sigma, noise, axes, dtype, nonfinite, device, memory_limit, overwrite, cancel
        As `run_batch` takes them.
    progress : callable
        Called as ``progress(done, total)`` with numbers of frames.

    Returns
    -------
    tuple or None
        What the file says about itself, without pixels; the record; notes about the writing. None
        where the stack is small, has no axis T, or does not fit the device frame by frame: it is
        then to be read whole.
    """
    with io.open_stack(path) as picture:
        data = picture.data
        if data.nbytes < STREAMED_BYTES:
            return None
        names = check_axes(picture.filter_axes if axes is None else axes, data.shape)
        # Alpha is no noise to be filtered; such files are read whole.
        if "T" not in names or picture.alpha is not None:
            return None
        # Nor is much gained where every frame has to be sought in the whole file.
        if not data.reads_by_plane(names.index("Y"), names.index("X")):
            return None
        check_numbers(data)
        wanted = output_dtype(dtype, data.dtype)
        io.check_dtype(picture, wanted)
        t = names.index("T")
        count = data.shape[t]
        applied = settings_for(settings, names, data.shape)
        running, found = resolve_noise(sigma, noise, data, names, applied, dtype=wanted)
        levels = None if is_plain(data.dtype) else _levels(data, t, nonfinite, from_zero(running))
        stream = FrameStream(
            settings,
            _frames(data, t),
            None if found.models else _frame_sigma(found, t),
            noise=found.models or None,
            axes=names[:t] + names[t + 1 :],
            dtype=wanted,
            nonfinite=nonfinite,
            device=device,
            memory_limit=memory_limit,
            levels=levels,
        )
        make_folder(target)
        planes = 3 if picture.axes.endswith("S") else 2
        with io.PlaneStore(data.shape, wanted, target.parent, axes_of_plane=planes) as store:
            progress(0, count)
            try:
                for k, frame in enumerate(stream):
                    store[(*(slice(None),) * t, k)] = frame
                    progress(k + 1, count)
                    if cancel is not None and cancel.is_set():
                        raise Cancelled("The run was cancelled: no result was made.")
            except DeviceMemoryError:
                if stream.count:
                    raise
                return None  # in parts of frames it may fit
            record = stream.record(found, names)
            notes = io.write(target, store, picture, record, overwrite=overwrite)
    return picture, record, notes


def make_folder(target: Path) -> None:
    """Make the folder of a file.

    Raises
    ------
    OutputError
        If it cannot be made.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"The folder {target.parent} cannot be made: {error.strerror or error}."
        ) from error


def _frames(data: Any, t: int) -> Iterator[np.ndarray]:
    for k in range(data.shape[t]):
        yield data[(*(slice(None),) * t, k)]


def _frame_sigma(found: Sigma, t: int) -> Any:
    """Return the sigma of a frame: the same for all, or a function of its number."""
    if found.array.shape[t] == 1:
        return found.array.take(0, axis=t)
    return lambda number: found.array.take(number, axis=t)


def _levels(data: Any, t: int, nonfinite: str, from_zero: bool) -> Levels:
    """Return how grey levels become pixels, from the range of all frames."""
    ends = []
    odd = 0
    for frame in _frames(data, t):
        if frame.dtype.kind == "f":
            finite = np.isfinite(frame)
            odd += frame.size - int(np.count_nonzero(finite))
            frame = frame[finite]
        if frame.size:
            ends.append(value_range(frame))
    if odd and nonfinite == "raise":
        raise NonFiniteError(
            f"{odd} of {data.size} pixels are NaN or infinite: pass nonfinite='keep' "
            "(--nonfinite keep) to leave them as they are and filter the others."
        )
    if not ends:
        return Levels(0, 1.0)
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    return Levels.spanning(low, high, from_zero)
