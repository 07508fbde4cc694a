"""How many pixels the Shapiro-Wilk NL-means averages for each pixel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from napari_gpu_denoise.filters.pixelwise.maps import count_steps
from napari_gpu_denoise.filters.swnlm.filter import SWNLM
from napari_gpu_denoise.run.record import finish
from napari_gpu_denoise.run.request import Run, with_settings


@with_settings(SWNLM, without=("dtype",))
def similar_pixels(
    image: ArrayLike,
    sigma: ArrayLike | None = None,
    *,
    frames: int | slice | None = None,
    progress: Callable[[int, int], None] | None = None,
    cancel: Any = None,
    **given: Any,
) -> np.ndarray:
    """Return how many pixels the Shapiro-Wilk NL-means averages for each pixel of an image.

    Parameters
    ----------
    {image}
    {sigma}
    {noise}
    profile : {"normal", "paper"}, optional
        Settings to start from, as `swnlm` takes it.
    axes : str, optional
        Names of the axes, as `swnlm` takes them.
    {settings}
    frames : int or slice, optional
        Frames along the axis T to return, by default all. The axis T stays.
    {run}
    {fields}

    Returns
    -------
    ndarray of float32
        Of the shape of `image`: the number of similar pixels, and the pixel itself; 0 where the
        image has no noise or is not finite.

    Raises
    ------
    {errors}

    See Also
    --------
    swnlm : The filter. Where this is at most `fewest`, it uses its fallback.
    pixels_averaged : The same of exact NL-means.

    Notes
    -----
    The map shows where the filter finds similar pixels. It is not an error bar: it does not show
    the detail that is lost.

    Examples
    --------
    >>> lonely = similar_pixels(image, sigma=20) == 1                      # doctest: +SKIP
    """
    steps = count_steps(image, Run.of(SWNLM, sigma, given, without=("dtype",)), frames)
    return finish(steps, progress, cancel, lost="no map was")
