"""Estimates of noise as JSON, damaged, for `from_dict`, and what damages JSON."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import napari_gpu_denoise as gd
from fuzz.file_cases import SMALL
from fuzz.watching import Case, Loss
from scenes import noisy

VALUES = (
    *(None, True, False, 0, 1, -1, 0.5, 10**400, 1e308, -1e308, 1e-320, float("nan"), float("inf")),
    *("", "x", "5", "rician", "auto", "YX", "TYX", [], [[]], [1], [None], [[1, 2], [3]], {}, [{}]),
    *({"model": "rician", "sigma": 5}, {"model": "gaussian"}, [1, 2, 3], "\ud800", 2**64),
)


@lru_cache
def estimates() -> tuple[str, ...]:
    """Return estimates of several kinds, as JSON."""
    photons = np.random.default_rng(0).poisson(noisy(48, 52, sigma=0) / 4).astype("u2")
    found = [
        gd.estimate_noise(noisy(40, 44)),
        gd.estimate_noise(noisy(3, 40, 44), "TYX"),
        gd.estimate_noise(noisy(40, 44, 3), "YXC"),
        gd.estimate_noise(noisy(2, 20, 20), "ZYX", "rician"),
        gd.estimate_noise(photons, model="poisson-gaussian"),
        gd.estimate_noise(noisy(12, 14), model="speckle"),
    ]
    return tuple(json.dumps(one.as_dict()) for one in found)


def nodes(value: Any, most: int | None = 4) -> Iterator[tuple[Any, Any]]:
    """Yield the lists and dicts that hold values, and their keys; of lists the first few."""
    for key, each in value.items() if isinstance(value, dict) else enumerate(value[:most]):
        yield value, key
        if isinstance(each, (dict, list)):
            yield from nodes(each, most)


def damage_values(rng: Random, value: Any) -> Any:
    """Change, remove, repeat or rename some values in nested lists and dicts."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 2, 5))):
        found = [*nodes(value)]
        if not found:
            break
        holder, last = rng.choice(found)
        kind = rng.randrange(6)
        if kind == 0:
            del holder[last]
        elif kind == 1 and isinstance(holder, dict):
            holder[rng.choice(("x", "model", "sigma", "name"))] = holder.pop(last)
        elif kind == 2:
            holder[last] = [holder[last]] * rng.choice((1, 2))
        elif kind == 3 and isinstance(holder, list):
            holder.append(holder[last])
        else:
            # A copy: what is changed next may be within it.
            holder[last] = copy.deepcopy(rng.choice(VALUES))
    return value


def damage_text(rng: Random, text: str) -> str:
    """Cut a text, or change some of it."""
    at = rng.randrange(len(text))
    kind = rng.randrange(4)
    if kind == 0:
        return text[:at]
    if kind == 1:
        some = rng.choice(("{", "[", '"', "\\u", "NaN", "\0", "\ufeff", "1"))
        return text[:at] + some + text[at:]
    if kind == 2:
        return text[:at] + text[at + rng.randrange(1, 9) :]
    return rng.choice(("", "[]", "[[]]", "[null]", "{}", "0", '"x"', f"[{text}]", f"[[{text}]]"))


def json_case(rng: Random, folder: Path) -> Case:
    """An estimate of noise that was changed: it is read, and used in all ways."""
    text = json.dumps(damage_values(rng, json.loads(rng.choice(estimates()))))
    if rng.randrange(4) == 0:
        text = damage_text(rng, text)
    return Case(f"from_dict: {text[:4000]}", lambda: from_dict(text))


def from_dict(text: str) -> None:
    """Read an estimate, use all of it, and filter with it."""
    try:
        values = json.loads(text)
    except ValueError:
        values = text  # what a caller may pass as well
    found = gd.NoiseEstimate.from_dict(values)
    found.summary(), found.verdict(), found.white, found.name
    json.dumps(found.as_dict())
    shape = {"TYX": (2, 12, 14), "ZYX": (2, 12, 14), "YXC": (12, 14, 3)}.get(str(found.axes))
    image = noisy(*(shape or (12, 14)))
    axes = found.axes if shape else None
    out = gd.nl_means(image, noise=found, axes=axes, **SMALL)
    if out.shape != image.shape or not np.isfinite(out).all():
        raise Loss("the result is not finite")
