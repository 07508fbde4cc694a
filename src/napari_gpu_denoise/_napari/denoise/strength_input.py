"""Slider for the strength of a filter: what sigma is multiplied by."""

from __future__ import annotations

from qtpy.QtCore import QEvent, QObject, Qt, Signal
from qtpy.QtWidgets import QHBoxLayout, QLabel, QSlider, QWidget

from napari_gpu_denoise._napari.parts import WheelGuard, wrapped

_STEPS = 20  # of the slider from 1 to either end
_TIP = (
    "Multiplies the noise level that is measured or typed: to the right more noise is removed, and "
    "more detail. 1 is best where the noise level is right. Double click sets 1."
)


class StrengthInput(QWidget):
    """A slider from 0.5 to 2, in equal ratios, and the value beside it."""

    changed = Signal()

    def __init__(self):
        super().__init__()
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.slider.setRange(-_STEPS, _STEPS)
        self.slider.setPageStep(_STEPS // 4)
        self.slider.setAccessibleName("Strength")
        self.label = QLabel()
        self.label.setMinimumWidth(self.label.fontMetrics().horizontalAdvance("0.00"))
        for widget in (self.slider, self.label):
            widget.setToolTip(wrapped(_TIP))
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self.slider, 1)
        row.addWidget(self.label)
        self._scrolling = WheelGuard(self)
        self._scrolling.watch(self.slider)
        self.slider.installEventFilter(self)
        self.slider.valueChanged.connect(self._tell)
        self._tell()

    def value(self) -> float:
        """Return the factor, with two decimals."""
        return round(2.0 ** (self.slider.value() / _STEPS), 2)

    def reset(self) -> None:
        """Set the factor to 1."""
        self.slider.setValue(0)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Set 1 on a double click."""
        if watched is self.slider and event.type() == QEvent.Type.MouseButtonDblClick:
            self.reset()
            return True
        return super().eventFilter(watched, event)

    def _tell(self, _: int = 0) -> None:
        self.label.setText(f"{self.value():.2f}")
        self.changed.emit()
