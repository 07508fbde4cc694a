"""Python code that measures noise as the panel does."""

from __future__ import annotations

from napari_gpu_denoise._napari.code import (
    IMPORT,
    Code,
    arguments,
    axes_argument,
    image_of,
    model_code,
)
from napari_gpu_denoise._napari.noise.measuring import NoiseRequest
from napari_gpu_denoise.errors import LayerError
from napari_gpu_denoise.noise.record import NoiseEstimate


def noise_call(request: NoiseRequest, function: str, estimate: NoiseEstimate | None) -> str:
    """Return Python lines that measure noise, and filter with it.

    Parameters
    ----------
    request : NoiseRequest
    function : str
        Public name of the filter.
    estimate : NoiseEstimate or None
        The result; of a flat region the lines hold its numbers.

    Raises
    ------
    LayerError
        If a flat region is not measured yet.
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
