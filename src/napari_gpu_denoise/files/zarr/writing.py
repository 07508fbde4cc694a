"""Writing OME-Zarr: new pixels with the metadata of the input, part by part.

A folder is made under a hidden name beside the target, and renamed when it is complete. At an
address the pixels are written where they will be; metadata, without which they are none, come last.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import OutputError
from napari_gpu_denoise.files.image_file import INTEGERS, ImageFile
from napari_gpu_denoise.files.input_checks import open_regular, read_files
from napari_gpu_denoise.files.output import already_there, new_folder, writing
from napari_gpu_denoise.files.zarr import places
from napari_gpu_denoise.files.zarr.metadata import VERSIONS, new_attributes, ome_of, revised
from napari_gpu_denoise.files.zarr.places import Address, Claim
from napari_gpu_denoise.image.axes import chosen_range, index_parts
from napari_gpu_denoise.image.threads import mapping, shared_executor
from napari_gpu_denoise.protocol.tiles import regions

HELD = INTEGERS | {"float16", "float32", "float64"}
_REQUESTS = 16  # at a time

_SMALLEST = 512  # pixels along Y and X up to which a new image gets no coarser level
_AT_ONCE = 1 << 21  # pixels of a finer level that a thread reads at a time, at least a chunk
_REGIONS = 4  # of a coarser level that are made at once


class NewImage:
    """An image of OME-Zarr that is being written: its finest level, then all that describes it."""

    def __init__(
        self,
        folder: Path | Address,
        like: ImageFile,
        named: Path | Address,
        claim: Claim,
        resumed: bool = False,
    ) -> None:
        #: Where it is written, which may be another place than it is `named`, and by whom.
        self.folder, self.claim = folder, claim
        self._folder, self._like = named, like
        self._zarr = places.zarr_package()
        self._levels: list[Any] = []
        self._resumed = resumed

    def finest(self, shape: tuple[int, ...], dtype: np.dtype) -> FullResolutionArray:
        """Return the array that takes the pixels."""
        if self._resumed:
            # Its chunks stay, and its metadata are written again: they may be lost, or changed.
            with writing(self._folder, "OME-Zarr"):
                for head in places.HEADS:
                    (self.folder / self.name / head).unlink(missing_ok=True)
        array = self._added(0, tuple(shape), np.dtype(dtype))
        return FullResolutionArray(array, self._folder, self.folder / self.name, self.claim)

    def finish(self, records: Sequence[dict]) -> None:
        """Write the coarser levels and, last, the metadata, which make an image of it."""
        like = self._like
        arrays = like.metadata.get("arrays")
        shapes = [tuple(one.shape) for one in arrays] if arrays else []
        factors = factors_like(shapes) if arrays else new_factors(like.axes, tuple(like.data.shape))
        total = [(1,) * len(like.axes)]
        with writing(self._folder, "OME-Zarr"):
            for number, factor in enumerate(factors, 1):
                finer = self._levels[-1]
                wanted = shapes[number] if arrays else None
                shape = coarser_shape(tuple(finer.shape), factor, wanted)
                coarser = self._added(number, shape, np.dtype(finer.dtype))
                fill(finer, coarser, factor)
                total.append(tuple(a * b for a, b in zip(total[-1], factor, strict=True)))
            paths = [self._path(number) for number in range(len(total))]
            made = revised(like.metadata["attributes"], paths, total, records)
            self.claim.check()
            self._describe(made, paths)

    def _describe(self, attributes: dict[str, Any], paths: Sequence[str]) -> None:
        """Write the metadata of the group."""
        place, form = os.fspath(self.folder), self._like.metadata["format"]
        for path in paths:
            if "/" in path:
                within = self.folder / path.rpartition("/")[0]
                self._zarr.open_group(os.fspath(within), mode="a", zarr_format=form)
        places.describe_group(place, form, attributes)

    @property
    def name(self) -> str:
        """The name of the finest level."""
        return self._path(0)

    def _path(self, number: int) -> str:
        """Return the name of a level: that of the input, or its number."""
        ome = ome_of(self._like.metadata["attributes"])[1]
        named = [each["path"] for each in ome["multiscales"][0]["datasets"]]
        if number < len(named) and len(set(named)) == len(named):
            return named[number]
        return str(number)

    def _added(self, number: int, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """Add a level, stored as that of the input."""
        arrays = self._like.metadata.get("arrays")
        options = (
            stored_like(arrays[min(number, len(arrays) - 1)], shape, dtype)
            if arrays
            else (stored_new(self._like, shape))
        )
        overwrite = self._resumed and number > 0
        options |= {"zarr_format": self._like.metadata["format"], "overwrite": overwrite}
        # To look for chunks of nothing but fill values takes longer than to write them.
        options["config"] = {"write_empty_chunks": True}
        place = os.fspath(self.folder / self._path(number))
        with writing(self._folder, "OME-Zarr"):
            self.claim.check()
            made = self._zarr.create_array(place, shape=shape, dtype=dtype, **options)
        self._levels.append(made)
        return made


class FullResolutionArray:
    """The finest level, as an array that is written part by part; errors are named.

    `folder` is the image in errors, `place` the array itself. Only the run of the claim may write.
    """

    def __init__(
        self, array: Any, folder: Path | Address, place: Path | Address, claim: Claim
    ) -> None:
        self._array, self._folder, self._claim, self.place = array, folder, claim, place
        self._last: Any = {}  # what `chunks.write` told of those that were last written
        self.shape, self.dtype, self.ndim = tuple(array.shape), np.dtype(array.dtype), array.ndim
        self.chunks = tuple(array.shards or array.chunks)

    def __getitem__(self, index: Any) -> np.ndarray:
        # It needs zarr.
        from napari_gpu_denoise.files.zarr import chunks

        parts = index_parts(index, self.shape)
        with writing(self._folder, "OME-Zarr"):
            return chunks.read(self._array, parts)

    def __setitem__(self, index: Any, values: Any) -> None:
        from napari_gpu_denoise.files.zarr import chunks

        parts = index_parts(index, self.shape)
        with writing(self._folder, "OME-Zarr"):
            self._claim.check()
            self._last = chunks.write(self._array, parts, values)

    def mark_of_chunks(self, where: Any, content: bool = True) -> int | None:
        """Return the size of the chunks of a region, with `content` above 32 bits of a checksum.

        None if it shares a chunk with others.
        """
        grid = []
        parts = index_parts(where, self.shape)
        for part, step, length in zip(parts, self.chunks, self.shape, strict=True):
            one = chosen_range(part, length)
            if one.start % step or (one.stop % step and one.stop < length):
                return None
            grid.append(range(one.start // step, -(-one.stop // step)))
        chosen, known = list(itertools.product(*grid)), self._last if content else {}
        names = (self._array.metadata.encode_chunk_key(one) for one in chosen if one not in known)
        with writing(self._folder, "OME-Zarr"):
            rest = shared_executor("checksums", _REQUESTS).map(
                lambda name: _size_and_checksum(self.place / name, content), names
            )
            found = [known.get(one) or next(rest) for one in chosen]
            if not all(size for size, _ in found):  # lost, or moved away with the claim
                self._claim.check()
        size = sum(size for size, _ in found)
        return size << 32 | zlib.crc32(repr(found).encode()) if content else size


def _size_and_checksum(place: Path, content: bool) -> tuple[int, int | None]:
    """Return the size of a chunk, and a checksum.

    0 if it is lost, or was not stored as it holds nothing but fill values.
    """
    try:
        if not content:
            return place.stat().st_size, None
        with open_regular(place) as file:
            stored = file.read()
        return len(stored), zlib.crc32(stored)
    except FileNotFoundError:
        return 0, None


def described_anew(like: ImageFile, name: str) -> ImageFile:
    """Return an image from no OME-Zarr as one of which `write` makes an OME-Zarr of 0.5."""
    if like.axes.endswith("S"):
        raise OutputError(
            f"{name!r} is RGB, which OME-Zarr has no axis for: end the name of the result with "
            ".ome.tif, or split it into channels."
        )
    attributes = new_attributes(like.axes, like.pixel_metadata, name)
    metadata = {"attributes": attributes, "levels": [], "format": VERSIONS["0.5"]}
    return replace(like, kind="zarr", metadata=metadata)


@contextlib.contextmanager
def new_image(
    path: str | os.PathLike,
    like: ImageFile,
    *,
    overwrite: bool,
    part: Path | None = None,
    resumed: bool = False,
) -> Iterator[NewImage]:
    """Write an image that is one under its name when the block ends, if nothing was raised.

    `part` is the unfinished folder as of `new_folder`, which is kept if the block raises; with
    `resumed` the finest level is in it.
    """
    place = places.as_path(path)
    if isinstance(place, Address):
        check_place(place, like, overwrite=overwrite)
        with writing(place, "OME-Zarr"):
            place.remove()
        opened: Any = contextlib.nullcontext(place)
    else:
        opened = new_folder(path, overwrite=overwrite, keep=(like.path, *like.files), part=part)
    with opened as folder:
        claim = Claim(folder)
        try:
            with writing(place, "OME-Zarr"):
                claim.take()
            yield NewImage(folder, like, place, claim, resumed)
            with writing(place, "OME-Zarr"):
                claim.drop()
        except BaseException:
            with contextlib.suppress(Exception):
                claim.check()  # what another run writes by now is left alone
                folder.remove() if isinstance(folder, Address) else claim.drop()
            raise


def check_place(place: Address, like: ImageFile, *, overwrite: bool) -> None:
    """Refuse an address at which no image can be written."""
    for other in (like.path, *like.files, *read_files):
        if places.as_path(other) == place or place in places.as_path(other).parents:
            raise OutputError(f"{place} is, or holds, an input: choose another place.")
    if not place.exists():
        return
    if not overwrite:
        raise already_there(f"{place} exists")
    if not Claim(place).holder and not places.is_zarr(place):
        raise OutputError(f"{place} is not zarr: it is kept; choose another name.")


def write(
    made: NewImage, path: Path, data: Any, like: ImageFile, records: Sequence[dict]
) -> tuple[str, ...]:
    """Write new pixels with the metadata of another OME-Zarr, as `formats.write` does."""
    finest = made.finest(tuple(data.shape), np.dtype(data.dtype))
    unit = finest.chunks[: max(0, finest.ndim - 2)]
    for where in regions(finest.shape[: len(unit)], unit):
        finest[where] = np.asarray(data[where])
    made.finish(records)
    return ()


def stored_like(array: Any, shape: tuple[int, ...], dtype: np.dtype) -> dict[str, Any]:
    """Return how an array is stored, for another of this shape and type."""
    same = np.dtype(array.dtype).newbyteorder("=") == dtype
    chunks = tuple(max(1, min(c, n)) for c, n in zip(array.chunks, shape, strict=True))
    options: dict[str, Any] = {"chunks": chunks, "compressors": array.compressors or None}
    options["attributes"] = dict(array.metadata.attributes)
    if array.metadata.zarr_format == 2:
        options["chunk_key_encoding"] = {
            "name": "v2",
            "separator": array.metadata.dimension_separator,
        }
        if not same:
            options["compressors"] = "auto"
    else:
        options["chunk_key_encoding"] = array.metadata.chunk_key_encoding
        options["dimension_names"] = array.metadata.dimension_names
        if array.shards:
            # A shard is a whole number of chunks.
            options["shards"] = tuple(
                c * max(1, min(s // d, -(-n // c)))
                for c, s, d, n in zip(chunks, array.shards, array.chunks, shape, strict=True)
            )
    # Filters such as differences are of the type of the pixels.
    if same and array.filters:
        options["filters"] = array.filters
    return options


def stored_new(like: ImageFile, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return the storage layout for images that were not read from OME-Zarr."""
    # It needs zarr.
    from zarr.codecs import BloscCodec

    planes = "YX"
    chunks = tuple(
        min(n, 1024) if a in planes else 1 for a, n in zip(like.axes, shape, strict=True)
    )
    axes = ome_of(like.metadata["attributes"])[1]["multiscales"][0]["axes"]
    # Of 16 bits smaller than zarr's own choice, Zstandard without shuffling, and in less time.
    compressor = BloscCodec(cname="zstd", clevel=1, shuffle="bitshuffle")
    names = [each["name"] for each in axes]
    return {"chunks": chunks, "dimension_names": names, "compressors": compressor}


def factors_like(shapes: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return by how much each level of a pyramid is coarser than the one before it."""
    return [
        tuple(max(1, round(a / max(b, 1))) for a, b in zip(finer, coarser, strict=True))
        for finer, coarser in itertools.pairwise(shapes)
    ]


def new_factors(axes: str, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the factors of a new pyramid: halves along Y and X while the plane is large."""
    factors = []
    lengths = {a: n for a, n in zip(axes, shape, strict=True) if a in "YX"}
    while max(lengths.values()) > _SMALLEST:
        factors.append(tuple(2 if a in "YX" else 1 for a in axes))
        lengths = {a: math.ceil(n / 2) for a, n in lengths.items()}
    return factors


def coarser_shape(
    shape: tuple[int, ...], factor: tuple[int, ...], wanted: tuple[int, ...] | None
) -> tuple[int, ...]:
    """Return the shape of the next level: as wanted, if blocks of these factors fill it."""
    filled = tuple(math.ceil(n / f) for n, f in zip(shape, factor, strict=True))
    if wanted is None or any(n > m or n < m - 1 for n, m in zip(wanted, filled, strict=True)):
        return filled
    return wanted


def fill(finer: Any, coarser: Any, factor: tuple[int, ...]) -> None:
    """Write a level part by part."""
    # It needs zarr.
    from napari_gpu_denoise.files.zarr import chunks

    unit = tuple(coarser.shards or coarser.chunks)
    size = _grown(unit, coarser.shape, math.prod(factor))

    def write_means(where: tuple[slice, ...]) -> None:
        read = tuple(
            slice(w.start * f, min(w.stop * f, n))
            for w, f, n in zip(where, factor, finer.shape, strict=True)
        )
        means = block_means(chunks.read(finer, read), factor)
        chunks.write(coarser, where, means.astype(coarser.dtype, copy=False))

    with mapping(min(_REGIONS, os.cpu_count() or 1)) as each:
        deque(each(write_means, regions(coarser.shape, size)), maxlen=0)


def _grown(unit: tuple[int, ...], shape: tuple[int, ...], finer: int) -> tuple[int, ...]:
    """Return chunks joined along the last axes, as many as are worth reading at once."""
    size = [min(u, n) for u, n in zip(unit, shape, strict=True)]
    for axis in reversed(range(len(size))):
        room = _AT_ONCE // max(math.prod(size) * finer, 1)
        if room > 1:
            size[axis] = min(shape[axis], size[axis] * room)
    return tuple(size)


def block_means(pixels: np.ndarray, factor: Sequence[int]) -> np.ndarray:
    """Return means of blocks, smaller at the ends of axes; of integers, rounded to nearest."""
    dtype = pixels.dtype
    wide = np.float64 if dtype.itemsize > 2 else np.float32
    means = pixels
    for axis, step in enumerate(factor):
        if step == 1:
            continue
        along, length = (slice(None),) * axis, means.shape[axis]
        sums = means[(*along, slice(0, None, step))].astype(wide)
        for k in range(1, step):  # many times faster than by reduceat
            each = means[(*along, slice(k, None, step))]
            sums[(*along, slice(each.shape[axis]))] += each
        whole = length // step
        sums[(*along, slice(whole))] /= step
        sums[(*along, slice(whole, None))] /= max(length % step, 1)
        means = sums
    return (np.rint(means) if dtype.kind in "iu" else means).astype(dtype)
