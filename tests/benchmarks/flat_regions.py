"""How often regions are said not to be flat: flat ones, and those with objects.

    python tests/benchmarks/flat_regions.py

Prints, for squares of several sides, the share of flat regions of a kind of noise, and the shares
of regions in which two discs, a slope or cells inflate sigma by a tenth, a fifth and a half.
"""

from __future__ import annotations

import numpy as np
from scipy.ndimage import gaussian_filter

from napari_gpu_denoise._napari.noise.measuring import _unevenness

SIDES = (24, 32, 48, 96, 200)


def smoothed(rng: np.random.Generator, side: int, width: float) -> np.ndarray:
    """Return noise of sigma 10 that a Gaussian filter correlates."""
    values = gaussian_filter(rng.normal(size=(side + 40, side + 40)), width)[20:-20, 20:-20]
    return 100 + 10 * values / values.std()


NOISE = {
    "white": lambda rng, n: rng.normal(100, 10, (n, n)),
    "correlated over 1 pixel": lambda rng, n: smoothed(rng, n, 1),
    "correlated over 2.5 pixels": lambda rng, n: smoothed(rng, n, 2.5),
    "magnitudes": lambda rng, n: np.hypot(*rng.normal(0, 10, (2, n, n))),
    "speckle of one look": lambda rng, n: rng.exponential(50, (n, n)),
    "0.3 photons": lambda rng, n: rng.poisson(0.3, (n, n)).astype(float),
    "heavy tails (t, 4)": lambda rng, n: 100 + 10 * rng.standard_t(4, (n, n)),
}


def objects(kind: str, side: int, rng: np.random.Generator) -> np.ndarray:
    """Return a picture of variance 1."""
    y, x = np.mgrid[:side, :side] / side
    if kind == "slope":
        angle = rng.uniform(0, 2 * np.pi)
        found = np.cos(angle) * x + np.sin(angle) * y
    elif kind == "cells":
        found = gaussian_filter(rng.normal(size=(side, side)), side / 12)
        found = 1.0 * (found > np.quantile(found, 0.6))
    else:
        found = np.zeros((side, side))
        for cy, cx, radius in rng.uniform((0, 0, 0.05), (1, 1, 0.15), (2, 3)):
            found += np.hypot(y - cy, x - cx) < radius
    return found / found.std()


def share(draw, side: int, count: int) -> float:
    """Return the share of regions that are said not to be flat."""
    rng = np.random.default_rng(1)
    return sum(_unevenness(draw(rng, side)) is not None for _ in range(count)) / count


def main() -> None:
    """Measure and print everything."""
    print(f"{'':42}" + "".join(f"{side:>10}" for side in SIDES))
    for name, draw in NOISE.items():
        shares = [share(draw, side, 2000 if side < 100 else 400) for side in SIDES]
        print(f"{'flat, ' + name:42}" + "".join(f"{each:10.2%}" for each in shares), flush=True)
    for name in ("white", "correlated over 1 pixel"):
        for kind in ("two discs", "slope", "cells"):
            for factor in (1.1, 1.2, 1.5):

                def draw(rng, side, name=name, kind=kind, factor=factor):
                    added = 10 * np.sqrt(factor**2 - 1) * objects(kind, side, rng)
                    return NOISE[name](rng, side) + added

                shares = [share(draw, side, 100) for side in SIDES]
                row = "".join(f"{each:10.0%}" for each in shares)
                print(f"{f'{kind}, sigma x {factor}, {name}':42}{row}", flush=True)


if __name__ == "__main__":
    main()
