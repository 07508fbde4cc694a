"""Settings of the last run of each filter, kept between sessions.

They are in one JSON file in the user's folder for configuration, by the name of the filter.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.files.input_checks import read_json

# Settings that describe an image: they are not kept.
OF_IMAGE = ("voxel",)
_LAST = "last"


def folder() -> Path:
    """Return the folder of the file."""
    from platformdirs import user_config_path

    return user_config_path("napari-gpu-denoise")


def last(kind: type) -> Any | None:
    """Return the settings of the last run of a filter; None if none are known that fit it."""
    known, kept = kind().as_dict(), _read().get(kind.name)
    if kept is None:
        return None
    try:  # they may be of another version
        return kind.of(**{name: each for name, each in kept.items() if name in known})
    except (SettingsError, TypeError):
        return None


def remember(settings: Any) -> None:
    """Keep the settings of a run for the next session, if they can be written."""
    plain = without_image(settings)
    if last(type(plain)) == plain:
        return
    with suppress(OSError, RecursionError):
        text = json.dumps({_LAST: {**_read(), plain.name: plain.as_dict()}}, indent=2)
        folder().mkdir(parents=True, exist_ok=True)
        new = _file().with_suffix(".new")
        new.write_text(text, encoding="utf-8")
        os.replace(new, _file())


def without_image(settings: Any) -> Any:
    """Return settings without what describes an image."""
    defaults = type(settings)()
    there = {n: getattr(defaults, n) for n in OF_IMAGE if hasattr(defaults, n)}
    return type(settings).of(settings, **there)


def _file() -> Path:
    return folder() / "settings.json"


def _read() -> dict[str, dict[str, Any]]:
    """Return what is kept, by the name of the filter; nothing of a file that is damaged."""
    try:
        held = read_json(_file())[_LAST]
        return {name: each for name, each in held.items() if isinstance(each, dict)}
    except (OSError, ValueError, AttributeError, LookupError, TypeError, RecursionError):
        return {}
