"""Settings that are quick enough to follow a hand that moves."""

from __future__ import annotations

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.run.filter import Filter
from napari_gpu_denoise.run.settings import setting_fields

_QUICK = "fast"  # profile, where a filter has it


def quick_settings(chosen: Filter, axes: str) -> Filter:
    """Return settings in the quick profile of the filter, with what differs from their own profile.

    Of a filter without such a profile, and where the differences do not go with it, these; so are
    those that need an axis that is not there.
    """
    profile, changes = chosen.nearest_profile()
    default = next(iter(chosen.presets))
    slower = {"fine": default}  # where there is no quick one
    name = _QUICK if _QUICK in chosen.presets else slower.get(profile)
    if name is None:
        return chosen
    changes |= {
        spec.name: getattr(chosen, spec.name)
        for spec in setting_fields(type(chosen))
        if spec.metadata["needs_axis"] not in (None, *axes)
    }
    try:
        return type(chosen).of(profile=name, **changes)
    except SettingsError:
        return chosen
