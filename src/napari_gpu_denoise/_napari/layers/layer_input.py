"""The list of image layers, and of groups of them that are filtered together."""

from __future__ import annotations

from collections.abc import Sequence

from napari.layers import Layer
from napari.viewer import Viewer
from qtpy.QtCore import QSignalBlocker, Qt, Signal
from qtpy.QtWidgets import QComboBox

from napari_gpu_denoise._napari import resolve
from napari_gpu_denoise._napari.layers import source
from napari_gpu_denoise._napari.layers.provenance import describe, is_temporary
from napari_gpu_denoise._napari.parts import narrow, wrapped


class LayerChoice(QComboBox):
    """A list of some of the viewer's layers."""

    chosen = Signal()

    def __init__(self, tip: str):
        super().__init__(toolTip=wrapped(tip))
        self._layers: list[Layer] = []
        narrow(self)
        self.currentIndexChanged.connect(lambda _: self.chosen.emit())

    def layer(self) -> Layer | None:
        """Return the layer chosen, or None."""
        index = self.currentIndex()
        return self._layers[index] if 0 <= index < len(self._layers) else None

    def offer(
        self, layers: list[Layer], keep: bool = True, names: Sequence[str] | None = None
    ) -> None:
        """List layers, by their names; the choice stays if it is to be kept and is among them."""
        before = self.layer()
        with QSignalBlocker(self):
            self.clear()
            self._layers = layers
            self.addItems(names or [layer.name for layer in layers])
            self.setCurrentIndex(layers.index(before) if keep and before in layers else 0)
        if self.layer() is not before:
            self.chosen.emit()

    def choose(self, layer: Layer) -> None:
        """Choose a layer of the list."""
        self.setCurrentIndex(self._layers.index(layer))


class LayerInput(QComboBox):
    """The viewer's layers; those that cannot be filtered are shown but cannot be chosen.

    Above them are groups of layers that can be filtered together: those that are selected, and
    those of one file, such as its channels. At first the layers are chosen that the selection
    stands for; with `whole_files` one of them together with the others of its file.
    """

    chosen = Signal()

    def __init__(self, viewer: Viewer, tip: str, *, whole_files: bool = False):
        super().__init__(toolTip=wrapped(tip), placeholderText="No image layer")
        self._viewer = viewer
        self._whole_files = whole_files
        self._items: list[tuple[Layer, ...]] = []
        self._last: tuple[Layer, ...] = ()
        narrow(self)
        self.currentIndexChanged.connect(self._tell)
        self.refresh()

    def layer(self) -> Layer | None:
        """Return the layer chosen, the first one of several, or None."""
        return next(iter(self.layers()), None)

    def layers(self) -> tuple[Layer, ...]:
        """Return all layers chosen."""
        index = self.currentIndex()
        return self._items[index] if 0 <= index < len(self._items) else ()

    def choose(self, *layers: Layer) -> None:
        """Choose layers; if one is not there, or cannot be filtered, nothing changes."""
        there = self.listed()
        if layers and all(each in there and resolve.is_usable(each) for each in layers):
            self._show(layers)

    def follow_selection(self, event: object = None) -> None:
        """Choose what is selected in the viewer, unless that are results of what is chosen."""
        self.refresh()
        wanted, selection = self.wanted(), self._viewer.layers.selection
        if set(wanted) & set(selection) or not set(wanted) <= set(self.layers()):
            self.choose(*wanted)

    def refresh(self, event: object = None) -> None:
        """Follow the viewer's layers and their selection; the choice stays while it is there."""
        there = self.listed()
        stays = bool(self._last) and all(each in there for each in self._last)
        usable = (each for each in there if resolve.is_usable(each))
        self._show(self._last if stays else self.wanted() or tuple(usable)[:1])

    def listed(self) -> list[Layer]:
        """Return the layers in the list, topmost first, as in the layer list beside it."""
        return [each for each in self._viewer.layers if not is_temporary(each)][::-1]

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
        groups = self.groups(chosen)
        self.blockSignals(True)
        self.clear()
        self._items = []
        for layers, text in groups.items():
            self._add(layers, text, ", ".join(each.name for each in layers))
        for layer in self.listed():
            reason = source.reason_unusable(layer)
            self._add((layer,), layer.name, reason or describe(layer) or layer.name)
            self.model().item(self.count() - 1).setEnabled(reason is None)
        self.setCurrentIndex(self._items.index(chosen) if chosen in self._items else -1)
        self.blockSignals(False)
        self._tell()

    def _add(self, layers: tuple[Layer, ...], text: str, tip: str) -> None:
        self._items.append(layers)
        self.addItem(text)
        self.setItemData(self.count() - 1, wrapped(tip), Qt.ItemDataRole.ToolTipRole)

    def _tell(self, _: int = 0) -> None:
        if self.layers() != self._last:
            self._last = self.layers()
            self.chosen.emit()
