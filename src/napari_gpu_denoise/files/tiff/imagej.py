"""ImageJ's own metadata: lines of the ImageDescription, and a tag of binary blocks."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tifffile

from napari_gpu_denoise.files.image_file import (
    Channel,
    PixelMetadata,
    Steps,
    Voxel,
    kept_steps,
    number,
    sized,
)

HOLDS = frozenset({"uint8", "uint16", "int16", "float32"})
CONVERTS = frozenset({"int32", "uint32", "float64"})  # opened as float32
BLOCKS, LENGTHS = 50839, 50838  # tags IJMetadata and IJMetadataByteCounts
_CALIBRATION = (b"cf=", b"c0=", b"c1=", b"c2=", b"c3=", b"c4=", b"vunit=")


def is_signed16(description: Mapping, dtype: np.dtype) -> bool:
    """Return whether ImageJ shows the stored values 0 to 65535 as -32768 to 32767."""
    linear = description.get("cf", 0) == 0 and description.get("c1", 1) == 1
    return dtype == np.uint16 and linear and description.get("c0") == -32768


def swap_sign16(data: np.ndarray) -> np.ndarray:
    """Turn signed 16-bit values into those ImageJ stores for them, or back."""
    other = np.int16 if data.dtype == np.uint16 else np.uint16
    return (data.view(np.uint16) ^ np.uint16(0x8000)).view(other)


def without_calibration(description: bytes) -> bytes:
    """Leave out the lines of the grey level calibration, which floats do not have."""
    lines = description.split(b"\n")
    return b"\n".join(line for line in lines if not line.startswith(_CALIBRATION))


class Blocks:
    """The blocks of the tag IJMetadata: Info, labels, display ranges, colour tables, overlays.

    They are copied as bytes, so that kinds unknown here survive. `data` is the tag, empty for none,
    `lengths` the tag IJMetadataByteCounts, `byteorder` that of the file.
    """

    def __init__(self, data: bytes, lengths: Sequence[int], byteorder: str) -> None:
        self._order = byteorder
        self._blocks: dict[bytes, list[bytes]] = {}
        if not data:
            return
        head = struct.unpack(byteorder + "4sI" * ((lengths[0] - 4) // 8), data[4 : lengths[0]])
        start, following = lengths[0], 1
        for kind, count in zip(head[::2], head[1::2], strict=True):
            entries = self._blocks.setdefault(kind, [])
            for _ in range(count):
                entries.append(data[start : start + lengths[following]])
                start += lengths[following]
                following += 1

    def _of_order(self, name: bytes) -> bytes:
        return name if self._order == ">" else name[::-1]  # names are stored as 32-bit numbers

    @property
    def _encoding(self) -> str:
        return "utf-16-be" if self._order == ">" else "utf-16-le"

    @property
    def info(self) -> str:
        """The text that ImageJ shows by Image > Show Info."""
        entries = self._blocks.get(self._of_order(b"info"), [])
        return "".join(entry.decode(self._encoding, "replace") for entry in entries)

    def colours(self) -> list[str]:
        """Return the brightest colours of the colour tables of channels, as ``"#rrggbb"``."""
        tables = self._blocks.get(self._of_order(b"luts"), [])
        return ["#" + bytes((t[255], t[511], t[767])).hex() for t in tables if len(t) == 768]

    def ranges(self) -> list[tuple[float, float]]:
        """Return the grey levels that are shown black and white, of each channel."""
        held = b"".join(self._blocks.get(self._of_order(b"rang"), []))
        values = struct.unpack(f"{self._order}{len(held) // 8}d", held[: len(held) // 8 * 8])
        return [
            ends
            for ends in zip(values[::2], values[1::2], strict=False)
            if ends[0] < ends[1] < 1e300
        ]

    def with_lines(self, lines: Sequence[str]) -> Blocks:
        """Return the blocks with lines added to the Info."""
        result = Blocks(b"", (), self._order)
        text = "\n".join(filter(None, (self.info.rstrip("\n"), *lines)))
        result._blocks = dict(self._blocks)
        if text:
            result._blocks[self._of_order(b"info")] = [text.encode(self._encoding)]
        return result

    def tags(self) -> list[tuple]:
        """Return the two tags as ``extratags`` of tifffile."""
        if not self._blocks:
            return []
        head = self._of_order(b"IJIJ")
        for kind, entries in self._blocks.items():
            head += kind + struct.pack(self._order + "I", len(entries))
        entries = [entry for block in self._blocks.values() for entry in block]
        data = head + b"".join(entries)
        lengths = (len(head), *map(len, entries))
        return [(BLOCKS, 1, len(data), data, True), (LENGTHS, 4, len(lengths), lengths, True)]


def _steps(description: Mapping[str, Any], page: tifffile.TiffPage) -> Steps:
    """Return the steps along Z, Y and X and their units as told; 0 for what is not."""
    unit = str(description.get("unit", "")).replace("\\u00B5", "µ").replace("\\u00b5", "µ")
    found = {"Z": (number(description.get("spacing")), str(description.get("zunit", unit)))}
    for letter, code in (("Y", 283), ("X", 282)):  # pixels in a unit
        tag = page.tags.get(code)
        value = tag.value if tag is not None else None
        pixels, length = value if isinstance(value, tuple) and len(value) == 2 else (value, 1)
        own = str(description.get("yunit", unit)) if letter == "Y" else unit
        found[letter] = number(length) / (number(pixels) or math.inf), own
    return found


def read_shown(
    description: Mapping[str, Any], page: tifffile.TiffPage, blocks: Blocks
) -> tuple[Voxel, PixelMetadata]:
    """Return the voxel size of a stack, and its steps, units and channels."""
    found: dict[str, tuple[Any, Any]] = dict(_steps(description, page))
    voxel = sized(*map(list, zip(*(found[a] for a in "ZYX"), strict=True)))
    found["T"] = description.get("finterval"), description.get("tunit", "s")
    shown = blocks.colours()
    count = description.get("channels", 1)
    colours = shown[:count] if len(shown) >= count > 1 else [""] * count
    ends = blocks.ranges()
    limits = ends[:count] if len(ends) >= count else [None] * count
    channels = (Channel("", a, b) for a, b in zip(colours, limits, strict=True))
    return voxel, PixelMetadata(kept_steps(found), tuple(channels))
