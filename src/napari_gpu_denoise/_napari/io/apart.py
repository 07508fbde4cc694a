"""Work in a thread of its own, while napari draws and takes no input."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import TypeVar

from qtpy.QtCore import QEventLoop, QObject, Qt, QThread, Signal
from qtpy.QtWidgets import QApplication, QProgressDialog

_PATIENCE = 400  # milliseconds until the user is told
T = TypeVar("T")


class _Waiting(QProgressDialog):
    """Says what is waited for; the key Escape does not close it."""

    def reject(self) -> None:
        """Stay."""


class _Ended(QObject):
    now = Signal()


def apart(work: Callable[[], T], text: str) -> T:
    """Return what `work` returns, or raise what it raises; without a window it is just called."""
    app = QApplication.instance()
    if not isinstance(app, QApplication) or QThread.currentThread() is not app.thread():
        return work()
    found: list[T] = []
    errors: list[BaseException] = []
    loop, ended = QEventLoop(), _Ended()
    ended.now.connect(loop.quit, Qt.ConnectionType.QueuedConnection)

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            errors.append(error)
        finally:
            ended.now.emit()

    dialog = _Waiting(text, "", 0, 0, app.activeWindow())
    dialog.setCancelButton(None)
    dialog.setWindowModality(Qt.WindowModality.ApplicationModal)
    dialog.setMinimumDuration(_PATIENCE)
    thread = Thread(target=run)
    thread.start()
    loop.exec()
    thread.join()
    dialog.hide()
    dialog.deleteLater()
    if errors:
        raise errors[0]
    return found[0]
