"""The result of a run, and the record of where it comes from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.run.filter import Filter
from napari_gpu_denoise.run.sigma import Sigma


@dataclass(frozen=True)
class Progress:
    """How many parts of how many are done: tiles, or frames where a filter looks along time."""

    done: int
    total: int
    unit: str = "tile"


@dataclass(frozen=True)
class Tally:
    """What is counted while pixels are filtered.

    Attributes
    ----------
    saturated : int
        Values that were clipped to the range of the output type.
    nonfinite : int
        Pixels that are NaN or infinite and were left as they are.
    """

    saturated: int = 0
    nonfinite: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.saturated + other.saturated, self.nonfinite + other.nonfinite)


@dataclass(frozen=True)
class Record:
    """Where a result comes from.

    Attributes
    ----------
    version : str
        Version of this package.
    filter : str
        Name of the filter.
    settings : dict
        Every setting by name.
    sigma : tuple of float
        Noise standard deviation used, in grey levels: one value, one a channel, or one a plane;
        of a map its root mean square.
    sigma_source : str
        ``"given"``, ``"given as a map from … to …"``, or how it was estimated.
    axes : str
        Axes of the array.
    input_dtype, output_dtype : str
        Types of the pixels.
    device : str
        Device the filter ran on.
    noise : tuple of dict
        Noise models, one a channel or one for all, as `NoiseModel.from_dict` takes them; none
        where sigma says it all.
    saturated : int
        Values of the result that were clipped to the range of the output type.
    nonfinite : int
        Pixels that were NaN or infinite and were left as they were.
    notes : tuple of str
        What else the user should know.
    date : str
        UTC, ISO 8601.
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

    @classmethod
    def of(
        cls,
        filter: Filter,
        sigma: Sigma,
        axes: str,
        dtypes: tuple[np.dtype, np.dtype],
        device: Device,
        tally: Tally,
        notes: Iterable[str],
    ) -> Record:
        """Return the record of a run that has just ended; `dtypes` are of input and output."""
        return cls(
            version=package_version(),
            filter=filter.name,
            settings=filter.as_dict(),
            sigma=sigma.values,
            sigma_source=sigma.source,
            axes=axes,
            input_dtype=str(dtypes[0]),
            output_dtype=str(dtypes[1]),
            device=str(device),
            saturated=tally.saturated,
            nonfinite=tally.nonfinite,
            notes=tuple(notes),
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            noise=tuple(model.as_dict() for model in sigma.models),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain values that JSON can hold."""
        lists = {name: list(getattr(self, name)) for name in ("sigma", "notes", "noise")}
        return {**asdict(self), **lists}


@dataclass(frozen=True)
class Result:
    """A denoised array and where it comes from.

    Attributes
    ----------
    image : ndarray
        The pixels; what was given as ``out``, if anything was.
    record : Record
        Filter, settings, noise, device and whatever the user should know.
    """

    image: Any
    record: Record


@lru_cache(maxsize=1)
def package_version() -> str:
    """Return the version of this package."""
    try:
        return version("napari-gpu-denoise")
    except PackageNotFoundError:
        return "unknown"
