"""ImageJ's own metadata: lines of the ImageDescription, and a tag of binary blocks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tifffile

from napari_gpu_denoise.files import image_file
from napari_gpu_denoise.files.image_file import Channel, PixelMetadata

HOLDS = frozenset({"uint8", "uint16", "int16", "float32"})
CONVERTS = frozenset({"int32", "uint32", "float64"})  # opened as float32
BLOCKS, LENGTHS = 50839, 50838  # tags IJMetadata and IJMetadataByteCounts
# What tifffile writes of IJMetadata, which is all that ImageJ does.
_KINDS = {"Info", "Labels", "Ranges", "LUTs", "Plot", "ROI", "Overlays", "Properties"}
_CALIBRATION = (b"cf=", b"c0=", b"c1=", b"c2=", b"c3=", b"c4=", b"vunit=")


def is_signed16(description: Mapping, dtype: np.dtype) -> bool:
    """Return whether ImageJ shows the stored values 0 to 65535 as -32768 to 32767."""
    linear = description.get("cf", 0) == 0 and description.get("c1", 1) == 1
    return dtype == np.uint16 and linear and description.get("c0") == -32768


def swap_sign16(data: np.ndarray) -> np.ndarray:
    """Turn signed 16-bit values into those ImageJ stores for them, or back."""
    other = np.int16 if data.dtype == np.uint16 else np.uint16
    return (data.view(np.uint16) ^ np.uint16(0x8000)).view(other)


def without_calibration(description: bytes) -> bytes:
    """Leave out the lines of the grey level calibration, which floats do not have."""
    lines = description.split(b"\n")
    return b"\n".join(line for line in lines if not line.startswith(_CALIBRATION))


def read_kept(page: tifffile.TiffPage, notes: list[str]) -> dict[str, Any]:
    """Return the Info, labels, display ranges, colour tables and overlays of the tag IJMetadata."""
    held = page.tags.valueof(BLOCKS, default={})
    if not isinstance(held, dict):  # as stored, since tifffile could not read it
        notes.append("The labels, overlays and Info of the file are damaged and not kept.")
        return {}
    if others := held.keys() - _KINDS:
        notes.append(f"Metadata of ImageJ of unknown kinds are not kept: {', '.join(others)}.")
    kept = {kind: value for kind, value in held.items() if kind in _KINDS}
    if isinstance(kept.get("Ranges"), list):  # in several blocks, of which tifffile writes one
        kept["Ranges"] = tuple(itertools.chain(*kept["Ranges"]))
    return kept


def info_of(kept: Mapping[str, Any]) -> str:
    """Return the text that ImageJ shows by Image > Show Info."""
    return "".join(kept.get("Info", ""))  # or of several


def tags_of(kept: Mapping[str, Any], lines: Sequence[str], byteorder: Any) -> list[tuple]:
    """Return the tags of kept metadata, with lines added to the Info."""
    text = "\n".join(filter(None, (info_of(kept).rstrip("\n"), *lines)))
    told = {**kept, "Info": text} if text else kept
    return list(tifffile.imagej_metadata_tag(dict(told), byteorder))


def read_shown(
    description: Mapping[str, Any], page: tifffile.TiffPage, kept: Mapping[str, Any]
) -> PixelMetadata:
    """Return the steps of a stack, their units, and its channels."""
    unit = str(description.get("unit", "")).replace("\\u00B5", "µ").replace("\\u00b5", "µ")
    spacing = image_file.step_of(description.get("spacing"))
    found: dict[str, tuple[Any, Any]] = {"Z": (spacing, description.get("zunit", unit))}
    for letter, code in (("Y", 283), ("X", 282)):  # pixels in a unit
        tag = page.tags.get(code)
        value = tag.value if tag is not None else None
        pixels, length = value if isinstance(value, tuple) and len(value) == 2 else (value, 1)
        own = str(description.get("yunit", unit)) if letter == "Y" else unit
        found[letter] = image_file.step_of(length) / (image_file.step_of(pixels) or math.inf), own
    found["T"] = description.get("finterval"), description.get("tunit", "s")
    # A colour table is told by its brightest colour; tifffile gives a single one as it is.
    held = kept.get("LUTs", [])
    tables = held if isinstance(held, list) else [held]
    tables = [each for each in tables if each.shape == (3, 256)]
    shown = ["#" + bytes(each[:, 255]).hex() for each in tables]
    count = description.get("channels", 1)
    colours = shown[:count] if len(shown) >= count > 1 else [""] * count
    ranges = kept.get("Ranges", ())
    pairs = zip(ranges[::2], ranges[1::2], strict=False)
    ends = [(low, high) for low, high in pairs if low < high < 1e300]
    limits = ends[:count] if len(ends) >= count else [None] * count
    channels = (Channel("", a, b) for a, b in zip(colours, limits, strict=True))
    return PixelMetadata(image_file.kept_steps(found), tuple(channels))
