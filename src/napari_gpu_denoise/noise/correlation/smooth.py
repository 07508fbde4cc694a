"""The power of smooth patches: of the smoothest of all, or of those at each level of brightness."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from napari_gpu_denoise.noise.correlation.fit import CALM, HIGHEST, ROUGHER, PatchPower
from napari_gpu_denoise.noise.patches.coefficients import Squares, smallest, sums_later
from napari_gpu_denoise.noise.patches.parts import brightness_levels
from napari_gpu_denoise.noise.patches.spectra import SETS, PatchSpectra, frequency_sets
from napari_gpu_denoise.noise.patches.white import PATCH, frequency_order

# Patches that are smoothest because the noise is weak there, as in the shadows of a JPEG file, are
# few: of white or correlated noise that is the same everywhere, more of an image is as smooth.
EXCEPTIONS = 0.04  # share of all patches, at most,
AS_SMOOTH = 1.5  # whose power is at most so many times that of the smoothest
LEVELS = 8  # of brightness
READ = 0.05  # of the patches of a level
NEXT = (0.15, 0.3)  # those they are compared with, to see how much texture there is
TEXTURED = 0.35  # relative growth of the power from those read to the next, that halves the weight
HALVES = "rest", "half"  # of the frequencies: those that rank where the others are read
EQUAL = 1e-6  # share of all frequencies that ranks patches that are equal, such as edges by rows
PROVEN = 0.2  # weight of all levels, of 1, from which they show noise and not only texture


def smooth_powers(
    spectra: PatchSpectra, members: np.ndarray, number: int
) -> Callable[[], PatchPower]:
    """Return the power of the `number` smoothest patches of `members`, and of rougher ones.

    As a function that returns it: the sums are found together with others, if any are before.
    """
    found = _parts(spectra, members, number, (ROUGHER, CALM))

    def powers() -> PatchPower:
        smoothest, rough, calm = found()
        return PatchPower(smoothest, rough, _growth(smoothest, calm), number / spectra.overlap)

    return powers


def are_exceptions(spectra: PatchSpectra, members: np.ndarray, power: np.ndarray) -> bool:
    """Return whether hardly any patch has as little power as this, (8, 8), the mean left out."""
    energy = spectra.energy_of("low") + spectra.energy_of("high")
    return float(np.mean(energy[members] < AS_SMOOTH * (power.sum() - power[0, 0]))) < EXCEPTIONS


def powers_by_brightness(spectra: PatchSpectra, members: np.ndarray) -> PatchPower | None:
    """Return the powers where noise differs between levels of brightness.

    None if there is no noise, or only texture that may be noise.

    They have the mean shape of those of the levels, and the median power. A level counts by the
    number of its patches, and by how little rougher ones differ from the smoothest: texture does,
    noise does not.
    """
    rows, totals, weights, number = [], [], [], 0
    for part in brightness_levels(spectra.mean[members], most=LEVELS).each():
        read = math.ceil(READ * len(part))
        found = _parts(spectra, members[part], read, (ROUGHER, CALM, NEXT))()
        total = found.sum(axis=(1, 2))
        if total[0] > 0:
            growth = max(total[3] / total[0] - 1, 0.0)
            weights.append(len(part) / len(members) / (1 + (growth / TEXTURED) ** 4))
            rows.append(found[:3] / total[0])
            totals.append(total[0])
            number += read
    if sum(weights) < PROVEN:
        return None
    order = np.argsort(totals)
    share = np.cumsum(np.array(weights)[order])
    middle = order[np.searchsorted(share, share[-1] / 2)]
    smoothest, rough, calm = totals[middle] * np.average(rows, axis=0, weights=weights)
    return PatchPower(smoothest, rough, _growth(smoothest, calm), number / spectra.overlap)


def _parts(
    spectra: PatchSpectra,
    members: np.ndarray,
    number: int,
    others: tuple[tuple[float, float], ...],
) -> Callable[[], np.ndarray]:
    """Return the power of the `number` smoothest patches and of other shares of them, (n, 8, 8).

    As a function that returns it.
    """
    places = np.concatenate(frequency_order((PATCH, PATCH)))
    half = frequency_sets(spectra.lows, len(places))[SETS.index("half")]
    parts = [(0, number)]
    for first, last in others:
        start = min(max(round(first * len(members)), number), len(members) - 1)
        parts.append((start, max(round(last * len(members)), start + 1)))
    starts, stops = np.array(parts).T
    found = np.zeros((len(parts), PATCH**2))
    # Ranked by one half, read at the other.
    energies = [spectra.energy_of(name) for name in HALVES]
    both = EQUAL * (energies[0] + energies[1])
    if len(members) == len(both):  # in their own order
        orders = [smallest(each + both, stops.max()) for each in energies]
    else:
        orders = [members[smallest((each + both)[members], stops.max())] for each in energies]
    starts, stops = (np.concatenate([each, len(orders[0]) + each]) for each in (starts, stops))
    later = sums_later(Squares(spectra.coefficients), np.concatenate(orders), starts, stops)

    def powers() -> np.ndarray:
        sums = later() / (stops - starts)[:, None]
        for which, each in zip((half, ~half), np.split(sums, 2), strict=True):
            found[:, places[which]] = each[:, which]
        return found.reshape(-1, PATCH, PATCH)

    return powers


def _growth(smoothest: np.ndarray, calm: np.ndarray) -> float:
    """Return the relative increase at the highest frequencies, from the smoothest patches on."""
    # Medians, as a regular pattern fills single frequencies.
    base = float(np.median(smoothest[HIGHEST]))
    return float(np.median(calm[HIGHEST])) / base - 1 if base > 0 else 0.0
