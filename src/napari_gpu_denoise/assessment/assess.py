"""Assess how good a result is: try the filter on a crop, and judge each channel."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from napari_gpu_denoise.assessment import formulas
from napari_gpu_denoise.assessment.record import Assessment, ChannelQuality
from napari_gpu_denoise.assessment.trial import (
    CropNoise,
    Observed,
    Region,
    Trial,
    bounded,
    choose_crop,
    noise_of,
    number_of_runs,
    observed,
    sigma_check,
)
from napari_gpu_denoise.errors import ImageError, Note, SettingsError
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.image.levels import as_array, as_numbers, check_numbers
from napari_gpu_denoise.noise.structure.find import structure_in
from napari_gpu_denoise.noise.structure.record import Finding
from napari_gpu_denoise.opencl.device import choose_devices
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.run.input import Input, is_lazy
from napari_gpu_denoise.run.job import Job, prepare
from napari_gpu_denoise.run.noise import is_measured
from napari_gpu_denoise.run.part import finish
from napari_gpu_denoise.run.record import MEASURING, Progress, Steps
from napari_gpu_denoise.run.request import Run, takes_options

_STREAM = 0x617373657373  # beside the seed


@takes_options("dtype")
def assess(
    image: ArrayLike,
    filter: Filter,
    sigma: ArrayLike | None = None,
    *,
    region: Sequence[Any] | None = None,
    second: Any = None,
    spacing: float | tuple[float, float] | None = None,
    unit: str = "",
    peak: float | None = None,
    seed: int = 0,
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
    sigma, noise
        As in `denoise`. All numbers are only as accurate as the noise level.
    axes : str, optional
        Names of the axes, such as ``"TZYX"``. By default the last two are Y and X, the rest
        independent planes.
    region : sequence of slice or int, optional
        Region to assess: a slice or an index for each axis, or slices for Y and X; by default the
        whole image. If it has more than about a million pixels, only its middle is used. One plane
        is assessed, or some slices of a volume, with the neighbouring frames and slices that the
        filter needs.
    second : array_like, optional
        A second image of the same, unmoved object with independent noise, of the same shape and
        brightness. It makes the measurement of the detail kept more accurate.
    spacing : float or (float, float), optional
        Size of a pixel along Y and X.
    unit : str, optional
        Unit of `spacing`, such as ``"µm"``.
    peak : float, optional
        Range of grey levels that the PSNR refers to; by default 255 for 8 bits, else the range of
        the result.
    seed : int, optional
        Seed of the fresh noise; the same seed gives the same result.
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
        Predicted error and PSNR, a map of the expected error, detail kept by spatial frequency, the
        residual beside that of a twin, a check of sigma, and warnings.

    Raises
    ------
    {errors}

    See Also
    --------
    denoise : Make the result.
    estimate_noise : Measure the noise.

    Notes
    -----
    The filter runs about nine times on the region. Errors are predicted by Stein's estimate with
    fresh noise, a tenth as strong as the noise, added and subtracted. The ± holds in 90 % of
    images whose noise is as assumed. The detail kept is the correlation of the filtered image with
    one that has independent noise. Sigma is checked by predicting pixels that the filter has not
    seen. ``docs/methods/assess.md`` describes the accuracy of each, and the limits of residuals.
    For magnitudes (`Rician`), errors are those of the mean magnitude.

    References
    ----------
    S. Ramani, T. Blu, M. Unser, "Monte-Carlo SURE: a black-box optimization of regularization
    parameters for general denoising algorithms", IEEE Trans. Image Process. 17 (2008),
    doi:10.1109/TIP.2008.2001404; J. Batson, L. Royer, "Noise2Self: blind denoising by
    self-supervision", ICML 2019, arXiv:1901.11365.

    Examples
    --------
    >>> found = assess(image, BM3D(), sigma=20)                            # doctest: +SKIP
    >>> print(found.summary())                                             # doctest: +SKIP
    """
    what = Options(region, second, spacing, unit, peak, seed)
    steps = assess_steps(image, Run(filter, sigma, **options), what)
    return finish(steps, progress, cancel, "no assessment was")


@dataclass(frozen=True)
class Options:
    """What to assess, and how it is shown; as in `assess`."""

    region: Sequence[Any] | None = None
    second: Any = None
    spacing: float | tuple[float, float] | None = None
    unit: str = ""
    peak: float | None = None
    seed: int = 0

    def sizes(self) -> tuple[float, float] | None:
        """Return `spacing` along Y and X."""
        if self.spacing is None:
            return None
        try:
            given = np.broadcast_to(as_numbers(self.spacing), 2)
        except (TypeError, ValueError):
            given = np.zeros(2)
        if not (np.isfinite(given).all() and (given > 0).all()):
            raise SettingsError(
                f"spacing={self.spacing!r} is not a pixel size: give a positive number, or one "
                "each for Y and X."
            )
        return float(given[0]), float(given[1])


def assess_steps(image: Any, run: Run, options: Options | None = None) -> Steps[Assessment]:
    """Assess step by step: `assess` as a generator.

    Parameters
    ----------
    image
        As in `assess`.
    run : Run
        The filter and the noise.
    options : Options, optional
        What to assess.

    Yields
    ------
    Progress
        After each part of the work, in runs of the filter; values may repeat. Closing the generator
        stops the work.

    Returns
    -------
    Assessment
        As the value of ``StopIteration``.
    """
    options = options or Options()
    options.sizes()  # refuses what is no size
    if run.filter.yields_map:
        raise SettingsError(
            "The result with these settings is a map, not an image: choose settings that denoise."
        )
    image = Input.of(image, run)
    array, second = image.array, _second(options.second, image)
    if is_measured(run.sigma, run.noise, run.filter):
        yield MEASURING
    device = choose_devices(run.device)[0]
    run = replace(image.adapted(run), device=device, dtype="float32")
    job, told = _prepared(run, array)
    crop = choose_crop(job, options.region)
    trial = Trial.of(job, crop, array, CropNoise.of(*told, array, job, crop))
    if not trial.image[trial.inner].any():
        raise ImageError(
            "The region contains no image: it is constant, NaN, or without noise",
            "choose another",
            code="assess-empty",
        )
    # Not the noise of a simulated image that was drawn with the same seed.
    random = np.random.default_rng([options.seed, _STREAM])
    other = None if second is None else crop.block(second, job.names, run.nonfinite).finite
    checking = trial.noise.checkable and not job.filter.sigma_unused
    # Meanwhile, in another thread.
    pool = ThreadPoolExecutor(1)
    try:
        looking = pool.submit(_structure, trial)
        observations = yield from observed(trial, random, other, checking)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    check, runs = None, number_of_runs(trial, other is not None, checking)
    if checking:
        small = choose_crop(job, crop.yields, formulas.MOST_CHECKED)
        noise = CropNoise.of(*told, array, job, small)
        check = yield from sigma_check(Trial.of(job, small, array, noise), runs - 1, runs)
    yield Progress(runs, runs, "run")
    dtype = image.given.dtype
    return judged(trial, crop.yields, observations, check, looking.result(), options, dtype)


class Channels:
    """Channels of arrays with named axes, as planes (…, y, x)."""

    def __init__(self, names: str, shape: tuple[int, ...]):
        self._axis = channel_axis(names)
        self._planes = names.index("Y"), names.index("X")
        if self._axis is not None:  # once Y and X come last
            self._place = self._axis - sum(axis < self._axis for axis in self._planes)
        self.count = 1 if self._axis is None else shape[self._axis]
        self.plane = tuple(shape[k] for k in self._planes)

    def of(self, values: np.ndarray, k: int) -> np.ndarray:
        """Return one channel."""
        planes = np.moveaxis(values, self._planes, (-2, -1))
        if self._axis is None:
            return planes
        return planes.take(k, axis=self._place)

    def together(self, channels: list[np.ndarray]) -> np.ndarray:
        """Return an array of which these are the channels."""
        whole = channels[0] if self._axis is None else np.stack(channels, self._place)
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
    check: formulas.SigmaCheck | None,
    structure: Sequence[Finding],
    clipped: Sequence[tuple[float, float]],
    white: bool,
    measured: bool = False,
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
    if any(each.is_worse for each in channels):
        text = "the result is expected to be worse than the image: the noise model or the strength "
        warnings.insert(0, Note(f"{text}does not fit"))
    if measured and not white:
        text = "the noise was measured, and coarse noise passes for image: the expected error may "
        warnings.append(Note(f"{text}be too low by more than its ±"))
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
    region: Region,
    runs: Observed,
    check: formulas.SigmaCheck | None,
    structure: Sequence[Finding],
    options: Options,
    given: np.dtype,
) -> Assessment:
    """Return the assessment of a region of an image, which is of the type `given`.

    `structure` is what was found of structured noise.
    """
    job, noise, known = trial.job, trial.noise, trial.image[trial.inner]
    peak, sizes = options.peak, options.sizes()
    if peak is None:
        low, high = np.percentile(runs.mean[known], _TAILS)
        peak = 255.0 if given == np.uint8 else float(high - low) or 1.0
    spread = np.where(known, bounded(runs.spread), 1)
    residual = np.where(known, (runs.noisy - runs.mean) / spread, 0).astype(np.float32)
    twin = np.where(known, (runs.twin - runs.twin_mean) / spread, 0).astype(np.float32)
    view = Channels(job.names, known.shape)
    rings = formulas.Rings(*view.plane, sizes or (1.0, 1.0))
    channels, maps, numbers = [], [], range(view.count)
    for k in numbers:
        image = view.of(known, k)
        each = [view.of(part, k) for part in (runs.squared, runs.varied, runs.mean, spread)]
        correlated = noise.correlated(k)
        maps.append(formulas.error_map(*each, image, correlated))
        parts = (runs.noisy - runs.mean, runs.varied, runs.followed)
        unsure = formulas.standard_error(
            view.of(runs.spread, k)[image],
            *(view.of(part, k)[image] for part in parts),
            runs.pairs,
            correlated,
            noise.unsure[min(k, len(noise.unsure) - 1)],
        )
        mse = float(view.of(runs.squared, k)[image].mean(dtype=np.float64))
        power = float(np.square(view.of(runs.spread, k)[image]).mean(dtype=np.float64))
        channels.append(
            ChannelQuality(
                noise=math.sqrt(power),
                error=math.sqrt(max(mse, 0.0)),
                mse_error=unsure,
                psnr=formulas.decibels(mse, peak) if mse > 0 else math.inf,
                gain=formulas.decibels(mse, math.sqrt(power)) if mse > 0 else math.inf,
                detail=_detail(rings, runs, view, k, trial),
                residual=formulas.Statistics.of(view.of(residual, k), image),
                twin=formulas.Statistics.of(view.of(twin, k), image),
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
        warnings=warnings_of(channels, check, structure, clipped, noise.white, any(noise.unsure)),
        error_map=np.where(known, np.sqrt(np.maximum(view.together(maps), 0)), 0),
        residual=residual,
        twin_residual=twin,
        region=tuple((one.start, one.stop) for one in region),
        spacing=sizes,
        unit=options.unit,
        seed=options.seed,
    )


def _detail(
    rings: formulas.Rings, runs: Observed, view: Channels, k: int, trial: Trial
) -> formulas.Detail:
    """Return the detail kept in a channel."""
    spread = np.where(trial.image[trial.inner], runs.spread, 0)
    expected = rings.noise(view.of(spread, k), trial.noise.powers(k, *rings.shape))
    second = None if runs.second is None else view.of(runs.second, k)
    return formulas.detail(
        rings,
        view.of(runs.noisy, k),
        expected,
        [view.of(each, k) for each in runs.filtered],
        [view.of(each, k) for each in runs.others],
        second,
    )


def _structure(trial: Trial) -> list[Finding]:
    """Return the structured noise found in the pixels that are judged."""
    noisy = trial.pixels[trial.inner]
    view = Channels(trial.job.names, noisy.shape)
    planes = [view.of(noisy, k) for k in range(view.count)]
    return structure_in([list(each.reshape(-1, *view.plane)) for each in planes])


def _second(second: Any, image: Input) -> Any:
    """Return the second image as an array to filter, if it fits the first."""
    if second is None:
        return None
    array, shape = second if is_lazy(second) else as_array(second), tuple(image.given.shape)
    if tuple(array.shape) != shape:
        raise ImageError(
            f"second= has shape {tuple(array.shape)}, but the image {shape}: give a second image "
            "of the same object."
        )
    check_numbers(array)
    return image.corrected(array)


def _prepared(run: Run, image: Any) -> tuple[Job, tuple[Any, Any]]:
    """Return the job of the whole image, and its noise as sigma and model.

    They are the same noise, but for filters that take sigma in other units, or none.
    """
    filter, names = run.filter, run.axes
    own = filter.sigma_unused or filter.sigma_power != 1
    if not own and run.sigma is None and run.noise is None:
        own = filter.estimate_sigma(image, names) is not None
    told = noise_of(run.sigma, run.noise, image, names, filter, run.device)
    if filter.sigma_unused:
        run = replace(run, noise=None)
    elif not own:
        run = replace(run, sigma=told[0], noise=told[1])
    return prepare(run, image), told
