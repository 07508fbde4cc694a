"""The pixels of a layer as a full run sees them, of which a preview reads a part."""

from __future__ import annotations

import math
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from napari_gpu_denoise._napari.layers.lazy import is_lazy
from napari_gpu_denoise.errors import LayerError
from napari_gpu_denoise.run.block import Block
from napari_gpu_denoise.run.input import Input
from napari_gpu_denoise.run.noise import NoiseMemory
from napari_gpu_denoise.run.request import Run

_MOST = 1 << 28  # pixels read at once
_MOST_CORRECTED = 1 << 24  # pixels in memory that are corrected at once, not where they are read


class Pixels:
    """A layer without alpha, corrected, its NaN filled: in memory, or read where it is needed.

    `image` is what a run is prepared for.
    """

    def __init__(self, data: Any, run: Run):
        self.input, self._nonfinite = Input.of(data, run), run.nonfinite
        self._read: tuple[tuple[slice, ...], Block] | None = None
        large = self.input.correction and math.prod(data.shape) > _MOST_CORRECTED
        in_memory = not (is_lazy(data) or large)
        self.image: Any = self.input.block(run.nonfinite) if in_memory else self.input.array

    def read(self, region: tuple[slice, ...]) -> Block:
        """Return a region; one that is not in memory is kept until another one is read."""
        if isinstance(self.image, Block):
            return self.image[region]
        if self._read is None or self._read[0] != region:
            self._read = None  # not two at a time
            if math.prod(one.stop - one.start for one in region) > _MOST:
                raise LayerError(
                    "The preview would read too much of the layer: this filter compares whole "
                    "frames. Crop the layer to try settings."
                )
            self._read = region, self.input.block(self._nonfinite, region)
        return self._read[1]


_kept: WeakKeyDictionary[NoiseMemory, Pixels] = WeakKeyDictionary()


def pixels_of(memory: NoiseMemory, data: Any, run: Run) -> Pixels:
    """Return the pixels of a layer; made once for what is known of its noise.

    That is dropped when the data of the layer change, or what the noise depends on.
    """
    if memory not in _kept:
        _kept[memory] = Pixels(data, run)
    return _kept[memory]


def without_alpha(data: Any) -> Any:
    """Return RGBA data without alpha, not copied."""
    if isinstance(data, np.ndarray):
        return data[..., :3]
    from napari_gpu_denoise._napari.layers.lazy import LazyArray

    whole = (slice(None),) * (len(data.shape) - 1)
    return LazyArray(data, part=(*whole, slice(3)))
