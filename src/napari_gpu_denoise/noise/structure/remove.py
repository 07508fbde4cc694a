"""Remove structured noise: a correction, prepared once and applied to any plane of an image."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from napari_gpu_denoise.docstrings import documented
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.image.axes import channel_axis, check_axes, index_parts
from napari_gpu_denoise.image.levels import (
    as_array,
    as_number,
    check_policy,
    convert,
    fill_nonfinite,
    nonfinite_error,
    output_dtype,
    readable,
)
from napari_gpu_denoise.image.threads import mapping
from napari_gpu_denoise.noise.patches.selection import constant_squares
from napari_gpu_denoise.noise.sampling import PlaneReader
from napari_gpu_denoise.noise.structure import hum, outliers, rows
from napari_gpu_denoise.noise.structure.find import find_in_planes, finite_plane
from napari_gpu_denoise.noise.structure.record import CHOICES, STRIPES, CorrectionRequest, Finding
from napari_gpu_denoise.noise.structure.rows import plane_offsets


@dataclass(frozen=True)
class ChannelCorrection:
    """What is removed from the planes of one channel.

    `rows` and `columns` are offsets that are the same in all planes; ``"each"`` has each plane
    measured, None leaves them. `pixels` are outliers in all planes, `sides` those looked for in
    each plane: hot (0), dead (1).
    """

    rows: np.ndarray | str | None = None
    columns: np.ndarray | str | None = None
    hum: bool = False
    pixels: np.ndarray | None = None
    sides: tuple[int, ...] = ()
    threshold: float | None = None

    def __bool__(self) -> bool:
        return self.rows is not None or self.columns is not None or self.hum or bool(self.sides)

    def applied(self, plane: np.ndarray) -> np.ndarray:
        """Return a plane (y, x), float32 and finite, without its structured noise."""
        given = plane
        if self.sides:
            mask = np.zeros(plane.shape, bool) if self.pixels is None else self.pixels.copy()
            found = outliers.find_outliers(plane, self.threshold)
            for side in self.sides:
                mask |= found[side].mask
            plane = outliers.replaced(plane, mask)
        if self.hum:
            plane = hum.without(plane, hum.find_waves(plane))
        plane = _without_rows(plane, self.rows)
        plane = _without_rows(plane.T, self.columns).T
        # Constant areas, such as padding, stay as they are.
        same = constant_squares(given, 16)
        return plane if same is None else np.where(same, given, plane)


@dataclass(frozen=True)
class Correction:
    """The correction of an image: one for each channel, and what was found.

    `names` are the axes of the image.
    """

    names: str
    channels: tuple[ChannelCorrection, ...]
    findings: tuple[Finding, ...]

    def __bool__(self) -> bool:
        return any(map(bool, self.channels))

    def of(self, array: Any) -> CorrectedArray:
        """Return an array of its shape, which is corrected as it is read."""
        return CorrectedArray(array, self)

    def applied(self, block: np.ndarray) -> np.ndarray:
        """Return pixels without structured noise, float32; NaN and infinity stay as they are.

        `block` has all of the axes Y, X and of the channels, and any part of the others.
        """
        names, out = self.names, np.array(block, np.float32)
        filled, mask = fill_nonfinite(out, names, "keep")
        read, write = (
            np.moveaxis(each, (names.index("Y"), names.index("X")), (-2, -1))
            for each in (filled, out)
        )
        axis = channel_axis(names.replace("Y", "").replace("X", ""))

        def correct(place: tuple[int, ...]) -> None:
            channel = self.channels[0 if axis is None else place[axis]]
            write[place] = channel.applied(np.ascontiguousarray(read[place]))

        places = list(np.ndindex(read.shape[:-2]))
        with mapping(min(len(places), os.cpu_count() or 1)) as each:
            list(each(correct, places))
        if mask is not None:
            out[mask] = np.asarray(block)[mask]
        return out

    def words(self) -> tuple[str, ...]:
        """Return the findings that are removed, in words."""
        return tuple(each.words() for each in self.findings)


def prepare_correction(image: Any, names: str, request: CorrectionRequest) -> Correction:
    """Look for structured noise in some planes of an image, and decide what is removed."""
    reader = PlaneReader(image, names)
    made: list[tuple[ChannelCorrection, list[Finding]]] = []
    for number, channel in enumerate(reader.channels):
        whole = reader.sampled(channel, side=max(image.shape))
        planes = list(map(finite_plane, whole))
        made.append(_for_channel(planes, request, None if channel is None else number))
    findings = tuple(each for _, found in made for each in found)
    return Correction(reader.axes, tuple(one for one, _ in made), findings)


def _for_channel(
    planes: list[np.ndarray], request: CorrectionRequest, number: int | None
) -> tuple[ChannelCorrection, list[Finding]]:
    """Return the correction of a channel, and what was found of what it removes."""
    kinds = request.kinds | {"hot", "dead"} if "outliers" in request.kinds else request.kinds
    findings = [each for each in find_in_planes(planes, number) if each.kind in kinds]
    found = {each.kind: each for each in findings}
    sides = tuple(k for k in (0, 1) if ("hot", "dead")[k] in found or "outliers" in request.always)
    made = ChannelCorrection(hum="hum" in found, sides=sides, threshold=request.threshold)
    if sides and len(planes) > 2:
        # Outliers in at least half of the planes.
        count = np.zeros(planes[0].shape, np.int32)
        for plane in planes:
            both = outliers.find_outliers(plane, made.threshold)
            count += np.any([both[side].mask for side in sides], axis=0)
        made = replace(made, pixels=2 * count >= len(planes))
    # Rows and columns are measured without what is removed before them.
    offsets: dict[str, Any] = {}
    for kind in ("rows", "columns"):
        if kind not in found and kind not in request.always:
            continue
        fixed = found[kind].fixed if kind in found and request.fixed is None else request.fixed
        offsets[kind] = "each"
        if fixed and len(planes) > 1:
            turned = (made.applied(each) for each in planes)
            offsets[kind] = plane_offsets([p if kind == "rows" else p.T for p in turned])
    return replace(made, **offsets), findings


def _without_rows(plane: np.ndarray, offsets: np.ndarray | str | None) -> np.ndarray:
    """Return a plane without the offsets of its rows, given or to be measured."""
    if offsets is None or len(plane) < rows.SHORTEST or plane.shape[1] < rows.NARROWEST:
        return plane
    if isinstance(offsets, str):
        offsets = plane_offsets([plane])
    return plane - offsets[:, None]


class CorrectedArray:
    """An array that is not in memory, corrected when it is read by NumPy indexing.

    What is read must have all of Y, X and the channels; integers may select from other axes.
    """

    def __init__(self, array: Any, correction: Correction):
        self._array, self._correction = array, correction
        self.shape, self.dtype = tuple(array.shape), np.dtype(np.float32)
        self.ndim = len(self.shape)
        self.size = math.prod(self.shape)

    def __getitem__(self, index: Any) -> np.ndarray:
        # Whole planes of all channels are corrected, then what was asked for is cut out.
        names = self._correction.names
        read: list[int | slice] = []
        cut: list[int | slice] = []
        for k, one in enumerate(index_parts(index, self.shape)):
            whole = names[k] in "YX" or k == channel_axis(names)
            number = isinstance(one, int)
            read.append(slice(None) if whole else slice(one, one + 1) if number else one)
            cut.append(one if whole else 0 if number else slice(None))
        return self._correction.applied(as_array(self._array[tuple(read)]))[tuple(cut)]


_KINDS = {"found": STRIPES, "both": ("rows", "columns"), **{kind: (kind,) for kind in STRIPES}}


@documented
def remove_stripes(
    image: ArrayLike,
    axes: str | None = None,
    *,
    kind: str = "found",
    fixed: bool | None = None,
    dtype: Any = None,
    nonfinite: str = "raise",
) -> np.ndarray:
    """Remove offsets of rows or columns, and periodic hum.

    Parameters
    ----------
    {image}
    {axes}
    kind : {"found", "rows", "columns", "both", "hum"}, optional
        What to remove: everything that `find_structure` finds, the default; offsets of rows,
        columns or both, even if they are not found; or hum, if it is found.
    fixed : bool, optional
        Whether the offsets are the same in all planes, and measured on up to 8 of them together, or
        different, and measured on each plane. By default this is detected. Hum is always measured
        on each plane.
    {same_dtype}
    {nonfinite}

    Returns
    -------
    {result}
        Constant areas, such as padding, stay as they are.

    Raises
    ------
    {input_errors}

    See Also
    --------
    find_structure : Find it without removing it.
    remove_outliers : Hot and dead pixels.

    Notes
    -----
    Smooth shading is kept, with the equally smooth part of the offsets, and their mean. Planes of
    fewer than 16 rows or 48 columns are left unchanged; see ``docs/methods/structured_noise.md``.

    References
    ----------
    B. Münch, P. Trtik, F. Marone, M. Stampanoni, "Stripe and ring artifact removal with combined
    wavelet-Fourier filtering", Opt. Express 17 (2009), doi:10.1364/OE.17.008567, separates stripes
    by direction and frequency; here a model of the image is used; P. Whittle, "Estimation and
    information in stationary time series", Ark. Mat. 2 (1953), doi:10.1007/BF02590998 (how spectra
    are fitted).
    """
    if kind not in _KINDS:
        raise SettingsError(f"kind={kind!r} is unknown: choose from {', '.join(_KINDS)}.")
    always = () if kind in ("found", "hum") else _KINDS[kind]
    request = CorrectionRequest(frozenset(_KINDS[kind]), frozenset(always), fixed)
    return _removed(image, axes, request, dtype, nonfinite)


@documented
def remove_outliers(
    image: ArrayLike,
    axes: str | None = None,
    *,
    threshold: float | None = None,
    dtype: Any = None,
    nonfinite: str = "raise",
) -> np.ndarray:
    """Replace hot and dead pixels by the median of their neighbours.

    Parameters
    ----------
    {image}
    {axes}
    threshold : float, optional
        Minimum difference of a pixel from the median of its neighbours, in units of the local
        noise. By default it is chosen so that noise and texture are expected to cause 0.2 such
        pixels in a plane, and at least 5.5.
    {same_dtype}
    {nonfinite}

    Returns
    -------
    {result}
        All other pixels are unchanged.

    Raises
    ------
    {input_errors}

    See Also
    --------
    find_structure : Whether there are hot or dead pixels at all.

    Notes
    -----
    A pixel whose second most extreme neighbour has half its deviation is kept: objects resolved by
    optics are never a single pixel. Pixels that are outliers in half of up to 8 planes are replaced
    in all, and whole rows and columns that are hot or dead. Points of light of one pixel, such as
    stars in undersampled images, would be removed. See ``docs/methods/structured_noise.md``.

    References
    ----------
    P. G. van Dokkum, "Cosmic-ray rejection by Laplacian edge detection", PASP 113 (2001),
    doi:10.1086/323894.
    """
    if threshold is not None and not 0 < as_number(threshold) < np.inf:
        raise SettingsError(f"threshold={threshold!r} is not a positive number: give one, or None.")
    kinds = frozenset(CHOICES["outliers"])
    request = CorrectionRequest(kinds, kinds, threshold=threshold)
    return _removed(image, axes, request, dtype, nonfinite)


def _removed(
    image: ArrayLike, axes: str | None, request: CorrectionRequest, dtype: Any, nonfinite: str
) -> np.ndarray:
    """Return an image in its type without the structured noise that `request` names."""
    given = readable(as_array(image))
    names = check_axes(axes, given.shape)
    check_policy(nonfinite)
    if nonfinite == "raise" and given.dtype.kind == "f" and not np.isfinite(given).all():
        count = given.size - int(np.count_nonzero(np.isfinite(given)))
        raise nonfinite_error(f"{count} of {given.size} pixels are NaN or infinite")
    out = np.empty(given.shape, output_dtype(dtype, given.dtype) or given.dtype.newbyteorder("="))
    convert(given, out)
    correction = prepare_correction(given, names, request)
    if correction:
        made = correction.applied(given)
        # Pixels that did not change keep all the digits of their type.
        changed = made != given.astype(np.float32)
        if nonfinite == "keep" and given.dtype.kind == "f":
            changed &= np.isfinite(given)
        new = np.empty(given.shape, out.dtype)
        convert(made, new)
        out[changed] = new[changed]
    return out
