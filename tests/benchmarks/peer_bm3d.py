"""Settings that the benchmarks of BM3D measure, and the `bm3d` package of the registry.

That is a closed binary that runs on the CPU, for non-commercial use and never a dependency: install
it by hand, in an environment of its own. Scores are kept in a file, since it takes seconds a
picture and does not change.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from napari_gpu_denoise.filters.bm3d.filter import BM3D

if TYPE_CHECKING:
    from cases import Case

PROFILES = ("live", "fast", "normal", "high", "fixed")
# The fixed parameters of Davy and Ehret 2020, but for their limits of similarity.
FIXED = {
    **{"step_basic": 3, "window_basic": 39, "neighbours_basic": 16, "transform_basic": "dct"},
    **{"step_final": 3, "window_final": 39, "neighbours_final": 32, "transform_final": "dct"},
    **{"stack_basic": "hadamard", "stack_final": "hadamard"},
    **{"threshold": 2.7, "wiener_sigma": 1.0},
}
# "fast" is what our profile of that name uses: patches 8 x 8, groups of up to 8.
OF_PACKAGE: dict[str, dict[str, int]] = {
    "np": {},
    "fast": {
        **{"step_ht": 4, "search_window_ht": 21, "max_3d_size_ht": 8},
        **{"step_wiener": 4, "search_window_wiener": 21, "max_3d_size_wiener": 8},
    },
}


def settings_of(profile: str) -> BM3D:
    """Return the settings of a profile, or those named "fixed"."""
    return BM3D.of(**FIXED) if profile == "fixed" else BM3D.of(profile=profile)


def run_package(noisy: np.ndarray, sigma: float, profile: str) -> np.ndarray:
    """Filter a picture of levels 0 to 255, grey (y, x) or colour (y, x, 3), with the package."""
    import bm3d

    settings = bm3d.BM3DProfile()
    for name, value in OF_PACKAGE[profile].items():
        setattr(settings, name, value)
    method = bm3d.bm3d_rgb if noisy.ndim == 3 else bm3d.bm3d
    # It is written for levels from 0 to 1.
    return 255 * method(noisy.astype(np.float64) / 255, sigma / 255, settings)


class PackageScores:
    """PSNR of the package, computed once and kept in a file."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        found = file is not None and file.exists()
        self.known: dict[str, float] = json.loads(file.read_text()) if found else {}

    def score(self, name: str, case: Case, seed: int, profile: str) -> float:
        """Return the PSNR; NaN where it is not known and the package not installed."""
        key = f"{name}/{case.name}/{case.sigma:g}/{seed}/{profile}"
        if key not in self.known:
            if not find_spec("bm3d"):
                return float("nan")
            self.known[key] = case.score(run_package(case.noisy, case.sigma, profile))
            if self.file is not None:
                self.file.write_text(json.dumps(self.known, indent=1) + "\n")
        return self.known[key]
