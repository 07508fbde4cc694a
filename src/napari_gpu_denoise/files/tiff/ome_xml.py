"""The OME-XML of one image of a file, revised for new pixels and kept in all else."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Iterable, Iterator, Sequence
from xml.etree import ElementTree

from napari_gpu_denoise.errors import FileError

NAMESPACE = "napari-gpu-denoise"  # of our annotations: finds them again in any OME file
_TYPES = {"float32": "float", "float64": "double"}  # the others have the same name in NumPy
HELD = frozenset({"int8", "int16", "int32", "uint8", "uint16", "uint32", "float32", "float64"})


def _name(element: ElementTree.Element) -> str:
    """Tag without its namespace, which differs between versions of the schema."""
    return str(element.tag).rpartition("}")[2]


def _children(element: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [child for child in element if _name(child) == name]


def _images(root: ElementTree.Element) -> Iterator[tuple[ElementTree.Element, ElementTree.Element]]:
    for image in _children(root, "Image"):
        for pixels in _children(image, "Pixels"):
            yield image, pixels


def find_image(xml: str, name: str, size: int) -> int:
    """Find which image of the XML a series of a file is.

    Parameters
    ----------
    xml : str
        OME-XML of the file.
    name : str
        Name of the series, to choose between images of the same size.
    size : int
        Number of values in the series.

    Returns
    -------
    int
        Index among the images that have pixels.

    Raises
    ------
    FileError
        If no image has this size.
    """
    fitting = {}
    for index, (image, pixels) in enumerate(_images(ElementTree.fromstring(xml))):
        lengths = [int(pixels.get("Size" + axis, 1)) for axis in "XYZCT"]
        if math.prod(lengths) == size:
            fitting.setdefault(image.get("Name", ""), index)
    if fitting:
        # tifffile invents a name for some images that have none.
        return fitting.get(name, min(fitting.values()))
    raise FileError(
        "The OME-XML of the file does not describe its pixels: save the image again as OME-TIFF."
    )


def history(xml: str, index: int) -> tuple[dict, ...]:
    """Return the records of earlier denoising that an image carries, oldest first.

    Parameters
    ----------
    xml : str
        OME-XML of a file.
    index : int
        The image, as `find_image` counts.

    Returns
    -------
    tuple of dict
    """
    root = ElementTree.fromstring(xml)
    image, _ = list(_images(root))[index]
    ours = {
        annotation.get("ID"): annotation
        for annotations in _children(root, "StructuredAnnotations")
        for annotation in annotations
        if annotation.get("Namespace") == NAMESPACE
    }
    found = []
    for reference in _children(image, "AnnotationRef"):
        for value in ours.get(reference.get("ID"), ()):
            if _name(value) == "Value" and value.text:
                found.append(json.loads(value.text))
    return tuple(found)


def revise(
    xml: str, index: int, *, dtype: str, big_endian: bool, planes: int, records: Sequence[dict]
) -> bytes:
    """Return the XML for a file that holds one of the images, with other pixels.

    Parameters
    ----------
    xml : str
        OME-XML of the original file.
    index : int
        Which of its images is kept; the others are left out, and so are references to them.
    dtype : str
        NumPy name of the new pixels' type, one of `HELD`.
    big_endian : bool
        Byte order of the new file.
    planes : int
        Number of its pages, stored in the dimension order of the XML.
    records : sequence of dict
        Records to add, JSON-ready.

    Returns
    -------
    bytes
        UTF-8, with an XML declaration.
    """
    root = ElementTree.fromstring(xml)
    image, pixels = list(_images(root))[index]
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
    namespace = _namespace(root)
    if namespace:
        ElementTree.register_namespace("", namespace)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)


def _namespace(element: ElementTree.Element) -> str:
    return str(element.tag)[1:].partition("}")[0] if str(element.tag).startswith("{") else ""


def _qualified(namespace: str, name: str) -> str:
    return f"{{{namespace}}}{name}" if namespace else name


def _replace_data(pixels: ElementTree.Element, planes: int) -> None:
    """One TiffData for all planes of this file, where the schema wants it: after the channels."""
    for stored in ("BinData", "TiffData", "MetadataOnly"):
        for child in _children(pixels, stored):
            pixels.remove(child)
    data = ElementTree.Element(
        _qualified(_namespace(pixels), "TiffData"), {"IFD": "0", "PlaneCount": str(planes)}
    )
    after = [i for i, child in enumerate(pixels) if _name(child) == "Channel"]
    pixels.insert(after[-1] + 1 if after else 0, data)


def _annotate(
    root: ElementTree.Element, image: ElementTree.Element, records: Iterable[dict]
) -> None:
    """Add each record as a comment annotation of the image: valid in every schema since 2011."""
    namespace = _namespace(root)
    held = _children(root, "StructuredAnnotations")
    if held:
        annotations = held[0]
        annotation_namespace = _namespace(annotations)
    else:
        # Schemas before 2016 kept annotations in a namespace of their own.
        merged = namespace.rpartition("/")[2] >= "2016"
        annotation_namespace = (
            namespace if merged else namespace.replace("/Schemas/OME/", "/Schemas/SA/")
        )
        annotations = ElementTree.Element(_qualified(annotation_namespace, "StructuredAnnotations"))
        root.insert(list(root).index(image) + 1, annotations)
    if annotation_namespace and annotation_namespace != namespace:
        ElementTree.register_namespace("SA", annotation_namespace)
    for record in records:
        identity = f"Annotation:{NAMESPACE}-{uuid.uuid4().hex}"
        annotation = ElementTree.SubElement(
            annotations,
            _qualified(annotation_namespace, "CommentAnnotation"),
            {"ID": identity, "Namespace": NAMESPACE},
        )
        value = ElementTree.SubElement(annotation, _qualified(annotation_namespace, "Value"))
        value.text = json.dumps(record)
        ElementTree.SubElement(
            image, _qualified(annotation_namespace, "AnnotationRef"), {"ID": identity}
        )
