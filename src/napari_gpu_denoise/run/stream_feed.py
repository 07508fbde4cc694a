"""Feed the videos of a stream with its frames: what each reads, and where results are put."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np

from napari_gpu_denoise.image.bands import in_bands
from napari_gpu_denoise.image.levels import Levels, convert
from napari_gpu_denoise.run.frame_notes import FrameNote, note_frame
from napari_gpu_denoise.run.sigma import Sigma
from napari_gpu_denoise.run.stream_frames import FrameIntake, StreamFrame
from napari_gpu_denoise.run.tiles import Span, Tile


class FrameFeed:
    """The frames that came and are not yet done with; videos of one frame read them in step.

    Parameters
    ----------
    intake : FrameIntake
        Checks and prepares each.
    first : ndarray
        The first frame.
    source : iterator of array_like
        The others.

    Attributes
    ----------
    known : int
        How many frames came so far.
    looker : ThreadPoolExecutor or None
        A thread that looks at frames while others are read, if one is to. It has to be shut down
        before the buffers that frames are read into are freed.
    """

    def __init__(self, intake: FrameIntake, first: np.ndarray, source: Iterator):
        self._intake, self._source = intake, source
        self._held = {0: intake.take(0, first)}
        self._ended = False
        self.known = 1
        self.looker: ThreadPoolExecutor | None = None
        # Of each video the noise of the last frame, and what it was made of.
        self._noise: dict[int, tuple[Sigma, np.ndarray, np.ndarray]] = {}

    def get(self, number: int) -> StreamFrame | None:
        """Return a frame; None beyond the last one."""
        while number >= self.known and not self._ended:
            given = next(self._source, None)
            if given is None:
                self._ended = True
            else:
                self._held[self.known] = self._intake.take(self.known, given)
                self.known += 1
        return self._held.get(number)

    def forget(self, before: int) -> None:
        """Let go of frames."""
        for number in [n for n in self._held if n < before]:
            del self._held[number]

    def reader(self, video: int) -> Callable[[int, np.ndarray], list[FrameNote]]:
        """Return what `FrameFlow.run` reads one of the videos by."""
        return partial(self._read, video)

    def writer(self, video: int) -> Callable[[int, np.ndarray], None]:
        """Return what `FrameFlow.run` writes one of the videos by."""
        return partial(self._write, video)

    def _read(self, video: int, first: int, host: np.ndarray) -> list[FrameNote]:
        looks, corners = [], []
        for k in range(host.shape[1]):
            frame = self.get(first + k)
            if frame is None:
                break
            planes = [frame.work.source.frame(0, video, c) for c in range(host.shape[0])]
            for plane, values in zip(planes, host[:, k], strict=True):
                in_bands(frame.work.levels.load, plane, values)
            noise = self._noise_of(frame, video, len(planes), planes[0].shape[0])
            look = partial(self._look, first + k, host[:, k], *noise)
            looks.append(look if self.looker is None else self.looker.submit(look).result)
            # When the looks are done, the pixels may be those of the next frame.
            corners.append((noise[0].any(), [plane[0, 0, 0] for plane in planes]))
        notes = [look() for look in looks]
        for k, (note, (noisy, levels)) in enumerate(zip(notes, corners, strict=True)):
            if note.empty and noisy:
                self._held[first + k].constant[video] = levels
        return notes

    def _noise_of(
        self, frame: StreamFrame, video: int, channels: int, slices: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return sigma in units of the pixels, and the models: mostly those of the frame before."""
        sigma, work = frame.job.sigma, frame.work
        if video not in self._noise or self._noise[video][0] is not sigma:
            at = Tile(
                0,
                t=Span(video, video + 1, video, video + 1, video + 1),
                z=Span.whole(slices),
                y=Span.whole(1),
                x=Span.whole(1),
                channels=channels,
            )
            unit = work.levels.scale**work.filter.sigma_power
            values = work.sigma.levels(at, unit).ravel().astype(np.float64)
            self._noise[video] = sigma, values, work.sigma.models(at)[:, 0]
        return self._noise[video][1:]

    def _look(
        self, number: int, values: np.ndarray, sigma: np.ndarray, models: np.ndarray
    ) -> FrameNote:
        """Take note of a frame, from what was made of it: its own pixels may be others by now."""
        self._intake.check_values(number, values, Levels(0, 1.0))
        # Pixels as the kernels see them.
        compares = self._intake.job.filter.compares_brightness
        note = note_frame(list(values), sigma, Levels(0, 1.0), brightness=compares)
        return replace(note, models=models)

    def _write(self, video: int, first: int, values: np.ndarray) -> None:
        for k in range(values.shape[1]):
            frame = self._held[first + k]
            if frame.noiseless:
                continue  # comes back as it is when it is finished
            for c in range(values.shape[0]):
                out = frame.work.out.frame(0, video, c)
                if video in frame.constant:
                    # As it was given, whatever its channels were mixed to meanwhile.
                    clipped = convert(np.full(out.shape, frame.constant[video][c]), out)
                else:
                    ny, nx = out.shape[-2:]
                    kept = values[c, k, :, :ny, :nx]
                    clipped = frame.work.levels.store(kept, out, spare=True)
                frame.clipped[video] += clipped
