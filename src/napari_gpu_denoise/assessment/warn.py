"""Warnings: what in an image is not as the noise assumed, so that the numbers are doubtful.

A residual is judged against that of its twin alone, whatever it looks like.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from napari_gpu_denoise.assessment.record import ChannelQuality
from napari_gpu_denoise.assessment.strength import SigmaCheck
from napari_gpu_denoise.errors import Note
from napari_gpu_denoise.noise.structure.record import Finding

CLIPPED = 0.01  # share of pixels at an end of the grey levels from which on it matters
VARIANCES = 0.87, 1.1  # of the residual over that of the twin, where sigma may be right
NEIGHBOURS = 0.08  # difference of their correlations from which on noise is correlated


def are_correlated(channels: Sequence[ChannelQuality]) -> bool:
    """Return whether the noise of neighbouring pixels is more correlated than in the model."""
    return any(
        max(a.along_x - b.along_x, a.along_y - b.along_y) > NEIGHBOURS
        for a, b in ((each.residual, each.twin) for each in channels)
    )


def clipped_shares(
    noisy: np.ndarray, twin: np.ndarray, known: np.ndarray, constant: bool
) -> tuple[float, float]:
    """Return the shares of pixels clipped at the dark and at the bright end.

    They have the least or the largest value, and a twin that is not clipped goes beyond. The dark
    end of noise that is not `constant` is where it ends by nature.
    """
    values, fresh = noisy[known], twin[known]
    ends = []
    for end, beyond in ((values.min(), fresh < values.min()), (values.max(), fresh > values.max())):
        share = float(np.mean(values == end))
        ends.append(share if min(share, float(beyond.mean())) >= CLIPPED else 0.0)
    return ends[0] if constant else 0.0, ends[1]


def warnings_of(
    channels: Sequence[ChannelQuality],
    check: SigmaCheck | None,
    structure: Sequence[Finding],
    clipped: Sequence[tuple[float, float]],
    white: bool,
) -> tuple[Note, ...]:
    """Return the warnings; `structure` is what was found of structured noise."""
    found = [_clipped(k, *ends, len(channels)) for k, ends in enumerate(clipped) if any(ends)]
    for each in structure:
        found.append(
            Note(
                f"{each.words()}, which the filter treats as image, at least in part",
                "correct='found' removes it first",
                code="structured",
            )
        )
    if are_correlated(channels):
        text = "the noise of neighbouring pixels is correlated"
        text += ", unlike white noise" if white else " more than in the noise model"
        found.append(
            Note(
                f"{text}: the expected error is far too low",
                "noise='correlated' takes it into account",
                code="assess-correlated",
            )
        )
    elif white and not found:
        found += _strength(channels)
    if check is not None and not check.fits:
        found.append(
            Note(
                f"sigma may be {'low' if check.best > 1 else 'high'}, and then the expected error "
                "is wrong",
                f"measure the noise, or try {check.best:.2g} times this sigma",
                code="assess-check",
                factor=f"{check.best:.2g}",
            )
        )
    return tuple(found)


def _clipped(k: int, dark: float, bright: float, count: int) -> Note:
    ends = [f"{s:.1%} at the {e} end" for s, e in ((dark, "dark"), (bright, "bright")) if s]
    place = f" in channel {k}" if count > 1 else ""
    return Note(
        f"pixels are clipped{place}, {' and '.join(ends)}: there the noise is weaker than assumed, "
        "and the expected error too low"
    )


def _strength(channels: Sequence[ChannelQuality]) -> list[Note]:
    """Return a note where residual and twin differ in variance and nothing else explains it."""
    found = []
    for k, each in enumerate(channels):
        ratio = each.residual.variance / each.twin.variance if each.twin.variance else 1.0
        if VARIANCES[0] <= ratio <= VARIANCES[1]:
            continue
        place = f" in channel {k}" if len(channels) > 1 else ""
        less = "less" if ratio < 1 else "more"
        found.append(
            Note(
                f"the filter removed {less} from the image than from its twin{place} ({ratio:.2f} "
                f"of the variance): sigma is probably too {'high' if ratio < 1 else 'low'}, and "
                "the expected error wrong",
                "measure the noise",
                code="assess-sigma",
            )
        )
    return found
