"""Maps that a filter yields in place of pixels, by its setting `show`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.opencl.several import choose_devices
from napari_gpu_denoise.run.denoise import wanted_region
from napari_gpu_denoise.run.filter import Filter
from napari_gpu_denoise.run.input import Input
from napari_gpu_denoise.run.job import Job, Part, prepare
from napari_gpu_denoise.run.part import filter_part
from napari_gpu_denoise.run.record import Progress
from napari_gpu_denoise.run.request import Run


def shown_maps(
    image: Any,
    run: Run,
    shown: Callable[[Filter], Sequence[str]],
    frames: int | slice | None = None,
    slices: int | slice | None = None,
) -> Generator[Progress, None, tuple[Job, dict[str, np.ndarray]]]:
    """Make maps step by step, float32; closing this stops the work.

    `shown` returns the values of `show` for the settings as they apply to the image. The result is
    the prepared run and the maps by these values; channels that are joined share one. A map is 0
    where the image is not finite or has no noise.
    """
    image = Input.of(image, run)
    region = wanted_region(image.names, image.given.shape, frames, slices)
    whole = image.block(run.nonfinite)
    device = choose_devices(run.device)[0]
    # The noise is measured once, for all maps.
    job = prepare(replace(image.adapted(run), dtype=np.float32, device=device), whole)
    wanted = shown(job.filter)
    maps: dict[str, np.ndarray] = {}
    for number, show in enumerate(wanted):
        one = replace(job, filter=replace(job.filter, show=show))
        part = Part.of(one, region)
        values = np.empty([each.stop - each.start for each in region], np.float32)
        with closing(filter_part(one, part, whole[part.reads], values)) as steps:
            for step in steps:
                done, total = number * step.total + step.done, len(wanted) * step.total
                yield Progress(done, total, step.unit)
        mask = whole[part.yields].nonfinite_mask
        if mask is not None:
            values[mask] = 0
        # Joined channels share one map; channels without noise hold 0.
        joined = channel_axis(job.names) if "C" in one.filter.joint else None
        maps[show] = values if joined is None else values.max(axis=joined)
    return job, maps
