"""Residuals as pictures."""

from __future__ import annotations

import numpy as np
from qtpy.QtCore import Qt
from qtpy.QtGui import QImage, QPixmap
from qtpy.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout, QWidget

from napari_gpu_denoise._napari.parts import Caption, stack, wrapped
from napari_gpu_denoise.assessment.record import Assessment

_SIDE = 168  # pixels
_DEVIATIONS = 3.0  # of the noise, that are black and white


class Residuals(QWidget):
    """The residual and that of its twin, side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.pictures = QLabel(), QLabel()
        titles = "Residual", "Residual of a twin"
        tips = (
            "What the filter removes; black and white are 3 standard deviations of the noise. It "
            "reveals noise that differs from what was assumed, but not what detail was lost.",
            "The same for the result with fresh noise: what a residual looks like if the noise is "
            "as assumed. Compare the residual only with this.",
        )
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        for picture, title, tip in zip(self.pictures, titles, tips, strict=True):
            caption, column = Caption(), QVBoxLayout()
            caption.setText(title)
            picture.setToolTip(wrapped(tip))
            picture.setAccessibleName(title)
            stack(column, (caption, picture), spacing=2)
            column.addStretch(1)
            row.addLayout(column)

    def show_residuals(self, assessment: Assessment | None) -> None:
        """Show the residuals of one plane; hidden without an assessment."""
        self.setVisible(assessment is not None)
        if assessment is None:
            return
        both = assessment.residual, assessment.twin_residual
        for picture, values in zip(self.pictures, both, strict=True):
            picture.setPixmap(_pixmap(_plane(values, assessment)))


def _plane(values: np.ndarray, assessment: Assessment) -> np.ndarray:
    """Return the middle plane of the first channel, (y, x)."""
    places = [
        slice(None) if axis in "YX" else 0 if axis in "CS" else length // 2
        for axis, length in zip(assessment.axes, values.shape, strict=True)
    ]
    plane = values[tuple(places)]
    return plane if assessment.axes.index("Y") < assessment.axes.index("X") else plane.T


def _pixmap(plane: np.ndarray) -> QPixmap:
    """Return the middle of a plane, one pixel of it for each of the screen."""
    part = tuple(slice(max(n - _SIDE, 0) // 2, max(n - _SIDE, 0) // 2 + _SIDE) for n in plane.shape)
    shades = np.clip((plane[part] / _DEVIATIONS + 1) * 127.5, 0, 255).astype(np.uint8)
    shades = np.ascontiguousarray(shades)
    height, width = shades.shape
    image = QImage(shades.data, width, height, width, QImage.Format.Format_Grayscale8)
    scaled = image.copy().scaled(_SIDE, _SIDE, Qt.AspectRatioMode.KeepAspectRatio)
    return QPixmap.fromImage(scaled)
