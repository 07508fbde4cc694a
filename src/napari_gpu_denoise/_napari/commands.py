"""What the manifest's widget commands name: the panel of each filter, by the filter's name."""

from __future__ import annotations

from functools import cache


@cache
def panel_of(name: str) -> type:
    """Return the panel class of a filter.

    Parameters
    ----------
    name : str
        Name of an entry of FILTERS, such as ``"nl_means"``.

    Returns
    -------
    type
        A `DenoisePanel` with its `filter` set.

    Raises
    ------
    AttributeError
        If no filter has this name.
    """
    from napari_gpu_denoise.filters import FILTERS

    for kind in FILTERS:
        if kind.name == name:
            from napari_gpu_denoise._napari.panel import DenoisePanel

            return type(f"{kind.__name__}Panel", (DenoisePanel,), {"filter": kind})
    raise AttributeError(f"There is no filter {name!r}.")


def __getattr__(name: str) -> type:
    return panel_of(name)
