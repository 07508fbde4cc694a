"""How an image is shown: steps along its axes with their units, names and colours of channels.

What is damaged or unknown is left out: none of it is needed to read the pixels.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import tifffile

from napari_gpu_denoise.files.tiff import imagej, ome_xml
from napari_gpu_denoise.files.tiff.voxel import imagej_steps, number

# Units by the names and symbols that files have for them: those of OME-Zarr, which pint knows too.
UNITS = {
    **dict.fromkeys(("m", "metre"), "meter"),
    "cm": "centimeter",
    "mm": "millimeter",
    **dict.fromkeys(("µm", "μm", "um", "micron", "microns"), "micrometer"),
    "nm": "nanometer",
    "pm": "picometer",
    **dict.fromkeys(("Å", "Å"), "angstrom"),
    **dict.fromkeys(("in", "inches"), "inch"),
    **dict.fromkeys(("s", "sec", "secs", "seconds"), "second"),
    **dict.fromkeys(("ms", "msec"), "millisecond"),
    **dict.fromkeys(("µs", "μs", "us", "usec"), "microsecond"),
    "ns": "nanosecond",
    **dict.fromkeys(("min", "minutes"), "minute"),
    **dict.fromkeys(("h", "hr", "hours"), "hour"),
    **dict.fromkeys(("d", "days"), "day"),
}
#: Symbols that OME-XML has for lengths and times.
SYMBOLS = {
    **{"meter": "m", "centimeter": "cm", "millimeter": "mm", "micrometer": "µm"},
    **{"nanometer": "nm", "picometer": "pm", "angstrom": "Å", "inch": "in"},
    **{"second": "s", "millisecond": "ms", "microsecond": "µs", "nanosecond": "ns"},
    **{"minute": "min", "hour": "h", "day": "d"},
}
_KNOWN = set(SYMBOLS)

Steps = dict[str, tuple[float, str]]


@dataclass(frozen=True)
class Channel:
    """A channel: its name, its colour as ``"#rrggbb"``, the grey levels shown black and white."""

    name: str = ""
    colour: str = ""
    limits: tuple[float, float] | None = None


@dataclass(frozen=True)
class Looks:
    """How an image is shown.

    `steps` hold, by the letter of an axis, the distance of neighbours and its unit, such as
    ``"micrometer"``; the unit is empty where it is not known. `channels` are those along C.
    """

    steps: Steps
    channels: tuple[Channel, ...] = ()


def unit_named(told: Any) -> str:
    """Return the full name of a unit; empty for one that is no length and no time."""
    text = str(told).strip()
    if text in UNITS:  # capitals count: M is no metre
        return UNITS[text]
    text = text.lower()
    text = UNITS.get(text, text) if len(text) > 2 else text
    return text if text in _KNOWN else ""


def kept_steps(found: Mapping[str, tuple[Any, Any]]) -> Steps:
    """Return the steps that are distances, with the full names of their units."""
    return {
        letter: (value, unit_named(unit))
        for letter, (told, unit) in found.items()
        if (value := number(told))
    }


def of_ome(xml: str, image: int) -> Looks:
    """Return how an image of OME-XML is shown."""
    told, channels = ome_xml.described(xml, image)
    found = {
        a: (told.get(f"PhysicalSize{a}"), told.get(f"PhysicalSize{a}Unit", "µm")) for a in "XYZ"
    }
    found["T"] = told.get("TimeIncrement"), told.get("TimeIncrementUnit", "s")
    if not any(number(value) for value, _ in found.values()):
        found = {}
    shown = tuple(Channel(each.get("Name", ""), _colour(each.get("Color"))) for each in channels)
    return Looks(kept_steps(found), shown)


def _colour(told: Any) -> str:
    """Return the colour that OME-XML holds as a signed number, red first, alpha last."""
    try:
        return f"#{(int(told) >> 8) & 0xFFFFFF:06x}"
    except (TypeError, ValueError):
        return ""


def of_imagej(
    description: Mapping[str, Any], page: tifffile.TiffPage, blocks: imagej.Blocks
) -> Looks:
    """Return how a stack of ImageJ is shown."""
    found: dict[str, tuple[Any, Any]] = dict(imagej_steps(description, page))
    found["T"] = description.get("finterval"), description.get("tunit", "s")
    shown = blocks.colours()
    count = description.get("channels", 1)
    colours = shown[:count] if len(shown) >= count > 1 else [""] * count
    ends = blocks.ranges()
    limits = ends[:count] if len(ends) >= count else [None] * count
    channels = (Channel("", a, b) for a, b in zip(colours, limits, strict=True))
    return Looks(kept_steps(found), tuple(channels))


def of_description(texts: Iterable[bytes]) -> Looks:
    """Return how an image is shown whose JSON, of tifffile's kind, says so as we write it."""
    for text in texts:
        try:
            found = json.loads(text.rstrip(b"\0"))
            steps = {a: (float(s), str(u)) for a, (s, u) in found["steps"].items()}
            channels = tuple(Channel(str(n), str(c)) for n, c in found.get("channels", ()))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue
        return Looks(kept_steps(steps), channels)
    return Looks({})
