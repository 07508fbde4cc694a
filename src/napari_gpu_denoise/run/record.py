"""The result of a run, and the record of how it was made."""

from __future__ import annotations

import math
import operator
from dataclasses import asdict, astuple, dataclass, field
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import Note
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.image.threads import quiet
from napari_gpu_denoise.noise.robust import medians
from napari_gpu_denoise.opencl.device import Device


@dataclass(frozen=True)
class Tally:
    """Numbers of clipped values and of non-finite pixels, as in `Record`, and of fill values."""

    saturated: int = 0
    nonfinite: int = 0
    fill: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(*map(operator.add, astuple(self), astuple(other)))


@dataclass
class DeviceReport:
    """What was done by several devices: clipped values, devices used, and those that failed.

    `used` has them by what they are of, such as the address of a worker.
    """

    tally: Tally = field(default_factory=Tally)
    used: dict[Any, Device | str] = field(default_factory=dict)
    failed: list[tuple[Device | str, BaseException]] = field(default_factory=list)


@dataclass(frozen=True)
class Record:
    """How a result was made.

    Attributes
    ----------
    version : str
        Version of this package.
    filter : str
        Name of the filter.
    settings : dict
        Every setting by name.
    sigma : tuple of float
        Noise standard deviation, in grey levels, before `sigma_factor`: one value, one per
        channel, or one per plane; for a map its root mean square.
    sigma_source : str
        ``"given"``, ``"given as a map from … to …"``, or how it was estimated.
    axes : str
        Axes of the array.
    input_dtype, output_dtype : str
        Types of the pixels.
    device : str
        Device the filter ran on.
    noise : tuple of dict
        Noise models, one per channel or one for all, as `NoiseModel.from_dict` takes them; empty
        if the noise is described by sigma alone.
    saturated : int
        Values of the result that were clipped to the range of its type.
    nonfinite : int
        Pixels that were NaN or infinite and were left as they were.
    notes : tuple of str
        Further remarks for the user.
    date : str
        UTC, ISO 8601.
    corrected : tuple of str
        Structured noise that was found and removed first, in words; empty if this was not
        requested.
    assessment : dict or None
        Quality of the result, as from `Assessment.as_dict`; None if it was not assessed.
    sigma_factor : float
        Factor by which sigma was multiplied: the requested strength.
    source : str
        Name of the file or the layer that was filtered; empty for an array.
    recommended : str
        The filter, its profile and the reason, if `recommend` chose it for this file; else empty.
    made_from : dict
        Digests of the content of the input file, and of all of the request on which pixels depend,
        by name; empty for an array. ``resume=True`` keeps results of which all are the same.
    """

    version: str
    filter: str
    settings: dict[str, Any]
    sigma: tuple[float, ...]
    sigma_source: str
    axes: str
    input_dtype: str
    output_dtype: str
    device: str
    saturated: int
    nonfinite: int
    notes: tuple[str, ...]
    date: str
    noise: tuple[dict[str, Any], ...] = ()
    corrected: tuple[str, ...] = ()
    assessment: dict[str, Any] | None = None
    sigma_factor: float = 1.0
    source: str = ""
    recommended: str = ""
    made_from: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain values, ready for JSON."""
        lists = {
            name: list(getattr(self, name)) for name in ("sigma", "notes", "noise", "corrected")
        }
        values = {**asdict(self), **lists}
        for name in ("assessment", "source", "recommended", "made_from"):
            if not values[name]:
                del values[name]
        return values


@dataclass(frozen=True)
class Result:
    """A denoised array and the record of how it was made.

    Attributes
    ----------
    image : ndarray
        The pixels, or the array that was passed as ``out``.
    record : Record
        Filter, settings, noise, device and notes.
    """

    image: np.ndarray
    record: Record


_LEAST = 0.05  # share of the variation between neighbours that a filter is expected to remove
_PIXELS = 1 << 13  # looked at, about, each beside its neighbour


@quiet()
def change_note(before: np.ndarray, after: np.ndarray, names: str) -> Note | None:
    """Return a note if neighbouring pixels of a result vary nearly as much as those of its image.

    Both arrays have the axes `names`; a plane in the middle is looked at. The median of the
    differences shows noise rather than edges.
    """
    channel = channel_axis(names)
    where = tuple(
        slice(None) if letter in "YX" or axis == channel else before.shape[axis] // 2
        for axis, letter in enumerate(names)
    )
    kept = [letter for axis, letter in enumerate(names) if letter in "YX" or axis == channel]
    along = kept.index("X"), kept.index("Y")
    ends = []
    for image in (before, after):
        plane = image[where]
        # Every so many pixels along both axes: reading a large plane takes longer than filtering.
        skip = max(1, math.isqrt(plane.size // _PIXELS))
        steps = [slice(None)] * plane.ndim
        steps[along[1]], pair = slice(None, None, skip), []
        for first, last in ((0, -1), (1, None)):
            steps[along[0]] = slice(first, last, skip)
            pair.append(plane[tuple(steps)].astype(np.float64))
        differences = np.abs(pair[1] - pair[0])
        known = differences[np.isfinite(differences)]
        if not known.size:
            return None
        ends.append((float(medians(known)), float(known.mean())))
    (median, mean), (median_after, mean_after) = ends
    share = 1 - median_after / median if median > 0 else 1 - mean_after / mean if mean > 0 else 1.0
    if share >= _LEAST:
        return None
    return Note(
        f"the result is nearly the same as the image: neighbouring pixels vary {max(share, 0):.0%} "
        "less. If noise is visible, it may be correlated between pixels, or stronger than "
        "measured",
        "noise='correlated', or give sigma",
        code="unchanged",
    )
