"""Checks of a noise estimate that comes from a file: types of its fields, sizes of its tables."""

from __future__ import annotations

from dataclasses import is_dataclass
from functools import lru_cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from napari_gpu_denoise.noise.correlation.fit import LAGS
from napari_gpu_denoise.noise.patches.white import PATCH

_types = lru_cache(get_type_hints)


def misfits(record: Any) -> list[str]:
    """Return the names of the fields of a dataclass whose values are of other types."""
    kinds = _types(type(record))
    return [name for name, kind in kinds.items() if not _fits(getattr(record, name), kind)]


def unequal_tables(found: Any) -> list[str]:
    """Return the names of fields of an estimate with tables of other sizes than they should."""
    count = len(found.models)
    each = ("sigma", "standard_error", "errors", "curves", "spectra", "clipped")
    wrong = [name for name in each if len(getattr(found, name)) != count]
    if len({type(model) for model in found.models}) != 1:
        wrong.append("models")
    covariances = ("covariance", "error", "correlation")
    tables: list[tuple[str, Any, tuple[str, ...], tuple[int, ...]]]
    tables = [("covariance", found.covariance, covariances, (count, count))]
    for name in ("frames", "slices", "others"):
        series = getattr(found, name)
        length = len(series.index) if series else 0
        tables.append((name, series, ("sigma", "error", "factor"), (count, length)))
        if series and series.autocorrelation:
            size = (count, length, LAGS + 1, LAGS + 1)
            tables.append((name, series, ("autocorrelation",), size))
    for spectrum in found.spectra:
        tables.append(("spectra", spectrum, ("power",), (PATCH, PATCH)))
        tables.append(("spectra", spectrum, ("autocorrelation",), (LAGS + 1, LAGS + 1)))
    for curve in found.curves:
        length = len(curve.mean) if curve else 0
        tables.append(("curves", curve, ("mean", "variance", "count", "used"), (length,)))
    if found.places is not None and not found.places.valid:
        wrong.append("places")
    return wrong + [
        name
        for name, record, fields, shape in tables
        if record and any(np.shape(getattr(record, field)) != shape for field in fields)
    ]


def _fits(value: Any, kind: Any) -> bool:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is dict:
        pairs = value.items() if isinstance(value, dict) else [(None, None)]
        return all(_fits(key, parts[0]) and _fits(each, parts[1]) for key, each in pairs)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if parts[-1] is not Ellipsis:
            same = len(value) == len(parts)
            return same and all(map(_fits, value, parts))
        # Rows of a table are of the same length.
        lengths = {len(each) for each in value if isinstance(each, tuple)}
        return len(lengths) < 2 and all(_fits(each, parts[0]) for each in value)
    if kind is float:
        # Larger integers are no floats.
        return isinstance(value, float) or (_fits(value, int) and abs(value) < 2**1023)
    if kind is int and isinstance(value, bool):
        return False
    return isinstance(value, kind) and not (is_dataclass(kind) and misfits(value))
