"""Writing OME-Zarr: new pixels with the metadata of the input, part by part.

A folder is made under a hidden name beside the target, and renamed when it is complete. At an
address the pixels are written where they will be; metadata, without which they are none, come last.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from napari_gpu_denoise.errors import DenoiseError, OutputError
from napari_gpu_denoise.files.tiff.looks import Looks
from napari_gpu_denoise.files.tiff.messages import brief
from napari_gpu_denoise.files.tiff.output import new_folder
from napari_gpu_denoise.files.tiff.picture import Picture, records_of
from napari_gpu_denoise.files.zarr import pyramid
from napari_gpu_denoise.files.zarr.address import Address, located
from napari_gpu_denoise.files.zarr.metadata import VERSIONS, new_attributes, ome_of, revised
from napari_gpu_denoise.files.zarr.naming import (
    HEADS,
    UNFINISHED,
    is_unfinished,
    is_zarr,
    zarr_package,
)
from napari_gpu_denoise.files.zarr.steady import steadily
from napari_gpu_denoise.files.zarr.stored import stored_like, stored_new
from napari_gpu_denoise.image.threads import shared_executor

if TYPE_CHECKING:
    from napari_gpu_denoise.run.record import Record

_HELD = {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
_HELD |= {"float16", "float32", "float64"}
_REQUESTS = 16  # at a time


class NewImage:
    """An image of OME-Zarr that is being written: its finest level, then all that describes it."""

    def __init__(
        self,
        folder: Path | Address,
        like: Picture,
        named: Path | Address,
        resumed: bool = False,
    ) -> None:
        #: Where it is written, which may be another place than it is `named`.
        self.folder = folder
        self._folder, self._like = named, like
        self._zarr = zarr_package()
        self._levels: list[Any] = []
        self._resumed = resumed

    def finest(self, shape: tuple[int, ...], dtype: np.dtype) -> Finest:
        """Return the array that takes the pixels."""
        check_writable(self._like, dtype)
        if self._resumed:
            # Its chunks stay, and its metadata are written again: they may be lost, or changed.
            with writing(self._folder):
                for head in HEADS:
                    place = located(_inside(self.folder, f"{self.name}/{head}"))
                    if place.exists():
                        place.unlink()
        array = self._added(0, tuple(shape), np.dtype(dtype))
        return Finest(array, self._folder, _inside(self.folder, self.name))

    def finish(
        self, record: Record | Sequence[dict] | None, check: Callable[[], None] = lambda: None
    ) -> tuple[str, ...]:
        """Write the coarser levels and the metadata; return what could not be kept.

        `check` is called last before the metadata are written, which make an image of it.
        """
        like = self._like
        arrays = like.metadata.get("arrays")
        shapes = [tuple(one.shape) for one in arrays] if arrays else []
        factors = (
            pyramid.factors_like(shapes)
            if arrays
            else pyramid.new_factors(like.axes, tuple(like.data.shape))
        )
        total = [(1,) * len(like.axes)]
        with writing(self._folder):
            for number, factor in enumerate(factors, 1):
                finer = self._levels[-1]
                wanted = shapes[number] if arrays else None
                shape = pyramid.coarser_shape(tuple(finer.shape), factor, wanted)
                coarser = self._added(number, shape, np.dtype(finer.dtype))
                for _ in pyramid.fill(finer, coarser, factor):
                    pass
                total.append(tuple(a * b for a, b in zip(total[-1], factor, strict=True)))
            paths = [self._path(number) for number in range(len(total))]
            made = revised(like.metadata["attributes"], paths, total, records_of(record))
            check()
            self._describe(made, paths)
        return ()

    def _describe(self, attributes: dict[str, Any], paths: Sequence[str]) -> None:
        """Write the metadata of the group, which make an image of it."""
        place, form = os.fspath(self.folder), self._like.metadata["format"]
        for path in paths:
            if "/" in path:
                within = _inside(self.folder, path.rpartition("/")[0])
                self._zarr.open_group(within, mode="a", zarr_format=form)
        options = {"mode": "a", "zarr_format": form, "attributes": attributes}
        steadily(self._folder, lambda: self._zarr.open_group(place, **options))

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
        place = _inside(self.folder, self._path(number))
        with writing(self._folder):
            made = steadily(
                self._folder,
                lambda: self._zarr.create_array(place, shape=shape, dtype=dtype, **options),
            )
        self._levels.append(made)
        return made


class Finest:
    """The finest level, as an array that is written part by part; errors are named.

    `folder` is the image in errors, `place` the array itself.
    """

    def __init__(self, array: Any, folder: Path | Address, place: str) -> None:
        self._array, self._folder, self._place = array, folder, located(place)
        self.shape, self.dtype, self.ndim = tuple(array.shape), np.dtype(array.dtype), array.ndim
        self.chunks = tuple(array.shards or array.chunks)

    def __getitem__(self, index: Any) -> np.ndarray:
        with writing(self._folder):
            return steadily(self._folder, lambda: np.asarray(self._array[index]))

    def __setitem__(self, index: Any, values: Any) -> None:
        with writing(self._folder):
            steadily(self._folder, lambda: self._array.__setitem__(index, values))

    def stored_bytes(self, where: tuple[slice, ...]) -> int | None:
        """Return the size of the chunks of a region; None if it shares a chunk with others."""
        grid = []
        for one, step, length in zip(where, self.chunks, self.shape, strict=True):
            if one.start % step or (one.stop % step and one.stop < length):
                return None
            grid.append(range(one.start // step, -(-one.stop // step)))
        names = map(self._array.metadata.encode_chunk_key, itertools.product(*grid))
        places = [self._place / name for name in names]
        with writing(self._folder):
            if not isinstance(self._place, Address):
                return sum(map(_size, places))
            # Each is a request.
            return sum(shared_executor("sizes", _REQUESTS).map(_size_at_address, places))


def _size(place: Path) -> int:
    try:
        return place.stat().st_size
    except FileNotFoundError:
        return 0  # nothing but fill values is not stored


def _size_at_address(place: Address) -> int:
    system, name = place.system()
    try:
        return steadily(place, lambda: int(system.size(name)))
    except FileNotFoundError:
        return 0


def _inside(folder: Path | Address, name: str) -> str:
    """Return the place of an array of a group."""
    return f"{os.fspath(folder)}/{name}"


def check_writable(like: Picture, dtype: np.dtype) -> None:
    """Refuse pixels of a type that OME-Zarr is not written with."""
    if np.dtype(dtype).name not in _HELD:
        raise OutputError(
            f"{like.path} is OME-Zarr, which is not written with {dtype}",
            "pass dtype='float32'",
            code="file-dtype",
        )


def new_picture(
    data: Any, axes: str, looks: Looks, name: str, inputs: Iterable[Path] = ()
) -> Picture:
    """Return the description of pixels from no OME-Zarr, as which `write` makes one of 0.5."""
    inputs = tuple(inputs)
    attributes = new_attributes(axes, looks, name)
    metadata = {"attributes": attributes, "levels": [], "format": VERSIONS["0.5"]}
    path = inputs[0] if inputs else Path(name)
    return Picture(data, axes, "zarr", metadata, path, inputs, looks=looks)


@contextlib.contextmanager
def new_image(
    path: str | os.PathLike,
    like: Picture,
    *,
    overwrite: bool,
    part: Path | Address | None = None,
    resumed: bool = False,
) -> Iterator[NewImage]:
    """Write an image that is one under its name when the block ends, if nothing was raised.

    `part` is where it is written until then, and is kept if the block raises: an unfinished folder
    as of `new_folder`, or the address itself. With `resumed` its finest level is there.
    """
    place = located(path)
    if isinstance(place, Address):
        if part is None:
            with _in_place(place, like, overwrite):
                yield NewImage(place, like, place)
        else:
            yield NewImage(place, like, place, resumed)
        return
    kept = like.path, *like.files
    with new_folder(path, overwrite=overwrite, keep=kept, part=part) as folder:
        yield NewImage(folder, like, place, resumed)


def check_place(path: str | os.PathLike, like: Picture, *, overwrite: bool) -> None:
    """Refuse an address at which no image can be written; folders are checked by `new_image`."""
    place = located(path)
    if not isinstance(place, Address):
        return
    for other in (like.path, *like.files):
        if located(other) == place or place in located(other).parents:
            raise OutputError(f"{place} is, or holds, an input: choose another place.")
    if not place.exists() or is_unfinished(place):
        return
    if not overwrite:
        raise OutputError(
            f"{place} exists",
            "choose another name, or pass overwrite=True to replace it",
            code="exists",
        )
    if not is_zarr(place):
        raise OutputError(f"{place} is not zarr: it is kept; choose another name.")


@contextlib.contextmanager
def _in_place(place: Address, like: Picture, overwrite: bool) -> Iterator[None]:
    """Replace what is there; if anything is raised, remove what the block has written."""
    check_place(place, like, overwrite=overwrite)
    with writing(place):
        place.remove()
        (place / UNFINISHED / "begun").touch()
    try:
        yield
        with writing(place):
            (place / UNFINISHED).remove()
    except BaseException:
        with contextlib.suppress(Exception):
            place.remove()
        raise


def write(
    path: str | os.PathLike,
    data: Any,
    like: Picture,
    record: Record | Sequence[dict] | None = None,
    *,
    overwrite: bool = False,
) -> tuple[str, ...]:
    """Write new pixels with the metadata of another OME-Zarr, as `files.tiff.write` does TIFF."""
    if tuple(data.shape) != tuple(like.data.shape):
        raise OutputError(
            f"Pixels of shape {tuple(data.shape)} cannot take the metadata of an image of shape "
            f"{tuple(like.data.shape)}: write them like an image of their own shape."
        )
    with new_image(path, like, overwrite=overwrite) as made:
        finest = made.finest(tuple(data.shape), np.dtype(data.dtype))
        unit = finest.chunks[: max(0, finest.ndim - 2)]
        for where in _rows(finest.shape[: len(unit)], unit):
            finest[where] = np.asarray(data[where])
        return made.finish(record)


def _rows(shape: tuple[int, ...], unit: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Yield the parts of the outer axes that are written at once."""
    counts = tuple(-(-n // u) for n, u in zip(shape, unit, strict=True))
    for place in np.ndindex(counts):
        yield tuple(
            slice(p * u, min((p + 1) * u, n)) for p, u, n in zip(place, unit, shape, strict=True)
        )


@contextlib.contextmanager
def writing(path: Path | Address) -> Iterator[None]:
    """Turn what is raised while a folder is written into an `OutputError`."""
    try:
        yield
    except (DenoiseError, MemoryError):
        raise
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}.") from error
    except Exception as error:
        reason = brief(str(error).strip() or type(error).__name__)
        raise OutputError(f"{path} cannot be written as OME-Zarr: {reason}.") from error
