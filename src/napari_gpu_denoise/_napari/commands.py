"""Commands of the manifest that open a panel: one for each filter, and one that measures noise."""

from __future__ import annotations

from functools import cache


@cache
def __getattr__(name: str) -> type:
    if name == "estimated_noise":
        from napari_gpu_denoise._napari.noise.panel import NoisePanel

        return NoisePanel
    from napari_gpu_denoise.filters import FILTERS

    for kind in FILTERS:
        if kind.name == name:
            from napari_gpu_denoise._napari.denoise.panel import DenoisePanel

            members = {"filter": kind, "title": kind.title}
            return type(f"{kind.__name__}Panel", (DenoisePanel,), members)
    raise AttributeError(f"There is no filter {name!r}.")
