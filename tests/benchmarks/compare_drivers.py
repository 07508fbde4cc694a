"""Compare the results of OpenCL drivers, with their own kernels and with those for GPUs.

    python tests/benchmarks/compare_drivers.py --folder FOLDER [--device NAME] --save
    python tests/benchmarks/compare_drivers.py --folder FOLDER [--device NAME]

The first saves the results that others are compared with. Prints a row for each case: PSNR, and
the largest difference from the saved result in grey levels. Kernels are optimised as users have
them; a CPU poses as a GPU, see tests/filters/test_gpu_kernels. Each result is made in a process of
its own: compilers may crash. scripts/test_drivers.sh runs this.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from tables import show

from filters.sessions import as_gpu
from filters.test_gpu_kernels import CASES, denoised, given
from scenes import psnr, scene


def save_result(name: str, device: str | None, kernels: str, path: Path) -> None:
    """Save what becomes of one case."""
    import napari_gpu_denoise as gd

    settings, image, axes, sigma, limits = given(name)
    chosen = gd.choose(device)
    used = as_gpu(chosen, **limits) if kernels == "GPU" else chosen
    np.save(path, denoised(image, settings, sigma, axes, used))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, required=True, help="where results are saved")
    parser.add_argument("--device", help="a part of the name of the device")
    parser.add_argument("--save", action="store_true", help="save the results to compare with")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for each result")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        name, kernels, path = asked.worker
        save_result(name, asked.device, kernels, Path(path))
        return
    asked.folder.mkdir(parents=True, exist_ok=True)
    head = ["case", "kernels", "PSNR, dB", "largest difference", "seconds, first call"]
    kinds = ["own"] if asked.save else ["own", "GPU"]
    show(head, ([name, each, *compared(name, each, asked)] for name in CASES for each in kinds))


def compared(name: str, kernels: str, asked: argparse.Namespace) -> list:
    """Return PSNR of a case, the largest difference from what is saved, and seconds; or why not."""
    kept = asked.folder / f"{name}.npy"
    path = kept if asked.save else asked.folder / "result.npy"
    path.unlink(missing_ok=True)
    command = [sys.executable, __file__, "--folder", str(asked.folder)]
    command += ["--device", asked.device] if asked.device else []
    command += ["--worker", name, kernels, str(path)]
    begun = time.perf_counter()
    try:
        run = subprocess.run(command, timeout=asked.limit, capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        return [f"no result within {asked.limit:.0f} s", "", ""]
    if run.returncode:
        return [f"failed ({run.returncode}): {' '.join(run.stderr[-200:].split())}", "", ""]
    seconds, result = time.perf_counter() - begun, np.load(path)
    largest = np.abs(result - np.load(kept)).max()
    return [f"{psnr(result, scene(*CASES[name][1])):.3f}", f"{largest:.4f}", f"{seconds:.1f}"]


if __name__ == "__main__":
    main()
