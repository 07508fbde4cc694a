"""Modules and drivers loaded off the GUI thread, which would stand still meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from threading import Thread
from typing import Any

from qtpy.QtCore import QObject, Qt, Signal
from qtpy.QtWidgets import QApplication

# What takes long in opening a first panel.
_MODULES = (
    "napari_gpu_denoise.filters",
    "napari_gpu_denoise.run.denoise",
    "napari_gpu_denoise.noise.estimate",
    "napari_gpu_denoise._napari.denoise.panel",
    "napari_gpu_denoise._napari.noise.panel",
    "napari_gpu_denoise._napari.start",
    "napari_gpu_denoise._napari.compare.panel",
    "napari_gpu_denoise._napari.batch.panel",
)


class Loading(QObject):
    """Calls `load` in a thread, then `use` with its result, in the GUI thread.

    Both end with the parent. An error of `load` is left to what `use` does.
    """

    _loaded = Signal(object)

    def __init__(self, load: Callable[[], Any], use: Callable[[Any], None], parent: QObject):
        super().__init__(parent)
        self._load, self._use = load, use
        # To a method of this object, which lives in the GUI thread.
        self._loaded.connect(self._deliver, Qt.ConnectionType.QueuedConnection)
        Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        found = None
        with suppress(Exception):
            found = self._load()
        # The parent may be gone.
        with suppress(RuntimeError):
            self._loaded.emit(found)

    def _deliver(self, found: Any) -> None:
        self._use(found)
        self.deleteLater()


def when_loaded(act: Callable[[], None]) -> None:
    """Call a function that opens a panel once all it needs is loaded: at once, if it is."""
    if all(map(_is_loaded, _MODULES)):
        act()
        return

    Loading(_load, lambda _: act(), QApplication.instance())


def _load() -> None:
    for name in _MODULES:
        import_module(name)
    from napari_gpu_denoise._napari import preferences

    preferences.read()


def _is_loaded(name: str) -> bool:
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)
