"""A folder of zarr of which only ordinary files are read, and none outside of it.

This module imports zarr, and is imported when an image is opened.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import LocalStore

from napari_gpu_denoise.files.zarr.naming import open_inside


class Folder(LocalStore):
    """A store that reads a folder as `LocalStore` does, by `open_inside`; it writes nothing."""

    def __init__(self, root: Path, within: str | None) -> None:
        super().__init__(Path(os.path.realpath(root)), read_only=True)
        self._within = within

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """Return the content of a file, or a part of it; None if there is none."""
        return await asyncio.to_thread(
            self.get_sync, key, prototype=prototype, byte_range=byte_range
        )

    async def get_partial_values(
        self,
        prototype: BufferPrototype,
        key_ranges: Iterable[tuple[str, ByteRequest | None]],
    ) -> list[Buffer | None]:
        """Return parts of several files."""
        return [await self.get(key, prototype, part) for key, part in key_ranges]

    def get_sync(
        self,
        key: str,
        *,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """Return what `get` does, without other threads."""
        try:
            file = open_inside(self._within, self.root / key)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None
        with file:
            size = os.fstat(file.fileno()).st_size
            start, stop = 0, size
            if isinstance(byte_range, RangeByteRequest):
                start, stop = byte_range.start, min(byte_range.end, size)
            elif isinstance(byte_range, OffsetByteRequest):
                start = byte_range.offset
            elif isinstance(byte_range, SuffixByteRequest):
                start = max(0, size - byte_range.suffix)
            file.seek(start)
            kind = (prototype or default_buffer_prototype()).buffer
            return kind.from_bytes(file.read(max(0, stop - start)))
