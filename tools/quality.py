"""Compare a filter with published results, or show what it leaves of pure noise.

    python tools/quality.py SET FOLDER [--filter bm3d|nl-means|vbm3d] [--told] [--csv FILE]
    python tools/quality.py noise [--csv FILE]

docs/quality.md has the sets, with the layouts of their folders, and results.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import math
import os
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import published
from napari_gpu_denoise import cli
from napari_gpu_denoise.cli.options import add as add_options
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.files.formats import open_stack
from napari_gpu_denoise.files.input_checks import check_memory, open_image, read_files, reading
from napari_gpu_denoise.files.output import check_output, new_file
from napari_gpu_denoise.files.tiff import FORMAT as TIFF
from napari_gpu_denoise.filters import filters_for
from napari_gpu_denoise.opencl.device import choose_devices
from napari_gpu_denoise.version import package_version
from published import SETS

# Held of a value of an image, as float64 mostly, while it is compared with its truth.
_BYTES_COMPARED = 40


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script as the command line is run: with its exit codes, and errors in a sentence."""
    return cli.main(argv, build_parser)


def build_parser(argv: object = ()) -> argparse.ArgumentParser:
    """Return the parser; the namespace it makes holds ``run``. It is the same for any `argv`."""
    parser = argparse.ArgumentParser("quality.py", description=__doc__.partition("\n")[0])
    add = parser.add_argument
    names = f"{', '.join(SETS)}, or noise for images without objects"
    add("set", metavar="SET", choices=(*SETS, "noise"), help=names)
    add("folder", metavar="FOLDER", nargs="?", type=Path, help="folder with the files of the set")
    about = "filter to run (default: bm3d, of videos vbm3d)"
    add("--filter", choices=("bm3d", "nl-means", "vbm3d"), help=about)
    add("--told", action="store_true", help="tell the filter the sigma of synthetic noise")
    add("--csv", metavar="FILE", type=Path, help="store the numbers of each image as CSV")
    add("--overwrite", action="store_true", help="replace an existing file")
    add_options(parser, "--device")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Compare a filter with published results, or show what it leaves of pure noise."""
    if (args.folder is None) != (args.set == "noise"):
        needed = "needs no folder" if args.folder else "needs the folder with its files"
        raise SettingsError(f"quality.py {args.set} {needed}.")
    if args.folder:
        for path in SETS[args.set].files(args.folder):
            check_picture(path)
            read_files.add(os.path.abspath(path))
    if args.csv:
        check_output(args.csv, overwrite=args.overwrite, keep=())
    device = " and ".join(map(str, choose_devices(args.device)))
    print(f"napari-gpu-denoise {package_version()} on {device}")
    if args.set == "noise":
        head, rows = "scene,filter,variance kept,bright before,bright after,highest", []
        print(
            f"{'scene':<16}{'filter':<16}{'variance kept':>14}{'bright maxima':>16}{'highest':>9}"
        )
        for score in published.noise_scores(args.device):
            rows.append(score)
            print(
                f"{score.scene:<16}{score.filter:<16}{score.kept:>14.5f}"
                f"{f'{score.before} -> {score.after}':>16}{score.highest:>9.2f}",
                flush=True,
            )
        print("Bright maxima lie more than 4 sigma of the noise above the mean; highest: in sigma.")
    else:
        head, rows = "image,noise,noisy dB,result dB", _compare(args)
    if args.csv:
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow((head + ",version,device").split(","))
        writer.writerows((*row, package_version(), device) for row in rows)
        with new_file(args.csv, overwrite=args.overwrite) as file:
            file.write(text.getvalue().encode("utf-8"))
    return 0


def _compare(args: argparse.Namespace) -> list[tuple]:
    """Print means of a set beside those that are published; return a row for each image."""
    known = SETS[args.set]
    name = (args.filter or known.filter).replace("-", "_")
    settings, video = filters_for(name)[0](), bool(known.frames)
    rows, noisy, ours, complete = [], [], [], True
    for level in known.levels:
        scores, shapes = [], []
        for case in known.read(args.folder, level):
            result = published.filtered(case, settings, args.told, args.device, video)
            images = (case.noisy, result)
            scores.append([published.psnr(each, case.clean, video, known.fit) for each in images])
            shapes.append(case.clean.shape)
            rows.append((case.name, level, *(f"{score:.4f}" for score in scores[-1])))
        complete &= known.is_complete(shapes)
        for means, values in zip((noisy, ours), zip(*scores, strict=True), strict=True):
            means.append(sum(values) / len(values))
    total = sum(known.shapes.values())
    what = "videos" if video else "images"
    fitted = ", after an affine fit" if known.fit else ""
    print(f"{known.title}, {len(scores)} of {total} {what}; mean PSNR in dB, peak 255{fitted}")
    heads = [level or "real noise" if known.pairs else f"sigma {level:g}" for level in known.levels]
    told = "sigma told" if args.told and not known.pairs else "nothing told"
    table = {"noisy": noisy, **known.rows, f"{settings.title} here, {told}": ours}
    print(f"{'':<34}" + "".join(f"{head:>12}" for head in heads))
    for method, means in table.items():
        print(f"{method:<34}" + "".join(f"{mean:>12.2f}" for mean in means))
    print(f"Source: {known.source}.")
    if not known.pairs:
        print(f"Noise: seed {published.SEED} for each {what[:-1]}, neither rounded nor clipped.")
    if not complete:
        print(
            f"Note: {what} are missing or of other sizes: do not compare these means with others."
        )
    elif known.noisy:
        pairs = zip(noisy, known.noisy, strict=True)
        same = all(abs(mean - expected) <= known.tolerance for mean, expected in pairs)
        expected = " / ".join(f"{mean:g}" for mean in known.noisy)
        print(
            f"The noisy mean is {'as expected' if same else 'not as expected'} ({expected} dB)"
            f"{'.' if same else ': this is another version of the set.'}"
        )
    return rows


def check_picture(path: Path) -> None:
    """Refuse what is no PNG, JPEG, BMP or TIFF, or whose comparison may not fit into memory."""
    with reading(path, "cut short, damaged, or no image"), open_image(path) as file:
        if TIFF.is_format(path):
            with open_stack(path) as picture:
                size = picture.data.size
        else:
            size = _values_declared(file)
    check_memory(size * _BYTES_COMPARED, path)


def _values_declared(file: BinaryIO) -> int:
    """Return how many values a PNG, BMP or JPEG may hold; 0 if its head is cut."""
    head, at = file.read(30), 2
    if not head.startswith((b"\x89PNG", b"BM", b"\xff\xd8")):
        raise ValueError("it has another format")
    with contextlib.suppress(struct.error):
        if head[:1] == b"\x89":
            return math.prod(struct.unpack(">II", head[16:24])) * 4
        if head[:1] == b"B":
            return abs(math.prod(struct.unpack("<ii", head[18:26]))) * 4
        while True:  # from segment to segment of a JPEG
            file.seek(at)
            mark, kind, length, _, ny, nx, colours = struct.unpack(">BBHBHHB", file.read(10))
            if mark == 0xFF and 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
                return ny * nx * colours
            at += 1 if mark != 0xFF or kind == 0xFF else 2 + length
    return 0


if __name__ == "__main__":
    sys.exit(main())
