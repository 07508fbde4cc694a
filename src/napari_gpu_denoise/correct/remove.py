"""Public functions that remove structured noise, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from napari_gpu_denoise.correct.correction import prepare_correction
from napari_gpu_denoise.correct.request import CHOICES, STRIPES, CorrectionRequest
from napari_gpu_denoise.docstrings import documented
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.image.axes import check_axes
from napari_gpu_denoise.image.levels import (
    as_array,
    check_numbers,
    check_policy,
    convert,
    nonfinite_error,
    output_dtype,
)

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
    The levels are modelled as an image that changes smoothly or only in few places along its
    columns, plus an offset for each row. The most probable combination is found by reweighted least
    squares on the means of short segments of the rows. Each frequency along y is then shrunk
    according to how much of the image remains in it; offsets of different rows are assumed to be
    independent. So smooth shading of the image is kept, together with the equally smooth part of
    the offsets, and their mean. Planes of fewer than 16 rows or 48 columns are left unchanged.
    About 0.5 s per megapixel, including detection.

    References
    ----------
    B. Münch, P. Trtik, F. Marone, M. Stampanoni, "Stripe and ring artifact removal with combined
    wavelet-Fourier filtering", Opt. Express 17 (2009), doi:10.1364/OE.17.008567, separates stripes
    by direction and frequency; here a model of the image is used; Y. Chang, L. Yan, T. Wu, S.
    Zhong, "Remote sensing image stripe noise removal: from image decomposition perspective", IEEE
    Trans. Geosci. Remote Sens. 54 (2016), doi:10.1109/TGRS.2016.2594080; P. Whittle, "Estimation
    and information in stationary time series", Ark. Mat. 2 (1953), doi:10.1007/BF02590998 (how
    spectra are fitted).
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
    The local noise is the largest of three: the spread of the eight neighbours, the noise at this
    brightness in the plane, and 1.5 times the mean deviation in 9 x 9 pixels, which texture raises.
    A pixel whose second most extreme neighbour has half its deviation is kept: objects resolved by
    optics are never a single pixel. Pixels that are outliers in half of up to 8 planes are replaced
    in all. Points of light of one pixel, such as stars in undersampled images, would be removed.
    About 0.2 s per megapixel.

    References
    ----------
    P. G. van Dokkum, "Cosmic-ray rejection by Laplacian edge detection", PASP 113 (2001),
    doi:10.1086/323894.
    """
    if threshold is not None and not (
        isinstance(threshold, (int, float, np.number)) and 0 < threshold < np.inf
    ):
        raise SettingsError(f"threshold={threshold!r} is not a positive number: give one, or None.")
    kinds = frozenset(CHOICES["outliers"])
    request = CorrectionRequest(kinds, kinds, threshold=threshold)
    return _removed(image, axes, request, dtype, nonfinite)


def _removed(
    image: ArrayLike, axes: str | None, request: CorrectionRequest, dtype: Any, nonfinite: str
) -> np.ndarray:
    """Return an image in its type without the structured noise that `request` names."""
    given = as_array(image)
    names = check_axes(axes, given.shape)
    check_numbers(given)
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
