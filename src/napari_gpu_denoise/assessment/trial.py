"""A filter tried on a crop of an image: with fresh noise, hidden pixels, or another sigma."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from napari_gpu_denoise.assessment import formulas
from napari_gpu_denoise.errors import ImageError, SettingsError
from napari_gpu_denoise.image.axes import channel_axis, chosen_range, index_parts
from napari_gpu_denoise.image.levels import as_array
from napari_gpu_denoise.noise.models import Gaussian, NoiseModel, PoissonGaussian
from napari_gpu_denoise.noise.models.base import channel_correlations
from napari_gpu_denoise.noise.record import NoiseEstimate
from napari_gpu_denoise.protocol.filter import Context, Filter
from napari_gpu_denoise.run.input import Block, keep_blank
from napari_gpu_denoise.run.job import Job, sigma_over
from napari_gpu_denoise.run.noise import NoiseMemory, Sigma, measured_noise, resolve_noise, scaled
from napari_gpu_denoise.run.part import Part, filter_part, within
from napari_gpu_denoise.run.progress import Progress, Step
from napari_gpu_denoise.run.request import Run

MOST = 1 << 20  # pixels of a channel that are filtered at once
_SLICES = 8  # of a volume that are judged
_AROUND = 32  # pixels around the region that are filtered with it
_SMALLEST = 32  # rows and columns that can be judged

Region = tuple[slice, ...]


@dataclass(frozen=True)
class Crop:
    """A crop as an image of its own.

    `reads` is its place in the whole image, `yields` that of the part that is judged, and `inner`
    the latter within the crop.
    """

    reads: Region
    yields: Region

    @property
    def inner(self) -> Region:
        """The part that is judged, as an index into the crop."""
        return within(self.yields, self.reads)

    def sigma(self, sigma: Sigma) -> Sigma:
        """Return sigma of the whole image over this crop."""
        numbers = sigma.numbers
        return replace(
            sigma,
            array=sigma_over(sigma.array, self.reads),
            numbers=None if numbers is None else sigma_over(numbers, self.reads),
        )

    def block(self, image: Any, names: str, nonfinite: str) -> Block:
        """Return the pixels of this crop, as floating point numbers that hold them."""
        given = as_array(image[self.reads])
        exact = given.dtype.itemsize <= 2 or given.dtype == np.float32
        return Block.of(given.astype(np.float32 if exact else np.float64), names, nonfinite)


def choose_crop(job: Job, region: Sequence[Any] | None, most: int = MOST) -> Crop:
    """Return the crop to assess: the middle of a region, or of the image.

    `region` has a slice or an index for each axis, or for Y and X. All channels are taken, one
    place of every other axis that the filter does not join, one frame with those it is filtered
    with, and some slices of a volume.
    """
    names, shape = job.names, job.shape
    wanted = _spans(region, names, shape)
    channel = channel_axis(names)
    yields: list[slice] = [slice(0, n) for n in shape]
    reads = list(yields)
    planes = 1
    for k, (axis, n) in enumerate(zip(names, shape, strict=True)):
        if axis in "YX" or k == channel:
            continue
        joined = axis in "TZ" and axis in job.filter.joint
        count = _SLICES if joined and axis == "Z" else 1
        yields[k] = _middle(wanted[k], count)
        before, after = job.filter.reach_along(axis) if joined else (0, 0)
        if axis == "Z":
            before, after = min(before, _SLICES // 2), min(after, _SLICES // 2)
        reads[k] = _wider(yields[k], before, after, n)
        planes *= reads[k].stop - reads[k].start
    y, x = names.index("Y"), names.index("X")
    height, width = (wanted[k].stop - wanted[k].start for k in (y, x))
    if min(height, width) < max(_SMALLEST, job.filter.smallest):
        raise ImageError(
            f"{height} x {width} pixels are too few to assess a result",
            f"give a region of at least {_SMALLEST} x {_SMALLEST}",
            code="assess-small",
            least=max(_SMALLEST, job.filter.smallest),
        )
    # A square, or longer where the region is narrow.
    room = max(most // planes, _SMALLEST**2)
    side = max(math.isqrt(room), room // min(height, width))
    for k in (y, x):
        yields[k] = _middle(wanted[k], side)
    height, width = (yields[k].stop - yields[k].start for k in (y, x))
    around = _AROUND if (height + 2 * _AROUND) * (width + 2 * _AROUND) <= room else 0
    for k in (y, x):
        reads[k] = _wider(yields[k], around, around, shape[k])
    return Crop(tuple(reads), tuple(yields))


def _spans(region: Sequence[Any] | None, names: str, shape: tuple[int, ...]) -> list[slice]:
    """Return a region as slices with both ends, one for each axis."""
    given = (slice(None),) * len(shape) if region is None else region
    try:
        given = tuple(given)
        if len(given) != len(shape):
            places = dict(zip("YX", given, strict=True))
            given = tuple(places.get(axis, slice(None)) for axis in names)
        parts = zip(index_parts(given, shape), shape, strict=True)
        spans = [chosen_range(part, n) for part, n in parts]
        if not all(len(span) and span.step == 1 for span in spans):
            raise IndexError("a span without places, or with gaps")
    except (TypeError, IndexError, ValueError) as error:
        raise SettingsError(
            f"region={region!r} is not a part of an image of {' x '.join(map(str, shape))} pixels: "
            f"give a slice or an index for each of the axes {names}, or slices for Y and X."
        ) from error
    return [slice(span.start, span.stop) for span in spans]


def _middle(span: slice, count: int) -> slice:
    """Return at most `count` places in the middle of a span."""
    size = min(count, span.stop - span.start)
    start = (span.start + span.stop - size) // 2
    return slice(start, start + size)


def _wider(span: slice, before: int, after: int, length: int) -> slice:
    return slice(max(span.start - before, 0), min(span.stop + after, length))


class _AnyFilter(Filter):
    """Stands for a filter that is told the noise as it is, correlated noise included."""

    def takes(self, models: Any) -> bool:
        return models[0].models_correlation

    def prepare(self, context: Context) -> Filter:
        told = context.noise if context.noise and self.takes(context.noise) else ()
        return replace(self, noise=told)


def noise_of(run: Run, image: Any, names: str) -> tuple[Any, Any]:
    """Return `sigma` and `noise` of a run, measured where not given; one of them is None."""
    noise = run.noise
    if run.sigma is not None:
        return run.sigma, None
    if isinstance(noise, NoiseMemory):
        return None, noise.measured(image, names, run.device)
    if noise is None or isinstance(noise, str):
        noise = measured_noise(image, names, noise or "auto", run.device)
    return None, noise


_STEP = 0.1  # in units of the noise, for slopes of its variance
_WEAKEST = 0.1  # noise in units of its root mean square, below which pixels do not count more


def bounded(spread: np.ndarray) -> np.ndarray:
    """Return the spread to divide by: models may have no noise where there is no light."""
    most = float(np.sqrt(np.mean(np.square(spread, dtype=np.float64))))
    return np.maximum(spread, _WEAKEST * most)


@dataclass(frozen=True)
class CropNoise:
    """The noise of a crop; `sigma` is over the crop, not adapted to a filter."""

    sigma: Sigma
    names: str
    shape: tuple[int, ...]
    source: str
    unsure: tuple[float, ...] = (0.0,)  # relative standard error of sigma, by channel

    @classmethod
    def of(cls, sigma: Any, noise: Any, image: Any, job: Job, crop: Crop) -> CropNoise:
        """Return the noise of a crop of an image; `sigma` and `noise` as of `noise_of`."""
        whole = resolve_noise(sigma, noise, image, _AnyFilter(), Context(job.names, image.shape))
        shape = tuple(one.stop - one.start for one in crop.reads)
        found = crop.sigma(whole)
        if not found.array.any():
            raise SettingsError(
                "Sigma is 0, so nothing is filtered: give a positive sigma to assess a result."
            )
        unsure: tuple[float, ...] = (0.0,)
        if isinstance(noise, NoiseEstimate):
            pairs = zip(noise.standard_error, noise.sigma, strict=True)
            unsure = tuple(
                error / sigma if error < math.inf and sigma else 0.0 for error, sigma in pairs
            )
        return cls(found, job.names, shape, whole.source, unsure)

    @property
    def models(self) -> tuple[NoiseModel, ...]:
        """Models of the channels, or one for all; empty where sigma is all that is known."""
        return self.sigma.models

    @property
    def white(self) -> bool:
        """Whether the noise of different pixels is taken to be independent."""
        return not any(model.models_correlation for model in self.models)

    @property
    def constant(self) -> bool:
        """Whether its strength does not depend on brightness."""
        return all(model.additive for model in self.models)

    @property
    def shared(self) -> bool:
        """Whether channels share noise."""
        return any(getattr(model, "shared", 0.0) for model in self.models)

    @property
    def checkable(self) -> bool:
        """Whether pixels that a filter has not seen show if sigma fits: white noise of mean 0."""
        centred = all(one.additive or type(one) is PoissonGaussian for one in self.models)
        return self.white and centred and not self.shared

    def expected(self, result: np.ndarray) -> np.ndarray:
        """Return the mean of pixels, as they are measured, where this is the result."""
        return self._by_model(lambda model, part: model.expected(part), result)

    def spread(self, mean: np.ndarray) -> np.ndarray:
        """Return the standard deviation of pixels with these means, float32, of their shape."""
        return np.sqrt(np.maximum(self._variance("variance", mean), 0)).astype(np.float32)

    def variance_told_by(self, pixels: np.ndarray) -> np.ndarray:
        """Return an unbiased estimate of the variance of each pixel, as measured, float32."""
        return self._variance("variance_told_by", pixels).astype(np.float32)

    def _variance(self, name: str, values: np.ndarray) -> np.ndarray:
        def one(model: NoiseModel, part: np.ndarray) -> np.ndarray:
            return getattr(model, name)(part) / (model.sigma_after or 1.0) ** 2

        found = self._by_model(one, values) if self.models else np.ones_like(values)
        return found * np.square(self.sigma.array)

    def strength(self, pixels: np.ndarray, mean: np.ndarray, spread: np.ndarray) -> np.ndarray:
        """Return the standard deviation of fresh noise that obeys Stein's equation.

        Of noise that is skewed, it depends on the pixel, too: of counts, its square is the mean of
        count and expected count. `spread` is that at `mean`.
        """
        if self.constant:
            return spread
        step = np.maximum(np.float32(_STEP) * spread, np.float32(1e-30))
        above, below = (np.square(self.spread(mean + part)) for part in (step, -step))
        slope = (above - below) / (2 * step)
        return np.sqrt(np.maximum(spread**2 + slope / 2 * (pixels - mean), 0))

    def unit(self, random: np.random.Generator) -> np.ndarray:
        """Return fresh noise of standard deviation 1 and the same correlation, float32."""
        made, channel = random.standard_normal(self.shape, np.float32), channel_axis(self.names)
        if channel is not None and self.shared:
            table = channel_correlations(self.models, self.shape[channel])
            values, vectors = np.linalg.eigh(table)
            root = (vectors * np.sqrt(np.maximum(values, 0))).astype(np.float32)
            made = np.moveaxis(np.tensordot(root, made, (1, channel)), 0, channel)
        if self.white:
            return made
        return self._by_model(lambda model, values: _coloured(model, values, self.names), made)

    def spectrum(self, k: int, height: int, width: int) -> tuple[np.ndarray | float, float]:
        """Return the power spectrum of the noise of channel `k`, mean 1, as `rfft2` has it.

        And the sum of its squared autocorrelation, which is 1 for white noise.
        """
        if self.white:
            return 1.0, 1.0
        spectral = self.models[min(k, len(self.models) - 1)].spectral
        squares = np.square(_placed(spectral, height, width))
        return _power(spectral, height, width), float(squares.sum())

    def _by_model(self, what: Any, values: np.ndarray) -> np.ndarray:
        """Apply a function of a model and pixels to the pixels of each model."""
        if not self.models:
            return values
        if len(self.models) == 1:
            return what(self.models[0], values)
        axis = channel_axis(self.names) or 0
        parts = np.split(values, len(self.models), axis)
        return np.concatenate([what(m, p) for m, p in zip(self.models, parts, strict=True)], axis)

    def words(self) -> str:
        """Return the noise in words, without how it was found."""
        if self.models:
            return "; ".join(dict.fromkeys(model.summary() for model in self.models))
        return Gaussian(float(np.sqrt(np.mean(np.square(self.sigma.array))))).summary()


def _coloured(model: Any, white: np.ndarray, names: str) -> np.ndarray:
    """Return white noise filtered so that it has the correlation of a model."""
    axes = names.index("Y"), names.index("X")
    planes = np.moveaxis(white, axes, (-2, -1))
    power = _power(model.spectral, *planes.shape[-2:])
    spectrum = np.fft.rfft2(planes) * np.sqrt(power)
    made = np.fft.irfft2(spectrum, planes.shape[-2:]).astype(np.float32)
    return np.moveaxis(made, (-2, -1), axes)


def _placed(model: Any, height: int, width: int) -> np.ndarray:
    """Return the autocorrelation over all places of a periodic plane."""
    table, placed = np.asarray(model.autocorrelation), np.zeros((height, width))
    lags = np.arange(1 - len(table), len(table))
    placed[np.ix_(lags, lags)] = table[np.ix_(abs(lags), abs(lags))]
    return placed


def _power(model: Any, height: int, width: int) -> np.ndarray:
    """Return the power at the frequencies of `rfft2`, with a mean of 1."""
    power = np.maximum(np.fft.rfft2(_placed(model, height, width)).real, 0)
    return power * (height * width / (power @ formulas.twice(width)).sum())


@dataclass(frozen=True)
class Trial:
    """A crop in memory and how it is filtered; `job` and `part` are of the crop alone.

    `image` is False where pixels are not image: NaN, constant areas, no noise.
    """

    job: Job
    part: Part
    block: Block
    noise: CropNoise
    inner: tuple[slice, ...]
    image: np.ndarray

    @classmethod
    def of(cls, job: Job, crop: Crop, image: Any, noise: CropNoise) -> Trial:
        """Return a trial; `job` is of the whole image, `noise` of the crop."""
        block = crop.block(image, job.names, job.run.nonfinite)
        dtypes, sigma = (block.finite.dtype,) * 2, crop.sigma(job.sigma)
        shape = block.finite.shape
        own = replace(job, shape=shape, dtypes=dtypes, sigma=sigma, levels=None)
        known = np.broadcast_to(noise.sigma.array > 0, block.finite.shape).copy()
        if block.nonfinite_mask is not None:
            known &= ~block.nonfinite_mask
        # Wherever constant areas are put back, they differ from what was put there.
        other = np.nextafter(block.finite, np.inf)
        whole = tuple(slice(0, n) for n in other.shape)
        keep_blank(block.finite, other, whole, job.names, own.blank_width)
        known &= other != block.finite
        return cls(own, Part.of(own, crop.inner), block, noise, crop.inner, known)

    def filtered(self, values: np.ndarray, progress: Progress, factor: float = 1.0) -> np.ndarray:
        """Filter pixels of the crop, told `factor` times sigma; return those that are judged.

        Where the mean of the noise is not 0, as of magnitudes, they are as pixels are measured.
        """
        job, own = self.job, self.job.filter
        applied = own.prepare(Context(job.names, job.shape, strength=factor))
        sigma = scaled(job.sigma, 1.0 if own.keeps_sigma else factor)
        job = replace(job, filter=applied, sigma=sigma)
        block = Block(values, values, None)
        made = np.empty(tuple(one.stop - one.start for one in self.inner), values.dtype)
        filter_part(job, self.part, block[self.part.reads], made, progress)
        return self.noise.expected(made)

    def within(self, judged: np.ndarray) -> np.ndarray:
        """Return the pixels of the crop with other ones where they are judged."""
        values = self.block.finite.copy()
        values[self.inner] = judged
        return values

    def unit(self, random: np.random.Generator) -> np.ndarray:
        """Return fresh noise of the crop in units of it, 0 where there is no image."""
        return np.where(self.image, self.noise.unit(random), np.float32(0))


@dataclass(frozen=True)
class Observed:
    """What the runs gave, over the pixels that are judged; `known` where they are image.

    `mean` is the result as pixels are measured, `spread` the noise; `squared`, `varied` and
    `followed` are means over pairs of runs: an estimate of the squared error, the variance of the
    result, and twice its covariance with the noise. `filtered` and `others` are pairs of
    independent noise, along a first axis. Residuals, of the image and of a twin of it with fresh
    noise, are in units of the noise.
    """

    known: np.ndarray
    noisy: np.ndarray
    mean: np.ndarray
    spread: np.ndarray
    squared: np.ndarray
    varied: np.ndarray
    followed: np.ndarray
    filtered: np.ndarray
    others: np.ndarray
    residual: np.ndarray
    twin_residual: np.ndarray

    def channels(self, names: str) -> list[Observed]:
        """Return the same for each channel, as planes (…, y, x)."""
        y, x, channel = names.index("Y"), names.index("X"), channel_axis(names)

        def split(values: np.ndarray) -> list[np.ndarray]:
            more = values.ndim - len(names)
            planes = np.moveaxis(values, (y + more, x + more), (-2, -1))
            if channel is None:
                return [planes]
            axis = channel + more - (y < channel) - (x < channel)
            return [planes.take(k, axis) for k in range(planes.shape[axis])]

        parts = map(split, vars(self).values())
        return [Observed(*part) for part in zip(*parts, strict=True)]


RUNS = 2 + 2 * formulas.PAIRS  # of the filter on the crop


def observed(trial: Trial, random: np.random.Generator, progress: Progress, total: int) -> Observed:
    """Run the filter on the crop, and on the crop with fresh noise."""
    done, pairs = 0, formulas.PAIRS
    in_runs = progress.within(lambda _: Step(done, total, "run"))

    def run(values: np.ndarray, factor: float = 1.0) -> np.ndarray:
        nonlocal done
        made = trial.filtered(values, in_runs, factor)
        done += 1
        return made

    pixels, inner = trial.block.finite, trial.inner
    noisy = pixels[inner]
    mean = run(pixels)
    # Around what is judged only fresh noise depends on it.
    around = trial.within(mean)
    spread = trial.noise.spread(around)
    strength = trial.noise.strength(pixels, around, spread)
    variance = trial.noise.variance_told_by(pixels)[inner]
    squared, varied, followed = (np.zeros(mean.shape, np.float32) for _ in range(3))
    filtered, others = [], []
    noisier = float(np.sqrt(1 + formulas.EPSILON**2))
    for _ in range(pairs):
        fresh = strength * trial.unit(random)
        results = []
        for sign in (formulas.EPSILON, -formulas.EPSILON):
            results.append(run(pixels + np.float32(sign) * fresh, noisier))
            others.append((pixels - fresh / np.float32(sign))[inner])
        filtered += results
        one = formulas.squared_errors(noisy, fresh[inner], variance, *results)
        squared += (one / pairs).astype(np.float32)
        half = (results[0] - results[1]) / np.float32(2 * formulas.EPSILON)
        varied += (half**2 / pairs).astype(np.float32)
        followed += 2 * fresh[inner] * half / pairs
    known, spread = trial.image[inner], spread[inner]
    twin = mean + spread * trial.unit(random)[inner]
    twin = np.where(known, twin, noisy).astype(pixels.dtype)
    twin_mean = run(trial.within(twin))
    unit = bounded(spread)
    residuals = (
        np.where(known, difference / unit, 0).astype(np.float32)
        for difference in (noisy - mean, twin - twin_mean)
    )
    both = np.stack(filtered), np.stack(others)
    means = squared, varied, followed
    return Observed(known, noisy, mean, spread, *means, *both, *residuals)


def sigma_check(
    trial: Trial, random: np.random.Generator, progress: Progress
) -> formulas.SigmaCheck | None:
    """Return how well the filter predicts pixels that it has not seen, told other strengths.

    The best one is relative to that of a twin of the image, whose noise is known: structure beside
    weak noise raises both. Where the true one of the twin is doubted this says nothing: None.
    """
    pixels, strength = trial.block.finite, trial.job.run.sigma_factor
    found = formulas.SigmaCheck.of(_hidden_losses(trial, pixels, progress))
    around = trial.within(trial.filtered(pixels, progress, found.best / strength))
    twin = (around + trial.noise.spread(around) * trial.unit(random)).astype(pixels.dtype)
    twin = np.where(trial.image, twin, pixels)
    known = formulas.SigmaCheck.of(_hidden_losses(trial, twin, progress))
    if not known.fits:
        return None
    best = found.best / float(np.clip(known.best, *formulas.FITS))
    return formulas.SigmaCheck(found.losses, best)


def _hidden_losses(trial: Trial, pixels: np.ndarray, progress: Progress) -> list[float]:
    """Return the loss at hidden pixels with each of the `FACTORS` on sigma."""
    inner, axes = trial.inner, (trial.job.names.index("Y"), trial.job.names.index("X"))
    mask = np.zeros(pixels.shape, bool)
    mask[inner] = formulas.hidden_grid(trial.image[inner].shape, axes) & trial.image[inner]
    values = formulas.without_hidden(pixels, mask, axes)
    spread = bounded(trial.noise.spread(values)[inner])
    losses = []
    for factor in formulas.FACTORS:
        made = trial.filtered(values, progress, factor / trial.job.run.sigma_factor)
        losses.append(formulas.hidden_loss(pixels[inner], spread, made, mask[inner]))
    return losses
