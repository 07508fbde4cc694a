"""Make the public function of a filter, such as `bm3d`, from its settings class."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from napari_gpu_denoise.errors import SaturationWarning, UnchangedWarning
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.run.denoise import drive
from napari_gpu_denoise.run.filter import Filter
from napari_gpu_denoise.run.job import NO_NOISE, Run
from napari_gpu_denoise.run.public import with_settings


def filter_function(kind: type[Filter]) -> Callable[[Callable], Callable[..., np.ndarray]]:
    """Return a decorator that makes the public function of a filter from its name and docstring.

    The function takes an image, sigma, the options of a run and every setting by name, and returns
    the pixels alone; see `run.public`.
    """

    def decorate(named: Callable) -> Callable[..., np.ndarray]:
        @functools.wraps(named)
        def call(
            image: ArrayLike,
            sigma: ArrayLike | None = None,
            *,
            noise: Any = None,
            profile: str | None = None,
            axes: str | None = None,
            settings: Filter | None = None,
            dtype: Any = None,
            nonfinite: str = "raise",
            correct: Any = None,
            sigma_factor: float = 1.0,
            device: Device | int | str | Sequence | None = None,
            memory_limit: int | str | None = None,
            progress: Callable[[int, int], None] | None = None,
            cancel: Any = None,
            **changes: Any,
        ) -> np.ndarray:
            chosen = kind.of(settings, profile=profile, **changes)
            options = dtype, nonfinite, device, memory_limit, correct, sigma_factor
            run = Run(chosen, sigma, noise, axes, *options)
            result = drive(image, run, progress=progress, cancel=cancel)
            if result.record.saturated:
                warnings.warn(
                    f"{result.record.saturated} values were clipped to the range of "
                    f"{result.image.dtype}: use dtype='float32' to keep them.",
                    SaturationWarning,
                    stacklevel=2,
                )
            for note in result.record.notes if sigma is None else ():
                if note == NO_NOISE or getattr(note, "code", "") == "unchanged":
                    warnings.warn(str(note), UnchangedWarning, stacklevel=2)
            return result.image

        del call.__wrapped__  # its signature is not that of the filter
        return with_settings(kind)(call)

    return decorate
