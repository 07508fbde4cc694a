"""Image layers as a file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from qtpy.QtCore import QEventLoop, QObject, Qt, QThread, Signal
from qtpy.QtWidgets import QApplication, QProgressDialog

from napari_gpu_denoise._napari.layers import provenance
from napari_gpu_denoise._napari.layers.source import letters_of
from napari_gpu_denoise._napari.wording import in_panel
from napari_gpu_denoise.errors import DenoiseError, FileError, ImageError, LayerError, OutputError
from napari_gpu_denoise.files import formats, tiff, zarr
from napari_gpu_denoise.files.image_file import Channel, ImageFile, PixelMetadata, unit_named
from napari_gpu_denoise.image.axes import check_axes

_PATIENCE = 400  # milliseconds until the user is told
T = TypeVar("T")

LayerData = tuple[Any, dict[str, Any], str]

_DEFAULT = ".ome.tif"
_LARGE = 1 << 24  # bytes from which napari stands still if it writes itself


@dataclass(frozen=True)
class Pixels:
    """A layer to write: its data at the finest level, and their metadata.

    `record` says how they were made, if that is known.
    """

    name: str
    data: Any = field(repr=False)
    axes: str
    attributes: dict[str, Any] = field(repr=False)
    origin: provenance.Origin | None
    record: dict[str, Any] | None


def channels_of(layers: list[Pixels], axis: int | None) -> Any:
    """Return the pixels of layers, along a new axis, as numbers of one type.

    Those in memory are not copied, and those of files not read: they are taken page by page.
    """
    if axis is None:
        (one,) = layers
        return _as_numbers(one.data)
    import dask.array as da

    arrays = [_as_numbers(one.data) for one in layers]
    dtype = np.result_type(*(one.dtype for one in arrays))
    return da.stack([_lazily(one).astype(dtype) for one in arrays], axis)


def _lazily(data: Any) -> Any:
    """Return any array as a dask array of planes, without reading it."""
    import dask.array as da

    if isinstance(data, da.Array):
        return data
    return da.from_array(data, chunks=_planes(data.shape), name=False, asarray=False)


def in_order(data: Any, order: list[int]) -> Any:
    """Return an array with its axes in another order, without reading it."""
    if order == list(range(len(order))):
        return data
    return (data if isinstance(data, np.ndarray) else _lazily(data)).transpose(order)


def _as_numbers(data: Any) -> Any:
    """Return data that are not booleans; those become 0 and 1."""
    if np.dtype(data.dtype).kind != "b":
        return data
    return data.view(np.uint8) if isinstance(data, np.ndarray) else data.astype(np.uint8)


def _planes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return chunks of one plane, and the colours of its pixels."""
    kept = 3 if shape[-1] in (3, 4) else 2
    return tuple(1 if i < len(shape) - kept else n for i, n in enumerate(shape))


class _Waiting(QProgressDialog):
    """A progress dialog that the key Escape does not close."""

    def reject(self) -> None:
        """Stay."""


class _Ended(QObject):
    now = Signal()


def run_with_wait_dialog(work: Callable[[], T], text: str) -> T:
    """Call `work` in a thread while a dialog is shown; without a window, call it directly."""
    app = QApplication.instance()
    if not isinstance(app, QApplication) or QThread.currentThread() is not app.thread():
        return work()
    loop, ended = QEventLoop(), _Ended()
    ended.now.connect(loop.quit, Qt.ConnectionType.QueuedConnection)
    dialog = _Waiting(text, "", 0, 0, app.activeWindow())
    dialog.setCancelButton(None)
    dialog.setWindowModality(Qt.WindowModality.ApplicationModal)
    dialog.setMinimumDuration(_PATIENCE)
    with ThreadPoolExecutor(1) as threads:
        result = threads.submit(work)
        result.add_done_callback(lambda _: ended.now.emit())
        loop.exec()
    dialog.hide()
    dialog.deleteLater()
    return result.result()


def write_images(path: str, layers: list[LayerData]) -> list[str]:
    """Write image layers into one file; return its name."""
    from napari.utils.notifications import show_info

    try:
        target, notes = _write(path, layers)
    except DenoiseError as error:
        raise type(error)(in_panel(error)) from error
    for note in notes:
        show_info(in_panel(note))
    return [target]


def _write(path: str, layers: Sequence[LayerData]) -> tuple[str, list[str]]:
    notes: list[str] = []
    # *Save All Layers* hands over what panels only show.
    lasting = [each for each in layers if not _is_temporary(each[1])]
    if not lasting:
        raise LayerError(
            "A preview or comparison is not saved: run the filter, and save its result."
        )
    if len(lasting) < len(layers):
        notes.append("Previews and comparisons are not saved.")
    whole = [_pixels(data, attributes) for data, attributes, _ in lasting]
    overwrite = True
    if formats.format_named(path) is None:
        # The user was not asked whether the file of this name may be replaced.
        path, overwrite = path + _DEFAULT, False
    like, data = _as_file(path, whole, notes) or (None, None)
    if like is None:
        if (form := formats.format_named(path)) not in (None, tiff.FORMAT, zarr.FORMAT):
            raise LayerError(
                f"{path} cannot be written as {form.name}, which needs all of an image that was "
                f"read from {form.name}: end the name with .ome.tif."
            )
        like, data = _fresh(path, whole, notes)
    records = _new_records(whole, like)

    def write() -> tuple[str, ...]:
        return formats.write(path, data, like, records, overwrite=overwrite)

    size = int(np.prod(data.shape)) * np.dtype(data.dtype).itemsize
    waits = f"Saving {os.path.basename(path)} …"
    notes += run_with_wait_dialog(write, waits) if size >= _LARGE else write()
    return path, notes


def described(
    path: str | os.PathLike, data: Any, attributes: dict[str, Any], axes: str
) -> tuple[ImageFile, list[dict]]:
    """Return the description of a layer as which `path` is written, and how it was made."""
    name, notes = os.fspath(path), []
    whole = [replace(_pixels(data, attributes), axes=axes.upper())]
    like, _ = _as_file(name, whole, notes) or _fresh(name, whole, notes)
    return like, _new_records(whole, like)


def _is_temporary(attributes: dict[str, Any]) -> bool:
    record = attributes.get("metadata", {}).get(provenance.METADATA_KEY)
    return isinstance(record, dict) and provenance.TEMPORARY in record


def _pixels(data: Any, attributes: dict[str, Any]) -> Pixels:
    """Describe a layer to write."""
    name = attributes["name"]
    if attributes.get("multiscale") or isinstance(data, (list, tuple)):
        data = data[0]
    dtype = np.dtype(data.dtype)
    if dtype.kind not in "biuf":
        raise LayerError(f"{name!r} holds {dtype}, which is not saved: save real numbers.")
    metadata = attributes.get("metadata", {})
    origin = provenance.file_origin(metadata)
    record = metadata.get(provenance.METADATA_KEY)
    rgb, ndim = bool(attributes.get("rgb")), len(data.shape)
    try:  # what a file says may be anything
        axes = check_axes(record["axes"] or "", data.shape)
    except (LookupError, TypeError, DenoiseError):
        axes = letters_of(attributes.get("axis_labels", ()), ndim - rgb) + "S" * rgb
    return Pixels(name, data, axes, attributes, origin, record)


def _as_file(path: str, whole: list[Pixels], notes: list[str]) -> tuple[ImageFile, Any] | None:
    """Return the description of the file that layers are all of, and their pixels as it has them.

    None if they are not, if the file is gone or another by now, if their scale was changed, or if
    the name says that another kind of file is wanted.
    """
    origin = whole[0].origin
    if origin is None or any(not _same_file(one.origin, origin) for one in whole):
        return None
    split = origin.split
    count = 1 if split is None else origin.shape[split]
    places = [one.origin.place for one in whole]
    if sorted(places) != ([-1] if split is None else list(range(count))):
        return None
    shape = tuple(n for i, n in enumerate(origin.shape) if i != split)
    if any(tuple(one.data.shape) != shape for one in whole):
        return None
    if any(not _is_placed(one, origin) for one in whole):
        notes.append(
            f"The layer was moved: its scale is saved, other metadata of {origin.path} are not."
        )
        return None
    try:
        with formats.open_stack(origin.path) as like:
            pass  # only its description is needed
    except (FileError, ImageError):
        return None
    if provenance.stamp_of(like) != origin.stamp or tuple(like.data.shape) != origin.shape:
        return None
    try:
        formats.check_name(path, like)
    except OutputError:
        return None
    if path.lower().endswith((".ome.tif", ".ome.tiff")) and like.kind != "ome":
        return None
    ordered = [one for _, one in sorted(zip(places, whole, strict=True), key=lambda pair: pair[0])]
    data = channels_of(ordered, split)
    try:
        formats.check_writable(like, np.dtype(data.dtype))
    except OutputError:
        return None
    return like, data


def _same_file(one: provenance.Origin | None, other: provenance.Origin) -> bool:
    return one is not None and (one.path, one.stamp, one.axes, one.shape) == (
        *(other.path, other.stamp),
        *(other.axes, other.shape),
    )


def _is_placed(one: Pixels, origin: provenance.Origin) -> bool:
    """Return whether a layer has the scale and the units that its file gave it."""
    units = tuple(map(str, one.attributes.get("units") or ()))
    scale = tuple(one.attributes.get("scale", ()))
    if len(scale) != len(origin.scale) or units != origin.units:
        return False
    return bool(np.allclose(scale, origin.scale, 1e-9, 0)) and _is_upright(one.attributes)


def _fresh(path: str, whole: list[Pixels], notes: list[str]) -> tuple[ImageFile, Any]:
    """Return a description of layers that are no whole file, and their pixels."""
    first = whole[0]
    rgb = bool(first.attributes.get("rgb"))
    for one in whole[1:]:
        if tuple(one.data.shape) != tuple(first.data.shape) or one.axes != first.axes:
            raise LayerError(
                f"{first.name!r} and {one.name!r} differ in shape or axes: save them one by one."
            )
    axes, split = first.axes, None
    if len(whole) > 1:
        if "C" in axes:
            raise LayerError(
                f"{first.name!r} has channels of its own: save it and {whole[1].name!r} one by one."
            )
        split = 1 if axes.startswith("T") else 0
        axes = axes[:split] + "C" + axes[split:]
    data = channels_of(whole, split)
    end = "YXS" if rgb and provenance.is_rgb(first.axes, first.data.shape) else "YX"
    order = [i for i, a in enumerate(axes) if a not in end] + [axes.index(a) for a in end]
    data, axes = in_order(data, order), "".join(axes[i] for i in order)
    pixel_metadata = PixelMetadata(_steps(first), tuple(map(_channel, whole)))
    inputs = [Path(one.origin.path) for one in whole if one.origin is not None]
    if any(np.any(one.attributes.get("translate", 0)) for one in whole):
        notes.append("The position (translate) of the layer is not kept in the file.")
    if any(not _is_upright(one.attributes) for one in whole):
        notes.append("Rotation, shear and affine of the layer are not kept in the file.")
    name = os.path.basename(path)
    inputs = tuple(path for path in inputs if path.exists())
    source = inputs[0] if inputs else Path(name)
    like = ImageFile(data, axes, "", {}, source, inputs, pixel_metadata=pixel_metadata)
    if zarr.has_suffix(path):
        return zarr.described_anew(like, first.name), data
    like = tiff.described_anew(like, name)
    if like.kind == "plain":
        notes.append(
            f"Axes {axes} of type {data.dtype} do not fit OME-TIFF: they are saved as plain TIFF, "
            "with their description as JSON."
        )
    return like, data


def _steps(one: Pixels) -> dict[str, tuple[float, str]]:
    """Return the steps along the axes of a layer, with the units that files know."""
    scale = one.attributes.get("scale", ())
    units = one.attributes.get("units") or ("pixel",) * len(scale)
    found = {}
    for letter, step, unit in zip(one.axes, scale, units, strict=False):
        known = unit_named(unit)
        if known or abs(float(step)) != 1:
            found[letter] = (abs(float(step)), known)
    return found


def _channel(one: Pixels) -> Channel:
    """Return name and colour of the channel that a layer is."""
    name = one.name if one.origin is None or not one.origin.name else one.origin.name
    return Channel(name, "" if one.attributes.get("rgb") else _colour(one))


def _colour(one: Pixels) -> str:
    if one.origin is not None and one.origin.colour:
        return one.origin.colour
    colormap = one.attributes.get("colormap")
    held = colormap.get("colors") if isinstance(colormap, dict) else getattr(colormap, "colors", ())
    colours = np.atleast_2d(np.asarray(held))
    if colours.ndim != 2 or colours.shape[1] < 3:
        return ""
    return "#" + bytes(np.rint(255 * np.clip(colours[-1, :3], 0, 1)).astype(np.uint8)).hex()


def _is_upright(attributes: dict[str, Any]) -> bool:
    """Return whether a layer is neither turned nor sheared."""
    if np.any(attributes.get("shear", 0)):
        return False
    found = (np.asarray(attributes[name]) for name in ("rotate", "affine") if name in attributes)
    return all(one.ndim == 2 and np.allclose(one, np.eye(len(one))) for one in found)


def _records(whole: list[Pixels]) -> list[dict]:
    """Return how layers were made, oldest first; with several each says which channel it is of."""
    found: dict[str, dict] = {}
    for number, one in enumerate(whole):
        if not isinstance(one.record, dict):
            continue
        last = {name: value for name, value in one.record.items() if name != provenance.HISTORY}
        for record in (*one.record.get(provenance.HISTORY, ()), last):
            place = number if one.origin is None or one.origin.place < 0 else one.origin.place
            told = {**record, "channel": place} if len(whole) > 1 else dict(record)
            found.setdefault(_key(told), told)
    return list(found.values())


def _new_records(whole: list[Pixels], like: ImageFile) -> list[dict]:
    """Return how layers were made, but for what their file says."""
    known = {_key(_without_channel(one)) for one in like.history}
    return [one for one in _records(whole) if _key(_without_channel(one)) not in known]


def _key(record: dict) -> str:
    """Return a text that equal records have, of which a file may hold thousands."""
    return json.dumps(record, sort_keys=True, default=repr)


def _without_channel(record: dict) -> dict:
    return {name: value for name, value in record.items() if name != "channel"}
