"""What the manifest's widget commands name: panels of filters, by their names, and of noise."""

from __future__ import annotations

from functools import cache

NOISE_PANEL = "estimated_noise"


@cache
def panel_of(name: str) -> type:
    """Return the class of a panel.

    Parameters
    ----------
    name : str
        Name of an entry of FILTERS, such as ``"nl_means"``, or `NOISE_PANEL`.

    Returns
    -------
    type
        A `DenoisePanel` with its `filter` set, or `NoisePanel`.

    Raises
    ------
    AttributeError
        If there is no such panel.
    """
    if name == NOISE_PANEL:
        from napari_gpu_denoise._napari.noise_panel import NoisePanel

        return NoisePanel
    from napari_gpu_denoise.filters import FILTERS

    for kind in FILTERS:
        if kind.name == name:
            from napari_gpu_denoise._napari.panel import DenoisePanel

            return type(f"{kind.__name__}Panel", (DenoisePanel,), {"filter": kind})
    raise AttributeError(f"There is no filter {name!r}.")


def __getattr__(name: str) -> type:
    return panel_of(name)
