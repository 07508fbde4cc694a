"""What BM3D, VBM3D and BM4D for correlated noise have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.bm3d.group_settings import GroupSettings
from napari_gpu_denoise.filters.bm3d.pass_fields import CollaborativeFilter
from napari_gpu_denoise.filters.bm3d.spectra import spectra
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.noise.models import Correlated, NoiseModel
from napari_gpu_denoise.protocol.filter import Filter


def spectral_models(
    models: Sequence[NoiseModel], *, volume: bool = False
) -> tuple[Correlated, ...] | None:
    """Return the correlated noise that is left after stabilisation, one for all channels or each.

    Empty if all of it is white, in a `volume` also along z, None if any model is of another kind.
    """
    if not models or not all(model.models_correlation for model in models):
        return None
    found = [model.spectral for model in models]
    if all(model.white and not (volume and any(model.along_z[1:])) for model in found):
        return ()
    return tuple(found[:1] if len(set(found)) == 1 else found)


class ModelledFilter(Filter):
    """Base of filters whose `models` describe the noise: one for all channels, or one for each."""

    models: tuple[Correlated, ...]

    def for_array(self, names: str, shape: tuple[int, ...]) -> Self:
        """Return the settings for an array whose channels fit the models."""
        axis = channel_axis(names)
        count = 1 if axis is None else shape[axis]
        if len(self.models) not in (1, count):
            raise SettingsError(
                f"{len(self.models)} noise models were given for {count} channels: give one, or "
                "one for each channel."
            )
        return super().for_array(names, shape)

    def for_planes(self, models: Sequence[NoiseModel]) -> Self:
        """Return the filter with these models."""
        found = [model.spectral for model in models]
        return replace(self, models=tuple(found[:1] if len(set(found)) == 1 else found))


class SpectralFilter(ModelledFilter, CollaborativeFilter):
    """The same of filters of patches."""

    guide: int

    @property
    def passes(self) -> dict[str, GroupSettings]:
        """The passes with the spectra of the noise in what they filter."""
        filtered, searched = spectra(self.models, self.channels, self.guide)
        return {
            name: replace(one, spectra=searched if name == "prefilter" else filtered)
            for name, one in super().passes.items()
        }
