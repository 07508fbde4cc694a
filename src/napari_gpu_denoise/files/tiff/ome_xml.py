"""The OME-XML of one image of a file, updated for new pixels and otherwise unchanged."""

from __future__ import annotations

import json
import math
import os
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import tifffile

from napari_gpu_denoise.errors import FileError
from napari_gpu_denoise.files import image_file
from napari_gpu_denoise.files.image_file import Channel, PixelMetadata

NAMESPACE = "napari-gpu-denoise"  # of our annotations, by which they are found again
_TYPES = {"float32": "float", "float64": "double"}  # other types have the same name in NumPy
HELD = frozenset({"int8", "int16", "int32", "uint8", "uint16", "uint32", "float32", "float64"})


def _children(element: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    """Return elements of any namespace, which differs between versions of the schema."""
    return element.findall("{*}" + name)


def _images(root: ElementTree.Element) -> list[tuple[ElementTree.Element, ElementTree.Element]]:
    return [
        (each, pixels) for each in _children(root, "Image") for pixels in _children(each, "Pixels")
    ]


def read_image(xml: str, name: str, size: int) -> tuple[int, tuple[dict, ...], PixelMetadata]:
    """Return number, history and metadata of the image of a series of `size` values.

    It is counted among the images that have pixels; of several of this size the name chooses.
    """
    root = ElementTree.fromstring(xml)
    images, fitting = _images(root), {}
    for index, (image, pixels) in enumerate(images):
        lengths = [int(pixels.get("Size" + axis, 1)) for axis in "XYZCT"]
        if math.prod(lengths) == size:
            fitting.setdefault(image.get("Name", ""), index)
    if not fitting:
        raise FileError(
            "The OME-XML of the file does not describe its pixels: save the image again as "
            "OME-TIFF."
        )
    # tifffile invents a name for some images that have none.
    index = fitting.get(name, min(fitting.values()))
    image, pixels = images[index]
    return index, _history(root, image), _pixel_metadata(pixels)


def _pixel_metadata(pixels: ElementTree.Element) -> PixelMetadata:
    """Return steps, units and channels of an image."""
    found = {
        a: (pixels.get(f"PhysicalSize{a}"), pixels.get(f"PhysicalSize{a}Unit") or "µm")
        for a in "XYZ"
    }
    found["T"] = pixels.get("TimeIncrement"), pixels.get("TimeIncrementUnit", "s")
    if not any(image_file.step_of(value) for value, _ in found.values()):
        found = {}
    shown = _children(pixels, "Channel")
    channels = (Channel(each.get("Name", ""), _colour(each.get("Color"))) for each in shown)
    return PixelMetadata(image_file.kept_steps(found), tuple(channels))


def _colour(told: Any) -> str:
    """Return the colour that OME-XML holds as a signed number, red first, alpha last."""
    try:
        return f"#{(int(told) >> 8) & 0xFFFFFF:06x}"
    except (TypeError, ValueError):
        return ""


def declared_planes(xml: str) -> tuple[int, int, int]:
    """Return how many planes all images of a set have, how many pixels, and in how many files."""
    try:
        root = ElementTree.fromstring(xml)
        planes, sizes = (
            sum(
                math.prod(max(0, int(p.get(f"Size{a}", 1))) for a in axes) for _, p in _images(root)
            )
            for axes in ("ZCT", "XYZCT")
        )
    except (ElementTree.ParseError, ValueError):
        return 0, 0, 1  # tifffile reads none of it
    names = {element.get("FileName") for element in root.iterfind(".//{*}UUID")}
    return planes, sizes, max(len(names), 1)


def keep_inside(xml: str, folder: Path, anywhere: bool = False) -> tuple[str, tuple[str, ...]]:
    """Return XML without the names of files that are not ordinary ones in a folder or below.

    Ordinary ones may be `anywhere`, if that is allowed. Returns the names that were removed as
    well. A name without a file is kept: it is missing.
    """
    if "FileName" not in xml:
        return xml, ()
    try:
        root = ElementTree.fromstring(xml)
    except ElementTree.ParseError:
        return xml, ()  # tifffile reads none of it
    base, removed = Path(os.path.realpath(folder)), []
    for element in root.iterfind(".//{*}UUID[@FileName]"):
        name = element.get("FileName", "")
        path = Path(os.path.realpath(base / name))
        if (not anywhere and base not in path.parents) or (path.exists() and not path.is_file()):
            element.set("FileName", "")
            removed.append(name)
    return ElementTree.tostring(root, "unicode"), tuple(removed)


def _history(root: ElementTree.Element, image: ElementTree.Element) -> tuple[dict, ...]:
    """Return the records of earlier denoising of an image, oldest first."""
    ours = {
        annotation.get("ID"): annotation
        for annotations in _children(root, "StructuredAnnotations")
        for annotation in annotations
        if annotation.get("Namespace") == NAMESPACE
    }
    found = []
    for reference in _children(image, "AnnotationRef"):
        if (annotation := ours.get(reference.get("ID"))) is not None:
            found += image_file.parsed_record(annotation.findtext("{*}Value", ""))
    return tuple(found)


def revise(
    xml: str, index: int, *, dtype: str, big_endian: bool, planes: int, records: Sequence[dict]
) -> bytes:
    """Return UTF-8 XML for a file that holds image `index` alone, with other pixels.

    References to other images are left out. `dtype` is one of `HELD`; `planes` is the number of
    pages, in the dimension order of the XML. `records`, JSON-ready, become annotations.
    """
    root = ElementTree.fromstring(xml)
    image, pixels = _images(root)[index]
    for other in _children(root, "Image"):
        if other is not image:
            root.remove(other)
    for parent in list(root.iter()):
        for reference in _children(parent, "ImageRef"):
            if reference.get("ID") != image.get("ID"):
                parent.remove(reference)
    root.set("UUID", f"urn:uuid:{uuid.uuid4()}")

    name = _TYPES.get(dtype, dtype)
    if pixels.get("Type", name) != name:
        pixels.attrib.pop("SignificantBits", None)
    if "PixelType" in pixels.attrib:  # schemas before 2013
        pixels.set("PixelType", name)
    pixels.set("Type", name)
    pixels.set("BigEndian", "true" if big_endian else "false")
    _replace_data(pixels, planes)
    if records:
        _annotate(root, image, records)
    namespace = _prefix(root)[1:-1]
    if namespace:
        ElementTree.register_namespace("", namespace)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)


def _prefix(element: ElementTree.Element) -> str:
    """Return the namespace of a tag, in braces as ElementTree writes it; empty if it has none."""
    return "".join(str(element.tag).rpartition("}")[:2])


def _replace_data(pixels: ElementTree.Element, planes: int) -> None:
    """Insert one TiffData for all planes, where the schema wants it: after the channels."""
    for stored in ("BinData", "TiffData", "MetadataOnly"):
        for child in _children(pixels, stored):
            pixels.remove(child)
    tag = f"{_prefix(pixels)}TiffData"
    data = ElementTree.Element(tag, {"IFD": "0", "PlaneCount": str(planes)})
    channels = _children(pixels, "Channel")
    pixels.insert([*pixels].index(channels[-1]) + 1 if channels else 0, data)


def _annotate(
    root: ElementTree.Element, image: ElementTree.Element, records: Iterable[dict]
) -> None:
    """Add each record as a comment annotation of the image: valid in every schema since 2011."""
    schema = _prefix(root)
    held = _children(root, "StructuredAnnotations")
    if held:
        annotations = held[0]
        prefix = _prefix(annotations)
    else:
        # Schemas before 2016 kept annotations in a namespace of their own.
        merged = schema.rpartition("/")[2] >= "2016"
        prefix = schema if merged else schema.replace("/Schemas/OME/", "/Schemas/SA/")
        annotations = ElementTree.Element(f"{prefix}StructuredAnnotations")
        root.insert(list(root).index(image) + 1, annotations)
    if prefix and prefix != schema:
        ElementTree.register_namespace("SA", prefix[1:-1])
    for record in records:
        name = {"ID": f"Annotation:{NAMESPACE}-{uuid.uuid4().hex}"}
        attributes = {**name, "Namespace": NAMESPACE}
        annotation = ElementTree.SubElement(annotations, f"{prefix}CommentAnnotation", attributes)
        ElementTree.SubElement(annotation, f"{prefix}Value").text = json.dumps(record)
        ElementTree.SubElement(image, f"{prefix}AnnotationRef", name)


def new_xml(shape: tuple[int, ...], axes: str, pixel_metadata: PixelMetadata, name: str) -> str:
    """Return OME-XML of one image; type and data of the pixels are entered when it is written."""
    lengths = dict(zip(axes, shape, strict=True))
    told: dict[str, Any] = {"Name": name, "Channel": [{} for _ in range(lengths.get("C", 1))]}
    for letter, (value, unit) in pixel_metadata.steps.items():
        key, other = ("TimeIncrement", "s") if letter == "T" else (f"PhysicalSize{letter}", "pixel")
        told |= {key: float(value), f"{key}Unit": image_file.SYMBOLS.get(unit, other)}
    for own, channel in zip(told["Channel"], pixel_metadata.channels, strict=False):
        own |= {"Name": channel.name} if channel.name else {}
        if channel.colour:
            rgba = bytes.fromhex(channel.colour[1:]) + b"\xff"
            own["Color"] = int.from_bytes(rgba, "big", signed=True)
    planes = math.prod(lengths.get(axis, 1) for axis in "TZC")
    stored = planes, 1, 1, lengths["Y"], lengths["X"], lengths.get("S", 1)
    made = tifffile.OmeXml(Creator=NAMESPACE)
    made.addimage("uint8", shape, stored, axes=axes, **told)
    return made.tostring()
