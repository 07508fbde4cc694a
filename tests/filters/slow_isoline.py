"""The slow isoline filters for any settings, as the tests on a device compare with them."""

from __future__ import annotations

import numpy as np

from napari_gpu_denoise.filters.isoline import Isoline
from reference import isoline as literal
from reference import isoline_soft as soft
from reference.bm3d import OPPONENT, mix, mix_sigmas


def slow(image: np.ndarray, settings: Isoline, sigma=1.0) -> np.ndarray:
    """Return what the references make of an image (y, x), or of channels (c, y, x).

    `sigma` is one value, one a channel, or a map (y, x).
    """
    if settings.soft:
        return soft.isoline_soft(image, sigma, settings)
    image, sigma = np.asarray(image, np.float64), np.asarray(sigma, np.float64)
    if sigma.ndim == 1:
        sigma = sigma[:, None, None]
    sigma = np.broadcast_to(sigma, image.shape)
    # Planes are fitted to what lies around the image too, and it has pilots of its own.
    around = settings.staircase + settings.max_length if settings.staircase else 0
    margins = [(0, 0)] * (image.ndim - 2) + [(around, around)] * 2
    image, sigma = (np.pad(a, margins, mode="reflect") for a in (image, sigma))
    if image.ndim == 2:
        made = _joint(image[None], sigma[None], settings)[0]
    elif settings.channels == "opponent":
        made = _opponent(image, sigma, settings)
    else:
        made = _joint(image, sigma, settings)
    inner = slice(around, -around or None)
    return made[..., inner, inner]


def _along(guide: np.ndarray, channel: np.ndarray, settings: Isoline, looks=None) -> np.ndarray:
    """Return a channel averaged along the isolines of a guide."""
    lines = literal.Lines(
        settings.segment_length, settings.max_length, thickness=settings.thickness, looks=looks
    )
    methods = {"pi-ld": literal.pi_ld, "pi-pd": literal.pi_pd}
    return methods.get(settings.method, literal.pi_pd_hybrid)(guide, lines, channel)


def _joint(planes: np.ndarray, sigmas: np.ndarray, settings: Isoline) -> np.ndarray:
    """Return channels averaged along the isolines of their guide, or planes fitted to it."""
    guide, noise, looks = soft.guide_of(planes, sigmas, settings)
    if len(planes) == 1:
        noise = sigmas[0]
    if not settings.staircase:
        return np.array([_along(guide, plane, settings, looks) for plane in planes])
    pilot = _along(guide, guide, settings, looks)
    fitted = [soft.regress(one, pilot, noise, settings.staircase, looks=looks) for one in planes]
    return np.array(fitted)


def _opponent(planes: np.ndarray, sigmas: np.ndarray, settings: Isoline) -> np.ndarray:
    """Return colours by the isolines of luminance and chrominance, each by its own."""
    planes, sigmas = mix(OPPONENT, planes), mix_sigmas(OPPONENT, sigmas)
    made = [_along(plane, plane, settings) for plane in planes]
    if settings.staircase:
        # Planes of chrominance look at the luminance too.
        first = (made[0], sigmas[0])
        made = [
            soft.regress(*given, settings.staircase, first if k else None)
            for k, given in enumerate(zip(planes, made, sigmas, strict=True))
        ]
    return mix(OPPONENT.T, np.array(made))
