"""Channels that are filtered together: their settings, and mixtures of them on the device."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.pixels import Launcher, Noisy, Pixels
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.opencl.memory import Arena, constant_buffer
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.protocol.plan import Sizes
from napari_gpu_denoise.protocol.settings import setting
from napari_gpu_denoise.protocol.tiles import Tile

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


# Orthonormal luminance and chrominance of red, green and blue.
OPPONENT = np.array([[1, 1, 1], [1, 0, -1], [1, -2, 1]]) / np.sqrt([[3], [2], [6]])


class ChannelMix:
    """Mixes channels on one device; belongs to one thread.

    With `opponent` three channels are filtered as luminance and chrominance, and matched in the
    luminance. Otherwise they stay as they are and are matched in the channel `guide`, or for -1 in
    the mean of all, each divided by its noise if `weighted`. `strengths` multiply sigma of the
    opponent colours, which otherwise is that of independent channels.
    """

    def __init__(
        self,
        opponent: bool,
        guide: int,
        arena: Arena,
        weighted: bool = True,
        strengths: tuple[float, ...] = (1.0, 1.0, 1.0),
    ):
        self.opponent = opponent
        self.weighted = weighted
        self.guide_channel = guide
        self.arena = arena
        self._strengths = np.array(strengths)
        self._mix = arena.kernel("bm3d/mix_channels", {})
        self._mix_levels = arena.kernel("bm3d/mix_levels", {})
        self._matrices: dict[bytes, Any] = {}

    def buffers(self, tile: Tile) -> Sizes:
        """Return the buffers for opponent colours of a tile."""
        return _mixture("opponent", tile, len(OPPONENT)) if self.opponent else {}

    def guide_buffers(self, tile: Tile, name: str) -> Sizes:
        """Return the buffers for the guide of the image `name`."""
        return {} if self.opponent else _mixture(f"{name} guide", tile, 1)

    def begin(self, run: Launcher, noisy: Noisy) -> Noisy:
        """Return the channels to filter: opponent colours, or those given."""
        if not self.opponent:
            return noisy
        return self._mixed(run, noisy, OPPONENT, False, "opponent")

    def guide_row(self, channels: int) -> tuple[np.ndarray, bool]:
        """Return the weights of channels in the guide, and whether these are divided by noise."""
        if self.opponent:
            return OPPONENT[0], False
        if self.guide_channel >= 0:
            return np.eye(channels)[self.guide_channel], False
        return np.full(channels, 1 / channels), self.weighted

    def guide(self, run: Launcher, image: Noisy, name: str) -> Noisy:
        """Return the one channel in which patches are matched."""
        if self.opponent:
            # Luminance comes first in the same buffer.
            tile = replace(image.pixels.tile, channels=1)
            return replace(image, pixels=replace(image.pixels, tile=tile))
        row, weighted = self.guide_row(image.pixels.tile.channels)
        return self._mixed(run, image, row[None], weighted, f"{name} guide")

    def end(self, run: Launcher, image: Noisy, out) -> None:
        """Convert opponent colours back to the channels given, into `out`."""
        self._enqueue(run, image, OPPONENT.T, False, out)

    def _mixed(self, run: Launcher, image: Noisy, matrix, weighted: bool, name: str) -> Noisy:
        tile = replace(image.pixels.tile, channels=len(matrix))
        frames = tile.t.size * tile.z.size
        made, levels = run.held[name], run.held[f"{name} levels"]
        strong = matrix * self._strengths[:, None] if matrix is OPPONENT else matrix
        self._enqueue(run, image, matrix, weighted, made)
        run.run(
            *("mix levels", self._mix_levels, (frames, len(matrix)), (1, 1)),
            *(image.levels, matrix.shape[1], self._matrix(strong), weighted, levels),
        )
        return Noisy(Pixels(made, tile), levels, image.variation)

    def _enqueue(self, run: Launcher, image: Noisy, matrix, weighted: bool, out) -> None:
        nt, nz, ny, nx = image.pixels.tile.shape
        run.over_pixels(
            *("mix channels", self._mix, nx, ny, len(matrix) * nt * nz),
            *(image.pixels.buffer, matrix.shape[1], nt * nz, ny, nx),
            *(self._matrix(matrix), image.levels, weighted, out),
        )

    def _matrix(self, matrix: np.ndarray):
        values = matrix.astype(np.float32)
        key = values.tobytes()
        if key not in self._matrices:
            self._matrices[key] = constant_buffer(self.arena.session, values)
        return self._matrices[key]


def _mixture(name: str, tile: Tile, channels: int) -> Sizes:
    """Return the buffers for mixtures of channels and their noise levels."""
    nt, nz, *_ = tile.shape
    return {name: 4 * channels * math.prod(tile.shape), f"{name} levels": 4 * channels * nt * nz}
