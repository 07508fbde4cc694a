"""Remedies of errors and notes, in terms of the command line."""

from __future__ import annotations

from napari_gpu_denoise.errors import DenoiseError, Note, worded

# By code; fields in braces are values of the error or note. Others are the same as in Python.
REMEDIES = {
    "axis-needed": "name the axes, as --axes {axis}YX",
    "channels": "use --channels joint or --channels separate",
    "exists": "choose another name, or add --overwrite to replace it",
    "file-dtype": "add --dtype float32",
    "memory-limit": "allow at least --memory-limit {needed}",
    "noise-estimate": "give what 'gpu-denoise estimate --json' printed",
    "nonfinite": "add --nonfinite keep to leave them as they are and filter the others",
    "nonfinite-integer": "add --dtype float32",
    "own-noise": "leave out --noise, or the setting",
    "pearson-noise": "leave out --noise, or use --distance euclidean",
    "sigma-shape": "give one number{channels}, or a map by --sigma-map",
    "sigma-value": "give 0 or a positive number in grey levels, or leave --sigma out",
    "uneven": "--noise auto",
}


def on_command_line(message: DenoiseError | Note | str) -> str:
    """Return an error or a note in terms of options."""
    return worded(message, REMEDIES)
