"""A run as text: the Python call and the command line that do the same."""

from __future__ import annotations

import dataclasses
import os
import shlex
import subprocess
from typing import TYPE_CHECKING, Any

from napari_gpu_denoise._napari.maps import offer_of
from napari_gpu_denoise.axes import check_axes
from napari_gpu_denoise.errors import LayerError
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.noise.models import NoiseModel
from napari_gpu_denoise.noise.noise_estimate import NoiseEstimate

if TYPE_CHECKING:
    from napari_gpu_denoise._napari.measuring import Request

COMMAND = "gpu-denoise"


@dataclasses.dataclass(frozen=True)
class Choices:
    """What the panel is set to; the same names and meanings as the arguments of a filter.

    Attributes
    ----------
    settings : dataclass instance
        An entry of FILTERS, filled in.
    sigma : float, tuple of float or None
        None to estimate.
    axes : str
        One letter an axis.
    dtype : str or None
        None for that of the input.
    nonfinite : str
        ``"raise"`` or ``"keep"``.
    device : int, str or None
        None for the best there is.
    alpha : bool
        Whether the image is RGBA; its alpha is not filtered.
    frame : int or None
        The one frame along T that is wanted; None for all there is.
    maps : bool
        Whether to show what the filter saw as well.
    noise : str, NoiseEstimate or None
        What filters take as `noise`; None for one sigma. A sigma goes before it.
    """

    settings: Any
    sigma: float | tuple[float, ...] | None
    axes: str
    dtype: str | None = None
    nonfinite: str = "raise"
    device: int | str | None = None
    alpha: bool = False
    frame: int | None = None
    maps: bool = False
    noise: str | NoiseEstimate | None = None

    def said_noise(self) -> dict[str, Any]:
        """Return the argument that says the noise, by name."""
        if self.sigma is not None:
            return {"sigma": self.sigma}
        if self.noise is None:
            return {}
        if isinstance(self.noise, str):
            return {"noise": self.noise}
        return {"noise": model_code(self.noise.models)}

    def said_settings(self) -> dict[str, Any]:
        """Return the fewest arguments that say the settings, by name; ``profile`` may be one."""
        profile, changes = self.settings.nearest_profile()
        default = next(iter(self.settings.presets))
        return changes if profile == default else {"profile": profile, **changes}


def python_call(choices: Choices, layer_name: str, multiscale: bool = False) -> str:
    """Return Python lines that filter a layer as the panel does.

    Parameters
    ----------
    choices : Choices
    layer_name : str
        The layer the lines take from ``viewer``.
    multiscale : bool, optional
        Whether the layer has levels; the first is filtered.

    Returns
    -------
    str
        Lines for napari's console; `denoised` holds the result, `maps` what the filter saw.
    """
    level = "[0]" if multiscale else ""
    arguments = choices.said_noise()
    if not _is_default(choices.axes):
        arguments["axes"] = choices.axes
    if choices.frame is None:
        arguments |= choices.said_settings()
    else:
        arguments["frames"] = choices.frame
    defaults = {field.name: field.default for field in dataclasses.fields(Choices)}
    for name in ("dtype", "nonfinite", "device"):
        if (value := getattr(choices, name)) != defaults[name]:
            arguments[name] = value
    given = _said(arguments)
    image, numpy, rest = "image", "", ""
    if choices.alpha:
        image, numpy = "image[..., :3]", "import numpy as np\n"
        frame = ""
        if choices.frame is not None:
            frame = ":, " * choices.axes.index("T") + f"{choices.frame}:{choices.frame + 1}, "
        rest = f"denoised = np.concatenate([denoised, image[{frame}..., 3:]], axis=-1)\n"
    call = f"{choices.settings.name}({image}{given})"
    if choices.frame is not None:
        call = f"denoise({image}, gd.{_constructor(choices)}{given}).image"
    if choices.maps:
        arguments = {**arguments, **choices.said_settings()}
        arguments.pop("dtype", None)
        rest += f"maps = gd.{offer_of(choices.settings).function}({image}{_said(arguments)})\n"
    return (
        f"import napari_gpu_denoise as gd\n{numpy}"
        "\n"
        f"image = viewer.layers[{layer_name!r}].data{level}\n"
        f"denoised = gd.{call}\n"
        f"{rest}"
    )


class _Code(str):
    """Text that stands in code as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def model_code(models: tuple[NoiseModel, ...]) -> str:
    """Return models of noise as code: one, or a tuple of one a channel."""
    said = [f"gd.{model!r}" for model in models]
    return _Code(said[0] if len(said) == 1 else f"({', '.join(said)})")


def noise_call(
    request: Request,
    layer_name: str,
    axes: str,
    title: str,
    estimate: NoiseEstimate | None,
    multiscale: bool = False,
) -> str:
    """Return Python lines that measure noise as the panel does, and filter with it.

    Parameters
    ----------
    request : measuring.Request
        What the panel measures.
    layer_name : str
        The layer the lines take from ``viewer``.
    axes : str
        Axes of the whole layer.
    title : str
        Of the filter.
    estimate : NoiseEstimate or None
        What came of it. Of a flat region the lines hold the result.
    multiscale : bool, optional
        Whether the layer has levels; the first is measured.

    Raises
    ------
    LayerError
        If a flat region is not measured yet.
    """
    level, part = "[0]" if multiscale else "", request.part
    lines = [f"image = viewer.layers[{layer_name!r}].data{level}"]
    if request.flat:
        if estimate is None:
            raise LayerError("The region is not measured yet: wait for its numbers.")
        lines += [f"# in {part.said}", f"noise = {model_code(estimate.models)}"]
    else:
        given = {} if _is_default(part.axes) else {"axes": part.axes}
        if request.model != "auto":
            given["model"] = request.model
        lines.append(f"noise = gd.estimate_noise(image{part.code}{_said(given)})")
        lines.append("print(noise.summary())")
    (kind,) = (each for each in FILTERS if each.title == title)
    image = "image[..., :3]" if request.alpha else "image"
    given = {} if _is_default(axes) else {"axes": axes}
    said = _said({**given, "noise": _Code("noise")})
    lines.append(f"denoised = gd.{kind.name}({image}{said})")
    return "import napari_gpu_denoise as gd\n\n" + "\n".join(lines) + "\n"


def _is_default(axes: str) -> bool:
    return axes == check_axes(None, (1,) * len(axes))


def _said(arguments: dict[str, Any]) -> str:
    return "".join(f", {name}={value!r}" for name, value in arguments.items())


def _constructor(choices: Choices) -> str:
    said = choices.said_settings()
    made = "of" if "profile" in said else ""
    words = ", ".join(f"{name}={value!r}" for name, value in said.items())
    return f"{type(choices.settings).__name__}{'.' * bool(made)}{made}({words})"


def command_line(choices: Choices, path: str | None) -> str:
    """Return the shell command that filters a file as the panel filters its layer.

    It filters all frames: there is no option for one.

    Parameters
    ----------
    choices : Choices
    path : str or None
        File the layer was read from; None leaves ``INPUT.tif`` to be filled in.

    Returns
    -------
    str
    """
    source = path or "INPUT.tif"
    stem = source
    for ending in (".ome.tiff", ".ome.tif", ".tiff", ".tif"):
        stem = stem.removesuffix(ending)
    name = choices.settings.name.replace("_", "-")
    words = [COMMAND, name, source, "-o", f"{stem}_{name}.tif"]
    words += _noise_option(choices)
    words += ["--axes", choices.axes]
    for setting, value in choices.said_settings().items():
        words += _option(setting, value)
    if choices.dtype is not None:
        words += ["--dtype", choices.dtype]
    if choices.nonfinite != "raise":
        words += ["--nonfinite", choices.nonfinite]
    if choices.device is not None:
        words += ["--device", str(choices.device)]
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def _option(name: str, value: Any) -> list[str]:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", str(value)]


def _noise_option(choices: Choices) -> list[str]:
    """Return the option that says the noise; a model is measured anew, but for one sigma."""
    sigma, noise = choices.sigma, choices.noise
    if sigma is None and noise is None:
        return []
    if sigma is None and isinstance(noise, str):
        return ["--noise", noise]
    if sigma is None and noise.name == "gaussian":
        sigma = noise.sigma if len(noise.sigma) > 1 else noise.sigma[0]
    if sigma is None:
        # One that is correlated cannot be asked for: it is found.
        return ["--noise", "auto" if noise.name == "correlated" else noise.name]
    return ["--sigma", _numbers(sigma)]


def _numbers(sigma: float | tuple[float, ...]) -> str:
    return ",".join(map(str, sigma)) if isinstance(sigma, tuple) else str(sigma)
