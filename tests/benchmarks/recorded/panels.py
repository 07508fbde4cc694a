"""The plugin's panels, driven without a window: what the cases touch of napari and of the panels.

Names that a redesign may change: `_RECORD`, the attributes of the panels in `FilterPanel.set` and
`NoisePanel`, and the two conditions that the loops wait for. Panels are found by the titles in the
plugin's manifest.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs

from .answers import Answer
from .names import renamed_settings, split

PLUGIN = "napari-gpu-denoise"
_RECORD = PLUGIN  # where the metadata of a layer hold the record
_LIMIT = 300  # seconds; only for a run that never ends
TITLES = {"nl_means": "NL-means", "bm3d": "BM3D", "vbm3d": "VBM3D", "isoline": "Isoline"}
_LOOKS = ("scale", "translate", "contrast_limits", "gamma", "opacity")


@cache
def application() -> Any:
    """Return Qt's application, on no screen, with napari's settings and ours in a new folder."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    folder = tempfile.mkdtemp(prefix="recorded")
    os.environ["NAPARI_CONFIG"] = os.path.join(folder, "settings.yaml")
    platformdirs.user_config_path = lambda *_: Path(folder)  # settings of earlier runs do not show
    from qtpy.QtWidgets import QApplication

    return QApplication.instance() or QApplication([])


@cache
def _widgets() -> dict[str, str]:
    """Return what makes each panel, ``module:name``, by its title."""
    from npe2 import PluginManifest

    added = PluginManifest.from_distribution(PLUGIN).contributions
    makers = {command.id: command.python_name for command in added.commands}
    return {widget.display_name: str(makers[widget.command]) for widget in added.widgets}


def _panel(viewer: Any, title: str) -> Any:
    import importlib

    module, _, name = _widgets()[title].partition(":")
    return getattr(importlib.import_module(module), name)(viewer)


def _wait(ended: Callable[[], bool]) -> None:
    stop = time.monotonic() + _LIMIT
    while not ended():
        application().processEvents()
        time.sleep(0.002)
        if time.monotonic() > stop:
            raise RuntimeError("The panel has not finished.")


class Window:
    """A viewer with one layer, and the panels beside it."""

    def __init__(self, data: Any, **layer: Any):
        application()
        from napari.components import ViewerModel

        self.viewer = ViewerModel()
        self.source = self.viewer.add_image(data, **layer)

    def filter(self, kind: str, axes: str | None = None, **changes: Any) -> Answer:
        """Run a filter's panel and return the layers it adds; see `FilterPanel.set`."""
        panel = FilterPanel(self.viewer, kind)
        panel.set(axes, **changes)
        return panel.run()

    def measure(self, axes: str | None = None, model: str = "auto") -> Any:
        """Return the estimate that the noise panel shows."""
        panel = _panel(self.viewer, "Estimated noise")
        if axes is not None:
            panel.axes.edit.setText(axes)
        panel.model.setCurrentIndex(panel.model.findData(model))
        _wait(lambda: panel.estimate() is not None or panel.status.text().startswith("<b>Not"))
        found = panel.estimate()
        panel.deleteLater()
        return found


class FilterPanel:
    """The panel of a filter."""

    def __init__(self, viewer: Any, kind: str):
        self.viewer, self.kind = viewer, kind
        self.panel = _panel(viewer, TITLES[kind])

    def set(
        self,
        axes: str | None = None,
        *,
        profile: str | None = None,
        settings: dict[str, Any] | None = None,
        sigma: str | None = None,
        noise: str | None = None,
        estimate: Any = None,
        frame: int | None = None,
        maps: bool = False,
        fractions: bool = False,
        keep: bool = False,
    ) -> None:
        """Set the panel as a user would.

        Parameters
        ----------
        axes, sigma : str
            What is typed.
        profile : str
            Of the filter.
        settings : dict
            Those of the form, by name.
        noise : str
            A choice of the list: "auto" or "one".
        estimate : NoiseEstimate
            What the noise panel hands over.
        frame : int
            The only frame to filter, which the viewer shows.
        maps : bool
            Show classes and directions of isolines.
        fractions, keep : bool
            Result as float32; non-finite pixels stay.
        """
        panel = self.panel
        options = getattr(panel, "options", panel)  # older commits have no such part
        if axes is not None:
            panel.axes.edit.setText(axes)
        if profile is not None:
            panel.form.profile.setCurrentText(profile)
        for name, value in renamed_settings(self.kind, settings or {}).items():
            panel.form.controls[name].value = value
        if noise is not None:
            options.noise.choose(noise)
        if sigma is not None:
            options.noise.choose("typed")
            options.noise.edit.setText(sigma)
        if estimate is not None:
            panel.take_noise(panel.layer.layer(), panel.axes.axes(), estimate, "a test")
        if frame is not None:
            self.viewer.dims.set_current_step(0, frame)
            panel.places.boxes["T"].setChecked(True)
        panel.maps.setChecked(maps)
        options.dtype.setCurrentIndex(int(fractions))
        options.nonfinite.setCurrentIndex(int(keep))

    def run(self) -> Answer:
        """Run, and return the layers that were added, with the record in their metadata."""
        before = list(self.viewer.layers)
        self.panel.run()
        _wait(self.panel.run_button.isEnabled)
        status = re.sub(r"Done in \S+ s\. |Device: .*?\)\.", "", self.panel.status.text())
        answer = Answer(words={"status": status})
        for number, layer in enumerate(self.viewer.layers):
            if layer in before:
                continue
            answer.arrays[f"layer {number}"] = np.asarray(layer.data)
            made = split(layer.metadata.get(_RECORD, {}))
            looks = {name: getattr(layer, name, None) for name in _LOOKS}
            looks["colormap"] = getattr(getattr(layer, "colormap", None), "name", None)
            looks["rgb"] = getattr(layer, "rgb", None)
            answer.record[layer.name] = {"record": made.record, "looks": looks}
            answer.words[layer.name] = made.words
        if not answer.arrays:
            answer.arrays["refused"] = np.zeros(0)
        self.panel.deleteLater()
        return answer
