"""``gpu-denoise recommend``: which filter suits a file, and the command that runs it."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from napari_gpu_denoise import errors
from napari_gpu_denoise.cli.failures import complain, exit_code, sentence
from napari_gpu_denoise.cli.noise import to_measure

if TYPE_CHECKING:
    from napari_gpu_denoise.filters.advice.recommend import Advice


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that no other command has."""
    parser.add_argument(
        "--effort",
        choices=("fast", "normal", "high"),
        help="profile to recommend; default: normal, or fast if that would take too long",
    )
    parser.set_defaults(run=recommend)


def recommend(args: argparse.Namespace) -> int:
    """Recommend a filter for each input."""
    from napari_gpu_denoise.files.inputs import find_files

    codes, found = [], []
    for path in find_files(args.inputs):
        try:
            advice = _advice(path, args)
        except errors.DenoiseError as error:
            codes.append(exit_code(error))
            complain(sentence(error, path))
            continue
        line = command(path, advice, args.axes)
        found.append({"input": str(path), **advice.as_dict(), "command": line})
        if not args.json:
            print(path)
            for row in advice.summary().splitlines():
                print(f"  {row}")
            print(f"  {'command':<11} {line}")
    if args.json:
        print(json.dumps(found, indent=2))
    return codes[0] if codes else 0


def command(path: Path, advice: Advice, axes: str | None = None) -> str:
    """Return the command line that follows the advice; its result lies beside the file."""
    from napari_gpu_denoise.files.inputs import beside
    from napari_gpu_denoise.protocol.settings import as_options

    name = advice.filter.name.replace("_", "-")
    words = ["gpu-denoise", name, str(path), "-o", beside(path, name)]
    words += [] if axes is None else ["--axes", axes]
    words += as_options(advice.filter.as_arguments())
    return shlex.join(words)


def _advice(path: Path, args: argparse.Namespace) -> Advice:
    from napari_gpu_denoise.files import formats
    from napari_gpu_denoise.filters.advice.recommend import recommend as advise

    with formats.open_stack(path) as picture:
        held, names, _ = to_measure(picture, args.axes)
        return advise(held.pixels, names, effort=args.effort, device=args.device)
