"""An assessment as a generator of stages, and what of a layer it needs; no Qt."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from napari.components import Dims
from napari.layers import Image

from napari_gpu_denoise._napari.layers.lazy import LazyArray, is_lazy
from napari_gpu_denoise._napari.layers.provenance import SOURCE_ID, record_of
from napari_gpu_denoise._napari.layers.regions import in_view
from napari_gpu_denoise._napari.layers.source import METADATA_KEY, Source
from napari_gpu_denoise._napari.stage import Stage, as_stages
from napari_gpu_denoise.assessment.assess import Options, assess_steps
from napari_gpu_denoise.assessment.record import Assessment
from napari_gpu_denoise.noise.models import Gaussian, NoiseModel
from napari_gpu_denoise.opencl.isolation import load_bundled_drivers


@dataclass(frozen=True)
class Judging:
    """What is assessed: the `Request` that the panel of a filter is set to, and where."""

    request: Any
    options: Options


@dataclass(frozen=True)
class Outcome:
    """The end of an assessment: what was found, or the error that ended it."""

    request: Judging
    assessment: Assessment | None = None
    error: Exception | None = None


def judging_of(request: Any, layer: Image, dims: Dims) -> Judging:
    """Return the request to assess what the viewer shows of a layer."""
    axes = request.run.axes
    region = None if dims.ndisplay == 3 else in_view(layer, axes, dims, None).index
    spacing, unit = pixel_of(layer, axes)
    return Judging(request, Options(region=region, spacing=spacing, unit=unit))


def steps(
    judging: Judging, stopped: Callable[[], bool] = lambda: False
) -> Generator[Stage, None, Outcome]:
    """Assess; yields after every part, where it can be stopped. Errors are returned."""
    request = judging.request
    data, run = request.source.data, request.run
    try:
        load_bundled_drivers()
        yield Stage("Preparing")
        if is_lazy(data):
            whole = (slice(None),) * (len(data.shape) - 1)
            data = LazyArray(data, stopped, (*whole, slice(3 if request.source.alpha else None)))
        elif request.source.alpha:
            data = data[..., :3]
        if request.memory is not None:
            run = replace(run, noise=request.memory)
        found = yield from as_stages(assess_steps(data, run, judging.options), "Assessing")
    except Exception as error:
        return Outcome(judging, error=error)
    return Outcome(judging, found)


def pixel_of(layer: Image, axes: str) -> tuple[tuple[float, float] | None, str]:
    """Return the size of a pixel along Y and X by the layer's scale, and its unit, if known.

    A scale of 1 in pixels, which layers have from the beginning, tells nothing.
    """
    places = [axes.index(letter) for letter in "YX"]
    units = [layer.units[i] for i in places]
    if not units[1].is_compatible_with(units[0]) or str(units[0]) == "pixel":
        return None, ""
    factor = float((1 * units[1]).to(units[0]).magnitude)
    y, x = (abs(float(layer.scale[i])) for i in places)
    return (y, x * factor), f"{units[0]:~}"


def error_map(assessment: Assessment) -> np.ndarray:
    """Return the map of expected error without the colours of RGB."""
    found, colour = assessment.error_map, assessment.axes.find("S")
    return found if colour < 0 else np.sqrt(np.mean(np.square(found), axis=colour))


def is_of(record: dict[str, Any], assessment: Assessment) -> bool:
    """Return whether the record of a layer is of the run that was assessed."""
    same = (record.get("filter"), record.get("settings"), record.get("sigma_source"))
    if same != (assessment.filter, assessment.settings, assessment.noise_source):
        return False
    if record.get("sigma_factor", 1.0) != assessment.sigma_factor:
        return False
    if record["noise"]:
        models = dict.fromkeys(NoiseModel.from_dict(each).summary() for each in record["noise"])
        return "; ".join(models) == assessment.noise
    sigma = float(np.sqrt(np.mean(np.square(record["sigma"])))) if record["sigma"] else 0.0
    return not record["sigma"] or Gaussian(sigma).summary() == assessment.noise


def note(layer: Any, source: Source, assessment: Assessment) -> None:
    """Put an assessment of a source into the record of a layer that is a result of the same run."""
    record = record_of(layer)
    if record.get(SOURCE_ID) == source.identity and is_of(record, assessment):
        layer.metadata[METADATA_KEY] = {**record, "assessment": assessment.as_dict()}
