"""The plugin's panels in napari's window: open one, and find those that are open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qtpy.QtWidgets import QDockWidget

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
    dock = panel.parent()
    while dock is not None and not isinstance(dock, QDockWidget):
        dock = dock.parent()
    if dock is not None:
        dock.show()
        dock.raise_()
    return panel


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
