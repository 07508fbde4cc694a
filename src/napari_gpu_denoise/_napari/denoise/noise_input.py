"""Control for the noise of a filter: automatic, one sigma, a measured model, or typed."""

from __future__ import annotations

from typing import Any

from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import QComboBox, QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from napari_gpu_denoise._napari.noise import rows
from napari_gpu_denoise._napari.parts import Caption, add_item, button, narrow, stack, wrapped
from napari_gpu_denoise.errors import SigmaError
from napari_gpu_denoise.noise.models import NoiseModel
from napari_gpu_denoise.noise.record import NoiseEstimate

AUTO, ONE, TYPED, MEASURED = "auto", "one", "typed", "measured"

_CHOICES = {
    AUTO: (
        "Automatic",
        "Measure the noise before filtering, and choose a model: photon noise, Rician noise of MRI "
        "magnitudes, speckle, correlated noise, or one sigma. Noise that depends on brightness is "
        "made uniform before the filter, and this is undone afterwards.",
    ),
    ONE: (
        "One sigma",
        "Measure one standard deviation for all grey levels before filtering. Where noise grows "
        "with brightness this is a compromise.",
    ),
    TYPED: ("Type sigma", "Use the standard deviation on the right."),
}
_SIGMA = (
    "Standard deviation of the noise in grey levels of the image: one number, or one for each "
    "channel, separated by commas. Typing a value replaces the estimate. After a run with an "
    "estimate, the value used is shown here."
)


def numbers(text: str, channels: int) -> list[str]:
    """Return the numbers in a text, with decimal points; commas may be typed for these as well.

    Commas separate the numbers of several channels; where semicolons or spaces alone do, or for one
    channel, a comma belongs to a number.
    """
    if ";" in text:
        return text.replace(",", ".").split(";")
    words = text.split()
    if len(words) > 1 and not any(word.endswith(",") for word in words):
        return text.replace(",", ".").split()
    words = text.split(",")
    return [".".join(words)] if channels == 1 and len(words) == 2 else words


class NoiseInput(QWidget):
    """The noise assumed by a filter; disabled if the filter's settings determine it."""

    #: The panel that measures noise is to be opened.
    wanted = Signal()
    #: What is assumed may have changed.
    changed = Signal()

    def __init__(self, automatic: str = "The noise is measured before filtering."):
        super().__init__()
        self._automatic = automatic  # what is said of that choice
        self._measured: NoiseEstimate | None = None
        self._origin = ""
        self._known: NoiseEstimate | None = None
        self._used = ""
        self._last = ""  # typed
        #: Channels of the layer.
        self.channels = 1
        self.mode = narrow(QComboBox(), 6)
        self.mode.setAccessibleName("Noise")
        for name, (text, tip) in _CHOICES.items():
            add_item(self.mode, text, name, tip)
        self.edit = QLineEdit()
        self.edit.setAccessibleName("Noise standard deviation")
        self.edit.setMinimumWidth(50)
        self.button = button(
            "Measure…",
            "Open the panel Estimated noise, which measures this layer and shows the results.",
        )
        self.caption = Caption()
        row = QHBoxLayout()
        row.setSpacing(4)
        row.addWidget(self.mode, 3)
        row.addWidget(self.edit, 2)
        row.addWidget(self.button)
        stack(QVBoxLayout(self), (row, self.caption), spacing=2)
        self.edit.textEdited.connect(self._typed)
        self.mode.currentIndexChanged.connect(self._chosen)
        self.button.clicked.connect(self.wanted)
        self.set_unused("")

    def set_unused(self, reason: str) -> None:
        """Enable the control, or disable it where there is a reason why it is not used."""
        if reason:
            self._drop_used()
        for widget, tip in ((self.mode, "Source of the noise level."), (self.edit, _SIGMA)):
            widget.setEnabled(not reason)
            widget.setToolTip(wrapped(f"Sigma is {reason}." if reason else tip))
        self.edit.setPlaceholderText("not used" if reason else "sigma")
        self._explain()

    def choose(self, name: str) -> None:
        """Choose one of `AUTO`, `ONE`, `TYPED` and, after `hand_over`, `MEASURED`."""
        self.mode.setCurrentIndex(self.mode.findData(name))

    def chosen(self) -> str:
        """Return which one is chosen."""
        return self.mode.currentData()

    def sigma(self) -> float | tuple[float, ...] | None:
        """Return the sigma typed, or None where it is not to be used.

        Raises `SigmaError` if no number was typed.
        """
        if self.chosen() != TYPED or not self.mode.isEnabled():
            return None
        try:
            values = tuple(map(float, numbers(self.edit.text(), self.channels)))
        except ValueError:
            raise SigmaError(
                f"The noise {self.edit.text()!r} is not a number: type its standard deviation in "
                "grey levels, or choose Automatic."
            ) from None
        return values[0] if len(values) == 1 else values

    def noise(self) -> str | NoiseEstimate | None:
        """Return the noise as filters take it, also an estimate beside a typed sigma."""
        if not self.mode.isEnabled():
            return None
        chosen = {AUTO: None, ONE: "gaussian", MEASURED: self._measured, TYPED: self._known}
        return chosen[self.chosen()]

    def hand_over(self, estimate: NoiseEstimate, origin: str) -> None:
        """Take an estimate that was measured in `origin`, in words, and choose it."""
        self._measured, self._known, self._origin = estimate, estimate, origin
        if self.mode.findData(MEASURED) < 0:
            self.mode.addItem("Measured", MEASURED)
        tip = rows.tooltip(estimate, f"Measured in {origin}")
        self.mode.setItemData(self.mode.findData(MEASURED), tip, Qt.ItemDataRole.ToolTipRole)
        self.edit.clear()
        self.choose(MEASURED)
        self._explain()

    def take_over(self, other: NoiseInput) -> None:
        """Assume the noise that another control does."""
        if (handed := other.handed()) is not None:
            self.hand_over(*handed)
            return
        self.choose(other.chosen())
        if other.chosen() == TYPED:
            self.edit.setText(other.edit.text())
            self._typed(other.edit.text())

    def handed(self) -> tuple[NoiseEstimate, str] | None:
        """Return what `hand_over` took, if it is chosen."""
        return (self._measured, self._origin) if self.chosen() == MEASURED else None

    def show_estimate(self, estimate: NoiseEstimate) -> None:
        """Show an estimate of the layer beside a typed sigma."""
        self._known = estimate
        self._explain()

    def show_used(self, sigma: tuple[float, ...], models: list[dict[str, Any]]) -> None:
        """Show the noise that a run has estimated and used."""
        if self.chosen() in (AUTO, ONE):
            self.edit.setText(", ".join(f"{value:.4g}" for value in sigma))
            self.edit.setCursorPosition(0)
        if self.chosen() == ONE:
            self._used = f"Used: {self.edit.text()}" if len(sigma) > 1 else ""
        elif self.chosen() == AUTO:
            found = [NoiseModel.from_dict(each) for each in models]
            self._used = rows.noise_used(found, sigma) if found or sigma else ""
        self._explain()

    def drop_estimates(self) -> None:
        """Drop estimates of another layer; one that was handed over can be chosen again."""
        self._known = None
        self._drop_used()
        if self.chosen() == MEASURED:
            self.choose(AUTO)
        self._explain()

    def reset(self) -> None:
        """Go back to automatic measurement."""
        self.choose(AUTO)
        self.edit.clear()
        self._used = self._last = ""
        self._explain()

    def _drop_used(self) -> None:
        self._used = ""
        if self.chosen() != TYPED:
            self.edit.clear()

    def _chosen(self, _: int) -> None:
        # The value used belongs to one choice; but it can be edited.
        if self.chosen() != TYPED:
            self._drop_used()
        elif not self.edit.text():
            self.edit.setText(self._last)
        self._explain()

    def _typed(self, text: str) -> None:
        self._last = text
        self.choose(TYPED)
        self._explain()

    def _explain(self) -> None:
        chosen, text = self.chosen() if self.mode.isEnabled() else None, ""
        if chosen == ONE:
            text = self._used
        elif chosen == AUTO:
            text = self._used or self._automatic
        elif chosen == MEASURED and self._measured is not None:
            text = f"{rows.one_line(self._measured)} (measured in {self._origin})"
        elif chosen == TYPED and self._known is not None:
            typed = self.edit.text().strip() or "…"
            text = f"{typed} (estimated {rows.sigma(self._known)})"
        self.caption.setText(text)
        self.caption.setVisible(bool(text))
        self.changed.emit()
