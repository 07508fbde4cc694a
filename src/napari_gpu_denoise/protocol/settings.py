"""Declare and check settings, once for the panel, the command line and the documentation."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, Self

from napari_gpu_denoise.errors import SettingsError

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def setting(
    default: Any,
    help: str,
    *,
    bounds: tuple[float, float] | None = None,
    choices: tuple[Any, ...] | None = None,
    unit: str = "",
    advanced: bool = False,
    needs_axis: str | None = None,
    odd: bool = False,
) -> Any:
    """Declare one setting of a filter, a field of its frozen dataclass.

    Parameters
    ----------
    default : int, float, str or bool
        Default, which also sets the type.
    help : str
        One line.
    bounds : tuple of float, optional
        Smallest and largest value allowed.
    choices : tuple, optional
        Values allowed.
    unit : str, optional
        Unit of the value, such as ``"pixels"``.
    advanced : bool, optional
        Whether a form may hide it at first.
    needs_axis : str, optional
        Axis that the image must have for any value but the default.
    odd : bool, optional
        Whether even values but 0 are refused, as the width of what has a centre.
    """
    metadata: dict[str, Any] = {
        "help": help,
        "bounds": bounds,
        "choices": choices,
        "unit": unit,
        "advanced": advanced,
        "needs_axis": needs_axis,
        "odd": odd,
    }
    return dataclasses.field(default=default, metadata=metadata)


def _as_number(given: Any) -> float:
    from napari_gpu_denoise.image import levels  # NumPy is slow to import

    return levels.as_number(given)


def number_of_bytes(size: Any) -> int:
    """Return a positive size in bytes; text may have a unit, such as ``"512M"`` or ``"2 GB"``."""
    number, unit = size, ""
    if isinstance(size, str):
        number = size.strip().lower().removesuffix("b").removesuffix("i")
        unit = number[-1:] if number[-1:] in _UNITS else ""
        number = number.removesuffix(unit)
    try:
        nbytes = int(float(number if isinstance(size, str) else _as_number(size)) * _UNITS[unit])
    except (TypeError, ValueError, OverflowError):
        nbytes = 0
    if nbytes <= 0:
        raise SettingsError(
            f"{size!r} is not an amount of memory: give a number of bytes, or text such as '512M' "
            "or '2G'."
        )
    return nbytes


def size_in_words(nbytes: float) -> str:
    """Return a number of bytes as text, such as ``"1.07 GB"``."""
    units = ["bytes", "kB", "MB", "GB", "TB"]
    while nbytes >= 999.5 and len(units) > 1:  # which would be written as 1e+03
        nbytes /= 1000
        del units[0]
    return f"{nbytes:.3g} {units[0]}"


def setting_fields(settings: Any) -> tuple[dataclasses.Field[Any], ...]:
    """Return the fields of a settings class or object that were declared with `setting`."""
    return tuple(spec for spec in dataclasses.fields(settings) if "help" in spec.metadata)


def within_bounds(settings: Any, name: str, value: float) -> float:
    """Return the value that is allowed for a setting and nearest to this one."""
    least, most = settings.__dataclass_fields__[name].metadata["bounds"]
    return min(max(value, least), most)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Base of the settings dataclasses: every field is checked when an object is made.

    Attributes
    ----------
    presets : dict
        For each profile, what it changes in the defaults; the first one, the default, nothing.
    """

    presets: ClassVar[dict[str, dict[str, Any]]] = {"normal": {}}

    def __post_init__(self) -> None:
        for spec in setting_fields(self):
            value = _checked(spec, getattr(self, spec.name))
            object.__setattr__(self, spec.name, value)

    @classmethod
    def of(
        cls, settings: Self | None = None, *, profile: str | None = None, **changes: Any
    ) -> Self:
        """Return the given settings, those of a profile, or the defaults, with changes.

        Parameters
        ----------
        settings : Settings, optional
            Settings to start from.
        profile : str, optional
            Profile to start from instead, one of `presets`.
        **changes
            Fields by name, which override the profile.

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
            if profile is not None and not (isinstance(profile, str) and profile in cls.presets):  # pyright: ignore[reportUnnecessaryIsInstance] untyped callers
                raise SettingsError(
                    f"{cls.__name__} has no profile {profile!r}: it has {', '.join(cls.presets)}."
                )
            return cls(**{**(cls.presets[profile] if profile else {}), **changes})
        if profile is not None:
            raise SettingsError(
                f"Both settings and profile={profile!r} were given: choose one to start from."
            )
        if not isinstance(settings, cls):
            raise SettingsError(f"settings must be a {cls.__name__} object, not {settings!r}.")
        return dataclasses.replace(settings, **changes)

    def as_dict(self) -> dict[str, Any]:
        """Return every setting by name."""
        return {spec.name: getattr(self, spec.name) for spec in setting_fields(self)}

    def profile_name(self) -> str:
        """Return the name of the profile with these settings, or ``"custom"``."""
        profile, changes = self.nearest_profile()
        return "custom" if changes else profile

    def nearest_profile(self) -> tuple[str, dict[str, Any]]:
        """Return the profile from which these settings differ least, and the differences."""
        default, own = next(iter(self.presets)), self.as_dict().items()
        starts = {name: type(self).of(profile=name).as_dict() for name in self.presets}
        differences = {
            name: {field: value for field, value in own if value != start[field]}
            for name, start in starts.items()
        }

        def words(name: str) -> int:
            # The default profile need not be named; one that fits exactly comes first.
            return len(differences[name]) + (name != default) if differences[name] else 0

        nearest = min(differences, key=words)
        return nearest, differences[nearest]

    def as_arguments(self) -> dict[str, Any]:
        """Return the fewest arguments of `of` that give these settings."""
        profile, changes = self.nearest_profile()
        return changes if profile == next(iter(self.presets)) else {"profile": profile, **changes}


def as_options(given: dict[str, Any]) -> list[str]:
    """Return arguments as options of the command line."""
    words: list[str] = []
    for name, value in given.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", str(value)]
    return words


def _checked(spec: dataclasses.Field[Any], value: Any) -> Any:
    kind: Any = spec.default.__class__
    try:
        if kind is bool:
            fits = value in (True, False)
            converted = bool(value)
        else:
            # 8.0 counts as a whole number, 8.5 does not; nan equals nothing.
            given = value if kind is str or type(value) in (int, float) else _as_number(value)
            converted = kind(given)
            fits = bool(converted == given)
    except (TypeError, ValueError, OverflowError):
        fits = converted = False
    if not fits:
        names = {int: "a whole number", float: "a number", str: "a word", bool: "true or false"}
        raise SettingsError(f"{spec.name}={value!r} is not {names[kind]}.")
    bounds, choices = spec.metadata["bounds"], spec.metadata["choices"]
    if bounds is not None and not bounds[0] <= converted <= bounds[1]:
        raise SettingsError(
            f"{spec.name}={value!r} is out of bounds: choose from {bounds[0]} to {bounds[1]}."
        )
    if spec.metadata["odd"] and converted and converted % 2 == 0:
        none = "" if bounds is None or bounds[0] else ", or 0"
        raise SettingsError(f"{spec.name}={value!r} must be odd{none}.")
    if choices is not None and converted not in choices:
        raise SettingsError(
            f"{spec.name}={value!r} is unknown: choose from {', '.join(map(str, choices))}."
        )
    return converted


def checked_factor(factor: Any) -> float:
    """Return the factor of sigma that a user gave; refuse what is not a positive number."""
    value = _as_number(factor)
    if not (math.isfinite(value) and value > 0):
        raise SettingsError(
            f"sigma_factor={factor!r} is not a positive number",
            "give one such as 1.2, or 0.8 to keep more detail and more noise",
        )
    return value
