"""Denoise images, volumes and time-lapses on any OpenCL device.

Everything is loaded on first use: importing this package touches no device.

Examples
--------
>>> import napari_gpu_denoise as gd
>>> out = gd.nl_means(image, sigma=20)              # doctest: +SKIP
>>> out = gd.nl_means(stack, axes="TYX", frames_before=4, frames_after=4)  # doctest: +SKIP
"""

from __future__ import annotations

import importlib

# Public names by the modules they live in. Filters, their functions and noise models are listed by
# `filters` and `noise.models`.
_PLACES = {
    "assessment.assess": "assess",
    "assessment.recommend": "recommend Advice",
    "assessment.record": "Assessment",
    "files.batch": "run_batch",
    "files.formats": "read write",
    "files.recommended": "Recommended",
    "filters": "FILTERS",
    "filters.isoline": "isoline_maps IsolineMaps",
    "measurements.subspace": "subspace Subspace",
    "noise.estimate": "estimate_noise",
    "noise.models": "NoiseModel",
    "noise.record": "NoiseEstimate",
    "noise.structure.find": "find_structure",
    "noise.structure.record": "StructuredNoise Finding",
    "noise.structure.remove": "remove_stripes remove_outliers",
    "opencl.device": "devices choose why Device",
    "opencl.memory": "release_memory",
    "run.denoise": "denoise",
    "run.lazy": "denoise_lazy",
    "run.record": "Record Result",
    "run.request": "Run",
    "run.stream": "stream",
}
_NAMES = {name: module for module, names in _PLACES.items() for name in names.split()}
_MODULES = {"errors": "errors", "samples": "files.samples"}


def __getattr__(name: str):
    if name == "__version__":
        from napari_gpu_denoise.version import package_version

        return package_version()
    if name == "__all__":
        return __dir__()
    if name in _MODULES:
        value = importlib.import_module(f"{__name__}.{_MODULES[name]}")
    elif name in _NAMES:
        value = getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)
    elif not name.startswith("_") and name in (found := _listed()):
        value = getattr(importlib.import_module(found[name]), name)
    else:
        if not name.startswith("_"):
            importlib.import_module(f"{__name__}.filters").check_removed(name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*sorted([*_NAMES, *_MODULES, *_listed()]), "__version__"]


def _listed() -> dict[str, str]:
    """Return the modules of every filter, of its function, and of every noise model."""
    from napari_gpu_denoise.filters import MODULES
    from napari_gpu_denoise.noise.models import MODELS

    return MODULES | {kind.__name__: kind.__module__ for kind in MODELS}
