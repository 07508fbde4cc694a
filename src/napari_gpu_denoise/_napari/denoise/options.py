"""Lists of what becomes of the pixels of a run, beside the settings of its filter."""

from __future__ import annotations

from qtpy.QtWidgets import QComboBox

from napari_gpu_denoise._napari.parts import choice


def type_input(of: str = "layer") -> QComboBox:
    """Return the list of types of the result; `of` is what is filtered."""
    return choice(
        {
            "Automatic": None,
            f"Same as the {of}": "same",
            "float32 (keeps fractions)": "float32",
        },
        f"Data type of the result. Automatic: that of the {of}, or float32 where rounding to "
        f"whole grey levels would cost quality. Values outside the range of the {of}'s type "
        "are clipped to it and counted.",
    )


def nonfinite_input() -> QComboBox:
    """Return the list of what is done about NaN and infinity."""
    return choice(
        {"Stop with an error": "raise", "Leave them in place": "keep"},
        "Treatment of pixels that are NaN or infinite.",
    )


def correction_input() -> QComboBox:
    """Return the list of corrections."""
    return choice(
        {
            "Nothing": None,
            "Stripes": "stripes",
            "Hot and dead pixels": "outliers",
            "What is found": "found",
        },
        "Structured noise to remove first, only where it is found. Stripes are rows and "
        "columns with individual offsets, and periodic hum. Estimated noise shows what was "
        "found.",
    )
