"""Commands of the manifest: panels to start, of each filter and beside them, and their opening.

The menus have commands of their own: napari hides a panel whose widget is chosen again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module

# Modules and classes of the panels beside those of the filters; their titles and menus are in
# napari.yaml.
PANELS = {
    "denoise": ("start", "StartPanel"),
    "estimated_noise": ("noise.panel", "NoisePanel"),
    "compare": ("compare.panel", "ComparePanel"),
    "batch": ("batch.panel", "BatchPanel"),
}


@cache
def __getattr__(name: str) -> type | Callable[[], None]:
    if name.startswith("open_"):
        return _opening(name.removeprefix("open_"))
    if name in PANELS:
        module, panel = PANELS[name]
        return getattr(import_module(f"napari_gpu_denoise._napari.{module}"), panel)
    from napari_gpu_denoise.filters import filters_for

    for kind in filters_for(name):
        if kind.name == name:
            from napari_gpu_denoise._napari.denoise.panel import DenoisePanel

            members = {"filter": kind, "title": kind.title}
            return type(f"{kind.__name__}Panel", (DenoisePanel,), members)
    raise AttributeError(f"There is no filter {name!r}.")


def _opening(name: str) -> Callable[[], None]:
    def open_it() -> None:
        from napari import current_viewer

        from napari_gpu_denoise._napari.docks import open_panel
        from napari_gpu_denoise._napari.loading import when_loaded

        viewer = current_viewer()
        when_loaded(lambda: open_panel(viewer, __getattr__(name).title))

    return open_it
