"""Compare the results of OpenCL drivers, with their own kernels and with those for GPUs.

    python tests/benchmarks/compare_drivers.py --folder FOLDER [--device NAME] --save
    python tests/benchmarks/compare_drivers.py --folder FOLDER [--device NAME] [--all]

The first saves the results that others are compared with. Prints a row for each filter: PSNR, and
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

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from filters.test_gpu_kernels import CASES, FURTHER, denoised, noisy_scene, posing  # noqa: E402


def save_result(name: str, device: str | None, kernels: str, path: Path) -> None:
    """Save what one filter makes of the scene."""
    import napari_gpu_denoise as gd

    chosen = gd.choose(device)
    np.save(path, denoised(name, posing(chosen) if kernels == "GPU" else chosen))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, required=True, help="where results are saved")
    parser.add_argument("--device", help="a part of the name of the device")
    parser.add_argument("--save", action="store_true", help="save the results to compare with")
    parser.add_argument("--all", action="store_true", help="further profiles as well")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for each result")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        name, kernels, path = given.worker
        save_result(name, given.device, kernels, Path(path))
        return
    given.folder.mkdir(parents=True, exist_ok=True)
    names = [*CASES, *FURTHER] if given.all or given.save else list(CASES)
    print("| filter | kernels | PSNR, dB | largest difference | seconds, first call |")
    print("| --- | --- | ---: | ---: | ---: |")
    for name in names:
        clean, _ = noisy_scene((CASES | FURTHER)[name][1])
        kept = given.folder / f"{name}.npy"
        for kernels in ["own"] if given.save else ["own", "GPU"]:
            path = kept if given.save else given.folder / "result.npy"
            path.unlink(missing_ok=True)
            command = [sys.executable, __file__, "--folder", str(given.folder)]
            command += ["--device", given.device] if given.device else []
            begun = time.perf_counter()
            try:
                run = subprocess.run(
                    [*command, "--worker", name, kernels, str(path)],
                    timeout=given.limit,
                    capture_output=True,
                    text=True,
                )
                failure = run.returncode and f"failed ({run.returncode}): {run.stderr[-200:]}"
            except subprocess.TimeoutExpired:
                failure = f"no result within {given.limit:.0f} s"
            if failure:
                print(f"| {name} | {kernels} | {' '.join(failure.split())} | | |", flush=True)
                continue
            result = np.load(path)
            psnr = 10 * np.log10(255**2 / np.mean((result - clean) ** 2))
            largest = np.abs(result - np.load(kept)).max()
            seconds = time.perf_counter() - begun
            print(
                f"| {name} | {kernels} | {psnr:.3f} | {largest:.4f} | {seconds:.1f} |", flush=True
            )


if __name__ == "__main__":
    main()
