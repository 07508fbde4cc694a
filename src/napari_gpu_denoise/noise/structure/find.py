"""Find structured noise in an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any

import numpy as np

from napari_gpu_denoise.image.levels import fill_nonfinite, is_plain
from napari_gpu_denoise.noise import limits
from napari_gpu_denoise.noise.sampling import PlaneReader, middle
from napari_gpu_denoise.noise.structure import hum, outliers, rows
from napari_gpu_denoise.noise.structure.record import Finding, StructuredNoise

SIDE = 768  # pixels of the middle of a plane that is looked at


def find_structure(image: Any, axes: str | None = None) -> StructuredNoise:
    """Find offsets of rows or columns, periodic hum, and hot and dead pixels.

    Parameters
    ----------
    image : array, at least two axes, any real dtype
        Anything with ``shape``, ``dtype`` and NumPy indexing; at most 3 planes of each channel are
        read. Not modified. NaN and infinity are ignored.
    axes : str, optional
        One letter per axis, such as ``"TCYX"``. Channels are analysed separately; all other axes
        but ``Y`` and ``X`` hold planes. Default: the last two axes are ``Y`` and ``X``.

    Returns
    -------
    StructuredNoise
        What was found, with its strength in grey levels, and in words.

    Raises
    ------
    AxesError, ImageError
        If `axes` does not fit, or the image has no pixels or no real numbers.

    See Also
    --------
    remove_stripes, remove_outliers : Remove it.

    Notes
    -----
    Planes need at least 48 pixels along a row, for hum 64. The middle 768 x 768 pixels are looked
    at; see ``docs/methods/structured_noise.md``.

    References
    ----------
    B. Münch, P. Trtik, F. Marone, M. Stampanoni, "Stripe and ring artifact removal with combined
    wavelet-Fourier filtering", Opt. Express 17 (2009), doi:10.1364/OE.17.008567 (stripes have one
    direction and little else); P. G. van Dokkum, "Cosmic-ray rejection by Laplacian edge
    detection", PASP 113 (2001), doi:10.1086/323894 (single pixels in units of local noise).
    """
    reader = PlaneReader(image, axes)
    found = structure_in([reader.sampled(channel, SIDE) for channel in reader.channels])
    return StructuredNoise(tuple(found))


def structure_in(channels: Sequence[Sequence[np.ndarray]]) -> list[Finding]:
    """Find structured noise in planes of each channel."""
    several = len(channels) > 1
    found = (find_in_planes(each, k if several else None) for k, each in enumerate(channels))
    return list(chain.from_iterable(found))


def finite_plane(plane: np.ndarray) -> np.ndarray:
    """Return a plane as float32, with the nearest finite pixel in place of NaN and infinity."""
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(plane, np.float32)
    if is_plain(plane.dtype):
        return values
    return fill_nonfinite(values, "YX", "keep")[0]


@dataclass(frozen=True)
class _Plane:
    """What one plane shows: offsets of rows and of columns, waves, hot and dead pixels."""

    offsets: Sequence[rows.RowEvidence | None] = (None, None)
    waves: Sequence[hum.Wave] = ()
    pixels: Sequence[outliers.Outliers] = ()


def find_in_planes(planes: Sequence[np.ndarray], channel: int | None = None) -> list[Finding]:
    """Find what most planes of a channel have; of many, the first, a middle and the last count."""
    last = len(planes) - 1
    some = [planes[k] for k in sorted({0, last // 2, last})]
    seen = list(map(_analyse_plane, some))
    found: list[Finding] = []
    for axis, kind in enumerate(("rows", "columns")):
        known = [row for row in (each.offsets[axis] for each in seen) if row is not None]
        if 2 * len(known) > len(seen):
            pairs = [rows.shared_variation(a.jumps, b.jumps)[0] for a, b in combinations(known, 2)]
            fixed = bool(np.median(pairs) >= limits.MIN_SHARED_BY_PLANES) if pairs else None
            strength = float(np.median([each.strength for each in known]))
            found.append(Finding(kind, strength, fixed, channel=channel))
    if 2 * sum(bool(each.waves) for each in seen) > len(seen):
        most = max((each.waves for each in seen), key=len)
        power = sum(abs(wave.amplitude) ** 2 / 2 for wave in most)
        where = tuple((wave.fy, wave.fx) for wave in most)
        found.append(Finding("hum", power**0.5, frequencies=where, channel=channel))
    for side, kind in enumerate(("hot", "dead")):
        pixels = [each.pixels[side] for each in seen if each.pixels]
        none = [0.0] * (len(seen) - len(pixels))
        weight = float(np.median([*(one.weight for one in pixels), *none]))
        if weight >= 1:
            count = [np.count_nonzero(one.mask) for one in pixels]
            often = np.sum([one.mask for one in pixels], axis=0)
            least = limits.MIN_SHARED_BY_PLANES * sum(count)
            common = often[2 * often > len(pixels)].sum() >= least
            excess = float(np.median([one.excess for one in pixels]))
            share = float(100 * sum(count) / (often.size * len(pixels)))
            fixed = bool(common) if len(pixels) > 1 else None
            lines = max(one.lines for one in pixels)
            found.append(Finding(kind, excess, fixed, share, lines, channel=channel))
    return found


def _analyse_plane(plane: np.ndarray) -> _Plane:
    """Look for structure in the middle of a plane, by a glance first.

    Each kind is hidden or imitated by those before it.
    """
    seen = finite_plane(_middle(plane, SIDE))
    # Squares of extreme values are beyond float32.
    if not 1e-15 < max(float(seen.max()), -float(seen.min())) < 1e15:
        return _Plane()
    pixels: Sequence[outliers.Outliers] = ()
    lines = [rows.segments(seen, axis) for axis in (1, 0)]
    if outliers.seem_to_be(seen) or any(rows.outlying_rows(each).any() for each in lines):
        pixels = outliers.find_outliers(seen)
    found = [each.mask for each in pixels if each.found]
    if found:
        seen = outliers.replaced(seen, np.any(found, axis=0))
    waves = hum.find_waves(seen) if hum.seems_to_be(_middle(seen, 320)) else []
    if found or waves:
        seen = hum.without(seen, waves)
        lines = [rows.segments(seen, axis) for axis in (1, 0)]
    return _Plane(list(map(rows.row_evidence, lines)), waves, pixels)


def _middle(plane: np.ndarray, side: int) -> np.ndarray:
    return plane[tuple(middle(n, side) for n in plane.shape)]
