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

_SHAPES = ((14, 12), (9, 8, 3), (9, 8, 2, 3), (9, 8, 1, 1, 2))
_TYPES = ("u1", "i2", "u2", "i4", "f4", "f8")
_LENGTHS = {1: 352, 2: 544}  # of the header of a version, in bytes
_FLOATS = (0.0, -0.0, -1.0, 0.5, 352.0, 1e-45, 3e38, float("nan"), float("inf"))


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
        path = Path(folder, "start.nii")
        nibabel.save(volume, path)
        data = bytearray(path.read_bytes())
        if number % 3 == 0:
            at, letters = (112, "ff") if version == 1 else (176, "dd")
            struct.pack_into(order + letters, data, at, 0.25, 10.0)
        path.write_bytes(data)
        return bytes(data), version, order, gd.read(path).data


def lie_in_header(rng: Random, data: bytearray, version: int, order: str) -> str:
    """Change numbers of a header, or of its extensions, where any may be; return what was done."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        size = rng.choice((1, 2, 2, 4, 8))
        at = size * rng.randrange((_LENGTHS[version] + 16) // size)
        if size > 2 and rng.randrange(2):
            struct.pack_into(order + ("f" if size == 4 else "d"), data, at, rng.choice(_FLOATS))
        else:
            set_number(data, at, order, size, rng.choice((*NUMBERS, -1, -7, 1536, len(data))))
    return "header"


def nifti_case(rng: Random, folder: Path) -> Case:
    """A NIfTI file whose header, extensions, bytes or compressed bytes were changed."""
    number, ending = rng.randrange(48), rng.choice((".nii", ".nii.gz"))
    held, version, order, pixels = seed(number)
    data, packed, way = bytearray(held), ending == ".nii.gz", rng.randrange(5)
    if way < 3:
        done = lie_in_header(rng, data, version, order)
    elif way == 3 or not packed:
        done = damage_bytes(rng, data)
    if packed:
        data = bytearray(gzip.compress(bytes(data), mtime=0))
        if way == 4:
            done = "packed " + damage_bytes(rng, data)
    name, known = f"in{ending}", done in ("cut", "packed cut")
    (folder / "data" / name).write_bytes(data)
    return reading(rng, folder, f"NIfTI {number}, {done}", pixels if known else None, name)
