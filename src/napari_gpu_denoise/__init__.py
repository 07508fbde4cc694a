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

# Public names and the modules they live in. Filters, their functions and noise models are listed by
# `filters` and `noise.models`.
_NAMES = {
    "FILTERS": "filters",
    "IsolineMaps": "filters.isoline",
    "Advice": "assessment.recommend",
    "recommend": "assessment.recommend",
    "Recommended": "files.recommended",
    "isoline_maps": "filters.isoline",
    "subspace": "measurements.subspace",
    "Subspace": "measurements.subspace",
    "assess": "assessment.assess",
    "Assessment": "assessment.record",
    "denoise": "run.denoise",
    "denoise_lazy": "run.lazy",
    "stream": "run.stream",
    "Run": "run.job",
    "Record": "run.record",
    "Result": "run.record",
    "estimate_noise": "noise.estimate",
    "NoiseEstimate": "noise.record",
    "NoiseModel": "noise.models",
    "find_structure": "noise.structure.find",
    "StructuredNoise": "noise.structure.record",
    "Finding": "noise.structure.record",
    "remove_stripes": "noise.structure.remove",
    "remove_outliers": "noise.structure.remove",
    "devices": "opencl.device",
    "choose": "opencl.device",
    "why": "opencl.device",
    "Device": "opencl.device",
    "release_memory": "opencl.memory",
    "read": "files.formats",
    "write": "files.formats",
    "run_batch": "files.batch",
}
_MODULES = {"errors": "errors", "samples": "files.samples"}


def __getattr__(name: str):
    if name == "__version__":
        from napari_gpu_denoise.version import package_version

        return package_version()
    if name == "__all__":
        return [*sorted([*_NAMES, *_MODULES, *_listed()]), "__version__"]
    if name in _MODULES:
        value = importlib.import_module(f"{__name__}.{_MODULES[name]}")
    elif name in _NAMES:
        value = getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)
    elif not name.startswith("_") and name in (found := _listed()):
        value = getattr(importlib.import_module(found[name]), name)
    else:
        if not name.startswith("_"):
            importlib.import_module(f"{__name__}.filters").check_removed(name)
        if name == "propose_chunks":
            raise AttributeError(f"{name} was removed: take chunks of 2048 x 2048 pixels.")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __getattr__("__all__")


def _listed() -> dict[str, str]:
    """Return the modules of every filter, of its function, and of every noise model."""
    from napari_gpu_denoise.filters import MODULES
    from napari_gpu_denoise.noise.models import MODELS

    return MODULES | {kind.__name__: kind.__module__ for kind in MODELS}
