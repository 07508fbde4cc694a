"""What an assessment computes, in slow NumPy, written to be read."""

from __future__ import annotations

import numpy as np


def predicted_error(noisy, sigma, unit, plus, minus, epsilon):
    """Return the predicted mean squared error.

    [(|f(y+) - y|² + |f(y-) - y|²) / 2 + sigma b·(f(y+) - f(y-)) / epsilon] / N - sigma²
    """
    total = 0.0
    for y, b, p, m, s in zip(
        *(np.ravel(a) for a in (noisy, unit, plus, minus, sigma)), strict=True
    ):
        total += 0.5 * (p - y) ** 2 + 0.5 * (m - y) ** 2 + s * b * (p - m) / epsilon - s**2
    return total / noisy.size


def detail_kept(noisy, filtered, others, sigma, step):
    """Return frequency, T(k) and signal over noise of rings of a width in cycles per pixel.

    T(k) = Re Σ F(f(y1)) F(y2)* / (Σ |F(y)|² - noise), below a Hann window, averaged over pairs.
    """
    ny, nx = noisy.shape
    window = np.zeros((ny, nx))
    for j in range(ny):
        for i in range(nx):
            window[j, i] = np.sin(np.pi * (j + 0.5) / ny) ** 2 * np.sin(np.pi * (i + 0.5) / nx) ** 2

    def spectrum(image):
        mean = (image * window).sum() / window.sum()
        return np.fft.fft2((image - mean) * window)

    power = np.abs(spectrum(noisy)) ** 2
    noise = sigma**2 * (window**2).sum()
    cross = sum(
        (spectrum(f) * spectrum(o).conj()).real for f, o in zip(filtered, others, strict=True)
    )
    cross /= len(filtered)
    count = int(0.5 / step)
    kept, signal, expected = np.zeros(count), np.zeros(count), np.zeros(count)
    fy, fx = np.fft.fftfreq(ny), np.fft.fftfreq(nx)
    for j in range(ny):
        for i in range(nx):
            ring = int(np.hypot(fy[j], fx[i]) / step)
            if ring < count:
                kept[ring] += cross[j, i]
                signal[ring] += power[j, i] - noise
                expected[ring] += noise
    return (np.arange(count) + 0.5) * step, kept / signal, signal / expected


def unseen_loss(noisy, filtered_without, sigma, first, every):
    """Return the mean squared difference at the pixels of a grid that the filter has not seen.

    `filtered_without` is a function of the image with these pixels replaced by the mean of the four
    around them.
    """
    hidden = np.array(noisy, float)
    ny, nx = noisy.shape
    places = [(j, i) for j in range(first, ny, every) for i in range(first, nx, every)]
    for j, i in places:
        around = []
        for dj, di in ((-1, 0), (1, 0), (0, -1), (0, 1)):
            # Mirrored at the border, which the pixel itself belongs to once.
            y, x = abs(j + dj), abs(i + di)
            y, x = (2 * (n - 1) - k if k >= n else k for k, n in ((y, ny), (x, nx)))
            around.append(noisy[y, x])
        hidden[j, i] = np.mean(around)
    result = filtered_without(hidden)
    return np.mean([((result[j, i] - noisy[j, i]) / sigma) ** 2 for j, i in places])
