"""Controls of a filter's panel, and their layout."""

from __future__ import annotations

from typing import Any, ClassVar

import napari.viewer
from qtpy.QtWidgets import QCheckBox, QHBoxLayout
from superqt import QCollapsible

from napari_gpu_denoise._napari.denoise.assess import AssessSection
from napari_gpu_denoise._napari.denoise.form import SettingsForm
from napari_gpu_denoise._napari.denoise.noise_input import NoiseInput
from napari_gpu_denoise._napari.denoise.options import (
    DeviceInput,
    PlacesInput,
    StrengthInput,
    correction_input,
    nonfinite_input,
    type_input,
)
from napari_gpu_denoise._napari.denoise.results import Afterwards
from napari_gpu_denoise._napari.denoise.run import offer_of
from napari_gpu_denoise._napari.denoise.running import RunningPanel
from napari_gpu_denoise._napari.guide import page_of, with_guide
from napari_gpu_denoise._napari.parts import (
    Caption,
    Section,
    button,
    form_layout,
    progress_bar,
    ruler,
    wrapped,
)
from napari_gpu_denoise._napari.preview.live import PreviewBox


class DenoiseView(RunningPanel):
    """Controls of one filter, Run and Cancel, progress and a status line."""

    #: An entry of FILTERS; set by the subclass.
    filter: ClassVar[Any]

    def __init__(self, viewer: napari.viewer.Viewer):
        tip = "Image layer to denoise. The layer itself is never changed."
        super().__init__(viewer, tip, kind=self.filter)
        self.noise, self.strength = NoiseInput(), StrengthInput()
        offer = offer_of(self.filter)
        self.form = SettingsForm(self.filter, without=() if offer is None else (offer.setting,))
        self.dtype, self.nonfinite = type_input(), nonfinite_input()
        self.correct = correction_input()
        self.device = DeviceInput()
        self.maps = QCheckBox()
        self.maps.setHidden(offer is None)
        if offer is not None:
            self.maps.setText(offer.label)
            self.maps.setToolTip(wrapped(offer.tip))
        self.preview = PreviewBox()
        self.places = PlacesInput(viewer, self)
        self.afterwards = Afterwards(viewer)
        self.run_button = button("", "Denoise the layer; the result is a new layer.")
        self.cancel_button = button("Cancel", "Stop; add no layer.")
        self.reset_button = button("Reset to defaults", "Reset everything except the layer.")
        self.batch_button = button(
            "Many files …", "Open the panel Batch with this filter, these settings and this noise."
        )
        self.python_button = button("Copy Python call", "Copy Python code for the same run.")
        self.command_button = button("Copy command line", "Copy a shell command for the same run.")
        self.progress = progress_bar()
        self.assess = AssessSection(viewer, self)
        self._lay_out()
        self.show_running(False)

    def _lay_out(self) -> None:
        summary = Caption()
        summary.setText(self.filter.summary)
        head = with_guide(summary, page_of(self.filter.name))
        layer = {"Image": self.layer, "Axes": self.axes}
        noise = {"Noise": self.noise, "Strength": self.strength}
        top = form_layout({**layer, "Correct first": self.correct, **noise})
        output = {"Result type": self.dtype, "NaN, infinity": self.nonfinite, "Device": self.device}
        results = Section("Result and device", form_layout(output))
        reset = QHBoxLayout()
        reset.addStretch(1)
        reset.addWidget(self.batch_button)
        reset.addWidget(self.reset_button)
        self.arrange(
            (head, top, ruler(), self.form, results, self.assess, reset),
            (
                # Above the buttons, which then stay where they are, however long the text.
                (self.progress,),
                (self.status,),
                (self.preview,),
                (self.maps,),
                *((box,) for box in self.places.boxes.values()),
                (self.afterwards,),
                (self.run_button, self.cancel_button),
                (self.python_button, self.command_button),
            ),
        )

    def reset(self) -> None:
        """Set everything but the layer to its default."""
        self.form.reset()
        self.noise.reset()
        self.strength.reset()
        self.device.box.setCurrentIndex(0)
        self.dtype.setCurrentIndex(0)
        self.nonfinite.setCurrentIndex(0)
        self.correct.setCurrentIndex(0)
        self.places.reset()
        self.afterwards.reset()
        self.maps.setChecked(False)
        self.axes.forget()
        self.offer_axes()

    def sections(self) -> list[QCollapsible]:
        """Return the parts of the panel that can be collapsed."""
        return self._content.findChildren(QCollapsible)
