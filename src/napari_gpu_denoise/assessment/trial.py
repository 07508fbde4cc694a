"""A filter tried on a crop: the crop as it is, or with other pixels or another sigma."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from napari_gpu_denoise.assessment.crop import Crop
from napari_gpu_denoise.assessment.noise import CropNoise
from napari_gpu_denoise.run.block import Block, keep_blank
from napari_gpu_denoise.run.job import Job, Part
from napari_gpu_denoise.run.part import filter_part
from napari_gpu_denoise.run.record import Progress
from napari_gpu_denoise.run.sigma import scaled

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
        applied, factor = self.job.filter.stronger(factor)
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
