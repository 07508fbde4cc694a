"""NL-means on a device, step by step, against the slow one in NumPy."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.nl_means import NLMeans
from napari_gpu_denoise.filters.pixels import Launcher
from napari_gpu_denoise.filters.search.patch_search import (
    PatchSearch,
    SearchSettings,
    Variant,
    fitting_variants,
    offset_table,
)
from napari_gpu_denoise.opencl.memory import borrow
from napari_gpu_denoise.opencl.program import session
from napari_gpu_denoise.protocol.plan import TileSigma
from napari_gpu_denoise.protocol.tiles import Span, Tile
from reference import nl_means as reference
from scenes import noisy

SIGMA = 20.0


def slow(image, settings: NLMeans, sigma: float | np.ndarray = SIGMA) -> np.ndarray:
    return reference.nl_means(image, sigma, **settings.as_dict())


def bound(settings: NLMeans, sigma=SIGMA) -> float:
    """Return how far a pixel may be from the reference, in grey levels.

    The device reads distances from the keys, where the bits of the place in the offset table are
    cut off: a relative error of 2^(bits - 24). For distances of 4 sigma^2, as the matches of a flat
    region have at most, it moves the exponent of a weight by 4 / strength^2 times that, and so a
    mean of values that differ by a few sigma.
    """
    bits = max(1, (settings.offsets - 1).bit_length())
    return 4 * sigma * 4 / settings.strength**2 * 2.0 ** (bits - 24) + 2e-4


def grey(*shape, seed=0) -> np.ndarray:
    """Return a noisy image of whole numbers: sums of squares are exact, in any order."""
    return np.rint(noisy(*shape, sigma=SIGMA, seed=seed)).astype(np.float32)


class Stages:
    """One run over a whole image, with what it leaves in the buffers."""

    def __init__(self, image, settings: NLMeans, device, variant=None):
        import pyopencl as cl

        volume = np.ascontiguousarray(image.reshape((-1, 1, *image.shape[-2:])[-4:]), np.float32)
        chosen = session(device)
        tile = Tile(0, *map(Span.whole, volume.shape))
        flags = cl.mem_flags
        with borrow(chosen) as arena:
            queue = chosen.queue()
            source, out, sigma = (
                cl.Buffer(chosen.context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=array)
                for array in (volume, np.zeros_like(volume), np.full(len(volume), SIGMA, "f4"))
            )
            plan = settings.plan(arena, variant)
            plan = plan._tiles if settings.over_time else plan
            found = plan.search.enqueue(Launcher(arena, queue), tile, source)
            frames, rows, columns = len(volume), found.rows.count, found.columns.count
            self.keys = np.empty((frames, rows, settings.neighbours, columns), np.uint32)
            cl.enqueue_copy(queue, self.keys, found.keys)
            plan.enqueue(queue, tile, source, out, TileSigma(sigma))
            self.estimates = np.empty(
                (frames, rows, columns, settings.patch, settings.patch), np.float32
            )
            cl.enqueue_copy(queue, self.estimates, arena.buffer("estimates", 0))
            self.out = np.empty_like(volume)
            cl.enqueue_copy(queue, self.out, out)
            queue.finish()
        self.volume, self.settings = volume, settings
        ny, nx = volume.shape[-2:]
        self.positions = list(
            product(
                range(frames),
                (0,),
                reference.grid(ny, settings.patch, settings.step),
                reference.grid(nx, settings.patch, settings.step),
            )
        )
        self.offsets = offset_table(
            settings.window, (settings.frames_before, settings.frames_after), settings.slices
        )

    def matches(self, number: int) -> np.ndarray:
        """Return the positions of the matches of one reference patch, as the device found them."""
        frames, rows, _, columns = self.keys.shape
        frame, row, column = np.unravel_index(number, (frames, rows, columns))
        keys = self.keys[frame, row, :, column]
        assert np.all(np.diff(keys.astype(np.int64)) >= 0)
        bits = max(1, (len(self.offsets) - 1).bit_length())
        # What reaches beyond the image has a distance of at least 1e30 or none at all.
        inside = keys[keys < 0x70000000]
        return np.array(self.positions[number]) + self.offsets[inside & (2**bits - 1)]

    def slow_matches(self, number: int) -> np.ndarray:
        return reference.search(
            self.volume.astype(np.float64),
            self.positions[number],
            self.offsets,
            self.settings.patch,
            self.settings.neighbours,
        )


SEARCHES = {
    "patch 8, step 4": NLMeans(window=9),
    "patch 5, step 1": NLMeans(patch=5, step=1, window=7, neighbours=8),
    "patch 8, step 3": NLMeans(patch=8, step=3, window=7),
    "patch 8, step 6": NLMeans(patch=8, step=6, window=13, neighbours=8),
    "patch 6, step 2": NLMeans(patch=6, step=2, window=5, neighbours=5),
    "patch 3, step 3": NLMeans(patch=3, step=3, window=11, neighbours=32),
    "patch 9, step 4": NLMeans(patch=9, step=4, window=7),
    "patch 13, step 1": NLMeans(patch=13, step=1, window=5, neighbours=4),
    "patch 1": NLMeans(patch=1, step=1, window=5, neighbours=3),
    "time": NLMeans(patch=4, step=2, window=5, frames_before=2, frames_after=1),
}


def variants(settings: NLMeans, device) -> list[Variant]:
    wanted = SearchSettings(
        settings.patch,
        settings.step,
        settings.window,
        settings.neighbours,
        (settings.frames_before, settings.frames_after),
        settings.slices,
    )
    plain = Variant("search_plain", {})
    vectors = [
        Variant("search_vectors", sizes | {"SPLIT": settings.step})
        for sizes in (
            {"LANES": 4, "ROWS": 1, "VECTORS": 1},
            {"LANES": 4, "ROWS": 3, "VECTORS": 2},
            {"LANES": 16, "ROWS": 2, "VECTORS": 1},
        )
    ]
    best = {variant.kernel: variant for variant in reversed(fitting_variants(wanted, device))}
    return [plain, *vectors, *best.values()]


def keys_of(image, settings: NLMeans, device, variant, y: Span, x: Span) -> dict:
    """Return the keys of the references of a tile, by their places in the image."""
    import pyopencl as cl

    tile = Tile(0, Span.whole(1), Span.whole(1), y, x)
    wanted = SearchSettings(settings.patch, settings.step, settings.window, settings.neighbours)
    part = np.ascontiguousarray(image[y.reads, x.reads])
    with borrow(session(device)) as arena:
        queue = arena.session.queue()
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        source = cl.Buffer(arena.session.context, flags, hostbuf=part)
        search = PatchSearch(wanted, arena, variant)
        found = search.enqueue(Launcher(arena, queue), tile, source)
        rows, columns = found.rows, found.columns
        keys = np.empty((rows.count, settings.neighbours, columns.count), np.uint32)
        cl.enqueue_copy(queue, keys, found.keys)
        queue.finish()
    places = (
        [
            min(grid.first + k * settings.step, grid.last) + span.source_start
            for k in range(grid.count)
        ]
        for grid, span in ((rows, y), (columns, x))
    )
    ordered = np.moveaxis(keys, 1, 2).reshape(-1, settings.neighbours)
    return dict(zip(product(*places), map(tuple, ordered.tolist()), strict=True))


@pytest.mark.parametrize("name", [name for name, each in SEARCHES.items() if not each.joint])
def test_tiles_find_the_same(device, name):
    """Also where sums are not exact, and depend on their order."""
    settings, image = SEARCHES[name], noisy(61, 64, sigma=SIGMA)
    margin = settings.window // 2 + settings.patch - 1
    y, x = (Span(17, 34, 17 - margin, 34 + margin, n) for n in image.shape)
    for variant in variants(settings, device):
        given = image, settings, device, variant
        whole = keys_of(*given, *map(Span.whole, image.shape))
        part = keys_of(*given, y, x)
        assert part and part == {place: whole[place] for place in part}, variant


@pytest.mark.parametrize("name", SEARCHES)
def test_every_step_is_that_of_the_reference(device, name):
    """Matches by every search, estimates of patches, and what they are joined to."""
    settings = SEARCHES[name]
    image = grey(4, 19, 22) if settings.joint else grey(27, 31)
    tried = variants(settings, device)
    assert len({variant.kernel for variant in tried}) >= 2
    first = Stages(image, settings, device, tried[0])
    for number in range(0, len(first.positions), 1 if len(first.positions) < 100 else 7):
        np.testing.assert_array_equal(first.matches(number), first.slow_matches(number))
    for variant in tried[1:]:
        np.testing.assert_array_equal(
            Stages(image, settings, device, variant).keys, first.keys, err_msg=str(variant)
        )
    stages = Stages(image, settings, device)
    estimates = stages.estimates.reshape(-1, settings.patch, settings.patch)
    volume, h = stages.volume.astype(np.float64), settings.strength * SIGMA
    for number, estimate in enumerate(estimates):
        given = volume, stages.matches(number), settings.patch, SIGMA, h, settings.flat
        expected = reference.estimate(*given)
        np.testing.assert_allclose(estimate, expected, rtol=0, atol=bound(settings))
    estimates = list(estimates.astype(np.float64))
    joined = reference.aggregate(volume.shape, stages.positions, estimates)
    np.testing.assert_allclose(stages.out, joined, rtol=0, atol=1e-4)


@pytest.mark.parametrize("changes", [{}, {"patch": 5, "step": 1, "window": 9}], ids=str)
def test_the_optimised_filter_is_that_of_the_reference(optimised, device, changes):
    compare_whole(device, changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"patch": 8, "step": 3},
        {"patch": 2, "step": 1, "window": 5},
        {"patch": 1, "step": 1, "window": 5},
        {"patch": 16, "step": 5, "window": 5},
        {"window": 1},
        {"neighbours": 64},
        {"window": 3, "neighbours": 64},
        {"strength": 3.0},
        {"flat": 3.0},
    ],
    ids=str,
)
def test_the_whole_filter_is_that_of_the_reference(device, changes):
    compare_whole(device, changes)


def compare_whole(device, changes: dict) -> None:
    """Compare what the filter makes of an image with what the reference does."""
    settings = NLMeans(**{"window": 11, **changes})
    image = grey(35, 42)
    out = gd.denoise(image, settings, SIGMA, device=device).image
    np.testing.assert_allclose(out, slow(image, settings), rtol=0, atol=bound(settings))


@pytest.mark.parametrize(
    ("axes", "changes"),
    [
        ("TYX", {"frames_before": 1}),
        ("TYX", {"frames_after": 2}),
        ("TYX", {"frames_before": 4, "frames_after": 4}),
        ("ZYX", {"slices": 1}),
        ("ZYX", {"slices": 3}),
        ("TZYX", {"frames_before": 1, "frames_after": 1, "slices": 1}),
    ],
    ids=str,
)
def test_windows_over_frames_and_slices(device, axes, changes):
    settings = NLMeans(patch=4, step=2, window=5, **changes)
    shape = {"TYX": (4, 1, 17, 21), "ZYX": (1, 4, 17, 21), "TZYX": (3, 3, 15, 13)}[axes]
    image = grey(*shape)
    out = gd.denoise(image, settings, SIGMA, axes="TZYX", device=device).image
    np.testing.assert_allclose(out, slow(image, settings), rtol=0, atol=bound(settings))


@pytest.mark.parametrize("shape", [(1, 30), (7, 9), (9, 30)])
def test_images_smaller_than_a_patch(device, shape):
    image = grey(*shape)
    out = gd.denoise(image, NLMeans(), SIGMA, device=device).image
    np.testing.assert_allclose(out, slow(image, NLMeans()), rtol=0, atol=bound(NLMeans()))


@pytest.mark.parametrize(
    ("shape", "changes"),
    [
        ((35, 42), {}),
        ((33, 37), {"patch": 5, "step": 1, "window": 9}),
        ((33, 37), {"patch": 7, "step": 3}),
        ((30, 31), {"patch": 1, "step": 1, "window": 5}),
        ((5, 40), {}),
    ],
    ids=str,
)
def test_a_map_of_sigma_is_that_of_the_reference(device, shape, changes):
    settings = NLMeans(**{"window": 11, **changes})
    image = grey(*shape)
    y, x = np.indices(shape)
    # Powers of two: the device has the same sigma, to the last bit, and is flat where this is.
    sigma = np.where((y // 9 + x // 7) % 3 == 0, 0, 2.0 ** ((y // 5 + x // 11) % 4 + 2))
    assert len(np.unique(sigma)) > 1
    out = gd.denoise(image, settings, sigma, device=device).image
    expected = slow(image, settings, sigma)
    np.testing.assert_allclose(out, expected, rtol=0, atol=bound(settings, sigma.max()))
    np.testing.assert_array_equal(out[sigma == 0], image[sigma == 0])


def test_images_that_are_no_whole_numbers(device):
    image = noisy(40, 45)
    out = gd.denoise(image, NLMeans(window=11), SIGMA, device=device).image
    error = np.abs(out - slow(image, NLMeans(window=11)))
    # Rounding may turn which of two all but equal patches comes in last.
    assert np.mean(error > bound(NLMeans(window=11))) < 0.02
    assert error.max() < SIGMA / 4


def test_equal_patches_are_all_found_nearest_first(device):
    """On a periodic image every distance of a whole period is 0; ties go to the nearest."""
    image = np.tile(grey(5, 5), (6, 6))
    # Four of them lie in the window even at a corner.
    settings = NLMeans(patch=4, step=2, window=11, neighbours=4, flat=0.0)
    stages = Stages(image, settings, device)
    for number in (0, 40, len(stages.positions) - 1):
        np.testing.assert_array_equal(stages.matches(number), stages.slow_matches(number))
    np.testing.assert_allclose(stages.out[0, 0], image, atol=1e-4)


def test_flat_regions_become_flat(device):
    image = 100 + np.rint(np.random.default_rng(0).normal(0, 5, (40, 40))).astype(np.float32)
    rough = gd.nl_means(image, 10, device=device, flat=0.0)
    flat = gd.nl_means(image, 10, device=device)
    assert np.std(flat) < np.std(rough)
    # All values of a group are below 1.05 sigma^2: every patch is its mean.
    mean = gd.nl_means(image, 10, device=device, patch=8, step=8, window=1, neighbours=1)
    blocks = image.reshape(5, 8, 5, 8).mean(axis=(1, 3))
    np.testing.assert_allclose(mean, np.kron(blocks, np.ones((8, 8))), rtol=1e-5)


# Settings


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"patch": 4, "step": 5}, "step=5 leaves gaps between patches of width 4"),
        ({"window": 10}, "window=10 must be odd"),
        ({"patch": 8.5}, "patch=8.5 is not a whole number"),
        ({"patch": "8.x"}, "patch='8.x' is not a whole number"),
        ({"patch": True}, "patch=True is not a whole number"),
        ({"window": 101, "frames_before": 8}, "holds 91809 patches, more than 65536"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, sentence):
    with pytest.raises(SettingsError, match=sentence):
        NLMeans(**changes)


def test_the_reach_is_the_farthest_pixel_that_matters(device):
    settings = NLMeans(patch=4, step=1, window=7, neighbours=49, flat=0.0, strength=10.0)
    image = grey(41, 43)
    before = gd.denoise(image, settings, SIGMA, device=device).image
    changed = image.copy()
    changed[20, 21] += 3
    after = gd.denoise(changed, settings, SIGMA, device=device).image
    rows, columns = np.nonzero(after != before)
    reach = max(settings.reach.y)
    assert max(abs(rows - 20)) == reach == max(abs(columns - 21))


def test_the_longest_lists_on_a_wide_image(device):
    # PoCL kept the lists of a whole work-group on a thread's stack, and died of it.
    image = np.random.default_rng(0).normal(100, SIGMA, (200, 700)).astype(np.float32)
    out = gd.nl_means(image, SIGMA, neighbours=64, device=device)
    # Flat patches average 64 * 64 values, many of them shared.
    assert out.std() < SIGMA / 10
