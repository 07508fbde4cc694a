"""The plugin's page of napari's preferences."""

from __future__ import annotations

from dataclasses import dataclass

PLUGIN = "napari-gpu-denoise"
_MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Preferences:
    """Defaults for every run.

    Attributes
    ----------
    device : str or None
        As `opencl.device.choose` takes it; None for the best there is.
    memory_limit : int or None
        Bytes of device memory; None for no limit but the device's own.
    """

    device: str | None = None
    memory_limit: int | None = None


def read() -> Preferences:
    """Read the preferences as they are now.

    Returns
    -------
    Preferences
        The defaults where napari is older than 0.9, which has no such page.
    """
    try:
        from napari.settings import get_plugin_settings

        computing = get_plugin_settings(PLUGIN).computing
    except (ImportError, KeyError):
        # KeyError: the panel was made without the plugin being registered, as from a script.
        return Preferences()
    limit = computing.memory_limit * _MEGABYTE
    return Preferences(computing.device.strip() or None, limit or None)
