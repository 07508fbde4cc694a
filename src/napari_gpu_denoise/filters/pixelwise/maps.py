"""How many pixels pixelwise NL-means averages for each pixel."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from napari_gpu_denoise.filters.pixelwise.filter import NLMeansPixelwise
from napari_gpu_denoise.run.denoise import shown_maps
from napari_gpu_denoise.run.record import Progress, finish
from napari_gpu_denoise.run.request import Run, with_settings


@with_settings(NLMeansPixelwise, without=("dtype",))
def pixels_averaged(
    image: ArrayLike,
    sigma: ArrayLike | None = None,
    *,
    frames: int | slice | None = None,
    progress: Callable[[int, int], None] | None = None,
    cancel: Any = None,
    **given: Any,
) -> np.ndarray:
    """Return how many pixels pixelwise NL-means averages for each pixel of an image.

    Parameters
    ----------
    {image}
    {sigma}
    {noise}
    profile : {"exact", "conventional", "goossens", "volume"}, optional
        Settings to start from, as `nl_means_pixelwise` takes it.
    axes : str, optional
        Names of the axes, as `nl_means_pixelwise` takes them.
    {settings}
    frames : int or slice, optional
        Frames along the axis T to return, by default all. The axis T stays.
    {run}
    {fields}

    Returns
    -------
    ndarray of float32
        Of the shape of `image`, without the channel axis where channels share their weights:
        ``(sum of weights)**2 / (sum of squared weights)``, from 1 to the pixels of the window; 0
        where the image has no noise or is not finite.

    Raises
    ------
    {errors}

    See Also
    --------
    nl_means_pixelwise : The filter.

    Notes
    -----
    The map shows where the filter finds similar pixels. It is not an error bar: sigma divided by
    its square root was 0.6 of the true standard deviation of the result, and the bias of the
    filter, which it does not include, exceeds both.

    Examples
    --------
    >>> count = pixels_averaged(image, sigma=20)                           # doctest: +SKIP
    """
    steps = count_steps(image, Run.of(NLMeansPixelwise, sigma, given, without=("dtype",)), frames)
    return finish(steps, progress, cancel, lost="no map was")


def count_steps(
    image: Any, run: Run, frames: int | slice | None = None, slices: int | slice | None = None
) -> Generator[Progress, None, np.ndarray]:
    """Count step by step, with progress after each tile; closing this stops the work."""
    _, maps = yield from shown_maps(image, run, lambda settings: ["pixels"], frames, slices)
    return maps["pixels"]
