"""Check the frames of a stream as they come, and make each one ready to be filtered."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import AxesError, ImageError, NonFiniteError, SigmaError
from napari_gpu_denoise.image.axes import arrange, check_axes
from napari_gpu_denoise.image.levels import LARGEST_VALUE, Levels, convert, is_plain
from napari_gpu_denoise.run.block import Block, keep_noiseless
from napari_gpu_denoise.run.job import Job, Part, Run, check_kept, prepare
from napari_gpu_denoise.run.part import arrange_part
from napari_gpu_denoise.run.record import Tally
from napari_gpu_denoise.run.sigma import Sigma, clamp_sigma, resolve_sigma, varies_within
from napari_gpu_denoise.run.work import Work


@dataclass(eq=False)
class StreamFrame:
    """One frame of a stream on its way: what goes to the device, and where the result goes.

    Attributes
    ----------
    job : Job
        The run, with the noise of this frame.
    block : Block
        The pixels.
    out : ndarray
        The result.
    clipped : dict of int
        Values that were clipped to the range of the output, by video: each may have a thread.
    constant : dict of list
        Videos that are of one grey level all over, and what it is in each channel.
    """

    job: Job
    block: Block
    out: np.ndarray
    clipped: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    constant: dict[int, list] = field(default_factory=dict)

    @cached_property
    def work(self) -> Work:
        """Pixels and result as frames, the pixels extended by mirroring where they are few.

        Each that is filtered on its own, as a slice of a volume, is a frame of a video of its own.
        """
        return arrange_part(self.job, Part.of(self.job), self.block.finite, self.out)

    @cached_property
    def noiseless(self) -> bool:
        """Whether there is nothing to filter."""
        return not self.job.sigma.array.any()

    @property
    def tally(self) -> Tally:
        """What was counted; all of it once the frame is finished."""
        return Tally(sum(self.clipped.values()), self.block.nonfinite)

    def finished(self) -> np.ndarray:
        """Return the result, with what was not to be filtered as it was given."""
        unfiltered = self.job.unfiltered(self.block.finite)
        if self.noiseless:
            self.clipped[0] += convert(unfiltered, self.out)
        else:
            keep_noiseless(unfiltered, self.out, self.job.names, self.job.sigma.array)
        self.block.restore(self.out)
        return self.out


class FrameIntake:
    """Takes the frames of a stream; the first one decides what all have in common.

    Parameters
    ----------
    first : ndarray
        The first frame.
    run : Run
        What to do; its sigma may be a function of the number of a frame.
    levels : Levels, optional
        How grey levels become pixels, where the range of all frames is known.

    Attributes
    ----------
    job : Job
        The run, prepared for a frame; its noise is that of the frame that came last.
    sigma_varies : bool
        Whether each frame has a sigma of its own.

    Raises
    ------
    SettingsError, AxesError, SigmaError, ImageError, NonFiniteError
        If the first frame does not fit the settings.
    """

    def __init__(self, first: np.ndarray, run: Run, levels: Levels | None = None):
        names = check_axes(run.axes, first.shape)
        if "T" in names:
            raise AxesError(
                f"axes={run.axes!r} names T within a frame: frames follow each other in time, "
                "name the axes of one."
            )
        self._sigma_of: Callable[[int], Any] | None = run.sigma if callable(run.sigma) else None
        if self.sigma_varies:
            run = replace(run, sigma=1.0, noise=None)
        self._given_dtype = first.dtype
        block = Block.of(first, names, run.nonfinite)
        self.job = prepare(run, block, levels=levels, one_of_many=True)
        videos = arrange(first, names, self.job.filter.joint).shape[1]
        self._reads_again = self.job.filter.over_time and videos > 1

    @property
    def sigma_varies(self) -> bool:
        """Whether each frame has a sigma of its own."""
        return self._sigma_of is not None

    def take(self, number: int, given) -> StreamFrame:
        """Check and prepare a frame.

        Its pixels may be overwritten by those of the next one. They are copied where they are
        wanted again: by several videos, or where they come back as they are.

        Raises
        ------
        SigmaError, ImageError, NonFiniteError
            If it is not like the first one.
        """
        given, job = np.asarray(given), self.job
        if given.shape != job.shape or given.dtype != self._given_dtype:
            raise ImageError(
                f"Frame {number} has the shape {given.shape} and type {given.dtype}, the first one "
                f"{job.shape} and {self._given_dtype}: give frames of one shape and type."
            )
        block = Block.of(given, job.names, job.run.nonfinite)
        check_kept(block, job.dtypes[1])
        if self.sigma_varies:
            self.job = job = replace(job, sigma=self._own_sigma(number, block.finite))
        holes = block.nonfinite_mask is not None
        if self._reads_again or holes or not job.sigma.array.all():
            kept = np.array(given)
            block = Block(kept, block.finite if holes else kept, block.nonfinite_mask)
        out = np.empty(job.shape, job.dtypes[1])
        return StreamFrame(job, block, out)

    def check_values(self, number: int, values: np.ndarray, levels: Levels) -> None:
        """Refuse a frame with values that kernels cannot take.

        Raises
        ------
        NonFiniteError
            If it holds NaN or infinity.
        ImageError
            If it is too far beyond the range of the first frame.
        """
        if is_plain(self._given_dtype):
            return
        if self.job.stabilised:
            levels = Levels(0, np.finfo(np.float32).max / LARGEST_VALUE)  # any float32 is taken
        if levels.takes(values):
            return
        # Finite levels may have become infinite when they were scaled, not NaN.
        scaled = not self.job.levels.plain
        if np.isnan(values).any() or not (scaled or np.isfinite(values).all()):
            raise NonFiniteError(
                f"Frame {number} holds NaN or infinity",
                "pass nonfinite='keep' to leave them as they are and filter the others",
                code="nonfinite",
            )
        raise ImageError(
            f"Frame {number} has grey levels far beyond those of the first frame: give frames of "
            "one scale, without infinite values."
        )

    def _own_sigma(self, number: int, frame: np.ndarray) -> Sigma:
        job = self.job
        sigma = resolve_sigma(self._sigma_of(number), frame, job.names, job.filter)
        if varies_within(sigma.array, job.names) and job.filter.over_time:
            raise SigmaError(
                "A function that gives the sigma of each frame cannot give a map: give one value "
                "or one a channel, or one map for all frames."
            )
        return replace(sigma, array=clamp_sigma(sigma, frame, job.filter, one_of_many=True))
