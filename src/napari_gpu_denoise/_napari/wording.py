"""Remedies of errors and notes, in terms of the controls of a panel."""

from __future__ import annotations

from napari_gpu_denoise.errors import DenoiseError, Note, worded

# By code; fields in braces are values of the error or note. Others are the same as in Python.
REMEDIES = {
    "volume-needed": "use BM3D for images, or name the slices Z at Axes",
    "axis-needed": "name it at Axes, such as {axis}YX",
    "channels": "set Channels to joint or separate",
    "float-result": "choose Same as the layer at Result and device > Result type to round",
    "memory-limit": "raise Device memory limit (MB) in napari's preferences",
    "nonfinite": "choose Leave them in place at Result and device > NaN, infinity",
    "nonfinite-integer": "choose float32 at Result and device > Result type",
    "pearson-noise": "choose One sigma or type it at Noise, or set Distance to euclidean",
    "sigma-shape": "give one number{channels}",
    "sigma-value": "give 0 or a positive number in grey levels, or choose Automatic",
    "structured": "choose What is found at Correct first in the panel of a filter",
    "unchanged": "type a sigma at Noise, or choose Correlated",
    "uneven": "choose Automatic",
}


def in_panel(message: DenoiseError | Note | str) -> str:
    """Return an error or a note in terms of controls."""
    return worded(message, REMEDIES)
