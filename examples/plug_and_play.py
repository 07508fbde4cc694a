"""Deblur a slice of an MRI with BM3D as the prior: plug-and-play ADMM by SCICO.

    pip install scico
    python examples/plug_and_play.py [--compare]

The prior is never written down: where the iteration asks for its proximal operator, the estimate is
denoised. ``--compare`` also takes SCICO's own BM3D, of the package bm3d, whose licence excludes
commercial use.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import scico.numpy as snp
import tifffile
from scico import functional, linop, loss, metric
from scico.optimize.admm import ADMM, CircularConvolveSolver

import napari_gpu_denoise as gd

TRUTH = Path(__file__).parents[1] / "sample_data" / "mri_truth.tif"
WIDTH, SIGMA = 7, 0.01  # pixels of the blur, and noise of an image from 0 to 1
STRENGTH, PENALTY = 0.002, 0.05  # their ratio is the sigma that the denoiser is told
ITERATIONS = 12


class BM3D(functional.Functional):
    """A prior of which only the proximal operator is known: BM3D, for noise of sigma `lam`."""

    has_eval, has_prox = False, True

    def prox(self, v: snp.Array, lam: float = 1.0, **_: object) -> snp.Array:
        return snp.array(gd.bm3d(np.asarray(v), lam, dtype="float32"))


def deblurred(prior: functional.Functional, blurred: snp.Array, blur: linop.CircularConvolve):
    """Return the image that fits the blurred one and the prior, and seconds an iteration."""
    solver = ADMM(
        f=loss.SquaredL2Loss(y=blurred, A=blur),
        g_list=[STRENGTH * prior],
        C_list=[linop.Identity(blurred.shape)],
        rho_list=[PENALTY],
        x0=blurred,
        maxiter=1,
        subproblem_solver=CircularConvolveSolver(),
    )
    solver.solve()  # compiles
    solver.maxiter, start = ITERATIONS - 1, time.perf_counter()
    return solver.solve(), (time.perf_counter() - start) / (ITERATIONS - 1)


def main() -> None:
    """Print how near blurred and deblurred images are to the truth."""
    planes = tifffile.imread(TRUTH).astype(np.float32)
    truth = snp.array(planes[len(planes) // 2] / planes.max())
    blur = linop.CircularConvolve(np.full((WIDTH, WIDTH), 1 / WIDTH**2, np.float32), truth.shape)
    noise = np.random.default_rng(0).normal(0, SIGMA, truth.shape)
    blurred = blur(truth) + snp.array(noise.astype(np.float32))
    # The blur moves the image by half its width.
    unmoved = snp.roll(blurred, (-(WIDTH // 2),) * 2, (0, 1))
    print(f"blurred        PSNR {metric.psnr(truth, unmoved):5.2f} dB")
    priors = {"this package": BM3D()}
    if "--compare" in sys.argv:
        priors["package bm3d"] = functional.BM3D()
    for name, prior in priors.items():
        found, seconds = deblurred(prior, blurred, blur)
        print(f"{name:14} PSNR {metric.psnr(truth, found):5.2f} dB, {seconds:.2f} s an iteration")


if __name__ == "__main__":
    main()
