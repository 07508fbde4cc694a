"""The result of a run, and the record of how it was made."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, field
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import Note, SaturationWarning, UnchangedWarning
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.noise.models import NoiseModel
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
    estimate : dict
        What was measured, as `NoiseEstimate.from_dict` takes it, where `sigma` and `noise` do not
        repeat the run: planes or places have a sigma each, or areas are blank. Else empty.
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
    estimate: dict[str, Any] = field(default_factory=dict)
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
        rare = ("estimate", "assessment", "source", "recommended", "made_from")
        return {name: value for name, value in values.items() if value or name not in rare}


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


NO_NOISE = "sigma is 0: the image is returned unchanged"  # in the notes of a record


def warn_of(
    notes: Iterable[str], measured: bool, saturated: int = 0, dtype: Any = None, level: int = 3
) -> None:
    """Warn of clipped values, and of measured noise that is too weak to filter, or not proven."""
    if saturated:
        values = "1 value was" if saturated == 1 else f"{saturated} values were"
        told = f"{values} clipped to the range of {dtype}: use dtype='float32' to keep them."
        warnings.warn(told, SaturationWarning, stacklevel=level)
    for note in notes:
        code = getattr(note, "code", "")
        if measured and (note == NO_NOISE or code in ("unchanged", "unproven")):
            warnings.warn(str(note), UnchangedWarning, stacklevel=level)
        elif code == "range" or (code == "biased" and not saturated):
            warnings.warn(str(note), stacklevel=level)


_LEAST = 0.05  # share of the variation between neighbours that a filter is expected to remove
_MOST = 0.25  # mean change over its root mean square: 0.17 at 0.2 photons a pixel, else below 0.1
_PIXELS = 1 << 13  # looked at, about, each beside its neighbour


def _neighbours(image: np.ndarray, names: str) -> list[np.ndarray]:
    """Return pixels (y, x) or (y, x, channel) of a plane in the middle, and those next along X."""
    channel = channel_axis(names)
    kept = [names.index("Y"), names.index("X"), *([] if channel is None else [channel])]
    planes = np.moveaxis(image, kept, range(len(kept)))
    plane = planes[..., *(n // 2 for n in planes.shape[len(kept) :])]
    # Every so many pixels along both axes: reading a large plane takes longer than filtering.
    skip = max(1, math.isqrt(plane.size // _PIXELS))
    return [plane[::skip, k : k - 1 or None : skip].astype(np.float64) for k in (0, 1)]


def result_notes(
    before: np.ndarray, after: np.ndarray, names: str, models: Sequence[NoiseModel]
) -> Iterator[Note]:
    """Yield notes if a result hardly differs from its image, or has another mean than it.

    The mean is that with noise of the models. The median of the differences of neighbours shows
    noise rather than edges.
    """
    (image, _), (result, _) = pairs = [_neighbours(each, names) for each in (before, after)]
    differences = [np.abs(beside - each) for each, beside in pairs]
    known = [each[np.isfinite(each)] for each in differences]
    if not all(each.size for each in known):
        return
    (median, mean), (median_after, mean_after) = ((medians(k), k.mean()) for k in known)
    share = 1 - median_after / median if median > 0 else 1 - mean_after / mean if mean > 0 else 1.0
    if share < _LEAST:
        yield Note(
            "the result is nearly the same as the image: neighbouring pixels vary "
            f"{max(share, 0):.0%} less. If noise is visible, it may be correlated between pixels, "
            "or stronger than measured",
            "noise='correlated', or give sigma",
            code="unchanged",
        )
    if len(models) > 1 and len(models) != result.shape[-1]:
        return  # a part of the image has some of its channels
    parts = zip(models, np.split(result, len(models) or 1, axis=-1), strict=False)
    seen = [model.expected(part) for model, part in parts] or [result]
    change = np.concatenate(seen, axis=-1) - image
    change[(result == image) | ~np.isfinite(change)] = 0  # fill values, for example
    mean, limit = abs(change.mean()), max(_MOST, 2 / math.sqrt(change.size))
    if mean > limit * math.sqrt(np.square(change).mean()):
        yield Note(
            f"the result is off by {mean:.3g} grey levels on average: the noise is not what the "
            "filter was told, or values were rounded or clipped",
            "give another noise, or dtype='float32'",
            code="biased",
        )
