"""How much of the noise claimed for planes is proven, where texture could look the same.

One plane cannot tell a random texture from correlated noise, nor fine texture from white noise. So
noise counts as proven only if the smoothest patches look like white noise, or if hardly more of the
plane can be predicted from neighbouring pixels than of white noise. What is not proven stays.

Set on 24 crops of textured photographs with noise of sigma 0 to 10, on photographs, and on
micrographs (``docs/methods/noise.md``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from napari_gpu_denoise.errors import Note
from napari_gpu_denoise.noise import limits
from napari_gpu_denoise.noise.correlation import NoiseSpectrum
from napari_gpu_denoise.noise.covariance import ChannelPatches
from napari_gpu_denoise.noise.evidence import Evidence
from napari_gpu_denoise.noise.models import Correlated, Gaussian, PoissonGaussian, SignalDependent
from napari_gpu_denoise.noise.models.base import Fit
from napari_gpu_denoise.noise.models.gaussian import UNCORRELATED
from napari_gpu_denoise.noise.patches.coefficients import HIGHS, flatness_of, ranked, span_sums
from napari_gpu_denoise.noise.patches.spectra import PatchSpectra
from napari_gpu_denoise.noise.robust import medians

MIN_SMOOTH = 64  # patches
BLOCK, REACH = 16, 2  # pixels along a side of a block, and to either side that predict one


def smooth_patches_are_white(
    spectra: PatchSpectra, members: np.ndarray, claim: float, weight: np.ndarray | None = None
) -> bool:
    """Return whether the smoothest of some patches, a mask (patch,), hold white noise alone.

    It has to be of the sigma that is claimed, but for clipped pixels. The energy of each patch
    counts times its weight.
    """
    energy, order = spectra.energy_of("high").astype(np.float64), spectra.order
    if weight is not None:
        energy *= weight
        order = ranked((spectra.energy_of("low") * weight).astype(np.float32))
    order = order[members[order]]
    smooth = order[: max(MIN_SMOOTH, round(0.02 * len(order)))]
    power = span_sums(spectra.squares, smooth, [0], [len(smooth)], weight)[0]
    # Energies of white noise are sums of so many squares.
    expected = 2 / len(power) * energy[smooth].mean() ** 2
    alike = energy[smooth].var() <= limits.MAX_SMOOTH_DISPERSION * expected
    alike &= energy[smooth].mean() >= limits.MIN_SHARE_OF_CLAIM * HIGHS * claim**2
    return bool(alike and flatness_of(power) >= limits.MIN_PATCH_FLATNESS)


def prediction_errors(
    planes: Sequence[np.ndarray], change: Callable[[np.ndarray], np.ndarray] | None = None
) -> tuple[float, float]:
    """Return the error of pixels predicted from their neighbours, grey levels, in a usual block.

    In each block of 16 x 16 pixels one is predicted linearly from the 24 around it, opposite ones
    with one coefficient, leaving itself out. The first number is the root mean square, the second
    that of normal errors of the same median: less where few pixels, such as edges, hold all of it.
    NaN without a block of finite pixels.
    """
    found = np.concatenate([_block_errors(plane, change) for plane in planes])
    squared, median = np.median(found, axis=0) if len(found) else (math.nan, math.nan)
    return math.sqrt(squared), 1.4826 * float(median)


def _block_errors(plane: np.ndarray, change: Callable[..., np.ndarray] | None) -> np.ndarray:
    """Return mean square and median size of leave-one-out errors of some blocks, changed first."""
    side = BLOCK + 2 * REACH
    if min(plane.shape) < side:
        return np.zeros((0, 2))
    blocks = sliding_window_view(plane, (side, side))[::BLOCK, ::BLOCK].reshape(-1, side, side)
    blocks = blocks[:: 1 + len(blocks) // 200]
    blocks = (blocks if change is None else change(blocks)).astype(np.float64)
    blocks = blocks[np.isfinite(blocks).all(axis=(1, 2))]
    blocks -= blocks.mean(axis=(1, 2), keepdims=True)
    steps = range(-REACH, REACH + 1)
    around = [(y, x) for y in steps for x in steps if (y, x) > (0, 0)]

    def shifted(y: int, x: int) -> np.ndarray:
        rows, columns = (slice(REACH + k, REACH + k + BLOCK) for k in (y, x))
        return blocks[:, rows, columns].reshape(len(blocks), -1)

    pairs = np.stack([shifted(y, x) + shifted(-y, -x) for y, x in around], axis=2)
    products = pairs.swapaxes(1, 2) @ pairs
    trace = np.trace(products, axis1=1, axis2=2)[:, None, None]
    inverse = np.linalg.inv(np.asarray(products + (1e-9 * trace + 1e-300) * np.eye(len(around))))
    target = shifted(0, 0)[..., None]
    left = (target - pairs @ (inverse @ (pairs.swapaxes(1, 2) @ target)))[..., 0]
    leverage = ((pairs @ inverse) * pairs).sum(axis=2)
    errors = np.abs(left / np.maximum(1 - leverage, 0.05))
    return np.stack((np.square(errors).mean(axis=1), medians(errors)), axis=1)


def proven_sigma(channel: Evidence) -> float:
    """Return the sigma of white noise if it is proven, else 0."""
    claim, patches = channel.sigma, channel.levelled or channel.spectra
    if not claim > 0 or patches is None:
        return 0.0
    members = patches.clipped == 0
    # More than one of 16 x 16 pixels has: some of them share no pixel.
    enough = len(members) >= max(MIN_SMOOTH, 2 * patches.overlap)
    return claim if enough and _is_proven(channel, claim, patches, members) else 0.0


def _proves_law(channel: Evidence, fit: Fit) -> bool:
    """Return whether noise is white and proven once it is stabilised."""
    if not channel.sigma or channel.photons or _proven_by_others(channel, fit):
        return True
    patches, model = channel.spectra, fit.model
    if patches is None:
        return False
    weight = 1 / model.positive_variance(patches.seen)
    return _is_proven(channel, 1.0, patches, patches.clipped == 0, weight, model.stabilise)


def _is_proven(
    channel: Evidence,
    claim: float,
    patches: PatchSpectra,
    members: np.ndarray,
    weight: np.ndarray | None = None,
    change: Callable[[np.ndarray], np.ndarray] | None = None,
) -> bool:
    """Return whether planes prove a sigma of white noise, by their smoothest patches or errors."""
    if np.count_nonzero(members) < MIN_SMOOTH:
        members = np.ones(len(members), bool)
    if smooth_patches_are_white(patches, members, claim, weight):
        return True
    low, high = limits.SIGMA_OVER_PREDICTION_ERROR
    error, usual = prediction_errors(channel.planes, change)
    return bool(low * error <= claim <= high * usual)


def limited_to_proof(channels: list[Evidence], fits: list[Fit]) -> tuple[list[Fit], list[float]]:
    """Return fits with the sigma that single planes prove, and what it was multiplied by.

    Noise of a law over brightness is that of Gaussian noise unless it is proven once stabilised.
    Differences of frames are a proof by themselves, and so are colours.
    """
    kind = type(fits[0].model)
    claims = [fit.sigma for fit in fits]
    if kind in (SignalDependent, PoissonGaussian) and not all(map(_proves_law, channels, fits)):
        kind, fits = Gaussian, list(map(Gaussian.fit, channels))
    if not kind.additive or not (any(claims) or any(each.unproven for each in channels)):
        return fits, [1.0] * len(fits)
    limited = [
        fit if _proven_by_others(each, fit) else _of_proven_sigma(each, fit)
        for each, fit in zip(channels, fits, strict=True)
    ]
    changed = all(one is not fit for one, fit in zip(limited, fits, strict=True))
    if kind.models_correlation and changed:
        limited = [fit._replace(model=Gaussian(fit.sigma)) for fit in limited]
    pairs = zip(limited, claims, strict=True)
    return limited, [fit.sigma / claim if claim else 1.0 for fit, claim in pairs]


def _proven_by_others(channel: Evidence, fit: Fit) -> bool:
    """Return whether something else than single planes proves the noise of a channel."""
    return (
        channel.log_speckle
        or channel.proven_by_colours
        or channel.frames is not None
        or channel.temporal is not None
        or bool(fit.limit and fit.sigma >= limits.MIN_SIGMA_OVER_DIFFERENCES * fit.limit)
    )


def _of_proven_sigma(channel: Evidence, fit: Fit) -> Fit:
    """Return a fit of white noise with the sigma that single planes of a channel prove."""
    proven = min(proven_sigma(channel), fit.sigma)
    claim = max(fit.sigma, channel.unproven)
    if proven < limits.MIN_PROVEN_SHARE * claim:
        kind = Correlated if channel.unproven else type(fit.model)
        removed = f"{proven:.3g} of it is removed" if proven else "nothing is removed"
        note = Note(
            f"the noise may be fine texture: a sigma of {claim:.3g} is not proven, and {removed}",
            f"noise={kind.name!r} takes it for noise",
            code="unproven",
            model=kind.name,
            title=kind.title,
        )
        fit = fit._replace(notes=(*fit.notes, note))
    if fit.model.models_correlation:
        model = Correlated(proven, UNCORRELATED)
    elif proven == fit.sigma:
        return fit
    else:
        model = fit.model.scaled(proven / fit.sigma)
    return fit._replace(model=model, errors={}, sigma=proven, error=min(fit.error, proven))


def proven_colours(channels: list[Evidence], patches: ChannelPatches | None) -> list[Evidence]:
    """Return the colours of an image with correlated noise where they prove it, else with white.

    Colours share texture, and hardly their noise: a spectrum that falls less in what they do not
    share than in what they do is that of white noise beside texture. Of what is left of texture in
    JPEG files, some patches have much more than others.
    """
    own = [each.spectrum for each in channels if each.spectrum and each.frames is None]
    found = None if patches is None or len(own) < len(channels) else patches.colours()
    if found is None or any(each.log_speckle for each in channels):
        return channels
    fall, unshared = found.fall, found.unshared_fall
    falls = unshared > limits.MIN_FALL_RATIO * fall
    falls &= limits.MIN_FALL_OF_COLOURS < min(fall, unshared) <= unshared < math.inf
    if falls and found.growth < limits.MAX_GROWTH_OF_COLOURS:
        spectra = [NoiseSpectrum.of_power(power, found.patches) for power in found.power]
    else:
        spectra = [replace(each, white=True) for each in own]
    return [each.with_spectrum(one) for each, one in zip(channels, spectra, strict=True)]
