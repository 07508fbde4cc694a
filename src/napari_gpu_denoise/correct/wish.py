"""What the user wishes to be removed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from napari_gpu_denoise.errors import SettingsError

STRIPES = ("rows", "columns", "hum")
#: What can be asked for, and the kinds that it stands for; all are removed only where found.
CHOICES = {
    "found": (*STRIPES, "outliers"),
    "stripes": STRIPES,
    **{kind: (kind,) for kind in (*STRIPES, "outliers")},
}


@dataclass(frozen=True)
class Wish:
    """What is to be removed; `always` are kinds removed whether they are found or not."""

    kinds: frozenset[str]
    always: frozenset[str] = frozenset()
    fixed: bool | None = None
    threshold: float | None = None


def wish_of(correct: Any) -> Wish | None:
    """Return what ``correct=`` asks for; None if nothing."""
    if correct is None:
        return None
    names = [correct] if isinstance(correct, str) else correct
    names = [*names] if isinstance(names, (tuple, list, set, frozenset)) else [None]
    if not names:
        return None
    if not all(isinstance(name, str) and name in CHOICES for name in names):
        raise SettingsError(
            f"correct={correct!r} is unknown: choose from {', '.join(CHOICES)}, or several of them "
            "in a tuple, or None."
        )
    return Wish(frozenset(kind for name in names for kind in CHOICES[name]))
