"""The list of image layers, and of groups of them that are filtered together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from napari.layers import Image, Layer
from napari.viewer import Viewer
from qtpy.QtCore import QSignalBlocker, Qt, Signal
from qtpy.QtWidgets import QComboBox

from napari_gpu_denoise._napari.layers import source
from napari_gpu_denoise._napari.layers.provenance import file_origin, first_origin, is_temporary
from napari_gpu_denoise._napari.parts import narrow, wrapped


@dataclass(frozen=True, eq=False)
class Group:
    """Layers under one text; the first is the one that axes and settings are shown for."""

    text: str
    layers: tuple[Image, ...]

    def __eq__(self, other: object) -> bool:
        # By the layers themselves: layers have no order and no value.
        return isinstance(other, Group) and [*map(id, self.layers)] == [*map(id, other.layers)]

    __hash__ = None


def selected(layers: Sequence[Layer], selection: Sequence[Layer]) -> Group | None:
    """Return the selected image layers, in their order, if there are several."""
    found = tuple(each for each in layers if each in selection and _is_usable(each))
    return Group(f"{len(found)} selected layers", found) if len(found) > 1 else None


def of_file(layers: Sequence[Layer], layer: Layer | None) -> Group | None:
    """Return the layers that a file was opened as, such as one for each channel, if several."""
    if layer is None or not _is_usable(layer) or _is_made(layer, layers):
        return None
    path = source.file_of(layer)
    if path is None:
        return None
    usable = [each for each in layers if _is_usable(each) and not _is_made(each, layers)]
    found = tuple(each for each in usable if _fits(each, layer, path))
    origin = file_origin(layer.metadata)
    what = "layers" if origin is None or origin.split is None else "channels"
    text = f"All {len(found)} {what} of {Path(path).name}"
    return Group(text, found) if len(found) > 1 else None


def _is_usable(layer: Layer) -> bool:
    return source.reason_unusable(layer) is None


def _is_made(layer: Layer, layers: Sequence[Layer]) -> bool:
    """Return whether a layer was made of another one that is still there."""
    return first_origin(layer, layers) != layer


def _fits(layer: Image, other: Image, path: str) -> bool:
    """Return whether a layer is of the same file and size."""
    size = tuple(source.finest(layer).shape)
    return source.file_of(layer) == path and size == tuple(source.finest(other).shape)


def same_axes(axes: str, shown: Image, layer: Image, viewer: Viewer) -> str:
    """Return the axes of a layer that is filtered together with the one shown, which has `axes`.

    They are the same, unless its shape or its own labels say otherwise.
    """
    labelled = source.clear_letters(layer.axis_labels, layer.ndim)
    known = source.suggest_axes(shown)
    same = layer.rgb == shown.rgb and source.finest(layer).ndim == source.finest(shown).ndim
    if same and (not labelled or known.startswith(labelled)):
        return axes
    return source.suggest_axes(layer, viewer.dims.axis_labels)


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
    those of one file, such as its channels. At first the selected layers are chosen. If one is the
    result of a filter, the layer that it was made of is chosen instead. With `whole_files` a layer
    is chosen together with the others of its file.
    """

    chosen = Signal()

    def __init__(self, viewer: Viewer, tip: str, *, whole_files: bool = False):
        super().__init__(toolTip=wrapped(tip), placeholderText="No image layer")
        self._viewer = viewer
        self._whole_files = whole_files
        self._groups: list[Group] = []
        self._layers: list[Layer] = []
        self._last: Layer | Group | None = None
        self._kept: Group | None = None  # the last one that was chosen
        narrow(self)
        self.currentIndexChanged.connect(self._tell)
        self.refresh()

    def layer(self) -> Layer | None:
        """Return the layer chosen, the first one of several, or None."""
        return next(iter(self.layers()), None)

    def layers(self) -> tuple[Layer, ...]:
        """Return all layers chosen."""
        item = self._item()
        return item.layers if isinstance(item, Group) else () if item is None else (item,)

    def choose(self, layer: Layer | None) -> None:
        """Choose a layer; one that is not there or cannot be filtered changes nothing."""
        if layer in self._layers and source.reason_unusable(layer) is None:
            self.setCurrentIndex(len(self._groups) + self._layers.index(layer))

    def choose_all(self, layers: Sequence[Layer]) -> None:
        """Choose several layers, or one; nothing changes if one is not there."""
        if len(layers) < 2:
            self.choose(next(iter(layers), None))
            return
        wanted = Group(f"{len(layers)} layers", tuple(layers))
        if wanted not in self._groups:
            self._kept = wanted
            self.refresh()
        if wanted in self._groups:
            self.setCurrentIndex(self._groups.index(wanted))

    def follow_selection(self, event: object = None) -> None:
        """Choose the layers selected in the viewer, unless these are results."""
        active = self._viewer.layers.selection.active
        self.refresh()
        # Not by identity: napari gives panels a viewer whose layers are other objects each time.
        if active is not None and self.meant() != active:
            return
        wanted = self._first_choice()
        if isinstance(wanted, Group):
            self.choose_all(wanted.layers)
        elif wanted == active:
            self.choose(active)

    def refresh(self, event: object = None) -> None:
        """Follow the viewer's layers and their selection; the choice stays while it is there."""
        before = self._last
        self._layers = self.listed()
        self._groups = self._found_groups(before)
        self.blockSignals(True)
        self.clear()
        for group in self._groups:
            self.addItem(group.text)
            names = ", ".join(each.name for each in group.layers)
            self.setItemData(self.count() - 1, wrapped(names), Qt.ItemDataRole.ToolTipRole)
        usable = []
        for layer in self._layers:
            self.addItem(layer.name)
            reason, index = source.reason_unusable(layer), self.count() - 1
            self.setItemData(index, reason or layer.name, Qt.ItemDataRole.ToolTipRole)
            if reason:
                self.model().item(index).setEnabled(False)
            else:
                usable.append(layer)
        known = [*self._groups, *usable]
        found = (each for each in (before, self._first_choice(), *usable) if each in known)
        wanted = next(found, None)
        self.setCurrentIndex(-1 if wanted is None else self._index(wanted))
        self.blockSignals(False)
        self._tell()

    def listed(self) -> list[Layer]:
        """Return the layers in the list, topmost first, as in the layer list beside it."""
        return [each for each in self._viewer.layers if not is_temporary(each)][::-1]

    def meant_by(self, active: Layer) -> Layer | None:
        """Return the layer to choose at first, where one is selected."""
        return first_origin(active, self._layers)

    def _found_groups(self, before: Layer | Group | None) -> list[Group]:
        layers, selection = list(self._viewer.layers), self._viewer.layers.selection
        found = [selected(layers, selection)]
        single = before.layers[0] if isinstance(before, Group) else before
        origin = self.meant()
        found += [of_file(layers, each) for each in (origin, single)]
        if self._kept is not None and all(each in layers for each in self._kept.layers):
            # The choice stays when a result is selected.
            found.append(self._kept)
        groups: list[Group] = []
        for group in found:
            if group is not None and group not in groups:
                groups.append(group)
        return groups

    def _first_choice(self) -> Layer | Group | None:
        """Return the layer or group of the viewer's selection."""
        layers, selection = list(self._viewer.layers), self._viewer.layers.selection
        origin = self.meant()
        several = selected(layers, selection)
        if several is None and self._whole_files:
            several = of_file(layers, origin)
        return origin if several is None else several

    def _index(self, item: Layer | Group) -> int:
        if isinstance(item, Group):
            return self._groups.index(item)
        return len(self._groups) + self._layers.index(item)

    def _item(self) -> Layer | Group | None:
        items = [*self._groups, *self._layers]
        index = self.currentIndex()
        return items[index] if 0 <= index < len(items) else None

    def meant(self) -> Layer | None:
        """Return the layer that the viewer's selection stands for, if any."""
        active = self._viewer.layers.selection.active
        return None if active is None else self.meant_by(active)

    def _tell(self, _: int = 0) -> None:
        if self._item() != self._last:
            self._last = self._item()
            if isinstance(self._last, Group):
                layers = self._last.layers
                self._kept = Group(f"{len(layers)} layers", layers)
            self.chosen.emit()
