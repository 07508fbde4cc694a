"""The runs of a filter that an assessment is made of."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from napari_gpu_denoise.assessment import strength
from napari_gpu_denoise.assessment.detail import ALPHA
from napari_gpu_denoise.assessment.error import EPSILON, PAIRS, squared_errors, told
from napari_gpu_denoise.assessment.noise import bounded
from napari_gpu_denoise.assessment.strength import FACTORS, SigmaCheck
from napari_gpu_denoise.assessment.trial import Steps, Trial
from napari_gpu_denoise.run.record import Progress


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
            results.append((yield from run(pixels + np.float32(sign) * fresh, told(EPSILON))))
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
            filtered.append((yield from run(image.astype(pixels.dtype), told(ALPHA**0.5))))
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
    mask[inner] = strength.grid(trial.image[inner].shape, trial.planes) & trial.image[inner]
    values = strength.replaced(pixels, mask, trial.planes)
    spread = bounded(trial.noise.spread(values)[inner])
    losses = []
    for factor in FACTORS:
        steps = trial.filtered(values, factor / trial.job.run.sigma_factor)
        made = yield from _counted(steps, done, total)
        losses.append(strength.loss(pixels[inner], spread, made, mask[inner]))
    return strength.best_of(FACTORS, losses)


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
