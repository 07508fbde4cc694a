"""Noise on the command line: ``gpu-denoise estimate``, and the noise options of the filters."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from napari_gpu_denoise import errors
from napari_gpu_denoise.cli.failures import complain, exit_code, on_command_line, sentence

if TYPE_CHECKING:
    from pathlib import Path

    from napari_gpu_denoise.files.image_file import ImageFile
    from napari_gpu_denoise.noise.record import NoiseEstimate

HELD = 24  # planes of a channel up to which a file is read whole: an estimate may hold as many


def estimate(args: argparse.Namespace) -> int:
    """Measure the noise of each input."""
    from napari_gpu_denoise.files.inputs import find_files

    codes, found = [], []
    for path in find_files(args.inputs):
        try:
            picture, measured, planes = _measure(path, args.axes, args.model)
        except errors.DenoiseError as error:
            codes.append(exit_code(error))  # not the error: its traceback holds the pixels
            complain(sentence(error, path))
            continue
        axes = picture.filter_axes if args.axes is None else args.axes
        record = {"input": str(path), "axes": axes, **measured.as_dict()}
        found.append({**record, "total_planes": planes})
        if not args.json:
            shape = " x ".join(map(str, picture.data.shape))
            print(f"{path} ({axes}, {shape}, {picture.data.dtype})")
            print(f"  read        {measured.planes} of {planes} plane{'s' * (planes != 1)}")
            said = replace(measured, notes=tuple(map(on_command_line, measured.notes)))
            for line in said.summary().splitlines():
                print(f"  {line}")
            for note in picture.notes:
                print(f"  note        {note}")
    if args.json:
        print(json.dumps(found, indent=2))
    return codes[0] if codes else 0


def _measure(path: Path, axes: str | None, model: str) -> tuple[ImageFile, NoiseEstimate, int]:
    """Return the description of a file, its noise, and its number of planes."""
    from napari_gpu_denoise.files import formats
    from napari_gpu_denoise.noise.estimate import estimate_noise

    with formats.open_stack(path) as picture:
        held, names, planes = to_measure(picture, axes)
        return picture, estimate_noise(held.pixels, names, model), planes


def to_measure(picture: ImageFile, axes: str | None) -> tuple[ImageFile, str, int]:
    """Return a picture to measure its noise, its axes, and its number of planes.

    Of a large file only the planes are read that an estimate needs. What counts as large does not
    depend on the machine, so that results do not either.
    """
    from napari_gpu_denoise.files import one_file
    from napari_gpu_denoise.image.axes import channel_axis, check_axes
    from napari_gpu_denoise.image.levels import check_numbers

    check_numbers(picture.data)
    shape = picture.pixels.shape
    names = check_axes(picture.filter_axes if axes is None else axes, shape)
    planes = math.prod(n for n, a in zip(shape, names, strict=True) if a not in "YX")
    channel = channel_axis(names)
    many = planes // (1 if channel is None else shape[channel]) > HELD
    large = many and picture.data.nbytes >= one_file.STREAMED_BYTES
    # If the planes are not those of the file, reading one means reading all of it.
    by_plane = picture.data.reads_by_plane(names.index("Y"), names.index("X"))
    return picture if large and by_plane else picture.loaded(), names, planes


def sigma_map(path: str) -> Any:
    """Read a map of sigma, (y, x)."""
    from napari_gpu_denoise.files import formats

    picture = formats.read(path)
    shape = zip(picture.axes, picture.data.shape, strict=True)
    values = picture.data[tuple(0 if a not in "YX" and n == 1 else slice(None) for a, n in shape)]
    if values.ndim != 2:
        raise errors.SigmaError(
            f"{path} holds {values.shape} pixels ({picture.axes}): give one image with the height "
            "and width of the inputs."
        )
    return values


def named_noise(named: str) -> Any:
    """Return the noise that ``--noise`` names: a model's name, or the first estimate in a file."""
    from napari_gpu_denoise.noise.models import choices

    if named in choices():
        return named
    from napari_gpu_denoise.files.input_checks import open_regular
    from napari_gpu_denoise.noise.record import NoiseEstimate

    try:
        with open_regular(named) as file:
            held = json.load(file)
    except OSError as error:
        raise errors.FileError(
            f"--noise {named} is neither {', '.join(choices())} nor a file that can be read: "
            f"{error.strerror or error}."
        ) from error
    except (ValueError, RecursionError) as error:
        raise errors.FileError(
            f"{named} is not JSON: give the output of 'gpu-denoise estimate --json'."
        ) from error
    first = held[0] if isinstance(held, list) and held else held
    if not isinstance(first, dict):
        raise errors.FileError(
            f"{named} contains no estimate: give the output of 'gpu-denoise estimate --json'."
        )
    found = NoiseEstimate.from_dict(first)
    # How its planes and places differ says nothing of those of other files.
    return replace(found, frames=None, slices=None, others=None, places=None)
