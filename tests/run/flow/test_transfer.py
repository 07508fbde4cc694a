"""Small integers go to the device and back as they are, and come out as if the host had converted.

python test_transfer.py      the kernels on Oclgrind, with its checks; called by a test below"""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from flows import run_work, work_of
from napari_gpu_denoise.image.levels import Levels
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.program import Session
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.protocol.plan import TilePlan
from napari_gpu_denoise.protocol.settings import setting
from napari_gpu_denoise.protocol.tiles import Reach, Tile
from napari_gpu_denoise.run.denoise import denoise
from napari_gpu_denoise.run.flow.transfer import Transfer
from napari_gpu_denoise.run.flow.work import Queues

INTEGERS = ("uint8", "int8", "uint16", "int16")

SOURCE = """
__kernel void line(__global const float *source, int sny, int snx, int y0, int x0, int ny, int nx,
                   float gain, float shift, __global float *out)
{
    const int x = get_global_id(0), y = get_global_id(1), frame = get_global_id(2);
    const size_t from = ((size_t)frame * sny + y + y0) * snx + x + x0;
    out[((size_t)frame * ny + y) * nx + x] = source[from] * gain + shift;
}
"""


@dataclass(frozen=True)
class Line(Filter):
    """A filter whose result is known to the last bit, for these settings and small integers."""

    name: ClassVar[str] = "line"
    title: ClassVar[str] = "Line"
    summary: ClassVar[str] = "Grey levels along a line"
    smallest: ClassVar[int] = 8
    operations_per_pixel: ClassVar[float] = 2.0
    reach: ClassVar[Reach] = Reach(y=(2, 3), x=(1, 4))

    gain: float = setting(1.5, "Slope")
    shift: float = setting(-20.5, "Level at 0", unit="grey levels")
    joint: str = setting("", "Axes it joins")

    def plan(self, arena: Arena) -> LinePlan:
        return LinePlan(self, arena)


class LinePlan(TilePlan):
    def __init__(self, settings: Line, arena: Arena):
        self.arena = arena
        import pyopencl as cl

        self.numbers = np.float32(settings.gain), np.float32(settings.shift)
        self.kernel = cl.Kernel(cl.Program(arena.session.context, SOURCE).build(), "line")

    def enqueue(self, queue, tile: Tile, source, out, sigma: Any) -> list[tuple[str, Any]]:
        nt, nz, ny, nx = tile.shape
        lengths = (*tile.source_shape[2:], tile.y.margin, tile.x.margin, ny, nx)
        frames = tile.channels * nt * nz
        given = (source, *map(np.int32, lengths), *self.numbers, out)
        return [("line", self.kernel(queue, (nx, ny, frames), None, *given))]


def by_host(array: np.ndarray, settings: Line, dtype) -> tuple[np.ndarray, int]:
    """Return what the host makes of an array, and how many values it clips."""
    values, out = np.empty(array.shape, np.float32), np.empty(array.shape, dtype)
    Levels(0, 1.0).load(array, values)
    values = values * np.float32(settings.gain) + np.float32(settings.shift)
    return out, Levels(0, 1.0).store(values, out)


def filled(*shape: int, dtype="uint8", seed: int = 0) -> np.ndarray:
    """Return all that a type can hold, at random, and its ends."""
    limits = np.iinfo(dtype)
    generator = np.random.default_rng(seed)
    array = generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    array.flat[:2] = limits.min, limits.max
    return array


@pytest.fixture(scope="module", params=["one queue", "three queues"])
def chosen(request, device) -> Session:
    """A session as a CPU has it, and as a GPU has: two tiles in flight, a value a work-item."""
    import pyopencl as cl

    if request.param == "three queues":
        device = dataclasses.replace(device, kind="discrete GPU", float_lanes=1)
    return Session(device, cl.Context([device.handle]))


def run_tiles(image, dtype, settings, chosen, axes="YX", pixels=1000):
    """Run a filter tile by tile; return result, number of values clipped, number of tiles."""
    out = np.full(image.shape, 7, dtype)
    clipped, total = run_work(work_of(image, out, settings, chosen, 1.0, axes), pixels)
    return out, clipped, total


def assert_as_by_host(found, image, settings, dtype):
    out, clipped, _ = found
    expected, expected_clipped = by_host(image, settings, dtype)
    np.testing.assert_array_equal(out, expected, strict=True)
    assert clipped == expected_clipped
    return clipped


@pytest.mark.parametrize("given", [*INTEGERS, "float32"])
def test_integers_come_out_as_by_the_host(chosen, given):
    if given == "float32":
        image, settings = np.random.default_rng(0).normal(0, 400, (61, 53)), Line(1.0, 0.0)
        image = image.astype(np.float32)
    else:
        image, settings = filled(61, 53, dtype=given), Line()
    for to in (*INTEGERS, "float32"):
        found = run_tiles(image, to, settings, chosen)
        assert found[2] > 3
        clipped = assert_as_by_host(found, image, settings, to)
        fits = to == "float32" or (given in ("uint8", "int8", "float32") and to == "int16")
        assert (clipped == 0) == fits
    if given.endswith("16"):
        foreign = image.astype(image.dtype.newbyteorder())
        found = run_tiles(foreign, foreign.dtype, settings, chosen)
        assert_as_by_host(found, image, settings, foreign.dtype)


@pytest.mark.parametrize("shape", [(5, 29), (29, 3), (2, 2)])
def test_what_was_added_by_mirroring_is_neither_written_nor_counted(device, shape):
    image, settings = filled(3, *shape), Line()
    result = denoise(image, settings, 1.0, axes=".YX", dtype="same", device=device)
    assert any("mirroring" in note for note in result.record.notes)
    expected, clipped = by_host(image, settings, "uint8")
    np.testing.assert_array_equal(result.image, expected)
    assert result.record.saturated == clipped > 0


ODD = (
    *(0.5, 1.5, 2.5, -0.5, -0.0, 1e-45, -1e-45, 126.5, 127.5, 254.5, 255.49998, 255.5, 256.0),
    *(-127.5, -128.5, -128.50002, -129.0, 32767.5, 65534.5, 65535.496, 65535.5, -32768.5, -32769.0),
    *(1e30, -1e30, math.inf, -math.inf, 0.49999997, 2.0**31, -(2.0**33)),
)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_every_odd_float_is_rounded_as_by_the_host_and_nan_becomes_zero(chosen, dtype):
    import pyopencl as cl

    odd = np.array(ODD, np.float32)
    values = np.concatenate([odd, np.nextafter(odd, np.float32(0)), [np.nan, 3.0, np.nan]])
    values = values.astype(np.float32)[None]
    work = work_of(values, np.empty(values.shape, dtype), Line(), chosen, levels=Levels(0, 1.0))
    receiver, queues = Transfer(Arena(chosen), work, values.size, values.size), Queues.of(chosen)
    buffer = receiver.result("out")
    launches = [("filter", cl.enqueue_copy(queues.compute, buffer, values))]
    shape, names = values.shape, ("out", "out")
    out, counts, done = receiver.fetch(queues, buffer, names, (1, *shape), shape, 1, launches)
    done.wait()
    (out,) = out
    assert out.dtype == dtype
    number = ~np.isnan(values)
    expected = np.zeros(values.shape[1] - 2, dtype)
    assert receiver.clipped("out", counts)[0] == Levels(0, 1.0).store(values[number], expected) > 10
    np.testing.assert_array_equal(out[number], expected)
    np.testing.assert_array_equal(out[~number], 0)


def simulate() -> None:
    """Convert small images on Oclgrind, as a CPU and as a GPU do; print what differs."""
    import pyopencl as cl

    from opencl.simulate import SESSIONS, simulator, suit_oclgrind

    suit_oclgrind()
    for lanes in (1, 4):
        device = dataclasses.replace(simulator(), float_lanes=lanes, max_group=64)
        SESSIONS.append(Session(device, cl.Context([device.handle])))
        for given, to in (("uint8", "int8"), ("int16", "uint16")):
            image = filled(3, 5, 29, dtype=given)
            assert_as_by_host(
                run_tiles(image, to, Line(), SESSIONS[-1], ".YX", 200), image, Line(), to
            )
            # Rows of which only a part is kept.
            wide = np.pad(image, ((0, 0), (0, 3), (0, 3)), mode="symmetric")
            out = np.empty(image.shape, to)
            run_work(work_of(wide, out, Line(), SESSIONS[-1], 1.0, ".YX"))
            np.testing.assert_array_equal(out, by_host(image, Line(), to)[0])


def test_kernels_are_free_of_faults(simulator):
    from opencl.simulate import CHECKS

    environment = {k: v for k, v in os.environ.items() if not k.startswith("OCLGRIND_")} | CHECKS
    script = Path(__file__).resolve()
    paths = str(script.parents[2]), os.environ.get("PYTHONPATH", "")
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    command = [sys.executable, "-W", "ignore", str(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


if __name__ == "__main__":
    simulate()
