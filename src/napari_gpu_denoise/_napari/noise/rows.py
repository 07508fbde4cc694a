"""Tables of what the library says: of noise, of advice, of an assessment."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable

from napari_gpu_denoise._napari.wording import in_panel
from napari_gpu_denoise.noise.record import NoiseEstimate, measured


def titled(lines: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return names and texts of the library with the names as titles of rows."""
    return [(name.capitalize(), text) for name, text in lines]


def noise_rows(estimate: NoiseEstimate) -> list[tuple[str, str]]:
    """Return the parameters of noise with their units, and all else that is known of it."""
    models, found = estimate.models, []
    for each in models[0].parameters():
        values = [getattr(model, each.name) for model in models]
        if any(values) or not each.optional:
            errors = [known.get(each.name, math.nan) for known in estimate.errors]
            text = ", ".join(map(measured, values, errors))
            found.append((each.label, f"{text} {each.unit}"))
    _, *others = estimate.lines(in_panel)  # after the model
    return titled([*found, *others])


def as_html(rows: Iterable[tuple[str, str]]) -> str:
    """Return rows as a table of rich text."""
    cells = "".join(
        f"<tr><td style='padding-right: 8px'>{html.escape(name)}</td>"
        f"<td>{html.escape(text)}</td></tr>"
        for name, text in rows
    )
    return f"<table cellspacing='0' cellpadding='1'>{cells}</table>"
