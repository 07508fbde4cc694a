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


def _page() -> Any:
    """Return what is set on the page; None in napari before 0.9, which has no such page."""
    try:
        from napari.settings import get_plugin_settings

        return get_plugin_settings(PLUGIN).computing
    except (ImportError, KeyError):
        # KeyError: the panel was made without the plugin being registered, as from a script.
        return None


def changed() -> list[Any]:
    """Return the events that tell of a change of the preferences."""
    page = _page()
    return [] if page is None else [page.events.device]


def read() -> Preferences:
    """Return the preferences as they are now; without a page, the defaults."""
    if (computing := _page()) is None:
        return Preferences()
    # The limit is typed in MB.
    return Preferences(computing.device.strip() or None, 1_000_000 * computing.memory_limit or None)
