"""Estimate the noise of an image: which model fits it, and its parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import Note, SettingsError
from napari_gpu_denoise.image.threads import quiet
from napari_gpu_denoise.noise import limits, models
from napari_gpu_denoise.noise.covariance import ChannelPatches, is_shared
from napari_gpu_denoise.noise.evidence import Evidence
from napari_gpu_denoise.noise.models import AUTO, NoiseModel, choices
from napari_gpu_denoise.noise.models.base import Fit, Misfit
from napari_gpu_denoise.noise.patches.device import patches_on
from napari_gpu_denoise.noise.places import noise_surface
from napari_gpu_denoise.noise.proof import limited_to_proof, proven_colours
from napari_gpu_denoise.noise.record import NoiseEstimate, SigmaSeries, is_unproven
from napari_gpu_denoise.noise.sampling import PlaneReader, plane_axis
from napari_gpu_denoise.noise.series import differ, limit_by_repeats, sigma_series


def chosen_model(channels: list[Evidence], name: str) -> tuple[type[NoiseModel], str]:
    """Return the model that explains all channels at the least cost, and why it is that one.

    The cost is that of the variances of each channel, and of its spectrum, and the price of the
    model. If one is named, only this one and its correlated form are asked, for Gaussian noise of
    one sigma only itself.
    """
    known = [each for each in channels if each.spectra is not None]
    candidates, told = list(models.MODELS), "this model was requested"
    if name == models.Gaussian.name:
        return models.Gaussian, told
    if name != AUTO:
        named = next(model for model in candidates if model.name == name)
        candidates = [each for each in candidates if named in (each, each.white_form)]
    elif not any(each.sigma or each.photons or each.is_correlated for each in channels):
        return models.Gaussian, "no noise was found"
    elif not known:
        few = "there are too few pixels to distinguish other noise from Gaussian noise"
        return models.Gaussian, few
    both = {each.white_form for each in candidates if each.white_form is not None}
    found: list[tuple[float, int, type[NoiseModel], str]] = []
    for model in candidates:
        misfits = [model.misfit(each) if name == AUTO else Misfit(0.0, told) for each in known]
        cost = model.price + sum(each.cost for each in misfits)
        reason = next((each.reason for each in misfits if each.reason), told)
        wrong = [each.is_correlated != model.models_correlation for each in known]
        if model in both or model.white_form in both:
            # The other form is wrong of the other channels.
            cost += limits.UNLIKE_SPECTRUM_COST * max(2 * sum(wrong) - len(known), 0)
        if model.models_correlation and not all(wrong):
            reason = f"{reason}, and the noise of neighbouring pixels is correlated"
        found.append((cost, len(found), model, reason))
    return min(found)[2:]


def estimate_noise(
    image: Any, axes: str | None = None, model: str = "auto", *, device: Any = None
) -> NoiseEstimate:
    """Choose a noise model for an image, and measure its parameters.

    Parameters
    ----------
    image : array, at least two axes, any real dtype
        Anything with ``shape``, ``dtype`` and NumPy indexing; only the sampled planes are read, so
        that dask, zarr and memory-mapped arrays stay on disk. Not modified.
    axes : str, optional
        One letter per axis, such as ``"TCYX"``. Each index of the first axis named ``C`` or ``S``
        gets its own parameters; all other axes but ``Y`` and ``X`` hold planes that share them.
        Default: the last two axes are ``Y`` and ``X``, the rest planes.
    model : str, optional
        Noise model: "auto", "gaussian", "correlated", "poisson-gaussian", "correlated-photons",
        "signal-dependent", "rician" or "speckle". "auto", the default, chooses one: Gaussian noise
        unless the image clearly requires another model; `reason` explains the choice. "gaussian" is
        white noise of one sigma. If the noise of neighbouring pixels is correlated,
        `CorrelatedPhotons` replaces Poisson-Gaussian noise, even if that was requested.
    device : Device, int, str or None, optional
        Device that analyses the image, as `choose` takes it. None: the best one.

    Returns
    -------
    NoiseEstimate
        In grey levels of `image`. A constant image gives Gaussian noise of exactly 0.

    Raises
    ------
    SettingsError
        If there is no such model.
    ImageError
        If the image has no pixels, or its dtype is boolean, complex or not a number.
    NonFiniteError
        If NaN or infinity leave no pixels of a channel to estimate from.
    AxesError
        If `axes` does not fit the shape of the image.
    NoDeviceError
        If there is no OpenCL device, or not the requested one.

    Notes
    -----
    At most 8 planes of each channel are read, 12 frames along ``T``, and patches of up to 256
    frames or slices: the cost is limited.

    The model that explains the variance over levels of brightness, of all channels, at the least
    cost is chosen. Differences along ``T``, or the longest axis without a name, bound the noise:
    what repeats share is none. What a single plane does not prove is not removed: `sigma` is the
    part that is proven, 0 where nothing is, and a note says so; to name the model takes the image
    for noise. Constant areas, such as padding, masks and saturation, are left out. Structured noise
    (`find_structure`) is not part of any model; it is reported in notes.

    See ``docs/methods/noise.md`` for how each model is measured and proven, and how accurately.

    References
    ----------
    A. Foi, M. Trimeche, V. Katkovnik, K. Egiazarian, "Practical Poissonian-Gaussian noise modeling
    and fitting for single-image raw-data", IEEE Trans. Image Process. 17 (2008),
    doi:10.1109/TIP.2008.2001399 (variance against mean); C. G. Koay, E. Özarslan,
    C. Pierpaoli, "Probabilistic identification and estimation of noise (PIESNO)", J. Magn. Reson.
    199 (2009), doi:10.1016/j.jmr.2009.03.005.
    """
    return measure_noise(image, axes, model, device, structure=True)


@quiet()
def measure_noise(
    image: Any, axes: str | None, model: str, device: Any = None, *, structure: bool = False
) -> NoiseEstimate:
    """Estimate the noise, and look for structured noise if asked to, as filters do not."""
    if not isinstance(model, str) or model not in choices():  # pyright: ignore[reportUnnecessaryIsInstance] untyped callers
        raise SettingsError(
            f"model={model!r} is not a noise model: choose from {', '.join(choices())}."
        )
    source = PlaneReader(image, axes)
    if structure:
        # Before there are two threads: SciPy fails where both import it at once.
        import napari_gpu_denoise.noise.structure.find  # noqa: F401 # pyright: ignore[reportUnusedImport]
    with patches_on(device) as place, ThreadPoolExecutor(1) as pool:
        # Structured noise is looked for in a thread of its own, meanwhile, of arrays in memory.
        apart = structure and not source.lazy
        beside = pool.submit(_structure, PlaneReader(image, axes)) if apart else None
        found = _measured(source, model, place)
        if not structure:
            return found
        notes = beside.result() if beside else _structure(source)
        return replace(found, notes=(*found.notes, *notes))


def _measured(source: PlaneReader, model: str, place: Any) -> NoiseEstimate:
    """Estimate the noise with patches read at a place, as `patches_on` yields it."""
    other = plane_axis(source.axes, source.shape)
    numbers = {"frames": source.axes.find("T"), "slices": source.axes.find("Z")}
    numbers |= {"others": -1 if other is None else other}
    numbers = {name: number for name, number in numbers.items() if number >= 0}
    channels = [Evidence(source, channel, place) for channel in source.channels]
    patches = ChannelPatches.of_planes([each.planes for each in channels])
    if "S" in source.axes:
        channels = proven_colours(channels, patches)
    if all(each.log_speckle for each in channels):
        numbers = {}  # it is as strong in all planes
    kind, reason = chosen_model(channels, model)
    fits = list(map(kind.fit, channels))
    covariance = None if patches is None else patches.covariance(kind.models_correlation)
    if covariance is not None and is_shared(kind, covariance, source.axes):
        pairs = zip(fits, covariance.shared, strict=True)
        fits = [fit._replace(model=replace(fit.model, shared=shared)) for fit, shared in pairs]
    series = {
        name: sigma_series(source, number, channels, fits, place)
        for name, number in numbers.items()
    }
    places = None
    same = not any(map(differ, series.values()))
    if same and not kind.models_correlation and (model == AUTO or not kind.is_one_sigma()):
        # Places that differ in brightness look as if noise depended on it.
        free = kind is models.SignalDependent and model == AUTO
        plain = list(map(models.Gaussian.fit, channels)) if free else fits
        surface = noise_surface(channels, [fit.model for fit in plain])
        if surface is not None:
            places, scales = surface
            reason = "the noise differs between places" if free else reason
            fits = [fit.scaled(scale) for fit, scale in zip(plain, scales, strict=True)]
            series = {name: each.scaled(scales) for name, each in series.items()}
    fits, factors = limit_by_repeats(source, channels, fits)
    if min(factors) < limits.MIN_PROVEN_SHARE:
        series = {}  # single planes show texture, each its own
    if model == AUTO and places is None:
        fits, shares = limited_to_proof(channels, fits)
        factors = [one * share for one, share in zip(factors, shares, strict=True)]
    law, kind = kind, type(fits[0].model)
    if kind.additive and not law.additive:
        # Planes were compared with a law over brightness that is not proven.
        plain = list(map(models.Gaussian.fit, channels))
        series = {
            name: sigma_series(source, numbers[name], channels, plain, place) for name in series
        }
        factors = [fit.sigma / (one.sigma or 1.0) for fit, one in zip(fits, plain, strict=True)]
    series = {name: each.scaled(factors) for name, each in series.items()}
    return NoiseEstimate(
        sigma=tuple(fit.sigma for fit in fits),
        standard_error=tuple(fit.error for fit in fits),
        method=", or ".join(dict.fromkeys(fit.method for fit in fits)),
        planes=source.count,
        notes=(*_notes(channels, fits, kind), *_odd_planes(series.values())),
        axes=source.axes,
        models=tuple(fit.model for fit in fits),
        reason=reason,
        errors=tuple(fit.errors for fit in fits),
        curves=tuple(fit.curve for fit in fits),
        **{name: series.get(name) for name in ("frames", "slices", "others")},
        shape=source.shape,
        spectra=tuple(each.spectrum for each in channels),
        covariance=covariance,
        clipped=tuple(each.clipped for each in channels),
        blank_width=max(each.blank_width for each in channels),
        places=places,
    )


def _notes(channels: list[Evidence], fits: list[Fit], model: type[NoiseModel]) -> tuple[str, ...]:
    """Return the notes on each channel, with its number, and on the whole image."""
    found: list[str] = []
    for number, fit in enumerate(fits):
        of = f" of channel {number}" if len(fits) > 1 else ""
        for note in fit.notes:
            note = note if isinstance(note, Note) else Note(note)
            found.append(note.replaced("the noise", f"the noise{of}"))
        ratio = 1.0 if is_unproven(fit.notes) else unexplained(fit)
        if ratio >= limits.MIN_FACTOR_SAID:
            found.append(
                f"most grey levels vary {ratio:.2g} times as much as the noise{of} that is known, "
                "by texture or other noise"
            )
    correlated = any(each.is_correlated for each in channels)
    doubtful = any(each.spectrum is not None and each.spectrum.doubtful for each in channels)
    if model.is_one_sigma() and (correlated or doubtful):
        found.append(
            "the noise of neighbouring pixels may be slightly correlated, or there is fine texture"
        )
    elif correlated and not (model.models_correlation or model.shown_white):
        found.append(
            "the noise of neighbouring pixels is correlated, which this model ignores: sigma may "
            "be too low"
        )
    if any(each.is_drawing for each in channels):
        found.append("no noise can be told in two grey levels at most, as masks and drawings have")
    elif not any(fit.sigma for fit in fits) and max(sum(e.clipped) for e in channels) > 0.5:
        found.append("no noise can be told, as most pixels are at the ends of the grey levels")
    if (share := max(each.blank for each in channels)) >= 0.01:
        found.append(
            f"{share:.0%} of the pixels are in or beside constant areas or repeated edges, such as "
            "padding or saturation, and were left out"
        )
    return tuple(found)


def unexplained(fit: Fit) -> float:
    """Return how many times more most patches vary than their noise; 1 where that is not known."""
    if fit.curve is None or not fit.sigma:
        return 1.0
    mean, variance = fit.curve.fitted
    count = np.array(fit.curve.count)[np.array(fit.curve.used, bool)]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.sqrt(variance / fit.model.variance(mean))
    order = np.argsort(ratio)
    below = np.cumsum(count[order])
    return float(ratio[order][np.searchsorted(below, below[-1] / 2)]) if len(below) else 1.0


def _odd_planes(series: Iterable[SigmaSeries]) -> Iterator[str]:
    """Yield notes on planes that are blank, or few of many with quite another noise."""
    for each in series:
        name = {"T": "frame", "Z": "slice"}.get(each.axis, "plane")
        sigma, factor = np.array(each.sigma), np.array(each.factor)
        blank = ~(sigma > 0).any(axis=0)
        if blank.any() and not blank.all():
            yield f"{blank.sum()} of {blank.size} {name}s read are blank"
        if differ(each) or blank.all():
            continue
        factor = np.where(sigma > 0, factor, 1)  # blank ones differ from none
        ratio = np.nanmax(np.maximum(factor, 1 / factor), axis=0)
        if odd := [str(each.index[k]) for k in np.flatnonzero(ratio > limits.MIN_FACTOR_SAID)]:
            more = f" and {len(odd) - 5} more" if len(odd) > 5 else ""
            which = f"{name}{'s' * (len(odd) > 1)} {', '.join(odd[:5])}{more}"
            said = f"the noise of {which} differs by a factor of {ratio.max():.2g} from the others'"
            yield f"{said}, as which it is filtered"


def _structure(source: PlaneReader) -> tuple[Note, ...]:
    """Return notes on structured noise, which is not part of any model."""
    from napari_gpu_denoise.noise.structure.find import SIDE, structure_in

    return tuple(
        Note(each.words(), "correct='found' removes it first", code="structured")
        for each in structure_in([source.sampled(channel, SIDE) for channel in source.channels])
    )
