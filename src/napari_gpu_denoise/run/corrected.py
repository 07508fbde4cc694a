"""Arrays without structured noise, and frames of a stream, corrected one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from napari_gpu_denoise.correct.wish import wish_of
from napari_gpu_denoise.image.axes import check_axes
from napari_gpu_denoise.image.levels import as_array, check_numbers, output_dtype
from napari_gpu_denoise.run.job import Run

if TYPE_CHECKING:
    from napari_gpu_denoise.correct.correction import Correction


def corrected_array(
    image: Any, names: str, correct: Any, known: Correction | None = None
) -> tuple[Any, Correction | None]:
    """Return an array without structured noise, and what was removed; None if nothing is wanted.

    An array that is not in memory is corrected as it is read. `known` is what was measured before.
    """
    wish = wish_of(correct)
    if wish is None:
        return image, None
    # Imported only when needed: it takes long to load.
    from napari_gpu_denoise.correct.correction import CorrectedArray, prepare_correction

    correction = prepare_correction(image, names, wish) if known is None else known
    if not correction:
        return image, correction
    in_memory = isinstance(image, np.ndarray)
    return correction.applied(image) if in_memory else CorrectedArray(image, correction), correction


def corrected_frames(
    run: Run, first: np.ndarray, source: Iterator[Any]
) -> tuple[Run, np.ndarray, Iterator[Any]]:
    """Return the run for frames without structured noise, and these frames.

    The first frame decides what is removed.
    """
    wish = wish_of(run.correct)
    if wish is None:
        return run, first, source
    # Imported only when needed: it takes long to load.
    from napari_gpu_denoise.correct.correction import prepare_correction

    names = check_axes(run.axes, first.shape)
    check_numbers(first)
    run = replace(run, dtype=output_dtype(run.dtype, first.dtype), correct=None)
    correction = prepare_correction(first, names, wish)
    if not correction:
        return run, first, source
    kind = first.shape, first.dtype

    def corrected() -> Iterator[np.ndarray]:
        for frame in source:
            given = as_array(frame)
            # Those that do not fit are refused by the stream.
            fits = (given.shape, given.dtype) == kind
            yield correction.applied(given) if fits else given

    return run, correction.applied(first), corrected()
