"""What the runs of a filter tell: errors, detail, residuals and warnings, channel by channel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from napari_gpu_denoise.assessment.crop import bounded
from napari_gpu_denoise.assessment.formulas import (
    Detail,
    Rings,
    SigmaCheck,
    Statistics,
    decibels,
    detail,
    error_map,
    standard_error,
)
from napari_gpu_denoise.assessment.record import Assessment, ChannelQuality
from napari_gpu_denoise.assessment.trial import Observed, Trial
from napari_gpu_denoise.errors import Note
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.noise.structure.record import Finding


class Channels:
    """Channels of arrays with named axes, as planes (…, y, x)."""

    def __init__(self, names: str, shape: tuple[int, ...]):
        self._axis = channel_axis(names)
        self._planes = names.index("Y"), names.index("X")
        self.count = 1 if self._axis is None else shape[self._axis]
        self.plane = tuple(shape[k] for k in self._planes)

    def of(self, values: np.ndarray, k: int) -> np.ndarray:
        """Return one channel."""
        planes = np.moveaxis(values, self._planes, (-2, -1))
        if self._axis is None:
            return planes
        before = sum(axis < self._axis for axis in self._planes)
        return planes.take(k, axis=self._axis - before)

    def together(self, channels: list[np.ndarray]) -> np.ndarray:
        """Return an array of which these are the channels."""
        whole = channels[0]
        if self._axis is not None:
            before = sum(axis < self._axis for axis in self._planes)
            whole = np.stack(channels, self._axis - before)
        return np.moveaxis(whole, (-2, -1), self._planes)


CLIPPED = 0.01  # share of pixels at an end of the grey levels from which on it matters
VARIANCES = 0.87, 1.1  # of the residual over that of the twin, where sigma may be right
NEIGHBOURS = 0.08  # difference of their correlations from which on noise is correlated


def are_correlated(channels: Sequence[ChannelQuality]) -> bool:
    """Return whether the noise of neighbouring pixels is more correlated than in the model."""
    return any(
        max(a.along_x - b.along_x, a.along_y - b.along_y) > NEIGHBOURS
        for a, b in ((each.residual, each.twin) for each in channels)
    )


def clipped_shares(
    noisy: np.ndarray, twin: np.ndarray, known: np.ndarray, constant: bool
) -> tuple[float, float]:
    """Return the shares of pixels clipped at the dark and at the bright end.

    They have the least or the largest value, and a twin that is not clipped goes beyond. The dark
    end of noise that is not `constant` is where it ends by nature.
    """
    values, fresh = noisy[known], twin[known]
    ends = []
    for end, beyond in ((values.min(), fresh < values.min()), (values.max(), fresh > values.max())):
        share = float(np.mean(values == end))
        ends.append(share if min(share, float(beyond.mean())) >= CLIPPED else 0.0)
    return ends[0] if constant else 0.0, ends[1]


def warnings_of(
    channels: Sequence[ChannelQuality],
    check: SigmaCheck | None,
    structure: Sequence[Finding],
    clipped: Sequence[tuple[float, float]],
    white: bool,
) -> tuple[Note, ...]:
    """Return the warnings; `structure` is what was found of structured noise."""
    warnings = [_clipped(k, *ends, len(channels)) for k, ends in enumerate(clipped) if any(ends)]
    for each in structure:
        warnings.append(
            Note(
                f"{each.words()}, which the filter treats as image, at least in part",
                "correct='found' removes it first",
                code="structured",
            )
        )
    if are_correlated(channels):
        text = "the noise of neighbouring pixels is correlated"
        text += ", unlike white noise" if white else " more than in the noise model"
        warnings.append(
            Note(
                f"{text}: the expected error is far too low",
                "noise='correlated' takes it into account",
                code="assess-correlated",
            )
        )
    elif white and not warnings:
        warnings += _strength(channels)
    if check is not None and not check.fits:
        warnings.append(
            Note(
                f"sigma may be {'low' if check.best > 1 else 'high'}, and then the expected error "
                "is wrong",
                f"measure the noise, or try {check.best:.2g} times this sigma",
                code="assess-check",
                factor=f"{check.best:.2g}",
            )
        )
    return tuple(warnings)


def _clipped(k: int, dark: float, bright: float, count: int) -> Note:
    ends = [f"{s:.1%} at the {e} end" for s, e in ((dark, "dark"), (bright, "bright")) if s]
    place = f" in channel {k}" if count > 1 else ""
    return Note(
        f"pixels are clipped{place}, {' and '.join(ends)}: there the noise is weaker than assumed, "
        "and the expected error too low"
    )


def _strength(channels: Sequence[ChannelQuality]) -> list[Note]:
    """Return a note where residual and twin differ in variance and nothing else explains it."""
    notes = []
    for k, each in enumerate(channels):
        ratio = each.residual.variance / each.twin.variance if each.twin.variance else 1.0
        if VARIANCES[0] <= ratio <= VARIANCES[1]:
            continue
        place = f" in channel {k}" if len(channels) > 1 else ""
        less = "less" if ratio < 1 else "more"
        notes.append(
            Note(
                f"the filter removed {less} from the image than from its twin{place} ({ratio:.2f} "
                f"of the variance): sigma is probably too {'high' if ratio < 1 else 'low'}, and "
                "the expected error wrong",
                "measure the noise",
                code="assess-sigma",
            )
        )
    return notes


_TAILS = 0.1, 99.9  # percentiles of the result that its range is between


def judged(
    trial: Trial,
    runs: Observed,
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
        low, high = np.percentile(runs.mean[known], _TAILS)
        peak = 255.0 if given == np.uint8 else float(high - low) or 1.0
    spread = np.where(known, bounded(runs.spread), 1)
    residual = np.where(known, (runs.noisy - runs.mean) / spread, 0).astype(np.float32)
    twin = np.where(known, (runs.twin - runs.twin_mean) / spread, 0).astype(np.float32)
    view = Channels(job.names, known.shape)
    rings = Rings(*view.plane, shown["spacing"] or (1.0, 1.0))
    channels, maps, numbers = [], [], range(view.count)
    for k in numbers:
        image = view.of(known, k)
        each = [view.of(part, k) for part in (runs.squared, runs.varied, runs.mean, spread)]
        correlated = noise.correlated(k)
        maps.append(error_map(*each, image, correlated))
        unsure = standard_error(each[-1][image], correlated)
        mse = float(view.of(runs.squared, k)[image].mean(dtype=np.float64))
        power = float(np.square(view.of(runs.spread, k)[image]).mean(dtype=np.float64))
        channels.append(
            ChannelQuality(
                noise=math.sqrt(power),
                error=math.sqrt(max(mse, 0.0)),
                mse_error=unsure,
                psnr=decibels(mse, peak) if mse > 0 else math.inf,
                gain=decibels(mse, math.sqrt(power)) if mse > 0 else math.inf,
                detail=_detail(rings, runs, view, k, trial),
                residual=Statistics.of(view.of(residual, k), image),
                twin=Statistics.of(view.of(twin, k), image),
            )
        )
    if check is not None and are_correlated(channels):
        check = None  # of white noise alone it says something
    pairs = [[view.of(part, k) for part in (runs.noisy, runs.twin, known)] for k in numbers]
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


def _detail(rings: Rings, runs: Observed, view: Channels, k: int, trial: Trial) -> Detail:
    """Return the detail kept in a channel."""
    spread = np.where(trial.image[trial.inner], runs.spread, 0)
    expected = rings.noise(view.of(spread, k), trial.noise.powers(k, *rings.shape))
    second = None if runs.second is None else view.of(runs.second, k)
    return detail(
        rings,
        view.of(runs.noisy, k),
        expected,
        [view.of(each, k) for each in runs.filtered],
        [view.of(each, k) for each in runs.others],
        second,
    )
