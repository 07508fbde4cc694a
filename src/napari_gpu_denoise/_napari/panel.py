"""Base of the plugin's panels: layer, axes, status line, and their place in napari's window."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from napari.layers import Layer
from napari.utils.notifications import notification_manager
from napari.viewer import Viewer
from qtpy.QtCore import QEvent, QSize, QTimer
from qtpy.QtWidgets import QApplication, QGridLayout, QLayout, QSizePolicy, QVBoxLayout, QWidget

from napari_gpu_denoise._napari import docks
from napari_gpu_denoise._napari.layers.axes_input import AxesInput
from napari_gpu_denoise._napari.layers.layer_input import LayerInput
from napari_gpu_denoise._napari.layers.source import Source, capture, finest, suggest_axes
from napari_gpu_denoise._napari.parts import WIDTH, Caption, Scrolled, stack
from napari_gpu_denoise._napari.wording import in_panel
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.noise.record import NoiseEstimate

PYTHON_COPIED = "Python call copied: paste it into napari's console."


class Panel(QWidget):
    """A panel that works on one image layer.

    A subclass sets `title` and the texts below it, and says in `stop` how its work ends. `kind` is
    the entry of FILTERS that the panel is for.
    """

    #: Display name in the manifest.
    title: ClassVar[str]
    #: In bold before an error.
    failed: ClassVar[str]
    #: List of the layers to choose from.
    layer_input: ClassVar[type[LayerInput]] = LayerInput
    #: Advice where Python runs out of memory.
    out_of_memory: ClassVar[str]

    def __init__(self, viewer: Viewer, tip: str, kind: Any = None):
        super().__init__()
        self._viewer = viewer
        self.layer = self.layer_input(viewer, tip)
        self.axes = AxesInput(kind)
        self.status = Caption(rich=True)
        self._closed = False
        # A dictionary of its own, so that it can be reached when the panel is gone.
        self._followed: dict[str, list[tuple[Any, Callable]]] = {}
        lists = self._followed.values()
        self.destroyed.connect(lambda _=None: [_disconnect(each) for each in lists])
        # Started when the panel gets a parent; the dock joins the window only afterwards.
        self._stacking = QTimer(self)
        self._stacking.setSingleShot(True)
        self._stacking.timeout.connect(lambda: docks.stack_on(self, self.others()))

    def arrange(
        self, rows: Iterable[QWidget | QLayout], below: Iterable[Sequence[QWidget]]
    ) -> None:
        """Put `rows` in a part that scrolls, and rows of one or two widgets below it."""
        inside = QWidget()
        scrolled = QVBoxLayout(inside)
        stack(scrolled, rows, spacing=8)
        scrolled.setContentsMargins(0, 0, 4, 0)
        scrolled.addStretch(1)
        grid = QGridLayout()
        grid.setSpacing(6)
        for number, widgets in enumerate(below):
            for column, widget in enumerate(widgets):
                grid.addWidget(widget, number, column, 1, 3 - len(widgets))
        layout = QVBoxLayout(self)
        layout.setContentsMargins(8, 8, 8, 8)
        layout.addWidget(Scrolled(inside), 1)
        layout.addLayout(grid)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Expanding)

    def sizeHint(self) -> QSize:
        """Return a width at which rows are readable."""
        hint = super().sizeHint()
        return QSize(max(hint.width(), WIDTH), hint.height())

    def changeEvent(self, event: QEvent) -> None:
        """Stop when the panel is taken out of its dock, which is how napari closes it."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.ParentChange:
            self._closed = self.parent() is None
            if self._closed:
                self.stop()
            else:
                self._stacking.start()

    # napari calls this whenever layers come, go, move or are renamed
    def reset_choices(self, event: object = None) -> None:
        """Follow the viewer's layers."""
        self.layer.refresh()

    def follow(self, what: str, connections: Iterable[tuple[Any, Callable[[Any], None]]]) -> None:
        """Connect events while the panel exists, replacing earlier connections named `what`."""
        connected = self._followed.setdefault(what, [])
        _disconnect(connected)
        connected += connections
        for event, act in connected:
            event.connect(act)

    def stop(self) -> None:
        """Stop what is running; the panel is being closed."""
        raise NotImplementedError

    def choose(self, layer: Layer, axes: str) -> None:
        """Choose a layer, and set its axes as another panel has them."""
        self.layer.choose(layer)
        if self.layer.layer() == layer and self.axes.letters() != axes.upper():
            self.axes.edit.setText(axes)

    def captured(self) -> Source:
        """Return the layer as it is now; raises `LayerError` if there is no usable one."""
        taken = capture(self.layer.layer())
        if tuple(taken.data.shape) != self.axes.shape:
            self.offer_axes()
        return taken

    def offer_axes(self) -> None:
        """Suggest the axes of the layer."""
        layer = self.layer.layer()
        if layer is None:
            self.axes.offer("", ())
        else:
            labels = self._viewer.dims.axis_labels
            self.axes.offer(suggest_axes(layer, labels), finest(layer).shape)

    def known_axes(self) -> str:
        """Return the axes typed; empty where they do not fit or there is no layer."""
        try:
            return self.axes.axes() if self.axes.shape else ""
        except DenoiseError:
            return ""

    def others(self) -> list[Panel]:
        """Return the other panels of the plugin that are open."""
        return [each for each in docks.docked(self._viewer, Panel) if each is not self]

    def estimate(self) -> NoiseEstimate | None:
        """Return the noise of the layer as this panel has measured it; None by default."""
        return None

    def receive_estimate(self, layer: Any, estimate: NoiseEstimate) -> None:
        """Receive another panel's estimate of the noise of a layer; ignored by default."""

    def say(self, text: str, stressed: str = "") -> None:
        """Show a sentence in the status line, after a lead in bold."""
        lead = f"<b>{stressed}</b> " if stressed else ""
        self.status.setText(lead + html.escape(text))

    def show_error(self, error: Exception) -> str:
        """Show an error and return its text; empty for a bug, which is reported to napari."""
        if not isinstance(error, (DenoiseError, MemoryError)):
            self.say(f"Internal error: {error!r}. Please report it.", self.failed)
            notification_manager.receive_error(type(error), error, error.__traceback__)
            return ""
        sentence = in_panel(error) if isinstance(error, DenoiseError) else self.out_of_memory
        self.say(sentence, self.failed)
        return sentence

    def copy(self, code: Callable[[], tuple[str, str]]) -> None:
        """Put text on the clipboard and show a message, both returned by `code`, or its error."""
        try:
            text, message = code()
        except DenoiseError as error:
            self.show_error(error)
            return
        QApplication.clipboard().setText(text)
        self.say(message)


def _disconnect(connected: list[tuple[Any, Callable]]) -> None:
    while connected:
        event, act = connected.pop()
        event.disconnect(act)
