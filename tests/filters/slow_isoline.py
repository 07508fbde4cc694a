"""The slow isoline filters for any settings, as the tests on a device compare with them."""

from __future__ import annotations

import numpy as np

from napari_gpu_denoise.filters.isoline import Isoline
from reference import isoline as literal
from reference import isoline_aside as aside
from reference import isoline_soft as soft
from reference.bm3d_channels import OPPONENT, mix, mix_sigmas


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
        made = _fitted(image[None], _one(image, settings), sigma, settings)[0]
    elif settings.channels == "opponent":
        made = _opponent(image, sigma, settings)
    else:
        made = _joint(image, sigma, settings)
    inner = slice(around, -around or None)
    return made[..., inner, inner]


def _looks(settings: Isoline) -> float | None:
    return settings.looks if settings.criterion == "multiplicative" else None


def _one(image: np.ndarray, settings: Isoline) -> np.ndarray:
    """Return what the literal filters make of one image."""
    looks = _looks(settings)
    lines = {
        "length": settings.segment_length,
        "pixels": settings.max_length,
        "t_max": settings.t_max,
    }
    lines["looks"] = looks
    if settings.method == "pi-ld":
        return literal.pi_ld(image, **lines, deviation=settings.deviation)
    along = literal.pi_pd(image, **lines, thickness=settings.thickness)
    if settings.method == "pi-pd":
        return along
    # The slow hybrid filter knows thin isolines alone.
    thin = literal.pi_pd_hybrid(image, **lines, t2_max=settings.t2_max)
    edges, *_ = literal.edge_tests(image, settings.segment_length, settings.t2_max, looks)
    return np.where(literal.classes(edges) == literal.ISOLINE, along, thin)


def _joint(planes: np.ndarray, sigmas: np.ndarray, settings: Isoline) -> np.ndarray:
    """Return channels averaged along the isolines of their guide."""
    guide, noise, looks = soft.guide_of(planes, sigmas, settings)
    lines = {
        "length": settings.segment_length,
        "pixels": settings.max_length,
        "t_max": settings.t_max,
    }
    lines["looks"] = looks
    lines |= (
        {"deviation": settings.deviation}
        if settings.method == "pi-ld"
        else {"thickness": settings.thickness}
    )
    method = {"hybrid": aside.hybrid, "pi-pd": aside.pi_pd, "pi-ld": aside.pi_ld}[settings.method]
    if not settings.staircase:
        return np.array([method(guide, plane, **lines) for plane in planes])
    return _fitted(planes, method(guide, guide, **lines), noise, settings)


def _opponent(planes: np.ndarray, sigmas: np.ndarray, settings: Isoline) -> np.ndarray:
    """Return colours by the isolines of luminance and chrominance, each by its own."""
    planes, sigmas = mix(OPPONENT, planes), mix_sigmas(OPPONENT, sigmas)
    made = [_one(plane, settings) for plane in planes]
    if settings.staircase:
        # Planes of chrominance look at the luminance too.
        first = (made[0], sigmas[0])
        made = [
            soft.regress(*given, settings.staircase, first if k else None)
            for k, given in enumerate(zip(planes, made, sigmas, strict=True))
        ]
    return mix(OPPONENT.T, np.array(made))


def _fitted(planes, pilot, noise, settings: Isoline) -> np.ndarray:
    """Return channels with planes fitted that look at one pilot."""
    if not settings.staircase:
        return pilot[None]
    looks, width = _looks(settings), settings.staircase
    if looks is not None and len(planes) > 1 and settings.guide < 0:
        looks *= len(planes)
    return np.array([soft.regress(one, pilot, noise, width, looks=looks) for one in planes])
