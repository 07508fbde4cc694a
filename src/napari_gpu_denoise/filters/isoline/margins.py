"""Margins of the isoline filter, and where a tile lies in its padded image."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from napari_gpu_denoise.filters.isoline.settings import IsolineSettings
from napari_gpu_denoise.protocol.tiles import Reach, Tile

# Radius of the smoothing of residuals, in blocks of 2 x 2 pixels.
SMOOTHED = 2
# Radius of the neighbourhood that limits how dark a speckled pixel may be, in pixels.
_FLOOR = 2


@dataclass(frozen=True)
class Margins:
    """Margin of each step around the output pixels, in pixels."""

    followed: int  # where isolines end
    fitted: int  # what planes are fitted to
    looked_at: int  # where lines and segments end
    read: int  # all that is read

    @classmethod
    def of(cls, settings: IsolineSettings) -> Margins:
        around = settings.staircase // 2
        if settings.soft:
            followed = settings.steps * settings.segment_length
            fitted = followed + around
            # A block may begin a pixel before; lines are thickened by one each side.
            looked_at = fitted + 1 + 2 * SMOOTHED + settings.segment_length + 1
            floor = _FLOOR if settings.relative_noise else 0
            return cls(followed, fitted, looked_at, looked_at + floor)
        looked_at = around + settings.segments * settings.segment_length + 1
        return cls(0, around, looked_at, looked_at)

    @property
    def reach(self) -> Reach:
        """Reach of the filter, with room for blocks that begin at even pixels of the image."""
        each = self.read + 1
        return Reach(y=(each, each), x=(each, each))


@dataclass(frozen=True)
class Padded:
    """A tile with its margins, mirrored at the borders of the image."""

    tile: Tile
    margins: Margins

    @cached_property
    def origin(self) -> tuple[int, int]:
        """Position in the image (y, x) of the first padded pixel; both are even."""
        starts = (self.tile.y.start, self.tile.x.start)
        return tuple((start - self.margins.looked_at) // 2 * 2 for start in starts)

    @cached_property
    def first(self) -> tuple[int, int]:
        """Position in the padded image (y, x) of the first output pixel."""
        return self.tile.y.start - self.origin[0], self.tile.x.start - self.origin[1]

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Height and width, both even."""
        sizes = (self.tile.y.size, self.tile.x.size)
        ends = (
            first + size + self.margins.looked_at
            for first, size in zip(self.first, sizes, strict=True)
        )
        return tuple(-(-end // 2) * 2 for end in ends)

    @cached_property
    def pitch(self) -> int:
        """Length of a row in memory."""
        return -(-self.shape[1] // 32) * 32

    @property
    def plane(self) -> int:
        """Pixels of an image in memory."""
        return self.shape[0] * self.pitch

    def region(self, margin: int) -> tuple[int, int, int, int]:
        """Return (y0, x0, ny, nx) of the output pixels with a margin, in the padded image."""
        y, x = (first - margin for first in self.first)
        return y, x, self.tile.y.size + 2 * margin, self.tile.x.size + 2 * margin

    def blocks(self, margin: int, more: int = 0) -> tuple[int, int, int, int]:
        """Return `region` in blocks of 2 x 2 pixels, with `more` blocks on every side."""
        y, x, ny, nx = self.region(margin)
        first_y, first_x = y // 2 - more, x // 2 - more
        stop_y, stop_x = (y + ny + 1) // 2 + more, (x + nx + 1) // 2 + more
        return first_y, first_x, stop_y - first_y, stop_x - first_x
