"""Python code that does what the panel "Estimated noise" does, and parts of such code."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from napari_gpu_denoise._napari.layers.source import Source
from napari_gpu_denoise._napari.noise.measuring import NoiseRequest
from napari_gpu_denoise.errors import LayerError
from napari_gpu_denoise.image.axes import check_axes
from napari_gpu_denoise.noise.models import NoiseModel
from napari_gpu_denoise.noise.record import NoiseEstimate

IMPORT = "import napari_gpu_denoise as gd\n"


def noise_call(request: NoiseRequest, function: str, estimate: NoiseEstimate | None) -> str:
    """Return Python lines that measure noise, and filter with it by a public `function`.

    Of a flat region the lines hold the numbers of `estimate`; without it `LayerError` is raised.
    """
    part = request.part
    lines = image_of(request.source)
    if request.flat:
        if estimate is None:
            raise LayerError("The region is not measured yet: wait for its numbers.")
        lines += f"# in {part.place}\nnoise = {model_code(estimate.models)}\n"
    else:
        given = axes_argument(part.axes)
        if request.model != "auto":
            given["model"] = request.model
        lines += f"noise = gd.estimate_noise(image{part.code}{arguments(given)})\n"
        lines += "print(noise.summary())\n"
    image = "image[..., :3]" if request.source.alpha else "image"
    given = {**axes_argument(request.axes), "noise": Code("noise")}
    return f"{IMPORT}\n{lines}denoised = gd.{function}({image}{arguments(given)})\n"


class Code(str):
    """Text that is put into code without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def image_of(source: Source) -> str:
    """Return a line that takes the data of a layer from ``viewer``."""
    level = "[0]" if source.multiscale else ""
    numbers = ".astype('uint8')" if source.boolean else ""
    return f"image = viewer.layers[{source.name!r}].data{level}{numbers}\n"


def axes_argument(axes: str) -> dict[str, str]:
    """Return the argument that names axes; none where they are the default."""
    return {} if axes == check_axes(None, (1,) * len(axes)) else {"axes": axes}


def model_code(models: tuple[NoiseModel, ...]) -> Code:
    """Return noise models as code: one, or a tuple of one per channel."""
    codes = []
    for model in models:
        values = {each.name: (getattr(model, each.name), each.default) for each in fields(model)}
        given = {name: value for name, (value, default) in values.items() if value != default}
        codes.append(f"gd.{type(model).__name__}({arguments(given).removeprefix(', ')})")
    return Code(codes[0] if len(codes) == 1 else f"({', '.join(codes)})")


def arguments(given: dict[str, Any]) -> str:
    """Return keyword arguments as code, after a first argument."""
    return "".join(f", {name}={value!r}" for name, value in given.items())
