"""The plugin's page of napari's preferences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

PLUGIN = "napari-gpu-denoise"


@dataclass(frozen=True)
class Preferences:
    """Defaults for every run, as `Run` takes them; the limit is in bytes."""

    device: str | None = None
    memory_limit: int | None = None


def changed() -> list[Any]:
    """Return the events that tell of a change of the preferences; none before napari 0.9."""
    try:
        from napari.settings import get_plugin_settings

        return [get_plugin_settings(PLUGIN).computing.events.device]
    except (ImportError, KeyError):
        return []


def read() -> Preferences:
    """Return the preferences as they are now; napari before 0.9 has no page, only defaults."""
    try:
        from napari.settings import get_plugin_settings

        computing = get_plugin_settings(PLUGIN).computing
    except (ImportError, KeyError):
        # KeyError: the panel was made without the plugin being registered, as from a script.
        return Preferences()
    # The limit is typed in MB.
    return Preferences(computing.device.strip() or None, 1_000_000 * computing.memory_limit or None)
