"""Arguments of the public functions as Python code."""

from __future__ import annotations

from typing import Any

from napari_gpu_denoise._napari.layers.source import Source
from napari_gpu_denoise.image.axes import check_axes
from napari_gpu_denoise.noise.models import NoiseModel

IMPORT = "import napari_gpu_denoise as gd\n"


class Code(str):
    """Text that stands in code as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def image_of(source: Source) -> str:
    """Return a line that takes the data of a layer from ``viewer``."""
    level = "[0]" if source.multiscale else ""
    return f"image = viewer.layers[{source.name!r}].data{level}\n"


def axes_argument(axes: str) -> dict[str, str]:
    """Return the argument that names axes; none where they are the default."""
    return {} if axes == check_axes(None, (1,) * len(axes)) else {"axes": axes}


def model_code(models: tuple[NoiseModel, ...]) -> Code:
    """Return noise models as code: one, or a tuple of one a channel."""
    codes = [f"gd.{model!r}" for model in models]
    return Code(codes[0] if len(codes) == 1 else f"({', '.join(codes)})")


def arguments(given: dict[str, Any]) -> str:
    """Return keyword arguments as code, after a first argument."""
    return "".join(f", {name}={value!r}" for name, value in given.items())
