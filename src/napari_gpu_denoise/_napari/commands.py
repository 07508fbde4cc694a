"""Commands of the manifest: panels of each filter and beside them, their opening, and samples.

The menus have commands of their own: napari hides a panel whose widget is chosen again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

# Modules and classes of the panels beside those of the filters; their titles and menus are in
# napari.yaml.
PANELS = {
    "denoise": ("start", "StartPanel"),
    "estimated_noise": ("noise.panel", "NoisePanel"),
    "compare": ("compare.panel", "ComparePanel"),
    "batch": ("batch.panel", "BatchPanel"),
}


@cache
def __getattr__(name: str) -> type | Callable[[], None]:
    if name.startswith("open_"):
        return _opening(name.removeprefix("open_"))
    if name in PANELS:
        module, panel = PANELS[name]
        return getattr(import_module(f"napari_gpu_denoise._napari.{module}"), panel)
    from napari_gpu_denoise.filters import filters_for

    for kind in filters_for(name):
        if kind.name == name:
            from napari_gpu_denoise._napari.denoise.panel import DenoisePanel

            members = {"filter": kind, "title": kind.title}
            return type(f"{kind.__name__}Panel", (DenoisePanel,), members)
    raise AttributeError(f"There is no filter {name!r}.")


def _opening(name: str) -> Callable[[], None]:
    def open_it() -> None:
        from napari import current_viewer

        from napari_gpu_denoise._napari.docks import open_panel
        from napari_gpu_denoise._napari.loading import when_loaded

        viewer = current_viewer()
        when_loaded(lambda: open_panel(viewer, __getattr__(name).title))

    return open_it


def fluorescence() -> list[tuple[Any, dict[str, Any], str]]:
    """Return the fluorescence time-lapse as layer data."""
    return _layers("fluorescence", colormap="green")


def mri() -> list[tuple[Any, dict[str, Any], str]]:
    """Return the MRI slices as layer data, at a slice in the middle."""
    return _layers("mri")


def ultrasound() -> list[tuple[Any, dict[str, Any], str]]:
    """Return the ultrasound cine as layer data."""
    return _layers("ultrasound")


def _layers(name: str, colormap: str = "gray") -> list[tuple[Any, dict[str, Any], str]]:
    import numpy as np
    import tifffile

    from napari_gpu_denoise.files import samples

    known = samples.info(name)
    data = tifffile.imread(samples.path(name))
    low, high = np.percentile(data, (0.1, 99.9))
    attributes = {
        "name": name,
        "scale": known.scale,
        "units": known.units,
        "axis_labels": tuple(known.axes.lower()),
        "colormap": colormap,
        "contrast_limits": (float(low), float(high)),
        "metadata": {"noise": known.noise, "origin": known.origin, "licence": known.licence},
    }
    return [(data, attributes, "image")]
