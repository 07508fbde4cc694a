"""A run as text: the Python call and the command line that do the same."""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import Any

from napari_gpu_denoise._napari.denoise.maps import offer_of
from napari_gpu_denoise._napari.denoise.request import Request
from napari_gpu_denoise._napari.noise import snippets as code
from napari_gpu_denoise.run.job import Run

_ZARR = (".ome.zarr", ".zarr")


def python_call(request: Request) -> str:
    """Return Python lines for napari's console that do what a run does.

    ``denoised`` holds the result, ``maps`` the maps of the filter.
    """
    run, alpha = request.run, request.source.alpha
    alone = {"frames": request.frame, "slices": request.slice}
    alone = {name: place for name, place in alone.items() if place is not None}
    given = {**_noise_argument(run), **code.axes_argument(run.axes)}
    chosen = _settings_arguments(run.filter)
    common = _common_arguments(run)
    image, numpy, rest = "image", "", ""
    if alpha:
        image, numpy = "image[..., :3]", "import numpy as np\n"
        spans = [":"] * (max(request.places, default=-1) + 1)
        for axis, at in request.places.items():
            spans[axis] = f"{at}:{at + 1}"
        part = "".join(f"{span}, " for span in spans)
        rest = f"denoised = np.concatenate([denoised, image[{part}..., 3:]], axis=-1)\n"
    if not alone:
        given |= chosen | common
        call = f"{run.filter.name}({image}{code.arguments(given)})"
    else:
        given |= {**alone, **common}
        made = ".of" if "profile" in chosen else ""
        words = ", ".join(f"{name}={value!r}" for name, value in chosen.items())
        constructor = f"{type(run.filter).__name__}{made}({words})"
        call = f"denoise({image}, gd.{constructor}{code.arguments(given)}).image"
    if request.maps:
        given = {**given, **chosen}
        given.pop("dtype", None)
        rest += f"maps = gd.{offer_of(run.filter).function}({image}{code.arguments(given)})\n"
    return f"{code.IMPORT}{numpy}\n{code.image_of(request.source)}denoised = gd.{call}\n{rest}"


def _noise_argument(run: Run) -> dict[str, Any]:
    if run.sigma is not None:
        return {"sigma": run.sigma}
    if run.noise is None:
        return {}
    return {"noise": run.noise if isinstance(run.noise, str) else code.model_code(run.noise.models)}


def _settings_arguments(settings: Any) -> dict[str, Any]:
    """Return the fewest arguments that give the settings; ``profile`` may be one."""
    profile, changes = settings.nearest_profile()
    return changes if profile == next(iter(settings.presets)) else {"profile": profile, **changes}


def _common_arguments(run: Run) -> dict[str, Any]:
    given = {name: getattr(run, name) for name in ("dtype", "nonfinite", "correct", "device")}
    given = {name: value for name, value in given.items() if value not in (None, "raise")}
    return given if run.sigma_factor == 1 else {**given, "sigma_factor": run.sigma_factor}


def command_line(request: Request) -> str:
    """Return the shell command that filters a file as a run filters its layer.

    It filters everything: there is no option for one frame or slice. A layer that was not read from
    a file leaves ``INPUT.tif`` to be filled in.
    """
    run, source = request.run, request.source.path or "INPUT.tif"
    stem, written = source, ".tif"
    for ending in (".ome.tiff", ".ome.tif", ".tiff", ".tif", ".nii.gz", ".nii", *_ZARR):
        stem = stem.removesuffix(ending)
    if source.endswith((".nii.gz", ".nii", *_ZARR)):
        written = source.removeprefix(stem)
    name = run.filter.name.replace("_", "-")
    words = ["gpu-denoise", name, source, "-o", f"{stem}_{name}{written}"]
    words += [*_noise_option(run), "--axes", request.source.axes_of_file(run.axes)]
    for option, value in (_settings_arguments(run.filter) | _common_arguments(run)).items():
        flag = option.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", str(value)]
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def _noise_option(run: Run) -> list[str]:
    """Return the option for the noise; a model is measured again, except for one sigma."""
    sigma, noise = run.sigma, run.noise
    if sigma is None and noise is None:
        return []
    if sigma is None and isinstance(noise, str):
        return ["--noise", noise]
    if sigma is None and noise.name == "gaussian":
        sigma = noise.sigma if len(noise.sigma) > 1 else noise.sigma[0]
    if sigma is None:
        return ["--noise", noise.name]
    return ["--sigma", ",".join(map(str, sigma)) if isinstance(sigma, tuple) else str(sigma)]
