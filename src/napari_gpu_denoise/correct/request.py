"""The request to remove structured noise before a filter runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from napari_gpu_denoise.errors import SettingsError

STRIPES = ("rows", "columns", "hum")
#: Names that `parse_correction` takes, and the kinds that each stands for.
CHOICES = {
    "found": (*STRIPES, "outliers"),
    "stripes": STRIPES,
    **{kind: (kind,) for kind in (*STRIPES, "outliers")},
}


@dataclass(frozen=True)
class CorrectionRequest:
    """Kinds of structured noise to remove where they are found, or `always`."""

    kinds: frozenset[str]
    always: frozenset[str] = frozenset()
    fixed: bool | None = None
    threshold: float | None = None

    def as_argument(self) -> str | tuple[str, ...]:
        """Return the argument ``correct=`` that asks for these kinds."""
        names = [name for name, kinds in CHOICES.items() if self.kinds == set(kinds)]
        return names[0] if names else tuple(sorted(self.kinds))


def parse_correction(correct: Any) -> CorrectionRequest | None:
    """Parse the argument ``correct=``: None, a request, or one or several of `CHOICES`."""
    if correct is None or isinstance(correct, CorrectionRequest):
        return correct
    names = [correct] if isinstance(correct, str) else correct
    names = [*names] if isinstance(names, (tuple, list, set, frozenset)) else [None]
    if not names:
        return None
    if not all(isinstance(name, str) and name in CHOICES for name in names):
        raise SettingsError(
            f"correct={correct!r} is unknown: choose from {', '.join(CHOICES)}, or several of them "
            "in a tuple, or None."
        )
    return CorrectionRequest(frozenset(kind for name in names for kind in CHOICES[name]))
