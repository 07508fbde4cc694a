"""Images as clips of VapourSynth, whose plugins are peers; never a dependency."""

from __future__ import annotations

import numpy as np


def clip_of(images: np.ndarray, length: int, colours: bool = False):
    """Return a clip of grey frames (t, y, x), or of one frame (channels, y, x), shown in turn.

    Grey levels of 0 to 255 become 0 to 1.
    """
    import vapoursynth as vs

    ny, nx = images.shape[-2:]
    colour_family = vs.RGBS if colours else vs.GRAYS
    blank = vs.core.std.BlankClip(
        width=nx, height=ny, format=colour_family, length=length, keep=True
    )
    frames = []
    for planes in [images] if colours else images[:, np.newaxis]:
        frame = blank.get_frame(0).copy()
        for number, plane in enumerate(planes):
            np.asarray(frame[number])[:] = plane / 255
        frames.append(frame)
    return vs.core.std.ModifyFrame(blank, blank, lambda n, f: frames[n % len(frames)])
