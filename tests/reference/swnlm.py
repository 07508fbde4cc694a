"""NL-means with the Shapiro-Wilk similarity in NumPy, written to be read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import ndtri


def weights_of_order(n: int) -> np.ndarray:
    """Return Royston's weights of n sorted values, n at least 6 (AS R94)."""
    m = ndtri((np.arange(1, n + 1) - 3 / 8) / (n + 1 / 4))
    u, length = n**-0.5, np.sqrt(m @ m)
    last = np.polyval([-2.706056, 4.434685, -2.07119, -0.147981, 0.221157, m[-1] / length], u)
    other = np.polyval([-3.582633, 5.682633, -1.752461, -0.293762, 0.042981, m[-2] / length], u)
    phi = (m @ m - 2 * m[-1] ** 2 - 2 * m[-2] ** 2) / (1 - 2 * last**2 - 2 * other**2)
    a = m / np.sqrt(phi)
    a[[0, 1, -2, -1]] = -last, -other, other, last
    return a


def shapiro_wilk(values: np.ndarray) -> np.ndarray:
    """Return W of the values along the first axis; 0 where all are equal."""
    ordered = np.sort(values - values.mean(axis=0), axis=0)
    squares = (ordered**2).sum(axis=0)
    top = np.tensordot(weights_of_order(len(values)), ordered, 1) ** 2
    return np.divide(top, squares, out=np.zeros_like(squares), where=squares > 0)


def critical_w(n: int, alpha: float) -> float:
    """Return the W that normal samples of n values fall below with probability alpha."""
    z, log_n = ndtri(alpha), np.log(n)
    if n <= 11:
        gamma = -2.273 + 0.459 * n
        mean = np.polyval([-0.0006714, 0.025054, -0.39978, 0.5440], n)
        deviation = np.exp(np.polyval([-0.0020322, 0.062767, -0.77857, 1.3822], n))
        # The larger y, the smaller W.
        return 1 - np.exp(gamma - np.exp(-(mean - deviation * z)))
    mean = np.polyval([0.0038915, -0.083751, -0.31082, -1.5861], log_n)
    deviation = np.exp(np.polyval([0.0030302, -0.082676, -0.4803], log_n))
    return 1 - np.exp(mean - deviation * z)


@dataclass
class Found:
    """Averages, how many pixels each is of, and the smallest distance of a test from its limit."""

    image: np.ndarray
    accepted: np.ndarray
    doubt: np.ndarray


def swnlm(image, sigma, patch=5, window=21, alpha=0.05, widen=1.0) -> Found:
    """Average the pixels of a window whose patches differ like noise; others stay as they are.

    `sigma` is a number, or broadcasts to the image. The image is mirrored at its borders; the last
    pixel is repeated.
    """
    image = np.asarray(image, np.float64)
    around, n = window // 2, patch * patch
    pad = around + patch // 2
    sigma = np.broadcast_to(np.asarray(sigma, np.float64), image.shape)
    wide = np.pad(image, pad, "symmetric")
    noise = np.pad(sigma, around, "symmetric")
    patches = sliding_window_view(wide, (patch, patch)).reshape(*noise.shape, n)
    patches = np.moveaxis(patches, -1, 0)
    ny, nx = image.shape
    here = np.s_[around : around + ny, around : around + nx]
    least = critical_w(n, alpha) if alpha > 0 else 0.0
    total, weight, best, accepted = (np.zeros(image.shape) for _ in range(4))
    doubt = np.full(image.shape, np.inf)
    for dy, dx in np.ndindex(window, window):
        if (dy, dx) == (around, around):
            continue
        there = np.s_[dy : dy + ny, dx : dx + nx]
        unit = np.sqrt(noise[here] ** 2 + noise[there] ** 2)
        differences = patches[:, *here] - patches[:, *there]
        with np.errstate(divide="ignore", invalid="ignore"):
            f = differences / unit
            mean, deviation = f.mean(axis=0), f.std(axis=0)
            error = widen * deviation / np.sqrt(n)
        w = shapiro_wilk(differences)
        margins = (error - abs(mean), error - abs(deviation - 1), w - least)
        passed = np.logical_and.reduce([margin > 0 for margin in margins])
        doubt = np.fmin(doubt, np.min([abs(m) for m in margins], axis=0))
        w = np.where(passed, w, 0)
        level = wide[pad + dy - around :, pad + dx - around :][:ny, :nx]
        total += w * level
        weight += w
        best = np.maximum(best, w)
        accepted += passed
    any_ = accepted > 0
    averaged = np.divide(total + best * image, weight + best, out=image.copy(), where=any_)
    return Found(averaged, accepted, doubt)
