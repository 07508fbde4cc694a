"""Compare `subspace` with MP-PCA and Patch2Self of dipy, on simulated series of which all is known.

    python tools/subspace.py HEAD.nii.gz [--directions 48] [--sigma 30] [--noise rician] [--moved]
    python tools/subspace.py flim

HEAD is a T1-weighted head without noise, such as colin27, of which a slab is taken. dipy and
scikit-learn, which are no dependencies, have to be installed; without them their filters and maps
are left out. Bias and spread are mean and standard deviation, over all voxels of the brain, of the
difference from maps of the series without noise. docs/methods/subspace.md has results.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import ndimage

import napari_gpu_denoise as gd
from napari_gpu_denoise import cli

B_VALUE = 1000.0  # s/mm²
_FREE, _ALONG, _ACROSS, _GREY = 3.0e-3, 1.7e-3, 0.3e-3, 0.8e-3  # diffusivities, mm²/s
_BORDER = 0.05  # change of the share of white matter from voxel to voxel
_S0 = 400.0  # grey level of white matter without diffusion weighting


class Series(NamedTuple):
    """A diffusion series (d, z, y, x) without noise, and how it was made."""

    clean: np.ndarray
    bvals: np.ndarray
    bvecs: np.ndarray  # (d, 3)
    brain: np.ndarray  # mask (z, y, x)
    white: np.ndarray  # share of white matter in each voxel
    signals: np.ndarray  # of white matter, grey matter and fluid in each voxel, (3, d, z, y, x)


def directions(count: int) -> np.ndarray:
    """Return unit vectors, evenly spread over half a sphere by a golden spiral, (count, 3)."""
    number = np.arange(count) + 0.5
    z = number / count
    angle = math.pi * (1 + math.sqrt(5)) * number
    across = np.sqrt(1 - z**2)
    return np.stack([across * np.cos(angle), across * np.sin(angle), z], axis=1)


def diffusion_series(
    head: np.ndarray, count: int = 48, without: int = 5, seed: int = 0, coherent: float = 8.0
) -> Series:
    """Return a series of a T1-weighted slab (z, y, x): fibres, some crossing, in white matter.

    White matter has one or two tensors whose directions turn within about twice `coherent` voxels;
    grey matter and fluid diffuse alike in all directions. `without` volumes precede it that are not
    diffusion-weighted.
    """
    rng = np.random.default_rng(seed)
    level = head / np.percentile(head[head > 0], 95)
    brain = ndimage.binary_opening(level > 0.15)
    white = 1 / (1 + np.exp(-(level - 0.88) / 0.03))
    grey = (1 - white) / (1 + np.exp(-(level - 0.6) / 0.04))
    fluid = np.clip(1 - white - grey, 0, 1)

    def field() -> np.ndarray:
        smooth = [
            ndimage.gaussian_filter(rng.standard_normal(head.shape), coherent) for _ in range(3)
        ]
        vector = np.stack(smooth, axis=-1)
        return vector / np.linalg.norm(vector, axis=-1, keepdims=True)

    first, second = field(), field()
    mixed = ndimage.gaussian_filter(rng.standard_normal(head.shape), coherent)
    share = 0.5 * (mixed > np.quantile(mixed, 0.6))  # of the second fibre
    bvecs = np.concatenate([np.zeros((without, 3)), directions(count)])
    bvals = np.where(bvecs.any(axis=1), B_VALUE, 0.0)
    signals = np.empty((3, len(bvals), *head.shape))
    for one, b, vector in zip(signals.swapaxes(0, 1), bvals, bvecs, strict=True):
        fibre = [
            np.exp(-b * (_ACROSS + (_ALONG - _ACROSS) * np.square(axis @ vector)))
            for axis in (first, second)
        ]
        one[0] = (1 - share) * fibre[0] + share * fibre[1]
        one[1], one[2] = 1.3 * np.exp(-b * _GREY), 2.2 * np.exp(-b * _FREE)
    signals *= _S0
    tissues = brain * np.stack([white, grey, fluid])
    clean = np.einsum("tzyx,tdzyx->dzyx", tissues, signals).astype(np.float32)
    return Series(clean, bvals, bvecs, brain, tissues[0], signals)


def with_lesions(made: Series) -> Series:
    """Return a series with cubes of 3 voxels in white matter that diffuse as grey matter does."""
    places = np.argwhere(ndimage.minimum_filter(made.white, 5) > 0.9)
    np.random.default_rng(0).shuffle(places)
    mask = np.zeros(made.brain.shape, bool)
    for place in places:
        if not mask[tuple(slice(max(0, k - 6), k + 7) for k in place)].any():
            mask[tuple(slice(k - 1, k + 2) for k in place)] = True
    decay = np.exp(-_GREY * made.bvals)[:, None, None, None]
    clean = np.where(mask, decay * made.clean[0], made.clean)
    return made._replace(clean=clean.astype(np.float32))


def moved(series: np.ndarray, seed: int = 0, most: float = 1.0) -> np.ndarray:
    """Return a series whose volumes are moved in any direction by up to so many voxels."""
    rng = np.random.default_rng(seed)
    steps = rng.standard_normal((len(series), 3))
    steps *= rng.uniform(0, most, (len(series), 1)) / np.linalg.norm(steps, axis=1, keepdims=True)
    pairs = zip(series, steps, strict=True)
    return np.stack(
        [ndimage.shift(volume, step, order=3, mode="nearest") for volume, step in pairs]
    )


def with_noise(
    clean: np.ndarray, sigma: float, kind: str = "gaussian", seed: int = 0
) -> np.ndarray:
    """Return a series with Gaussian or Rician noise, float32."""
    rng = np.random.default_rng(seed + 1000)
    real = clean + sigma * rng.standard_normal(clean.shape)
    if kind == "rician":
        real = np.hypot(real, sigma * rng.standard_normal(clean.shape))
    return real.astype(np.float32)


def lifetimes(
    size: int = 128, bins: int = 64, photons: float = 60.0, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return clean decays (h, y, x) of two lifetimes, as of FLIM, and the times of bins in ns."""
    rng = np.random.default_rng(seed)
    shape = size, size

    def smooth(width: float) -> np.ndarray:
        field = ndimage.gaussian_filter(rng.standard_normal(shape), width)
        return field / field.std()

    cells = smooth(14) > 0.2
    spots = smooth(4) > 1.2
    share = np.clip(0.5 + 0.25 * smooth(12) + 0.3 * spots, 0.02, 0.98)  # of the long lifetime
    bright = (0.15 + 1.0 * cells + 0.9 * spots) * np.exp(0.2 * smooth(8))
    bright *= photons / bright.mean()
    width = 12.5 / bins
    t = (np.arange(bins) + 0.5) * width
    decays = [np.exp(-t / tau) for tau in (1.0, 3.0)]
    decays = [d / d.sum() for d in decays]
    clean = bright * ((1 - share) * decays[0][:, None, None] + share * decays[1][:, None, None])
    return clean.astype(np.float32), t


def gain(noisy: np.ndarray, result: np.ndarray, clean: np.ndarray) -> float:
    """Return by how many dB the mean squared error has fallen."""

    def error(one: np.ndarray) -> float:
        return float(np.mean(np.square(one.astype(np.float64) - clean)))

    return 10 * math.log10(error(noisy) / error(result))


def tensors(series: np.ndarray, made: Series) -> tuple[np.ndarray, np.ndarray]:
    """Return fractional anisotropy and mean diffusivity (µm²/ms) of a fit by dipy."""
    from dipy.core.gradients import gradient_table
    from dipy.reconst.dti import TensorModel

    table = gradient_table(made.bvals, bvecs=made.bvecs)
    fit = TensorModel(table).fit(np.moveaxis(np.maximum(series, 1), 0, -1), mask=made.brain)
    return fit.fa[made.brain], 1000 * fit.md[made.brain]


def knowing_signals(series: np.ndarray, made: Series, sigma: float) -> np.ndarray:
    """Return a series (d, z, y, x) of which all is known but how much of each tissue voxels hold.

    Fractions of white and grey matter, the rest of which is fluid, are fitted in each voxel, and
    filtered by BM4D. No filter can know directions as well: this is what is left of its errors.
    """
    fluid = made.signals[2]
    tissues = made.signals[:2] - fluid
    powers = np.moveaxis(np.einsum("tdzyx,udzyx->tuzyx", tissues, tissues), (0, 1), (-2, -1))
    given = np.moveaxis(np.einsum("tdzyx,dzyx->tzyx", tissues, series - fluid), 0, -1)
    inverse = np.linalg.inv(powers)
    fractions = made.brain * np.moveaxis(np.einsum("zyxtu,zyxu->zyxt", inverse, given), -1, 0)
    spread = sigma * np.sqrt(np.einsum("zyxtt->zyxt", inverse)[made.brain].mean(axis=0))
    fractions = gd.bm4d(fractions, spread, axes="CZYX", profile="best", dtype="float32")
    return made.brain * (fluid + np.einsum("tzyx,tdzyx->dzyx", fractions, tissues))


def methods(made: Series, noise: gd.NoiseModel) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """Return functions of a noisy series (d, z, y, x), by name; those of dipy if it is there."""
    found = {
        f"subspace {profile}": lambda series, profile=profile: gd.subspace(
            series, noise=noise, axes="DZYX", profile=profile
        )
        for profile in ("fast", "normal", "best")
    }
    found["subspace, noise measured"] = lambda series: gd.subspace(series, axes="DZYX")
    found["BM4D, each volume"] = lambda series: gd.bm4d(series, noise=noise, axes=".ZYX")
    try:
        import sklearn  # noqa: F401 (Patch2Self needs it when it is called)
        from dipy.denoise.localpca import mppca
        from dipy.denoise.patch2self import patch2self
    except ImportError:
        print("without dipy and scikit-learn, MP-PCA, Patch2Self and tensors are left out")
        return found

    def last(series: np.ndarray) -> np.ndarray:
        return np.moveaxis(series, 0, -1)

    def first(series: np.ndarray) -> np.ndarray:
        return np.moveaxis(series, -1, 0)

    found["MP-PCA"] = lambda series: first(mppca(last(series), patch_radius=2))
    options = {"b0_denoising": False, "verbose": False}
    found["Patch2Self"] = lambda series: first(patch2self(last(series), made.bvals, **options))
    return found


def compare_diffusion(args: argparse.Namespace) -> None:
    """Print gains, and bias and spread of maps of tensors, of all methods on a slab."""
    head = np.asarray(gd.read(args.head).pixels)
    middle = [slice(args.slab, args.slab + args.slices)]
    middle += [slice((n - args.width) // 2, (n + args.width) // 2) for n in head.shape[1:]]
    options = {"count": args.directions, "seed": args.seed, "coherent": args.coherent}
    made = diffusion_series(head[tuple(middle)], **options)
    without = made.clean
    if args.lesions:
        made = with_lesions(made)
    if args.moved:
        without = moved(without, args.seed)
        made = made._replace(clean=moved(made.clean, args.seed))
    contrast = (made.clean - without).astype(np.float64)
    noisy = with_noise(made.clean, args.sigma, args.noise, args.seed)
    model = (gd.Rician if args.noise == "rician" else gd.Gaussian)(args.sigma)
    found = methods(made, model)
    if args.noise == "gaussian" and not args.moved and not args.lesions:
        known = "signals of tissues known"
        found[known] = lambda series: knowing_signals(series, made, args.sigma)
    maps = "MP-PCA" in found
    truth = tensors(made.clean, made) if maps else None
    borders = ndimage.gaussian_gradient_magnitude(made.white, 0.7)[made.brain] > _BORDER
    print(
        f"{'':26}{'gain, dB':>9}{'seconds':>9}"
        + "  FA bias, spread   MD bias, spread   FA inside, borders" * maps
        + "  contrast" * args.lesions
    )
    for name, filtered in {"noisy": lambda series: series, **found}.items():
        begun = time.perf_counter()
        result = filtered(noisy)
        seconds = time.perf_counter() - begun
        line = f"{name:26}{gain(noisy, result, made.clean):9.2f}{seconds:9.1f}"
        if maps:
            errors = [seen - told for seen, told in zip(tensors(result, made), truth, strict=True)]
            line += "".join(f"  {error.mean():+.4f} {error.std():.4f} " for error in errors)
            line += f"  {errors[0][~borders].std():.4f}  {errors[0][borders].std():.4f}"
        if args.lesions:
            line += f"  {np.vdot(result - without, contrast) / np.vdot(contrast, contrast):.3f}"
        print(line, flush=True)


def compare_lifetimes(args: argparse.Namespace) -> None:
    """Print gains, and bias and spread of mean lifetimes, of a cube of photon counts."""
    clean, times = lifetimes(seed=args.seed)
    noisy = np.random.default_rng(args.seed + 5).poisson(clean).astype(np.uint16)
    bright, noise = clean.sum(axis=0) > 20, gd.PoissonGaussian(1.0, 0.0)

    def mean_time(series: np.ndarray) -> np.ndarray:
        return np.tensordot(times, series, 1)[bright] / np.maximum(series.sum(axis=0), 1e-3)[bright]

    results = {
        "bins of 5 x 5 pixels": ndimage.uniform_filter(noisy.astype(float), (0, 5, 5)),
        "BM4D of bins, y, x": gd.bm4d(noisy, noise=noise, axes="ZYX", dtype="float32"),
        "subspace": gd.subspace(noisy, noise=noise, axes="DYX", dtype="float32"),
        "subspace, noise measured": gd.subspace(noisy, axes="DYX", dtype="float32"),
    }
    print(f"{'':26}{'gain, dB':>9}  bias and spread of the mean lifetime, ns")
    for name, result in results.items():
        error = mean_time(result.astype(float)) - mean_time(clean.astype(float))
        print(f"{name:26}{gain(noisy, result, clean):9.2f}  {error.mean():+.4f} {error.std():.4f}")


def build_parser(argv: object = ()) -> argparse.ArgumentParser:
    """Return the parser; the namespace it makes holds ``run``. It is the same for any `argv`."""
    parser = argparse.ArgumentParser("subspace.py", description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("head", metavar="HEAD", help="a T1-weighted head as NIfTI, or flim for a cube of lifetimes")
    add("--directions", type=int, default=48, help="diffusion directions (default: 48)")
    add("--sigma", type=float, default=30.0, help="noise; white matter is 400 (default: 30)")
    add("--noise", choices=("gaussian", "rician"), default="gaussian", help="its kind")
    add("--moved", action="store_true", help="move each volume by up to a voxel")
    add("--lesions", action="store_true", help="add small lesions, and print their contrast")
    add("--coherent", type=float, default=8.0, help="half length of fibres, voxels (default: 8)")
    add("--slab", type=int, default=80, help="first slice (default: 80)")
    add("--slices", type=int, default=16, help="number of slices (default: 16)")
    add("--width", type=int, default=96, help="width and height, pixels (default: 96)")
    add("--seed", type=int, default=0, help="of structures and noise (default: 0)")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Compare all methods on one series."""
    (compare_lifetimes if args.head == "flim" else compare_diffusion)(args)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script as the command line is run: with its exit codes, and errors in a sentence."""
    return cli.main(argv, build_parser)


if __name__ == "__main__":
    raise SystemExit(main())
