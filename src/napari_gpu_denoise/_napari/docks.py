"""Docks of the plugin's panels in napari's window."""

from __future__ import annotations

from typing import Any

import napari.viewer
from napari.viewer import Viewer
from qtpy.QtCore import QTimer
from qtpy.QtWidgets import QDockWidget, QLabel, QMainWindow, QWidget

from napari_gpu_denoise._napari.loading import panel_class, when_loaded

NAME = "{} (GPU Denoise)"  # by which napari's menus find the panel with a title


def open_panel(viewer: Viewer, title: str) -> Any:
    """Return the panel with a title of the manifest, opened if necessary, in front of others."""
    kind = panel_class(title)
    panel = next(iter(docked(viewer, kind)), None)
    if panel is not None:
        bring_forward(panel)
        return panel
    panel = kind(viewer)
    viewer.window.add_dock_widget(panel, name=NAME.format(title), tabify=True)
    return panel


def opening(title: str) -> type:
    """Return the class of a widget whose place a panel takes once all that it needs is loaded."""

    class Opening(QLabel):
        def __init__(self, viewer: napari.viewer.Viewer):  # napari knows it by this annotation
            super().__init__("Loading …")
            self.setMinimumWidth(480)  # that the widest panel needs
            self._viewer = viewer
            QTimer.singleShot(0, lambda: when_loaded(self._replace))  # when it is docked

        def _replace(self) -> None:
            if self.parent() is not None:  # not closed meanwhile
                self._viewer.window.remove_dock_widget(self)
                open_panel(self._viewer, title)

    return Opening


def bring_forward(panel: QWidget) -> None:
    """Show a panel, if it is docked, in front of others."""
    if (dock := _dock_of(panel)) is not None:
        dock.show()
        dock.raise_()


def grid_of(viewer: Viewer) -> Any:
    """Return the grid of cells, which napari 0.9 moved; older ones have it on the viewer."""
    return getattr(viewer, "canvas", viewer).grid


def camera_of(viewer: Viewer) -> Any:
    """Return the camera, which napari 0.9 moved; older ones have it on the viewer."""
    return getattr(viewer, "scene", viewer).camera


def docked(viewer: Viewer, kind: type) -> list[Any]:
    """Return the widgets of a class that are docked in napari's window."""
    return [each for each in viewer.window.dock_widgets.values() if isinstance(each, kind)]


def stack(panel: QWidget, kind: type, viewer: Viewer) -> None:
    """Show a panel, as a tab of the others of a class in its area of the window.

    napari's menus place panels below each other, which leaves each too little height.
    """
    dock = _dock_of(panel)
    window = None if dock is None else dock.parent()
    if dock is not None and isinstance(window, QMainWindow) and not dock.isFloating():
        for other in map(_dock_of, docked(viewer, kind)):
            if other in (None, dock) or other.isFloating() or other.isHidden():
                continue
            if window.dockWidgetArea(other) == window.dockWidgetArea(dock):
                if other not in window.tabifiedDockWidgets(dock):
                    window.tabifyDockWidget(other, dock)
                break
    bring_forward(panel)


def _dock_of(panel: QWidget) -> QDockWidget | None:
    dock = panel.parent()
    while dock is not None and not isinstance(dock, QDockWidget):
        dock = dock.parent()
    return dock
