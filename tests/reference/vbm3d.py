"""VBM3D, slow and plain: what the kernels have to compute, in float64.

K. Dabov, A. Foi, K. Egiazarian, "Video denoising by sparse 3D transform-domain collaborative
filtering", 2007; A. Davy, T. Ehret, "GPU acceleration of NL-means, BM3D and VBM3D", 2020, sections
2.3 and 4.2. It is BM3D with another search, see `video_matching`: patches are followed from frame
to frame. What the papers leave open is marked "convention".

Convention: the grey levels of frame t mean in frame r what the link of the two says, so that the
brightness of whole frames may change. Frames that are constant or without noise, "holes", are left
alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from reference.block_matching import reference_positions
from reference.block_motion import block_motions
from reference.bm3d import mix, mixed_channels
from reference.groups import MIDDLE, Pass, extend, one_pass
from reference.video_links import Links, unlinked
from reference.video_matching import find_matches


def passes_of(settings) -> list[Pass]:
    """Return the passes of settings with the attributes of ``filters.vbm3d.VBM3D``.

    Between its two, one filters causal videos from patch to patch.
    """
    both = ("frames_before", "frames_after", "threshold", "wiener_sigma", "shared_noise")
    chosen = {name: getattr(settings, name) for name in both}
    chosen |= {"window": 3, "window_next": 3, "per_frame": 2, "kaiser": 1.0}
    chosen["window_nearest"] = settings.window_nearest or Pass.window_nearest
    basic, final = (
        Pass(
            **{**chosen, "step": settings.steps[stage], "common": common},
            neighbours=getattr(settings, f"neighbours_{stage}"),
            **{"transform": transform, "similar": similar, "still": still},
        )
        for stage, common, transform, similar, still in (
            ("basic", settings.threshold_common, "bior1.5", 5.0, 0.12),
            ("final", settings.wiener_common, "dct", 2.0, 0.02),
        )
    )
    if not settings.frames_before or settings.frames_after:
        return [basic, final]
    between = {"per_frame": 1, "neighbours": 4, "step": 2, "window_next": 5, "common": None}
    return [basic, replace(final, kalman=True, shared_noise=False, **between), final]


def vbm3d(
    video: np.ndarray,
    sigma,
    settings,
    *,
    links: Links = unlinked,
    tables: Sequence = (),
    variation: np.ndarray | float = 1.0,
) -> np.ndarray:
    """Denoise a video (t, y, x), or channels (c, t, y, x), of noise with deviation `sigma`.

    Parameters
    ----------
    video : array
    sigma : float, or one for each frame; of several channels one of these for each
        In the grey levels of that frame.
    settings : object with the attributes of ``filters.vbm3d.VBM3D``
        The `channels` of several are "joint" or "opponent".
    links : callable, optional
        ``links(r, t)`` is the `Link` from the grey levels of frame t to those of frame r; by
        default all frames are alike.
    tables : sequence of tuple, (5, 5), optional
        Autocorrelation of the noise of each channel in a frame; by default it is white. Different
        frames share no noise.
    variation : array (y, x), optional
        What `sigma` is multiplied by, at most 1. Convention: it is less in the limit of how unlike
        patches may be, not in what decides which are most alike.

    Returns
    -------
    ndarray of float64, of the shape of `video`
    """
    planes = np.asarray(video, np.float64)
    if planes.ndim == 3:
        return vbm3d(
            planes[None], [sigma], settings, links=links, tables=tables, variation=variation
        )[0]
    _, nt, ny, nx = planes.shape
    there = extend(np.broadcast_to(variation, (ny, nx)))
    levels = np.array([np.broadcast_to(np.ravel(each), nt) for each in sigma], np.float64)
    mode = settings.channels if len(planes) > 1 else "alone"
    given = mixed_channels(extend(planes), levels[..., None, None], tables, mode)
    planes, levels, weights, spectra, _, back = given
    sigmas = levels * there
    noise = np.sqrt(weights**2 @ levels[..., 0, 0] ** 2)
    holes = [t for t in range(nt) if noise[t] == 0 or not np.ptp(planes[:, t], axis=(1, 2)).any()]
    search, result, motions = np.tensordot(weights, planes, axes=1), None, {}
    passes = passes_of(settings)
    if settings.frames_before or settings.frames_after:
        motions = block_motions(search, passes[0].window_nearest, noise, links, holes)
    for one in passes:
        across = (reference_positions(length, one.step) for length in search.shape[1:])
        found = []
        for t, y, x in product((t for t in range(nt) if t not in holes), *across):
            near = find_matches(search, t, y, x, one, noise, links, holes, motions)
            limit = one.similar * (noise[t] * there[y + MIDDLE, x + MIDDLE]) ** 2
            found.append([m for m in near if m[3] <= limit or m[:3] == (t, y, x)])
        result = one_pass(planes, sigmas, one, found, result, links, spectra)
        search = np.tensordot(weights, result, axes=1)
    return mix(back, result)[..., :ny, :nx]
