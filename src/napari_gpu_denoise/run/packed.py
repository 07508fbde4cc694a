"""What a run has found, as plain values that JSON holds and that come back to the bit."""

from __future__ import annotations

import base64
import importlib
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import Note

_PACKAGE = __name__.partition(".")[0]


def packed(value: Any) -> Any:
    """Return a value as plain ones; TypeError if it is of a kind that is not known."""
    if isinstance(value, Note):
        return {"note": [value.fact, value.removeprefix(value.fact)[2:], value.code, value.values]}
    if value is None or type(value) in (bool, int, float, str):
        return value  # JSON writes floats so that they are read back exactly
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
        # What is repeated by strides of 0 is stored once.
        array = np.asarray(value)
        once = tuple(slice(None) if step else slice(1) for step in array.strides)
        held = np.ascontiguousarray(array[once]).reshape(array[once].shape)
        text = base64.b64encode(held.tobytes()).decode("ascii")
        shapes = list(held.shape), list(array.shape)
        return {"array": [held.dtype.str, *shapes, text], "scalar": isinstance(value, np.generic)}
    if isinstance(value, np.dtype):
        return {"dtype": value.str}
    if type(value) in (tuple, list, frozenset):
        items = sorted(value) if isinstance(value, frozenset) else value
        return {type(value).__name__: [packed(each) for each in items]}
    if type(value) is dict:
        return {"dict": [[packed(key), packed(each)] for key, each in value.items()]}
    kind = type(value)
    if is_dataclass(value) and kind.__module__.partition(".")[0] == _PACKAGE:
        held = {each.name: packed(getattr(value, each.name)) for each in fields(value)}
        return {"kind": [kind.__module__, kind.__qualname__], "fields": held}
    raise TypeError(f"{kind.__name__} cannot be stored")


def unpacked(value: Any) -> Any:
    """Return what `packed` was given; of classes only dataclasses of this package are made."""
    if not isinstance(value, dict):
        return value
    (name, held), *more = value.items()
    if name == "note":
        fact, remedy, code, values = held
        made = {"code": code, **values}
        return Note(fact, remedy, **made)
    if name == "array":
        dtype, shape, whole, text = held
        read = np.frombuffer(base64.b64decode(text), np.dtype(dtype)).reshape(shape).copy()
        return read[()] if more[0][1] else np.broadcast_to(read, whole) if shape != whole else read
    if name == "dtype":
        return np.dtype(held)
    if name == "dict":
        return {unpacked(key): unpacked(each) for key, each in held}
    if name == "kind":
        module, qualified = held
        if module.partition(".")[0] != _PACKAGE:
            raise ValueError(f"{module} is not of this package")
        made = getattr(importlib.import_module(module), qualified)
        if not (isinstance(made, type) and is_dataclass(made)):
            raise ValueError(f"{qualified} is not a record")
        return made(**{each: unpacked(one) for each, one in value["fields"].items()})
    kinds = {"tuple": tuple, "list": list, "frozenset": frozenset}
    return kinds[name](unpacked(each) for each in held)
