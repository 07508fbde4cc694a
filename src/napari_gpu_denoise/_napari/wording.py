"""Remedies of errors and notes, in terms of the controls of a panel."""

from __future__ import annotations

import re
from collections.abc import Mapping

from napari_gpu_denoise.errors import DenoiseError, Note, worded

# An argument of a call in Python: name=number, name='text', name=(1, 2).
_ARGUMENT = re.compile(r"""\b([a-z]\w*)=('[^']*'|"[^"]*"|\([^)]*\)|[^\s:;,]+)""")
# Names that would be taken for something else in a panel.
_LABELS = {"strength": "parameter_h"}
_TICKED = {"True": "on", "False": "off"}

_CORRELATED = "choose Correlated at Model and click Use in"
# By code; fields in braces are values of the error or note. Others are the same as in Python.
REMEDIES = {
    "assess-check": "choose Automatic at Noise, or multiply Strength by {factor}",
    "assess-correlated": f"click Measure… at Noise, {_CORRELATED}",
    "assess-empty": "move or zoom the view",
    "assess-sigma": "choose Automatic at Noise, or measure a flat region (Measure…)",
    "assess-small": "zoom out until at least {least} x {least} are in view",
    "volume-needed": "use BM3D for images, VBM3D for time-lapses, or name the slices Z at Axes",
    "axis-needed": "name it at Axes, such as {axis}YX",
    "biased": "choose another Noise, or float32 at Result and device > Result type",
    "range": "type another sigma at Noise, or choose Automatic there",
    "channels": "set Channels to joint or separate",
    "exists": "choose another name",
    "float-result": "choose Same as the layer at Result and device > Result type to round",
    "link-outside": "copy what it leads to into the folder",
    "measurements": "name it D at Axes",
    "memory-limit": "raise Device memory limit (MB) in napari's preferences",
    "nonfinite": "choose Leave them in place at Result and device > NaN, infinity",
    "nonfinite-integer": "choose float32 at Result and device > Result type",
    "sigma-shape": "give one number{channels}",
    "sigma-value": "give 0 or a positive number in grey levels, or choose Automatic",
    "structured": "choose What is found at Correct first in the panel Filter",
    "unchanged": f"type a sigma at Noise, or click Measure…, {_CORRELATED}",
    "uneven": "choose Automatic",
    "whole-series": "filter the whole layer, without a preview",
    "unproven": "click Take it for noise to remove it",
}


def in_panel(message: DenoiseError | Note | str, remedies: Mapping[str, str] = REMEDIES) -> str:
    """Return an error or a note in terms of controls."""
    return _ARGUMENT.sub(_labelled, worded(message, remedies))


def _labelled(argument: re.Match) -> str:
    """Return an argument of a call as a control shows it: ``window=20`` as ``Window 20``."""
    name, value = argument.groups()
    return f"{label_of(name)} {_TICKED.get(value, value.strip(chr(34) + chr(39)))}"


def counted(count: int, one: str, several: str) -> str:
    """Return a number and what is counted, such as ``"1 value was"``."""
    return f"{count} {one if count == 1 else several}"


def duration(seconds: float) -> str:
    """Return a time that something took."""
    if seconds < 9.5:
        return f"{seconds:.2g} s"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


def label_of(name: str, unit: str = "") -> str:
    """Turn a field name into a label, with its unit unless the name says it already."""
    words = _LABELS.get(name, name).split("_")
    return " ".join(words).capitalize() + (f" ({unit})" if unit and unit not in words else "")
