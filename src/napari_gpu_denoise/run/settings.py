"""How settings are declared and checked: once, for the form, the command line and the docs."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from napari_gpu_denoise.errors import SettingsError


def setting(
    default: Any,
    help: str,
    *,
    bounds: tuple[float, float] | None = None,
    choices: tuple | None = None,
    unit: str = "",
    advanced: bool = False,
    needs_axis: str | None = None,
) -> Any:
    """Declare one setting of a filter, a field of its frozen dataclass.

    Parameters
    ----------
    default : int, float, str or bool
        Written here and nowhere else.
    help : str
        One line, with the unit.
    bounds : tuple of float, optional
        Smallest and largest value allowed.
    choices : tuple, optional
        Values allowed.
    unit : str, optional
        Unit of the value, as ``"pixels"``.
    advanced : bool, optional
        Whether a form may fold it away.
    needs_axis : str, optional
        Axis that must be named for any value but the default.
    """
    metadata = {
        "help": help,
        "bounds": bounds,
        "choices": choices,
        "unit": unit,
        "advanced": advanced,
        "needs_axis": needs_axis,
    }
    return dataclasses.field(default=default, metadata=metadata)


def setting_fields(settings: Any) -> tuple[dataclasses.Field, ...]:
    """Return the fields of a settings dataclass, or of an object of one, that `setting` made."""
    return tuple(spec for spec in dataclasses.fields(settings) if "help" in spec.metadata)


class Settings:
    """Base of the settings dataclasses: every field is checked when one is made.

    Attributes
    ----------
    presets : dict
        Profiles: what each changes of the defaults. The first one, the default, changes nothing.
    """

    presets: ClassVar[dict[str, dict[str, Any]]] = {"normal": {}}

    def __post_init__(self) -> None:
        for spec in setting_fields(self):
            value = _checked(spec, getattr(self, spec.name))
            object.__setattr__(self, spec.name, value)

    @classmethod
    def of(cls, settings=None, *, profile: str | None = None, **changes):
        """Return settings: those given, those of a profile, or the defaults, with some changed.

        Parameters
        ----------
        settings : Settings, optional
            Where to start from.
        profile : str, optional
            Where to start from instead: one of `presets`.
        **changes
            Fields by name; they win over the profile.

        Raises
        ------
        SettingsError
            If a field or the profile is unknown, a value is out of bounds, or both `settings` and
            `profile` are given.
        """
        known = {spec.name for spec in setting_fields(cls)}
        for name in changes:
            if name not in known:
                raise SettingsError(
                    f"{cls.__name__} has no setting {name!r}: it has {', '.join(sorted(known))}."
                )
        if settings is None:
            return cls(**{**cls._preset(profile), **changes})
        if profile is not None:
            raise SettingsError(
                f"Both settings and profile={profile!r} were given: choose one to start from."
            )
        if not isinstance(settings, cls):
            raise SettingsError(f"settings must be a {cls.__name__} object, not {settings!r}.")
        return dataclasses.replace(settings, **changes)

    @classmethod
    def _preset(cls, profile: str | None) -> dict[str, Any]:
        if profile is None:
            return {}
        try:
            return cls.presets[profile]
        except (KeyError, TypeError):
            raise SettingsError(
                f"{cls.__name__} has no profile {profile!r}: it has {', '.join(cls.presets)}."
            ) from None

    def as_dict(self) -> dict[str, Any]:
        """Return every setting by name."""
        return {spec.name: getattr(self, spec.name) for spec in setting_fields(self)}

    def profile_name(self) -> str:
        """Return the name of the profile that these settings are, or ``"custom"``."""
        profile, changes = self.nearest_profile()
        return "custom" if changes else profile

    def nearest_profile(self) -> tuple[str, dict[str, Any]]:
        """Return the shortest way to say these settings: a profile, and what it lacks, by name."""
        default, found = next(iter(self.presets)), {}
        for name in self.presets:
            start = type(self).of(profile=name)
            fields = (spec.name for spec in setting_fields(self))
            found[name] = {
                field: getattr(self, field)
                for field in fields
                if getattr(self, field) != getattr(start, field)
            }

        def words(name: str) -> int:
            # The default profile need not be named; one that fits as it is comes first.
            return len(found[name]) + (name != default) if found[name] else 0

        nearest = min(found, key=words)
        return nearest, found[nearest]


def _checked(spec: dataclasses.Field, value: Any) -> Any:
    kind = type(spec.default)
    try:
        if kind is bool:
            fits = value in (True, False)
            converted = bool(value)
        else:
            converted = kind(value)
            # 8.0 is a whole number and passes for one, 8.5 is not; nan equals nothing.
            fits = not isinstance(value, bool) and (kind is str or converted == value)
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        names = {int: "a whole number", float: "a number", str: "a word", bool: "true or false"}
        raise SettingsError(f"{spec.name}={value!r} is not {names[kind]}.")
    bounds, choices = spec.metadata["bounds"], spec.metadata["choices"]
    if bounds is not None and not bounds[0] <= converted <= bounds[1]:
        raise SettingsError(
            f"{spec.name}={value!r} is out of bounds: choose from {bounds[0]} to {bounds[1]}."
        )
    if choices is not None and converted not in choices:
        raise SettingsError(
            f"{spec.name}={value!r} is unknown: choose from {', '.join(map(str, choices))}."
        )
    return converted
