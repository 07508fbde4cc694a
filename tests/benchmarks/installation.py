"""Print size and seconds of installing the package into an empty environment, with each extra.

    python tests/benchmarks/installation.py [--extras zarr all]

Seconds are those of ``pip install``, which fetches and compiles; megabytes (10**6 bytes) those of
all that it installs. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from pathlib import Path

from tables import show

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Run from the command line."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    offered = [
        name
        for name in project["optional-dependencies"]
        if name not in ("benchmark", "docs", "test")
    ]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--extras", nargs="*", default=offered)
    extras = parser.parse_args().extras
    python = ".".join(map(str, sys.version_info[:2]))
    print(f"Python {python}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        run("-m", "build", "--wheel", "--outdir", folder, str(ROOT))
        (wheel,) = Path(folder).glob("*.whl")
        rows = [["none", *installed(str(wheel))]]
        rows += [[f"`[{extra}]`", *installed(f"{wheel}[{extra}]")] for extra in extras]
        print(f"Wheel: {wheel.stat().st_size / 1e6:.1f} MB")
    show(["extra", "MB", "seconds", "packages"], rows)


def installed(wanted: str) -> list[str]:
    """Return megabytes, seconds and number of packages of what is wanted, and all it needs."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, symlinks=os.name != "nt")
        before = time.perf_counter()
        run("-m", "pip", "--python", folder, "install", "--quiet", wanted)
        seconds = time.perf_counter() - before
        size = sum(file.lstat().st_size for file in Path(folder).rglob("*"))
        packages = len(list(Path(folder).rglob("*.dist-info")))
    return [f"{size / 1e6:.0f}", f"{seconds:.0f}", str(packages)]


def run(*arguments: str) -> None:
    """Run Python, and end with what it printed if it fails."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)


if __name__ == "__main__":
    main()
