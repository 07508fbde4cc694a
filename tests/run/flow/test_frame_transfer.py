"""Frames of integers on their way to a device and back: converted there, clipped and counted."""

from __future__ import annotations

import numpy as np
import pytest

from frames_over_time import SETTINGS, eventful, executed
from napari_gpu_denoise.opencl.memory import borrow
from napari_gpu_denoise.protocol.plan import FrameNote
from napari_gpu_denoise.protocol.tiles import Span, Tile
from napari_gpu_denoise.run.flow.frame_flow import FrameFlow
from napari_gpu_denoise.run.flow.transfer import FrameTypes
from napari_gpu_denoise.run.flow.work import Stages

NAME = "vbm3d 1+1"


@pytest.mark.parametrize("kept", [(32, 36), (30, 35), (30, 36)], ids=str)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16"])
def test_integers_are_rounded_clipped_and_counted(flowing, dtype, batch, kept):
    limits = np.iinfo(dtype)
    # Half of it is at the upper end, where filtered values lie on either side of it.
    stack = eventful(7, 32, 36) - 120.0
    stack[:, :, 18:] += limits.max
    stack = np.clip(np.rint(stack), limits.min, limits.max).astype(dtype)
    settings = SETTINGS[NAME]

    def flow_of(arena, types):
        tile = Tile(0, *map(Span.whole, (1, 1, 32, 36)))
        return FrameFlow(flowing, arena, Stages(settings.plan(arena)), tile, batch, types=types)

    def read(t, host):
        count = min(host.shape[1], len(stack) - t)
        host[0, :count, 0] = stack[t : t + count]
        return [FrameNote(np.array([20.0]))] * count

    made = {}
    for types in (FrameTypes(), FrameTypes(np.dtype(dtype), np.dtype(dtype), kept)):
        frames, counts = [], []

        def write(t, values, clipped, frames=frames, counts=counts):
            frames.extend(values[0, :, 0].copy())
            counts.extend([None] * values.shape[1] if clipped is None else clipped[0])

        with borrow(flowing) as arena:
            flow = flow_of(arena, types)
            for _ in range(2):  # what was counted in the first run is not counted again
                frames.clear(), counts.clear()
                list(flow.run(read, write))
            flow.close()
        made[types.made.kind == "f"] = np.array(frames), counts
    floats, _ = made[True]
    integers, counts = made[False]
    wanted = np.rint(floats[:, : kept[0], : kept[1]])
    assert integers.dtype == dtype
    np.testing.assert_array_equal(integers, np.clip(wanted, limits.min, limits.max))
    beyond = (wanted < limits.min) | (wanted > limits.max)
    np.testing.assert_array_equal(counts, beyond.sum(axis=(1, 2)))
    assert beyond.any()


def test_integers_in_give_what_floats_in_give(flowing):
    stack, settings = np.rint(eventful(6, 32, 36)), SETTINGS[NAME]
    expected = executed(stack.astype(np.float32), settings, flowing)
    made = executed(stack.astype(np.uint8), settings, flowing)
    np.testing.assert_array_equal(made, np.clip(np.rint(expected), 0, 255))
