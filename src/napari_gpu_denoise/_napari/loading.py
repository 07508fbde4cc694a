"""Modules and drivers loaded off the GUI thread, which would stand still meanwhile.

Those that declare classes of Qt are not: in another thread this ends the process now and then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from threading import Thread
from typing import Any

from qtpy.QtCore import QObject, Qt, QTimer, Signal
from qtpy.QtWidgets import QApplication

from napari_gpu_denoise import filters

# Modules and classes of the panels, by the titles that they have in napari.yaml.
PANELS = {
    "Filter": ("napari_gpu_denoise._napari.denoise.panel", "FilterPanel"),
    "Estimated noise": ("napari_gpu_denoise._napari.noise.panel", "NoisePanel"),
    "Compare": ("napari_gpu_denoise._napari.compare.panel", "ComparePanel"),
    "Batch": ("napari_gpu_denoise._napari.batch.panel", "BatchPanel"),
}
# What takes long in opening a first panel.
_NAMES = "assessment.assess", "files.batch", "files.samples", "noise.estimate"
_LIBRARY = [*filters.MODULES.values(), *(f"napari_gpu_denoise.{name}" for name in _NAMES)]
MODULES = [*_LIBRARY, *(module for module, _ in PANELS.values())]


def panel_class(title: str) -> Any:
    """Return the class of a panel."""
    module, name = PANELS[title]
    return getattr(import_module(module), name)


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
    """Call a function that opens a panel once all it needs is loaded, and the click is over."""
    if is_loaded():
        QTimer.singleShot(1, act)  # Qt would take 0 ms for now
        return

    def declare(_: object) -> None:
        for module, _ in PANELS.values():
            import_module(module)
        QTimer.singleShot(1, act)

    Loading(_load, declare, QApplication.instance() or QObject())


def _load() -> None:
    for name in _LIBRARY:
        import_module(name)
    from napari_gpu_denoise._napari import preferences

    preferences.read()


def is_loaded() -> bool:
    """Return whether panels open at once."""
    specs = [getattr(sys.modules.get(name), "__spec__", None) for name in MODULES]
    return all(each and not getattr(each, "_initializing", False) for each in specs)
