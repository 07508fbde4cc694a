"""Noise found automatically: measured once for a layer, known to all panels."""

import numpy as np
import pytest

from napari_gpu_denoise._napari.layers.provenance import METADATA_KEY
from napari_gpu_denoise.filters import BM3D, NLMeans
from napari_gpu_denoise.noise import estimate
from napari_gpu_denoise.run import denoise as runs

pytestmark = pytest.mark.gui


@pytest.fixture
def counted(monkeypatch):
    """The axes of all measurements of noise."""
    from napari_gpu_denoise._napari.noise import measuring

    asked, real = [], estimate.measure_noise

    def watched(image, axes, *args, **kwargs):
        asked.append(axes)
        return real(image, axes, *args, **kwargs)

    monkeypatch.setattr(estimate, "measure_noise", watched)
    assert measuring.estimate_noise is estimate.estimate_noise  # calls it, too
    return asked


def record_of(layer):
    """The record of a result without what belongs to the moment, and to the layer."""
    momentary = ("date", "source", "source_id")
    record = layer.metadata[METADATA_KEY].items()
    return {key: each for key, each in record if key not in momentary}


def test_noise_is_measured_once(viewer, open_panel, run, counted, movie):
    layer = viewer.add_image(movie.copy(), name="movie", axis_labels=("t", "y", "x"))
    first, second = open_panel("NL-means"), open_panel("BM3D")
    second.form.profile.setCurrentText("fast")
    first.results.keep_both.click()
    run(first)
    said = []
    for panel in (first, second):
        panel.progress.valueChanged.connect(lambda _, panel=panel: said.append(panel.status.text()))
    run(first)
    run(second)
    second.places.boxes["T"].click()
    run(second)
    assert counted == ["TYX"]
    assert not any("Measuring" in text for text in said)
    results = [each for each in viewer.layers if each is not layer]
    for result, settings in zip(results, [NLMeans()] * 2 + [BM3D.of(profile="fast")], strict=False):
        expected = runs.denoise(movie, settings, axes="TYX")
        np.testing.assert_array_equal(result.data, expected.image)
        known, wanted = record_of(result), expected.record.as_dict()
        assert known == {key: wanted[key] for key in known}
    counted.clear()
    first.axes.edit.setText(".YX")
    run(first)
    assert counted == [".YX"]
    layer.data[2] //= 2  # in place: nobody is told
    run(second)
    assert counted == [".YX", "TYX"]
    layer.data = movie[::-1]
    run(second)
    assert counted == [".YX", "TYX", "TYX"]


def test_runs_know_what_the_noise_panel_has_measured(
    viewer, open_panel, open_noise, measured, run, counted, noisy
):
    viewer.add_image(noisy, name="cells")
    panel = open_noise()
    measured(panel)
    assert counted == ["YX"]
    filtering = open_panel()
    run(filtering)
    assert counted == ["YX"]
    expected = runs.denoise(noisy, NLMeans(), noise=estimate.estimate_noise(noisy))
    np.testing.assert_array_equal(viewer.layers[-1].data, expected.image)
    assert record_of(viewer.layers[-1])["noise"] == expected.record.as_dict()["noise"]
    filtering.options.noise.choose("one")
    run(filtering)
    assert viewer.layers[-1].metadata[METADATA_KEY]["noise"] == []
