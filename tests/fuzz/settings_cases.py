"""Damaged files of the settings that napari's panels keep: presets, and those of the last run."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import napari_gpu_denoise as gd
from fuzz.array_cases import some_settings
from fuzz.json_cases import VALUES, damage_text, damage_values
from fuzz.payload import EXPRESSION
from fuzz.watching import Case, Loss
from napari_gpu_denoise._napari.denoise import presets

_NAMES = ("mine", "two words", "", " ", "custom", "normal", "fast", "\ud800", "a\0b", "x" * 5000)
_NAMES += ("ä", "../x", "\u202e", EXPRESSION, "presets", "last", "\n", "0")
_ODD = (*VALUES, EXPRESSION, 10**4000, "x" * 100_000, [0] * 10_000, {"a": {"b": [{}]}})


def kept(rng: Random) -> dict[str, Any]:
    """Return what a file may hold: presets of several filters, and settings of last runs."""
    found: dict[str, Any] = {"presets": {}, "last": {}}
    for kind in rng.sample(gd.FILTERS, rng.randrange(1, len(gd.FILTERS) + 1)):
        plain = kind().as_dict()
        names = rng.sample(_NAMES[:2] + _NAMES[7:12], rng.randrange(4))
        found["presets"][kind.name] = {name: plain for name in names}
        if rng.randrange(2):
            found["last"][kind.name] = plain
    return found


def damaged(rng: Random) -> bytes:
    """Return the bytes of a file of settings, most of them damaged."""
    held = kept(rng)
    way = rng.randrange(9)
    if way < 3:
        held = damage_values(rng, held)
    elif way == 3:
        parts = [held, *held.values(), *(each for part in held.values() for each in part.values())]
        some = rng.choice([part for part in parts if part] or [held])
        some[rng.choice([*some, *_NAMES])] = copy.deepcopy(rng.choice(_ODD))
    text = json.dumps(held, indent=rng.choice((None, 2)))
    if way == 4:
        deep = rng.choice((50, 300, 600, 900, 980, 2000, 100_000))
        opened, closed = rng.choice((("[", "]"), ('{"a":', "}")))
        inside = opened * deep + "1" + closed * deep
        at = rng.choice([number for number, letter in enumerate(text) if letter == "{"]) + 1
        comma = "" if text[at:].lstrip().startswith("}") else ","
        text = f'{text[:at]}"{rng.choice(("x", "nl_means", "mine"))}": {inside}{comma}{text[at:]}'
    elif way == 5:
        text = damage_text(rng, text)
    elif way == 6:
        number = rng.choice(("9" * 5000, "1e999", "-0"))
        text = text.replace("true", "NaN", 1).replace("0", number, 1)
    data = text.encode("utf-8", "surrogatepass")
    if way == 7:
        at = rng.randrange(len(data))
        middle = rng.randbytes(rng.randrange(1, 40))
        spoilt = (data[:at], data[:at] + middle + data[at:], middle, b"", b"\xff\xfe" + data)
        data = rng.choice(spoilt)
    return data


def settings_case(rng: Random, folder: Path) -> Case:
    """Some calls, in any order, with a damaged file or something else in its place."""
    place = folder / "data" / "config"
    file, data = place / "settings.json", damaged(rng)
    odd = rng.randrange(25)
    if odd == 0:
        place.write_text("no folder")
    else:
        place.mkdir()
        if odd == 1:
            file.mkdir()
        elif odd == 2 and hasattr(os, "mkfifo"):
            os.mkfifo(file)
        elif odd > 3:
            file.write_bytes(data)
        if odd == 4:
            (place / "settings.damaged").write_text("an earlier one")
    calls = [_call(rng) for _ in range(rng.choice((1, 2, 2, 3, 6)))]

    def run() -> None:
        named: list[gd.errors.DenoiseError] = []
        with patch.object(presets, "folder", lambda: place):
            for call, given in calls:
                _checked(place, call, given, named)
        if named:
            raise named[0]

    shown = ", ".join(f"{call}({str(given)[:60]})" for call, given in calls)
    return Case(f"{shown}: {data[:4000]!r}", run)


def _call(rng: Random) -> tuple[str, tuple]:
    kind = rng.choice(gd.FILTERS)
    name = rng.choice(("own", "last", "remember", "save", "save", "delete"))
    if name in ("own", "last"):
        return name, (kind,)
    if name == "delete":
        return name, (kind, rng.choice(_NAMES))
    made = kind()
    if rng.randrange(2):
        some, given = some_settings(rng)
        try:
            made = some.of(**given)
        except (gd.errors.DenoiseError, TypeError):  # for JUNK
            made = dataclasses.replace(made)
    return name, (made,) if name == "remember" else (made, rng.choice(_NAMES))


def _checked(place: Path, call: str, given: tuple, named: list) -> None:
    """Do one call; raise `Loss` if presets that were valid are gone without a word."""
    before, bytes_before = _presets(), _all_bytes(place)
    known = _entries(place)
    try:
        found = getattr(presets, call)(*given)
    except gd.errors.DenoiseError as error:
        named.append(error)
        found = None
    after = _presets()
    kind = type(given[0]) if call in ("save", "remember") else given[0]
    touched = {(kind.name, name) for each in given[1:] for name in (each, str(each).strip())}
    for key, settings in before.items():
        if key not in touched and after.get(key) != settings:
            raise Loss(f"{call} lost the preset {key}")
    # Also what is not read here, as of another version, has to be somewhere.
    now = _entries(place)
    if known is not None and now is not None:
        for key in known:
            if key not in {*touched, *now, (kind.name, None)}:
                raise Loss(f"{call} lost the entry {key}")
    elif bytes_before - _all_bytes(place):
        raise Loss(f"{call} lost what was in the file")
    if call == "own" and not all(isinstance(each, kind) for each in found.values()):
        raise Loss("a preset of another filter")
    if call == "last" and found is not None and not isinstance(found, kind):
        raise Loss("settings of another filter")
    if call == "save" and not named:
        key = kind.name, given[1].strip()
        if after.get(key) != presets.without_image(given[0]):
            raise Loss("a preset was not saved as it was")


def _presets() -> dict[tuple[str, str], Any]:
    held = ((kind.name, presets.own(kind)) for kind in gd.FILTERS)
    return {(name, own): settings for name, each in held for own, settings in each.items()}


def _entries(place: Path) -> set[tuple[str, str]] | None:
    """Return the names of all presets in the file; None if it is none of ours."""
    file, found = place / "settings.json", set()
    try:
        held = json.loads(file.read_bytes()) if file.is_file() else None
        for name, each in held.get("presets", {}).items():
            found |= {(name, own) for own in each} if isinstance(each, dict) else {(name, None)}
        return found if isinstance(held.get("last", {}), dict) else None
    except (OSError, ValueError, AttributeError, RecursionError):
        return None


def _all_bytes(place: Path) -> set[bytes]:
    if not place.is_dir():
        return set()
    return {each.read_bytes() for each in place.iterdir() if each.is_file()}
