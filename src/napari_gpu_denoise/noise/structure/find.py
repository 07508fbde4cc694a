"""Find structured noise in an image."""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, combinations
from typing import Any

import numpy as np

from napari_gpu_denoise.image.levels import fill_nonfinite
from napari_gpu_denoise.image.threads import mapping
from napari_gpu_denoise.noise.sampling import PlaneReader
from napari_gpu_denoise.noise.structure import hum, outliers, rows
from napari_gpu_denoise.noise.structure.record import Finding, StructuredNoise

MAX_SIDE = 1024  # pixels of the middle of a plane that hum and single pixels are looked for in
MIN_THREADED = 1 << 19  # pixels of a plane from which threads gain more than they wait
SAME = 0.5  # correlation of the offsets of planes, or share of pixels in common, if fixed


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
    Rows: their levels agree between the thirds of a plane. Hum: a peak of the spectrum whose
    amplitude and phase are the same in 12 of 16 blocks. Single pixels: isolated, beyond the local
    noise and texture. Planes need at least 48 pixels along a row, for hum 64. Clean pictures
    (BSD68, W2S) give no false alarms; see ``docs/methods/structured_noise.md``. Some 0.05 s a
    plane, however large.

    References
    ----------
    B. Münch, P. Trtik, F. Marone, M. Stampanoni, "Stripe and ring artifact removal with combined
    wavelet-Fourier filtering", Opt. Express 17 (2009), doi:10.1364/OE.17.008567 (stripes have one
    direction and little else); P. G. van Dokkum, "Cosmic-ray rejection by Laplacian edge
    detection", PASP 113 (2001), doi:10.1086/323894 (single pixels in units of local noise).
    """
    reader = PlaneReader(image, axes)
    found = structure_in([reader.sampled(channel) for channel in reader.channels])
    return StructuredNoise(tuple(found), reader.axes, reader.count)


def structure_in(channels: Sequence[Sequence[np.ndarray]]) -> list[Finding]:
    """Find structured noise in planes of each channel."""
    several = len(channels) > 1
    found = (find_in_planes(each, k if several else None) for k, each in enumerate(channels))
    return list(chain.from_iterable(found))


def finite_plane(plane: np.ndarray) -> np.ndarray:
    """Return a plane as float32, with the nearest finite pixel in place of NaN and infinity."""
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(plane, np.float32)
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
    with mapping(len(some)) as each:
        seen = list(each(_analyse_plane, some))
    found = []
    for axis, kind in enumerate(("rows", "columns")):
        known = [each.offsets[axis] for each in seen if each.offsets[axis] is not None]
        if 2 * len(known) > len(seen):
            pairs = [rows.shared_variation(a.jumps, b.jumps)[0] for a, b in combinations(known, 2)]
            fixed = bool(np.median(pairs) >= SAME) if pairs else None
            strength = float(np.median([each.strength for each in known]))
            agreed = float(np.median([each.agreement for each in known]))
            found.append(Finding(kind, strength, agreed, fixed, channel=channel))
    if 2 * sum(bool(each.waves) for each in seen) > len(seen):
        most = max((each.waves for each in seen), key=len)
        power = sum(abs(wave.amplitude) ** 2 / 2 for wave in most)
        sure = min(wave.agreement for wave in most)
        where = tuple((wave.fy, wave.fx) for wave in most)
        found.append(Finding("hum", power**0.5, sure, None, frequencies=where, channel=channel))
    for side, kind in enumerate(("hot", "dead")):
        pixels = [each.pixels[side] for each in seen if each.pixels]
        weight = float(np.median([one.weight for one in pixels])) if pixels else 0.0
        if weight >= outliers.LEAST_WEIGHT:
            count = [np.count_nonzero(one.mask) for one in pixels]
            often = np.sum([one.mask for one in pixels], axis=0)
            common = often[2 * often > len(pixels)].sum() >= SAME * sum(count)
            excess = float(np.median([one.excess for one in pixels]))
            sure = weight / (weight + outliers.LEAST_WEIGHT / 4)
            share = 100 * sum(count) / (often.size * len(pixels))
            fixed = bool(common) if len(pixels) > 1 else None
            found.append(Finding(kind, excess, sure, fixed, share=share, channel=channel))
    return found


def _analyse_plane(plane: np.ndarray) -> _Plane:
    # Many rows of a large plane tell enough, and so do many columns, and the middle of both.
    down, across = (
        slice(start := max(n - MAX_SIDE, 0) // 2, start + MAX_SIDE) for n in plane.shape
    )
    crops = plane[down, across], plane[down], plane[:, across]
    whole = max(plane.shape) <= MAX_SIDE
    middle, flat, upright = [finite_plane(plane)] * 3 if whole else map(finite_plane, crops)
    # Squares of extreme values are beyond float32.
    if not 1e-15 < max(float(middle.max()), -float(middle.min())) < 1e15:
        return _Plane()
    tasks = (
        partial(outliers.find_outliers, middle, many=True),
        partial(hum.find_waves, middle),
        partial(rows.row_evidence, flat),
        partial(rows.row_evidence, upright, axis=0),
    )
    with mapping(min(4, os.cpu_count() or 1) if plane.size >= MIN_THREADED else 1) as each:
        pixels, waves, *offsets = each(operator.call, tasks)
    # Each is hidden or imitated by those before it.
    found = [each for each in pixels if each.found]
    for one in found:
        middle = outliers.replaced(middle, one.mask)
    waves = hum.find_waves(middle) if found else waves
    if whole and (found or waves):
        middle = hum.without(middle, waves)
        offsets = [rows.row_evidence(middle, axis) for axis in (1, 0)]
    return _Plane(offsets, waves, pixels)
