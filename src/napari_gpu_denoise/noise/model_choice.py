"""Which model an image calls for. In doubt it is the plainest: additive Gaussian noise."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from napari_gpu_denoise.noise.rician import RayleighBackground
from napari_gpu_denoise.noise.variance_laws import VarianceLaws

GROWTH = 1.5  # of the variance over the levels of brightness, that matters
CLEARLY = 16.0  # squared standard errors by which a law must be better than a constant
AS_WELL = 5.0  # the same, by which the square may be worse than the line, which has one more number
FITS = 3.0  # squared standard errors a level, above which no law fits
SPREAD = 2.5  # of brightness, below which a line and a square are the same
BACKGROUND = 0.05  # share of an image that holds noise alone, to speak of
DEVIATION = 0.012  # from the distribution of such noise, and more for few values
DEVIATION_ERROR = 1.0  # of one value
MAGNITUDES = 4.0  # growth of the variance that magnitudes, whose largest is 2.33, never show


class Choice(NamedTuple):
    """Name of a model, and why it is that one."""

    name: str
    reason: str


def choose_model(
    laws: VarianceLaws | None, background: RayleighBackground | None, still: bool | None
) -> Choice:
    """Choose the model of one channel.

    Parameters
    ----------
    laws : VarianceLaws or None
        How the variance goes with brightness; None where that is not known.
    background : RayleighBackground or None
        What looks like a background without signal; None where nothing does.
    still : bool or None
        Whether differences of frames that stand still show noise that grows with brightness; None
        where there are no such frames.

    Returns
    -------
    Choice
    """
    if laws is not None and _is_square(laws):
        return Choice("speckle", f"the variance is as the square of the mean {_over(laws)}")
    photons = laws is not None and _is_line(laws) and laws.growth > MAGNITUDES
    if background is not None and background.share >= BACKGROUND and not photons:
        limit = DEVIATION + DEVIATION_ERROR / math.sqrt(background.values)
        if background.deviation <= limit:
            return Choice(
                "rician",
                f"{background.share:.0%} of the image has the distribution that magnitudes have "
                "where there is no signal",
            )
    if still:
        return Choice(
            "poisson-gaussian",
            "differences of frames that stand still have a variance that grows with brightness",
        )
    if laws is None:
        return Choice("gaussian", "there are too few levels of brightness to tell other noise by")
    if _is_line(laws) and still is None:
        return Choice("poisson-gaussian", f"the variance grows in a line {_over(laws)}")
    least = min(laws.line, laws.square)
    if laws.constant > FITS * laws.levels and laws.constant > least + CLEARLY:
        return Choice(
            "gaussian", "the variance follows no law with brightness, as where texture hides it"
        )
    return Choice("gaussian", "the variance does not clearly grow with brightness")


def _is_square(laws: VarianceLaws) -> bool:
    return (
        laws.spread >= SPREAD
        and laws.square <= FITS * laws.levels
        and laws.square + CLEARLY <= laws.constant
        and laws.square <= laws.line + AS_WELL
    )


def _is_line(laws: VarianceLaws) -> bool:
    return (
        laws.growth >= GROWTH
        and laws.line <= FITS * laws.levels
        and laws.line + CLEARLY <= laws.constant
    )


def _over(laws: VarianceLaws) -> str:
    used = np.array(laws.curve.used, bool)
    low, high = np.array(laws.curve.mean)[used][[0, -1]]
    variances = np.array(laws.curve.variance)[used][[0, -1]]
    return (
        f"from {variances[0]:.3g} at a grey level of {low:.4g} to {variances[1]:.3g} at {high:.4g}"
    )
