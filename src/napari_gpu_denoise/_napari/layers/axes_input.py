"""Control for the axes of a layer: letters, and their meaning in words."""

from __future__ import annotations

import dataclasses
import html
from typing import Any

from qtpy.QtCore import Signal
from qtpy.QtWidgets import QHBoxLayout, QLineEdit, QPushButton, QWidget

from napari_gpu_denoise._napari.parts import below, rich_caption, wrapped
from napari_gpu_denoise.errors import AxesError
from napari_gpu_denoise.image.axes import UNNAMED, check_axes

_SPOKEN_AXES = {
    "T": ("time point", "time points"),
    "Z": ("slice", "slices"),
    "C": ("channel", "channels"),
    "S": ("colour sample", "colour samples"),
}
_MOST_READINGS = 2


class AxesInput(QWidget):
    """Axis letters, and below them their meaning for this layer.

    Where the layer does not name an axis, buttons beside the letters set the likely names.

    Parameters
    ----------
    kind : type, optional
        The entry of FILTERS that the axes are for.
    parent : QWidget, optional
    """

    changed = Signal()

    def __init__(self, kind: Any = None, parent: QWidget | None = None):
        super().__init__(parent)
        self._kind = kind
        self._shape: tuple[int, ...] = ()
        self.edit = QLineEdit()
        self.edit.setToolTip(
            wrapped(
                "One letter per axis, in the order of the data: T time, Z slices, C channels, "
                "S colours of RGB, Y, X. Any other letter, or a dot, marks independent planes."
                + " Time and slices are used only by settings that need them."
                * (kind is not None)
            )
        )
        self.edit.setAccessibleName("Axes")
        self.caption = rich_caption()
        row = QHBoxLayout()
        row.setSpacing(4)
        row.addWidget(self.edit, 1)
        self.buttons = [self._add_button(row) for _ in range(_MOST_READINGS)]
        below(row, self.caption, parent=self)
        self.edit.textChanged.connect(lambda _: self._read())

    def _add_button(self, row: QHBoxLayout) -> QPushButton:
        button = QPushButton()
        button.clicked.connect(lambda: self.edit.setText(button.text()))
        button.hide()
        row.addWidget(button)
        return button

    def offer(self, axes: str, shape: tuple[int, ...]) -> None:
        """Take a new layer: its suggested axes and its shape."""
        # All of the shape at once with its letters: they are read together.
        self._shape = tuple(shape)
        self.edit.blockSignals(True)
        self.edit.setText(axes)
        self.edit.blockSignals(False)
        self._read()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape the axes are for; empty when there is no layer."""
        return self._shape

    def axes(self) -> str:
        """Return the axes typed.

        Raises
        ------
        AxesError
            If they do not fit the layer.
        """
        return check_axes(self.edit.text(), self._shape)

    def letters(self) -> str:
        """Return the letters typed, whether they fit or not."""
        return self.edit.text().upper()

    def _read(self) -> None:
        found: dict[str, str] = {}
        text = ""
        try:
            if self._shape:
                axes = self.axes()
                found = readings(axes, self._shape, self._kind)
                text = html.escape(describe(axes, self._shape), quote=False)
                text += self._advice(axes, found)
        except AxesError as error:
            text = html.escape(str(error), quote=False)
        self.caption.setText(text)
        offered = [*found.items(), *[("", "")] * _MOST_READINGS]
        for button, (letters, meaning) in zip(self.buttons, offered, strict=False):
            button.setText(letters)
            button.setToolTip(wrapped(f"Treat the layer as {meaning}.") if letters else "")
            button.setVisible(bool(letters))
        self.changed.emit()

    def _advice(self, axes: str, found: dict[str, str]) -> str:
        """Return what to type where axes are not named; in bold where the filter needs it."""
        if follows_time(self._kind) and "T" not in axes:
            title = self._kind.title
            if not found:
                return (
                    f". {title} works along time: without an axis T each image is filtered alone."
                )
            hint = " or ".join(found)
            return f". <b>{title} works along time: name the axis of frames T, as {hint}.</b>"
        hints = ", ".join(f"for {meaning} type {letters}" for letters, meaning in found.items())
        return f". {hints[0].upper()}{hints[1:]}." if hints else ""


def follows_time(kind: Any) -> bool:
    """Return whether a filter as it is by default looks along time; None is no filter."""
    return kind is not None and "T" in kind().joint


def readings(axes: str, shape: tuple[int, ...], kind: Any) -> dict[str, str]:
    """Return likely names of axes that have none: letters, and their meaning in words.

    Parameters
    ----------
    axes : str
        As `check_axes` returns them.
    shape : tuple of int
        Lengths of the axes.
    kind : type or None
        An entry of FILTERS; only axes that it uses are offered. None for all.
    """
    unknown = [i for i, a in enumerate(axes) if a == UNNAMED and shape[i] > 1]
    if "T" in axes:
        return {}
    slices = kind is None or any(
        spec.metadata["needs_axis"] == "Z" for spec in dataclasses.fields(kind)
    )
    meanings: dict[str, str] = {}
    if len(unknown) == 1:
        meanings = {"T": "a time-lapse", "Z": "slices of a volume"}
        if not slices:
            del meanings["Z"]
    elif len(unknown) == 2:
        meanings = {"TZ": "a time-lapse of volumes", "TC": "a time-lapse in several channels"}
    elif not unknown and follows_time(kind) and "Z" in axes and shape[axes.index("Z")] > 1:
        # What a file calls slices is often time.
        unknown, axes = [axes.index("Z")], axes.replace("Z", UNNAMED)
        meanings = {"T": "a time-lapse"}
    found = {}
    for letters, meaning in meanings.items():
        if not set(letters) & set(axes):
            named = list(axes)
            for i, letter in zip(unknown, letters, strict=True):
                named[i] = letter
            found["".join(named)] = meaning
    return found


def describe(axes: str, shape: tuple[int, ...]) -> str:
    """Return the meaning of axes in words, such as ``"16 time points, 192 by 208 pixels"``."""
    lengths = dict(zip(axes, shape, strict=True))
    independent = 1
    words = []
    for letter, length in zip(axes, shape, strict=True):
        if letter in _SPOKEN_AXES:
            words.append(f"{length} {_SPOKEN_AXES[letter][length != 1]}")
        elif letter not in "YX":
            independent *= length
    if independent > 1:
        words.append(f"{independent} independent planes")
    size = f"{lengths['Y']} by {lengths['X']} pixels"
    return ", ".join([*words, size])
