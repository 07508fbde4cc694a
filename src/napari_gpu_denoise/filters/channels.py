"""Channels that are filtered together: their settings, and mixtures of them on the device."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.pixels import Launcher, Noisy, Pixels
from napari_gpu_denoise.opencl.memory import Arena, constant_buffer
from napari_gpu_denoise.protocol.filter import Context, Filter
from napari_gpu_denoise.protocol.plan import Sizes
from napari_gpu_denoise.protocol.settings import setting
from napari_gpu_denoise.protocol.tiles import Tile

JOINED = ("opponent", "joint")  # the choices of `channels` that filter channels together


def channels_setting(joint: str) -> Any:
    """Declare the setting `channels`; `joint` says what joint channels share."""
    return setting(
        "auto",
        f"Filter channels separately, as opponent colours (RGB), or {joint} (joint); auto is "
        "opponent for RGB and separate otherwise",
        choices=("auto", "separate", "opponent", "joint"),
    )


class JointFilter(Filter):
    """Base of filters that may filter channels together, as their setting `channels` says."""

    channels: str

    @property
    def joint(self) -> str:
        """Channels that are filtered together."""
        return "C" if self.channels in JOINED else ""

    def with_channels(self, context: Context, colours: str = "opponent") -> Self:
        """Return the filter with ``channels="auto"`` decided; refuse what does not fit an array.

        Red, green and blue are then filtered as `colours` says.
        """
        count, channels = context.channels, self.channels
        if channels == "auto":
            channels = colours if context.rgb else "separate"
        if channels == "opponent" and count != 3:
            raise SettingsError(
                "channels='opponent' needs three channels, red, green and blue, but there are "
                f"{count}",
                "use channels='joint' or 'separate'",
                code="channels",
            )
        if channels == "joint" and count == 1:
            channels = "separate"
        return self if channels == self.channels else replace(self, channels=channels)


# Orthonormal luminance and chrominance of red, green and blue.
OPPONENT = np.array([[1, 1, 1], [1, 0, -1], [1, -2, 1]]) / np.sqrt([[3], [2], [6]])


class Mixtures(NamedTuple):
    """Mixtures of three channels, the luminance first: (mixture, channel), and the way back.

    `strengths` are what multiplies sigma of each, which is that of independent channels.
    """

    matrix: np.ndarray
    inverse: np.ndarray
    strengths: np.ndarray


INDEPENDENT = Mixtures(OPPONENT, OPPONENT.T, np.ones(3))
_ALIKE = 0.8  # correlation of the signal of colours
_LEAST = 1e-3  # of the variance of the noise of any mixture, relative to the mean


def mixtures_for(covariance: np.ndarray) -> Mixtures:
    """Return mixtures that suit channels whose noise has this covariance.

    The luminance is a mixture whose noise is independent of that of some two others, and its signal
    too, if that of channels is equally strong and alike. The others are opponent colours less the
    noise they share with it. Of equal variances and correlations all are opponent colours.
    """
    values, vectors = np.linalg.eigh(covariance)
    values = np.maximum(values, _LEAST * np.trace(covariance) / len(values))
    noise, white = ((vectors * values**power) @ vectors.T for power in (1, -0.5))
    signal = np.full(noise.shape, _ALIKE) + (1 - _ALIKE) * np.eye(len(noise))
    rows = np.linalg.eigh(white @ signal @ white)[1].T @ white
    # Of the three that are independent, that which tells most of the mean.
    told = np.square(rows @ signal.sum(axis=1)) / np.einsum("ki,ij,kj->k", rows, signal, rows)
    first = rows[np.argmax(told)]
    matrix = OPPONENT - np.outer(OPPONENT @ noise @ first / (first @ noise @ first), first)
    matrix[0] = first * np.sign(first.sum())
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    true = np.einsum("ki,ij,kj->k", matrix, noise, matrix)
    independent = np.square(matrix) @ np.diag(covariance)
    return Mixtures(matrix, np.linalg.inv(matrix), np.sqrt(true / independent))


class ChannelMix:
    """Mixes channels on one device, as the setting `channels` says; belongs to one thread.

    With ``"opponent"`` three channels are filtered as `mixtures`, and matched in the first one.
    With ``"joint"`` they stay as they are and are matched in the mean of all, each divided by its
    noise if `weighted`. If they are not `joined`, nothing is mixed.
    """

    def __init__(
        self,
        channels: str,
        arena: Arena,
        weighted: bool = True,
        mixtures: Mixtures = INDEPENDENT,
    ):
        self.joined, self.opponent = channels in JOINED, channels == "opponent"
        self.weighted, self.arena = weighted, arena
        self._mixtures = mixtures
        if self.joined:
            self._mix = arena.kernel("bm3d/mix_channels", {})
            self._mix_levels = arena.kernel("bm3d/mix_levels", {})
        self._matrices: dict[bytes, Any] = {}

    def buffers(self, tile: Tile) -> Sizes:
        """Return the buffers for opponent colours of a tile."""
        return _mixture("opponent", tile, len(OPPONENT)) if self.opponent else {}

    @property
    def averages(self) -> bool:
        """Whether what is searched is not one of the images that are filtered."""
        return self.joined and not self.opponent

    def guide_buffers(self, tile: Tile, name: str) -> Sizes:
        """Return the buffers for the guide of the image `name`."""
        return _mixture(f"{name} guide", tile, 1) if self.averages else {}

    def begin(self, run: Launcher, noisy: Noisy) -> Noisy:
        """Return the channels to filter: opponent colours, or those given."""
        if not self.opponent:
            return noisy
        strong = self._mixtures.matrix * self._mixtures.strengths[:, None]
        return self._mixed(run, noisy, self._mixtures.matrix, False, "opponent", strong)

    def guide_row(self, channels: int) -> tuple[np.ndarray, bool]:
        """Return the weights of channels in the guide, and whether these are divided by noise."""
        if self.opponent:
            return self._mixtures.matrix[0], False
        return np.full(channels, 1 / channels), self.weighted

    def guide(self, run: Launcher, image: Noisy, name: str) -> Noisy:
        """Return the one channel in which patches are matched, or all that are separate."""
        if not self.joined:
            return image
        if self.opponent:
            # Luminance comes first in the same buffer.
            tile = replace(image.pixels.tile, channels=1)
            return replace(image, pixels=replace(image.pixels, tile=tile))
        row, weighted = self.guide_row(image.pixels.tile.channels)
        return self._mixed(run, image, row[None], weighted, f"{name} guide")

    def end(self, run: Launcher, image: Noisy, out) -> None:
        """Convert opponent colours, if they are, back to the channels given, into `out`."""
        if self.opponent:
            self._enqueue(run, image, self._mixtures.inverse, False, out)

    def _mixed(
        self, run: Launcher, image: Noisy, matrix, weighted: bool, name: str, strong: Any = None
    ) -> Noisy:
        tile = replace(image.pixels.tile, channels=len(matrix))
        frames = tile.frames
        made, levels = run.held[name], run.held[f"{name} levels"]
        strong = matrix if strong is None else strong
        self._enqueue(run, image, matrix, weighted, made)
        run.run(
            *("mix levels", self._mix_levels, (frames, len(matrix)), (1, 1)),
            **{"levels": image.levels, "channels": matrix.shape[1], "made_levels": levels},
            **{"matrix": self._matrix(strong), "weighted": weighted},
        )
        return Noisy(Pixels(made, tile), levels, image.variation)

    def _enqueue(self, run: Launcher, image: Noisy, matrix, weighted: bool, out) -> None:
        nt, nz, ny, nx = image.pixels.tile.shape
        run.over_pixels(
            *("mix channels", self._mix, nx, ny, len(matrix) * nt * nz),
            **{"given": image.pixels.buffer, "channels": matrix.shape[1], "frames": nt * nz},
            **{"ny": ny, "nx": nx, "matrix": self._matrix(matrix), "levels": image.levels},
            **{"weighted": weighted, "made": out},
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
