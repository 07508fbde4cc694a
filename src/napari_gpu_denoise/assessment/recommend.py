"""Which filter, profile and settings suit an image, and why.

The choices are those of docs/guide/choosing_settings.md, where they were measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.bm3d.filter import BM3D
from napari_gpu_denoise.filters.bm3d.groups import TwoPasses
from napari_gpu_denoise.filters.bm4d.filter import BM4D
from napari_gpu_denoise.filters.isoline import Isoline
from napari_gpu_denoise.filters.search.likeness import FOUND, Likeness, compared
from napari_gpu_denoise.filters.vbm3d import VBM3D, nearest_window
from napari_gpu_denoise.image.axes import UNNAMED
from napari_gpu_denoise.measurements.subspace import FEWEST, MEASUREMENTS, SLICES, Subspace
from napari_gpu_denoise.noise.models import NoiseModel, PoissonGaussian
from napari_gpu_denoise.noise.record import LOG_SPECKLE, NoiseEstimate
from napari_gpu_denoise.noise.sampling import PlaneReader
from napari_gpu_denoise.opencl.device import Device, choose_devices
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.run.noise import measured_noise

_NOISE = {
    "gaussian": "noise of one strength",
    "poisson-gaussian": "photon noise",
    "rician": "Rician noise, as in MRI magnitudes",
    "speckle": "speckle",
    "correlated": "correlated noise",
    "correlated-photons": "correlated photon noise",
    "signal-dependent": "noise that changes with brightness",
}
_NEGLIGIBLE = 1e-3  # of the read noise: a gain at which photon noise does not matter


def noise_in_words(estimate: NoiseEstimate) -> str:
    """Return the noise in words."""
    if not any(estimate.sigma):
        return "no noise"
    return LOG_SPECKLE if estimate.log_speckle else models_in_words(estimate.models)


def models_in_words(models: Sequence[NoiseModel]) -> str:
    """Return models of channels, which are of one kind, in words."""
    name = models[0].name
    if all(
        type(model) is PoissonGaussian and model.gain <= _NEGLIGIBLE * model.read_noise
        for model in models
    ):
        name = "gaussian"
    return _NOISE.get(name, f"{models[0].title} noise")


def image_in_words(axes: str, shape: tuple[int, ...]) -> str:
    """Describe an image, such as ``"Time-lapse of 80 frames, 512 by 512 pixels"``."""
    lengths = dict(zip(axes, shape, strict=True))
    frames, slices = lengths.get("T", 1), lengths.get("Z", 1)
    colour = "colour " if "S" in lengths else ""
    planes = math.prod(n for a, n in zip(axes, shape, strict=True) if a not in "TZCSYX")
    if frames > 1 and slices > 1:
        what = f"time-lapse of {frames} {colour}volumes of {slices} slices"
    elif frames > 1:
        what = f"{colour}time-lapse of {frames} frames"
    elif slices > 1:
        what = f"{colour}volume of {slices} slices"
    elif planes > 1:
        what = f"{planes} {colour}{'measurements' if MEASUREMENTS in axes else 'planes'}"
        planes = 1
    else:
        what = f"{colour}image"
    parts = [what[:1].upper() + what[1:], f"{lengths['Y']} by {lengths['X']} pixels"]
    if lengths.get("C", 1) > 1:
        parts.append(f"{lengths['C']} channels")
    if planes > 1:
        parts.append(f"{planes} {'measurements' if MEASUREMENTS in axes else 'times'}")
    return ", ".join(parts)


# Seconds for a million pixels: two CPU cores, and a GPU of 132 compute units, from
# docs/performance.md.
_MEASURED = {
    ("nl_means", "normal"): (0.11, 0.0008),
    ("nl_means", "video"): (1.0, 0.0016),
    ("bm3d", "normal"): (1.1, 0.0043),
    ("bm3d", "fast"): (0.17, 0.001),
    ("bm3d", "high"): (12.0, 0.036),
    ("bm3d", "live"): (0.09, 0.0009),
    ("bm3d", "best"): (12.0, 0.092),
    ("vbm3d", "normal"): (0.31, 0.0006),
    ("vbm3d", "fast"): (0.18, 0.0005),
    ("vbm3d", "high"): (0.9, 0.0014),
    ("vbm3d", "live"): (0.8, 0.0024),
    ("vbm3d", "best"): (16.0, 0.086),
    ("bm4d", "normal"): (0.78, 0.0037),
    ("bm4d", "fast"): (0.21, 0.0021),
    ("bm4d", "high"): (6.0, 0.03),
    ("bm4d", "best"): (7.5, 0.045),
    ("isoline", "normal"): (0.11, 0.001),
}
_CORES, _UNITS = 2, 132
_INTEGRATED = 12  # times slower than the GPU above, at least
_START = 1.0  # seconds for the noise, and for reading


def seconds_on(filter: Any, pixels: int, devices: Sequence[Device], start: float = _START) -> float:
    """Estimate the time of a filter for a number of pixels that devices share, in seconds."""
    (device, *others) = devices
    refined = getattr(filter, "refine", "off") != "off"
    profile = "best" if refined else filter.nearest_profile()[0]
    # Of a series, components that are half as many as measurements, or fewer, are filtered.
    name, times = ("bm4d", 0.5) if filter.name == "subspace" else (filter.name, 1.0)
    known = _MEASURED.get((name, profile)) or _MEASURED["bm3d", "normal"]
    if device.shares_cores:
        each = known[0] * _CORES / max(device.compute_units, 1)
    else:
        slower = _UNITS / min(max(device.compute_units, 1), _UNITS)
        if device.kind != "discrete GPU":
            slower = max(slower, _INTEGRATED)
        each = known[1] * slower
    times *= 2 if filter.name == "bm4d" and "T" in filter.joint else 1
    return start + pixels / 1e6 * each * times / (1 + len(others))


def time_in_words(seconds: float) -> str:
    """Return a time in words, as roughly as it is known."""
    if seconds < 3:
        return "a few seconds"
    if seconds < 45:
        number, unit = seconds, "a second"
    elif seconds < 45 * 60:
        number, unit = seconds / 60, "a minute"
    else:
        number, unit = seconds / 3600, "an hour"
    step = 1 if number < 8 else 5
    number = round(number / step) * step
    return f"about {number} {unit.split()[1]}s" if number > 1 else f"about {unit}"


EFFORTS = ("fast", "normal", "high", "best")
_REPEATED = 0.75  # share of noise found again, from which frames harm
_LONG = 15 * 60  # seconds from which a quicker profile is recommended
_CORRELATION = "takes the correlation of the noise into account"


@dataclass(frozen=True)
class Advice:
    """What is recommended for an image.

    Parameters
    ----------
    filter : Filter
        The filter with its settings, as `denoise` takes it.
    axes : str
        Axes of the image, one letter each.
    image : str
        Description of the image, such as ``"Time-lapse of 80 frames, 512 by 512 pixels"``.
    noise : str
        Description of its noise, such as ``"photon noise"``.
    reason : str
        Why this filter, as a part of a sentence.
    hints : tuple of str
        Further advice, in sentences.
    seconds : float
        Approximate time on the device.
    estimate : NoiseEstimate
        The noise as measured.
    """

    filter: Filter
    axes: str
    image: str
    noise: str
    reason: str
    hints: tuple[str, ...]
    seconds: float
    estimate: NoiseEstimate

    @property
    def profile(self) -> str:
        """Name of the profile that the settings start from."""
        return self.filter.nearest_profile()[0]

    @property
    def choice(self) -> str:
        """Filter, profile and other settings in words."""
        profile, changes = self.filter.nearest_profile()
        named = [f"{name.replace('_', ' ')} {value}" for name, value in changes.items()]
        return ", ".join([self.filter.title, f"profile {profile}", *named])

    def lines(self) -> list[tuple[str, str]]:
        """Return the advice as names and texts."""
        rows = [("image", self.image), ("noise", self.noise), ("use", self.choice)]
        rows += [("because", self.reason), ("takes", time_in_words(self.seconds))]
        return rows + [("note", hint) for hint in self.hints]

    def summary(self) -> str:
        """Return the advice as several lines of text, no line break at the end."""
        return "\n".join(f"{name:<11} {text}" for name, text in self.lines())

    def as_dict(self) -> dict[str, Any]:
        """Return the advice as plain values, ready for JSON."""
        return {
            "filter": self.filter.name,
            "profile": self.profile,
            "settings": self.filter.as_dict(),
            "axes": self.axes,
            "image": self.image,
            "noise": self.noise,
            "reason": self.reason,
            "hints": list(self.hints),
            "seconds": round(self.seconds, 1),
        }


def recommend(
    image: Any,
    axes: str | None = None,
    *,
    noise: NoiseEstimate | None = None,
    effort: str | None = None,
    device: Device | int | str | Sequence[Device | int | str] | None = None,
) -> Advice:
    """Recommend a filter, its profile and settings for an image.

    Parameters
    ----------
    image : array_like
        Pixels of any real type, in memory or not; a few planes are read.
    axes : str, optional
        One letter per axis, as `denoise` takes them.
    noise : NoiseEstimate, optional
        The noise, if it was measured already; by default it is measured.
    effort : {"fast", "normal", "high", "best"}, optional
        The profile to use. By default ``"normal"``, or ``"fast"`` if that would take more than a
        quarter of an hour.
    device : Device, int, str or a sequence of these, optional
        Where to run, as in `denoise`.

    Returns
    -------
    Advice

    Raises
    ------
    AxesError, ImageError, SettingsError
        If the input does not fit.
    NoDeviceError
        If there is no such device.

    Examples
    --------
    >>> import napari_gpu_denoise as gd
    >>> advice = gd.recommend(movie, "TYX")              # doctest: +SKIP
    >>> print(advice.summary())                          # doctest: +SKIP
    >>> result = gd.denoise(movie, advice.filter, axes="TYX")  # doctest: +SKIP
    """
    if effort not in (None, *EFFORTS):
        raise SettingsError(f"effort={effort!r} is unknown: choose from {', '.join(EFFORTS)}.")
    if not isinstance(noise, NoiseEstimate | None):
        raise SettingsError(f"noise={noise!r:.60} is no estimate: give that of estimate_noise().")
    reader = PlaneReader(image, axes)
    found = choose_devices(device)
    if noise is None:
        noise = measured_noise(image, reader.axes, "auto", found[0])
    names, shape = reader.axes, reader.shape
    settings, reason, hints = _chosen(reader, noise)
    settings = _with_effort(settings, effort, noise)
    time = seconds_on(settings, math.prod(shape), found)
    if effort is None and time > _LONG and "fast" in settings.presets:
        quick = _with_effort(settings, "fast", noise)
        hints.append(
            f"Profile fast was chosen because normal would take {time_in_words(time)} on "
            "this device."
        )
        settings, time = quick, seconds_on(quick, math.prod(shape), found)
    said = image_in_words(names, shape), noise_in_words(noise), reason, tuple(hints)
    return Advice(settings, names, *said, time, noise)


def _chosen(reader: PlaneReader, noise: NoiseEstimate) -> tuple[Filter, str, list[str]]:
    """Return settings, the reason for them, and hints."""
    lengths = dict(zip(reader.axes, reader.shape, strict=True))
    frames, slices = lengths.get("T", 1), lengths.get("Z", 1)
    if not any(noise.sigma):
        return BM3D(), "no noise was found, so the image would be returned unchanged", []
    if lengths.get(MEASUREMENTS, 1) >= FEWEST:
        reason = (
            f"{lengths[MEASUREMENTS]} measurements of one object have few components above noise"
        )
        return Subspace(), reason, []
    hints = _unnamed(reader)
    if noise.name == "speckle":
        return Isoline(), "it averages along lines of equal brightness, which suits speckle", hints
    alike = compared(reader, reader.axes.index("T"), noise.sigma) if frames > 1 else Likeness()
    reasons = _why_not_over_time(alike) if frames > 1 else ""
    over_time = frames > 1 and not reasons
    if slices >= SLICES:
        return _for_volumes(noise, over_time, reasons, hints)
    if over_time:
        reason = f"frames before and after show the same structures{_how(alike)}"
        width = nearest_window(alike)
        if width == nearest_window(Likeness()):
            return VBM3D(), reason, hints
        # A stream, which does not see all frames, needs to be told.
        return VBM3D(window_nearest=width), f"{reason}, so a wider search is used", hints
    if reasons:
        return BM3D(), f"{reasons}: each frame is filtered separately", hints
    return BM3D(), _why_alone(reader.axes, noise), hints


def _for_volumes(
    noise: NoiseEstimate, over_time: bool, reasons: str, hints: list[str]
) -> tuple[Filter, str, list[str]]:
    reason = "it filters all slices of a volume together"
    if noise.models[0].models_correlation:
        reason += f" and {_CORRELATION}"
    if over_time:
        reason = f"{reason}, with the volumes before and after"
        return BM4D(frames_before=1, frames_after=1), reason, hints
    if reasons:
        hints = [*hints, f"Each volume is filtered separately: {reasons}."]
    return BM4D(), reason, hints


def _why_alone(axes: str, noise: NoiseEstimate) -> str:
    """Return why BM3D is the filter for planes."""
    if noise.models[0].models_correlation:
        return f"it {_CORRELATION}"
    single = set(axes) <= set("YXS")
    text = f"it is the best filter for {'single' if single else 'independent'} images"
    return f"{text}, and filters the colours together" if "S" in axes else text


def _why_not_over_time(alike: Likeness) -> str:
    """Return why frames before and after do not help; empty where they do."""
    if alike.repeated >= _REPEATED:
        return (
            "the noise stays the same from frame to frame, so averaging frames does not reduce it"
        )
    if alike.found < FOUND:
        return "frames before and after show different structures"
    if not nearest_window(alike):
        return f"structures move by {alike.moved:.0f} pixels per frame, too far to follow"
    return ""


def _how(alike: Likeness) -> str:
    if math.isnan(alike.moved):
        return ""
    if alike.moved < 1:
        return ", which hardly move"
    return f", which move by about {alike.moved:.0f} pixel{'s' * (round(alike.moved) != 1)} a frame"


def _unnamed(reader: PlaneReader) -> list[str]:
    """Return a hint on an axis without a name."""
    lengths = [n for n, a in zip(reader.shape, reader.axes, strict=True) if a == UNNAMED]
    if max(lengths, default=1) < 2:
        return []
    return [
        f"The {max(lengths)} planes along an axis without a name are filtered one by one: name it "
        "T if they are frames, Z if they are slices, or D if they are measurements, such as "
        "directions, echoes or wavelengths, to filter them together, which is better."
    ]


def _with_effort(settings: Filter, effort: str | None, noise: NoiseEstimate) -> Filter:
    """Return settings with those of a profile, where the filter has it.

    In the place of ``"best"`` it is ``"high"`` for noise for which results are not refined.
    """
    if effort is None or effort not in settings.presets:
        return settings
    _, changes = settings.nearest_profile()
    changes.pop("refine", None)  # which tells "best" from "normal"
    chosen = type(settings).of(profile=effort, **changes)
    plain = effort == "best" and isinstance(chosen, TwoPasses) and chosen.unrefined(noise.models)
    return _with_effort(settings, "high", noise) if plain else chosen
