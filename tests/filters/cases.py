"""Cases of every filter: settings, images and noise that together reach all of its kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

import napari_gpu_denoise as gd
from filters.correlated_noise import BLURRED, OPPOSED, SIGMA, STREAKS, WHITE, model
from napari_gpu_denoise.noise.models import Correlated
from scenes import first_pass, noisy, scene, small

LIMITS = {"local_memory": 1 << 14, "max_group": 128}
TIGHT = {"local_memory": 1, "max_group": 64}
ROOMY = {"local_memory": 49152, "max_group": 1024}


class Case(NamedTuple):
    """A filter, an image, its noise, what a GPU has, and how the image is made if it is special."""

    settings: Any
    shape: tuple[int, ...]
    axes: str = "YX"
    noise: Any = SIGMA
    gpu: dict = LIMITS
    make: Callable | None = None


def rows(kind, base: dict, changes: list[dict], shape, axes="YX", *more, **named) -> dict:
    """Return a case for each change of some settings, by a name that tells it."""
    made, noise = {}, "".join(f" {one}" for one in more if isinstance(one, str))
    for each in changes:
        # Settings of groups are told by their values.
        told = [f"{name}={value}" if len(each) < 6 else str(value) for name, value in each.items()]
        name = " ".join([kind.name, f"{axes}{noise}", *told])
        made[name] = Case(kind(**{**base, **each}), shape, axes, *more, **named)
    return made


# Images


def checkerboard(shape) -> np.ndarray:
    return 200.0 * (np.indices(shape).sum(axis=0) % 2)


def salt_and_pepper(shape) -> np.ndarray:
    image, chance = noisy(*shape, sigma=SIGMA), np.random.default_rng(0).random(shape)
    return np.where(chance < 0.05, 0, np.where(chance > 0.95, 255, image))


def hot_columns(shape) -> np.ndarray:
    """Return an image that repeats: hot pixels lie in all patches of a group, at one place."""
    image = np.tile(noisy(11, 9, sigma=SIGMA), (3, 4))
    image[5::11, 4::9] += 1e4 * SIGMA
    return image


def few_levels(shape) -> np.ndarray:
    """Return an image in which many patches are as similar: the nearest come first."""
    return np.random.default_rng(0).integers(0, 3, shape) * 20.0


def magnitudes(shape) -> np.ndarray:
    """Return the scene, dark on its left, with Rician noise."""
    clean = scene(*shape) * np.minimum(np.arange(shape[-1]) / (0.4 * shape[-1]), 1) ** 3
    real, imaginary = np.random.default_rng(0).normal(0, SIGMA, (2, *shape))
    return np.hypot(clean + real, imaginary)


def unrounded(shape) -> np.ndarray:
    """Return an image in which mixtures of channels have no ties."""
    return noisy(*shape, sigma=SIGMA)


def speckled(shape) -> np.ndarray:
    """Return the scene times gamma noise of mean 1, not rounded."""
    return scene(*shape) * np.random.default_rng(0).gamma(4, 1 / 4, shape) + 0.0123


def blocks(shape) -> np.ndarray:
    """Return blocks without noise: where segments do not vary, any difference ends an isoline."""
    levels = np.random.default_rng(0).permutation(30).reshape(5, 6) * 8.0
    return np.kron(levels, np.ones((6, 7)))


def fast(shape) -> np.ndarray:
    """Return a pattern that goes on faster and faster, as far as a match may lie."""
    pattern = np.random.default_rng(0).integers(0, 256, (90, 90)).astype(float)
    video = [np.roll(pattern, shift, axis=0) for shift in (0, 7, 16, 26, 32)]
    return np.array(video)[:, : shape[1], : shape[2]]


def flickering(shape) -> np.ndarray:
    """Return a video whose brightness changes from frame to frame, one of which was dropped."""
    gain = np.array([1, 1.3, 0.8, 1, 1.1, 0.9])[:, None, None]
    offset = np.array([0, 5, 0, -10, 0, 20])[:, None, None]
    noise = np.random.default_rng(1).normal(0, SIGMA, shape)
    video = scene(*shape) * gain + offset + noise
    video[3] = 77
    return video


def moving_volumes(shape) -> np.ndarray:
    """Return volumes that move along all three axes."""
    nt, nz, ny, nx = shape
    wide = scene(nz + nt, ny + nt, nx + nt)
    moved = [wide[t : t + nz, t : t + ny, t : t + nx] for t in range(nt)]
    return np.array(moved) + noisy(*shape, sigma=SIGMA) - scene(*shape)


def repeating(shape) -> np.ndarray:
    """Return a volume whose most similar cubes lie just outside a window."""
    rng = np.random.default_rng(0)
    return np.tile(rng.integers(0, 60, (5, 9, 8)), 3) + rng.integers(0, 20, (5, 9, 24))


# Noise: a slope and a jump, no round numbers, which spectra of whole numbers would meet.


def sigma_map(ny: int, nx: int, hole: bool = False) -> np.ndarray:
    y, x = np.indices((ny, nx))
    sigma = 12.3717 + 0.2113 * x + 9.1339 * (y > ny // 2)
    sigma[5 : ny // 2, nx // 2 :] *= 1 - hole
    return sigma


def correlated(*tables, sigmas=(12.4, 20.37, 31.1)) -> tuple[Correlated, ...]:
    return tuple(map(Correlated, sigmas, tables))


def of_slices(*values, axes: int = 3) -> np.ndarray:
    return np.reshape(values, (-1,) + (1,) * (axes - 1))


# Cases

IN_SPACE = {"patch": 4, "step": 2, "window": 7, "neighbours": 6}
WHOLE = {"patch": 5, "step": 4}
EXACT = {"patch": 3, "window": 5}
# PoCL 3.1 crashes when it optimises the search of the prefilter, whose window is one pixel.
GROUPS = {"window_basic": 9, "window_final": 7, "neighbours_basic": 8, "neighbours_final": 8}
SPARSE = GROUPS | {"step_basic": 4, "step_final": 4}
FAST = gd.BM3D.of(profile="fast", window_basic=15)
FEW = gd.VBM3D(step_basic=6, step_final=6)  # references
CUBES = {**GROUPS, "window_basic": 5, "window_final": 5, "cube": "4x4x4"}
AROUND = {"frames_before": 1, "frames_after": 2}
BEFORE = {"frames_before": 2, "frames_after": 0}
EITHER = {"frames_before": 1, "frames_after": 1}
VIDEO = {**AROUND, "window_nearest": 7, "step_basic": 5, "step_final": 5}
LINES = {"segment_length": 3, "max_length": 15, "staircase": 5}
HARD = {**LINES, "choice": "hard"}
LETTER = {"choice": "hard", "thickness": 1, "staircase": 0}
SEARCHED = {"method": "pi-ld", "segment_length": 3, "max_length": 9, "staircase": 0}
LONELY = {"fallback": "keep", "fewest": 1, "patch": 3, "window": 7}
COLOURS = (12.4, 20.37, 31.1)
# Filters of colours, and the frames that they have. In groups of four hardly anything counts as
# common, and the threshold is for eight.
COLOURED = {
    "bm3d": (small(gd.BM3D, window_basic=15, window_final=15), ()),
    "vbm3d": (small(gd.VBM3D, neighbours_basic=8, neighbours_final=8), (3,)),
}
PLANE, DEEP, NEAR = model(0.7, 1.0), model(0.7, 1.0, 0.5), model(0.6, 0.6)


def groups(sizes, transforms=("bior1.5", "dct"), stacks=("haar", "haar"), **more) -> dict:
    """Return settings of groups in both passes."""
    each = zip(("basic", "final"), sizes, transforms, stacks, strict=True)
    return more | {
        f"{name}_{stage}": value
        for stage, *values in each
        for name, value in zip(("neighbours", "transform", "stack"), values, strict=True)
    }


NL_MEANS = {
    "nl_means of an image": Case(gd.NLMeans(window=9), (43, 70)),
    "nl_means of a map": Case(gd.NLMeans(**IN_SPACE), (30, 45), "YX", "hole"),
    "nl_means at every pixel": Case(gd.NLMeans.of(profile="fine", window=7), (21, 50)),
    "nl_means of patches that end within a step": Case(
        gd.NLMeans(patch=8, step=3, window=7, neighbours=6), (30, 60)
    ),
    "nl_means of single pixels": Case(gd.NLMeans(patch=1, step=1, window=5), (21, 50)),
    "nl_means of a volume": Case(gd.NLMeans(**IN_SPACE, slices=1), (3, 15, 22), "ZYX"),
    "nl_means over time": Case(gd.NLMeans(**IN_SPACE, **AROUND, slices=1), (4, 2, 13, 19), "TZYX"),
    "nl_means over time, whole patches": Case(
        gd.NLMeans(**IN_SPACE | WHOLE, **AROUND, slices=1), (4, 2, 13, 19), "TZYX"
    ),
    "nl_means over time, sliding": Case(
        gd.NLMeans(**IN_SPACE | {"step": 1}, **BEFORE, slices=1), (3, 2, 9, 13), "TZYX"
    ),
    "nl_means over time, without local memory": Case(
        gd.NLMeans(**IN_SPACE, **AROUND, slices=1), (3, 2, 11, 13), "TZYX", SIGMA, TIGHT
    ),
    "nl_means of equal patches": Case(
        gd.NLMeans(**IN_SPACE | {"patch": 2}, flat=0.0), (25, 30), make=few_levels
    ),
    "nl_means of magnitudes": Case(gd.NLMeans(**IN_SPACE, rician=True), (31, 38), make=magnitudes),
    "nl_means of magnitudes over time": Case(
        gd.NLMeans(**IN_SPACE, **EITHER, rician=True), (3, 15, 18), "TYX", make=magnitudes
    ),
    **rows(
        gd.NLMeans,
        {"window": 9},
        [
            {"patch": 6, "step": 2, "window": 5, "neighbours": 5},
            {"patch": 13, "step": 1, "window": 5, "neighbours": 4},
            {"window": 1},
            {"neighbours": 64},
            {"strength": 3.0},
            {"flat": 3.0},
        ],
        (27, 31),
    ),
    "nl_means of later frames": Case(gd.NLMeans(**IN_SPACE, frames_after=2), (4, 13, 17), "TYX"),
    "nl_means of three slices": Case(
        gd.NLMeans(**IN_SPACE | {"window": 5}, slices=3), (4, 13, 17), "ZYX"
    ),
    "nl_means of magnitudes under a map": Case(
        gd.NLMeans(**IN_SPACE, rician=True), (30, 33), "YX", "hole"
    ),
    **{
        f"nl_means of {ny} x {nx} pixels": Case(gd.NLMeans(window=9), (ny, nx))
        for ny, nx in ((1, 30), (7, 9), (9, 30))
    },
}
PIXELWISE = {
    "pixelwise of an image": Case(gd.NLMeansPixelwise(window=9), (23, 141)),
    "pixelwise of a map": Case(
        gd.NLMeansPixelwise(**EXACT, weights="bisquare"), (19, 70), "YX", "map"
    ),
    "pixelwise of a volume": Case(
        gd.NLMeansPixelwise(**EXACT, slices=1, patch_slices=1, patch_shape="gaussian"),
        *((4, 11, 33), "ZYX"),
    ),
    "pixelwise over time": Case(gd.NLMeansPixelwise(**EXACT, **AROUND), (5, 11, 33), "TYX"),
    "pixelwise of channels over time": Case(
        gd.NLMeansPixelwise(**EXACT, **AROUND, channels="joint"), (2, 4, 11, 33), "CTYX"
    ),
    "pixelwise counts": Case(gd.NLMeansPixelwise(**EXACT, show="pixels"), (11, 70)),
    **rows(
        gd.NLMeansPixelwise,
        {"window": 9},
        [
            {"patch": 7, "weights": "plain", "patch_shape": "gaussian"},
            {"patch": 11, "window": 5},
            {"patch": 1, "window": 5},
            {"strength": 0.1},
        ],
        (21, 141),
    ),
    "pixelwise of thick patches": Case(
        gd.NLMeansPixelwise(**EXACT, slices=2, patch_slices=3), (4, 11, 21), "ZYX", SIGMA, ROOMY
    ),
    **{
        f"pixelwise of channels, {sigma}": Case(
            gd.NLMeansPixelwise(**EXACT, channels="joint"), (3, 13, 23), "CYX", sigma
        )
        for sigma in (COLOURS, (0.0, 20.0, 10.0))
    },
    **{
        f"pixelwise of {ny} x {nx} pixels": Case(gd.NLMeansPixelwise(window=9), (ny, nx))
        for ny, nx in ((1, 9), (40, 3))
    },
}
BM3D = {
    "bm3d of an image": Case(small(gd.BM3D, **GROUPS), (43, 52)),
    "bm3d, fast": Case(FAST, (40, 45)),
    "bm3d of a map": Case(small(gd.BM3D, **GROUPS), (40, 45), "YX", "map"),
    "bm3d of frames": Case(small(gd.BM3D, **GROUPS), (2, 30, 33), "TYX", (12.4, 31.1)),
    "bm3d of a map, prefiltered": Case(
        small(gd.BM3D, **GROUPS, prefiltered=True), (33, 36), "YX", "map"
    ),
    "bm3d, refined": Case(gd.BM3D.of(profile="fast", refine="once"), (20, 26)),
    "bm3d of a map, refined": Case(replace(FAST, refine="chain"), (19, 26), "YX", "map"),
    # All transforms, stacks and sizes of groups, in small and large work-groups.
    **rows(
        gd.BM3D,
        SPARSE,
        [
            groups((32, 8)),
            groups((16, 32), ("dct", "dft"), ("hadamard", "haar")),
            groups((2, 16), ("dft", "bior1.5"), ("haar", "hadamard")),
            groups((1, 2), ("bior1.5", "dct"), ("hadamard", "hadamard")),
        ],
        (30, 33),
        "YX",
        SIGMA,
        ROOMY,
    ),
    "bm3d of a hole": Case(small(gd.BM3D, **GROUPS), (33, 36), "YX", "hole"),
    "bm3d of small work-groups": Case(
        small(gd.BM3D, **groups((4, 1))), (20, 26), "YX", SIGMA, TIGHT
    ),
    **rows(
        gd.BM3D,
        SPARSE,
        [
            {"step_basic": 1, "window_basic": 5, "step_final": 8, "window_final": 3},
            {"window_basic": 1},
            {"wiener_sigma": 0.5},
            {"threshold": 4.0},
        ],
        (25, 29),
    ),
    **{
        f"bm3d of {channels} channels{', prefiltered' * smooth}": Case(
            small(gd.BM3D, **GROUPS, channels=channels, prefiltered=smooth),
            (3, 30, 33),
            "CYX",
            COLOURS,
        )
        for channels in ("joint", "opponent")
        for smooth in (False, True)
    },
    **{
        f"bm3d of {channels} channels under a map": Case(
            small(gd.BM3D, **GROUPS, channels=channels), (3, 26, 30), "CYX", "map"
        )
        for channels in ("joint", "opponent")
    },
    "bm3d of joint channels, one without noise": Case(
        small(gd.BM3D, **GROUPS, channels="joint"), (3, 26, 30), "CYX", (0.0, 20.37, 31.1)
    ),
    **{
        f"bm3d of {ny} x {nx} pixels": Case(small(gd.BM3D, **GROUPS), (ny, nx))
        for ny, nx in ((1, 30), (8, 8), (9, 50), (50, 9))
    },
    **{
        f"bm3d of {make.__name__}": Case(FAST, (33, 36), make=make)
        for make in (checkerboard, salt_and_pepper, hot_columns)
    },
    **{
        f"bm3d of correlated noise, {told['neighbours_basic']}": Case(
            small(gd.BM3D, scales=1, **told), (30, 33), "YX", correlated(BLURRED)
        )
        for told in (GROUPS, groups((4, 32), ("dct", "dft"), ("hadamard", "haar")))
    },
    "bm3d of noise that is opposed": Case(
        small(gd.BM3D, **GROUPS, scales=1, prefiltered=True), (30, 33), "YX", correlated(OPPOSED)
    ),
    **{
        f"bm3d of {channels} channels of correlated noise": Case(
            small(gd.BM3D, **GROUPS, scales=1, channels=channels, prefiltered=smooth),
            (3, 26, 31),
            "CYX",
            correlated(BLURRED, STREAKS, WHITE),
        )
        for channels, smooth in (("separate", False), ("opponent", True), ("joint", True))
    },
}
BM4D = {
    "bm4d of a volume": Case(gd.BM4D(**CUBES), (6, 15, 32), "ZYX"),
    # Smaller volumes leave too little of a block to compare: none moves, and no other is used.
    "bm4d over time": Case(
        first_pass(gd.BM4D(**CUBES, **EITHER)), (2, 8, 16, 18), "TZYX", "map", make=moving_volumes
    ),
    "bm4d over time, both passes": Case(
        gd.BM4D(**CUBES, **EITHER), (2, 8, 16, 18), "TZYX", make=moving_volumes
    ),
    "bm4d, causal": Case(
        first_pass(gd.BM4D(**CUBES | {"cube": "1x8x8"}, frames_before=2)), (2, 8, 16, 18), "TZYX"
    ),
    "bm4d, refined": Case(
        gd.BM4D(**CUBES, refine="once"), (2, 5, 10, 13), "TZYX", of_slices(17, 29, axes=4), ROOMY
    ),
    **{
        f"bm4d{', refined,' * (once == 'once')} of {cube}": Case(
            gd.BM4D(
                **CUBES | {"cube": cube, "neighbours_basic": n, "neighbours_final": m}, refine=once
            ),
            *(shape, "ZYX", noise, ROOMY if once == "once" else LIMITS),
        )
        for cube, n, m, shape, noise in (
            ("1x8x8", 4, 8, (3, 17, 19), SIGMA),
            ("2x4x8", 2, 16, (5, 11, 17), of_slices(14, 17, 20, 23, 26)),
        )
        for once in ("off", "once")
    },
    "bm4d of a map": Case(gd.BM4D(**CUBES), (5, 12, 14), "ZYX", "map"),
    "bm4d of large groups": Case(
        gd.BM4D(**CUBES | {"neighbours_basic": 16, "neighbours_final": 32}), (5, 13, 15), "ZYX"
    ),
    "bm4d of noise along z": Case(
        gd.BM4D(**CUBES | {"neighbours_basic": 1, "neighbours_final": 32}), (5, 13, 15), "ZYX", DEEP
    ),
    **{
        f"bm4d, first pass, of {name}": Case(
            first_pass(gd.BM4D(**CUBES, **over)),
            *((2, 8, 16, 18) if over else (5, 12, 14), "TZYX"[not over :], noise),
        )
        for name, over, noise in (
            ("slices", {}, of_slices(5.1, 11, 17, 23, 30.3)),
            ("a plane", {}, PLANE),
            ("noise that hardly reaches", {}, NEAR),
            ("times", EITHER, of_slices(12.3, 21.4, axes=4)),
            ("slices over time", EITHER, np.linspace(9, 30, 16).reshape(2, 8, 1, 1)),
            ("noise along z over time", EITHER, DEEP),
        )
    },
    **{
        f"bm4d of {shape}": Case(
            first_pass(gd.BM4D(**CUBES | {"cube": "4x4x4" if shape[0] > 3 else "1x8x8"})),
            shape,
            "ZYX",
        )
        for shape in ((5, 9, 30), (1, 8, 11), (3, 20, 8))
    },
    "bm4d of a wide window": Case(
        first_pass(gd.BM4D(**CUBES | {"window_basic": 15})), (5, 9, 24), "ZYX", make=repeating
    ),
}
VBM3D = {
    "vbm3d over time": Case(small(gd.VBM3D, **VIDEO), (5, 25, 41), "TYX"),
    "vbm3d, causal": Case(small(gd.VBM3D, **VIDEO | BEFORE), (4, 25, 33), "TYX"),
    "vbm3d of one frame at a time": Case(
        small(gd.VBM3D, **VIDEO | {"frames_before": 0, "frames_after": 0}), (2, 20, 26), "TYX"
    ),
    "vbm3d of later frames": Case(
        small(gd.VBM3D, **VIDEO | {"frames_before": 0}), (4, 20, 26), "TYX"
    ),
    "vbm3d by default": Case(FEW, (6, 25, 30), "TYX"),
    "vbm3d, refined": Case(
        *(small(gd.VBM3D, **VIDEO, refine="once"), (3, 21, 25), "TYX", SIGMA, ROOMY),
    ),
    "vbm3d of fast motion": Case(replace(FEW, window_nearest=23), (5, 64, 9), "TYX", make=fast),
    "vbm3d of flicker": Case(FEW, (6, 28, 30), "TYX", make=flickering),
    "vbm3d of flicker, a sigma each": Case(
        small(gd.VBM3D, **VIDEO), (6, 28, 30), "TYX", (20.0, 20, 0, 20, 45, 22), make=flickering
    ),
    **rows(
        gd.VBM3D,
        VIDEO,
        [{"neighbours_basic": n, "neighbours_final": m} for n, m in ((2, 1), (16, 32), (32, 4))],
        (4, 20, 26),
        "TYX",
        SIGMA,
        ROOMY,
    ),
    **{
        f"vbm3d of a map, {before} and {after}": Case(
            gd.VBM3D(**VIDEO | {"frames_before": before, "frames_after": after}),
            (4, 26, 30),
            "TYX",
            "hole",
        )
        for before, after in ((1, 2), (2, 0))
    },
    **{
        f"vbm3d of {channels} channels": Case(
            small(gd.VBM3D, **VIDEO, channels=channels), (3, 3, 20, 26), "CTYX", COLOURS
        )
        for channels in ("joint", "opponent")
    },
    "vbm3d of joint channels, one without noise": Case(
        small(gd.VBM3D, **VIDEO, channels="joint"), (2, 4, 25, 33), "CTYX", (0.0, SIGMA)
    ),
    **{
        f"vbm3d of correlated noise, {before} and {after}": Case(
            gd.VBM3D(**VIDEO | {"frames_before": before, "frames_after": after}),
            (3, 25, 33),
            "TYX",
            correlated(BLURRED, sigmas=[SIGMA]),
        )
        for before, after in ((1, 2), (2, 0))
    },
    **{
        f"vbm3d of {channels} channels of correlated noise": Case(
            small(gd.VBM3D, **VIDEO, channels=channels),
            (3, 3, 20, 26),
            "CTYX",
            correlated(BLURRED, STREAKS, WHITE),
        )
        for channels in ("separate", "joint", "opponent")
    },
    **{
        f"vbm3d of {shape}": Case(FEW, shape, "TYX")
        for shape in ((1, 20, 9), (2, 5, 20), (3, 8, 8))
    },
}
ISOLINE = {
    "isoline of an image": Case(gd.Isoline(**LINES), (40, 45)),
    "isoline of a map": Case(gd.Isoline(**LINES), (40, 45), "YX", "map"),
    **{f"isoline of sigma {s}": Case(gd.Isoline(), (40, 45), "YX", s) for s in (0.5, 80.0)},
    "isoline of joined channels": Case(
        gd.Isoline(**LINES, channels="joint"), (2, 20, 33), "CYX", (12.4, 20.37)
    ),
    "isoline of colours": Case(gd.Isoline(**LINES, channels="opponent"), (3, 20, 33), "CYX"),
    "isoline of speckle": Case(
        gd.Isoline(**LINES, criterion="multiplicative"), (20, 33), "YX", None
    ),
    "isoline, chosen": Case(gd.Isoline(**HARD), (40, 45)),
    "isoline of joined channels, chosen": Case(
        gd.Isoline(**HARD, channels="joint", thickness=1), (2, 20, 33), "CYX", (12.4, 20.37)
    ),
    "isoline, searched": Case(gd.Isoline(**HARD | {"method": "pi-ld", "max_length": 9}), (20, 33)),
    **rows(
        gd.Isoline,
        {},
        [
            {},
            {"method": "pi-pd"},
            {"method": "pi-pd", "staircase": 0, "thickness": 1},
            {"staircase": 0},
            {"staircase": 5, "max_length": 5},
            {"staircase": 15},
            {"thickness": 1},
            {"thickness": 3, "staircase": 0, "method": "pi-pd"},
            {"segment_length": 2, "max_length": 2},
            {"segment_length": 2, "max_length": 37},
            {"segment_length": 10, "max_length": 100, "staircase": 21},
        ],
        (40, 45),
    ),
    **rows(
        gd.Isoline,
        LETTER,
        [
            {},
            {"method": "pi-pd", "segment_length": 2, "max_length": 21},
            {"segment_length": 10, "max_length": 20, "staircase": 5},
            {"method": "pi-pd", "thickness": 2, "staircase": 9},
            {"thickness": 3},
            {"method": "pi-ld"},
            {"method": "pi-ld", "segment_length": 10, "max_length": 20, "staircase": 5},
        ],
        (33, 38),
    ),
    **{
        f"isoline, {name}, of {make.__name__}": Case(
            gd.Isoline(**LETTER, method=name), (30, 42), "YX", 5.0, make=make
        )
        for name in ("hybrid", "pi-pd", "pi-ld")
        for make in (blocks, few_levels)
        if (name, make) != ("pi-ld", few_levels)
    },
    **rows(
        gd.Isoline,
        {},
        [{}, {"staircase": 0}, {"choice": "hard"}, {"choice": "hard", "staircase": 0}],
        (40, 45),
        "YX",
        "map",
    ),
    **rows(
        gd.Isoline,
        {"channels": "joint"},
        [
            {},
            {"staircase": 0},
            {"staircase": 0, "thickness": 3, "max_length": 5},
            LETTER,
            {**LETTER, "thickness": 3, "method": "pi-pd"},
            {"choice": "hard", "staircase": 7},
            SEARCHED,
        ],
        (3, 22, 27),
        "CYX",
        COLOURS,
    ),
    **rows(
        gd.Isoline,
        {"channels": "opponent"},
        [
            {},
            {"staircase": 0},
            {"staircase": 5, "max_length": 5, "thickness": 1, "method": "pi-pd"},
            {"choice": "hard", "staircase": 0},
            {"choice": "hard", "staircase": 7, "thickness": 1},
            SEARCHED,
        ],
        (3, 22, 27),
        "CYX",
        COLOURS,
        make=unrounded,
    ),
    **{
        f"isoline of {channels} channels under a map, {choice}": Case(
            gd.Isoline(channels=channels, choice=choice), (3, 22, 27), "CYX", "map", make=unrounded
        )
        for channels in ("joint", "opponent")
        for choice in ("soft", "hard")
    },
    **{
        f"isoline of speckle, {each}": Case(
            gd.Isoline(criterion="multiplicative", looks=4.0, **each),
            (40, 45),
            "YX",
            None,
            make=speckled,
        )
        for each in (
            {},
            {"staircase": 0, "max_length": 5, "thickness": 1},
            {"method": "pi-pd", "thickness": 3},
            LETTER,
            {**LETTER, "thickness": 3, "method": "pi-pd"},
            {"choice": "hard"},
            SEARCHED,
        )
    },
    **{
        f"isoline of channels of speckle, {each}": Case(
            gd.Isoline(criterion="multiplicative", looks=4.0, channels="joint", **each),
            (3, 34, 39),
            "CYX",
            None,
            make=speckled,
        )
        for each in ({}, {"staircase": 0}, {"choice": "hard"})
    },
    **{
        f"isoline of {ny} x {nx} pixels, {each}": Case(gd.Isoline(**each), (ny, nx))
        for ny, nx in ((7, 31), (12, 9))
        for each in ({}, LETTER, {**LETTER, "method": "pi-ld"})
    },
}
SWNLM = {
    "swnlm of an image": Case(gd.SWNLM(**LONELY, widen=2.0), (18, 70)),
    "swnlm of a map": Case(gd.SWNLM(**LONELY, widen=2.0), (20, 37), "YX", "map"),
    **rows(
        gd.SWNLM,
        LONELY,
        [
            {"window": 9},
            {"patch": 5, "window": 5, "alpha": 0.5},
            {"alpha": 0.0, "widen": 2.0},
            {"window": 3, "widen": 4.0},
            {"window": 25, "widen": 0.5},
            {"patch": 7},
        ],
        (9, 35),
    ),
    **rows(gd.SWNLM, LONELY, [{"show": "pixels", "alpha": 0.0, "widen": 2.0}], (18, 70)),
    **{
        f"swnlm of {ny} x {nx} pixels": Case(
            gd.SWNLM(**LONELY | {"window": 9}, widen=2.0), (ny, nx)
        )
        for ny, nx in ((2, 9), (30, 1))
    },
}
CASES = NL_MEANS | PIXELWISE | BM3D | BM4D | VBM3D | ISOLINE | SWNLM
