"""The filter of a batch that leaves the choice to `recommend`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.image.axes import check_axes
from napari_gpu_denoise.protocol.filter import Context, Filter
from napari_gpu_denoise.run.noise import NoiseMemory
from napari_gpu_denoise.run.request import Run


@dataclass(frozen=True)
class Recommended(Filter):
    """Measures each file and filters it as `recommend` says, with its profile and settings.

    It has no settings, and is for `run_batch` only.
    """

    name = "auto"
    title = "As recommended for each file"
    summary = "The filter, profile and settings that are recommended for each file."

    def prepare(self, context: Context) -> NoReturn:
        """Refuse arrays: their filter is known before the run."""
        raise SettingsError(
            "Recommended() chooses a filter for each file of a batch",
            "for an array, give the filter that gd.recommend(image).filter returns",
        )

    def run_for(self, image: Any, run: Run) -> tuple[Run, str]:
        """Return the run of an image with the filter that is recommended, and why, in words.

        Noise that was measured for this, of an image in which nothing is corrected first, is not
        measured again. `image` may be lazy; then it is.
        """
        from napari_gpu_denoise.assessment.recommend import recommend
        from napari_gpu_denoise.opencl.device import choose_devices

        names, device = check_axes(run.axes, image.shape), choose_devices(run.device)
        memory = NoiseMemory()
        estimate = memory.measured(image, names, device[0])
        advice = recommend(image, names, noise=estimate, device=device)
        noise = None if advice.filter.sigma_unused else run.noise
        automatic = run.sigma is None and noise in (None, "auto") and run.correct is None
        if automatic and isinstance(image, np.ndarray):
            noise = memory
        why = f"{advice.choice}, because {advice.reason}" if any(estimate.sigma) else advice.reason
        return replace(run, filter=advice.filter, noise=noise), why
