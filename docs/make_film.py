"""Make the film of the README: the live preview in napari.

    python docs/make_film.py                     # needs a display; on a server:
    xvfb-run -a -s "-screen 0 1600x1000x24" python docs/make_film.py

Writes ``docs/images/napari_preview.gif``, of at most 3 MB. Needs what `make_screenshots.py` needs,
and Pillow, which napari brings.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from make_screenshots import IMAGES, open_window, settle, wait_for, zoom
from PIL import Image
from qtpy.QtGui import QImage

WIDTH = 760  # pixels
STEP = 150  # ms for which a frame is shown
PAUSE = 1200
COLOURS = 256
MOST = 3_000_000  # bytes


class Film:
    """Pictures of a widget, and for how long each is shown."""

    def __init__(self, widget):
        self._widget = widget
        self._frames: list[Image.Image] = []
        self._times: list[int] = []

    def take(self, ms: int = STEP) -> None:
        """Add a picture of the widget as it is now."""
        grabbed = self._widget.grab().toImage().convertToFormat(QImage.Format.Format_RGB888)
        shape = grabbed.height(), grabbed.bytesPerLine()
        rows = np.frombuffer(grabbed.constBits(), np.uint8).reshape(shape)
        pixels = rows[:, : 3 * grabbed.width()].reshape(shape[0], -1, 3)
        size = WIDTH, round(WIDTH * shape[0] / grabbed.width())
        self._frames.append(Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS))
        self._times.append(ms)

    def write(self, path: Path) -> None:
        """Write an animated GIF with one palette; only what changes is stored in each frame."""
        together = Image.new("RGB", (self._frames[0].width, sum(f.height for f in self._frames)))
        for number, frame in enumerate(self._frames):
            together.paste(frame, (0, number * frame.height))
        palette = together.quantize(COLOURS, dither=Image.Dither.NONE)
        drawn = [f.quantize(palette=palette, dither=Image.Dither.NONE) for f in self._frames]
        times, rest = self._times, drawn[1:]
        drawn[0].save(path, save_all=True, append_images=rest, duration=times, loop=0)
        if (size := path.stat().st_size) > MOST:
            raise RuntimeError(f"{path.name} has {size} bytes: take fewer frames or colours.")


def dragged(slider, values: Iterable[int], film: Film) -> None:
    """Drag a slider, with a picture at each value."""
    for value in values:
        slider.setValue(value)
        settle(0.1)
        film.take()


def main() -> None:
    """Tick the box, drag the strength, move through time, zoom in."""
    viewer, window, panel = open_window()
    film = Film(window)

    def rest(ms: int = PAUSE) -> None:
        wait_for(lambda: panel.live.settled)
        settle(0.3)
        film.take(ms)

    film.take(PAUSE)
    panel.preview.box.click()
    rest(2 * PAUSE)
    dragged(panel.options.strength.slider, range(-4, -21, -4), film)
    rest()
    dragged(panel.options.strength.slider, range(-16, 21, 4), film)
    rest()
    panel.options.strength.reset()
    rest()
    for frame in (9, 10, 11):
        viewer.dims.set_current_step(0, frame)
        rest(2 * STEP)
    for _ in range(4):
        zoom(viewer, 1.25)
        settle(0.2)
        film.take()
    rest()
    panel.preview.box.click()
    settle(0.5)
    film.take(PAUSE)
    film.write(IMAGES / "napari_preview.gif")
    viewer.close()


if __name__ == "__main__":
    main()
