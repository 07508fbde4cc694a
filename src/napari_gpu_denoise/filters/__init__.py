"""The filters, one a module or folder; `FILTERS` is the list that every front end reads.

A filter is imported when it is asked for: most processes use one, and all take as long as NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from napari_gpu_denoise.errors import SettingsError

# Module, function and class of each, in the order of menus.
_FILTERS = (
    ("nl_means", "nl_means", "NLMeans"),
    ("pixelwise", "nl_means_pixelwise", "NLMeansPixelwise"),
    ("swnlm", "swnlm", "SWNLM"),
    ("bm3d.filter", "bm3d", "BM3D"),
    ("vbm3d", "vbm3d", "VBM3D"),
    ("bm4d.filter", "bm4d", "BM4D"),
    ("isoline", "isoline", "Isoline"),
)
_CLASSES = {function: kind for _, function, kind in _FILTERS}

REMOVED = {
    **dict.fromkeys(("pri_nlm", "PRINLM"), "PRI-NLM"),
    **dict.fromkeys(("dct3d", "DCT3D"), "Sliding 3D DCT"),
}
"""The titles of filters of earlier versions, by name: BM4D takes their place."""

MODULES = {name: f"{__name__}.{module}" for module, *names in _FILTERS for name in names}
"""The modules of the functions and classes of all filters."""


def filters_for(name: str) -> tuple[Any, ...]:
    """Return the filter whose function has this name; all of them if it is that of none.

    Raises `SettingsError` if it names a filter of an earlier version.
    """
    check_removed(name)
    return (_class(_CLASSES[name]),) if name in _CLASSES else tuple(map(_class, _CLASSES.values()))


def check_removed(name: str) -> str:
    """Return a name; raise `SettingsError` if it is one of an earlier version."""
    if title := REMOVED.get(name.replace("-", "_")):
        remedy = "use BM4D with profile='fast', which is better"
        raise SettingsError(f"{title} was removed", remedy, code="removed-filter")
    return name


def _class(name: str) -> Any:
    return getattr(import_module(MODULES[name]), name)


def __getattr__(name: str) -> Any:
    if name == "FILTERS":
        return filters_for("")
    if name in _CLASSES.values():
        return _class(name)
    check_removed(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
