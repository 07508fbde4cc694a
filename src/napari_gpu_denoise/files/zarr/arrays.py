"""Arrays of zarr, opened only if their metadata name numbers and codecs that are known here.

A codec may run code (pickle) or take any memory (a small chunk that decompresses to gigabytes). So
only listed ones are used, and those that decompress are replaced by ones that stop at the size of a
chunk.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import imagecodecs
import numcodecs.abc
import numcodecs.registry
import numpy as np
import zarr
from zarr.abc.codec import BytesBytesCodec
from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer
from zarr.registry import register_codec
from zarr.storage import FsspecStore, LocalStore, StorePath

from napari_gpu_denoise.errors import FileError
from napari_gpu_denoise.files.zarr.metadata import Node
from napari_gpu_denoise.files.zarr.places import Address, check_inside

_UNPACK = {
    "blosc": imagecodecs.blosc_decode,
    "bz2": imagecodecs.bz2_decode,
    "gzip": imagecodecs.gzip_decode,
    "lz4": lambda data, out: imagecodecs.lz4_decode(data, header=True, out=out),
    "lzma": imagecodecs.lzma_decode,
    "zlib": imagecodecs.zlib_decode,
    "zstd": imagecodecs.zstd_decode,
}
# Of these what is decoded is at most eight times as long as what is encoded.
_FILTERS = {"adler32", "astype", "bitround", "bytes", "crc32", "crc32c", "delta", "packbits"}
_FILTERS |= {"fixedscaleoffset", "fletcher32", "jenkins_lookup3", "quantize", "shuffle"}
_FILTERS |= {"transpose"}
_INDEX = {"bytes", "crc32c"}  # codecs of the index of a shard
_MOST = 16  # codecs of an array
_AXES, _PIXELS = 32, 1 << 60  # of any array
_SPARE = 64  # bytes that checksums, or the place of a chunk in the index of a shard, may take
_BOUNDED = "napari_gpu_denoise.bounded"


def open_arrays(
    place: Path | Address, name: str, node: Node, within: str | None
) -> tuple[Any, Any]:
    """Return an array to read from, and the same as its metadata tell it, to write another like.

    `FileError` if the metadata name anything that is not known here. Chunks outside of the real
    folder `within` are refused.
    """
    told: list[Any] = [_bounded(node, place / name), dict(node.array)]
    told[1]["attributes"] = dict(node.attributes)
    if isinstance(place, Address):
        store = FsspecStore.from_url(str(place), read_only=True)
    else:
        store = Folder(place, within)
    read, like = (
        zarr.Array(zarr.AsyncArray(metadata=one, store_path=StorePath(store, name))) for one in told
    )
    return read, like


def _bounded(node: Node, place: Path | Address) -> dict[str, Any]:
    """Return the metadata of an array in which what decompresses stops at the size of a chunk."""
    if not node.array:
        raise FileError(f"{place} is no array of zarr: the image is damaged; copy it again.")
    told = dict(node.array)
    itemsize = _itemsize(told.get("data_type" if node.form == 3 else "dtype"), place)
    _count(told.get("shape"), place)
    if node.form == 3:
        if told.get("storage_transformers"):
            raise FileError(f"{place} has storage transformers, which cannot be read: convert it.")
        shape = told["chunk_grid"]["configuration"]["chunk_shape"]
        told["codecs"] = _chain(told["codecs"], "name", shape, itemsize, place)
        return told
    chain = [*(told.get("filters") or ()), *filter(None, [told.get("compressor")])]
    if chain:
        *filters, last = _chain(chain, "id", told["chunks"], itemsize, place)
        told |= {"filters": filters or None, "compressor": last}
    return told


def _chain(
    codecs: Sequence[Any], key: str, shape: Sequence[int], itemsize: int, place: Path | Address
) -> list[dict[str, Any]]:
    """Return codecs, named by this key, those that decompress bounded by a chunk of this shape."""
    if len(codecs) > _MOST:
        raise FileError(f"{place} names {len(codecs)} codecs: it is damaged; save it again.")
    count = _count(shape, place)
    made, most = [], count * itemsize
    for codec in codecs:
        options = codec if key == "id" else codec.get("configuration") or {}
        full = str(codec.get(key))
        name = full.removeprefix("numcodecs.")
        if name in _UNPACK:
            told = {"packed": name, "most": most}
            codec = {key: _BOUNDED, **(told if key == "id" else {"configuration": told})}
        elif full == "sharding_indexed":
            inner = options["chunk_shape"]
            if not {each.get("name") for each in options.get("index_codecs", ())} <= _INDEX:
                raise FileError(f"The shards of {place} have an index that is not known here.")
            within = _chain(options["codecs"], key, inner, itemsize, place)
            codec = {**codec, "configuration": {**options, "codecs": within}}
            most += (count // max(_count(inner, place), 1) + 1) * _SPARE
        elif name in _FILTERS:
            for option, value in options.items():
                if option.endswith("dtype") or option == "astype":
                    _itemsize(value, place)
            if name not in ("bytes", "transpose"):
                most = max(most, count * 8) + _SPARE
        else:
            raise FileError(
                f"{place} is stored with the codec {name[:40]!r}, which is not one of those that "
                "are read, as it may run code: convert the image to one with blosc or zstd."
            )
        made.append(codec)
    return made


def _itemsize(dtype: Any, place: Path | Address) -> int:
    """Return the bytes of a number of a type; `FileError` if it is not one of real numbers."""
    try:
        found = np.dtype(dtype) if isinstance(dtype, str) else None
    except TypeError:
        found = None
    if found is None or found.kind not in "biuf" or found.itemsize > 8:
        raise FileError(
            f"{place} holds {str(dtype)[:40]}, which are no real numbers of at most 64 bits: "
            "convert the image."
        )
    return found.itemsize


def _count(shape: Any, place: Path | Address) -> int:
    """Return the pixels of an image or a chunk; `FileError` if there are more than any has."""
    lengths = isinstance(shape, list) and len(shape) <= _AXES
    lengths = lengths and all(type(n) is int and n >= 0 for n in shape)
    if not lengths or math.prod(shape) >= _PIXELS:
        raise FileError(
            f"{place} declares the shape {str(shape)[:80]}, which no image has: it is damaged; "
            "copy it again from its source."
        )
    return math.prod(shape)


def _unpacked(data: Any, packed: str, most: int) -> np.ndarray:
    """Decompress a chunk; ValueError if that takes more than `most` bytes."""
    if packed == "blosc" and int.from_bytes(bytes(data[12:16]), "little") > len(data):
        raise ValueError("a chunk is cut short")  # which that decoder does not see
    found = _UNPACK[packed](data, out=np.empty(most + 1, np.uint8))
    if len(found) > most:
        raise ValueError("a chunk is larger than its metadata say")
    return np.asarray(found)


class _Bounded2(numcodecs.abc.Codec):
    """What decompresses at most so many bytes, as version 2 of zarr takes codecs."""

    codec_id = _BOUNDED

    def __init__(self, packed: str, most: int) -> None:
        self.packed, self.most = packed, most

    def encode(self, buf: Any) -> Any:
        raise NotImplementedError

    def decode(self, buf: Any, out: Any = None) -> np.ndarray:
        return _unpacked(buf, self.packed, self.most)


@dataclass(frozen=True)
class _Bounded3(BytesBytesCodec):
    """The same for version 3."""

    packed: str
    most: int
    is_fixed_size = False

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> _Bounded3:
        return cls(**data["configuration"])

    def to_dict(self) -> dict[str, Any]:
        return {"name": _BOUNDED, "configuration": asdict(self)}

    def _decode_sync(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        found = _unpacked(chunk_bytes.as_numpy_array(), self.packed, self.most)
        return chunk_spec.prototype.buffer.from_array_like(found)

    async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        return await asyncio.to_thread(self._decode_sync, chunk_bytes, chunk_spec)

    def _encode_sync(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        raise NotImplementedError

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
        raise NotImplementedError


numcodecs.registry.register_codec(_Bounded2)
register_codec(_BOUNDED, _Bounded3)


class Folder(LocalStore):
    """A store that reads of a folder what `check_inside` allows; it writes nothing."""

    def __init__(self, root: Path, within: str | None) -> None:
        super().__init__(Path(os.path.realpath(root)), read_only=True)
        self._within = within
        # Real names of the last folders: each takes a look at all its parts.
        self._real = lru_cache(1 << 12)(lambda folder: os.path.realpath(self.root / folder))

    def get_sync(self, key: str, **options: Any) -> Buffer | None:
        """Return the content of a file, or a part of it; None if there is none."""
        folder, _, name = key.rpartition("/")
        real = os.path.join(self._real(folder), name)
        try:
            check_inside(self._within, self.root / key, "" if os.path.islink(real) else real)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return super().get_sync(key, **options)

    async def get(
        self, key: str, prototype: Any = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Do the same."""
        options = {"prototype": prototype, "byte_range": byte_range}
        return await asyncio.to_thread(self.get_sync, key, **options)

    async def get_partial_values(
        self, prototype: Any, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Return parts of several files."""
        return [await self.get(key, prototype, part) for key, part in key_ranges]
