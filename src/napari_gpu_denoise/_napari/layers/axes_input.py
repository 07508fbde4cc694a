"""Control for the axes of a layer: letters, and their meaning in words."""

from __future__ import annotations

import html
import math
from typing import Any

from qtpy.QtCore import QSignalBlocker, Signal
from qtpy.QtWidgets import QLineEdit, QPushButton, QVBoxLayout, QWidget

from napari_gpu_denoise._napari.layers.file_axes import FileAxes
from napari_gpu_denoise._napari.layers.source import AXIS_WORDS
from napari_gpu_denoise._napari.parts import Caption, row_of, stack, wrapped
from napari_gpu_denoise._napari.wording import in_panel
from napari_gpu_denoise.errors import AxesError
from napari_gpu_denoise.image.axes import UNNAMED, check_axes
from napari_gpu_denoise.protocol.settings import setting_fields

_MOST_SUGGESTIONS = 2
_VOLUME = 4  # slices from which a filter of volumes gains by them
_LETTERS = (
    "One letter per axis, in the order of the data: T time, Z slices, C channels, S colours of "
    "RGB, Y, X. Any other letter, or a dot, marks independent planes."
)


class AxesInput(QWidget):
    """Axis letters, and below them their meaning for this layer.

    Where the layer does not name an axis, buttons beside the letters set the likely names. `kind`
    is the entry of FILTERS that the axes are for, if any.
    """

    #: Letters were typed or clicked.
    edited = Signal(str)
    #: The letters, or what they are for, have changed.
    changed = Signal()

    def __init__(self, kind: Any = None):
        super().__init__()
        self._kind = kind
        #: Shape the axes are for; empty where there is no layer.
        self.shape: tuple[int, ...] = ()
        used = "" if kind is None else " Time and slices are used only by settings that need them."
        self.edit = QLineEdit(toolTip=wrapped(_LETTERS + used), accessibleName="Axes")
        self.caption = Caption(rich=True)
        self.buttons = [QPushButton() for _ in range(_MOST_SUGGESTIONS)]
        for each in self.buttons:
            each.clicked.connect(lambda _=False, each=each: self.edit.setText(each.text()))
            each.hide()
        self.of_file = FileAxes()
        line = row_of(self.edit, self.of_file, *self.buttons, spacing=4, shares=(1,))
        stack(QVBoxLayout(self), (line, self.caption), spacing=2)
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
                found = likely_axes(axes, self.shape, self._kind)
                text = html.escape(describe(axes, self.shape), quote=False)
                text += self._advice(axes, found)
        except AxesError as error:
            text = html.escape(in_panel(error), quote=False)
        self.caption.setText(text)
        offered = [*found.items(), *[("", "")] * _MOST_SUGGESTIONS]
        for box, (letters, meaning) in zip(self.buttons, offered, strict=False):
            box.setText(letters)
            box.setToolTip(wrapped(f"Treat the layer as {meaning}.") if letters else "")
            box.setVisible(bool(letters))
        self.changed.emit()

    def _advice(self, axes: str, found: dict[str, str]) -> str:
        """Return advice on unnamed axes, in bold if the filter needs them."""
        if follows_time(self._kind) and "T" not in axes:
            works = f"{self._kind.title} works along time"
            if not found:
                return f". {works}: without an axis T each image is filtered alone."
            return f". <b>{works}: name the time axis T, as in {' or '.join(found)}.</b>"
        if needs_slices(self._kind) and "Z" not in axes:
            works = f"{self._kind.title} works on volumes"
            if not found:
                other = "VBM3D for time-lapses" if "T" in axes else "BM3D for images"
                return f". {works}: use {other}."
            return f". <b>{works}: name the slices Z, as in {' or '.join(found)}.</b>"
        hints = ", ".join(f"for {meaning} type {letters}" for letters, meaning in found.items())
        if hints:
            return f". {hints[0].upper()}{hints[1:]}."
        alone = not (self._kind is None or follows_time(self._kind) or needs_slices(self._kind))
        volume = "Z" in axes and self.shape[axes.index("Z")] >= _VOLUME
        return ". BM4D filters all slices of a volume together." * (alone and volume)


def follows_time(kind: Any) -> bool:
    """Return whether a filter, if any, uses neighbouring frames by default."""
    return kind is not None and "T" in kind().joint


def needs_slices(kind: Any) -> bool:
    """Return whether a filter, if any, works on volumes."""
    return kind is not None and "Z" in kind().joint


def likely_axes(axes: str, shape: tuple[int, ...], kind: Any) -> dict[str, str]:
    """Return likely letters for unnamed axes, and their meaning in words.

    `axes` are as `check_axes` returns them. Only axes that the filter uses are offered, if `kind`
    is one.
    """
    unknown = [i for i, a in enumerate(axes) if a == UNNAMED and shape[i] > 1]
    slices = needs_slices(kind)
    if ("Z" if slices else "T") in axes:
        return {}
    fields = () if kind is None else setting_fields(kind)
    meanings: dict[str, str] = {}
    if slices:
        timed = {"TZ": "a time-lapse of volumes", "CZ": "volumes in several channels"}
        meanings = ({}, {"Z": "slices of a volume"}, timed)[min(len(unknown), 3) % 3]
    elif len(unknown) == 1:
        meanings = {"T": "a time-lapse"}
        if kind is None or any(each.metadata["needs_axis"] == "Z" for each in fields):
            meanings["Z"] = "slices of a volume"
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
    named = [(lengths[letter], AXIS_WORDS[letter]) for letter in axes if letter in AXIS_WORDS]
    words = [f"{length} {word}{'s' * (length != 1)}" for length, word in named]
    used = {*AXIS_WORDS, *"YX"}
    independent = math.prod(n for a, n in zip(axes, shape, strict=True) if a not in used)
    if independent > 1:
        words.append(f"{independent} independent planes")
    size = f"{lengths['Y']} by {lengths['X']} pixels"
    return ", ".join([*words, size])
