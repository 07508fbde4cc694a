"""Images that are cut into tiles, wherever these begin, have the results of the whole."""

from __future__ import annotations

import numpy as np
import pytest

import napari_gpu_denoise as gd
from filters.cases import CUBES, IN_SPACE, LIMITS, SPARSE
from filters.correlated_noise import BLURRED, model, table
from filters.sessions import as_gpu
from flows import filtered, run_work, work_of
from napari_gpu_denoise.noise.models import Correlated
from napari_gpu_denoise.opencl.program import session
from napari_gpu_denoise.protocol.tiles import split
from scenes import noisy, prepared

SMALL = {"window_basic": 3, "window_final": 3, "neighbours_basic": 4, "neighbours_final": 4}
# Of so long a range that they are filtered on two scales.
BLURS = BLURRED, table(0.7, 1.1), table(1.2, 0.9)
MODELS = tuple(Correlated(s, blur) for s, blur in zip((12, 20, 31), BLURS, strict=True))
LETTER = {"choice": "hard", "thickness": 1, "staircase": 0}


def correlated(settings, axes: str, models):
    return prepared(settings, axes, noise=models)


# Settings, most of them those of cases.py, so that few kernels are built for these tests alone;
# shape, axes, and the pixels that a tile reads at most.
CASES = {
    **{
        f"nl_means {each}": (gd.NLMeans(**IN_SPACE | each), (61, 64), "YX", 2000)
        for each in (
            {},
            {"patch": 8, "step": 3},
            {"patch": 1, "step": 1, "window": 5, "neighbours": 16},
            {"patch": 5, "step": 1, "neighbours": 16},
            {"patch": 13, "step": 1, "window": 5, "neighbours": 4},
        )
    },
    "bm3d": (gd.BM3D(**SPARSE, channels="joint"), (2, 97, 33), "CYX", 2 * 70 * 33),
    "bm3d, refined": (gd.BM3D(**SPARSE, refine="once"), (16, 230), "YX", 16 * 210),
    "bm3d on two scales": (
        *(correlated(gd.BM3D(**SPARSE, channels="opponent", scales=2), "CYX", MODELS),),
        *((3, 275, 53), "CYX", 3 * 240 * 53),
    ),
    "pixelwise": (gd.NLMeansPixelwise(patch=5, window=7), (61, 67), "YX", 2000),
    "pixelwise, volume": (
        *(gd.NLMeansPixelwise(patch=3, window=5, slices=1), (9, 34, 40), "ZYX", 5000),
    ),
    "swnlm": (gd.SWNLM(window=7), (61, 64), "YX", 2000),
    "bm4d": (gd.BM4D(**CUBES), (9, 34, 52), "ZYX", 12000),
    "bm4d, refined": (
        gd.BM4D.of(profile="fast", **SMALL, cube="2x4x8", refine="once"),
        (22, 11, 18),
        "ZYX",
        3500,
    ),
    "bm4d of correlated noise": (
        correlated(gd.BM4D(**SMALL, cube="4x4x4"), "ZYX", (model(0.7, 1.0, 0.5),)),
        *((9, 34, 52), "ZYX", 12000),
    ),
    **{
        # Where 3000 pixels are little more than the least that a tile reads, there are 415 tiles.
        f"isoline {each}": (
            *(gd.Isoline(**each), (83, 91), "YX", 2000 if each == {"staircase": 0} else 3000),
        )
        for each in (
            {},
            {"max_length": 15, "segment_length": 3, "staircase": 5},
            {"staircase": 0},
            LETTER,
            {"max_length": 5, "choice": "hard", "thickness": 3},
            {"show": "classes"},
            {"max_length": 6, "segment_length": 3, "staircase": 3, "method": "pi-ld"},
            {"show": "directions"},
            {"show": "directions", "choice": "hard", "max_length": 5},
            {"criterion": "multiplicative", "looks": 0.5, "max_length": 5, "staircase": 3},
        )
    },
}


@pytest.mark.parametrize("name", CASES)
def test_tiles_are_parts_of_the_whole(device, name):
    settings, shape, axes, pixels = CASES[name]
    assert "scales" not in name or settings.scales == 2
    image = noisy(*shape)
    if getattr(settings, "criterion", "") == "multiplicative":
        # Dark pixels count as more than they are, which those around tell.
        image *= np.random.default_rng(1).gamma(0.5, 2, shape).astype(np.float32)
    sigma = 12 + 0.1 * np.arange(shape[-1]).reshape((1,) * (len(shape) - 1) + (-1,))
    if "Z" in axes:
        sigma = sigma * (1 + 0.04 * np.arange(shape[0]))[:, None, None]
    if "C" in axes and settings.noise:
        sigma = np.reshape([12.0, 20.0, 31.0], (3, 1, 1))
    isoline = settings.name == "isoline"  # whose kernels are the same everywhere
    for held in map(
        session, [as_gpu(device, **LIMITS)] if isoline else [device, as_gpu(device, **LIMITS)]
    ):
        whole, out = filtered(image, settings, held, sigma, axes), np.empty_like(image)
        work = work_of(image, out, settings, held, sigma, axes)
        tiles = list(split(work.source.shape, settings.reach, pixels, channels=work.source.joined))
        assert len(tiles) > 1
        starts = {span.start % 2 for each in tiles for span in (each.y, each.x)}
        assert starts == {0, 1} or not isoline  # its blocks are of 2 x 2 pixels
        run_work(work, tiles=tiles)
        np.testing.assert_array_equal(out, whole)
