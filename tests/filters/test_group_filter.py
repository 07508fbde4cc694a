"""One pass of BM3D on a device, group by group, against the slow one in NumPy.

Where a work-group serves one reference, its slab holds what is taken away by one group.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from filters.one_pass import (
    SEARCHED_SIGMA,
    SIGMA,
    Images,
    Plain,
    Run,
    compare,
    lanes,
    settings,
    shared,
    sigma_map,
)
from napari_gpu_denoise.filters.bm3d.groups import STACK_TRANSFORMS, TRANSFORMS
from reference.block_matching import find_matches

HARD_OR_WIENER = pytest.mark.parametrize("wiener", [False, True], ids=["hard", "Wiener"])


@pytest.fixture(scope="module")
def plain(device):
    return Plain.of(device)


@pytest.mark.parametrize("stack", STACK_TRANSFORMS)
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("variant", [lanes(), shared(8)], ids=lambda v: v.kernel)
def test_every_group_is_that_of_the_reference(plain, variant, transform, stack):
    # Each transform, and each stack, meets both ways to shrink.
    odd = TRANSFORMS.index(transform) + STACK_TRANSFORMS.index(stack) + (variant != lanes())
    wiener = odd % 2 == 1
    run = Run(plain, settings(32, transform, stack, wiener), variant, Images.of())
    assert compare(run) == {1, 2, 4, 8, 16, 32}


# Patches of a group, those that an item holds, images that are copied to local memory.
SHARES = [(1, 1, 0), (2, 2, 1), (4, 4, 2), (4, 2, 0), (8, 8, 1), (8, 4, 0), (8, 4, 1), (8, 4, 2)]
SHARES += [(8, 2, 2), (16, 16, 0), (16, 8, 1), (16, 4, 2), (32, 32, 0), (32, 16, 1), (32, 8, 2)]


@pytest.mark.parametrize(("neighbours", "depth", "tile"), SHARES)
def test_however_a_group_is_shared_among_work_items(plain, neighbours, depth, tile):
    # Twelve of them are all transforms in all stacks, with both ways to shrink.
    which = SHARES.index((neighbours, depth, tile))
    how = TRANSFORMS[which % 3], STACK_TRANSFORMS[which // 3 % 2], which % 2 == 1
    run = Run(plain, settings(neighbours, *how), shared(depth, tile), Images.of())
    assert compare(run) == {2**k for k in range(neighbours.bit_length())}


@pytest.mark.parametrize("neighbours", [1, 2, 4, 8, 16])
def test_smaller_groups_of_whole_vectors(plain, neighbours):
    which = neighbours.bit_length()
    wiener = which % 2 == 1
    how = TRANSFORMS[which % 3], STACK_TRANSFORMS[which % 2]
    run = Run(plain, settings(neighbours, *how, wiener), lanes(), Images.of())
    assert compare(run) == {2**k for k in range(neighbours.bit_length())}


@HARD_OR_WIENER
@pytest.mark.parametrize("variant", [lanes(), shared(4), shared(8, 2)], ids=str)
def test_groups_under_a_map_of_sigma(plain, variant, wiener):
    given = settings(16, "bior1.5", "hadamard", wiener)
    run = Run(plain, given, variant, Images.of(2), sigma_map())
    assert compare(run) >= {1, 4, 8, 16}
    assert not np.array_equal(run.out, run.images.noisy)


# Sizes of groups, and those of work-items that hold them, that share noise.
SHARED_NOISE = [(n, lanes()) for n in (1, 2, 8, 32)]
SHARED_NOISE += [(n, shared(d)) for n, d in ((1, 1), (2, 2), (4, 4), (4, 2), (8, 8), (8, 2))]
SHARED_NOISE += [(n, shared(d)) for n, d in ((16, 8), (16, 4), (32, 32), (32, 16), (32, 8))]


@pytest.mark.parametrize(("neighbours", "variant"), SHARED_NOISE, ids=str)
def test_noise_that_overlapping_patches_share(plain, neighbours, variant):
    wiener = SHARED_NOISE.index((neighbours, variant)) % 2 == 1
    transform = TRANSFORMS[neighbours.bit_length() % 3]
    # Matches of all kinds: patches that overlap, and in the wider window some that do not.
    given = settings(neighbours, transform, "haar", wiener, window=21, shared_noise=True)
    run = Run(plain, given, variant, Images.of())
    assert compare(run) >= {1, neighbours}
    if neighbours == 8:
        alone = Run(plain, replace(given, shared_noise=False), variant, Images.of())
        assert not np.array_equal(run.out, alone.out)


@HARD_OR_WIENER
@pytest.mark.parametrize("variant", [lanes(), shared(4, 2)], ids=lambda v: v.kernel)
def test_shared_noise_of_every_transform(plain, variant, wiener):
    for transform in TRANSFORMS:
        given = settings(8, transform, "haar", wiener, shared_noise=True)
        assert compare(Run(plain, given, variant, Images.of(), sigma_map())) >= {1, 4, 8}


@pytest.mark.parametrize(
    ("variant", "wiener"),
    [
        pytest.param(lanes(), False, id="lanes, hard"),
        pytest.param(shared(4), True, id="shared, Wiener"),
        pytest.param(lanes(), True, id="lanes, Wiener", marks=pytest.mark.thorough),
        pytest.param(shared(4), False, id="shared, hard", marks=pytest.mark.thorough),
    ],
)
def test_groups_as_the_compiler_optimises_them(optimised, variant, wiener):
    run = Run(
        optimised, settings(8, "bior1.5", "haar", wiener, shared_noise=True), variant, Images.of(2)
    )
    assert compare(run) == {1, 2, 4, 8}


@pytest.mark.parametrize("variant", [lanes(), shared(4)], ids=lambda v: v.kernel)
def test_groups_that_lose_nothing_or_nearly_all(plain, variant):
    for threshold in (0.5, 10.0):
        run = Run(plain, settings(8, "dct", "hadamard", threshold=threshold), variant, Images.of())
        assert compare(run) == {1, 2, 4, 8}
    run = Run(plain, settings(8, "dct", "hadamard", threshold=0.0), variant, Images.of())
    np.testing.assert_array_equal(run.out, run.images.noisy)


@pytest.mark.parametrize(("window", "neighbours"), [(9, 16), (5, 8), (1, 1), (21, 32)])
def test_matches_are_those_of_the_reference(plain, window, neighbours):
    given = settings(neighbours, window=window)
    run = Run(plain, given, lanes(), Images.of(2))
    for place in run.places():
        frame, _, _, y, x = place
        searched = run.images.searched[frame].astype(float)
        limit = given.similar * SEARCHED_SIGMA**2
        slow = find_matches(searched, y, x, window, neighbours, limit, exact=False)
        assert run.matches(*place) == [(py, px) for py, px, _ in slow]


# What the groups of a frame make together

# The slabs of work-groups; each kernel, too, meets both ways to shrink.
SLABS = [
    (lanes(), {}),
    (lanes(8, 4), {}),
    (lanes(3, 2), {"step": 3}),
    (lanes(8, 4), {"step": 8, "window": 5}),
    (lanes(5, 7), {"step": 1, "window": 3}),
    (lanes(16, 16), {"kaiser": 0.0}),
    (shared(8, 1, 8, 4, 4), {"step": 3}),
    (shared(4, 2, 4, 4, 2), {"step": 8, "window": 5, "kaiser": 6.0}),
    (shared(2, 0, 3, 2, 3), {"step": 1, "window": 3}),
    (shared(4, 0, 8, 4, 4), {"step": 3}),
    (shared(4, 1, 2, 2, 2), {"step": 8}),
]


@pytest.mark.parametrize(("variant", "changes"), SLABS, ids=str)
def test_groups_are_joined_as_in_the_reference(plain, variant, changes):
    wiener = SLABS.index((variant, changes)) % 2 == 1
    given = settings(8, "dct", "hadamard", wiener, **changes)
    run = Run(plain, given, variant, Images.of(2), sigma_map() + np.float32(0.2))
    expected, rounding = run.joined()
    error = np.abs(run.out - expected) - rounding
    # A group with a coefficient that equals the threshold may have another weight.
    assert np.mean(error > 1e-4 * SIGMA) < 0.01
    assert error.max() < 0.01 * SIGMA
