"""What an assessment computes, in plain NumPy, written to be read."""

from __future__ import annotations

import numpy as np


def predicted_error(noisy, sigma, unit, plus, minus, epsilon):
    """Return the predicted mean squared error.

    [(|f(y+) - y|² + |f(y-) - y|²) / 2 + sigma b·(f(y+) - f(y-)) / epsilon] / N - sigma²
    """
    squares = (np.sum((plus - noisy) ** 2) + np.sum((minus - noisy) ** 2)) / 2
    return (squares + sigma * np.sum(unit * (plus - minus)) / epsilon) / noisy.size - sigma**2


def detail_kept(noisy, filtered, others, sigma, step):
    """Return frequency and T(k) of rings of a width in cycles per pixel.

    T(k) = Re Σ F(f(y1)) F(y2)* / (Σ |F(y)|² - noise), below a Hann window, averaged over pairs.
    """
    hann = [np.sin(np.pi * (np.arange(n) + 0.5) / n) ** 2 for n in noisy.shape]
    window = np.outer(*hann)

    def spectrum(image):
        return np.fft.fft2((image - np.average(image, weights=window)) * window)

    pairs = zip(filtered, others, strict=True)
    cross = np.mean([(spectrum(f) * spectrum(o).conj()).real for f, o in pairs], axis=0)
    signal = np.abs(spectrum(noisy)) ** 2 - sigma**2 * np.sum(window**2)
    frequency = np.hypot(*np.meshgrid(*map(np.fft.fftfreq, noisy.shape), indexing="ij"))
    rings = [frequency // step == ring for ring in range(int(0.5 / step))]
    kept = [cross[ring].sum() / signal[ring].sum() for ring in rings]
    return (np.arange(len(rings)) + 0.5) * step, np.array(kept)


def unseen_loss(noisy, filtered_without, sigma, first, every):
    """Return the mean squared difference at the pixels of a grid that the filter has not seen.

    `filtered_without` is a function of the image with these pixels replaced by the mean of the four
    around them, mirrored at the border, which the pixel itself belongs to once.
    """
    hidden, wide = np.array(noisy, float), np.pad(noisy, 1, "reflect")
    ny, nx = noisy.shape
    places = [(j, i) for j in range(first, ny, every) for i in range(first, nx, every)]
    for j, i in places:
        around = wide[j, i + 1], wide[j + 2, i + 1], wide[j + 1, i], wide[j + 1, i + 2]
        hidden[j, i] = np.mean(around)
    result = filtered_without(hidden)
    return np.mean([((result[place] - noisy[place]) / sigma) ** 2 for place in places])
