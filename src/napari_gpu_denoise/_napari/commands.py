"""Commands of the manifest: panels, the opening of that of filters at each, and samples."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from napari_gpu_denoise._napari.loading import PANELS, is_loaded, panel_class, when_loaded


def __getattr__(name: str) -> Callable[..., Any]:
    title = name.replace("_", " ").capitalize()
    if title in PANELS:
        from napari_gpu_denoise._napari.docks import opening

        return panel_class(title) if is_loaded() else opening(title)
    if name.startswith("open_"):
        return partial(_open_filter, name.removeprefix("open_"))
    from napari_gpu_denoise.files.samples import names

    if name in names():
        return partial(_layers, name)
    raise AttributeError(f"There is no panel {name!r}.")


def _open_filter(name: str) -> None:
    from napari.viewer import current_viewer
    from qtpy.QtCore import QTimer

    from napari_gpu_denoise._napari.docks import open_panel

    viewer = current_viewer()

    def open_it() -> None:
        panel = open_panel(viewer, "Filter")
        panel.layer.follow_selection()
        # In a turn of its own: the GUI thread does not stand still for both.
        QTimer.singleShot(1, lambda: panel.filter.choose(name))

    when_loaded(open_it)


def _layers(name: str) -> list[tuple[Any, dict[str, Any], str]]:
    """Return a sample as layer data."""
    import numpy as np

    from napari_gpu_denoise._napari.io.reading import read
    from napari_gpu_denoise.files import samples

    known = samples.info(name)
    ((data, attributes, kind),) = read(str(samples.path(name)))
    low, high = np.percentile(data, (0.1, 99.9))
    colormap = "green" if name == "fluorescence" else "gray"
    looks = {"colormap": colormap, "contrast_limits": (float(low), float(high))}
    told = {"noise": known.noise, "origin": known.origin, "licence": known.licence}
    metadata = attributes["metadata"] | told
    return [(data, {**attributes, "name": name, **looks, "metadata": metadata}, kind)]
