"""Runs and measurements as text: the Python calls and the command lines that do the same."""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import Any

from napari_gpu_denoise._napari.layers.source import PLACE, Source
from napari_gpu_denoise._napari.run import NoiseRequest, Request
from napari_gpu_denoise.errors import DenoiseError, LayerError
from napari_gpu_denoise.files import FORMAT_NAMES, formats, samples
from napari_gpu_denoise.image.axes import check_axes
from napari_gpu_denoise.noise.models import NoiseModel
from napari_gpu_denoise.protocol.settings import as_options
from napari_gpu_denoise.run.request import Run

IMPORT = "import napari_gpu_denoise as gd\n"

_LOOKS = ("colormap", "contrast_limits", "blending")


def python_call(request: Request) -> str:
    """Return Python lines for napari's console that do what a run does, and add the result.

    ``denoised`` holds the result.
    """
    run, alpha = request.run, request.source.alpha
    image, numpy, rest = "image", "", ""
    if alpha:
        image, numpy = "image[..., :3]", "import numpy as np\n"
        spans = [":"] * (max(request.places, default=-1) + 1)
        for axis, at in request.places.items():
            spans[axis] = f"{at.start}:{at.stop}"
        part = "".join(f"{span}, " for span in spans)
        rest = f"denoised = np.concatenate([denoised, image[{part}..., 3:]], axis=-1)\n"
    if not request.cut:
        call = _call(run, image, request.axes)
    else:
        given = {**noise_argument(run), **axes_argument(request.axes)}
        given |= request.cut | common_arguments(run)
        call = f"gd.denoise({image}, {constructor(run.filter)}{arguments(given)}).image"
    calls = [call, *(_call(each, "denoised", request.axes) for each in request.then)]
    lines = "".join(f"denoised = {each}\n" for each in calls)
    return f"{IMPORT}{numpy}\n{image_of(request.source)}{lines}{rest}{_adding(request)}"


def _call(run: Run, image: str, axes: str) -> str:
    """Return the call of a filter's function."""
    given = {**noise_argument(run), **axes_argument(axes)}
    given |= run.filter.as_arguments() | common_arguments(run)
    return f"gd.{run.filter.name}({image}{arguments(given)})"


def constructor(settings: Any) -> str:
    """Return the settings of a filter as code."""
    given = settings.as_arguments()
    words = ", ".join(f"{name}={value!r}" for name, value in given.items())
    return f"gd.{type(settings).__name__}{'.of' if 'profile' in given else ''}({words})"


def _adding(request: Request) -> str:
    """Return lines that add the result as a layer, where its source lies and looking like it."""
    source, where = request.source, ", ".join(map(repr, PLACE))
    given: dict[str, Any] = {"name": request.name}
    looks = ("blending",) if source.attributes.get("rgb") else _LOOKS
    given |= {name: Code(f"layer.{name}") for name in looks}
    if source.attributes.get("rgb"):
        given["rgb"] = True
    lines = f"layer = viewer.layers[{source.name!r}]\n"
    lines += f"place = {{name: getattr(layer, name) for name in ({where})}}\n"
    if request.cut and source.attributes:
        first = request.placed.attributes["translate"]
        lines += f"place['translate'] = {tuple(round(float(each), 9) for each in first)}\n"
    return f"{lines}viewer.add_image(denoised{arguments(given)}, **place)\n"


def noise_argument(run: Run) -> dict[str, Any]:
    """Return the argument for the noise of a run; none where it is automatic."""
    if run.sigma is not None:
        return {"sigma": run.sigma}
    noise: Any = run.noise
    if not isinstance(noise, str | None):
        return {"noise": model_code(getattr(noise, "models", noise))}
    return {} if noise is None else {"noise": noise}


def common_arguments(run: Run) -> dict[str, Any]:
    """Return the arguments of a run that all filters take, where they are not the defaults."""
    correct: Any = run.correct
    dtype = run.dtype and str(run.dtype)
    given = {"dtype": dtype, "nonfinite": run.nonfinite}
    given["correct"] = correct and correct.as_argument()
    given["device"] = run.device
    given = {name: value for name, value in given.items() if value not in (None, "raise")}
    return given if run.sigma_factor == 1 else {**given, "sigma_factor": run.sigma_factor}


def command_with_remarks(request: Request) -> tuple[str, list[str]]:
    """Return the command that filters a file as a run filters its layer, and how it differs.

    The result lies beside the file under a name of its own, one of the samples' in the folder of
    the shell. It filters everything: there is no option for one frame or slice. A layer that was
    not read from a file that can be read leaves ``INPUT.tif`` to be filled in.
    """
    run, path, split = request.run, request.source.path or "", request.source.split
    path = path if formats.has_suffix(path) or formats.is_image(path) else None
    named = path or "INPUT.tif"
    remarks = [] if path else [f"Replace INPUT.tif by the name of a {FORMAT_NAMES} file."]
    target = formats.beside(named, run.filter.name.replace("_", "-"))
    if path in [str(samples.path(each)) for each in samples.names()]:
        target = os.path.basename(target)
    elif os.path.exists(target):
        known = os.path.basename(target)
        remarks.append(f"{known} already exists and is kept unless you add --overwrite.")
    axes, other = "", None if path is None else _other_axes(path, request)
    if other is None:
        axes = request.axes
        axes = axes if split is None else f"{axes[:split]}C{axes[split:]}"
    else:
        remarks.append(f"It filters the whole file, whose axes are {other}.")
    if split is not None:
        remarks.append("It filters all channels of the file.")
    words = filter_words(run, [named], target, axes)
    if request.cut:
        remarks.append(f"It filters all {' and '.join(request.cut)}.")
    if "--noise" in words and not isinstance(run.noise, str):
        remarks.append("It measures the noise again, in the whole file.")
    return shell_line(words), remarks


def filter_words(run: Run, inputs: list[str], target: str, axes: str | None) -> list[str]:
    """Return the words of the command that filters files as a run says."""
    words = ["gpu-denoise", run.filter.name.replace("_", "-"), *inputs, "-o", target]
    words += [*noise_option(run), *(["--axes", axes] if axes else [])]
    return words + as_options(run.filter.as_arguments() | common_arguments(run))


def shell_line(words: list[str]) -> str:
    """Return the words of a command as they are typed into a shell."""
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def _other_axes(path: str, request: Request) -> str | None:
    """Return the axes of a file whose layer is only a part of it; None if it is all."""
    source = request.source
    if source.data is None or source.split is not None or not os.path.exists(path):
        return None
    try:
        with formats.open_stack(path) as picture:
            shape, axes = tuple(picture.pixels.shape), picture.filter_axes
    except DenoiseError:
        return None
    held = tuple(source.data.shape)
    return None if shape == ((*held[:-1], 3) if source.alpha else held) else axes


def noise_option(run: Run) -> list[str]:
    """Return the option for the noise; a model is measured again, except for one sigma."""
    given, noise = run.sigma, run.noise
    if given is None and not isinstance(noise, str | None):
        models: Any = getattr(noise, "models", noise)
        if not models[0].is_one_sigma():
            return ["--noise", models[0].name]
        given = tuple(each.sigma for each in models)
    if given is None:
        return [] if noise is None else ["--noise", str(noise)]
    return ["--sigma", ",".join(map(str, given)) if isinstance(given, tuple) else str(given)]


def noise_call(request: NoiseRequest, function: str, estimate: Any) -> str:
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
    codes = [f"gd.{model!r}" for model in models]
    return Code(codes[0] if len(codes) == 1 else f"({', '.join(codes)})")


def arguments(given: dict[str, Any]) -> str:
    """Return keyword arguments as code, after a first argument."""
    return "".join(f", {name}={value!r}" for name, value in given.items())
