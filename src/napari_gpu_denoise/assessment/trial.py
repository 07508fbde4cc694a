"""A filter tried on a crop: with fresh noise, with hidden pixels, or with another sigma."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from napari_gpu_denoise.assessment.crop import Crop, CropNoise, bounded
from napari_gpu_denoise.assessment.formulas import (
    ALPHA,
    EPSILON,
    FACTORS,
    PAIRS,
    SigmaCheck,
    best_factor,
    hidden_grid,
    hidden_loss,
    squared_errors,
    told_factor,
    without_hidden,
)
from napari_gpu_denoise.run.input import Block, keep_blank
from napari_gpu_denoise.run.job import Job
from napari_gpu_denoise.run.noise import scaled
from napari_gpu_denoise.run.part import Part, filter_part
from napari_gpu_denoise.run.record import Progress

Steps = Generator[Progress, None, np.ndarray]


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
        own = crop.job(job, block.finite.dtype)
        known = np.broadcast_to(noise.sigma.array > 0, block.finite.shape).copy()
        if block.nonfinite_mask is not None:
            known &= ~block.nonfinite_mask
        # Wherever constant areas are put back, they differ from what was put there.
        other = block.finite + 1
        whole = tuple(slice(0, n) for n in other.shape)
        keep_blank(block.finite, other, whole, job.names, own.blank_width)
        known &= other != block.finite
        return cls(own, crop.part(own), block, noise, crop.inner, known)

    @property
    def pixels(self) -> np.ndarray:
        """The noisy pixels that are filtered."""
        return self.block.finite

    @property
    def planes(self) -> tuple[int, int]:
        """The axes Y and X."""
        return self.job.names.index("Y"), self.job.names.index("X")

    def filtered(self, values: np.ndarray, factor: float = 1.0) -> Steps:
        """Filter pixels of the crop, told `factor` times sigma; return those that are judged.

        Where the mean of the noise is not 0, as of magnitudes, they are as pixels are measured.
        """
        applied, factor = self.job.filter.with_strength(factor)
        job = replace(self.job, filter=applied, sigma=scaled(self.job.sigma, factor))
        block = Block(values, values, None)
        made = np.empty(tuple(one.stop - one.start for one in self.inner), values.dtype)
        yield from filter_part(job, self.part, block[self.part.reads], made)
        return self.noise.expected(made)

    def within(self, judged: np.ndarray) -> np.ndarray:
        """Return the pixels of the crop with other ones where they are judged."""
        values = self.pixels.copy()
        values[self.inner] = judged
        return values

    def unit(self, random: np.random.Generator) -> np.ndarray:
        """Return fresh noise of the crop in units of it, 0 where there is no image."""
        return np.where(self.image, self.noise.unit(random), np.float32(0))


@dataclass(frozen=True)
class Observed:
    """What the runs gave, over the pixels that are judged.

    `mean` is the result as pixels are measured, `spread` the noise. `filtered` and `others` are
    pairs of independent noise, `second` says that they are the two images given. `twin` is the
    result with fresh noise, `twin_mean` what the filter made of it.
    """

    noisy: np.ndarray
    mean: np.ndarray
    spread: np.ndarray
    squared: np.ndarray
    varied: np.ndarray
    filtered: list[np.ndarray]
    others: list[np.ndarray]
    second: np.ndarray | None
    twin: np.ndarray
    twin_mean: np.ndarray


def number_of_runs(trial: Trial, second: bool, checking: bool) -> int:
    """Return how many runs there are; those of the check, of a small crop, are one together."""
    split = 2 * (trial.noise.photons and not second)
    return 1 + 2 * _pairs(trial, second) + split + 1 + checking


def _pairs(trial: Trial, second: bool) -> int:
    """Return how many times fresh noise is added and subtracted."""
    return PAIRS - (second or trial.noise.photons)


def observed(
    trial: Trial, random: np.random.Generator, second: np.ndarray | None, checking: bool
) -> Generator[Progress, None, Observed]:
    """Run the filter on the crop, and on the crop with fresh noise; yield after each part."""
    total, done = number_of_runs(trial, second is not None, checking), 0

    def run(values: np.ndarray, factor: float = 1.0) -> Steps:
        nonlocal done
        made = yield from _counted(trial.filtered(values, factor), done, total)
        done += 1
        return made

    yield Progress(0, total, "run")
    pixels, inner = trial.pixels, trial.inner
    noisy, known = pixels[inner], trial.image[inner]
    mean = yield from run(pixels)
    # Around what is judged only fresh noise depends on it.
    spread = trial.noise.spread(trial.within(mean))
    squared, varied = np.zeros((2, *mean.shape), np.float32)
    pairs = _pairs(trial, second is not None)
    filtered, others = [], []
    for _ in range(pairs):
        unit = trial.unit(random)
        fresh = spread * unit
        results = []
        for sign in (EPSILON, -EPSILON):
            results.append(
                (yield from run(pixels + np.float32(sign) * fresh, told_factor(EPSILON)))
            )
            filtered.append(results[-1])
            others.append((pixels - fresh / np.float32(sign))[inner])
        one = squared_errors(noisy, spread[inner], unit[inner], *results)
        squared += (one / pairs).astype(np.float32)
        half = (results[0] - results[1]) / np.float32(2 * EPSILON)
        varied += (half**2 / pairs).astype(np.float32)
    if second is not None:
        filtered, others = [mean], [second[inner]]
    elif trial.noise.photons:
        filtered, others = [], []
        for _ in range(2):
            image, other = trial.noise.split(pixels, ALPHA, random)
            image, other = (np.where(trial.image, each, pixels) for each in (image, other))
            filtered.append((yield from run(image.astype(pixels.dtype), told_factor(ALPHA**0.5))))
            others.append(other[inner])
    fresh = spread[inner] * trial.unit(random)[inner]
    twin = np.where(known, mean + fresh, noisy).astype(pixels.dtype)
    twin_mean = yield from run(trial.within(twin))
    given = None if second is None else second[inner]
    return Observed(
        noisy, mean, spread[inner], squared, varied, filtered, others, given, twin, twin_mean
    )


def sigma_check(trial: Trial, done: int, total: int) -> Generator[Progress, None, SigmaCheck]:
    """Tell the filter other strengths, and let it predict pixels that it has not seen."""
    pixels, inner = trial.pixels, trial.inner
    mask = np.zeros(pixels.shape, bool)
    mask[inner] = hidden_grid(trial.image[inner].shape, trial.planes) & trial.image[inner]
    values = without_hidden(pixels, mask, trial.planes)
    spread = bounded(trial.noise.spread(values)[inner])
    losses = []
    for factor in FACTORS:
        steps = trial.filtered(values, factor / trial.job.run.sigma_factor)
        made = yield from _counted(steps, done, total)
        losses.append(hidden_loss(pixels[inner], spread, made, mask[inner]))
    return best_factor(FACTORS, losses)


def _counted(steps: Steps, done: int, total: int) -> Steps:
    """Pass the steps of a run on as those of all runs."""
    try:
        while True:
            next(steps)
            yield Progress(done, total, "run")
    except StopIteration as end:
        return end.value
    finally:
        steps.close()
