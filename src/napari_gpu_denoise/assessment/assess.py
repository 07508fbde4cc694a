"""Assess how good a result is: try the filter on a crop, and judge each channel."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from napari_gpu_denoise.assessment import formulas
from napari_gpu_denoise.assessment.record import Assessment, ChannelQuality
from napari_gpu_denoise.assessment.trial import (
    RUNS,
    CropNoise,
    Observed,
    Region,
    Trial,
    choose_crop,
    noise_of,
    observed,
    sigma_check,
)
from napari_gpu_denoise.errors import ImageError, Note, SettingsError
from napari_gpu_denoise.image.levels import as_numbers
from napari_gpu_denoise.image.threads import quiet
from napari_gpu_denoise.noise.structure.find import structure_in
from napari_gpu_denoise.opencl.device import choose_devices
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.run.input import Input
from napari_gpu_denoise.run.job import Job, start
from napari_gpu_denoise.run.progress import MEASURING, Progress, Step
from napari_gpu_denoise.run.request import Run, takes_options

# Not the noise of a simulated image that was drawn with a small seed.
_SEED = [0, 0x617373657373]


@takes_options("dtype")
def assess(
    image: ArrayLike,
    filter: Filter,
    sigma: ArrayLike | None = None,
    *,
    region: Sequence[Any] | None = None,
    spacing: float | tuple[float, float] | None = None,
    unit: str = "",
    progress: Callable[[int, int], None] | None = None,
    cancel: Any = None,
    **options: Any,
) -> Assessment:
    """Estimate the quality of a filter's result from the noisy image alone.

    Parameters
    ----------
    image : array_like
        Pixels of any real type, with two or more axes; also arrays that are not in memory. Never
        modified.
    filter : Filter
        An object of one of `FILTERS` with its settings, such as ``BM3D.of(profile="fast")``.
    sigma, noise : optional
        As in `denoise`. All numbers are only as accurate as the noise level.
    axes : str, optional
        Names of the axes, such as ``"TZYX"``. By default the last two are Y and X, the rest
        independent planes.
    region : sequence of slice or int, optional
        Region to assess: a slice or an index for each axis, or slices for Y and X; by default the
        whole image. If it has more than about a million pixels, only its middle is used. One plane
        is assessed, or some slices of a volume, with the neighbouring frames and slices that the
        filter needs.
    spacing : float or (float, float), optional
        Size of a pixel along Y and X.
    unit : str, optional
        Unit of `spacing`, such as ``"µm"``.
    {nonfinite}
    {correct}
    {sigma_factor}
    {device}
    {memory_limit}
    progress : callable, optional
        Called as ``progress(done, total)`` with numbers of runs of the filter.
    cancel : object with ``is_set()``, optional
        An event that stops at the next tile or frame.

    Returns
    -------
    Assessment
        Predicted error, detail kept by spatial frequency, the residual beside that of a twin, a
        check of sigma, and warnings.

    Raises
    ------
    {errors}

    Notes
    -----
    The filter runs about nine times on the region. The ± holds in 90 % of images whose noise is as
    assumed. For magnitudes (`Rician`), errors are those of the mean magnitude.
    ``docs/methods/assess.md`` describes the method and accuracy of each number.

    Examples
    --------
    >>> found = assess(image, BM3D(), sigma=20)                            # doctest: +SKIP
    >>> print(found.summary())                                             # doctest: +SKIP
    """
    run, shown = Run(filter, sigma, **options), Options(region, _pixel_size(spacing), unit)
    return assess_image(image, run, shown, Progress.of(progress, cancel, "no assessment was"))


@dataclass(frozen=True)
class Options:
    """What to assess, and how it is shown; as in `assess`."""

    region: Sequence[Any] | None = None
    spacing: tuple[float, float] | None = None
    unit: str = ""


def _pixel_size(spacing: Any) -> tuple[float, float] | None:
    """Return the size of a pixel along Y and X from one number or two."""
    try:
        y, x = (1.0, 1.0) if spacing is None else np.broadcast_to(as_numbers(spacing), 2).tolist()
    except (TypeError, ValueError):
        y = x = 0.0
    if not (0 < y < math.inf and 0 < x < math.inf):
        raise SettingsError(
            f"spacing={spacing!r} is not a pixel size: give a positive number, or one each for Y "
            "and X."
        )
    return None if spacing is None else (y, x)


@quiet()
def assess_image(image: Any, run: Run, options: Options, progress: Progress) -> Assessment:
    """Assess as `assess` does; progress counts runs of the filter, and may repeat."""
    if run.filter.yields_map:
        raise SettingsError(
            "The result with these settings is a map, not an image: choose settings that denoise."
        )
    image = Input.of(image, run)
    if run.measures_noise:
        progress.stage(MEASURING)
    run = replace(image.adapted(run).on(choose_devices(run.device, *run.uses)), dtype="float32")
    job, told = _prepared(run, image)

    def trial_of(*size: int) -> tuple[Region, Trial]:
        crop = choose_crop(job, options.region, *size)
        noise = CropNoise.of(*told, image.array, job, crop)
        return crop.yields, Trial.of(job, crop, image.array, noise)

    region, trial = trial_of()
    if not trial.image[trial.inner].any():
        raise ImageError(
            "The region contains no image: it is constant, NaN, or without noise",
            "choose another",
            code="assess-empty",
        )
    checking = trial.noise.checkable and not job.filter.sigma_unused
    total = RUNS + checking  # those of the check, of a small crop, are one together
    random = np.random.default_rng(_SEED)
    runs = observed(trial, random, progress, total)
    check = None
    if checking:
        as_one = progress.within(lambda _: Step(RUNS, total, "run"))
        check = sigma_check(trial_of(formulas.MOST_CHECKED)[1], random, as_one)
    progress.tell(total, total, "run")
    return judged(trial, region, runs, check, options)


def judged(
    trial: Trial,
    region: Region,
    runs: Observed,
    check: formulas.SigmaCheck | None,
    options: Options,
) -> Assessment:
    """Return the assessment of a region of an image."""
    job, noise = trial.job, trial.noise
    parts = runs.channels(job.names)
    rings = formulas.Rings(*parts[0].known.shape[-2:], spacing=options.spacing or (1.0, 1.0))
    channels = [_channel(k, part, noise, rings) for k, part in enumerate(parts)]
    if are_correlated(channels):
        check = None  # of white noise alone it says something
    return Assessment(
        filter=job.run.filter.name,
        settings=job.run.filter.as_dict(),
        sigma_factor=job.run.sigma_factor,
        noise=noise.words(),
        noise_source=noise.source,
        axes=job.names,
        device=str(job.device),
        channels=tuple(channels),
        check=check,
        warnings=tuple(warnings_of(channels, check, parts, noise)),
        residual=runs.residual,
        twin_residual=runs.twin_residual,
        region=tuple((one.start, one.stop) for one in region),
        spacing=options.spacing,
        unit=options.unit,
    )


def _channel(k: int, runs: Observed, noise: CropNoise, rings: formulas.Rings) -> ChannelQuality:
    """Return the quality of a channel, of which `runs` are."""
    known = runs.known
    powers, correlated = noise.spectrum(k, *rings.shape)
    expected = rings.noise(np.where(known, runs.spread, 0), powers)
    mse = float(runs.squared[known].mean(dtype=np.float64))
    parts = runs.spread, runs.noisy - runs.mean, runs.varied, runs.followed
    spread, residual, varied, followed = (each[known] for each in parts)
    unsure = noise.unsure[min(k, len(noise.unsure) - 1)]
    return ChannelQuality(
        noise=math.sqrt(np.square(spread).mean(dtype=np.float64)),
        error=math.sqrt(max(mse, 0.0)),
        mse_error=formulas.standard_error(spread, residual, varied, followed, correlated, unsure),
        detail=formulas.detail(rings, runs.noisy, expected, runs.filtered, runs.others),
        residual=formulas.Statistics.of(runs.residual, known),
        twin=formulas.Statistics.of(runs.twin_residual, known),
    )


VARIANCES = 0.87, 1.1  # of the residual over that of the twin, where sigma may be right
NEIGHBOURS = 0.08  # difference of their correlations from which on noise is correlated


def are_correlated(channels: Sequence[ChannelQuality]) -> bool:
    """Return whether the noise of neighbouring pixels is more correlated than in the model."""
    return any(
        max(a.along_x - b.along_x, a.along_y - b.along_y) > NEIGHBOURS
        for a, b in ((each.residual, each.twin) for each in channels)
    )


def warnings_of(
    channels: Sequence[ChannelQuality],
    check: formulas.SigmaCheck | None,
    parts: Sequence[Observed],
    noise: CropNoise,
) -> list[Note]:
    """Return the warnings; `parts` are the runs by channel."""
    warnings = []
    if any(each.is_worse for each in channels):
        text = "the result is expected to be worse than the image: the noise model or the strength "
        warnings.append(Note(f"{text}does not fit"))
    planes = [list(part.noisy.reshape(-1, *part.noisy.shape[-2:])) for part in parts]
    causes = [
        Note(
            f"{found.words()}, which the filter treats as image, at least in part",
            "correct='found' removes it first",
            code="structured",
        )
        for found in structure_in(planes)
    ]
    if are_correlated(channels):
        text = "the noise of neighbouring pixels is correlated"
        text += ", unlike white noise" if noise.white else " more than in the noise model"
        causes.append(
            Note(
                f"{text}: the expected error is far too low",
                "noise='correlated' takes it into account",
                code="assess-correlated",
            )
        )
    elif noise.white and not causes:
        causes = [note for k in range(len(channels)) if (note := _strength(k, channels))]
    warnings += causes
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
    return warnings


def _strength(k: int, channels: Sequence[ChannelQuality]) -> Note | None:
    """Return a note where residual and twin differ in variance and nothing else explains it."""
    each = channels[k]
    ratio = each.residual.variance / each.twin.variance if each.twin.variance else 1.0
    if VARIANCES[0] <= ratio <= VARIANCES[1]:
        return None
    less, high = ("less", "high or too low") if ratio < 1 else ("more", "low")
    place = f" in channel {k}" if len(channels) > 1 else ""
    return Note(
        f"the filter removed {less} from the image than from its twin{place} ({ratio:.2f} of the "
        f"variance): sigma is probably too {high}, or pixels are clipped, and the expected error "
        "is wrong",
        "measure the noise",
        code="assess-sigma",
    )


def _prepared(run: Run, image: Input) -> tuple[Job, tuple[Any, Any]]:
    """Return the job of the whole image, and its noise as sigma and model.

    They are the same noise, but for filters that take sigma in other units, or none.
    """
    pixels, names = image.array, image.names
    told = noise_of(run, pixels, names)
    if run.filter.sigma_unused:
        return start(replace(run, noise=None), pixels), told
    measures = run.sigma is None and run.noise is None and run.filter.estimate_sigma(pixels, names)
    if not measures:
        run = replace(run, sigma=told[0], noise=told[1])
    return start(run, pixels), told
