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
    Run,
    compare,
    lanes,
    settings,
    shared,
    sigma_map,
)
from napari_gpu_denoise.filters.group_filter import STACK_TRANSFORMS, TRANSFORMS
from napari_gpu_denoise.opencl import program
from reference.block_matching import find_matches

HARD_OR_WIENER = pytest.mark.parametrize("wiener", [False, True], ids=["hard", "Wiener"])


class Plain(program.Session):
    """Programs that the compiler does not optimise: each of hundreds would take it seconds."""

    def _build(self, *given):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(program, "_OPTIONS", (*program._OPTIONS, "-cl-opt-disable"))
            return super()._build(*given)


@pytest.fixture(scope="module")
def plain(device):
    import pyopencl as cl

    return Plain(device, cl.Context([device.handle]))


@pytest.fixture(scope="module")
def optimised(device):
    return program.session(device)


@HARD_OR_WIENER
@pytest.mark.parametrize("stack", STACK_TRANSFORMS)
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("variant", [lanes(), shared(8)], ids=lambda v: v.kernel)
def test_every_group_is_that_of_the_reference(plain, variant, transform, stack, wiener):
    run = Run(plain, settings(32, transform, stack, wiener), variant, Images.of())
    assert compare(run) == {1, 2, 4, 8, 16, 32}


# Patches of a group, those that an item holds, images that are copied to local memory.
SHARES = [(1, 1, 0), (2, 2, 1), (4, 4, 2), (4, 2, 0), (8, 8, 1), (8, 4, 0), (8, 4, 1), (8, 4, 2)]
SHARES += [(8, 2, 2), (16, 16, 0), (16, 8, 1), (16, 4, 2), (32, 32, 0), (32, 16, 1), (32, 8, 2)]


@HARD_OR_WIENER
@pytest.mark.parametrize(("neighbours", "depth", "tile"), SHARES)
def test_however_a_group_is_shared_among_work_items(plain, neighbours, depth, tile, wiener):
    which = neighbours.bit_length() + depth.bit_length() + tile
    how = TRANSFORMS[which % 4], STACK_TRANSFORMS[which % 3]
    run = Run(plain, settings(neighbours, *how, wiener), shared(depth, tile), Images.of())
    assert compare(run) == {2**k for k in range(neighbours.bit_length())}


@HARD_OR_WIENER
@pytest.mark.parametrize("neighbours", [1, 2, 4, 8, 16])
def test_smaller_groups_of_whole_vectors(plain, neighbours, wiener):
    which = neighbours.bit_length() + wiener
    how = TRANSFORMS[which % 4], STACK_TRANSFORMS[which % 3]
    run = Run(plain, settings(neighbours, *how, wiener), lanes(), Images.of())
    assert compare(run) == {2**k for k in range(neighbours.bit_length())}


@HARD_OR_WIENER
@pytest.mark.parametrize("variant", [lanes(), shared(4), shared(8, 2)], ids=str)
def test_groups_under_a_map_of_sigma(plain, variant, wiener):
    given = settings(16, "bior1.5", "hadamard", wiener)
    run = Run(plain, given, variant, Images.of(2), sigma_map())
    assert compare(run) >= {1, 4, 8, 16}
    assert not np.array_equal(run.out, run.images.noisy)


@HARD_OR_WIENER
@pytest.mark.parametrize("variant", [lanes(), shared(4)], ids=lambda v: v.kernel)
def test_groups_as_the_compiler_optimises_them(optimised, variant, wiener):
    run = Run(optimised, settings(8, "bior1.5", "haar", wiener), variant, Images.of(2))
    assert compare(run) == {1, 2, 4, 8}


@pytest.mark.parametrize("threshold", [0.0, 0.5, 10.0])
@pytest.mark.parametrize("variant", [lanes(), shared(4)], ids=lambda v: v.kernel)
def test_groups_that_lose_nothing_or_nearly_all(plain, variant, threshold):
    run = Run(plain, settings(8, "dct", "dct", threshold=threshold), variant, Images.of())
    compare(run)
    assert np.array_equal(run.out, run.images.noisy) == (threshold == 0)


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


@pytest.mark.parametrize("wiener", [False, True], ids=["hard", "Wiener"])
@pytest.mark.parametrize(
    ("variant", "changes"),
    [
        (lanes(), {}),
        (lanes(8, 4), {}),
        (lanes(3, 2), {"step": 3}),
        (lanes(8, 4), {"step": 8, "window": 5}),
        (lanes(5, 7), {"step": 1, "window": 3}),
        (lanes(16, 16), {"kaiser": 0.0}),
        (shared(8, 1, 8, 4, 4), {"step": 3}),
        (shared(4, 2, 4, 4, 2), {"step": 8, "window": 5, "kaiser": 6.0}),
        (shared(2, 0, 3, 2, 3), {"step": 1, "window": 3}),
        (shared(4, 0, 8, 4, 4), {"step": 3, "reproducible": False}),
        (shared(4, 1, 2, 2, 2), {"step": 8, "reproducible": False}),
    ],
    ids=str,
)
def test_groups_are_joined_as_in_the_reference(plain, variant, changes, wiener):
    given = settings(8, "dct", "hadamard", wiener, **changes)
    run = Run(plain, given, variant, Images.of(2), sigma_map() + np.float32(0.2))
    expected, rounding = run.joined()
    error = np.abs(run.out - expected) - rounding
    # A group with a coefficient that equals the threshold may have another weight.
    assert np.mean(error > 1e-4 * SIGMA) < 0.01
    assert error.max() < 0.01 * SIGMA


def same(runs: list[Run]) -> bool:
    """Whether runs left the same in all buffers, to the last bit."""
    left = [(run.weights.tobytes(), run.slabs.tobytes(), run.out.tobytes()) for run in runs]
    return len(set(left)) == 1


def test_teams_and_copies_in_local_memory_change_nothing(optimised):
    given, images = settings(4, "bior1.5", "hadamard", wiener=True), Images.of()
    variants = shared(4, 0, 4, 2, 4), shared(4, 1, 4, 2, 1), shared(4, 2, 4, 2, 8)
    assert same([Run(optimised, given, variant, images) for variant in variants])


def test_how_many_patches_an_item_holds_changes_nothing(plain):
    # A Wiener filter may round its weight another way: its sum has another order.
    given, images = settings(16, "bior1.5", "hadamard"), Images.of()
    variants = [shared(depth, 1, 4, 2, 2) for depth in (16, 8, 4)]
    assert same([Run(plain, given, variant, images) for variant in variants])


@HARD_OR_WIENER
def test_other_ways_to_add_up_agree_but_for_rounding(plain, wiener):
    given, images = settings(8, "dct", "haar", wiener, step=3), Images.of(2)
    first = Run(plain, given, shared(8, 0, 4, 2, 4), images)
    _, rounding = first.joined()
    floats = Run(plain, replace(given, reproducible=False), shared(8, 0, 4, 2, 4), images)
    np.testing.assert_array_equal(floats.weights, first.weights)
    finer = Run(plain, given, shared(8), images)
    vectors = Run(plain, given, lanes(4, 2), images)
    for other in (floats, finer, vectors):
        assert np.all(np.abs(other.out - first.out) <= 2 * rounding + 1e-4 * SIGMA)


def test_a_pass_repeats_itself(plain):
    given, images = settings(8, "dct", "haar", step=3), Images.of(2)
    for variant in (lanes(8, 4), shared(4, 1, 4, 2, 4)):
        assert same([Run(plain, given, variant, images) for _ in range(3)])
