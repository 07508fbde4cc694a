"""Findings of structured noise, in numbers and words, and the request to remove it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from napari_gpu_denoise.errors import SettingsError

TITLES = {
    "rows": "rows have individual offsets",
    "columns": "columns have individual offsets",
    "hum": "periodic hum",
    "hot": "hot pixels",
    "dead": "dead pixels",
}


@dataclass(frozen=True)
class Finding:
    """One kind of structured noise in a channel.

    Attributes
    ----------
    kind : {"rows", "columns", "hum", "hot", "dead"}
        What it is.
    strength : float
        Grey levels: standard deviation of the offsets, root mean square of the waves, or the median
        of how far hot or dead pixels are from their neighbours.
    fixed : bool or None
        Whether it is the same in all planes; None for a single plane.
    share : float
        Share of hot or dead pixels; 0 for other kinds.
    lines : int
        Number of whole rows and columns among the hot or dead pixels.
    frequencies : tuple of (float, float)
        Frequencies of hum along y and x in cycles per pixel, the strongest first.
    channel : int or None
        Number of the channel; None for an image without channels.
    """

    kind: str
    strength: float
    fixed: bool | None = None
    share: float = 0.0
    lines: int = 0
    frequencies: tuple[tuple[float, float], ...] = ()
    channel: int | None = None

    def words(self) -> str:
        """Return the finding in words.

        Returns
        -------
        str
            Such as ``"rows have individual offsets, 4.1 grey levels, different in each plane"``.
        """
        text = TITLES[self.kind]
        if self.channel is not None:
            text += f" in channel {self.channel}"
        if self.kind in ("hot", "dead"):
            text += f", {self.share:.2g} % of all"
        if self.lines:
            text += f", among them {self.lines} whole row" + "s" * (self.lines > 1)
            text += " or column" + "s" * (self.lines > 1)
        text += f", {self.strength:.3g} grey levels"
        if self.frequencies:
            fy, fx = self.frequencies[0]
            text += f", every {1 / (fy * fy + fx * fx) ** 0.5:.3g} pixels"
        if self.fixed is not None and self.kind != "hum":
            text += ", the same in all planes" if self.fixed else ", different in each plane"
        return text


@dataclass(frozen=True)
class StructuredNoise:
    """Structured noise of an image; true if any was found.

    Attributes
    ----------
    findings : tuple of Finding
        What was found, by channel; empty if nothing was.
    """

    findings: tuple[Finding, ...]

    def __bool__(self) -> bool:
        return bool(self.findings)

    def summary(self) -> str:
        """Return the findings as text, one per line."""
        if not self.findings:
            return "no structured noise was found"
        return "\n".join(each.words() for each in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """Return all fields as plain values, ready for JSON."""
        return {"findings": [{**asdict(each), "words": each.words()} for each in self.findings]}


# The request to remove structured noise before a filter runs.
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
        names = [name for name, kinds in CHOICES.items() if self.kinds == frozenset(kinds)]
        return names[0] if names else tuple(sorted(self.kinds))


def parse_correction(correct: Any) -> CorrectionRequest | None:
    """Parse the argument ``correct=``: None, a request, or one or several of `CHOICES`."""
    if correct is None or isinstance(correct, CorrectionRequest):
        return correct
    names: Any = [correct] if isinstance(correct, str) else correct
    names = [*names] if isinstance(names, (tuple, list, set, frozenset)) else [""]
    if not names:
        return None
    if not all(isinstance(name, str) and name in CHOICES for name in names):
        raise SettingsError(
            f"correct={correct!r} is unknown: choose from {', '.join(CHOICES)}, or several of them "
            "in a tuple, or None."
        )
    return CorrectionRequest(frozenset(kind for name in names for kind in CHOICES[name]))
