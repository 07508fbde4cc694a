"""NIfTI files that are damaged, or lie, in the ways of `file_cases`."""

from __future__ import annotations

import gzip
import struct
import tempfile
from functools import lru_cache
from pathlib import Path
from random import Random

import nibabel
import numpy as np

import napari_gpu_denoise as gd
from fuzz.file_cases import NUMBERS, damage_bytes, reading, set_number
from fuzz.watching import Case

_ENDINGS = (".nii", ".nii.gz")
_SHAPES = ((14, 12), (9, 8, 3), (9, 8, 2, 3), (9, 8, 1, 1, 2))
_TYPES = ("u1", "i2", "u2", "i4", "f4", "f8")
# Fields of the header of version 1 and 2: where they are, how many numbers, and of which kind.
_FIELDS = {
    1: ((0, 1, "i"), (40, 8, "h"), (68, 1, "h"), (70, 1, "h"), (72, 1, "h"), (76, 8, "f")),
    2: ((0, 1, "i"), (16, 8, "q"), (504, 1, "i"), (12, 1, "h"), (14, 1, "h"), (104, 8, "d")),
}
_FIELDS[1] += ((108, 1, "f"), (112, 2, "f"), (123, 1, "b"), (252, 2, "h"), (344, 4, "b"))
_FIELDS[2] += ((168, 1, "q"), (176, 2, "d"), (500, 1, "i"), (344, 2, "i"), (4, 8, "b"))
_FLOATS = (*(0.0, -0.0, 1.0, -1.0, 0.5, 352.0, 353.0, 1e-30, 1e30, 1e-45, 3e38, 16.0, 1e9),)
_FLOATS += (float("nan"), float("inf"), float("-inf"))


@lru_cache
def seed(number: int) -> tuple[bytes, int, str, np.ndarray]:
    """Return a file without compression, its version, its byte order and its pixels, none of 0."""
    shape, kind = _SHAPES[number % 4], _TYPES[number % 6]
    version, order = 1 + number // 12 % 2, "<>"[number // 24]
    image = np.random.default_rng(number).integers(1, 200, shape).astype(kind)
    made = nibabel.Nifti1Image if version == 1 else nibabel.Nifti2Image
    header = made.header_class(endianness=order)
    header.set_data_dtype(image.dtype)
    volume = made(image, np.eye(4), header)
    volume.header.extensions.append(nibabel.nifti1.Nifti1Extension(6, b"by hand"))
    with tempfile.TemporaryDirectory() as folder:
        start, ours = Path(folder, "start.nii"), Path(folder, "ours.nii")
        nibabel.save(volume, start)
        if number % 5 == 0:  # as this package writes its results
            picture = gd.read(start)
            small = gd.NLMeans(patch=4, window=7, step=2, neighbours=4)
            record = gd.denoise(picture.data, small, 0, axes=picture.filter_axes).record
            gd.write(ours, picture.data, picture, record)
            start = ours
        data = bytearray(start.read_bytes())
        if number % 3 == 0:
            at, letters = (112, "ff") if version == 1 else (176, "dd")
            struct.pack_into(order + letters, data, at, 0.25, 10.0)
        start.write_bytes(data)
        return bytes(data), version, order, gd.read(start).data


def lie_in_header(rng: Random, data: bytearray, version: int, order: str) -> str:
    """Change fields of a header, or of its extensions; return what was done."""
    done = []
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if rng.randrange(6) == 0:
            at = (348 if version == 1 else 540) + rng.choice((0, 1, 4, 8, 36, 40))
            set_number(data, at, order, 4, rng.choice((*NUMBERS, 8, 16, 24, 32, 48, len(data))))
            done.append("extension")
            continue
        start, count, letter = rng.choice(_FIELDS[version])
        size = struct.calcsize(letter)
        at = start + size * rng.randrange(count)
        if letter in "fd":
            struct.pack_into(order + letter, data, at, rng.choice(_FLOATS))
        else:
            set_number(data, at, order, size, rng.choice((*NUMBERS, -1, -7, 128, 1536, 1792, 2304)))
        done.append(f"field at {start}")
    return "+".join(done)


def nifti_case(rng: Random, folder: Path) -> Case:
    """A NIfTI file whose header, extensions, bytes or compressed bytes were changed."""
    number, ending = rng.randrange(48), rng.choice(_ENDINGS)
    held, version, order, pixels = seed(number)
    data, packed = bytearray(held), ending == ".nii.gz"
    way = rng.randrange(5)
    if way < 3:
        done = lie_in_header(rng, data, version, order)
    elif way == 3 or not packed:
        done = damage_bytes(rng, data)
    if packed:
        data = bytearray(gzip.compress(bytes(data), mtime=0))
        if way == 4:
            done = "packed " + damage_bytes(rng, data)
    name = f"in{ending}"
    (folder / "data" / name).write_bytes(data)
    known = done in ("cut", "packed cut")
    return reading(rng, folder, f"NIfTI {number}, {done}", pixels if known else None, name)
