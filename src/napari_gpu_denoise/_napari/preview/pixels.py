"""The pixels of a layer as a full run sees them, of which a preview reads a part."""

from __future__ import annotations

import math
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from napari_gpu_denoise._napari.layers.lazy import is_lazy
from napari_gpu_denoise.correct.wish import wish_of
from napari_gpu_denoise.errors import LayerError
from napari_gpu_denoise.image.levels import as_array
from napari_gpu_denoise.run.block import Block
from napari_gpu_denoise.run.noise import NoiseMemory

_MOST = 1 << 28  # pixels read at once
_MOST_CORRECTED = 1 << 24  # pixels in memory that are corrected at once, not where they are read


class Pixels:
    """A layer without alpha, corrected, its NaN filled: in memory, or read where it is needed.

    `image` is what a run is prepared for. `names` are the axes.
    """

    def __init__(self, data: Any, names: str, correct: Any, nonfinite: str):
        self.names, self._nonfinite = names, nonfinite
        self._read: tuple[tuple[slice, ...], Block] | None = None
        lazy = is_lazy(data)
        array = data if lazy else as_array(data)
        wish = wish_of(correct)
        if wish is not None:
            # Imported only when needed: it takes long to load.
            from napari_gpu_denoise.correct.correction import CorrectedArray, prepare_correction

            if correction := prepare_correction(array, names, wish):
                lazy = lazy or array.size > _MOST_CORRECTED
                array = CorrectedArray(array, correction) if lazy else correction.applied(array)
        self.image: Any = array if lazy else Block.of(array, names, nonfinite)

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
            block = Block.of(as_array(self.image[region]), self.names, self._nonfinite)
            self._read = region, block
        return self._read[1]


_kept: WeakKeyDictionary[NoiseMemory, Pixels] = WeakKeyDictionary()


def pixels_of(memory: NoiseMemory, data: Any, names: str, correct: Any, nonfinite: str) -> Pixels:
    """Return the pixels of a layer; made once for what is known of its noise.

    That is dropped when the data of the layer change, or what the noise depends on.
    """
    if memory not in _kept:
        _kept[memory] = Pixels(data, names, correct, nonfinite)
    return _kept[memory]


def without_alpha(data: Any) -> Any:
    """Return RGBA data without alpha, not copied."""
    if isinstance(data, np.ndarray):
        return data[..., :3]
    from napari_gpu_denoise._napari.layers.lazy import LazyArray

    whole = (slice(None),) * (len(data.shape) - 1)
    return LazyArray(data, part=(*whole, slice(3)))
