"""An assessment as a report: a page with pictures, text, or JSON."""

from __future__ import annotations

import base64
import html
import json
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from napari_gpu_denoise.errors import OutputError

if TYPE_CHECKING:
    from napari_gpu_denoise.assessment.record import Assessment

SUFFIXES = (".html", ".json", ".txt")
_RESIDUALS = 3.0  # standard deviations that are black and white
_WIDTH, _HEIGHT, _MARGIN = 460, 240, 44  # of the curve, in pixels
_COLOURS = ("#b4500a", "#1f6fb0", "#14795a", "#a03c82")
_STYLE = (
    "body{font:15px/1.45 sans-serif;max-width:62em;margin:2em auto;padding:0 1em}"
    "td{padding:.15em 1em .15em 0;vertical-align:top}figure{display:inline-block;margin:.5em}"
    "img{max-width:30em;image-rendering:pixelated}figcaption{max-width:30em;font-size:90%}"
)


def check_report_name(path: str | os.PathLike) -> None:
    """Refuse a name that no report can have."""
    if not os.fspath(path).lower().endswith(SUFFIXES):
        raise OutputError(f"{path} is not the name of a report: end it with {', '.join(SUFFIXES)}.")


def report_text(
    path: str | os.PathLike,
    assessment: Assessment,
    name: str,
    said: Callable[[str], str] = str,
) -> str:
    """Return the report on an image of a name; the ending of its own path decides how it looks.

    `said` returns a warning as a front end words it.
    """
    check_report_name(path)
    ending = os.fspath(path).lower()
    if ending.endswith(".json"):
        return json.dumps({"input": name, **assessment.as_dict()}, indent=2)
    if ending.endswith(".txt"):
        return f"{name}\n{assessment.summary(said)}\n"
    return page(assessment, name, said)


def page(assessment: Assessment, name: str, said: Callable[[str], str] = str) -> str:
    """Return an assessment as a page of HTML that needs no other file."""
    rows = "".join(
        f"<tr><td>{html.escape(title)}</td><td>{html.escape(text)}</td></tr>"
        for title, text in assessment.lines(said)
    )
    kinds = assessment.error_map, assessment.residual, assessment.twin_residual
    error, residual, twin = (middle_plane(values, assessment.axes) for values in kinds)
    top = float(error.max()) or 1.0
    pictures = (
        (error / top, f"Expected error, black 0, white {top:.3g}"),
        (residual_shades(residual), "Residual, ±3 standard deviations of the noise"),
        (residual_shades(twin), "Residual of the twin, same scale, for comparison"),
    )
    figures = "".join(_figure(values, text) for values, text in pictures)
    title = html.escape(f"How good is this? {assessment.filter} of {name}")
    return (
        "<!DOCTYPE html><html lang='en'><meta charset='utf-8'>"
        f"<title>{title}</title><style>{_STYLE}</style><h1>{title}</h1><table>{rows}</table>"
        f"<h2>Detail kept</h2>{curve(assessment)}<p>Contrast kept at each spatial frequency. Grey "
        "rings: frequencies hidden by the noise, which cannot be judged.</p>"
        f"<h2>Pictures</h2>{figures}<p>Where the residual differs from that of the twin, the noise "
        "is not as assumed. A residual does not show which detail was lost.</p></html>\n"
    )


def curve(assessment: Assessment) -> str:
    """Return the detail kept against frequency as SVG."""
    wide, high = _WIDTH - 2 * _MARGIN, _HEIGHT - 2 * _MARGIN

    def at(frequency: float, kept: float) -> tuple[float, float]:
        kept = min(max(kept, 0.0), 1.1)
        return _MARGIN + wide * frequency / 0.5, _HEIGHT - _MARGIN - high * kept / 1.1

    parts = [
        _line((at(0, k), at(0.5, k)), "#ccc") + _text(*at(0, k), f"{k:g}", "end")
        for k in (0, 0.5, 1)
    ]
    for f in (0, 0.1, 0.2, 0.3, 0.4, 0.5):
        x, y = at(f, 0)
        parts.append(_text(x, y + 16, f"{f:g}", "middle"))
    for number, each in enumerate(assessment.channels):
        colour = _COLOURS[number % len(_COLOURS)]
        rows = list(zip(each.detail.frequency, each.detail.kept, each.detail.judged, strict=True))
        sure = [at(f, kept) for f, kept, judged in rows if judged]
        parts.append(_line(sure, colour, 2))
        for f, kept, judged in rows:
            if not judged and np.isfinite(kept):
                x, y = at(f, kept)
                parts.append(f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3' fill='none' stroke='#aaa'/>")
    parts.append(_text(_WIDTH / 2, _HEIGHT - 6, "cycles per pixel", "middle"))
    return f"<svg width='{_WIDTH}' height='{_HEIGHT}' role='img'>{''.join(parts)}</svg>"


def _line(points: Sequence[tuple[float, float]], colour: str, width: float = 1) -> str:
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f"<polyline points='{places}' fill='none' stroke='{colour}' stroke-width='{width}'/>"


def _text(x: float, y: float, text: str, anchor: str) -> str:
    shift = -6 if anchor == "end" else 0
    return (
        f"<text x='{x + shift:.1f}' y='{y + 4:.1f}' font-size='12' text-anchor='{anchor}'>"
        f"{html.escape(text)}</text>"
    )


def middle_plane(values: np.ndarray, axes: str) -> np.ndarray:
    """Return the middle plane of the first channel, (y, x)."""
    index = tuple(
        slice(None) if axis in "YX" else (0 if axis in "CS" else length // 2)
        for axis, length in zip(axes, values.shape, strict=True)
    )
    return values[index] if axes.index("Y") < axes.index("X") else values[index].T


def residual_shades(residual: np.ndarray) -> np.ndarray:
    """Return a residual as shades, of which 0 and 1 are 3 standard deviations of the noise."""
    return (residual / _RESIDUALS + 1) / 2


def as_grey(shades: np.ndarray) -> np.ndarray:
    """Return shades from 0 to 1 as pixels of a picture."""
    return np.ascontiguousarray(np.clip(255 * shades, 0, 255).astype(np.uint8))


def _figure(values: np.ndarray, text: str) -> str:
    """Return a picture of values from 0 to 1."""
    from imagecodecs import png_encode

    encoded = base64.b64encode(png_encode(as_grey(values))).decode()
    return (
        f"<figure><img alt='{html.escape(text)}' src='data:image/png;base64,{encoded}'>"
        f"<figcaption>{html.escape(text)}</figcaption></figure>"
    )
