"""Table of a noise estimate: one row for each value, read by the panel, tooltips and captions."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from napari_gpu_denoise._napari.wording import in_panel
from napari_gpu_denoise.noise.models import NoiseModel
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

    def brief(self, digits: str) -> str:
        """Return label and value, one value where the channels have the same."""
        if isinstance(self.value, str):
            return self.value
        return f"{self.label.lower()} {_per_channel(self.value, digits)}"


def measured(value: float, error: float = math.nan) -> str:
    """Return a value with its standard error, rounded to the significant digits."""
    if not math.isfinite(error) or error <= 0:
        return f"{value:.4g}"
    places = min(max(1 - math.floor(math.log10(error)), 0), 6)
    if abs(value) >= 1e6 or (value and abs(value) < 1e-4):
        return f"{value:.4g} ± {error:.2g}"
    return f"{value:.{places}f} ± {error:.{places}f}"


def table(estimate: NoiseEstimate, planes: str = "") -> list[Row]:
    """Return all rows of an estimate; `planes` names those that were read."""
    rows = parameters(estimate.models, estimate.errors)
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


def parameters(
    models: Sequence[NoiseModel], errors: Sequence[dict[str, float]] | None = None
) -> list[Row]:
    """Return the parameters of models of one kind, one per channel; optional ones only if not 0."""
    errors = errors or [{}] * len(models)
    found = []
    for each in models[0].parameters():
        values = tuple(getattr(model, each.name) for model in models)
        if any(values) or not each.optional:
            error = tuple(known.get(each.name, math.nan) for known in errors)
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


def tooltip(estimate: NoiseEstimate, title: str) -> str:
    """Return an estimate as rich text for a tooltip."""
    heading = html.escape(f"{title}: {estimate.verdict()}.")
    return f"<qt>{heading}{as_html(parameters(estimate.models, estimate.errors))}</qt>"


def one_line(estimate: NoiseEstimate) -> str:
    """Return model and parameters in one line, such as ``"Poisson-Gaussian, gain 2.21"``."""
    rows = parameters(estimate.models)
    return ", ".join([estimate.models[0].title, *(row.brief(".3g") for row in rows)])


def noise_used(models: Sequence[NoiseModel], sigma: Sequence[float]) -> str:
    """Return the noise of a run in one line; a model shared by the channels is named once."""
    if not models:
        return f"One sigma: {_per_channel(sigma, '.4g')}"
    if len({each.name for each in models}) > 1 or len(dict.fromkeys(models)) == 1:
        return "; ".join(dict.fromkeys(each.summary() for each in models))
    rows = [row for row in parameters(models) if any(row.value)]
    return ", ".join([f"{models[0].title} noise", *(row.brief(".4g") for row in rows)])


def sigma(estimate: NoiseEstimate) -> str:
    """Return sigma with its standard error, one value per channel."""
    return Row("Sigma", estimate.sigma, estimate.standard_error).text


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


def _per_channel(values: Sequence[float], digits: str) -> str:
    """Return the values of the channels; one where they are the same."""
    values = values[:1] if len(set(values)) == 1 else values
    return " / ".join(f"{value:{digits}}" for value in values)
