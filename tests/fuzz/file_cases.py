"""TIFF files that are damaged, or lie, for the reader, batches and the command line."""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np

import napari_gpu_denoise as gd
from fuzz.tiff_seeds import DECLARED, NAMES, TWIN, layout, seed
from fuzz.watching import Case, Loss
from napari_gpu_denoise import cli
from napari_gpu_denoise.files.tiff import reading as tiff_reading
from napari_gpu_denoise.run import request

NUMBERS = (
    *(0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 14, 15, 16, 17, 24, 32, 64, 100, 255, 256, 1000, 4096),
    *(32767, 32768, 65535, 65536, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1),
)
STRIPS = (273, 279, 324, 325)  # where strips and tiles are, and how long
CODES = (
    *(254, 256, 257, 258, 259, 262, 266, 270, 273, 274, 277, 278, 279, 284, 296, 305, 317, 320),
    *(322, 323, 324, 325, 330, 338, 339, 34412, 50838, 50839, 51123, 65000, 34118, 33628, 65024),
)
SMALL = {"patch": 4, "step": 2, "window": 7, "neighbours": 4}
OPTIONS = ["--patch", "4", "--step", "2", "--window", "7", "--neighbours", "4", "--sigma", "10"]


def set_number(data: bytearray, at: int, order: str, size: int, value: int) -> None:
    """Write a whole number of a size, as much as fits."""
    letter = {1: "B", 2: "H", 4: "I", 8: "Q"}[size]
    if at + size <= len(data):
        struct.pack_into(order + letter, data, at, value % 2 ** (8 * size))


def damage_bytes(rng: Random, data: bytearray) -> str:
    """Change some bytes, cut a file, or put something in; return what was done."""
    way = rng.randrange(7)
    if way == 0:
        del data[rng.randrange(len(data)) :]
        return "cut"
    if way == 1:
        data += rng.randbytes(rng.randrange(1, 100))
        return "longer"
    if way == 2:
        at, size = rng.randrange(len(data)), rng.randrange(1, 60)
        data[at : at + size] = bytes(size) if rng.randrange(2) else rng.randbytes(size)
        return "block"
    if way == 3:
        at = rng.randrange(len(data))
        del data[at : at + rng.randrange(1, 20)]
        return "shifted"
    if way == 4:
        other = seed(rng.choice(NAMES))[0]
        at = rng.randrange(len(data))
        data[at:] = other[at:]
        return "spliced"
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at = rng.randrange(min(8, len(data)) if rng.randrange(20) == 0 else len(data))
        data[at] = rng.choice((data[at] ^ (1 << rng.randrange(8)), 0, 255, rng.randrange(256)))
    return "flipped"


def damage_tags(rng: Random, data: bytearray) -> str:
    """Change entries, values or links of the directories of a file; return what was done."""
    entries, links = layout(bytes(data))
    strips = [one for one in entries if one.code in STRIPS]
    done = []
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        entry = rng.choice(entries)
        order, size = entry.order, 8 if entry.big else 4
        way = rng.choice(("link", "type", "count", "code", "strips", "value", "value", "value"))
        if way == "link":
            at = rng.choice(links)
            goals = (0, 0, 8, at, len(data), len(data) - 2, *links, *NUMBERS[-6:])
            set_number(data, at, order, size, rng.choice(goals))
        elif way == "type":
            set_number(data, entry.at + 2, order, 2, rng.choice((*range(20), 255, 65535)))
        elif way == "count":
            count = rng.choice((*NUMBERS, entry.count + 1, max(entry.count - 1, 0)))
            set_number(data, entry.at + 4, order, size, count)
        elif way == "code":
            set_number(data, entry.at, order, 2, rng.choice(CODES))
        elif way == "value" and entry.kind == 2 and rng.randrange(2):
            lie_in_text(rng, data, entry)
        else:
            entry = rng.choice(strips) if way == "strips" and strips else entry
            change_value(rng, data, entry)
            way = "strips" if entry.code in STRIPS else "value"
        done.append(way)
    return "+".join(done)


def change_value(rng: Random, data: bytearray, entry: Any) -> None:
    """Change one value of an entry, or where its values are."""
    size = {3: 2, 8: 2, 4: 4, 5: 4, 9: 4, 16: 8}.get(entry.kind, 1)
    number = max(1, min(entry.count * (2 if entry.kind == 5 else 1), 300))
    at = entry.value_at + size * rng.randrange(number)
    old = int.from_bytes(data[at : at + size], "little" if entry.order == "<" else "big")
    value = rng.choice((*NUMBERS, old + 1, max(old - 1, 0), old * 2, old // 2, len(data)))
    set_number(data, at, entry.order, size, value)


def lie_in_text(rng: Random, data: bytearray, entry: Any) -> None:
    """Change a number in a text, as ``images=3``."""
    text = bytes(data[entry.value_at : entry.value_at + entry.count])
    found = list(re.finditer(rb"\d+", text))
    if found:
        place = rng.choice(found)
        digits = len(place[0])
        new = rng.choice((b"9" * digits, b"0" * digits, b"-" + b"1" * (digits - 1), b"e" * digits))
        data[entry.value_at + place.start() : entry.value_at + place.end()] = new[:digits]


_SIZES = ("", "0", "-1", "1", "2", "99", "2147483647", "9" * 30, "1e3", "nan", "x")
_WORDS = (*_SIZES, "uint8", "complex", "XYZCT", "XX", TWIN, "true", "Image:0", "&unknown;", "]]>")


def lie_in_xml(rng: Random, xml: str, names: tuple[str, ...]) -> str:
    """Change attributes, remove or repeat elements, or break the XML."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        way = rng.randrange(10)
        pairs = list(re.finditer(r'(\w+)="([^"]*)"', xml))
        tags = list(re.finditer(r"<(?!\?|/)[^<>]+?>", xml))
        if way < 2:
            some = [one for one in pairs if one[1].startswith(("Size", "First"))]
            xml = _with_value(rng, xml, some, _SIZES)
        elif way < 4 and "<TiffData" in xml and "FileName" not in xml:
            uuid = "urn:uuid:" + rng.choice(("1" * 8, "2" * 8 + "-2222" * 3 + "-" + "2" * 12))
            inside = f'<UUID FileName="{rng.choice(names)}">{uuid}</UUID>'.replace("\\", "/")
            told = rf"<TiffData\1>{inside}</TiffData>"
            xml = re.sub(r"<TiffData([^>]*?)/?>(</TiffData>)?", told, xml, count=1)
        elif way < 4:
            xml = _with_value(rng, xml, [one for one in pairs if one[1] == "FileName"], names)
        elif way < 6:
            xml = _with_value(rng, xml, pairs, _WORDS)
        elif way < 8 and tags:
            one = rng.choice(tags)
            xml = xml[: one.start()] + rng.choice(("", one[0] * 2, "<", "<A>")) + xml[one.end() :]
        else:
            at = rng.randrange(len(xml) + 1)
            xml = xml[:at] + rng.choice(_WORDS) + xml[at:] if rng.randrange(2) else xml[:at]
    return xml


def _with_value(rng: Random, xml: str, some: list[re.Match], values: tuple[str, ...]) -> str:
    """Return XML with another value of one of these attributes."""
    if not some:
        return xml
    one = rng.choice(some)
    return f"{xml[: one.start(2)]}{rng.choice(values)}{xml[one.end(2) :]}"


def bytes_case(rng: Random, folder: Path) -> Case:
    """A file with some bytes changed."""
    return damaged(rng, folder, rng.choice(NAMES), damage_bytes)


def tags_case(rng: Random, folder: Path) -> Case:
    """A file whose tags were changed."""
    return damaged(rng, folder, rng.choice(NAMES), damage_tags)


def damaged(rng: Random, folder: Path, name: str, damage: Any) -> Case:
    """Write a damaged file, and the one beside it if it is of a set; return how it is read."""
    data, beside, pixels = seed(name)
    data = bytearray(data)
    done = damage(rng, data)
    (folder / "data" / "in.tif").write_bytes(data)
    if beside:
        (folder / "data" / TWIN).write_bytes(beside)
    same = bytes(data) == seed(name)[0]
    # What says how large the image is was left alone: nothing may be missing without a word.
    known = not same and (
        done in ("cut", "strips") or (name in DECLARED and set(done.split("+")) == {"link"})
    )
    return reading(rng, folder, f"{name}, {done}", pixels if known else None)


def ome_case(rng: Random, folder: Path) -> Case:
    """An OME-TIFF whose XML was changed, as to name files elsewhere."""
    name = rng.choice(("OME", "OME set", "OME set", "ours OME"))
    data, beside, _ = seed(name)
    place = folder / "data" / "in.tif"
    secret, pipe = folder / "secret" / "1.ome.tif", folder / "data" / "pipe.tif"
    secret.write_bytes(beside or data)
    (folder / "data" / TWIN).write_bytes(beside or data)
    with contextlib.suppress(OSError, NotImplementedError):  # not every user of Windows may
        (folder / "data" / "link.tif").symlink_to(secret)
        (folder / "data" / "to").symlink_to(folder / "secret", target_is_directory=True)
    (folder / "data" / "below").mkdir()
    (folder / "data" / "below" / "1.ome.tif").write_bytes(beside or data)
    if hasattr(os, "mkfifo"):
        os.mkfifo(pipe)
    names = ("../secret/1.ome.tif", str(secret), "link.tif", "to/1.ome.tif", "pipe.tif", TWIN)
    names += (".", "below/1.ome.tif", "below/../../secret/1.ome.tif", "/etc/passwd", "/dev/zero")
    names += ("none.tif", "", "in.tif", f"file://{secret}", "x" * 300, "..\\secret\\1.ome.tif")
    xml = description(data)
    lied = lie_in_xml(rng, xml, names)
    place.write_bytes(with_description(data, lied))
    return reading(rng, folder, f"{name}, XML: {lied}", None)


def description(data: bytes) -> str:
    """Return the first description in a file."""
    entry = next(one for one in layout(data)[0] if one.code == 270)
    text = data[entry.value_at : entry.value_at + entry.count]
    return text.rstrip(b"\0").decode("utf-8", "replace")


def with_description(data: bytes, text: str) -> bytes:
    """Return a file with another first description, at its end."""
    changed = bytearray(data)
    entry = next(one for one in layout(data)[0] if one.code == 270)
    encoded = text.encode("utf-8", "replace") + b"\0"
    encoded += b"\0" * max(0, 9 - len(encoded))
    size = 8 if entry.big else 4
    set_number(changed, entry.at + 4, entry.order, size, len(encoded))
    set_number(changed, entry.at + (12 if entry.big else 8), entry.order, size, len(data))
    return bytes(changed) + encoded


def reading(
    rng: Random, folder: Path, told: str, pixels: np.ndarray | None, name: str = "in.tif"
) -> Case:
    """Return a case that reads a file in one of several ways.

    `pixels` are those it held before, if what is missing of them has to be told.
    """
    ways = (read_it, read_it, batch_it, batch_it, command_it)
    way = rng.choice(ways)
    given = {"dtype": rng.choice((None, None, "float32"))}
    large = not rng.randrange(3)

    def run() -> None:
        with as_large() if large else contextlib.nullcontext():
            way(folder / "data" / name, folder / "out", pixels, given)

    return Case(f"{way.__name__} {given}{', as large planes' * large}: {told}", run)


_STREAMED = request.Limits(streamed_bytes=0)


@contextlib.contextmanager
def as_large(limits: request.Limits = _STREAMED) -> Iterator[None]:
    """Read and write each plane in regions, and each file part by part, however small it is."""
    planes = mock.patch.object(tiff_reading, "LARGE_PLANE", 1)
    with planes, mock.patch.object(request, "USUAL_LIMITS", limits):
        yield


def result(path: Path, out: Path) -> Path:
    """Return where the result of a file goes, in its format."""
    return out / ("out" + "".join(path.suffixes))


def read_it(path: Path, out: Path, pixels: np.ndarray | None, given: dict) -> None:
    """Read a file, and write its pixels again."""
    picture = gd.read(path)
    data = picture.data
    if data.ndim != len(picture.axes) or data.size == 0:
        raise Loss(f"pixels of shape {data.shape} have axes {picture.axes}")
    if pixels is not None and not picture.notes:
        compare(data, pixels)
    if data.dtype.kind not in "iuf":
        return
    gd.write(result(path, out), data, picture)
    again = gd.read(result(path, out))
    if again.data.dtype != data.dtype or not np.array_equal(
        again.data, data, equal_nan=data.dtype.kind in "fc"
    ):
        raise Loss(f"{data.dtype} {data.shape} was written as {again.data.shape}, or changed")


def compare(data: np.ndarray, pixels: np.ndarray) -> None:
    """Raise `Loss` if planes or blocks of pixels are missing: no pixel of the seeds is 0."""
    if data.size < pixels.size:
        raise Loss(f"{data.shape} of {pixels.shape} pixels were read, and no note tells it")
    width = math.prod(data.shape[-2:]) if data.shape[-1] < 5 else data.shape[-1]
    empty = ~data.reshape(-1, width).any(axis=1)
    # Strips have four rows or more; zeros elsewhere in the file may be read for one or two.
    if np.convolve(empty, np.ones(4), "valid").max(initial=0) == 4:
        raise Loss("four rows of pixels were read as 0, and no note tells it")


def batch_it(path: Path, out: Path, pixels: np.ndarray | None, given: dict) -> None:
    """Denoise a file in a batch."""
    report = gd.run_batch(path, gd.NLMeans(**SMALL), 10, output=result(path, out), **given)
    (file,) = report.files
    repr(report.as_dict())
    if file.error is not None:
        raise file.error
    checked(path, file.output, pixels, file.notes, given)


def checked(path: Path, output: Path, pixels: Any, notes: tuple, given: dict) -> None:
    """Raise `Loss` if a result is not of the shape and type of its input."""
    before, after = gd.read(path), gd.read(output)
    dtype = before.data.dtype if given["dtype"] is None else np.dtype(given["dtype"])
    # Where rounding would cost quality, the result of integers is float32.
    kinds = {dtype, np.dtype(np.float32)} if given["dtype"] is None else {dtype}
    if before.data.shape != after.data.shape or after.data.dtype not in kinds:
        raise Loss(
            f"{before.data.dtype} {before.data.shape} became {after.data.dtype} {after.data.shape}"
        )
    if len(after.history) <= len(before.history):
        raise Loss("the result holds no record")
    if pixels is not None and not notes:
        compare(before.data, pixels)


def command(arguments: list[str]) -> tuple[int, str, str]:
    """Run the command line; raise what it says should not happen."""
    said, complained = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
        code = cli.main(arguments)
    told = complained.getvalue()
    if "Traceback" in told or "should not happen" in told or code == 1:
        lines = [line for line in told.splitlines() if line.strip()]
        raise RuntimeError(f"exit code {code}: {' / '.join(lines[-4:])}")
    if code and not told.strip():
        raise Loss(f"exit code {code} without a word")
    return code, said.getvalue(), told


def command_it(path: Path, out: Path, pixels: np.ndarray | None, given: dict) -> None:
    """Denoise a file with the command line."""
    target = result(path, out)
    dtype = ["--dtype", given["dtype"]] if given["dtype"] else []
    code, said, told = command(["nl-means", str(path), "-o", str(target), *OPTIONS, *dtype])
    if code:
        raise gd.errors.DenoiseError(told)
    notes = tuple(line for line in said.splitlines() if line.strip().startswith("note"))
    checked(path, target, pixels, notes, given)
