"""The settings `channels` and `guide`, and how they apply to an array."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.run.filter import Filter
from napari_gpu_denoise.run.settings import setting

JOINED = ("opponent", "joint")  # the choices of `channels` that filter channels together

AnyFilter = TypeVar("AnyFilter", bound=Filter)


def channels_setting(joint: str) -> Any:
    """Declare the setting `channels`; `joint` says what joint channels share."""
    return setting(
        "auto",
        f"Filter channels separately, as opponent colours (RGB), or {joint} (joint); auto is "
        "opponent for RGB and separate otherwise",
        choices=("auto", "separate", "opponent", "joint"),
    )


def guide_setting(use: str) -> Any:
    """Declare the setting `guide`; `use` says what that channel is used for."""
    return setting(
        -1,
        f"Channel {use}; -1 uses the mean of all channels, weighted by their noise",
        bounds=(-1, 1000),
        advanced=True,
    )


def decide_channels(settings: AnyFilter, names: str, shape: tuple[int, ...]) -> AnyFilter:
    """Return settings with ``channels="auto"`` decided; refuse those that do not fit an array."""
    axis = channel_axis(names)
    count = 1 if axis is None else shape[axis]
    channels = settings.channels
    if channels == "auto":
        channels = "opponent" if count == 3 and names[axis] == "S" else "separate"
    if channels == "opponent" and count != 3:
        raise SettingsError(
            f"channels='opponent' needs three channels, red, green and blue, but there are {count}",
            "use channels='joint' or 'separate'",
            code="channels",
        )
    if channels == "joint" and count == 1:
        channels = "separate"
    if channels == "joint" and settings.guide >= count:
        raise SettingsError(
            f"guide={settings.guide} is not one of the {count} channels: choose from 0 to "
            f"{count - 1}, or -1 for all."
        )
    return replace(settings, channels=channels)
