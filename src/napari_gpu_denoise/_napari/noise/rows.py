"""Table of a noise estimate, one row for each value."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from napari_gpu_denoise._napari.wording import in_panel
from napari_gpu_denoise.noise.record import NoiseEstimate


@dataclass(frozen=True)
class Row:
    """A quantity: one number per channel, or text.

    Standard errors that are not known are NaN.
    """

    label: str
    value: tuple[float, ...] | str
    error: tuple[float, ...] = ()
    unit: str = ""

    @property
    def text(self) -> str:
        """Value, error and unit as text."""
        if isinstance(self.value, str):
            return self.value
        return f"{', '.join(map(measured, self.value, self.error))} {self.unit}".strip()


def measured(value: float, error: float = math.nan) -> str:
    """Return a value with its standard error, rounded to the significant digits."""
    if not math.isfinite(error) or error <= 0:
        return f"{value:.4g}"
    places = min(max(1 - math.floor(math.log10(error)), 0), 6)
    if abs(value) >= 1e6 or (value and abs(value) < 1e-4):
        return f"{value:.4g} ± {error:.2g}"
    return f"{value:.{places}f} ± {error:.{places}f}"


def table(estimate: NoiseEstimate, planes: str) -> list[Row]:
    """Return all rows of an estimate; `planes` names those that were read."""
    rows = _parameters(estimate)
    if not any(row.label == "Sigma" for row in rows):
        rows.append(Row("Mean sigma", estimate.sigma, estimate.standard_error, "grey levels"))
    words = [
        ("Reason", estimate.reason),
        ("Spectrum", whiteness(estimate)),
        ("Clipped", clipped(estimate)),
        ("Channels", channel_correlation(estimate)),
        ("Planes read", planes),
        ("Method", estimate.method),
        *(("Note", in_panel(note)) for note in estimate.notes),
    ]
    return rows + [Row(label, text) for label, text in words if text]


def _parameters(estimate: NoiseEstimate) -> list[Row]:
    """Return the parameters of the models, which are of one kind; optional ones only if not 0."""
    models, found = estimate.models, []
    for each in models[0].parameters():
        values = tuple(getattr(model, each.name) for model in models)
        if any(values) or not each.optional:
            error = tuple(known.get(each.name, math.nan) for known in estimate.errors)
            found.append(Row(each.label.capitalize(), values, error, each.unit))
    if details := "; ".join(dict.fromkeys(model.details() for model in models)):
        found.append(Row("Noise", details))
    return found


def as_html(rows: Sequence[Row]) -> str:
    """Return rows as a table of rich text."""
    cells = "".join(
        f"<tr><td style='padding-right: 8px'>{html.escape(row.label)}</td>"
        f"<td>{html.escape(row.text)}</td></tr>"
        for row in rows
    )
    return f"<table cellspacing='0' cellpadding='1'>{cells}</table>"


def whiteness(estimate: NoiseEstimate) -> str:
    """Return whether the noise is white; empty where that was not measured."""
    found = [each for each in estimate.spectra if each is not None]
    if not found or not any(estimate.sigma):
        return ""
    worst = max(found, key=lambda each: abs(each.autocorrelation[0][1]))
    # No minus before what is written as 0.
    neighbours = worst.autocorrelation[0][1], worst.autocorrelation[1][0]
    x, y = (round(each, 2) + 0.0 for each in neighbours)
    name = "white" if estimate.white else "correlated"
    return f"{name}; correlation of neighbours {x:.2f} along x, {y:.2f} along y"


def clipped(estimate: NoiseEstimate) -> str:
    """Return the largest fractions of clipped pixels of a channel; empty where there are none."""
    shares = [(each[0], each[1]) for each in estimate.clipped if any(each)]
    if not shares:
        return ""
    dark, bright = (max(each) for each in zip(*shares, strict=True))
    return f"{dark:.2%} of the pixels at the dark end, {bright:.2%} at the bright end"


def channel_correlation(estimate: NoiseEstimate) -> str:
    """Return the correlation of noise between channels; empty for one channel."""
    if estimate.covariance is None:
        return ""
    correlation = estimate.covariance.correlation
    pairs = [abs(correlation[i][j]) for i in range(len(correlation)) for j in range(i)]
    return f"correlation of noise between channels at most {max(pairs, default=0.0):.2f}"
