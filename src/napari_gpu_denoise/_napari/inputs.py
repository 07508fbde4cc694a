"""Controls of panels: which layers, their axes, and which region of them."""

from __future__ import annotations

import html
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from napari.layers import Image, Layer, Shapes
from napari.viewer import Viewer
from qtpy.QtCore import QSignalBlocker, Signal
from qtpy.QtWidgets import QComboBox, QLineEdit, QPushButton, QVBoxLayout, QWidget

from napari_gpu_denoise._napari import docks, parts, resolve
from napari_gpu_denoise._napari.layers import provenance, source
from napari_gpu_denoise._napari.loading import Loading
from napari_gpu_denoise._napari.model import FLAT, RECTANGLE, VIEW, WHOLE, RegionChoice
from napari_gpu_denoise._napari.wording import in_panel
from napari_gpu_denoise.assessment.recommend import image_in_words
from napari_gpu_denoise.errors import AxesError, DenoiseError
from napari_gpu_denoise.files import formats
from napari_gpu_denoise.files.image_file import SYMBOLS
from napari_gpu_denoise.image.axes import check_axes

_MOST_SUGGESTIONS = 2
_LETTERS = (
    "One letter per axis, in the order of the data: T time, Z slices, C channels, S colours of "
    "RGB, D measurements, Y, X. Any other letter, or a dot, marks independent planes."
)
#: Choices, by their text.
REGIONS = {
    "Whole layer": WHOLE,
    "Current view": VIEW,
    "Rectangle in a Shapes layer": RECTANGLE,
}
_DRAWN = RECTANGLE, FLAT


class LayerChoice(QComboBox):
    """A list of some of the viewer's layers, or of groups of them."""

    chosen = Signal()

    def __init__(self, tip: str, placeholder: str):
        super().__init__()
        parts.told(self, tip)
        self.setPlaceholderText(placeholder)
        self._items: list[tuple[Layer, ...]] = []
        self._last: tuple[Layer, ...] = ()
        parts.narrow(self)
        self.currentIndexChanged.connect(self._tell)

    def layer(self) -> Layer | None:
        """Return the layer chosen, the first one of several, or None."""
        return next(iter(self.layers()), None)

    def layers(self) -> tuple[Layer, ...]:
        """Return all layers chosen."""
        index = self.currentIndex()
        return self._items[index] if 0 <= index < len(self._items) else ()

    def choose(self, *layers: Layer) -> None:
        """Choose layers, which are an item of the list."""
        self.setCurrentIndex(self._items.index(layers))

    def offer(self, names: Mapping[Layer, str], keep: bool = True) -> None:
        """List layers, by names; the choice stays if it is to be kept and is among them."""
        items = {(layer,): (name, name) for layer, name in names.items()}
        stays = keep and self.layers() in items
        self.fill(items, self.layers() if stays else next(iter(items), ()))

    def fill(
        self, items: Mapping[tuple[Layer, ...], tuple[str, str]], chosen: tuple[Layer, ...]
    ) -> None:
        """List layers, each with a text and a tooltip, and choose some of them."""
        self.blockSignals(True)
        self.clear()
        self._items = list(items)
        for text, tip in items.values():
            parts.add_item(self, text, None, tip)
        self.setCurrentIndex(self._items.index(chosen) if chosen in self._items else -1)
        self.blockSignals(False)
        self._tell()

    def _tell(self, _: int = 0) -> None:
        if self.layers() != self._last:
            self._last = self.layers()
            self.chosen.emit()


class LayerInput(LayerChoice):
    """The viewer's layers; those that cannot be filtered are shown but cannot be chosen.

    Above them are groups of layers that can be filtered together: those that are selected, and
    those of one file, such as its channels. At first the layers are chosen that the selection
    stands for; with `whole_files` one of them together with the others of its file.
    """

    def __init__(self, viewer: Viewer, tip: str, *, whole_files: bool = False):
        super().__init__(tip, "No image layer")
        self._viewer = viewer
        self._whole_files = whole_files
        self.refresh()

    def choose(self, *layers: Layer) -> None:
        """Choose layers; if one is not there, or cannot be filtered, nothing changes."""
        if layers and set(layers) <= set(self._usable()):
            self._show(layers)

    def follow_selection(self, event: object = None) -> None:
        """Choose what is selected in the viewer, unless that are results of what is chosen."""
        self.refresh()
        wanted, selection = self.wanted(), self._viewer.layers.selection
        if set(wanted) & set(selection) or not set(wanted) <= set(self.layers()):
            self.choose(*wanted)

    def refresh(self, event: object = None) -> None:
        """Follow the viewer's layers and their selection; the choice stays while it is there."""
        stays = bool(self._last) and set(self._last) <= set(self.listed())
        self._show(self._last if stays else self.wanted() or tuple(self._usable()[:1]))

    def listed(self) -> list[Layer]:
        """Return the layers in the list, topmost first, as in the layer list beside it."""
        return [each for each in self._viewer.layers if not provenance.is_temporary(each)][::-1]

    def _usable(self) -> list[Layer]:
        return [each for each in self.listed() if source.reason_unusable(each) is None]

    def wanted(self) -> tuple[Layer, ...]:
        """Return the layers to choose by the viewer's selection."""
        layers = list(self._viewer.layers)
        found = resolve.inputs_of(self._viewer.layers.selection, layers)
        if self._whole_files and len(found) == 1:
            return resolve.channels_of(found[0], layers) or found
        return found

    def groups(self, chosen: tuple[Layer, ...]) -> dict[tuple[Layer, ...], str]:
        """Return layers that can be chosen together, those that are chosen too, and their text."""
        layers, found = list(self._viewer.layers), {}
        inputs = resolve.inputs_of(self._viewer.layers.selection, layers)
        for each in (*inputs[:1], *chosen[:1]):
            if len(channels := resolve.channels_of(each, layers)) > 1:
                found[channels] = resolve.channels_in_words(channels)
        if len(inputs) > 1:
            found.setdefault(inputs, f"{len(inputs)} selected layers")
        if len(chosen) > 1:
            found.setdefault(chosen, f"{len(chosen)} layers")
        return found

    def _show(self, chosen: tuple[Layer, ...]) -> None:
        """List the layers, and choose some of them."""
        items, unusable = {}, []
        for layers, text in self.groups(chosen).items():
            items[layers] = text, ", ".join(each.name for each in layers)
        for layer in self.listed():
            reason = source.reason_unusable(layer)
            unusable += [len(items)] if reason else []
            items[layer,] = layer.name, reason or provenance.describe(layer) or layer.name
        self.fill(items, chosen)
        for row in unusable:
            parts.disable_item(self, row)


def attributes_in_file(layer: Image) -> dict[str, Any]:
    """Return what the file of a layer tells and the layer lacks: labels of axes, scale and units.

    Nothing if the file does not hold what the layer does.
    """
    path, shape = layer.source.path, tuple(source.finest(layer).shape)
    if provenance.file_origin(layer.metadata) is not None:
        return {}
    found: dict[str, Any] = {}
    with suppress(DenoiseError), formats.open_stack(path) as picture:
        lengths = tuple(picture.data.shape)
        order = provenance.layer_order(picture.axes, layer.rgb)
        if len(lengths) != len(shape):
            order = [i for i in order if lengths[i] > 1]  # napari drops the others
        if tuple(lengths[i] for i in order) == shape:
            axes = "".join(picture.axes[i] for i in order)[: layer.ndim]
            found = provenance.placing(picture, axes)
            if source.clear_letters(layer.axis_labels, layer.ndim) or not set(axes) & set("TZC"):
                del found["axis_labels"]
            placed = set(map(str, layer.units)) != {"pixel"} or set(layer.scale) != {1}
            if placed or not picture.pixel_metadata.steps:
                del found["scale"], found["units"]
    return found


class FileAxes(QPushButton):
    """Offers axes and pixel size of the file of a layer; a click gives them to the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.hide()
        self._layer: Image | None = None
        self._found: dict[str, Any] = {}
        self.clicked.connect(self._give)

    def offer(self, layer: Image | None) -> None:
        """Look into the file of a layer, off the GUI thread; hide where it tells nothing new."""
        self.hide()
        self._layer = layer
        if layer is not None and layer.source.path:
            Loading(partial(attributes_in_file, layer), partial(self._show, layer), self)

    def _show(self, layer: Image, found: dict[str, Any] | None) -> None:
        if not found or layer is not self._layer:
            return
        self._found = found
        axes = "".join(label[:1].upper() for label in found.get("axis_labels", ()))
        self.setText(f"{axes or 'Pixel size'} of the file")
        told = [f"the axes {axes}"] if axes else []
        if "scale" in found:
            symbols = (SYMBOLS.get(unit, unit) for unit in found["units"])
            sizes = (f"{step:g} {unit}" for step, unit in zip(found["scale"], symbols, strict=True))
            told.append(f"pixels of {' x '.join(sizes)}")
        self.setToolTip(
            parts.wrapped(f"The file names {' and '.join(told)}. Give them to the layer.")
        )
        self.show()

    def _give(self) -> None:
        self.hide()
        for name, value in self._found.items():
            setattr(self._layer, name, value)


class AxesInput(QWidget):
    """Axis letters, and below them their meaning for this layer.

    Where the layer does not name an axis, buttons beside the letters set the likely names.
    """

    #: Letters were typed or clicked.
    edited = Signal(str)
    #: The letters, or what they are for, have changed.
    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._kind: Any = None  # of filter that the axes are for, an entry of FILTERS
        #: Shape the axes are for; empty where there is no layer.
        self.shape: tuple[int, ...] = ()
        self.edit = parts.told(QLineEdit(), _LETTERS, "Axes")
        self.caption = parts.Caption(rich=True)
        self.buttons = [QPushButton() for _ in range(_MOST_SUGGESTIONS)]
        for each in self.buttons:
            each.clicked.connect(lambda _=False, each=each: self.edit.setText(each.text()))
            each.hide()
        self.of_file = FileAxes()
        line = parts.row_of(self.edit, self.of_file, *self.buttons, spacing=4, shares=(1,))
        parts.stack(QVBoxLayout(self), (line, self.caption), spacing=2)
        self.edit.textChanged.connect(self.edited)
        self.edit.textChanged.connect(self._read)

    def set_kind(self, kind: Any) -> None:
        """Explain the axes for another filter."""
        self._kind = kind
        self._read()

    def offer(self, axes: str, shape: tuple[int, ...]) -> None:
        """Show the axes of a layer of some shape."""
        # The letters are read together with their shape, once.
        self.shape = tuple(shape)
        with QSignalBlocker(self.edit):
            self.edit.setText(axes)
        self._read()

    def axes(self) -> str:
        """Return the axes typed; raises `AxesError` if they do not fit the layer."""
        return check_axes(self.edit.text(), self.shape)

    def letters(self) -> str:
        """Return the letters typed, whether they fit or not."""
        return self.edit.text().upper()

    def _read(self, _: str = "") -> None:
        found: dict[str, str] = {}
        text = ""
        try:
            if self.shape:
                axes = self.axes()
                found = resolve.likely_axes(axes, self.shape, self._kind)
                text = html.escape(image_in_words(axes, self.shape), quote=False)
                text += resolve.advice_on_axes(axes, self.shape, self._kind, found)
        except AxesError as error:
            text = html.escape(in_panel(error), quote=False)
        self.caption.setText(text)
        offered = [*found.items(), *[("", "")] * _MOST_SUGGESTIONS]
        for box, (letters, meaning) in zip(self.buttons, offered, strict=False):
            box.setText(letters)
            box.setToolTip(parts.wrapped(f"Treat the layer as {meaning}.") if letters else "")
            box.setVisible(bool(letters))
        self.changed.emit()


class RegionInput(QWidget):
    """A list of regions; below it, for drawn ones, the Shapes layers and a button to draw."""

    #: Another region was chosen, or it was moved.
    changed = Signal()

    def __init__(self, viewer: Viewer, choices: Mapping[str, str], tip: str):
        super().__init__()
        self._viewer = viewer
        self.box = parts.narrow(parts.choice(choices, tip, "Region"), 8)
        self.shapes = parts.narrow(
            LayerChoice(
                "Shapes layer with the region: its selected shape, else the last one. For a "
                "rotated or round shape, the upright bounding rectangle is used.",
                "No Shapes layer",
            ),
            8,
        )
        self.shapes.setAccessibleName("Shapes layer")
        self.draw_button = parts.button("Draw", "Draw a rectangle on the image, in a Shapes layer.")
        self._drawn = parts.holding(parts.row_of(self.shapes, self.draw_button, shares=(1,)))
        parts.stack(QVBoxLayout(self), (self.box, self._drawn), spacing=4)
        self._drawn.hide()
        self.box.currentIndexChanged.connect(self._choose)

    def region(self) -> RegionChoice:
        """Return the choice."""
        return RegionChoice(self.box.currentData(), self.shapes.layer())

    def refresh(self) -> None:
        """List the Shapes layers of the viewer."""
        shapes = [each for each in self._viewer.layers if isinstance(each, Shapes)]
        lasting = [each for each in reversed(shapes) if not provenance.is_temporary(each)]
        self.shapes.offer({each: each.name for each in lasting})

    def events(self) -> list[tuple[Any, Any]]:
        """Return the events that move the region: of the viewer, or else of the Shapes layer."""
        camera, dims = docks.camera_of(self._viewer).events, self._viewer.dims.events
        moves = [camera.center, camera.zoom, dims.current_step, dims.ndisplay, dims.order]
        if self.box.currentData() in _DRAWN:
            shapes, moves = self.shapes.layer(), []
            if shapes is not None:
                moves = [getattr(shapes.events, name) for name in source.MOVES]
                moves.append(shapes.selected_data.events.items_changed)
        return [(event, self._on_moved) for event in moves]

    def draw(self, layer: Layer | None) -> None:
        """Start drawing on a Shapes layer for a layer; add it if there is none."""
        if layer is None:
            return
        name = f"region of {layer.name}"
        drawn = (each for each in self._viewer.layers if isinstance(each, Shapes))
        shapes = next((each for each in drawn if each.name == name), None)
        if shapes is None:
            shapes = source.shapes_on(layer, name, 1 / 200, face_color="transparent")
            self._viewer.layers.append(shapes)
        self.refresh()
        self.shapes.choose(shapes)
        self._viewer.layers.selection.active = shapes
        shapes.mode = "add_rectangle"

    def _on_moved(self, event: object = None) -> None:
        self.changed.emit()

    def _choose(self, _: int) -> None:
        self.refresh()
        self._drawn.setVisible(self.box.currentData() in _DRAWN)
        self.changed.emit()
