"""The plugin's panels in napari's window: open one, and find those that are open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QTimer
from qtpy.QtWidgets import QDockWidget, QMainWindow, QWidget

from napari_gpu_denoise._napari.commands import NOISE_PANEL, panel_of

if TYPE_CHECKING:
    import napari.viewer

_DISPLAY_NAME = "GPU Denoise"  # of the manifest


def open_panel(viewer: napari.viewer.Viewer, name: str = NOISE_PANEL) -> Any:
    """Return a panel, in front of others; opened beside them if it was not.

    Parameters
    ----------
    viewer : napari.viewer.Viewer
    name : str, optional
        As `panel_of` takes it; by default the one that measures noise.
    """
    kind = panel_of(name)
    panel = next((each for each in docked(viewer) if isinstance(each, kind)), None)
    if panel is None:
        panel = kind(viewer)
        # The name that napari's menus give it, so that they find it.
        viewer.window.add_dock_widget(panel, name=f"{panel.title} ({_DISPLAY_NAME})", tabify=True)
    if (dock := _dock_of(panel)) is not None:
        dock.show()
        dock.raise_()
    return panel


def gathering(viewer: napari.viewer.Viewer, panel: QWidget) -> QTimer:
    """Return what puts a panel in front of the plugin's others, once it is docked.

    napari stacks what its menus open, and two of these panels in one window are too low to be used.

    Parameters
    ----------
    viewer : napari.viewer.Viewer
    panel : QWidget

    Returns
    -------
    QTimer
        To be started when the panel gets a parent; the dock joins the window only afterwards.
    """
    timer = QTimer(panel)
    timer.setSingleShot(True)
    timer.timeout.connect(lambda: _gather(viewer, panel))
    return timer


def _gather(viewer: napari.viewer.Viewer, panel: QWidget) -> None:
    dock = _dock_of(panel)
    window = None if dock is None else dock.parent()
    if not isinstance(window, QMainWindow) or dock.isFloating():
        return
    area = window.dockWidgetArea(dock)
    for each in (*filter_panels(viewer), *noise_panels(viewer)):
        other = _dock_of(each)
        if each is panel or other is None or other.isFloating() or other.isHidden():
            continue
        if window.dockWidgetArea(other) != area:
            continue
        if other not in window.tabifiedDockWidgets(dock):
            window.tabifyDockWidget(other, dock)
        dock.raise_()
        return


def _dock_of(panel: QWidget) -> QDockWidget | None:
    dock = panel.parent()
    while dock is not None and not isinstance(dock, QDockWidget):
        dock = dock.parent()
    return dock


def docked(viewer: napari.viewer.Viewer) -> list[Any]:
    """Return the widgets docked in napari's window, if there is one."""
    window = getattr(viewer, "window", None)
    return [] if window is None else list(window.dock_widgets.values())


def filter_panels(viewer: napari.viewer.Viewer) -> list[Any]:
    """Return the open panels of filters."""
    from napari_gpu_denoise._napari.panel import DenoisePanel

    return [each for each in docked(viewer) if isinstance(each, DenoisePanel)]


def noise_panels(viewer: napari.viewer.Viewer) -> list[Any]:
    """Return the panel that measures noise, if it is open."""
    return [each for each in docked(viewer) if isinstance(each, panel_of(NOISE_PANEL))]
