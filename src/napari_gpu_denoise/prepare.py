"""What is checked and changed in an array before the kernels see it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

import numpy as np

from napari_gpu_denoise.axes import arrange, convert
from napari_gpu_denoise.errors import AxesError, ImageError
from napari_gpu_denoise.pipeline import Filter, yields_map
from napari_gpu_denoise.sigma import varies_within


def settings_for(settings: Filter, names: str, shape: tuple[int, ...]) -> Filter:
    """Return the settings that apply to an array.

    Those that look along an axis are set to their defaults where that axis has length 1: the
    result is the same as without the axis, to the last bit. A filter that has a method
    ``for_array(names, shape)`` then decides what depends on the array, as which axes are joined.

    Raises
    ------
    AxesError
        If a setting looks along an axis that the array does not have.
    """
    unused = {}
    for spec in fields(settings):
        axis, value = spec.metadata["needs_axis"], getattr(settings, spec.name)
        if axis is None or value == spec.default:
            continue
        if axis not in names:
            raise AxesError(
                f"{spec.name}={value} needs an axis {axis}, but the axes are {names!r}: name them, "
                f"as axes='{axis}YX'."
            )
        if shape[names.index(axis)] == 1 and not spec.default:
            unused[spec.name] = spec.default
    applied = replace(settings, **unused)
    for_array = getattr(applied, "for_array", None)
    return applied if for_array is None else for_array(names, shape)


def wanted_frames(frames: int | slice | None, names: str, shape: tuple[int, ...]) -> range | None:
    """Return which frames along T are wanted; None for all.

    Raises
    ------
    AxesError
        If there is no axis T, or no such frames.
    """
    if frames is None:
        return None
    if "T" not in names:
        raise AxesError(
            f"frames={frames} needs an axis T, but the axes are {names!r}: name them, as "
            "axes='TYX'."
        )
    count = shape[names.index("T")]
    if isinstance(frames, slice):
        found = range(*frames.indices(count))
    else:
        found = (
            range(frames, frames + 1) if frames >= 0 else range(count + frames, count + frames + 1)
        )
    if not found or found.step != 1 or found.start < 0 or found.stop > count:
        raise AxesError(
            f"frames={frames} names none of the {count} frames along T, or not all between two: "
            "give a number from 0, or a slice without a step."
        )
    return found


def along_time(
    wanted: range | None, names: str, shape: tuple[int, ...] | None = None
) -> tuple[slice, ...]:
    """Return the index of the frames wanted; with a `shape`, all along T if it has length 1."""
    whole = [slice(None)] * len(names)
    if wanted is not None:
        t = names.index("T")
        if shape is None or shape[t] > 1:
            whole[t] = slice(wanted.start, wanted.stop)
    return tuple(whole)


def check_policy(nonfinite: str) -> None:
    """Refuse an unknown policy for NaN and infinity.

    Raises
    ------
    ImageError
    """
    if nonfinite not in ("raise", "keep"):
        raise ImageError(f"nonfinite={nonfinite!r} is unknown: choose 'raise' or 'keep'.")


def fill_nonfinite(array: np.ndarray, names: str, policy: str):
    """Return the array with NaN and infinity replaced by the nearest finite pixel, and where.

    The second value is None when all pixels are finite. A plane with no finite pixel becomes 0.
    """
    check_policy(policy)
    if policy == "raise" or array.dtype.kind != "f":
        return array, None
    odd = ~np.isfinite(array)
    if not odd.any():
        return array, None
    from scipy.ndimage import distance_transform_edt

    filled = array.copy()
    planes, holes = arrange(filled, names), arrange(odd, names)
    for t in range(planes.shape[1]):
        plane, hole = planes.frame(0, t)[0], holes.frame(0, t)[0]
        if hole.all():
            plane[...] = 0
        elif hole.any():
            nearest = distance_transform_edt(hole, return_distances=False, return_indices=True)
            plane[hole] = plane[tuple(nearest)][hole]
    return filled, odd


def extend(array: np.ndarray, names: str, lengths: Iterable[int], smallest: int) -> np.ndarray:
    """Mirror the end of Y and X where they are shorter than the filter can work on."""
    missing = [
        (0, max(smallest - n, 0) if a in "YX" else 0) for a, n in zip(names, lengths, strict=True)
    ]
    if not any(after for _, after in missing):
        return array
    return np.pad(array, missing, mode="symmetric")


def extend_sigma(
    sigma: np.ndarray, names: str, lengths: Iterable[int], smallest: int
) -> np.ndarray:
    """Mirror a map of sigma as `extend` does the pixels; what does not vary is left as it is."""
    held = [n if m > 1 else smallest for n, m in zip(lengths, sigma.shape, strict=True)]
    return extend(sigma, names, held, smallest)


def put_together(filtered: np.ndarray, where: tuple, given: np.ndarray, rest: tuple) -> np.ndarray:
    """Return an array of which one part was filtered and the rest, as alpha, is as it was given.

    Parameters
    ----------
    filtered : ndarray
        What was made of ``given[where]``; its type is that of the result.
    where, rest : tuple
        Indices of both parts.
    given : ndarray
        The whole.
    """
    whole = np.empty(given.shape, filtered.dtype)
    whole[where] = filtered
    convert(given[rest], whole[rest])
    return whole


def unfiltered(settings: Filter, image: np.ndarray) -> np.ndarray:
    """Return what pixels become in which there is nothing to filter: themselves, in a map 0."""
    if yields_map(settings):
        return np.broadcast_to(np.zeros((), image.dtype), image.shape)
    return image


def keep_noiseless(image: np.ndarray, out: np.ndarray, names: str, sigma: np.ndarray) -> None:
    """Copy the pixels whose sigma is 0 to the output: there is nothing to filter in them.

    `sigma` has the axes of the image, each of its length there or of length 1.
    """
    if sigma.all():
        return
    if not varies_within(sigma, names):
        for place in np.argwhere(sigma == 0):
            index = tuple(
                k if n > 1 else slice(None) for k, n in zip(place, sigma.shape, strict=True)
            )
            convert(image[index], out[index])
        return
    planes = [i for i, a in enumerate(names) if a not in "YX"]
    order = [*planes, names.index("Y"), names.index("X")]
    image, out, sigma = (np.transpose(a, order) for a in (image, out, sigma))
    plane = sigma[(0,) * len(planes)]
    still = np.broadcast_to(plane == 0, image.shape[-2:])
    kept = image[..., still]
    values = np.empty(kept.shape, out.dtype)
    convert(kept, values)
    out[..., still] = values
