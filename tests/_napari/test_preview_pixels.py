"""Pixels of previews: to the bit those of a run of the whole layer."""

import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import napari_gpu_denoise as gd
from napari_gpu_denoise._napari.layers.regions import Region
from napari_gpu_denoise._napari.layers.source import Source
from napari_gpu_denoise._napari.preview.compute import (
    PreviewRequest,
    filter_region,
    quick_settings,
)
from napari_gpu_denoise.errors import AxesError, LayerError
from napari_gpu_denoise.run.noise import NoiseMemory
from napari_gpu_denoise.run.progress import SILENT
from napari_gpu_denoise.run.request import Run
from scenes import filters_and_axes, joining, noisy, small

LENGTHS = {"T": 4, "Z": 9, "C": 2, "Y": 48, "X": 60, "S": 3}
SPANS = {"T": (2, 3), "Z": (4, 5), "C": (1, 2), "Y": (19, 40), "X": (30, 55)}


def preview(data, run, spans=None, memory=None, alpha=False):
    """Return what the preview of a region shows."""
    spans = tuple(SPANS[a] for a in run.axes if a != "S") if spans is None else spans
    source = Source("layer", data, alpha=alpha)
    memory = memory or NoiseMemory()
    request = PreviewRequest(source, run, memory, Region(spans, (0, 1)), True, False)
    return filter_region(request, SILENT)


@pytest.mark.parametrize(("kind", "axes"), filters_and_axes())
def test_every_filter(kind, axes):
    image = noisy(*(LENGTHS[a] for a in axes), dtype="uint16")
    settings = joining(kind, axes, **({"channels": "joint"} if "C" in axes else {}))
    whole = gd.denoise(image, settings, 12.0, axes=axes, sigma_factor=1.25).image
    made = preview(image, Run(settings, 12.0, axes=axes, sigma_factor=1.25))
    assert made.dtype == whole.dtype
    assert_array_equal(made, whole[tuple(slice(*SPANS[a]) for a in axes)])


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(("sigma", "correct"), [(None, None), (12.0, "stripes")])
def test_what_a_run_does_before_it_filters(lazy, sigma, correct):
    image = np.random.default_rng(2).poisson(noisy(4, 64, 72, sigma=0) * 3).astype(np.uint16)
    image[:, 20] += 60
    data = da.from_array(image, chunks=(1, 32, 72)) if lazy else image
    memory, settings = NoiseMemory(), small(gd.NLMeans)
    run = Run(settings, sigma, noise=memory, axes="TYX", correct=correct)
    request = PreviewRequest(Source("", data), run, memory, None, True, False)
    assert request.run.measures_noise == (sigma is None)
    whole = gd.denoise(image, settings, sigma, axes="TYX", correct=correct).image
    assert_array_equal(preview(data, run, memory=memory), whole[2:3, 19:40, 30:55])
    assert not request.run.measures_noise


def test_colours_and_alpha():
    image = np.random.default_rng(3).integers(0, 255, (64, 72, 4)).astype(np.uint8)
    run = Run(small(gd.NLMeans), 12.0, axes="YXS")
    made = preview(image, run, alpha=True)
    whole = gd.denoise(image[..., :3], run.filter, 12.0, axes="YXS").image
    assert_array_equal(made[..., :3], whole[19:40, 30:55])
    assert_array_equal(made[..., 3], image[19:40, 30:55, 3])


def test_errors_are_told():
    with pytest.raises(AxesError):
        preview(noisy(64, 72), Run(small(gd.BM4D), 12.0, axes="YX"))
    huge = da.zeros((1 << 15, 1 << 14), dtype=np.uint8, chunks=1 << 12)
    with pytest.raises(LayerError, match="Crop the layer"):
        preview(huge, Run(small(gd.NLMeans), 12.0, axes="YX"), ((0, 1 << 15), (0, 1 << 14)))


def test_quick_settings():
    fast = gd.BM3D.of(profile="fast")
    assert quick_settings(gd.BM3D(), "YX") == quick_settings(fast, "YX") == fast
    changed = quick_settings(gd.BM3D(threshold=3.1), "YX")
    assert changed == gd.BM3D.of(profile="fast", threshold=3.1)
    assert quick_settings(gd.NLMeans.of(profile="fine"), "YX") == gd.NLMeans()
    assert quick_settings(gd.Isoline(), "YX") == gd.Isoline()
    # The fast profile looks at fewer frames, which are settings that need an axis T.
    assert quick_settings(gd.VBM3D(), "TYX").frames_before == 2
    assert quick_settings(gd.VBM3D(), "YX").frames_before == gd.VBM3D().frames_before
