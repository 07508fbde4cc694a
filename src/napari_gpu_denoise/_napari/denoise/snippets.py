"""A run as text: the Python call and the command line that do the same."""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import Any

from napari_gpu_denoise._napari.code import (
    IMPORT,
    arguments,
    axes_argument,
    image_of,
    model_code,
)
from napari_gpu_denoise._napari.denoise.maps import offer_of
from napari_gpu_denoise._napari.denoise.request import Request

COMMAND = "gpu-denoise"


def python_call(request: Request) -> str:
    """Return Python lines for napari's console that do what a run does.

    ``denoised`` holds the result, ``maps`` the maps of the filter.
    """
    settings, frame = request.settings, request.frame
    given = {**_noise_argument(request), **axes_argument(request.axes)}
    chosen = _settings_arguments(settings)
    common = {name: getattr(request, name) for name in ("dtype", "nonfinite", "device")}
    common = {name: value for name, value in common.items() if value not in (None, "raise")}
    image, numpy, rest = "image", "", ""
    if request.alpha:
        image, numpy = "image[..., :3]", "import numpy as np\n"
        part = ""
        if frame is not None:
            part = ":, " * request.axes.index("T") + f"{frame}:{frame + 1}, "
        rest = f"denoised = np.concatenate([denoised, image[{part}..., 3:]], axis=-1)\n"
    if frame is None:
        given |= chosen | common
        call = f"{settings.name}({image}{arguments(given)})"
    else:
        given |= {"frames": frame, **common}
        call = f"denoise({image}, gd.{_constructor(settings)}{arguments(given)}).image"
    if request.maps:
        given = {**given, **chosen}
        given.pop("dtype", None)
        rest += f"maps = gd.{offer_of(settings).function}({image}{arguments(given)})\n"
    return f"{IMPORT}{numpy}\n{image_of(request.source)}denoised = gd.{call}\n{rest}"


def _noise_argument(request: Request) -> dict[str, Any]:
    if request.sigma is not None:
        return {"sigma": request.sigma}
    if request.noise is None:
        return {}
    if isinstance(request.noise, str):
        return {"noise": request.noise}
    return {"noise": model_code(request.noise.models)}


def _settings_arguments(settings: Any) -> dict[str, Any]:
    """Return the fewest arguments that give the settings; ``profile`` may be one."""
    profile, changes = settings.nearest_profile()
    return changes if profile == next(iter(settings.presets)) else {"profile": profile, **changes}


def _constructor(settings: Any) -> str:
    given = _settings_arguments(settings)
    made = ".of" if "profile" in given else ""
    words = ", ".join(f"{name}={value!r}" for name, value in given.items())
    return f"{type(settings).__name__}{made}({words})"


def command_line(request: Request) -> str:
    """Return the shell command that filters a file as a run filters its layer.

    It filters all frames: there is no option for one. A layer that was not read from a file leaves
    ``INPUT.tif`` to be filled in.
    """
    source = stem = request.source.path or "INPUT.tif"
    for ending in (".ome.tiff", ".ome.tif", ".tiff", ".tif"):
        stem = stem.removesuffix(ending)
    name = request.settings.name.replace("_", "-")
    words = [COMMAND, name, source, "-o", f"{stem}_{name}.tif"]
    words += _noise_option(request)
    words += ["--axes", request.axes]
    for setting, value in _settings_arguments(request.settings).items():
        words += _option(setting, value)
    if request.dtype is not None:
        words += ["--dtype", request.dtype]
    if request.nonfinite != "raise":
        words += ["--nonfinite", request.nonfinite]
    if request.device is not None:
        words += ["--device", str(request.device)]
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def _option(name: str, value: Any) -> list[str]:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", str(value)]


def _noise_option(request: Request) -> list[str]:
    """Return the option for the noise; a model is measured again, except for one sigma."""
    sigma, noise = request.sigma, request.noise
    if sigma is None and noise is None:
        return []
    if sigma is None and isinstance(noise, str):
        return ["--noise", noise]
    if sigma is None and noise.name == "gaussian":
        sigma = noise.sigma if len(noise.sigma) > 1 else noise.sigma[0]
    if sigma is None:
        # Correlated noise has no option of its own: it is found.
        return ["--noise", "auto" if noise.name == "correlated" else noise.name]
    return ["--sigma", _numbers(sigma)]


def _numbers(sigma: float | tuple[float, ...]) -> str:
    return ",".join(map(str, sigma)) if isinstance(sigma, tuple) else str(sigma)
