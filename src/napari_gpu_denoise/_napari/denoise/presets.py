"""Settings that are kept between sessions: presets of the user's own, and those of the last run.

They are in one JSON file in the user's folder for configuration, by the name of the filter.
"""

from __future__ import annotations

import itertools
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.files.input_checks import read_json

# Settings that describe an image, and belong to no preset.
OF_IMAGE = ("voxel",)
_PRESETS, _LAST = "presets", "last"


def folder() -> Path:
    """Return the folder of the file."""
    from platformdirs import user_config_path

    return user_config_path("napari-gpu-denoise")


def own(kind: type) -> dict[str, Any]:
    """Return the settings of each of the user's presets for a filter, by name, in their order."""
    found = _read().get(_PRESETS, {}).get(kind.name, {})
    made = {name: _settings(kind, values) for name, values in _items(found)}
    return {name: each for name, each in made.items() if each is not None}


def save(settings: Any, name: str) -> None:
    """Keep settings as a preset, in place of one of that name.

    Raises `SettingsError` if that is no name for one, or it cannot be written.
    """
    name = name.strip()
    if not name or name == "custom" or name in settings.presets:
        raise SettingsError(f"{name!r} is not a name for a preset of your own: choose another one.")
    _change(_PRESETS, settings.name, lambda known: {**known, name: _plain(settings)})


def delete(kind: type, name: str) -> None:
    """Forget a preset."""
    _change(_PRESETS, kind.name, lambda known: {k: v for k, v in known.items() if k != name})


def last(kind: type) -> Any | None:
    """Return the settings of the last run of a filter, if it is known."""
    return _settings(kind, _read().get(_LAST, {}).get(kind.name))


def remember(settings: Any) -> None:
    """Keep the settings of a run for the next session, if they can be written."""
    if last(type(settings)) != settings:
        with suppress(SettingsError):
            _change(_LAST, settings.name, lambda _: _plain(settings))


def without_image(settings: Any) -> Any:
    """Return settings without what describes an image."""
    defaults = type(settings)()
    there = {n: getattr(defaults, n) for n in OF_IMAGE if hasattr(defaults, n)}
    return type(settings).of(settings, **there)


def _plain(settings: Any) -> dict[str, Any]:
    return without_image(settings).as_dict()


def _settings(kind: type, values: Any) -> Any | None:
    """Return settings that were kept, perhaps by another version; None if they do not fit."""
    known = kind().as_dict()
    try:
        return kind.of(**{name: each for name, each in _items(values, None) if name in known})
    except (SettingsError, TypeError):
        return None


def _items(values: Any, otherwise: Any = ()) -> Any:
    return values.items() if isinstance(values, dict) else otherwise


def _file() -> Path:
    return folder() / "settings.json"


def _read() -> dict[str, Any]:
    try:
        held = read_json(_file())
        parts = (held.get(part, {}) for part in (_PRESETS, _LAST))
        return held if all(isinstance(part, dict) for part in parts) else {}
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}


def _change(part: str, name: str, change: Any) -> None:
    held = _read()
    if not held and _file().exists():
        # Damaged, or typed by hand: it is kept beside the new one, and so are earlier ones.
        with suppress(OSError):
            os.replace(_file(), _free_name())
    within = held.setdefault(part, {})
    within[name] = change(dict(_items(within.get(name), {})))
    try:
        folder().mkdir(parents=True, exist_ok=True)
        new = _file().with_suffix(".new")
        new.write_text(json.dumps(held, indent=2), encoding="utf-8")
        os.replace(new, _file())
    except (OSError, RecursionError) as error:
        raise SettingsError(
            f"The settings could not be written to {folder()} "
            f"({getattr(error, 'strerror', None) or error}): check that folder."
        ) from error


def _free_name() -> Path:
    """Return a name for a damaged file at which there is nothing yet."""
    names = (_file().with_suffix(f".damaged{number or ''}") for number in itertools.count())
    return next(name for name in names if not os.path.lexists(name))
