"""Frames of a stream, corrected one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from napari_gpu_denoise.correct.wish import wish_of
from napari_gpu_denoise.image.axes import check_axes
from napari_gpu_denoise.image.levels import as_array, check_numbers, output_dtype
from napari_gpu_denoise.run.job import Run


def corrected_frames(run: Run, frames: Iterable[Any]) -> tuple[Run, Iterable[Any]]:
    """Return the run for frames without structured noise, and these frames.

    The first frame decides what is removed.
    """
    wish = wish_of(run.correct)
    source = iter(frames)
    first = None if wish is None else next(source, None)
    run = replace(run, correct=None)
    if first is None:
        return run, source
    # Imported only when needed: it takes long to load.
    from napari_gpu_denoise.correct.correction import prepare_correction

    first = as_array(first)
    names = check_axes(run.axes, first.shape)
    check_numbers(first)
    run = replace(run, dtype=output_dtype(run.dtype, first.dtype))
    correction = prepare_correction(first, names, wish)
    if not correction:
        return run, chain([first], source)
    kind = first.shape, first.dtype

    def corrected() -> Iterator[np.ndarray]:
        for frame in chain([first], source):
            given = as_array(frame)
            # Those that do not fit are refused by the stream.
            fits = (given.shape, given.dtype) == kind
            yield correction.applied(given) if fits else given

    return run, corrected()
