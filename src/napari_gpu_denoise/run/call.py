"""Make the public function of a filter, such as `bm3d`, from its settings class."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from napari_gpu_denoise.errors import SaturationWarning, SettingsError, UnchangedWarning
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.run.denoise import drive
from napari_gpu_denoise.run.filter import Filter
from napari_gpu_denoise.run.job import NO_NOISE, Run
from napari_gpu_denoise.run.public import with_settings


def filter_function(kind: type[Filter]) -> Callable[[Callable], Callable[..., np.ndarray]]:
    """Return a decorator that makes the public function of a filter from its name and docstring.

    The function takes an image, sigma, the options of a run and every setting by name, and returns
    the pixels alone; see `run.public`. Of a dask array it makes another, see `denoise_lazy`.
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
            if _is_dask(image):
                if progress is not None or cancel is not None:
                    raise SettingsError(
                        "A dask array is filtered when the result is computed: leave out "
                        "progress= and cancel=, and use those of dask."
                    )
                from napari_gpu_denoise.run.lazy import denoise_lazy

                options = {"dtype": dtype, "nonfinite": nonfinite, "correct": correct}
                options |= {"sigma_factor": sigma_factor, "memory_limit": memory_limit}
                named = {"noise": noise, "axes": axes, "device": device}
                return denoise_lazy(image, chosen, sigma, **named, **options)
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


def _is_dask(image: Any) -> bool:
    """Return whether an image is a dask array, which is only then imported."""
    dask = sys.modules.get("dask.array")
    return dask is not None and isinstance(image, dask.Array)
