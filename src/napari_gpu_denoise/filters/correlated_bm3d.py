"""BM3D told of the spectrum of the noise."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from napari_gpu_denoise.axes import channel_axis
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.bm3d_plan import Plan
from napari_gpu_denoise.filters.channel_mix import OPPONENT
from napari_gpu_denoise.filters.group_settings import GroupSettings
from napari_gpu_denoise.noise.models import Correlated
from napari_gpu_denoise.opencl.memory import Arena

if TYPE_CHECKING:
    from napari_gpu_denoise.filters.bm3d import BM3D


@dataclass(frozen=True)
class CorrelatedBM3D:
    """BM3D whose thresholds follow the spectrum of the noise; made by `BM3D.for_noise`.

    Parameters
    ----------
    settings : BM3D
        How to filter. Thresholds in sigma are those of each coefficient.
    models : tuple of Correlated
        The noise: one model for all channels, or one a channel.
    """

    settings: BM3D = field(metadata={"needs_axis": None})
    models: tuple[Correlated, ...] = field(metadata={"needs_axis": None})

    def __getattr__(self, name: str):
        # What is not said here is as it is for white noise.
        if name.startswith("__") or name == "settings":
            raise AttributeError(name)
        return getattr(self.settings, name)

    @property
    def joint(self) -> str:
        """Which axes are filtered together with Y and X: channels with a spectrum each are."""
        return "C" if len(self.models) > 1 else self.settings.joint

    def for_array(self, names: str, shape: tuple[int, ...]) -> CorrelatedBM3D:
        """Return the settings for an array.

        Raises
        ------
        SettingsError
            If its channels do not fit the settings or the models.
        """
        axis = channel_axis(names)
        count = 1 if axis is None else shape[axis]
        if len(self.models) not in (1, count):
            raise SettingsError(
                f"{len(self.models)} models of noise were given for {count} channels: give one, or "
                "one for each channel."
            )
        return replace(self, settings=self.settings.for_array(names, shape))

    @property
    def passes(self) -> dict[str, GroupSettings]:
        """The passes, in their order, with the spectra of what each one filters."""
        spectra = tuple(model.autocorrelation for model in self.models)
        guide = spectra
        if len(self.models) > 1 and self.settings.channels == "opponent":
            spectra = tuple(mixed(self.models, row) for row in OPPONENT)
            guide = spectra[:1]
        elif len(self.models) > 1 and self.settings.channels == "joint":
            chosen = self.settings.guide
            guide = spectra[chosen : chosen + 1] if chosen >= 0 else (_mean(self.models),)
        return {
            name: replace(one, spectra=guide if name == "prefilter" else spectra)
            for name, one in self.settings.passes.items()
        }

    def plan(self, arena: Arena) -> Plan:
        """Return what runs this filter on one device, from one thread."""
        return Plan(self, arena)


def mixed(models: tuple[Correlated, ...], weights) -> tuple[tuple[float, ...], ...]:
    """Return the autocorrelation of a sum of channels, (5, 5); their noise is independent."""
    variances = np.square([w * model.sigma for w, model in zip(weights, models, strict=True)])
    return _average([model.autocorrelation for model in models], variances)


def _mean(models: tuple[Correlated, ...]) -> tuple[tuple[float, ...], ...]:
    """Return that of the mean of the channels, each divided by its sigma."""
    counted = [float(model.sigma > 0) for model in models]
    return _average([model.autocorrelation for model in models], counted)


def _average(tables, weights) -> tuple[tuple[float, ...], ...]:
    # Without noise in any channel there is nothing to filter, and any table will do.
    weights = np.asarray(weights) if np.any(weights) else np.ones(len(tables))
    table = np.tensordot(weights / np.sum(weights), np.array(tables), axes=1)
    return tuple(map(tuple, table.tolist()))
