"""What the runs of a filter tell: errors, detail, residuals and warnings, channel by channel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from napari_gpu_denoise.assessment.channels import Channels
from napari_gpu_denoise.assessment.detail import Detail, Rings, detail
from napari_gpu_denoise.assessment.error import decibels, error_map, standard_error
from napari_gpu_denoise.assessment.noise import bounded
from napari_gpu_denoise.assessment.record import Assessment, ChannelQuality
from napari_gpu_denoise.assessment.residual import Statistics
from napari_gpu_denoise.assessment.runs import Observed
from napari_gpu_denoise.assessment.strength import SigmaCheck
from napari_gpu_denoise.assessment.trial import Trial
from napari_gpu_denoise.assessment.warn import are_correlated, clipped_shares, warnings_of
from napari_gpu_denoise.noise.structure.record import Finding

_TAILS = 0.1, 99.9  # percentiles of the result that its range is between


def judged(
    trial: Trial,
    found: Observed,
    check: SigmaCheck | None,
    structure: Sequence[Finding],
    given: np.dtype,
    shown: dict[str, Any],
) -> Assessment:
    """Return the assessment.

    `structure` is what was found of structured noise, `given` the type of the image; `shown` are
    fields as they are.
    """
    job, noise, known = trial.job, trial.noise, trial.image[trial.inner]
    peak = shown.pop("peak")
    if peak is None:
        low, high = np.percentile(found.mean[known], _TAILS)
        peak = 255.0 if given == np.uint8 else float(high - low) or 1.0
    spread = np.where(known, bounded(found.spread), 1)
    residual = np.where(known, (found.noisy - found.mean) / spread, 0).astype(np.float32)
    twin = np.where(known, (found.twin - found.twin_mean) / spread, 0).astype(np.float32)
    view = Channels(job.names, known.shape)
    rings = Rings(*view.plane, shown["spacing"] or (1.0, 1.0))
    channels, maps, numbers = [], [], range(view.count)
    for k in numbers:
        image = view.of(known, k)
        each = [view.of(part, k) for part in (found.squared, found.varied, found.mean, spread)]
        correlated = noise.correlated(k)
        maps.append(error_map(*each, image, correlated))
        unsure = standard_error(each[-1][image], correlated)
        mse = float(view.of(found.squared, k)[image].mean(dtype=np.float64))
        power = float(np.square(view.of(found.spread, k)[image]).mean(dtype=np.float64))
        channels.append(
            ChannelQuality(
                noise=math.sqrt(power),
                error=math.sqrt(max(mse, 0.0)),
                mse_error=unsure,
                psnr=decibels(mse, peak) if mse > 0 else math.inf,
                gain=decibels(mse, math.sqrt(power)) if mse > 0 else math.inf,
                detail=_detail(rings, found, view, k, trial),
                residual=Statistics.of(view.of(residual, k), image),
                twin=Statistics.of(view.of(twin, k), image),
            )
        )
    if check is not None and are_correlated(channels):
        check = None  # of white noise alone it says something
    pairs = [[view.of(part, k) for part in (found.noisy, found.twin, known)] for k in numbers]
    clipped = [clipped_shares(*each, noise.constant) for each in pairs]
    return Assessment(
        filter=job.run.filter.name,
        settings=job.run.filter.as_dict(),
        sigma_factor=job.run.sigma_factor,
        noise=noise.words(),
        noise_source=noise.source,
        axes=job.names,
        device=str(job.device),
        peak=float(peak),
        channels=tuple(channels),
        check=check,
        warnings=warnings_of(channels, check, structure, clipped, noise.white),
        error_map=np.where(known, np.sqrt(np.maximum(view.together(maps), 0)), 0),
        residual=residual,
        twin_residual=twin,
        **shown,
    )


def _detail(rings: Rings, found: Observed, view: Channels, k: int, trial: Trial) -> Detail:
    """Return the detail kept in a channel."""
    spread = np.where(trial.image[trial.inner], found.spread, 0)
    expected = rings.noise(view.of(spread, k), trial.noise.powers(k, *rings.shape))
    second = None if found.second is None else view.of(found.second, k)
    return detail(
        rings,
        view.of(found.noisy, k),
        expected,
        [view.of(each, k) for each in found.filtered],
        [view.of(each, k) for each in found.others],
        second,
    )
