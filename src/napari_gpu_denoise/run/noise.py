"""The noise that a filter assumes: sigma or a model, given or measured."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from napari_gpu_denoise.errors import Note, SettingsError, SigmaError
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.image.levels import as_numbers
from napari_gpu_denoise.noise.models import Correlated, Gaussian, NoiseModel, Rician, choices
from napari_gpu_denoise.noise.sampling import PlaneReader
from napari_gpu_denoise.protocol.filter import Context, Filter

if TYPE_CHECKING:
    from napari_gpu_denoise.noise.estimate import NoiseEstimate

# Largest sigma used, in units of the range of an image; and of one of many frames, where the others
# may have a larger range.
_RANGES = 32.0
_RANGES_OF_FRAME = 4096.0
_LARGEST_MAP = 1 << 26  # pixels of a plane that may have a sigma each


@dataclass(frozen=True)
class Sigma:
    """Noise standard deviation of an array, in its grey levels.

    `values`, `source` and `notes` are what the record says: one value, one per channel or plane, or
    the root mean square of a map.
    """

    # With the axes of the image, each with the length there or 1, float64. It varies along Y and X
    # (a map, the same in all planes but for a factor) or along other axes.
    array: np.ndarray
    values: tuple[float, ...]
    source: str
    notes: tuple[str, ...] = ()
    models: tuple[NoiseModel, ...] = ()  # of the channels, or one for all; none where sigma is all
    numbers: np.ndarray | None = None  # of the model of each pixel, as `array`; None if one is all
    stabilised: bool = False  # whether `array` is in units of stabilised values
    # What was measured, if it says more than `models`: of planes, places or constant squares.
    estimate: NoiseEstimate | None = None

    @property
    def recorded(self) -> dict[str, Any]:
        """What a record says of it, by name."""
        told = {"sigma": self.values, "sigma_source": self.source}
        told["noise"] = tuple(model.as_dict() for model in self.models)
        return told | ({"estimate": self.estimate.as_dict()} if self.estimate else {})


def scaled(sigma: Sigma, factor: float) -> Sigma:
    """Scale sigma; keep its provenance."""
    return sigma if factor == 1 else replace(sigma, array=sigma.array * factor)


def varies_within(sigma: np.ndarray, names: str) -> bool:
    """Return whether sigma, as ``Sigma.array``, is a map: whether it varies within a plane."""
    return sigma.shape[names.index("Y")] * sigma.shape[names.index("X")] > 1


def estimated(estimate: NoiseEstimate, image: Any, names: str) -> Sigma:
    """Return an estimate of sigma, placed along the axes of the image."""
    placed = place(np.asarray(estimate.sigma, np.float64), image.shape, names)
    source = f"estimated: {estimate.method}"
    more = estimate if estimate.blank_width else None
    return Sigma(placed, estimate.sigma, source, estimate.notes, estimate=more)


def parse_sigma(sigma: Any) -> float | tuple[float, ...] | np.ndarray:
    """Return sigma as one number, one for each channel, or an array; refuse what is no sigma."""
    try:
        given = as_numbers(sigma)
    except (TypeError, ValueError, OverflowError) as error:
        raise SigmaError(
            f"sigma={sigma!r} is not a number",
            "give one, or None to estimate it",
            code="sigma-value",
        ) from error
    wrong = given[~(np.isfinite(given) & (given >= 0))]
    if wrong.size:
        raise SigmaError(
            f"sigma={wrong[0]:g} is not a standard deviation",
            "give 0 or a positive number in grey levels, or None to estimate it",
            code="sigma-value",
        )
    if given.ndim > 1:
        return given
    return tuple(given.tolist()) if given.ndim else float(given)


def resolve_sigma(
    sigma: Any, image: Any, names: str, filter: Filter | None = None, device: Any = None
) -> Sigma:
    """Check the sigma that was given to `denoise`, or estimate it if it is None.

    For an image of more than two axes, it may also have as many axes as the image, with length 1
    where it does not vary. If `filter` needs no sigma, 0 only marks pixels to leave as they are.
    """
    unused = filter.sigma_unused if filter else ""
    if unused and sigma is None:
        return Sigma(np.ones((1,) * len(image.shape)), (), unused)
    if sigma is None:
        own = filter.estimate_sigma(image, names) if filter else None
        own = own or measured_noise(image, names, Gaussian.name, device)
        return estimated(own, image, names)
    given = np.asarray(parse_sigma(sigma), np.float64)
    placed = place(given, image.shape, names)
    if unused:
        return Sigma((placed > 0).astype(np.float64), (), unused)
    if not varies_within(placed, names):
        return Sigma(placed, tuple(given.ravel().tolist()), "given")
    low, high = given.min(), given.max()
    # Relative to the largest value, whose square may overflow float64.
    mean = high * math.sqrt(np.mean((given / high) ** 2)) if high > 0 else 0.0
    return Sigma(placed, (float(mean),), f"given as a map from {low:.4g} to {high:.4g}")


def limit_sigma(resolved: Sigma, image: np.ndarray, is_stream_frame: bool = False) -> Sigma:
    """Limit sigma to a multiple of the range of the finite `image`; note what exceeds the range.

    Beyond it, a filter takes everything for noise, whatever sigma is exactly, but its fixed-point
    sums get coarser with sigma. Sigma of stabilised values is not changed.
    """
    sigma = resolved.array
    if resolved.stabilised:
        return resolved
    ranges = _RANGES_OF_FRAME if is_stream_frame else _RANGES
    # Nearly always, a few pixels show that sigma is far below the limit.
    for number in (1024, 65536, image.size):
        step = max(1, round((image.size / number) ** (1 / image.ndim)))
        some = image[(slice(None, None, step),) * image.ndim]
        span = float(some.max()) - float(some.min())
        if sigma.max() <= (ranges * span if is_stream_frame else span):
            return resolved
    if span <= 0:
        return resolved
    fact = f"sigma, {sigma.max():.6g}, is more than the range of the image, {span:.6g} grey levels"
    remedy = "give sigma in the units of the pixels"
    note = Note(f"{fact}, so that all is noise", remedy, code="range")
    notes = resolved.notes if is_stream_frame else (*resolved.notes, note)
    return replace(resolved, array=np.minimum(sigma, ranges * span), notes=notes)


def place(given: np.ndarray, shape: tuple[int, ...], names: str) -> np.ndarray:
    """Return sigma as ``Sigma.array`` has it; refuse a shape that does not fit or is ambiguous."""
    if given.size == 1:
        return given.reshape((1,) * len(shape))
    planes = [i for i, a in enumerate(names) if a not in "YX"]
    plane_shape = tuple(shape[i] for i in planes)
    map_shape = (shape[names.index("Y")], shape[names.index("X")])
    fitting = []
    if given.ndim == 1:
        channel = channel_axis(names)
        longer = [i for i in planes if shape[i] > 1] if channel is None else [channel]
        if len(longer) == 1 and len(given) == shape[longer[0]]:
            fitting.append(_spread(given, longer, len(shape)))
    elif given.shape == plane_shape:
        fitting.append(_spread(given, planes, len(shape)))
    if given.shape == map_shape:
        upright = given if names.index("Y") < names.index("X") else given.T
        fitting.append(_spread(upright, sorted(map(names.index, "YX")), len(shape)))
    if given.ndim == len(shape) > 2:
        varying = "".join(a for n, a in zip(given.shape, names, strict=True) if n > 1)
        one_kind = all(a in "YX" for a in varying) or not set("YX") & set(varying)
        if one_kind and all(n in (1, m) for n, m in zip(given.shape, shape, strict=True)):
            fitting.append(given)
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        ones = (1,) * 2
        raise SigmaError(
            f"sigma of shape {given.shape} may be one value for each plane or a map of Y and X, "
            f"for axes {names!r} of lengths {shape}",
            f"reshape it to the number of axes of the image, as {plane_shape + ones} for planes or "
            f"{ones + map_shape} for a map with Y and X last",
        )
    channels = ", or one for each channel" * (channel_axis(names) is not None)
    planes = f", {plane_shape} for one value per plane" * (len(plane_shape) > bool(channels))
    raise SigmaError(
        f"{given.size} values of sigma, of shape {given.shape}, do not fit axes {names!r}",
        f"give one number{channels}{planes}, or a map of shape {map_shape}, for lengths {shape}",
        code="sigma-shape",
        channels=channels,
    )


def _spread(values: np.ndarray, where: list[int], ndim: int) -> np.ndarray:
    """Return an array of `ndim` axes, with those of `values` at the ascending places `where`."""
    return np.expand_dims(values, tuple(i for i in range(ndim) if i not in where))


# Numbers between these can be squared in float32.
_SMALLEST, _LARGEST = 1e-15, 1e15


class NoiseMemory:
    """Stands for the noise of one image: the first run measures it, others know it.

    It belongs to an image and to everything a measurement depends on, which is for the owner to
    keep apart. `model` is what is measured: ``"auto"``, or ``"gaussian"``, one sigma.
    """

    def __init__(self, model: str = "auto") -> None:
        self.model = model
        self.estimate: NoiseEstimate | None = None
        self._sigmas: dict[Any, NoiseEstimate | None] = {}
        self._measuring = Lock()

    def known(self, filter: Filter) -> NoiseEstimate | None:
        """Return the noise for a filter, if it has been measured."""
        own = self._sigmas.get((filter.name, filter.keeps_zero))
        return self.estimate if own is None and self.model == "auto" else own

    def own_sigma(
        self, filter: Filter, device: Any, image: Any, names: str
    ) -> NoiseEstimate | None:
        """Return one sigma, or sigma as the filter itself measures it; None for the estimate."""
        key = filter.name, filter.keeps_zero  # on which its own estimate depends
        with self._measuring:
            if key not in self._sigmas:
                own = filter.estimate_sigma(image, names)
                if own is None and self.model == Gaussian.name:
                    own = measured_noise(image, names, self.model, device)
                self._sigmas[key] = own
            return self._sigmas[key]

    def measured(self, image: Any, names: str, device: Any) -> NoiseEstimate:
        """Return the estimate; of runs at the same time one measures it."""
        with self._measuring:
            if self.estimate is None:
                self.estimate = measured_noise(image, names, "auto", device)
            return self.estimate


def measured_noise(image: Any, names: str, model: str, device: Any) -> NoiseEstimate:
    """Estimate the noise; only then is loaded what that takes, which is long."""
    from napari_gpu_denoise.noise.estimate import measure_noise

    return measure_noise(image, names, model, device)


def parse_noise(
    noise: Any,
) -> str | float | tuple[NoiseModel, ...] | NoiseEstimate | NoiseMemory | None:
    """Return the noise that was given to `denoise`, checked; a number is sigma."""
    if isinstance(noise, (int, float, np.number)) and not isinstance(noise, bool):
        parse_sigma(noise)
        return float(noise)
    if isinstance(noise, str) and noise not in choices():
        raise SettingsError(
            f"noise={noise!r} is not a noise model", f"choose from {', '.join(choices())}"
        )
    if noise is None or isinstance(noise, (str, NoiseMemory)) or hasattr(noise, "models"):
        return noise
    models = (noise,) if isinstance(noise, NoiseModel) else noise
    if not isinstance(models, (tuple, list)) or not all(
        isinstance(model, NoiseModel) for model in models or [None]
    ):
        raise SettingsError(
            f"noise={_said(noise)} is not a noise model",
            "give one such as PoissonGaussian(0.28, 3.1), one per channel, the result of "
            "estimate_noise, 'auto', or a standard deviation",
        )
    return tuple(models)


def resolve_noise(
    sigma: Any, noise: Any, image: Any, filter: Filter, context: Context, device: Any = None
) -> Sigma:
    """Decide which noise a filter assumes, measuring it if needed.

    `sigma` and `noise` are those of `denoise`, and `filter` is prepared for the axes of `context`.
    These begin with T if `image` is a frame of a stream. If both are None, the filter's own
    estimate is used if it has one, else ``"auto"``. Of lazy images, a few planes are read. Many
    planes are analysed on `device`, as `choose` takes it.
    """
    names = context.names[len(context.names) - len(image.shape) :]
    memory, noise = (noise, None) if isinstance(noise, NoiseMemory) else (None, parse_noise(noise))
    if noise is None and (sigma is not None or filter.sigma_unused):
        return resolve_sigma(sigma, image, names, filter)
    if noise is None:
        if memory is None:
            own = filter.estimate_sigma(image, names)
        else:
            own = memory.own_sigma(filter, device, image, names)
        if own is not None:
            return estimated(own, image, names)
        noise = "auto" if memory is None else memory.measured(image, names, device)
    if filter.sigma_unused:
        raise SettingsError(
            f"noise={_said(noise)} was given to a filter that does not use it (sigma is "
            f"{filter.sigma_unused})",
            "leave one of them out",
            code="own-noise",
        )
    if isinstance(noise, float):
        return resolve_sigma(noise if sigma is None else sigma, image, names, filter)
    if noise == Gaussian.name and sigma is None:
        return resolve_sigma(sigma, image, names, filter, device)
    if isinstance(noise, str):
        noise = measured_noise(image, names, noise, device)
    if sigma is None:
        return _with_models(noise, image, names, filter, context)
    resolved = resolve_sigma(sigma, image, names, filter)
    models, how = (noise, "given") if isinstance(noise, tuple) else (noise.models, "estimated")
    note = f"sigma was given; the noise {how} is not used: {_summary(models)}"
    return replace(resolved, notes=(*resolved.notes, note))


def _with_models(
    noise: tuple[NoiseModel, ...] | NoiseEstimate,
    image: Any,
    names: str,
    filter: Filter,
    context: Context,
) -> Sigma:
    """Return the sigma that a filter assumes for models, or those of an estimate."""
    given = noise if isinstance(noise, tuple) else noise.models
    models = _for_channels(given, image, names)
    applied, resolved = _applied(filter, models, image, names, context)
    if isinstance(noise, tuple):
        return replace(resolved, source="given as a model", models=models)
    own = (noise.axes, noise.shape) == (names, tuple(image.shape))
    if own and not applied.sigma_unused:
        resolved = _per_plane_or_position(resolved, noise, names)
    more = noise if noise.blank_width else resolved.estimate
    source, notes = f"estimated: {noise.reason}", (*noise.notes, *resolved.notes)
    return replace(resolved, source=source, notes=notes, models=models, estimate=more)


def _per_plane_or_position(resolved: Sigma, estimate: NoiseEstimate, names: str) -> Sigma:
    """Return the sigma of an image whose planes or places differ in their noise."""
    from napari_gpu_denoise.noise.series import plane_factors  # loads long, and few runs need it

    factors = plane_factors(estimate, estimate.shape)
    if factors is not None:
        low, high = factors[factors > 0].min(), factors.max()
        note = (
            f"the noise differs between planes, by a factor of {high / low:.2g}: each has "
            "its own sigma"
        )
    elif estimate.places is not None:
        plane, said = [estimate.shape[names.index(axis)] for axis in "YX"], estimate.places.words()
        if math.prod(plane) > _LARGEST_MAP:
            # A map of sigma would take more memory than the plane.
            note = f"{said}: planes of this size are filtered with the mean sigma"
            return replace(resolved, notes=(note, *resolved.notes))
        factors = place(estimate.places.factors(*plane), estimate.shape, names)
        note = f"{said}: each pixel has its own sigma"
    else:
        return resolved
    notes = (note, *resolved.notes)
    return replace(resolved, array=resolved.array * factors, notes=notes, estimate=estimate)


def _for_channels(models: tuple[NoiseModel, ...], image: Any, names: str) -> tuple[NoiseModel, ...]:
    """Check models against the image, and fill in parameters that depend on it."""
    axis = channel_axis(names)
    count = 1 if axis is None else image.shape[axis]
    if len(models) not in (1, count):
        raise SettingsError(
            f"{len(models)} noise models were given for {count} channels: give one, or one for "
            "each channel."
        )
    if len({type(model) for model in models}) > 1:
        raise SettingsError(
            f"Models of several kinds were given ({_summary(models)}): give the same kind for all "
            "channels."
        )
    for model in models:
        for parameter in model.parameters():
            value = getattr(model, parameter.name)
            if parameter.squared and value and not _SMALLEST <= value <= _LARGEST:
                raise SettingsError(
                    f"{parameter.name}={value:.4g} is out of the range of single precision when "
                    "squared: scale the image to moderate numbers first."
                )
    if any(model.needs_image for model in models):
        if not isinstance(image, np.ndarray):
            # A few planes of each channel of a lazy image.
            reader = PlaneReader(image, names)
            image = np.stack(
                [one for channel in reader.channels for one in reader.sampled(channel)]
            )
        models = tuple(model.for_image(image) for model in models)
    return models[:1] if len(set(models)) == 1 else models


def _applied(
    filter: Filter, models: tuple[NoiseModel, ...], image: Any, names: str, context: Context
) -> tuple[Filter, Sigma]:
    """Return the filter prepared for models, and the sigma that it assumes."""
    taken, own = filter.takes(models), filter.prepare(replace(context, noise=models))
    if own.sigma_unused:
        return own, resolve_sigma(None, image, names, own)
    spectral = [one for one in (model.spectral for model in models) if isinstance(one, Correlated)]
    # A filter that takes correlation into account still needs noise that is stabilised.
    in_levels = models[0].additive or (taken and not spectral)
    values = [
        model.sigma if in_levels and isinstance(model, Rician) else model.sigma_after
        for model in models
    ]
    notes = ()
    if spectral and not taken:
        values = [one.white_sigma for one in spectral]
        factor = values[0] / (spectral[0].sigma or 1.0)
        notes = (
            f"the noise of neighbouring pixels is correlated: sigma is multiplied by {factor:.2g} "
            "for this filter, which assumes white noise; BM3D, VBM3D and BM4D take the "
            "correlation into account",
        )
    spread = place(np.array(values, np.float64), image.shape, names)
    numbers = place(np.arange(len(models)), image.shape, names) if len(models) > 1 else None
    if in_levels:
        return own, Sigma(spread, tuple(map(float, values)), "", notes, numbers=numbers)
    return own, Sigma(spread, (), "", notes, numbers=numbers, stabilised=True)


def _summary(models: tuple[NoiseModel, ...]) -> str:
    return "; ".join(dict.fromkeys(model.summary() for model in models))


def _said(noise: Any) -> str:
    noise = noise[0] if isinstance(noise, tuple) and len(noise) == 1 else noise
    return repr(noise) if isinstance(noise, (str, int, float)) else type(noise).__name__
