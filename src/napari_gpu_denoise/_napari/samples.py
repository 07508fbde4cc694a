"""The sample stacks as napari layers."""

from __future__ import annotations

from typing import Any


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
