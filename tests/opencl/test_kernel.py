"""Work-items of a launch, and their groups."""

from __future__ import annotations

import dataclasses

import pytest

from napari_gpu_denoise.opencl.kernel import pixel_grid, value_grid, values_per_item


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("count", [1, 127, 128, 4096, 4097, 1_000_003])
def test_work_items_cover_all_values_and_no_more_than_a_group_besides(device, lanes, count):
    chosen = dataclasses.replace(device, float_lanes=lanes, max_group=256)
    (items,), (group,) = value_grid(count, chosen)
    each = values_per_item(chosen)
    assert items % group == 0
    assert 0 <= items * each - count < group * each


def test_groups_are_no_larger_than_a_device_can_have(device):
    small = dataclasses.replace(device, float_lanes=1, max_group=64)
    assert value_grid(100, small) == ((128,), (64,))
    assert pixel_grid(small, 33, 9, 5) == ((64, 10, 5), (32, 2, 1))
    single = dataclasses.replace(device, max_group=1)
    assert pixel_grid(single, 33, 9, 5) == ((33, 9, 5), (1, 1, 1))


def test_pixels_are_covered_by_whole_groups(device):
    large = dataclasses.replace(device, max_group=1024)
    assert pixel_grid(large, 33, 9, 5) == ((64, 16, 5), (32, 8, 1))
    assert pixel_grid(large, 32, 8, 1) == ((32, 8, 1), (32, 8, 1))
