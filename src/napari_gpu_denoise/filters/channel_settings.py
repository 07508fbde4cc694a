"""What the settings `channels` and `guide` of a filter mean for the channels of an array."""

from __future__ import annotations

from napari_gpu_denoise.axes import channel_axis
from napari_gpu_denoise.errors import SettingsError


def settled_channels(settings, names: str, shape: tuple[int, ...]) -> str:
    """Return how the channels of an array are filtered: ``channels`` with ``"auto"`` decided.

    Raises
    ------
    SettingsError
        If its channels do not fit the settings.
    """
    axis = channel_axis(names)
    count = 1 if axis is None else shape[axis]
    channels = settings.channels
    if channels == "auto":
        channels = "opponent" if count == 3 and names[axis] == "S" else "separate"
    if channels == "opponent" and count != 3:
        raise SettingsError(
            f"channels='opponent' needs three channels, red, green and blue, but there are "
            f"{count}: use channels='joint' or 'separate'."
        )
    if channels == "joint" and count == 1:
        channels = "separate"
    if channels == "joint" and settings.guide >= count:
        raise SettingsError(
            f"guide={settings.guide} is not one of the {count} channels: choose from 0 to "
            f"{count - 1}, or -1 for all."
        )
    return channels
