"""The request of a run, from the panel to the worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from napari_gpu_denoise._napari.layers.source import Source
from napari_gpu_denoise.image.axes import check_axes
from napari_gpu_denoise.noise.record import NoiseEstimate
from napari_gpu_denoise.run.job import Run


@dataclass(frozen=True)
class Request:
    """All that a run needs; nothing of it is a napari or Qt object.

    Attributes
    ----------
    source : Source
        The layer to filter.
    settings : dataclass instance
        An entry of FILTERS, filled in.
    axes : str
        One letter an axis.
    sigma : float, tuple of float or None
        None to estimate.
    noise : str, NoiseEstimate or None
        As filters take it; None for the default. A sigma goes before it.
    dtype, nonfinite, device, memory_limit
        As `Run` takes them.
    frame : int or None
        The one frame along T to filter; None for all.
    maps : bool
        Whether to make the filter's maps, too.
    """

    source: Source
    settings: Any
    axes: str
    sigma: float | tuple[float, ...] | None = None
    noise: str | NoiseEstimate | None = None
    dtype: str | None = None
    nonfinite: str = "raise"
    device: int | str | None = None
    memory_limit: int | None = None
    frame: int | None = None
    maps: bool = False

    @property
    def data(self) -> Any:
        """The array to filter: NumPy, dask, zarr, anything that can be sliced."""
        return self.source.data

    @property
    def alpha(self) -> bool:
        """Whether the last axis is RGBA; alpha is not filtered."""
        return self.source.alpha

    @property
    def time(self) -> int | None:
        """The axis of time, if it is longer than one frame."""
        axis = check_axes(self.axes, self.data.shape).find("T")
        return axis if axis >= 0 and self.data.shape[axis] > 1 else None

    @property
    def run(self) -> Run:
        """The same for the library."""
        return Run(
            self.settings,
            self.sigma,
            self.noise,
            self.axes,
            self.dtype,
            self.nonfinite,
            self.device,
            self.memory_limit,
        )
