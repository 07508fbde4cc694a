"""Every filter against NumPy, with the kernels of this device and with those of a GPU.

Where there is no GPU, a CPU poses as one: its compiler turns work-groups into loops, as those of
many drivers do. A GPU poses as one of another vendor, whose work-items share no warps. It has room
for small work-groups only, so that images of a few hundred pixels take several. Every kernel of a
GPU is optimised once, as users have it; what else it may be built with (-D) is built quickly:
optimised, each such variant takes a CPU 1 to 7 s.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import napari_gpu_denoise as gd
from filters.cases import CASES, sigma_map, speckled, unrounded
from filters.correlated_noise import SIGMA
from filters.sessions import as_gpu
from filters.slow_isoline import slow as slow_isoline
from napari_gpu_denoise.filters.ridge import RidgeSettings
from napari_gpu_denoise.filters.search.frame_links import FrameLinks
from napari_gpu_denoise.filters.search.video_search import VideoSearch
from napari_gpu_denoise.image.levels import Levels
from napari_gpu_denoise.noise.models import Correlated
from napari_gpu_denoise.opencl.program import kernel_folder
from napari_gpu_denoise.run.flow.frame_flow import note_frames
from napari_gpu_denoise.run.job import start
from napari_gpu_denoise.run.part import programs_of
from napari_gpu_denoise.run.request import Run
from reference import bm3d, bm4d, nl_means, pixelwise, ridge, swnlm, vbm3d
from reference.block_motion import block_motions
from reference.video_links import Link
from reference.video_matching import find_matches
from scenes import altered, noisy, prepared

# The fewest cases that have all kernels of a GPU, which are optimised.
OPTIMISED = [
    *("nl_means of a map", "nl_means over time, sliding"),
    *("nl_means of single pixels", "nl_means over time, without local memory"),
    *("pixelwise of a map", "bm4d over time", "vbm3d, refined", "swnlm of an image"),
    *("isoline of joined channels", "isoline of speckle"),
    *("isoline of joined channels, chosen", "isoline, searched"),
]
# Folders of kernels that are not those of a filter; what CPUs alone are given; what every device is
# given, and other tests compare.
NO_FILTERS = "levels", "noise", "self_test"
OF_CPUS = {
    *("bm3d/shrink_lanes", "bm4d/search_cube_lanes", "bm4d/shrink_cube_lanes"),
    *("pixelwise/average_rows", "ridge/combine_lanes", "search/search_vectors"),
    *("swnlm/average_lanes", "vbm3d/search_patches"),
}
OF_ALL = {"bm3d/halve_image", "bm3d/join_scales", "isoline/show_found"}


# References


def by_nl_means(image, settings, sigma, axes):
    named = settings.as_dict()
    planes = image if axes != "ZYX" else image[None]
    planes = planes if planes.ndim in (2, 4) else planes[:, None]
    return nl_means.nl_means(planes, sigma, **named).reshape(image.shape)


def by_pixelwise(image, settings, sigma, axes):
    names = ("patch", "window", "strength", "weights")
    names += ("slices", "patch_slices", "frames_before", "frames_after")
    named = {name: getattr(settings, name) for name in names}
    named |= {"shape": settings.patch_shape, "pixels": settings.show == "pixels"}
    missing = tuple(k for k, axis in enumerate("CTZYX") if axis not in axes)
    planes = np.expand_dims(image, missing)
    sigma = np.reshape(sigma, (-1, 1, 1, 1, 1)) if np.ndim(sigma) == 1 else sigma
    return pixelwise.pixelwise(planes, sigma, **named).reshape(image.shape)


def by_bm3d(image, settings, sigma, axes):
    if axes == "TYX":
        pairs = zip(image, sigma, strict=True)
        return np.array([bm3d.bm3d(frame, one, settings) for frame, one in pairs])
    told, tables = settings, ()
    if isinstance(sigma, tuple) and isinstance(sigma[0], Correlated):
        told, tables = prepared(settings, axes, noise=sigma), [one.autocorrelation for one in sigma]
        sigma = [one.sigma for one in sigma]
        sigma = sigma if "C" in axes else sigma[0]
    return bm3d.bm3d(image, sigma, told, tables)


def by_bm4d(image, settings, sigma, axes):
    if isinstance(sigma, Correlated):
        return by_bm4d(image, prepared(settings, axes, noise=(sigma,)), sigma.sigma, axes)
    return bm4d.bm4d(image, sigma, settings, exact=False)


def by_vbm3d(image, settings, sigma, axes):
    if isinstance(sigma, tuple) and isinstance(sigma[0], Correlated):
        told, tables = prepared(settings, axes, noise=sigma), [one.autocorrelation for one in sigma]
        sigmas = [one.sigma for one in sigma]
        if settings.channels == "separate":
            each = zip(image, sigmas, tables, strict=True)
            return np.array([vbm3d.vbm3d(z, s, told, tables=[one]) for z, s, one in each])
        return vbm3d.vbm3d(image, sigmas if "C" in axes else sigmas[0], told, tables=tables)
    if "C" in axes:
        return vbm3d.vbm3d(image, sigma, settings)
    if np.ndim(sigma) == 2:
        most, links = sigma.max(), linked_by_the_filter(image, sigma.mean(), settings)
        return vbm3d.vbm3d(image, most, settings, links=links, variation=sigma / most)
    return vbm3d.vbm3d(image, sigma, settings, links=linked_by_the_filter(image, sigma, settings))


def linked_by_the_filter(frames: np.ndarray, sigma, settings):
    """Return the links that the filter makes of the brightness of the frames."""
    held = FrameLinks((settings.frames_before, settings.frames_after), np.eye(1), np.ones(1))
    noise = [
        (np.array([one], float), np.zeros(1, np.int32)) for one in np.resize(sigma, len(frames))
    ]
    held.add(0, *note_frames([frames[:, None]], noise, Levels.of(frames), settings))
    table, _ = held.links(0, len(frames))

    def links(r: int, t: int) -> Link:
        if not 0 <= settings.frames_before + t - r < table.shape[2]:
            return Link()
        return Link(*table[0, r, settings.frames_before + t - r, :2].astype(float))

    return links


def by_isoline(image, settings, sigma, axes):
    return slow_isoline(image, settings, 1.0 if sigma is None else sigma)


def by_swnlm(image, settings, sigma, axes):
    names = "patch", "window", "alpha", "widen"
    found = swnlm.swnlm(image, sigma, **{name: getattr(settings, name) for name in names})
    if settings.show == "pixels":
        return 1 + found.accepted
    return np.where(found.accepted >= settings.fewest, found.image, image)


def by_ridge(image, estimate, settings, sigma):
    if image.ndim > 3:  # volumes, each alone
        each = zip(image, estimate, sigma, strict=True)
        return np.array([by_ridge(z, x, settings, s) for z, x, s in each])
    if settings.name != "vbm3d":
        return ridge.ridge(image, estimate, sigma, settings.ridge)
    (name,) = (name for name in settings.passes if name.startswith("ridge"))
    one, sigmas = settings.passes[name], [sigma] * len(image)
    motions, search = block_motions(image, settings.window_nearest, sigmas), one.search
    slow = replace(
        vbm3d.passes_of(settings)[-1],
        **{"window": search.first, "window_next": search.following, "per_frame": search.kept},
        **{"window_nearest": search.nearest, "neighbours": search.neighbours},
        window_fill=search.first,  # of large groups of overlapping patches
        **{"step": search.step, "similar": search.similar, "still": search.still},
    )

    def find(searched, place, _):
        matches = find_matches(searched, *place, slow, sigmas, None, (), motions)
        return [match[:3] for match in matches]

    alike = RidgeSettings.of_image(one.iterations, search)
    return ridge.ridge(image, estimate, sigma, alike, find)


# What the kernels are compared with, the error of all but few pixels, and the largest, in sigma.
REFERENCES = {
    "nl_means": (by_nl_means, 2e-4, 0.2),
    "nl_means_pixelwise": (by_pixelwise, 1e-5, 0.2),
    "bm3d": (by_bm3d, 3e-3, 0.2),
    "bm4d": (by_bm4d, 8e-3, 0.2),
    "vbm3d": (by_vbm3d, 1e-4, 0.2),
    "isoline": (by_isoline, 2e-4, 3.0),
    "swnlm": (by_swnlm, 1e-5, 0.2),
}
# Where groups lose little weights are small, and errors of rounding are larger, relative to them.
LOOSE = {
    **{
        "bm3d of checkerboard": 0.1,
        "bm4d of 2x4x8": 0.03,
        "bm3d of a map, refined": 0.01,
        "bm3d of a hole": 0.01,
    },
    **{name: 1e-3 for name in CASES if name.startswith("vbm3d of a map")},
}
LEAST = 1e-3  # what no noise counts as


def given(name: str):
    """Return the settings, image, axes and noise of a case, and the limits of the device."""
    settings, shape, axes, noise, gpu, make = CASES[name]
    if settings.over_time and (settings.name != "vbm3d" or "C" in axes or len(shape) > 3):
        # References do not compare the brightness of volumes and of channels.
        settings = altered(settings, compares_brightness=False)
    image = noisy(*shape, sigma=SIGMA) if make is None else make(shape)
    # Distances of whole numbers are exact, so that every search finds the same patches.
    image = np.asarray(image if make in (speckled, unrounded) else np.rint(image), np.float32)
    if isinstance(noise, str):
        noise = sigma_map(*shape[-2:], hole=noise == "hole")
    return settings, image, axes, noise, gpu


def correlated_models(noise) -> tuple:
    """Return the noise of a case as models, none if it is told by sigma."""
    models = noise if isinstance(noise, tuple) else (noise,)
    return models if isinstance(models[0], Correlated) else ()


def noise_option(noise) -> dict:
    """Return the noise of a case as the option of a run."""
    models = correlated_models(noise)
    return {"noise": models} if models else {"sigma": noise}


def denoised(image, settings, noise, axes, device) -> np.ndarray:
    """Return what a device makes of a case."""
    if settings.name == "vbm3d" and axes == "TYX" and np.ndim(noise) == 1:
        noise = noise if correlated_models(noise) else np.array(noise)
    return gd.denoise(image, settings, **noise_option(noise), axes=axes, device=device).image


def level(noise, axes: str):
    """Return the unit of errors: the noise, as it broadcasts to the image."""
    models = correlated_models(noise)
    if models:
        noise = models[0].sigma if "C" not in axes else tuple(one.sigma for one in models)
    noise = np.maximum(SIGMA if noise is None else noise, LEAST)
    return np.reshape(noise, (-1,) + (1,) * (len(axes) - 1)) if noise.ndim == 1 else noise


@cache
def expected(name: str) -> np.ndarray:
    """Return what the reference makes of a case that is not refined."""
    settings, image, axes, noise, _ = given(name)
    return REFERENCES[settings.name][0](image, settings, noise, axes)


def check(name: str, device) -> None:
    """Compare what a device makes of a case with the reference."""
    settings, image, axes, noise, _ = given(name)
    if getattr(settings, "refine", "off") == "off":
        made = expected(name)
    else:
        estimate = denoised(image, replace(settings, refine="off"), noise, axes, device)
        made = by_ridge(image, estimate, settings, noise)
    _, limit, most = REFERENCES[settings.name]
    out, unit = denoised(image, settings, noise, axes, device), level(noise, axes)
    still = np.broadcast_to(unit <= LEAST, image.shape)
    np.testing.assert_array_equal(out[still], image[still])
    error = np.where(still, 0, np.abs(out - made) / unit)
    # Where a coefficient or a test is at its limit, or two patches are as similar, it is rounding
    # that decides.
    off = error > LOOSE.get(name, limit)
    off = off.any(axis=0) if "C" in axes else off
    assert np.sum(off) < max(0.005 * off.size, 5)
    assert error.max() < most


@pytest.fixture(autouse=True)
def finely(request, monkeypatch):
    """Let sums of VBM3D be of whole numbers as fine as a small video allows.

    Those of the filter are safe from overflow whatever a video shows. Near the corners, and where a
    coefficient is as good as equal to the threshold, what they round off is seen.
    """
    if "vbm3d over time" not in request.node.name:
        monkeypatch.setattr(VideoSearch, "covering", lambda self, width: 64)


@pytest.mark.parametrize("name", OPTIMISED)
def test_optimised_kernels_of_a_gpu_are_the_reference(optimised, device, name):
    check(name, as_gpu(device, **CASES[name].gpu))


@pytest.mark.parametrize("name", CASES)
def test_kernels_are_the_reference(device, name):
    if CASES[name].settings.name != "isoline":  # whose kernels are the same everywhere
        check(name, device)
    if name not in OPTIMISED:
        check(name, as_gpu(device, **CASES[name].gpu))


NARROW = ("nl_means of an image", "pixelwise of a map", "swnlm of a map", "vbm3d, causal")
NARROW += ("bm3d, refined", "bm4d of a volume")


@pytest.mark.parametrize("name", NARROW)
def test_vectors_of_four_are_the_reference(device, name):
    check(name, replace(device, float_lanes=4))


def test_every_kernel_of_a_gpu_is_compared(device):
    used = set()
    for name in OPTIMISED:
        settings, image, axes, noise, gpu = given(name)
        options = {"axes": axes, "device": as_gpu(device, **gpu)}
        job = start(Run(settings, **noise_option(noise), **options), image)
        used |= {name for name, _ in programs_of(job, image.dtype, job.dtypes[1])}
    files = kernel_folder().glob("*/*.cl")
    names = {f"{f.parent.name}/{f.stem}" for f in files if f.parent.name not in NO_FILTERS}
    assert names - used == OF_CPUS | OF_ALL
