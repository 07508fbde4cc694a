"""Denoise the images of a camera as they come, and show both in napari.

    python examples/live_camera.py                    a simulated camera
    python examples/live_camera.py MMConfig_demo.cfg  a camera by its Micro-Manager configuration

For the second, ``pip install pymmcore-plus`` and Micro-Manager's drivers with ``mmcore install``,
or that of the demonstration camera with ``pip install mm-test-adapters``. Closing the window stops
the camera.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import closing
from itertools import count

import napari
import numpy as np
from napari.qt.threading import GeneratorWorker, thread_worker
from scipy.ndimage import gaussian_filter
from superqt.utils import qthrottled

import napari_gpu_denoise as gd


def simulated_camera(shape=(256, 256), seconds=0.02) -> Generator[np.ndarray, None, None]:
    """Yield uint16 images of a scene that moves by a pixel per image, with photon noise."""
    random = np.random.default_rng(0)
    scene = gaussian_filter(random.normal(size=shape), 4, mode="wrap")
    scene = 20 * np.exp(scene / scene.std() / 2)
    for number in count():
        yield random.poisson(np.roll(scene, number, axis=1)).astype(np.uint16)
        time.sleep(seconds)


def micro_manager(configuration: str, exposure=20.0) -> Generator[np.ndarray, None, None]:
    """Yield the newest image of a camera of Micro-Manager, until the generator is closed."""
    from pymmcore_plus import CMMCorePlus

    core = CMMCorePlus.instance()
    core.loadSystemConfiguration(configuration)
    core.setExposure(exposure)  # milliseconds
    core.startContinuousSequenceAcquisition()
    try:
        while core.isSequenceRunning():
            if core.getRemainingImageCount():
                image = core.getLastImage()
                core.clearCircularBuffer()  # what came meanwhile is not waited for
                yield image
            else:
                time.sleep(0.001)
    finally:
        core.stopSequenceAcquisition()


def denoise(images: Iterable[np.ndarray]) -> Generator[tuple, None, None]:
    """Yield each image, the same denoised, and the frames per second of the last second."""
    newest, times = None, deque([time.perf_counter()])

    def watched():
        nonlocal newest
        for image in images:
            newest = image
            yield image

    # The noise is measured in the first image: give sigma= or noise= if that one is not typical.
    with closing(gd.stream(gd.VBM3D.of(profile="live"), watched(), live=True)) as results:
        for result in results:
            times.append(time.perf_counter())
            while times[-1] - times[0] > 1 and len(times) > 2:
                times.popleft()
            yield newest, result, (len(times) - 1) / (times[-1] - times[0])


def show(viewer: napari.Viewer, frames: Generator[tuple, None, None]) -> GeneratorWorker:
    """Show what `denoise` yields in two layers; return the worker, whose ``quit()`` stops it."""

    def draw(shown: tuple) -> None:
        if worker.abort_requested:
            return  # the window is closed
        image, result, rate = shown
        viewer.title = f"{rate:.0f} frames/s"
        for name, pixels, left in ("camera", image, 0), ("denoised", result, image.shape[1]):
            if name in viewer.layers:
                viewer.layers[name].data = pixels
            else:
                viewer.add_image(pixels, name=name, translate=(0, left))
                viewer.reset_view()

    @thread_worker
    def run():
        yield from frames

    worker = run()
    # Each image is denoised; as many are drawn as napari can.
    worker.yielded.connect(qthrottled(draw, timeout=30))
    worker.start()
    return worker


def main(arguments: list[str]) -> None:
    """Run from the command line."""
    camera = micro_manager(*arguments) if arguments else simulated_camera()
    viewer = napari.Viewer()
    with closing(camera), closing(denoise(camera)) as frames:
        worker = show(viewer, frames)
        try:
            napari.run()  # returns when the window is closed
        finally:
            worker.quit()
            worker.await_workers()


if __name__ == "__main__":
    main(sys.argv[1:])
