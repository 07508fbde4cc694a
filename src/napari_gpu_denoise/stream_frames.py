"""Check the frames of a stream as they come, and make each one ready to be filtered."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from napari_gpu_denoise.axes import (
    Frames,
    Levels,
    arrange,
    check_axes,
    check_numbers,
    convert,
    output_dtype,
)
from napari_gpu_denoise.errors import AxesError, ImageError, NonFiniteError, SigmaError
from napari_gpu_denoise.modelled import levels_for
from napari_gpu_denoise.noise_choice import resolve_noise
from napari_gpu_denoise.pipeline import Filter
from napari_gpu_denoise.prepare import (
    extend,
    extend_sigma,
    fill_nonfinite,
    keep_noiseless,
    settings_for,
    unfiltered,
)
from napari_gpu_denoise.sigma import FrameSigma, Sigma, resolve_sigma, varies_within
from napari_gpu_denoise.video import over_time


@dataclass(eq=False)
class StreamFrame:
    """One frame of a stream on its way: what goes to the device, and where the result goes.

    Attributes
    ----------
    names : str
        Its axes.
    given : ndarray
        Pixels as they were given.
    unfiltered : ndarray
        What becomes of pixels that are not filtered.
    odd : ndarray of bool, or None
        Where NaN and infinity are; None where there are none.
    out : ndarray
        The result.
    source, result : Frames
        What is filtered, extended by mirroring where it is small, and `out`, as frames. Each that
        is filtered on its own, as a slice of a volume, is a frame of a video of its own.
    sigma : Sigma
        Its noise.
    frame_sigma : FrameSigma
        The same, arranged as `source` is.
    clipped : dict of int
        Values that were clipped to the range of the output, by video: each may have a thread.
    constant : dict of list
        Videos that are of one grey level all over, and what it is in each channel.
    """

    names: str
    given: np.ndarray
    unfiltered: np.ndarray
    odd: np.ndarray | None
    out: np.ndarray
    source: Frames
    result: Frames
    sigma: Sigma
    frame_sigma: FrameSigma
    clipped: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    constant: dict[int, list] = field(default_factory=dict)

    @cached_property
    def noiseless(self) -> bool:
        """Whether there is nothing to filter."""
        return not self.sigma.array.any()

    @property
    def nonfinite(self) -> int:
        """Number of pixels that are NaN or infinite."""
        return 0 if self.odd is None else int(np.count_nonzero(self.odd))

    def finished(self) -> np.ndarray:
        """Return the result, with what was not to be filtered as it was given."""
        if self.noiseless:
            self.clipped[0] += convert(self.unfiltered, self.out)
        else:
            keep_noiseless(self.unfiltered, self.out, self.names, self.sigma.array)
        if self.odd is not None:
            self.out[self.odd] = self.given[self.odd]
        return self.out


class FrameIntake:
    """Takes the frames of a stream; what all have in common is told by the first one.

    Parameters
    ----------
    first : ndarray
        The first frame.
    settings : Filter
        What was chosen.
    sigma, noise, axes, dtype, nonfinite
        As `stream` takes them.
    levels : Levels, optional
        How grey levels become pixels, where the range of all frames is known.

    Attributes
    ----------
    names : str
        Axes of a frame.
    settings : Filter
        What is run.
    dtype : dtype
        Type of the results.
    levels : Levels
        How grey levels become pixels.
    sigma : Sigma or None
        Noise of every frame; None where each has its own.
    last_sigma : Sigma
        Noise of the frame that came last.

    Raises
    ------
    SettingsError, AxesError, SigmaError, ImageError, NonFiniteError
        If the first frame does not fit the settings.
    """

    def __init__(
        self,
        first: np.ndarray,
        settings: Filter,
        *,
        sigma: Any,
        noise: Any,
        axes: str | None,
        dtype,
        nonfinite: str,
        levels: Levels | None,
    ):
        self.shape, self.input_dtype = first.shape, first.dtype
        self.names = check_axes(axes, first.shape)
        if "T" in self.names:
            raise AxesError(
                f"axes={axes!r} names T within a frame: frames follow each other in time, "
                "name the axes of one."
            )
        check_numbers(first)
        # There is time, however many frames will come.
        self.settings = settings_for(settings, "T" + self.names, (2, *first.shape))
        self.dtype = output_dtype(dtype, first.dtype)
        self._nonfinite = nonfinite
        finite, _ = fill_nonfinite(first, self.names, nonfinite)
        if levels is None:
            Levels.of(finite)  # refuses NaN and infinity
        self._sigma_of: Callable[[int], Any] | None = sigma if callable(sigma) else None
        self.sigma = None
        if self._sigma_of is None:
            self.settings, self.sigma = resolve_noise(
                *(sigma, noise, finite, self.names, self.settings), dtype=self.dtype
            )
        self.last_sigma = self.sigma
        self.levels = levels_for(self.settings, finite, levels)
        videos = arrange(first, self.names, self.settings.joint).shape[1]
        self._reads_again = over_time(self.settings) and videos > 1
        self._arranged: tuple[Sigma, FrameSigma] | None = None  # that of the last frame

    def take(self, number: int, given) -> StreamFrame:
        """Check and prepare a frame.

        Its pixels may be overwritten by those of the next one. They are copied where they are
        wanted again: by several videos, or where they come back as they are.

        Raises
        ------
        SigmaError, ImageError, NonFiniteError
            If it is not like the first one.
        """
        given = np.asarray(given)
        if given.shape != self.shape or given.dtype != self.input_dtype:
            raise ImageError(
                f"Frame {number} has the shape {given.shape} and type {given.dtype}, the first one "
                f"{self.shape} and {self.input_dtype}: give frames of one shape and type."
            )
        finite, odd = fill_nonfinite(given, self.names, self._nonfinite)
        if odd is not None and self.dtype.kind != "f":
            raise NonFiniteError(
                f"NaN and infinity cannot be kept in a result of type {self.dtype}: use "
                "dtype='float32'."
            )
        sigma = self.sigma
        if self._sigma_of is not None:
            sigma = self.last_sigma = self._own_sigma(number, finite)
        if self._reads_again or odd is not None or not sigma.array.all():
            given = np.array(given)
            finite = given if odd is None else finite
        settings, names = self.settings, self.names
        wide = extend(finite, names, self.shape, settings.smallest)
        out = np.empty(self.shape, self.dtype)
        return StreamFrame(
            names=names,
            given=given,
            unfiltered=unfiltered(settings, finite),
            odd=odd,
            out=out,
            source=arrange(wide, names, settings.joint),
            result=arrange(out, names, settings.joint),
            sigma=sigma,
            frame_sigma=self._frame_sigma(sigma, wide.shape),
        )

    def check_finite(self, number: int, values: np.ndarray) -> None:
        """Refuse a frame if its values hold NaN or infinity.

        Raises
        ------
        NonFiniteError
        """
        if self.input_dtype.kind == "f" and not is_finite(values):
            raise NonFiniteError(
                f"Frame {number} holds NaN or infinity: pass nonfinite='keep' to leave them as "
                "they are and filter the others."
            )

    def _own_sigma(self, number: int, frame: np.ndarray) -> Sigma:
        sigma = resolve_sigma(self._sigma_of(number), frame, self.names, self.settings)
        if varies_within(sigma.array, self.names) and over_time(self.settings):
            raise SigmaError(
                "A function that tells the sigma of each frame cannot tell a map: give one value "
                "or one a channel, or one map for all frames."
            )
        return sigma

    def _frame_sigma(self, sigma: Sigma, shape: tuple[int, ...]) -> FrameSigma:
        """Return sigma arranged for frames of a shape; nearly always that of the frame before."""
        if self._arranged is None or self._arranged[0] is not sigma:
            names, settings = self.names, self.settings
            spread = extend_sigma(sigma.array, names, self.shape, settings.smallest)
            arranged = FrameSigma.of(spread, shape, names, settings.joint, numbers=sigma.numbers)
            self._arranged = sigma, arranged
        return self._arranged[1]


def is_finite(array: np.ndarray) -> bool:
    """Return whether floats hold neither NaN nor infinity."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = array.sum()
    # A sum beyond the range of its type says nothing.
    return bool(np.isfinite(total)) or bool(np.all(np.isfinite(array)))
