"""Image layers as a file."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from napari.types import FullLayerData
from napari.utils.colormaps import ensure_colormap
from qtpy.QtCore import Qt, QThread
from qtpy.QtWidgets import QApplication, QProgressDialog

from napari_gpu_denoise._napari.layers import provenance
from napari_gpu_denoise._napari.layers.arrays import as_dask
from napari_gpu_denoise._napari.layers.source import letters_of
from napari_gpu_denoise._napari.wording import in_panel
from napari_gpu_denoise.errors import DenoiseError, FileError, ImageError, LayerError, OutputError
from napari_gpu_denoise.files import formats, image_file, tiff, zarr
from napari_gpu_denoise.files.image_file import ImageFile
from napari_gpu_denoise.image.axes import UNNAMED, check_axes

_PATIENCE = 400  # milliseconds until the user is told
_PAUSE = 0.005  # seconds between two looks whether a file is written
T = TypeVar("T")

_DEFAULT = ".ome.tif"
_LARGE = 1 << 24  # bytes from which napari stands still if it writes itself


@dataclass(frozen=True)
class Pixels:
    """A layer to write: its data at the finest level, and their metadata.

    `data` are in memory, or a dask array, whose last axis holds colours if they are `rgb`. `steps`
    along the axes have the units that files know. `record` says how they were made; empty if
    nothing does.
    """

    name: str
    data: Any = field(repr=False)
    axes: str
    rgb: bool
    steps: image_file.Steps
    attributes: dict[str, Any] = field(repr=False)
    origin: provenance.Origin | None
    record: dict[str, Any]

    @property
    def place(self) -> int:
        """The place among the channels of the file; -1 if it is none of these."""
        return -1 if self.origin is None else self.origin.place


def _stacked(layers: list[Pixels], axis: int | None) -> Any:
    """Return the pixels of layers along a new axis, as numbers of one type, without reading them.

    Those of one layer are not copied.
    """
    if axis is None:
        return layers[0].data
    import dask.array as da

    return da.stack([as_dask(one.data, one.rgb) for one in layers], axis)


class _Waiting(QProgressDialog):
    """A progress dialog that the key Escape does not close."""

    def reject(self) -> None:
        """Stay."""


def run_with_wait_dialog(work: Callable[[], T], text: str) -> T:
    """Call `work` in a thread while a dialog is shown; without a window, call it directly."""
    app = QApplication.instance()
    if not isinstance(app, QApplication) or QThread.currentThread() is not app.thread():
        return work()
    dialog = _Waiting(text, "", 0, 0, app.activeWindow())
    dialog.setCancelButton(None)
    dialog.setWindowModality(Qt.WindowModality.ApplicationModal)
    dialog.setMinimumDuration(_PATIENCE)
    with ThreadPoolExecutor(1) as threads:
        result = threads.submit(work)
        while not result.done():
            app.processEvents()
            time.sleep(_PAUSE)
    dialog.hide()
    dialog.deleteLater()
    return result.result()


def write_images(path: str, layers: list[FullLayerData]) -> list[str]:
    """Write image layers into one file; return its name."""
    from napari.utils.notifications import show_info

    try:
        target, notes = _write(path, layers)
    except DenoiseError as error:
        raise type(error)(in_panel(error)) from error
    for note in notes:
        show_info(in_panel(note))
    return [target]


def _write(path: str, layers: Sequence[FullLayerData]) -> tuple[str, list[str]]:
    notes: list[str] = []
    # *Save All Layers* hands over what panels only show.
    records = ((each, provenance.record_in(each[1].get("metadata", {}))) for each in layers)
    lasting = [each for each, record in records if provenance.TEMPORARY not in record]
    if not lasting:
        raise LayerError(
            "A preview or comparison is not saved: run the filter, and save its result."
        )
    if len(lasting) < len(layers):
        notes.append("Previews and comparisons are not saved.")
    whole = [_pixels(data, attributes, notes) for data, attributes, _ in lasting]
    overwrite = True
    if formats.format_named(path) is None:
        # The user was not asked whether the file of this name may be replaced.
        path, overwrite = path + _DEFAULT, False
    made = _as_file(path, whole, notes)
    if made is None:
        if (form := formats.format_named(path)) not in (None, tiff.FORMAT, zarr.FORMAT):
            raise LayerError(
                f"{path} cannot be written as {form.name}, which needs all of an image that was "
                f"read from {form.name}: end the name with .ome.tif."
            )
        made = _fresh(path, whole, notes)
    like, data = made
    records = _new_records(whole, like)

    def write() -> tuple[str, ...]:
        return formats.write(path, data, like, records, overwrite=overwrite)

    size = int(np.prod(data.shape)) * np.dtype(data.dtype).itemsize
    waits = f"Saving {os.path.basename(path)} …"
    notes += run_with_wait_dialog(write, waits) if size >= _LARGE else write()
    return path, notes


def _pixels(data: Any, attributes: dict[str, Any], notes: list[str]) -> Pixels:
    """Describe a layer to write."""
    name, rgb = attributes["name"], bool(attributes.get("rgb"))
    if attributes.get("multiscale") or isinstance(data, (list, tuple)):
        data = data[0]
    dtype = np.dtype(data.dtype)
    if dtype.kind not in "biuf":
        raise LayerError(f"{name!r} holds {dtype}, which is not saved: save real numbers.")
    if not isinstance(data, np.ndarray):
        data = as_dask(data, rgb)
    if dtype.kind == "b":
        data = data.view(np.uint8)
    metadata = attributes.get("metadata", {})
    record = provenance.record_in(metadata)
    try:  # what a file says may be anything
        axes = check_axes(record["axes"] or "", data.shape)
    except (LookupError, TypeError, DenoiseError):
        axes = letters_of(attributes.get("axis_labels", ()), data.ndim - rgb) + "S" * rgb
    scale = np.abs(attributes.get("scale", ())).tolist()
    units = attributes.get("units") or ("pixel",) * len(scale)
    axes = tiff.lettered(_named_by_units(axes, units, name, notes))
    told = zip(axes, scale, map(image_file.unit_named, units), strict=False)
    steps = {axis: (step, unit) for axis, step, unit in told if unit or step != 1}
    origin = provenance.file_origin(metadata)
    return Pixels(name, data, axes, rgb, steps, attributes, origin, record)


def _named_by_units(axes: str, units: Sequence[Any], name: str, notes: list[str]) -> str:
    """Return axes of which the only one without a name is Z or T if its unit says so."""
    unit = image_file.unit_named([*units, ""][axes.find(UNNAMED)])
    letter = "Z" if unit in image_file.METRES else "T"
    if axes.count(UNNAMED) != 1 or not unit or letter in axes:
        return axes
    notes.append(f"The axis of {name!r} in {unit}s is saved as {letter}.")
    return axes.replace(UNNAMED, letter)


def _as_file(path: str, whole: list[Pixels], notes: list[str]) -> tuple[ImageFile, Any] | None:
    """Return the description of the file that layers are all of, and their pixels as it has them.

    None if they are not, if the file is gone or another by now, if their scale was changed, or if
    the name says that another kind of file is wanted.
    """
    origin = whole[0].origin
    files = {one.origin and (one.origin.path, one.origin.stamp) for one in whole}
    if origin is None or len(files) > 1:
        return None
    try:
        with formats.open_stack(origin.path) as like:
            pass  # only its description is needed
        formats.check_name(path, like)
        formats.check_writable(like, np.result_type(*(one.data.dtype for one in whole)))
    except (FileError, ImageError, OutputError):
        return None
    split, order = origin.split, provenance.layer_order(like.axes, whole[0].rgb)
    whole = sorted(whole, key=lambda one: one.place)
    places = [-1] if split is None else list(range(like.data.shape[split]))
    if provenance.stamp_of(like) != origin.stamp or [one.place for one in whole] != places:
        return None
    shape = tuple(like.data.shape[i] for i in order if i != split)
    if any(tuple(one.data.shape) != shape for one in whole):
        return None
    left = "".join(like.axes[i] for i in order if i != split)
    given = provenance.placing(like, left.removesuffix("S") if whole[0].rgb else left)
    if any(not _is_placed(one, given) for one in whole):
        notes.append(
            f"The layer was moved: its scale is saved, other metadata of {origin.path} are not."
        )
        return None
    stacked = _stacked(whole, None if split is None else order.index(split))
    wants_ome = path.lower().endswith((".ome.tif", ".ome.tiff"))
    if wants_ome and like.kind != "ome":
        return None
    return like, stacked.transpose(tuple(np.argsort(order)))


def _is_placed(one: Pixels, given: dict[str, Any]) -> bool:
    """Return whether a layer has the scale and the units that its file gives it."""
    units = tuple(map(str, one.attributes.get("units") or ()))
    scale = tuple(one.attributes.get("scale", ()))
    if len(scale) != len(given["scale"]) or units != given["units"]:
        return False
    return bool(np.allclose(scale, given["scale"], 1e-9, 0)) and _is_upright(one.attributes)


def _fresh(path: str, whole: list[Pixels], notes: list[str]) -> tuple[ImageFile, Any]:
    """Return a description of layers that are no whole file, and their pixels."""
    first = whole[0]
    for one in whole[1:]:
        if unlike := _difference(one, first):
            raise LayerError(
                f"{first.name!r} and {one.name!r} differ in {unlike}: save them one by one."
            )
    axes, split = first.axes, None
    if len(whole) > 1:
        if "C" in axes:
            raise LayerError(
                f"{first.name!r} has channels of its own: save it and {whole[1].name!r} one by one."
            )
        split = 1 if axes.startswith("T") else 0
        axes = axes[:split] + "C" + axes[split:]
    end = "YXS" if first.rgb and provenance.is_rgb(first.axes, first.data.shape) else "YX"
    order = [i for i, a in enumerate(axes) if a not in end] + [axes.index(a) for a in end]
    data, axes = _stacked(whole, split).transpose(order), "".join(axes[i] for i in order)
    pixel_metadata = image_file.PixelMetadata(first.steps, tuple(map(_channel, whole)))
    if any(np.any(one.attributes.get("translate", 0)) for one in whole):
        notes.append("The position (translate) of the layer is not kept in the file.")
    if any(not _is_upright(one.attributes) for one in whole):
        notes.append("Rotation, shear and affine of the layer are not kept in the file.")
    name = os.path.basename(path)
    inputs = [Path(one.origin.path) for one in whole if one.origin is not None]
    inputs = tuple(path for path in inputs if path.exists())
    source = inputs[0] if inputs else Path(name)
    like = ImageFile(data, axes, "", {}, source, inputs, pixel_metadata=pixel_metadata)
    if zarr.places.has_suffix(path):
        return zarr.FORMAT.described_anew(like, first.name), data
    like = tiff.described_anew(like, name)
    if like.kind == "plain":
        notes.append(
            f"Axes {axes} of type {data.dtype} do not fit OME-TIFF: they are saved as plain TIFF, "
            "whose pixel sizes only this plugin reads. Name the axes (axis_labels) to keep them."
        )
    return like, data


def _difference(one: Pixels, other: Pixels) -> str:
    """Return in what a layer differs so that it cannot be a channel beside another one."""
    if tuple(one.data.shape) != tuple(other.data.shape) or one.axes != other.axes:
        return "shape or axes"
    for axis in one.steps.keys() | other.steps.keys():
        (step, unit), (length, of) = (each.steps.get(axis, (1.0, "")) for each in (one, other))
        if unit != of or not math.isclose(step, length, rel_tol=1e-6):
            return "scale or units"
    return ""


def _channel(one: Pixels) -> image_file.Channel:
    """Return name and colour of the channel that a layer is."""
    name, colour = ("", "") if one.origin is None else (one.origin.name, one.origin.colour)
    if not colour and not one.rgb:
        brightest = ensure_colormap(one.attributes.get("colormap", "gray")).colors[-1, :3]
        colour = "#" + bytes(np.rint(255 * np.clip(brightest, 0, 1)).astype(np.uint8)).hex()
    return image_file.Channel(name or one.name, "" if one.rgb else colour)


def _is_upright(attributes: dict[str, Any]) -> bool:
    """Return whether a layer is neither turned nor sheared."""
    if np.any(attributes.get("shear", 0)):
        return False
    found = (np.asarray(attributes[name]) for name in ("rotate", "affine") if name in attributes)
    return all(one.ndim == 2 and np.allclose(one, np.eye(len(one))) for one in found)


def _new_records(whole: list[Pixels], like: ImageFile) -> list[dict]:
    """Return how layers were made, oldest first, but for what their file says.

    With several layers each record says which channel it is of.
    """
    found = []
    for number, one in enumerate(whole):
        place = number if one.place < 0 else one.place
        known = sum(each.get("channel", place) == place for each in like.history)
        for record in provenance.runs_in(one.record)[known:]:
            found.append({**record, "channel": place} if len(whole) > 1 else record)
    return found
