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

_NAMES = {
    "NLMeans": "filters.nl_means",
    "nl_means": "filters.nl_means",
    "BM3D": "filters.bm3d",
    "bm3d": "filters.bm3d",
    "VBM3D": "filters.vbm3d",
    "vbm3d": "filters.vbm3d",
    "Isoline": "filters.isoline",
    "isoline": "filters.isoline",
    "IsolineMaps": "filters.isoline_maps",
    "isoline_maps": "filters.isoline_maps",
    "FILTERS": "filters",
    "denoise": "run",
    "denoise_steps": "run",
    "denoise_lazy": "lazy",
    "stream": "streaming",
    "Progress": "pipeline",
    "Record": "run",
    "Result": "run",
    "estimate_noise": "noise.estimate",
    "NoiseEstimate": "noise.estimate",
    "NoiseModel": "noise.models",
    "Gaussian": "noise.models",
    "Correlated": "noise.models",
    "PoissonGaussian": "noise.models",
    "Rician": "noise.models",
    "Speckle": "noise.models",
    "devices": "opencl.device",
    "choose": "opencl.device",
    "why": "opencl.device",
    "Device": "opencl.device",
    "release_memory": "opencl.memory",
    "read": "io",
    "write": "io",
    "run_batch": "batch",
    "errors": "errors",
}

__all__ = [*sorted(_NAMES), "__version__"]


def __getattr__(name: str):
    if name == "__version__":
        from napari_gpu_denoise.run import package_version

        return package_version()
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_NAMES[name]}")
    value = module if name == "errors" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
