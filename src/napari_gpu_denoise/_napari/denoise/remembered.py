"""Settings of the last run of each filter, kept until napari ends."""

from __future__ import annotations

from typing import Any

# Settings that describe an image: they are not kept.
OF_IMAGE = ("voxel",)
_last: dict[type, Any] = {}


def last(kind: type) -> Any | None:
    """Return the settings of the last run of a filter; None if there was none."""
    return _last.get(kind)


def remember(settings: Any) -> None:
    """Keep the settings of a run."""
    _last[type(settings)] = without_image(settings)


def without_image(settings: Any) -> Any:
    """Return settings without what describes an image."""
    defaults = type(settings)()
    there = {n: getattr(defaults, n) for n in OF_IMAGE if hasattr(defaults, n)}
    return type(settings).of(settings, **there)
