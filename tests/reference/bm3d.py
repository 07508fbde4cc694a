"""BM3D, slow and plain: what the kernels have to compute, in float64.

K. Dabov et al., "Image denoising by sparse 3-D transform-domain collaborative filtering", 2007;
A. Davy, T. Ehret, "GPU acceleration of NL-means, BM3D and VBM3D", 2020, section 2.2. What the
papers leave open is marked "convention".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from reference.block_matching import find_matches, reference_positions
from reference.groups import MIDDLE, Pass, extend, one_pass
from reference.shared_noise import WHITE, Spectrum, mixed
from reference.transforms import PATCH

# Rows: luminance and two colour differences of red, green, blue.
OPPONENT = np.array([[1, 1, 1], [1, 0, -1], [1, -2, 1]]) / np.sqrt([[3], [2], [6]])


def bm3d(image: np.ndarray, sigma, settings, tables: Sequence = (), exact: bool = False):
    """Denoise an image (y, x), or channels (c, y, x), of noise with standard deviation `sigma`.

    Parameters
    ----------
    image : array
    sigma : float, array (y, x), or one of these for each channel
    settings : object with the attributes of ``filters.bm3d.BM3D``
        Its `channels` are "joint", "opponent" or "separate".
    tables : sequence of tuple, (5, 5), optional
        Autocorrelation of the noise of each channel, if it is not white.
    exact : bool, optional
        As for `find_matches`.

    Returns
    -------
    ndarray of float64, of the shape of `image`
    """
    planes = np.asarray(image, np.float64)
    given = sigma if np.ndim(sigma) == 1 or isinstance(sigma, list) else [sigma] * len(planes)
    if planes.ndim == 2:
        sigmas = np.broadcast_to(np.asarray(sigma, np.float64), planes.shape)[None]
        return together(planes[None], sigmas, "alone", settings, tables, exact)[0]
    if settings.channels == "separate":
        each = zip(planes, given, [[one] for one in tables] or [()] * len(planes), strict=True)
        return np.array([bm3d(*one[:2], settings, one[2], exact) for one in each])
    sigmas = np.array([np.broadcast_to(each, planes.shape[1:]) for each in given], np.float64)
    return together(planes, sigmas, settings.channels, settings, tables, exact)


def together(planes, sigmas, mode: str, settings, tables, exact: bool) -> np.ndarray:
    """Denoise planes (c, y, x) with the matches of one search; `mode` as for `mixed_channels`."""
    *_, ny, nx = planes.shape
    planes, sigmas, weights, spectra, guide, back = mixed_channels(planes, sigmas, tables, mode)
    planes, sigmas = (extend(each)[:, None] for each in (planes, sigmas))
    search_sigma = np.sqrt(np.tensordot(weights**2, sigmas**2, axes=1))
    search = np.tensordot(weights, planes, axes=1)
    if settings.prefiltered:
        alone = prefilter(settings)
        found = all_matches(search[0], search_sigma[0], alone, exact)
        (search,) = one_pass(search[None], search_sigma[None], alone, found, spectra=[guide])
    result = None
    for stage in settings.stages:
        one = pass_of(settings, stage)
        found = all_matches(search[0], search_sigma[0], one, exact)
        result = one_pass(planes, sigmas, one, found, result, spectra=spectra)
        search = np.tensordot(weights, result, axes=1)
    return mix(back, result[:, 0, :ny, :nx])


def mixed_channels(planes: np.ndarray, sigmas: np.ndarray, tables: Sequence, mode: str):
    """Return what channels (c, ...) are filtered as: "joint", "opponent", or one "alone".

    Those are planes, their sigmas, the weights of what is searched, the spectra of their noise and
    that of what is searched, and the matrix that leads back.
    """
    matrix, weights = np.eye(len(planes)), np.eye(len(planes))[0]
    if mode == "opponent":
        matrix, level = OPPONENT, sigmas.reshape(len(planes), -1)[:, 0]
        tables = [mixed(tables, np.square(row * level)) for row in matrix if tables]
        planes, sigmas = mix(matrix, planes), mix_sigmas(matrix, sigmas)
    elif mode == "joint":
        weights = noise_weights(sigmas)
    spectra = [Spectrum(table) for table in tables] or [WHITE] * len(planes)
    guide = spectra[0]
    if mode == "joint" and tables:
        level = sigmas.reshape(len(planes), -1)[:, 0]
        guide = Spectrum(mixed(tables, np.square(weights * level)))
    return planes, sigmas, weights, spectra, guide, matrix.T


def pass_of(settings, stage: str) -> Pass:
    """Return the pass ``"basic"`` or ``"final"`` of settings with the attributes of BM3D."""
    names = ("step", "window", "neighbours", "transform", "stack", "similar")
    chosen = {name: getattr(settings, f"{name}_{stage}") for name in names}
    chosen |= {name: getattr(settings, name) for name in ("threshold", "wiener_sigma", "kaiser")}
    return Pass(**chosen, shared_noise=settings.shared_noise and chosen["stack"] == "haar")


def prefilter(settings) -> Pass:
    """Return the prefilter: every patch is a group of its own."""
    alone = {"step": 2, "window": 1, "neighbours": 1, "similar": 0.0, "threshold": 3.0}
    return replace(pass_of(settings, "basic"), **alone, shared_noise=False)


def all_matches(search: np.ndarray, sigma, settings: Pass, exact: bool) -> list[list[tuple]]:
    """Return the matches (t, y, x, d2) of every reference patch, row by row."""
    found = []
    for y, x in product(*(reference_positions(n, settings.step) for n in search.shape)):
        limit = settings.similar * sigma[y + MIDDLE, x + MIDDLE] ** 2
        near = search, (y, x), (PATCH, PATCH), [settings.window] * 2, settings.neighbours, limit
        found.append([(0, *match) for match in find_matches(*near, exact=exact)])
    return found


def mix(matrix: np.ndarray, planes: np.ndarray) -> np.ndarray:
    """Return sums of the planes (c, y, x), one for each row of weights."""
    return np.tensordot(matrix, planes, axes=1)


def mix_sigmas(matrix: np.ndarray, sigmas: Sequence) -> np.ndarray:
    """Return the sigmas of such sums; noise is independent from plane to plane."""
    squares = np.square(np.array(np.broadcast_arrays(*sigmas), dtype=np.float64))
    return np.sqrt(np.tensordot(np.square(matrix), squares, axes=1))


def noise_weights(sigmas: Sequence) -> np.ndarray:
    """Return the weights of the mean over channels in units of their noise.

    Conventions: a map counts with its root mean square; channels without noise are left out.
    """
    scales = np.array([np.sqrt(np.mean(np.square(sigma))) for sigma in sigmas])
    return np.divide(1 / len(scales), scales, out=np.zeros(len(scales)), where=scales > 0)
