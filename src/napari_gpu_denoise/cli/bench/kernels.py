"""Device time of each kernel of a filter."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from napari_gpu_denoise.cli.bench.inputs import SIGMA, shape_for, synthetic
from napari_gpu_denoise.image.axes import arrange
from napari_gpu_denoise.image.levels import Levels
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.memory import borrow, device_errors
from napari_gpu_denoise.opencl.program import session
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.protocol.plan import FrameNote
from napari_gpu_denoise.protocol.tiles import Span, Tile
from napari_gpu_denoise.run.denoise import denoise
from napari_gpu_denoise.run.flow.frame_flow import FrameFlow
from napari_gpu_denoise.run.flow.tile_flow import TileFlow, frames_at_once
from napari_gpu_denoise.run.flow.work import FrameSigma, Stages, Work


@dataclass(frozen=True)
class Timing:
    """Times of one filter on one device: medians over repeats, in seconds."""

    filter: str
    settings: dict
    device: str
    shape: tuple[int, ...]  # of the float32 input
    tiles: int
    kernels: dict[str, float]  # device time of each, summed over tiles
    device_time: float  # of all kernels
    upload: float  # device time
    download: float
    whole_call: float  # wall time of `denoise`, from NumPy array to NumPy array
    memory: int  # held on the device, in bytes
    images_of_memory: float  # the same in units of the input's size


@dataclass(frozen=True)
class Profile:
    """Device time of a run by kernel, medians in seconds, and what it took."""

    kernels: dict[str, float]
    upload: float
    download: float
    tiles: int
    memory: int


def median_time(call: Callable[[], object], repeats: int) -> float:
    """Return the median seconds of some calls; one more comes first, which may compile."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def profiled(
    settings: Filter, image: np.ndarray, axes: str, device: Device, repeats: int
) -> Profile:
    """Run a filter with sigma given, and time each kernel; the first run does not count."""
    chosen, moving = session(device), settings.over_time
    applied, _ = settings.for_array(axes, image.shape).for_pixels(image, axes)
    source, out = (arrange(a, axes, applied.joint) for a in (image, np.empty_like(image)))
    sigma = FrameSigma.of(SIGMA, image.shape, axes, applied.joint)
    work = Work(applied, source, out, Levels.of(image), sigma, chosen)

    def read(t: int, host: np.ndarray) -> list[FrameNote]:
        count = min(host.shape[1], len(image) - t)
        host[0, :count] = image[t : t + count].reshape(count, *host.shape[2:])
        return [FrameNote(np.full(host.shape[2], SIGMA))] * count

    runs = []
    with device_errors(chosen), borrow(chosen) as arena:
        for _ in range(repeats + 1):
            if moving:
                tiles = [Tile(0, *map(Span.whole, source.shape[1:]))]
                stages = Stages(applied.plan(arena))
                batch = frames_at_once(stages.plan, device, tiles[0], device.memory // 2)
                flow = FrameFlow(chosen, arena, stages, tiles[0], batch, profiling=True)
                steps = flow.run(read, lambda t, frames, clipped: None, stop=len(image))
            else:
                flow = TileFlow(work, arena, profiling=True)
                tiles, steps = flow.tiles, flow.run()
            for _ in steps:
                pass
            flow.close()
            sums: dict[str, float] = defaultdict(float)
            for name, event in flow.events:
                sums[name] += (event.profile.end - event.profile.start) * 1e-9
            runs.append(dict(sums))
        arena.trim()
        memory = arena.nbytes
    medians = {name: statistics.median(run[name] for run in runs[1:]) for name in runs[0]}
    upload, download = medians.pop("upload"), medians.pop("download")
    return Profile(medians, upload, download, len(tiles), memory)


def measure(settings: Filter, shape: tuple[int, ...], device: Device, repeats: int = 5) -> Timing:
    """Time a filter on an input of a shape that `shape_for` completes."""
    shape, axes = shape_for(settings, shape)
    image = synthetic(shape)
    found = profiled(settings, image, axes, device, repeats)
    call = partial(denoise, image, settings, SIGMA, axes=axes, device=device)
    return Timing(
        filter=settings.name,
        settings=asdict(settings),
        device=str(device),
        shape=shape,
        tiles=found.tiles,
        kernels=found.kernels,
        device_time=sum(found.kernels.values()),
        upload=found.upload,
        download=found.download,
        whole_call=median_time(call, repeats),
        memory=found.memory,
        images_of_memory=found.memory / image.nbytes,
    )
