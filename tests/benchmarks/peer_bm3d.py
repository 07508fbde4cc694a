"""The `bm3d` package of the registry beside ours: a closed binary that runs on the CPU.

It is for non-commercial use and never a dependency: install it by hand, in an environment of its
own. Scores are kept in a file, since it takes seconds a picture and does not change.
"""

from __future__ import annotations

import json
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from cases import Case

# "fast" is what our profile of that name uses: patches 8 x 8, groups of up to 8.
PROFILES = {
    "np": {},
    "fast": {
        "step_ht": 4,
        "step_wiener": 4,
        "search_window_ht": 21,
        "search_window_wiener": 21,
        "max_3d_size_ht": 8,
        "max_3d_size_wiener": 8,
    },
}


def installed() -> bool:
    """Return whether the package can be imported."""
    return find_spec("bm3d") is not None


def run(noisy: np.ndarray, sigma: float, profile: str) -> np.ndarray:
    """Filter a picture of levels 0 to 255, grey (y, x) or colour (y, x, 3), with the package."""
    import bm3d

    settings = bm3d.BM3DProfile()
    for name, value in PROFILES[profile].items():
        setattr(settings, name, value)
    method = bm3d.bm3d_rgb if noisy.ndim == 3 else bm3d.bm3d
    # It is written for levels from 0 to 1.
    return 255 * method(noisy.astype(np.float64) / 255, sigma / 255, settings)


class PeerScores:
    """PSNR and seconds of the package, computed once and kept in a file."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        found = file is not None and file.exists()
        self.known: dict[str, dict[str, float]] = json.loads(file.read_text()) if found else {}

    def score(self, name: str, case: Case, seed: int, profile: str) -> tuple[float, float] | None:
        """Return PSNR and seconds; None where they are not known and the package not installed."""
        key = f"{name}/{case.name}/{case.sigma:g}/{seed}/{profile}"
        if key not in self.known:
            if not installed():
                return None
            start = time.perf_counter()
            result = run(case.noisy, case.sigma, profile)
            seconds = time.perf_counter() - start
            self.known[key] = {"psnr": case.score(result), "seconds": seconds}
            if self.file is not None:
                self.file.write_text(json.dumps(self.known, indent=1) + "\n")
        return self.known[key]["psnr"], self.known[key]["seconds"]
