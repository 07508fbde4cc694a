"""Controls of the panel "Compare", and their layout."""

from __future__ import annotations

import napari.viewer
from napari.layers import Layer
from qtpy.QtCore import QSignalBlocker, Qt, Signal
from qtpy.QtWidgets import QCheckBox, QComboBox, QHBoxLayout, QSlider, QWidget

from napari_gpu_denoise._napari.compare.overlay import BLINK, CURTAIN, NOTHING, RESIDUAL
from napari_gpu_denoise._napari.compare.pair import partners, results_in
from napari_gpu_denoise._napari.layer_panel import LayerPanel
from napari_gpu_denoise._napari.layers.layer_input import LayerInput
from napari_gpu_denoise._napari.layers.provenance import made_from
from napari_gpu_denoise._napari.parts import (
    Caption,
    button,
    choice,
    form_layout,
    narrow,
    ruler,
    wrapped,
)

MODES = {
    "Curtain: before | after": CURTAIN,
    "Blink": BLINK,
    "Residual: before - after": RESIDUAL,
    "The layers as they are": NOTHING,
}
KEY = "B"


class ResultInput(LayerInput):
    """The viewer's results that can be compared with something; at first the selected one."""

    def listed(self) -> list[Layer]:
        """Return the results, topmost first."""
        return results_in(self._viewer.layers)

    def _found_groups(self, before: object) -> list:
        return []

    def _first_choice(self) -> Layer | None:
        return self._origin()

    def meant_by(self, active: Layer) -> Layer | None:
        """Return the selected result, or the newest of the selected layer."""
        made = made_from(active, self._viewer.layers)
        found = [each for each in self._layers if each is active or each in made]
        return next(iter(found), None)


class PartnerInput(QComboBox):
    """The layers that a result can be compared with, its source first."""

    chosen = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._layers: list[Layer] = []
        narrow(self)
        self.setToolTip(wrapped("The source of the result, or another result of the same source."))
        self.currentIndexChanged.connect(lambda _: self.chosen.emit())

    def layer(self) -> Layer | None:
        """Return the layer chosen, or None."""
        index = self.currentIndex()
        return self._layers[index] if 0 <= index < len(self._layers) else None

    def offer(self, layers: list[Layer], keep: bool) -> None:
        """List layers; the choice stays if it is to be kept and is among them."""
        before = self.layer()
        with QSignalBlocker(self):
            self.clear()
            self._layers = layers
            for each in layers:
                self.addItem(each.name)
            self.setCurrentIndex(layers.index(before) if keep and before in layers else 0)
        if self.layer() is not before:
            self.chosen.emit()


class CompareView(LayerPanel):
    """What to compare, how, and the profile along a line."""

    title = "Compare"
    layer_input = ResultInput
    failed = "Not shown."
    out_of_memory = "There is not enough memory to show this."

    def __init__(self, viewer: napari.viewer.Viewer):
        super().__init__(viewer, "Result of a filter; at first the selected layer.")
        self.layer.setPlaceholderText("No result of a filter")
        self.before = PartnerInput()
        self.mode = choice(
            MODES,
            "Curtain: drag the line in the picture. Blink: one after the other, each for half a "
            "second. Residual: what was removed, in blue and red around 0, up to three standard "
            "deviations. It is a temporary layer, removed when this panel is closed.",
        )
        narrow(self.mode)
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.slider.setToolTip(
            wrapped("Position of the line; you can also drag it in the picture.")
        )
        self.slider.setAccessibleName("Position of the line")
        self.hold_button = button(
            f"Hold for before ({KEY})", f"Show the source while this, or the key {KEY}, is held."
        )
        self.hide_source = QCheckBox("Hide source")
        self.hide_source.setToolTip(wrapped("Hide the source, even after this panel is closed."))
        self.caption = Caption()
        self.draw_button = button(
            "Draw a line", "Draw a line on the picture to see grey levels along it."
        )
        self._plot_place = QHBoxLayout()
        self._lay_out()

    def _lay_out(self) -> None:
        rows: dict[str, QWidget] = {"Result": self.layer, "Before": self.before, "Show": self.mode}
        self._form = form_layout({**rows, "Line at": self.slider})
        held = QHBoxLayout()
        for each in (self.hold_button, self.hide_source):
            held.addWidget(each)
        drawn = QHBoxLayout()
        drawn.addWidget(self.draw_button)
        self.arrange(
            (self._form, held, self.caption, ruler(), drawn, self._plot_place), ((self.status,),)
        )

    def show_mode(self, mode: str) -> None:
        """Show only the controls that a mode has."""
        for each in (self.slider, self._form.labelForField(self.slider), self.hold_button):
            each.setVisible(mode == CURTAIN)

    def offer_partners(self, keep: bool) -> None:
        """List what the result can be compared with."""
        after = self.layer.layer()
        found = [] if after is None else partners(after, self._viewer.layers)
        self.before.offer(found, keep)
