"""Tables of what the library says: of noise, of advice, of an assessment."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable
from dataclasses import replace

from napari_gpu_denoise._napari.wording import in_panel
from napari_gpu_denoise.noise.record import NoiseEstimate

_NAMES = 11  # characters of a name in a summary of the library

Rows = list[tuple[str, str]]


def rows_of(summary: str) -> Rows:
    """Return names and texts of a summary of the library, which has one of each a line."""
    return [(e[:_NAMES].strip().capitalize(), e[_NAMES:].strip()) for e in summary.splitlines()]


def noise_rows(estimate: NoiseEstimate, planes: str) -> Rows:
    """Return the parameters of noise with their units, and all else that is known of it.

    `planes` names those that were read.
    """
    models, found = estimate.models, []
    for each in models[0].parameters():
        values = [getattr(model, each.name) for model in models]
        if any(values) or not each.optional:
            errors = [known.get(each.name, math.nan) for known in estimate.errors]
            text = ", ".join(map(measured, values, errors))
            found.append((each.label.capitalize(), f"{text} {each.unit}"))
    said = replace(estimate, notes=tuple(map(in_panel, estimate.notes)))
    _, *others = rows_of(said.summary())  # after the model
    return [*found, *others, ("Planes read", planes)]


def measured(value: float, error: float) -> str:
    """Return a value with its standard error, if that is known."""
    return f"{value:.4g} ± {error:.2g}" if math.isfinite(error) else f"{value:.4g}"


def as_html(rows: Iterable[tuple[str, str]]) -> str:
    """Return rows as a table of rich text."""
    cells = "".join(
        f"<tr><td style='padding-right: 8px'>{html.escape(name)}</td>"
        f"<td>{html.escape(text)}</td></tr>"
        for name, text in rows
    )
    return f"<table cellspacing='0' cellpadding='1'>{cells}</table>"
