"""Find structured noise in an image."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from napari_gpu_denoise.image.levels import fill_nonfinite
from napari_gpu_denoise.image.threads import mapping
from napari_gpu_denoise.noise.sampling import PlaneReader
from napari_gpu_denoise.noise.structure import hum, outliers, rows
from napari_gpu_denoise.noise.structure.record import Finding, StructuredNoise

_LONGEST = 1024  # pixels of the middle of a plane that hum and single pixels are looked for in
_THREADED = 1 << 19  # pixels of a plane from which threads gain more than they wait
_SAME = 0.5  # correlation of the offsets of planes, or share of pixels in common, if fixed


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
    Rows: the levels of rows, without their smooth part, agree between the left, the middle and the
    right third of a plane. Hum: a peak of the spectrum whose amplitude and phase are the same in 12
    of 16 blocks. Single pixels: isolated, beyond the local noise and texture, and more numerous
    than the tail of all deviations explains. Planes need at least 48 pixels along a row, for hum
    64. Clean pictures (BSD68, W2S) give no false alarms; see ``docs/methods/structured_noise.md``.
    Some 0.05 s a plane, however large.

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
    """Return the findings in planes of each channel; only three of each are read."""
    found: list[Finding] = []
    for number, planes in enumerate(channels):
        structure = structure_of(first_middle_last(planes))
        found += structure.findings(number if len(channels) > 1 else None)
    return found


def first_middle_last(planes: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the first, a middle and the last plane, as far as there are any."""
    last = len(planes) - 1
    return [planes[k] for k in sorted({0, last // 2, last})]


def finite_plane(plane: np.ndarray) -> np.ndarray:
    """Return a plane as float32, with the nearest finite pixel in place of NaN and infinity."""
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(plane, np.float32)
    return fill_nonfinite(values, "YX", "keep")[0]


@dataclass(frozen=True)
class Offsets:
    """What was found of offsets of the rows or of the columns."""

    found: bool
    agreement: float
    strength: float
    fixed: bool | None


@dataclass(frozen=True)
class Structure:
    """What was found in the planes of a channel."""

    rows: Offsets
    columns: Offsets
    waves: tuple[list[hum.Wave], ...]  # of each plane
    pixels: tuple[tuple[outliers.Outliers, outliers.Outliers], ...]  # of each plane, hot and dead

    def has_pixels(self, side: int) -> bool:
        """Return whether there are hot (0) or dead (1) pixels."""
        return bool(self.pixels) and np.median([each[side].weight for each in self.pixels]) >= (
            outliers.LEAST_WEIGHT
        )

    @property
    def has_waves(self) -> bool:
        """Whether most planes have hum."""
        return 2 * sum(map(bool, self.waves)) > len(self.waves)

    def findings(self, channel: int | None) -> list[Finding]:
        """Return the findings."""
        found = [
            Finding(kind, each.strength, each.agreement, each.fixed, channel=channel)
            for kind, each in (("rows", self.rows), ("columns", self.columns))
            if each.found
        ]
        if self.has_waves:
            most = max(self.waves, key=len)
            power = sum(abs(wave.amplitude) ** 2 / 2 for wave in most)
            sure = min(wave.agreement for wave in most)
            where = tuple((wave.fy, wave.fx) for wave in most)
            found.append(Finding("hum", power**0.5, sure, None, frequencies=where, channel=channel))
        for side, kind in enumerate(("hot", "dead")):
            if self.has_pixels(side):
                found.append(self._pixels(side, kind, channel))
        return found

    def _pixels(self, side: int, kind: str, channel: int | None) -> Finding:
        each = [plane[side] for plane in self.pixels]
        count = sum(int(np.count_nonzero(one.mask)) for one in each)
        weight = float(np.median([one.weight for one in each]))
        fixed = None
        if len(each) > 1:
            together = np.sum([one.mask for one in each], axis=0)
            fixed = bool(np.sum(together[2 * together > len(each)]) >= _SAME * count)
        return Finding(
            kind,
            float(np.median([one.excess for one in each])),
            weight / (weight + outliers.LEAST_WEIGHT / 4),
            fixed,
            share=100 * count / sum(one.mask.size for one in each),
            channel=channel,
        )


def structure_of(planes: Sequence[np.ndarray]) -> Structure:
    """Return the structured noise of planes (y, x) of one channel."""
    looked = _each([partial(_analyse_plane, plane) for plane in planes], len(planes) > 1)
    return Structure(
        *(_offsets([each[k] for each in looked]) for k in (0, 1)),
        tuple(each[2] for each in looked),
        tuple(each[3] for each in looked if each[3] is not None),
    )


def _analyse_plane(plane: np.ndarray) -> tuple[Any, Any, list[hum.Wave], Any]:
    """Return the evidence of rows and columns, the waves, and the outliers of a plane."""
    # Many rows of a large plane tell enough, and so do many columns, and the middle of both.
    down, across = (
        slice(start := max(n - _LONGEST, 0) // 2, start + _LONGEST) for n in plane.shape
    )
    small, in_threads = max(plane.shape) <= _LONGEST, plane.size >= _THREADED
    crops = [plane] if small else [plane[down, across], plane[down], plane[:, across]]
    crops, largest = zip(*_each([partial(_finite_crop, c) for c in crops], in_threads), strict=True)
    # Squares of extreme values are beyond float32.
    if not 1e-15 < max(largest) < 1e15:
        return None, None, [], None
    middle, flat, upright = crops * 3 if small else crops
    waves = evidence = None
    if in_threads:
        tasks = partial(_pixels, middle), partial(_waves, middle)
        tasks += partial(_evidence, flat, 1), partial(_evidence, upright, 0)
        pixels, waves, *evidence = _each(tasks, in_threads)
    else:
        pixels = _pixels(middle)
    found = [each for each in pixels or () if each.found]
    for each in found:
        middle = outliers.replaced(middle, each.mask)
    if found or waves is None:
        waves = _waves(middle)
    if waves and small:
        flat = upright = hum.without(flat, waves)
        evidence = None
    in_rows, in_columns = evidence or (_evidence(flat, 1), _evidence(upright, 0))
    return in_rows, in_columns, waves, pixels


def _each(tasks: Sequence[Callable[[], Any]], in_threads: bool) -> list[Any]:
    """Return the results of tasks, in threads of their own if they are worth it."""
    with mapping(min(len(tasks), os.cpu_count() or 1) if in_threads else 1) as each:
        return list(each(operator.call, tasks))


def _finite_crop(crop: np.ndarray) -> tuple[np.ndarray, float]:
    """Return part of a plane as finite float32, not copied if it is that, and its largest value."""
    if crop.dtype == np.float32:
        largest = max(float(crop.max()), -float(crop.min()))  # they hand on NaN
        if math.isfinite(largest):
            return crop, largest
    found = finite_plane(crop)
    return found, max(float(found.max()), -float(found.min()))


def _evidence(plane: np.ndarray, axis: int) -> rows.RowEvidence | None:
    """Return the evidence for offsets of rows, or of columns with an axis of 0."""
    length, width = plane.shape[1 - axis], plane.shape[axis]
    if length < rows.SHORTEST or width < rows.NARROWEST:
        return None
    return rows.row_evidence(rows.segments(plane, axis=axis))


def _pixels(middle: np.ndarray) -> Any:
    """Return the outliers of a plane that is large enough for these."""
    if min(middle.shape) < outliers.SMALLEST:
        return None
    return outliers.find_outliers(middle, many=True)


def _waves(middle: np.ndarray) -> list[hum.Wave]:
    """Return the waves of a plane, none if it is too small for these."""
    return hum.find_waves(middle) if min(middle.shape) >= hum.SMALLEST else []


def _offsets(evidence: Sequence[rows.RowEvidence | None]) -> Offsets:
    """Return whether most planes have offsets, and whether these are the same."""
    known = [each for each in evidence if each is not None]
    if not known or 2 * sum(each.found for each in known) <= len(evidence):
        return Offsets(False, 0.0, 0.0, None)
    found = [each for each in known if each.found]
    fixed = None
    if len(found) > 1:
        pairs = [rows.agreement(a.jumps, b.jumps) for a, b in combinations(found, 2)]
        fixed = bool(np.median(pairs) >= _SAME)
    strength, agreed = (
        float(np.median([getattr(each, name) for each in found]))
        for name in ("strength", "agreement")
    )
    return Offsets(True, agreed, strength, fixed)
