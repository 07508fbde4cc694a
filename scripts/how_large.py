"""Work out the table of docs/guide/how_large.md from the figures in docs/performance.md.

    python scripts/how_large.py            # print it
    python scripts/how_large.py --write    # put it into the page

A figure that is no longer found in docs/performance.md is an error: change its pattern here.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import napari_gpu_denoise as gd
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.run.job import start
from napari_gpu_denoise.run.part import Part, regions_of, size_of
from napari_gpu_denoise.run.request import Run

_DOCS = Path(__file__).parents[1] / "docs"
_PAGE, _FIGURES = _DOCS / "guide" / "how_large.md", _DOCS / "performance.md"
_IMAGE, _VIDEO, _VOLUME = 4608 * 3456, 960 * 540, 256**3
_BYTES = 2  # of a pixel, uint16
_BUS = 42.0  # GB/s, in both directions at once


@dataclass(frozen=True)
class Figure:
    """A measured time of a filter, in milliseconds for so many pixels.

    It is in a section of the page, either in the cell of a table, by the start of its row and the
    number of its column, or in the text before its `words`.
    """

    filter: Filter
    pixels: int
    section: str
    row: str = ""
    column: int = 1
    words: str = ""

    @property
    def title(self) -> str:
        """Name of the filter, with the profile if it is not the first."""
        profile, _ = self.filter.nearest_profile()
        shown = "" if profile == next(iter(type(self.filter).presets)) else f", `{profile}`"
        return f"{self.filter.title}{shown}"

    def seconds_per_pixel(self, text: str) -> float:
        """Return the device time of a pixel, as measured."""
        start = text.find(f"{self.section}\n")
        part = text[start : text.find("\n## ", start + 3)]
        if self.words:
            found = re.search(rf"([\d.]+) ms {re.escape(self.words)}", part.replace("\n", " "))
        else:
            lines = (line for line in part.splitlines() if line.startswith(f"| {self.row} |"))
            cells = next(lines, "").split("|")
            found = re.search(r"([\d.]+)", "".join(cells[self.column + 1 : self.column + 2]))
        if start < 0 or found is None:
            raise SystemExit(f"{_FIGURES} no longer has the figure of {self.title}.")
        return float(found[1]) / 1e3 / self.pixels


_ALL = "**device time**"
FIGURES = (
    Figure(gd.NLMeans(), _IMAGE, "## NL-means on a GPU", _ALL),
    Figure(gd.NLMeansPixelwise(), _IMAGE, "## Pixelwise NL-means", "default: patch 5, window 13"),
    Figure(
        gd.NLMeans.of(profile="video"),
        _VIDEO,
        "## Video on a GPU",
        "NL-means, `video`",
    ),
    Figure(gd.Isoline(), 1920 * 1080, "## Isoline", _ALL, 2),
    Figure(gd.BM3D.of(profile="live"), _IMAGE, "## BM3D on a GPU", _ALL),
    Figure(gd.BM3D.of(profile="fast"), _IMAGE, "## BM3D on a GPU", _ALL, 2),
    Figure(gd.BM3D(), _IMAGE, "## BM3D on a GPU", _ALL, 3),
    Figure(gd.BM3D.of(profile="high"), _IMAGE, "## BM3D on a GPU", _ALL, 5),
    Figure(gd.VBM3D.of(profile="fast"), _VIDEO, "## Video on a GPU", "`fast`"),
    Figure(gd.VBM3D(), _VIDEO, "## Video on a GPU", "VBM3D"),
    Figure(gd.BM4D.of(profile="fast"), _VOLUME, "## BM4D", "**all**", 3),
    Figure(gd.BM4D(), _VOLUME, "## BM4D", "**all**"),
    Figure(gd.SWNLM(), _IMAGE, "## Shapiro-Wilk NL-means", words="(defaults) at"),
)


class Large:
    """An array of a shape, in chunks, that holds nothing."""

    def __init__(self, shape: tuple[int, ...], chunks: tuple[int, ...]) -> None:
        self.shape, self.chunks, self.dtype, self.ndim = shape, chunks, np.dtype("u2"), len(shape)

    def __getitem__(self, index: object) -> np.ndarray:
        shape = np.broadcast_to(False, self.shape)[index].shape
        return np.random.default_rng(0).integers(900, 1100, shape, self.dtype)


def read_again(filter: Filter) -> float:
    """Return how many pixels are read for each that is yielded, of an OME-Zarr in parts."""
    shape, chunks = (40, 40, 2048, 2048), (1, 1, 1024, 1024)
    run = Run(filter, 20.0, axes="TZYX", dtype="same")
    job = start(run, Large(shape, chunks))
    size = size_of(job, chunks, [None])
    parts = [Part.of(job, region) for region in regions_of(job, size)]
    read = sum(math.prod(s.stop - s.start for s in part.reads) for part in parts)
    return read / math.prod(shape)


def table() -> str:
    """Return the table."""
    text = _FIGURES.read_text(encoding="utf-8")
    rows = []
    for figure in FIGURES:
        again = read_again(figure.filter)
        each = figure.seconds_per_pixel(text) * again
        gigabyte = each * 1e9 / _BYTES
        speed = 1 / gigabyte
        bound = "device" if speed < _BUS / again else "bus"
        moved = f"{again:.2f} + 1"
        days = gigabyte * 1e6 / 86400
        rows.append([figure.title, f"{gigabyte:.3g}", f"{speed:.3g}", f"{days:.3g}", moved, bound])
    head = [
        "filter",
        "device seconds for 1 GB",
        "GB/s",
        "days for 1 PB",
        "GB moved for 1 GB",
        "bound",
    ]
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"put the table into {_PAGE.name}")
    if not parser.parse_args().write:
        print(table())
        return
    between = re.compile(r"(<!-- cost -->\n).*?(<!-- end -->)", re.DOTALL)
    page = _PAGE.read_text(encoding="utf-8")
    page, count = between.subn(rf"\g<1>\n{table()}\n\n\g<2>", page)
    if count != 1:
        sys.exit(f"{_PAGE} has no place for the table.")
    _PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
