"""What a case yields, and how it is turned into hashes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Answer:
    """The outcome of a case.

    Attributes
    ----------
    arrays : dict of ndarray
        Results by name.
    record : dict
        Provenance and numbers as plain values, without texts, times, versions and devices.
    words : dict
        Texts for people, which may be reworded without any harm.
    """

    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)
    words: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A name, and the function that computes the answer."""

    name: str
    run: Callable[[], Answer]


def described(answer: Answer) -> dict[str, Any]:
    """Return the hashes of an answer, with the plain values that explain a difference."""
    whole = hashlib.sha256()
    shapes = {}
    for name, array in sorted(answer.arrays.items()):
        array = np.asarray(array)
        native = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False))
        shapes[name] = [list(array.shape), str(native.dtype)]
        whole.update(json.dumps([name, *shapes[name]]).encode())
        whole.update(native.tobytes())
    record, words = _plain(answer.record), _plain(answer.words)
    return {
        "result": whole.hexdigest(),
        "shapes": shapes,
        "record": _hash(record),
        "words": _hash(words),
        "record_values": record,
        "words_values": words,
    }


def numbers_in(value: Any) -> list[float]:
    """Return all numbers in nested lists and dicts, in the order of sorted keys; None is NaN."""
    if isinstance(value, dict):
        return [each for key in sorted(value) for each in numbers_in(value[key])]
    if isinstance(value, (list, tuple)):
        return [each for item in value for each in numbers_in(item)]
    if isinstance(value, str):
        return []
    return [float("nan") if value is None else float(value)]


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Return values as JSON holds them; floats keep all their digits there."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)
