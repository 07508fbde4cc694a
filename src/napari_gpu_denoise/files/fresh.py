"""Descriptions of images that come from no file, as which their pixels are written."""

from __future__ import annotations

import json
import string
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from napari_gpu_denoise.files.tiff import ome_xml
from napari_gpu_denoise.files.tiff.looks import SYMBOLS, Looks
from napari_gpu_denoise.files.tiff.picture import Picture

_SCHEMA = "http://www.openmicroscopy.org/Schemas/OME/2016-06"
_RGB, _MINISBLACK = 2, 1
_UNASSOCIATED_ALPHA = 2


def new_picture(
    data: object, axes: str, looks: Looks, name: str, inputs: Iterable[Path] = ()
) -> Picture:
    """Return the description of pixels as which `formats.write` makes a new TIFF file.

    Their axes end with Y, X or Y, X, S; others may be unnamed. The file is an OME-TIFF, or where
    that cannot hold axes or type, a plain one with a description in JSON. `inputs` are files that
    the new one must not replace.
    """
    samples = data.shape[-1] if axes.endswith("S") else 1
    y, x = data.shape[axes.index("Y")], data.shape[axes.index("X")]
    dtype = np.dtype(data.dtype)
    named = len(set(axes)) == len(axes) and set(axes) <= set("TZCYXS")
    kind = "ome" if named and dtype.name in ome_xml.HELD else "plain"
    metadata = {
        "byteorder": "<",
        "bigtiff": False,
        "dtype": dtype.name,
        "photometric": _RGB if samples >= 3 else _MINISBLACK,
        "extrasamples": (_UNASSOCIATED_ALPHA,) if samples == 4 else (),
        "compression": 1,
        "predictor": 1,
        "tile": None,
        "truncate": False,
        "resolution": (None, None),
        "resolutionunit": None,
        "colormap": None,
        "software": None,
        "tags": [],
        "stored": (1, 1, y, x, samples),
        "signed16": False,
        "descriptions": [],
    }
    if kind == "ome":
        metadata |= {"xml": _xml(data.shape, axes, looks, name), "image": 0}
    else:
        axes = _lettered(axes)
        metadata["descriptions"] = [_json(data.shape, axes, looks)]
    inputs = tuple(inputs)
    path = inputs[0] if inputs else Path(name)
    return Picture(data, axes, kind, metadata, path, inputs, looks=looks)


def _lettered(axes: str) -> str:
    """Return axes with a letter of its own for each that has no name."""
    free = iter("Q" + "".join(a for a in string.ascii_uppercase if a not in "QTZCYXS" + axes))
    taken: set[str] = set()
    out = ""
    for letter in axes:
        if letter in taken or not letter.isalpha():
            letter = next(free)
        taken.add(letter)
        out += letter
    return out


def _json(shape: tuple[int, ...], axes: str, looks: Looks) -> bytes:
    """Return a description as tifffile has it, with steps and channels."""
    channels = [(each.name, each.colour) for each in looks.channels]
    kept = {"shape": list(shape), "axes": axes, "steps": looks.steps, "channels": channels}
    return json.dumps(kept).encode("ascii")


def _xml(shape: tuple[int, ...], axes: str, looks: Looks, name: str) -> str:
    """Return OME-XML of one image; type and data of the pixels are entered when it is written."""
    lengths = dict(zip(axes, shape, strict=True))
    samples, channels = lengths.get("S", 1), lengths.get("C", 1)
    outer = "".join(a for a in axes if a in "TZC")[::-1]
    order = "XY" + outer + "".join(a for a in "ZCT" if a not in outer)
    root = ElementTree.Element("OME", {"xmlns": _SCHEMA, "Creator": "napari-gpu-denoise"})
    image = ElementTree.SubElement(root, "Image", {"ID": "Image:0", "Name": name})
    pixels = {"ID": "Pixels:0", "DimensionOrder": order, "Type": "uint8"}
    pixels |= {f"Size{a}": str(lengths.get(a, 1)) for a in "XYZT"}
    pixels["SizeC"] = str(samples * channels)
    for letter in "XYZ":
        if letter in looks.steps:
            value, unit = looks.steps[letter]
            pixels[f"PhysicalSize{letter}"] = repr(float(value))
            pixels[f"PhysicalSize{letter}Unit"] = SYMBOLS.get(unit, "pixel")
    if "T" in looks.steps:
        value, unit = looks.steps["T"]
        pixels["TimeIncrement"] = repr(float(value))
        pixels["TimeIncrementUnit"] = SYMBOLS.get(unit, "s")
    held = ElementTree.SubElement(image, "Pixels", pixels)
    for number in range(channels):
        told = {"ID": f"Channel:0:{number}", "SamplesPerPixel": str(samples)}
        if number < len(looks.channels):
            channel = looks.channels[number]
            if channel.name:
                told["Name"] = channel.name
            if channel.colour:
                told["Color"] = str(_signed(int(channel.colour[1:], 16) << 8 | 255))
        ElementTree.SubElement(held, "Channel", told)
    return ElementTree.tostring(root, "unicode")


def _signed(value: int) -> int:
    """Return 32 bits as OME-XML has them: a signed number."""
    return value - (1 << 32) if value >= 1 << 31 else value
