"""Print how fast filters over time are: on the device kernel by kernel, and end to end in a stream.

    python tests/benchmarks/speed_video.py [--shape 540x960] [--frames 100] [--device N]
        [--filters NAME ...] [--stream] [--searches]

Device times are from profiling events, mean over all frames of one run after one that compiles. A
stream is timed from float32 or uint8 frames in ordinary host memory to such frames, its first frame
left out. Frames are the tractor clip of the shared data, played back and forth, with noise of
standard deviation 20; without the data, a synthetic scene.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from unittest.mock import patch

import numpy as np
from cases import pictures  # puts the folder of the tests on the path

import napari_gpu_denoise as gd
from napari_gpu_denoise.filters.search import video_search
from napari_gpu_denoise.filters.search.patch_search import Variant
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.program import session
from napari_gpu_denoise.protocol.plan import FrameNote
from napari_gpu_denoise.protocol.tiles import Span, Tile
from napari_gpu_denoise.run.flow.frame_flow import FrameFlow
from napari_gpu_denoise.run.flow.tile_flow import frames_at_once
from napari_gpu_denoise.run.flow.work import Stages
from scenes import scene

SIGMA = 20.0
SETTINGS = {
    "VBM3D": gd.VBM3D(),
    "VBM3D fast": gd.VBM3D.of(profile="fast"),
    "VBM3D high": gd.VBM3D.of(profile="high"),
    "VBM3D live": gd.VBM3D.of(profile="live"),
    "VBM3D causal": gd.VBM3D(frames_after=0),
    "NL-means video": gd.NLMeans.of(profile="video"),
}


def video(count: int, ny: int, nx: int) -> np.ndarray:
    """Return noisy frames, float32."""
    try:
        clean = np.stack(list(pictures("tractor").values())).astype(np.float32)
    except FileNotFoundError:
        clean = scene(10, 540, 800).astype(np.float32)
    grow = [(0, 0), (0, max(0, ny - clean.shape[1])), (0, max(0, nx - clean.shape[2]))]
    clean = np.pad(clean, grow, mode="symmetric")[:, :ny, :nx]
    there_and_back = [*range(len(clean)), *range(len(clean) - 2, 0, -1)]
    order = [there_and_back[t % len(there_and_back)] for t in range(count)]
    noise = np.random.default_rng(0)
    frames = np.empty((count, ny, nx), np.float32)
    for t, which in enumerate(order):
        frames[t] = clean[which] + noise.normal(0, SIGMA, (ny, nx)).astype(np.float32)
    return frames


def device_times(settings, frames: np.ndarray, device) -> tuple[dict, int, int]:
    """Return ms a frame by launch, bytes of device memory, and how many frames went at once."""
    held = session(device)
    arena = Arena(held)
    tile = Tile(0, *(Span.whole(n) for n in (len(frames), 1, *frames.shape[1:])))
    plan = settings.plan(arena)
    batch = frames_at_once(plan, device, tile, device.memory // 2)

    def read(t: int, host: np.ndarray) -> list[FrameNote]:
        count = min(host.shape[1], len(frames) - t)
        host[0, :count, 0] = frames[t : t + count]
        return [FrameNote(np.array([SIGMA]))] * count

    for _ in range(2):
        flow = FrameFlow(held, arena, Stages(plan), tile, batch, profiling=True)
        for _ in flow.run(read, lambda t, values, clipped: None, stop=len(frames)):
            pass
        flow.close()
    times: dict[str, float] = defaultdict(float)
    for name, event in flow.events:
        times[name] += (event.profile.end - event.profile.start) * 1e-6 / len(frames)
    used = arena.nbytes
    flow.events.clear()
    arena.free()
    return times, used, batch


def streamed(settings, frames: np.ndarray, device) -> float:
    """Return frames a second from host memory to host memory, of one run after another."""
    rate = 0.0
    for _ in range(2):
        results = gd.stream(settings, iter(frames), SIGMA, device=device)
        next(results)
        start = time.perf_counter()
        count = sum(1 for _ in results)
        rate = count / (time.perf_counter() - start)
    return rate


def search_variants() -> dict[str, Variant]:
    """Return search kernels, by what they are called."""
    named = {"patch shared out (4.2.4)": Variant("search_patches", {"GROUP_X": 8, "GROUP_Y": 2})}
    for group in ((16, 8), (16, 4), (8, 8), (8, 4)):
        shape = {"GROUP_X": group[0], "GROUP_Y": group[1], "DIRECTIONS": 2}
        named[f"a direction an item, {group}"] = Variant("search_tracks", shape)
    return named


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="540x960")
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--device", default=None)
    parser.add_argument("--filters", nargs="+", default=list(SETTINGS))
    parser.add_argument("--stream", action="store_true", help="time streams as well")
    parser.add_argument("--searches", action="store_true", help="time every search kernel as well")
    args = parser.parse_args()
    device = gd.choose(args.device)
    ny, nx = (int(n) for n in args.shape.split("x"))
    frames = video(args.frames, ny, nx)
    print(f"{device}, {len(frames)} frames of {nx} x {ny}, float32")
    for name in args.filters:
        times, used, batch = device_times(SETTINGS[name], frames, device)
        moved = ("upload", "download")
        total = sum(ms for step, ms in times.items() if step not in moved)
        steps = ", ".join(f"{step} {ms:.3f}" for step, ms in times.items())
        print(f"{name}: {total:.3f} ms a frame, {used / 2**20:.0f} MiB, {batch} at once ({steps})")
        if args.stream:
            rate = streamed(SETTINGS[name], frames, device)
            small = np.clip(np.rint(frames), 0, 255).astype(np.uint8)
            coarse = streamed(SETTINGS[name], small, device)
            print(f"    stream: {rate:.0f} frames/s, uint8 {coarse:.0f}")
    if args.searches:
        for name in ("VBM3D", "VBM3D papers' search"):
            for kind, variant in search_variants().items():
                with patch.object(video_search, "choose_video_variant", lambda *_, v=variant: v):
                    times, *_ = device_times(SETTINGS[name], frames, device)
                first, second = times["basic search"], times["final search"]
                print(f"{name}, {kind}: searches {first:.3f} + {second:.3f} ms a frame", flush=True)


if __name__ == "__main__":
    main()
