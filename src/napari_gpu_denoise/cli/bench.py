"""Time filters on a device, on synthetic input: ``gpu-denoise bench``."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, fields

import numpy as np

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.image.axes import arrange
from napari_gpu_denoise.image.levels import Levels
from napari_gpu_denoise.opencl.device import Device, choose
from napari_gpu_denoise.opencl.memory import borrow, device_errors
from napari_gpu_denoise.opencl.program import session
from napari_gpu_denoise.run.denoise import denoise
from napari_gpu_denoise.run.filter import Filter
from napari_gpu_denoise.run.frame_flow import FrameFlow
from napari_gpu_denoise.run.frame_notes import FrameNote
from napari_gpu_denoise.run.frame_sigma import FrameSigma
from napari_gpu_denoise.run.tile_flow import TileFlow
from napari_gpu_denoise.run.tile_sizes import frames_at_once
from napari_gpu_denoise.run.tiles import Span, Tile
from napari_gpu_denoise.run.work import Stages, Work

SIGMA = 20.0


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


def synthetic(shape: tuple[int, ...], sigma: float = SIGMA, seed: int = 0) -> np.ndarray:
    """Return a noisy test image: smooth shading, edges and texture, levels 0 to 255, float32."""
    ny, nx = shape[-2:]
    y, x = np.mgrid[:ny, :nx].astype(np.float32)
    clean = 110 + 50 * np.sin(x / 97) * np.cos(y / 71)
    clean += 40 * (((x // 64) + (y // 48)) % 2)
    clean += 15 * np.sin(x * 0.7 + y * 0.3) * (np.sin(x / 200) > 0)
    noise = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    return (clean + sigma * noise).astype(np.float32)


def measure(settings: Filter, shape: tuple[int, ...], device: Device, repeats: int = 5) -> Timing:
    """Time a filter on an input of shape (y, x) or (planes, y, x); the first run does not count.

    A filter over time takes planes as frames, one of volumes as slices; both make 16 of (y, x). A
    filter of volumes over time takes (t, z, y, x), and makes four volumes of one. One of joint
    channels takes them as channels, and makes three.
    """
    chosen, moving = session(device), settings.over_time
    axes = "T" * moving + "Z" * ("Z" in settings.joint)
    axes = axes or "C" * ("C" in settings.joint)
    while len(shape) < len(axes) + 2:
        shape = (3 if axes == "C" else 4 if len(shape) == 3 else 16, *shape)
    image = synthetic(shape)
    names = "." * (len(shape) - 2 - len(axes)) + axes + "YX"
    applied, _ = settings.for_array(names, shape).for_pixels(image, names)
    source, out = (arrange(a, names, applied.joint) for a in (image, np.empty_like(image)))
    sigma = FrameSigma.of(SIGMA, shape, names, applied.joint)
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
    calls = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        denoise(image, settings, SIGMA, axes=names, device=device)
        calls.append(time.perf_counter() - start)
    medians = {name: statistics.median(run[name] for run in runs[1:]) for name in runs[0]}
    upload, download = medians.pop("upload"), medians.pop("download")
    return Timing(
        filter=settings.name,
        settings=asdict(settings),
        device=str(device),
        shape=tuple(shape),
        tiles=len(tiles),
        kernels=medians,
        device_time=sum(medians.values()),
        upload=upload,
        download=download,
        whole_call=statistics.median(calls[1:]),
        memory=memory,
        images_of_memory=memory / image.nbytes,
    )


def table(timing: Timing) -> str:
    """Return a timing as text."""
    megapixels = math.prod(timing.shape) / 1e6
    changed = ", ".join(f"{k}={v}" for k, v in timing.settings.items())
    lines = [
        f"{timing.filter} ({changed})",
        f"on {timing.device}",
        f"{'x'.join(map(str, timing.shape))} float32, {megapixels:.2f} megapixels, "
        f"{timing.tiles} tile{'s' * (timing.tiles > 1)}",
    ]
    rows = [
        *((f"  {name}", value) for name, value in timing.kernels.items()),
        ("device time", timing.device_time),
        ("upload", timing.upload),
        ("download", timing.download),
        ("whole call", timing.whole_call),
    ]
    lines += [f"{name:<14}{1e3 * value:10.3f} ms" for name, value in rows]
    lines.append(
        f"{'device memory':<14}{timing.memory / 2**20:10.1f} MiB "
        f"({timing.images_of_memory:.1f} images)"
    )
    return "\n".join(lines)


def add_arguments(parser) -> None:
    """Add the options of ``gpu-denoise bench`` to a parser."""
    names = [cls.name.replace("_", "-") for cls in FILTERS]
    parser.add_argument(
        "--filter", choices=names, action="append", help="filter to time (default: all)"
    )
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="change a setting of the filter, such as patch=5; can be repeated",
    )
    parser.add_argument(
        "--shape",
        default="512x512",
        help="shape of the input, YxX, PLANESxYxX or TxZxYxX (default 512x512)",
    )
    parser.add_argument("--device", default=None, help="number or name of the device")
    parser.add_argument("--repeats", type=int, default=5, help="number of runs for the median")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args) -> int:
    """Run ``gpu-denoise bench``."""
    device = choose(args.device)
    try:
        shape = tuple(int(n) for n in args.shape.lower().split("x"))
    except ValueError:
        shape = ()
    if len(shape) not in (2, 3, 4) or min(shape, default=0) < 1 or args.repeats < 1:
        raise SettingsError(
            f"--shape {args.shape} --repeats {args.repeats} cannot be timed: give a shape such as "
            "512x512 or 20x512x512, and at least one repeat."
        )
    changes = dict(item.split("=", 1) if "=" in item else (item, "") for item in args.set)
    timings = []
    for cls in FILTERS:
        if args.filter is None or cls.name.replace("_", "-") in args.filter:
            timings.append(measure(_settings(cls, changes), shape, device, args.repeats))
            if not args.json:
                print(table(timings[-1]), end="\n\n")
    if args.json:
        print(json.dumps([asdict(timing) for timing in timings], indent=2))
    return 0


def _settings(cls, changes: dict[str, str]):
    """Return settings with changes given as text."""
    kinds = {spec.name: type(spec.default) for spec in fields(cls)}
    typed = {}
    for name, text in changes.items():
        kind = kinds.get(name, str)
        try:
            typed[name] = text.lower() in ("1", "true", "yes") if kind is bool else kind(text)
        except ValueError as error:
            raise SettingsError(f"{name}={text} is not {kind.__name__}: give a number.") from error
    return cls.of(**typed)
