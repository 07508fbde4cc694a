"""Estimates of noise and records as JSON, damaged, for `--noise`, `from_dict` and files."""

from __future__ import annotations

import copy
import json
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import napari_gpu_denoise as gd
from fuzz.file_cases import OPTIONS, SMALL, command, description, reading, with_description
from fuzz.tiff_seeds import seed
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


def places(value: Any, path: tuple = ()) -> list[tuple]:
    """Return the ways to all values in nested lists and dicts, the first few of long lists."""
    found = [path] if path else []
    inner = value.items() if isinstance(value, dict) else enumerate(value[:4])
    for key, each in inner:
        deeper = isinstance(each, (dict, list))
        found += places(each, (*path, key)) if deeper else [(*path, key)]
    return found


def damage_values(rng: Random, value: Any) -> Any:
    """Change, remove, repeat or rename some values in nested lists and dicts."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 2, 5))):
        found = places(value)
        if not found:
            break
        *way, last = rng.choice(found)
        holder = value
        for key in way:
            holder = holder[key]
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
        return (
            text[:at] + rng.choice(("{", "[", '"', "\\u", "NaN", "\0", "\ufeff", "1")) + text[at:]
        )
    if kind == 2:
        return text[:at] + text[at + rng.randrange(1, 9) :]
    return rng.choice(("", "[]", "[[]]", "[null]", "{}", "0", '"x"', f"[{text}]", f"[[{text}]]"))


def json_case(rng: Random, folder: Path) -> Case:
    """An estimate of noise, or a record in a file, that was changed."""
    if rng.randrange(3) == 0:
        return record_case(rng, folder)
    given = json.loads(rng.choice(estimates()))
    damaged = damage_values(rng, given)
    text = json.dumps(damaged)
    if rng.randrange(4) == 0:
        text = damage_text(rng, text)
    way = rng.choice((from_dict, from_dict, command_noise))

    def run() -> None:
        way(text, folder)

    return Case(f"{way.__name__}: {text[:4000]}", run)


def from_dict(text: str, folder: Path) -> None:
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


def command_noise(text: str, folder: Path) -> None:
    """Pass a file of an estimate to the command line."""
    path, image = folder / "data" / "noise.json", folder / "data" / "in.tif"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    image.write_bytes(seed("strips")[0])
    target = folder / "out" / "out.tif"
    options = OPTIONS[:-2]  # without sigma
    command_line = ["nl-means", str(image), "-o", str(target), "--noise", str(path), *options]
    code, _, told = command(command_line)
    if code:
        raise gd.errors.DenoiseError(told)
    if gd.read(target).data.shape != (12, 14):
        raise Loss("the result is of another shape")


def record_case(rng: Random, folder: Path) -> Case:
    """A record in a file of ours that was changed."""
    name = rng.choice(("ours", "ours ImageJ", "ours OME"))
    data = seed(name)[0]
    begin = data.index(b'{"version"' if name != "ours ImageJ" else '{"version"'.encode("utf-16-le"))
    coding = "utf-16-le" if name == "ours ImageJ" else "ascii"
    if name == "ours OME":
        xml = description(data)
        start, end = xml.index('{"version"'), xml.index("</", xml.index('{"version"'))
        value = json.dumps(damage_values(rng, json.loads(xml[start:end])))
        value = damage_text(rng, value) if rng.randrange(3) == 0 else value
        for sign, name_of_sign in (("&", "&amp;"), ("<", "&lt;"), ("\0", "")):
            value = value.replace(sign, name_of_sign)
        changed = with_description(data, xml[:start] + value + xml[end:])
    else:
        # The bytes around it stay where they are, so the new text has the same length.
        ends = data.index("}".encode(coding), data.index('"date"'.encode(coding), begin))
        old = data[begin:ends]
        text = old.decode(coding)
        at = rng.randrange(len(text))
        some = rng.choice((text[:at].ljust(len(text)), "[" * len(text), " " * len(text)))
        swapped = text[:at] + rng.choice('{}[]",:0e\n') + text[at + 1 :]
        new = rng.choice((some, swapped, swapped)).encode(coding)
        changed = data[:begin] + new[: len(old)].ljust(len(old)) + data[ends:]
    (folder / "data" / "in.tif").write_bytes(changed)
    return reading(rng, folder, f"{name}, record changed", None)


JSON_CASES = {"JSON": json_case}
