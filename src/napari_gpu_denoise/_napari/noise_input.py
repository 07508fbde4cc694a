"""The filter panel's control for noise: one sigma, a model, or what was typed."""

from __future__ import annotations

from typing import Any

from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import (
    QComboBox,
    QHBoxLayout,
    QLineEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from napari_gpu_denoise._napari import noise_words
from napari_gpu_denoise._napari.parts import caption, wrapped
from napari_gpu_denoise.errors import SigmaError
from napari_gpu_denoise.noise.models import NoiseModel
from napari_gpu_denoise.noise.noise_estimate import NoiseEstimate

AUTO, ONE, TYPED, MEASURED = "auto", "one", "typed", "measured"

_CHOICES = {
    AUTO: (
        "Automatic",
        "Measure before filtering which kind of noise it is and how much: photon noise, magnitudes "
        "of MRI, speckle, correlated noise, or one sigma. Brightness is changed so that the noise "
        "is even, and changed back.",
    ),
    ONE: (
        "One sigma",
        "Measure one standard deviation for all grey levels before filtering. Where noise grows "
        "with brightness that is a compromise.",
    ),
    TYPED: ("Type sigma", "Use the standard deviation at the right."),
}
_SIGMA = (
    "Standard deviation of the noise in grey levels of the image. One number, or one for each "
    "channel, with commas between. Typing here turns estimates off; after an estimate it shows "
    "the value used."
)


class NoiseInput(QWidget):
    """The noise a filter expects; of no meaning where the filter is told by its settings.

    Parameters
    ----------
    parent : QWidget, optional
    """

    #: The panel that measures noise is asked for.
    wanted = Signal()

    def __init__(self, parent: QWidget | None = None):
        super().__init__(parent)
        self._measured: NoiseEstimate | None = None
        self._origin = ""
        self._known: NoiseEstimate | None = None
        self._used = ""
        self._last = ""  # typed
        self.mode = QComboBox()
        self.mode.setAccessibleName("Noise")
        self.mode.setSizeAdjustPolicy(
            QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
        )
        self.mode.setMinimumContentsLength(6)
        for name, (text, tip) in _CHOICES.items():
            self.mode.addItem(text, name)
            self.mode.setItemData(self.mode.count() - 1, wrapped(tip), Qt.ItemDataRole.ToolTipRole)
        self.edit = QLineEdit()
        self.edit.setAccessibleName("Noise standard deviation")
        self.edit.setMinimumWidth(50)
        self.button = QPushButton("Measure…")
        self.button.setToolTip(
            wrapped("Open the panel Estimated noise, which measures this layer and shows how.")
        )
        self.caption = caption()
        self.caption.setTextFormat(Qt.TextFormat.PlainText)
        self._arrange()
        self.edit.textEdited.connect(lambda _: self._typed())
        self.mode.currentIndexChanged.connect(lambda _: self._chosen())
        self.button.clicked.connect(lambda: self.wanted.emit())
        self.ask()

    def _arrange(self) -> None:
        row = QHBoxLayout()
        row.setSpacing(4)
        row.addWidget(self.mode, 3)
        row.addWidget(self.edit, 2)
        row.addWidget(self.button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(2)
        layout.addLayout(row)
        layout.addWidget(self.caption)

    def ask(self, instead: str | None = None) -> None:
        """Ask for the noise, or say what it is instead: then it is of no meaning."""
        usable = instead is None
        for widget in (self.mode, self.edit):
            widget.setEnabled(usable)
        if usable:
            self.edit.setPlaceholderText("sigma")
            self.mode.setToolTip(wrapped("How the filter learns what the noise is."))
            self.edit.setToolTip(wrapped(_SIGMA))
        else:
            self._drop_used()
            self.edit.setPlaceholderText("not used")
            for widget in (self.mode, self.edit):
                widget.setToolTip(wrapped(f"Sigma is {instead}."))
        self._explain()

    def choose(self, name: str) -> None:
        """Choose one of `AUTO`, `ONE`, `TYPED` and, after `hand_over`, `MEASURED`."""
        self.mode.setCurrentIndex(self.mode.findData(name))

    def chosen(self) -> str:
        """Return which one is chosen."""
        return self.mode.currentData()

    def sigma(self) -> float | tuple[float, ...] | None:
        """Return what was typed, or None where something else is chosen or it is of no meaning.

        Raises
        ------
        SigmaError
            If no number was typed.
        """
        if self.chosen() != TYPED or not self.mode.isEnabled():
            return None
        words = self.edit.text().replace(";", ",").split(",")
        try:
            values = tuple(float(word) for word in words)
        except ValueError:
            raise SigmaError(
                f"The noise {self.edit.text()!r} is not a number: type its standard deviation in "
                "grey levels, or choose Automatic."
            ) from None
        return values[0] if len(values) == 1 else values

    def noise(self) -> str | NoiseEstimate | None:
        """Return the noise as filters take it: an estimate also beside a sigma that was typed."""
        if not self.mode.isEnabled():
            return None
        told = {AUTO: None, ONE: "gaussian", MEASURED: self._measured, TYPED: self._known}
        return told[self.chosen()]

    def hand_over(self, estimate: NoiseEstimate, origin: str) -> None:
        """Take an estimate that was made elsewhere, and choose it.

        Parameters
        ----------
        estimate : NoiseEstimate
        origin : str
            Where it was measured, in words.
        """
        self._measured, self._known, self._origin = estimate, estimate, origin
        place = self.mode.findData(MEASURED)
        if place < 0:
            self.mode.addItem("As measured", MEASURED)
            place = self.mode.count() - 1
        tip = f"{estimate.verdict()}. Measured in {origin}."
        self.mode.setItemData(place, wrapped(tip), Qt.ItemDataRole.ToolTipRole)
        if self.chosen() != TYPED:
            self.edit.clear()
        self.choose(MEASURED)
        self._explain()

    def know(self, estimate: NoiseEstimate) -> None:
        """Take an estimate of the layer to show beside what is typed; nothing else changes."""
        self._known = estimate
        self._explain()

    def show_used(self, sigma: tuple[float, ...], models: list[dict[str, Any]]) -> None:
        """Show what a run has used, when it estimated it."""
        if self.chosen() in (AUTO, ONE):
            self.edit.setText(", ".join(f"{value:.4g}" for value in sigma))
            self.edit.setCursorPosition(0)
        if self.chosen() == ONE:
            self._used = f"Used: {self.edit.text()}" if len(sigma) > 1 else ""
        elif self.chosen() == AUTO:
            found = [NoiseModel.from_dict(each) for each in models]
            self._used = noise_words.used(found, sigma) if found or sigma else ""
        self._explain()

    def forget(self) -> None:
        """Drop estimates that were made for another layer; one handed over can be chosen again."""
        self._known = None
        self._drop_used()
        if self.chosen() == MEASURED:
            self.choose(AUTO)
        self._explain()

    def reset(self) -> None:
        """Go back to measuring."""
        self.choose(AUTO)
        self.edit.clear()
        self._used = self._last = ""
        self._explain()

    def _drop_used(self) -> None:
        self._used = ""
        if self.chosen() != TYPED:
            self.edit.clear()

    def _chosen(self) -> None:
        # What one choice has used says nothing of the next; but a number can be changed by hand.
        if self.chosen() != TYPED:
            self._drop_used()
        elif not self.edit.text():
            self.edit.setText(self._last)
        self._explain()

    def _typed(self) -> None:
        self._last = self.edit.text()
        self.choose(TYPED)
        self._explain()

    def _explain(self) -> None:
        chosen, text = self.chosen(), ""
        if not self.mode.isEnabled():
            text = ""
        elif chosen == ONE:
            text = self._used
        elif chosen == AUTO:
            text = self._used or "The kind of noise is measured first."
        elif chosen == MEASURED and self._measured is not None:
            text = f"{noise_words.short(self._measured)} (measured in {self._origin})"
        elif chosen == TYPED and self._known is not None:
            typed = self.edit.text().strip() or "…"
            text = f"{typed} (estimated {noise_words.sigma(self._known)})"
        self.caption.setText(text)
        self.caption.setVisible(bool(text))
