"""Parameters of noise models: how they are shown, and what their values may be."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from napari_gpu_denoise.errors import SettingsError

ANY, POSITIVE, NOT_NEGATIVE, TABLE = "any", "positive", "not negative", "table"
SHARE, LINE = "share", "line"
_WANTED: dict[str, tuple[str, Callable[[float], bool]]] = {
    ANY: ("a finite number", math.isfinite),
    POSITIVE: ("a finite number above 0", lambda value: value > 0),
    NOT_NEGATIVE: ("a finite number of at least 0", lambda value: value >= 0),
    SHARE: ("a number from 0 to 1", lambda value: 0 <= value <= 1),
}


class Parameter(NamedTuple):
    """A parameter as it is shown to people."""

    name: str  # of the field
    label: str  # its name in words
    unit: str  # such as "grey levels", or empty
    optional: bool  # not shown where it is 0
    squared: bool  # by kernels, so that it has to be of moderate size


def parameter(
    limit: str,
    label: str = "",
    unit: str = "",
    *,
    default: Any = dataclasses.MISSING,
    optional: bool = False,
    squared: bool = False,
) -> Any:
    """Return the dataclass field of a parameter.

    `limit` is `ANY`, `POSITIVE` or `NOT_NEGATIVE` number, a `SHARE`, a `TABLE` of numbers, or a
    `LINE` of them; the rest is as in `Parameter`. A parameter without a label is not shown.
    """
    shown = {"label": label, "unit": unit, "optional": optional, "squared": squared}
    return dataclasses.field(default=default, metadata={"limit": limit, "shown": shown})


def checked(field: dataclasses.Field, given: Any, model: str) -> Any:
    """Return a field as a float, or numbers as tuples; SettingsError if it is invalid."""
    limit = field.metadata.get("limit", ANY)
    try:
        value = np.array(given, np.float64) if limit in (TABLE, LINE) else float(given)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if limit == TABLE:
        if np.ndim(value) == 2 and value.size and np.isfinite(value).all():
            return tuple(map(tuple, value.tolist()))
        raise SettingsError(
            f"{field.name} does not fit {model} noise: give rows of finite numbers, all of the "
            "same length."
        )
    if limit == LINE:
        if np.ndim(value) == 1 and value.size and np.isfinite(value).all():
            return tuple(value.tolist())
        raise SettingsError(f"{field.name} does not fit {model} noise: give finite numbers.")
    wanted, fits = _WANTED[limit]
    if not (math.isfinite(value) and fits(value)):
        raise SettingsError(f"{field.name}={given!r} does not fit {model} noise: give {wanted}.")
    return value
