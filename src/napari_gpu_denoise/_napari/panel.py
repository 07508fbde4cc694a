"""Base of the plugin's panels: status line, and their place in napari's window."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from napari.utils.notifications import notification_manager
from napari.viewer import Viewer
from qtpy.QtCore import QEvent, QSize, Qt, QTimer
from qtpy.QtGui import QAction, QKeySequence, QShowEvent
from qtpy.QtWidgets import (
    QApplication,
    QGridLayout,
    QLayout,
    QShortcut,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from napari_gpu_denoise._napari import docks
from napari_gpu_denoise._napari.parts import WIDTH, Caption, Scrolled, stack
from napari_gpu_denoise._napari.wording import in_panel
from napari_gpu_denoise.errors import DenoiseError

PYTHON_COPIED = "Python call copied: paste it into napari's console."


class Panel(QWidget):
    """A panel in a dock of napari's window.

    A subclass sets `title` and the texts below it, and says in `stop` how its work ends.
    """

    #: Display name in the manifest.
    title: ClassVar[str]
    #: In bold before an error.
    failed: ClassVar[str]
    #: Advice where Python runs out of memory.
    out_of_memory: ClassVar[str]

    def __init__(self, viewer: Viewer):
        super().__init__()
        self._viewer = viewer
        self.status = Caption(rich=True)
        self._closed = False
        # A dictionary of its own, so that it can be reached when the panel is gone.
        self._followed: dict[str, list[tuple[Any, Callable]]] = {}
        lists = self._followed.values()
        self.destroyed.connect(lambda _=None: [_disconnect(each) for each in lists])
        # Started when the panel gets a parent; the dock joins the window only afterwards.
        self._stacking = QTimer(self)
        self._stacking.setSingleShot(True)
        self._stacking.timeout.connect(lambda: docks.stack_on(self, self._neighbours()))
        docks.on_menu(viewer, self._come_forward)
        # Put in when the dock is on the screen: the GUI thread does not stand still for both.
        self._content = QWidget()
        self._showing = QTimer(self)
        self._showing.setSingleShot(True)
        self._showing.timeout.connect(self._put_in)

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
        layout = QVBoxLayout(self._content)
        layout.setContentsMargins(8, 8, 8, 8)
        layout.addWidget(Scrolled(inside), 1)
        layout.addLayout(grid)
        stack(QVBoxLayout(self), (), spacing=0)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Expanding)

    def sizeHint(self) -> QSize:
        """Return a width at which rows are readable."""
        hint = self._content.sizeHint()
        return QSize(max(hint.width(), WIDTH), hint.height())

    def showEvent(self, event: QShowEvent) -> None:
        """Show the controls, in a step of their own."""
        super().showEvent(event)
        self._begin_showing()

    def _begin_showing(self) -> None:
        if self._content.parent() is None:
            self._showing.start()

    def _put_in(self) -> None:
        self.layout().addWidget(self._content)

    def changeEvent(self, event: QEvent) -> None:
        """Stop when the panel is taken out of its dock, which is how napari closes it."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.ParentChange:
            self._closed = self.parent() is None
            if self._closed:
                self.stop()
            else:
                self._stacking.start()
                self._begin_showing()

    def _come_forward(self, entry: QAction) -> None:
        """Show the panel when its menu entry is chosen again, by which napari has hidden it."""
        if docks.is_entry_of(entry, self.title):
            docks.bring_forward(self)

    def follow(self, what: str, connections: Iterable[tuple[Any, Callable[[Any], None]]]) -> None:
        """Connect events while the panel exists, replacing earlier connections named `what`."""
        connected = self._followed.setdefault(what, [])
        _disconnect(connected)
        connected += connections
        for event, act in connected:
            event.connect(act)

    def run_on_return(self, act: Callable[[], None]) -> None:
        """Act on the key Return anywhere in the panel, and on Enter."""
        for key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            shortcut = QShortcut(QKeySequence(key), self)
            shortcut.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
            shortcut.activated.connect(act)

    def _neighbours(self) -> list[Panel]:
        """Return the other panels of the plugin that are open."""
        return [each for each in docks.docked(self._viewer, Panel) if each is not self]

    def stop(self) -> None:
        """Stop what is running; the panel is being closed."""
        raise NotImplementedError

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
        sentence = self.worded(error) if isinstance(error, DenoiseError) else self.out_of_memory
        self.say(sentence, self.failed)
        return sentence

    def worded(self, error: DenoiseError) -> str:
        """Return an error in terms of the controls of the panel."""
        return in_panel(error)

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
