"""Every filter with the kernels of a GPU against NumPy, each kernel optimised as users have it.

What else a kernel may be built with (-D) is built quickly: optimised, each such variant takes a CPU
1 to 7 s. Where there is no GPU, a CPU poses as one: its compiler turns work-groups into loops, as
those of many drivers do. A GPU poses as one of another vendor, whose work-items share no warps. It
has room for small work-groups only, so that images of a few hundred pixels take several.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import napari_gpu_denoise as gd
from filters.correlated_noise import SIGMA, model
from filters.one_video_pass import slow as slow_search
from filters.slow_isoline import slow as slow_isoline
from napari_gpu_denoise.noise.models import Correlated
from napari_gpu_denoise.opencl.program import kernel_folder
from napari_gpu_denoise.run.job import start
from napari_gpu_denoise.run.part import programs_of
from napari_gpu_denoise.run.request import Run
from reference import (
    bm3d,
    bm3d_channels,
    bm3d_correlated,
    bm4d,
    nl_means,
    pixelwise,
    ridge,
    swnlm,
    vbm3d,
)
from reference.block_motion import block_motions
from reference.video_matching import find_matches
from scenes import altered, first_pass, noisy, prepared, scene, small

LIMITS = {"local_memory": 1 << 14, "max_group": 128}
TIGHT = {"local_memory": 1, "max_group": 64}
ROOMY = {"local_memory": 49152, "max_group": 1024}

IN_SPACE = {"patch": 4, "step": 2, "window": 7, "neighbours": 6}
WHOLE = {"patch": 5, "step": 4}
EXACT = {"patch": 3, "window": 5}
# PoCL 3.1 crashes when it optimises the search of the prefilter, whose window is one pixel.
GROUPS = {"window_basic": 9, "window_final": 7, "neighbours_basic": 8, "neighbours_final": 8}
CUBES = {**GROUPS, "window_basic": 5, "window_final": 5, "cube": "4x4x4"}
MANY = {"neighbours_basic": 16}
AROUND = {"frames_before": 1, "frames_after": 2}
BEFORE = {"frames_before": 2, "frames_after": 0}
VIDEO = {**AROUND, "window_nearest": 7, "step_basic": 5, "step_final": 5}
LINES = {"segment_length": 3, "max_length": 15, "staircase": 5}
HARD = {**LINES, "choice": "hard"}
BLURRED = model(0.9, 1.3)
LONELY = {"fallback": "keep", "fewest": 1, "widen": 2.0}

# Settings, shape, axes, noise, and what else the device has.
CASES = {
    "nl_means of an image": (gd.NLMeans(window=9), (43, 70), "YX", SIGMA),
    "nl_means of a map": (gd.NLMeans(**IN_SPACE), (30, 45), "YX", "map"),
    "nl_means at every pixel": (gd.NLMeans.of(profile="fine", window=7), (21, 50), "YX", SIGMA),
    "nl_means of patches that end within a step": (
        *(gd.NLMeans(patch=8, step=3, window=7, neighbours=6), (30, 60), "YX", SIGMA),
    ),
    "nl_means of single pixels": (
        *(gd.NLMeans(patch=1, step=1, window=5, neighbours=5), (21, 50), "YX", SIGMA),
    ),
    "nl_means of magnitudes": (gd.NLMeans(**IN_SPACE, rician=True), (30, 45), "YX", SIGMA),
    "nl_means of a volume": (gd.NLMeans(**IN_SPACE, slices=1), (3, 15, 22), "ZYX", SIGMA),
    "nl_means over time": (
        *(gd.NLMeans(**IN_SPACE, **AROUND, slices=1), (4, 2, 13, 19), "TZYX", SIGMA),
    ),
    "nl_means over time, whole patches": (
        *(gd.NLMeans(**IN_SPACE | WHOLE, **AROUND, slices=1), (4, 2, 13, 19), "TZYX", SIGMA),
    ),
    "nl_means over time, sliding": (
        *(gd.NLMeans(**IN_SPACE | {"step": 1}, **BEFORE, slices=1), (3, 2, 9, 13), "TZYX", SIGMA),
    ),
    "nl_means over time, without local memory": (
        *(gd.NLMeans(**IN_SPACE, **AROUND, slices=1), (3, 2, 11, 13), "TZYX", SIGMA, TIGHT),
    ),
    "pixelwise of an image": (gd.NLMeansPixelwise(window=9), (23, 141), "YX", SIGMA),
    "pixelwise of a map": (
        *(gd.NLMeansPixelwise(**EXACT, weights="bisquare"), (19, 70)),
        *("YX", "map"),
    ),
    "pixelwise of a volume": (
        *(gd.NLMeansPixelwise(**EXACT, slices=1, patch_slices=1, patch_shape="gaussian"),),
        *((4, 11, 33), "ZYX", SIGMA),
    ),
    "pixelwise over time": (gd.NLMeansPixelwise(**EXACT, **AROUND), (5, 11, 33), "TYX", SIGMA),
    "pixelwise of channels over time": (
        *(gd.NLMeansPixelwise(**EXACT, **AROUND, channels="joint"), (2, 4, 11, 33), "CTYX", SIGMA),
    ),
    "pixelwise counts": (gd.NLMeansPixelwise(**EXACT, show="pixels"), (11, 70), "YX", SIGMA),
    "bm3d of an image": (small(gd.BM3D, **GROUPS), (60, 69), "YX", SIGMA),
    "bm3d, fast": (gd.BM3D.of(profile="fast", window_basic=11), (40, 45), "YX", SIGMA),
    "bm3d of a map": (small(gd.BM3D, **GROUPS), (40, 45), "YX", "map"),
    "bm3d of frames": (small(gd.BM3D, **GROUPS), (2, 30, 33), "TYX", (12.4, 31.1)),
    "bm3d of joined channels": (
        *(small(gd.BM3D, **GROUPS, channels="joint"), (3, 30, 33), "CYX", (12.4, 20.37, 31.1)),
    ),
    "bm3d of colours": (
        *(small(gd.BM3D, **GROUPS, channels="opponent"), (3, 30, 33), "CYX", SIGMA),
    ),
    "bm3d of a map, refined": (gd.BM3D.of(profile="fast", refine="chain"), (25, 33), "YX", "map"),
    "bm3d of correlated noise": (*(small(gd.BM3D, **GROUPS), (30, 33), "YX", model(0.6, 0.6)),),
    "bm4d of a volume": (gd.BM4D(**CUBES), (6, 15, 32), "ZYX", SIGMA),
    "bm4d of large groups": (first_pass(gd.BM4D(**CUBES | MANY)), (5, 12, 14), "ZYX", SIGMA),
    "bm4d of a map": (
        *(first_pass(gd.BM4D(**CUBES | {"cube": "2x4x8"})), (5, 15, 20), "ZYX", "map"),
    ),
    # Smaller volumes leave too little of a block to compare: none moves, and no other is used.
    "bm4d over time": (
        *(first_pass(gd.BM4D(**CUBES, **AROUND | {"frames_after": 1})), (2, 8, 16, 18)),
        *("TZYX", SIGMA),
    ),
    "bm4d of correlated noise": (first_pass(gd.BM4D(**CUBES)), (5, 12, 13), "ZYX", BLURRED),
    "bm4d, refined": (
        *(gd.BM4D(**CUBES, refine="once"), (6, 13, 17), "ZYX", SIGMA),
        ROOMY,
    ),
    "vbm3d over time": (small(gd.VBM3D, **VIDEO), (5, 33, 49), "TYX", SIGMA),
    "vbm3d, causal": (
        *(small(gd.VBM3D, **VIDEO | BEFORE), (4, 25, 33)),
        *("TYX", SIGMA),
    ),
    "vbm3d of joined channels": (
        *(small(gd.VBM3D, **VIDEO, channels="joint"), (2, 4, 25, 33), "CTYX", (0.0, SIGMA)),
    ),
    "vbm3d of correlated noise": (small(gd.VBM3D, **VIDEO), (3, 25, 33), "TYX", BLURRED),
    "vbm3d, refined": (
        *(small(gd.VBM3D, **VIDEO | {"window_nearest": 21}, refine="once"), (3, 21, 25)),
        *("TYX", SIGMA, ROOMY),
    ),
    "isoline of an image": (gd.Isoline(**LINES), (40, 45), "YX", SIGMA),
    "isoline of a map": (gd.Isoline(**LINES), (40, 45), "YX", "map"),
    "isoline of joined channels": (
        *(gd.Isoline(**LINES, channels="joint"), (2, 20, 33), "CYX", (12.4, 20.37)),
    ),
    "isoline of colours": (gd.Isoline(**LINES, channels="opponent"), (3, 20, 33), "CYX", SIGMA),
    "isoline of speckle": (
        *(gd.Isoline(**LINES, criterion="multiplicative"), (20, 33), "YX", None),
    ),
    "isoline, chosen": (gd.Isoline(**HARD), (40, 45), "YX", SIGMA),
    "isoline of joined channels, chosen": (
        *(gd.Isoline(**HARD, channels="joint", thickness=1), (2, 20, 33), "CYX", (12.4, 20.37)),
    ),
    "isoline, searched": (
        gd.Isoline(**HARD | {"method": "pi-ld", "max_length": 9}),
        (20, 33),
        "YX",
        SIGMA,
    ),
    "swnlm of an image": (gd.SWNLM(patch=3, window=7, **LONELY), (18, 70), "YX", SIGMA),
    "swnlm of a map": (gd.SWNLM(patch=3, window=7, **LONELY), (20, 37), "YX", "map"),
}


def sigma_map(ny: int, nx: int) -> np.ndarray:
    """Return a slope and a jump; no round numbers, which spectra of whole numbers would meet."""
    y, x = np.indices((ny, nx))
    return 12.3717 + 0.2113 * x + 9.1339 * (y > ny // 2)


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
    if isinstance(sigma, Correlated):
        told, table = prepared(settings, axes, noise=(sigma,)), sigma.autocorrelation
        plain = replace(gd.BM3D(**told.as_dict()), channels="separate")
        return bm3d_correlated.bm3d_correlated(image[None], [sigma.sigma], [table], plain)[0]
    if axes == "YX":
        return bm3d.bm3d(image, sigma, settings, exact=False)
    if axes == "TYX":
        pairs = zip(image, sigma, strict=True)
        return np.array([by_bm3d(frame, settings, one, "YX") for frame, one in pairs])
    sigmas = np.broadcast_to(sigma, len(image))
    return bm3d_channels.bm3d_channels(image, sigmas, settings, exact=False)


def by_bm4d(image, settings, sigma, axes):
    if isinstance(sigma, Correlated):
        return by_bm4d(image, prepared(settings, axes, noise=(sigma,)), sigma.sigma, axes)
    return bm4d.bm4d(image, sigma, settings, exact=False)


def by_vbm3d(image, settings, sigma, axes):
    if isinstance(sigma, Correlated):
        told = prepared(settings, axes, noise=(sigma,))
        return vbm3d.vbm3d(image, sigma.sigma, told, table=sigma.autocorrelation)
    if axes == "TYX":
        return vbm3d.vbm3d(image, sigma, settings)
    # A channel without noise stays, and the other one is searched alone.
    return np.stack([image[0], by_vbm3d(image[1], settings, sigma[1], "TYX")])


def by_isoline(image, settings, sigma, axes):
    return slow_isoline(image, settings, 1.0 if sigma is None else sigma)


def by_swnlm(image, settings, sigma, axes):
    names = "patch", "window", "alpha", "widen"
    found = swnlm.swnlm(image, sigma, **{name: getattr(settings, name) for name in names})
    return np.where(found.accepted >= settings.fewest, found.image, image)


def by_ridge(image, estimate, settings, sigma):
    if settings.name != "vbm3d":
        return ridge.ridge(image, estimate, sigma, settings.ridge)
    (name,) = (name for name in settings.passes if name.startswith("ridge"))
    one, sigmas = settings.passes[name], [sigma] * len(image)
    motions = block_motions(image, settings.window_nearest, sigmas)

    def find(searched, place, _):
        matches = find_matches(searched, *place, slow_search(one.search), sigmas, None, (), motions)
        return [match[:3] for match in matches]

    return ridge.ridge(image, estimate, sigma, one, find)


# What the kernels are compared with, and the largest error, in sigma.
REFERENCES = {
    "nl_means": (by_nl_means, 2e-4),
    "nl_means_pixelwise": (by_pixelwise, 1e-5),
    "bm3d": (by_bm3d, 3e-3),
    "bm4d": (by_bm4d, 8e-3),
    "vbm3d": (by_vbm3d, 1e-4),
    "isoline": (by_isoline, 5e-5),
    "swnlm": (by_swnlm, 1e-5),
}
# Cases whose kernels are optimised: those are all kernels of a GPU.
OPTIMISED = [
    *("nl_means of a map", "nl_means of patches that end within a step"),
    *("nl_means of single pixels", "nl_means over time, without local memory"),
    *("pixelwise of a map", "bm4d of a volume", "bm4d over time"),
    "vbm3d, refined",
    *(name for name in CASES if name.startswith(("isoline", "swnlm"))),
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


def posing(device, local_memory: int = ROOMY["local_memory"], max_group: int = ROOMY["max_group"]):
    """Return a CPU that poses as a GPU, or a GPU that poses as one of another vendor."""
    if device.float_lanes == 1:
        return replace(device, vendor="another")
    limits = {
        "local_memory": min(device.local_memory, local_memory),
        "max_group": min(device.max_group, max_group),
    }
    return replace(device, float_lanes=1, **limits)


def given(name: str):
    """Return the settings, image, axes and noise of a case, and the limits of the device."""
    settings, shape, axes, sigma, *limits = CASES[name]
    if settings.over_time:  # references do not compare the brightness of frames
        settings = altered(settings, compares_brightness=False)
    image = np.rint(noisy(*shape, sigma=SIGMA)).astype(np.float32)
    if settings.name == "vbm3d" and "C" in axes:
        image[1] = image[0] / 2
    if settings.name == "bm4d" and "T" in axes:  # whose volumes move along all three
        nt, nz, ny, nx = shape
        wide = scene(nz + nt, ny + nt, nx + nt)
        moved = [wide[t : t + nz, t : t + ny, t : t + nx] for t in range(nt)]
        image += moved - scene(*shape)
        image = np.rint(image)
    sigma = sigma_map(*shape[-2:]) if sigma == "map" else sigma
    return settings, image, axes, sigma, (limits or [LIMITS])[0]


def noise_option(sigma) -> dict:
    """Return the noise of a case as the option of a run."""
    return {"noise" if isinstance(sigma, Correlated) else "sigma": sigma}


def denoised(image, settings, sigma, axes, device) -> np.ndarray:
    """Return what a device makes of a case."""
    return gd.denoise(image, settings, **noise_option(sigma), axes=axes, device=device).image


def level(sigma, dimensions: int):
    """Return the unit of errors: the noise, as it broadcasts to the image."""
    if sigma is None or isinstance(sigma, Correlated):
        return getattr(sigma, "sigma", 1.0)
    if np.ndim(sigma) == 1:
        return np.reshape(np.maximum(sigma, 1e-3), (-1,) + (1,) * (dimensions - 1))
    return sigma


@pytest.mark.parametrize("name", OPTIMISED)
def test_optimised_kernels_of_a_gpu_are_the_reference(optimised, device, name):
    check(name, device)


@pytest.mark.parametrize("name", [name for name in CASES if name not in OPTIMISED])
def test_variants_of_kernels_are_the_reference(device, name):
    check(name, device)


def check(name, device) -> None:
    """Compare what a device, posing as a GPU, makes of a case with the reference."""
    settings, image, axes, sigma, limits = given(name)
    posed = posing(device, **limits)
    by, limit = REFERENCES[settings.name]
    if getattr(settings, "refine", "off") == "off":
        expected = by(image, settings, sigma, axes)
    else:
        estimate = denoised(image, replace(settings, refine="off"), sigma, axes, posed)
        expected = by_ridge(image, estimate, settings, sigma)
    out, unit = denoised(image, settings, sigma, axes, posed), level(sigma, image.ndim)
    error = np.abs(out - expected) / unit
    # Where a coefficient or a test is at its limit, or two patches are as similar, it is rounding
    # that decides.
    assert np.mean(error > limit) < 0.005
    assert error.max() < 0.2


def test_every_kernel_of_a_gpu_is_compared(device):
    used = set()
    for name in OPTIMISED:
        settings, image, axes, sigma, limits = given(name)
        options = {"axes": axes, "device": posing(device, **limits)}
        job = start(Run(settings, **noise_option(sigma), **options), image)
        used |= {name for name, _ in programs_of(job, image.dtype, job.dtypes[1])}
    files = kernel_folder().glob("*/*.cl")
    names = {f"{f.parent.name}/{f.stem}" for f in files if f.parent.name not in NO_FILTERS}
    assert names - used == OF_CPUS | OF_ALL
