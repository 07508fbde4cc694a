"""Voxel size, as ImageJ and OME-TIFF files tell it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import tifffile

from napari_gpu_denoise.files.tiff import ome_xml

# Units of length in metres, by the names that ImageJ and OME-XML have for them.
_METRES = {
    **dict.fromkeys(("m", "meter", "metre"), 1.0),
    **dict.fromkeys(("cm", "centimeter"), 1e-2),
    **dict.fromkeys(("mm", "millimeter"), 1e-3),
    **dict.fromkeys(("µm", "um", "micron", "microns", "micrometer"), 1e-6),
    **dict.fromkeys(("nm", "nanometer"), 1e-9),
    **dict.fromkeys(("pm", "picometer"), 1e-12),
    **dict.fromkeys(("Å", "angstrom"), 1e-10),
    **dict.fromkeys(("in", "inch"), 0.0254),
}

Voxel = tuple[tuple[float, float, float] | None, str]  # (z, y, x), and the unit of all three
NONE: Voxel = (None, "")


def of_ome(xml: str, image: int) -> Voxel:
    """Return the voxel size of an image of OME-XML."""
    told = ome_xml.physical_sizes(xml, image)
    steps, units = (
        [number(told.get(a)) for a in "ZYX"],
        [told.get(f"{a}Unit", "µm") for a in "ZYX"],
    )
    return sized(steps, units)


def of_imagej(description: Mapping[str, Any], page: tifffile.TiffPage) -> Voxel:
    """Return the voxel size of a stack of ImageJ, which has the distance of planes in a text."""
    told = imagej_steps(description, page)
    return sized([told[a][0] for a in "ZYX"], [told[a][1] for a in "ZYX"])


def imagej_steps(
    description: Mapping[str, Any], page: tifffile.TiffPage
) -> dict[str, tuple[float, str]]:
    """Return the steps along Z, Y and X and their units as told; 0 for what is not."""
    unit = str(description.get("unit", "")).replace("\\u00B5", "µ").replace("\\u00b5", "µ")
    found = {"Z": (number(description.get("spacing")), str(description.get("zunit", unit)))}
    for letter, code in (("Y", 283), ("X", 282)):  # pixels in a unit
        tag = page.tags.get(code)
        value = tag.value if tag is not None else None
        pixels, length = value if isinstance(value, tuple) and len(value) == 2 else (value, 1)
        own = str(description.get("yunit", unit)) if letter == "Y" else unit
        found[letter] = number(length) / (number(pixels) or math.inf), own
    return found


def number(told: Any) -> float:
    """Return a length; 0 for what is none."""
    try:
        step = abs(float(told))
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return step if math.isfinite(step) else 0.0


def sized(steps: list[float], units: list[str]) -> Voxel:
    """Return the size in the unit of x; none if a length is missing or units do not compare."""
    factors = [_METRES.get(unit) for unit in units]
    if not all(steps):
        return NONE
    unit = "µm" if factors[2] == 1e-6 else units[2]
    if len(set(units)) > 1:
        if None in factors:
            return NONE
        steps = [
            step if own == factors[2] else step * own / factors[2]
            for step, own in zip(steps, factors, strict=True)
        ]
    return (steps[0], steps[1], steps[2]), unit
