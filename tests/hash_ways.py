"""Print the SHA-256 of what every filter gives by every way; compare it with an earlier commit.

    python tests/hash_ways.py --output before.json
    python tests/hash_ways.py --compare before.json --only bm3d

The cases are those of test_ways.py. Hashes hold for one device and its driver, so none are stored
in the repository: run the script before and after a change that must not change a bit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import napari_gpu_denoise as gd
import test_ways
from napari_gpu_denoise.run import request
from scenes import SMALL_PARTS


def digest(image: np.ndarray) -> str:
    """Return the hash of the values, the shape and the type of an array."""
    described = f"{image.dtype.str} {image.shape}".encode()
    return hashlib.sha256(described + np.ascontiguousarray(image).tobytes()).hexdigest()


def hashes(only: str) -> Iterator[tuple[str, str]]:
    """Yield names that hold a text, and hashes or errors."""
    device = gd.choose()
    for noise, ways in test_ways.WAYS_BY_NOISE.items():
        for kind, axes, changes in test_ways.CASES:
            settings = test_ways.settings_of(kind, axes, changes)
            case = noise(settings, axes, device)
            for way in (None, *ways):
                name = test_ways.named(noise, kind, axes, changes, *([way] if way else []))
                if only not in name:
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    try:
                        yield name, digest(way(case, Path(folder)) if way else case.whole)
                    except gd.errors.DenoiseError as error:
                        yield name, repr(error)


def main() -> int:
    """Hash what the command line asks for; return 1 if anything differs from an earlier run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="store the hashes in this file")
    parser.add_argument("--compare", type=Path, help="hashes of an earlier run")
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    args = parser.parse_args()

    found = {}
    request.USUAL_LIMITS = SMALL_PARTS
    for name, value in hashes(args.only):
        found[name] = value
        print(value, name, flush=True)
    if args.output:
        args.output.write_text(json.dumps(found, indent=1))
    if not args.compare:
        return 0
    before = json.loads(args.compare.read_text())
    wanted = {name: value for name, value in before.items() if args.only in name}
    differing = [n for n in sorted(wanted.keys() | found) if wanted.get(n) != found.get(n)]
    print(*(f"differs: {name}" for name in differing), sep="\n")
    print(f"{len(differing)} of {len(wanted.keys() | found)} differ")
    return bool(differing)


if __name__ == "__main__":
    sys.exit(main())
