"""Noise in a filter's panel: one sigma, a model found, one handed over, one typed."""

import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import napari_gpu_denoise as gd
from _napari.noise_records import estimate
from napari_gpu_denoise._napari.layers.provenance import METADATA_KEY
from napari_gpu_denoise.filters import NLMeans
from napari_gpu_denoise.noise.correlation import noise_spectrum
from napari_gpu_denoise.noise.models import Correlated, Gaussian, PoissonGaussian
from napari_gpu_denoise.run import denoise as runs

pytestmark = pytest.mark.gui


@pytest.fixture
def photons():
    """An image with photon noise, uint16, (96, 96)."""
    rng = np.random.default_rng(2)
    y, x = np.mgrid[:96, :96]
    return (10 + rng.poisson(60 + 50 * np.sin(x / 15) * np.sin(y / 12)) * 5).astype(np.uint16)


def test_an_estimate_is_handed_to_a_filter(
    viewer, open_noise, measured, photons, click, run, copied, pasted
):
    layer = viewer.add_image(photons, name="cells")
    viewer.add_image(photons[:30], name="other")
    panel = open_noise()
    panel.layer.choose(layer)
    panel.axes.edit.setText("XY")
    measured(panel)
    found = panel.estimate()
    click(panel.use_button)
    filtering = viewer.window.dock_widgets["Filter (GPU Denoise)"]
    filtering.filter.choose("nl_means")
    noise = filtering.options.noise
    assert filtering.layer.currentText() == "cells" and filtering.axes.letters() == "XY"
    assert filtering.model.noise.kind == "measured"
    assert noise.caption.text().startswith("Poisson-Gaussian noise, gain ")
    assert "(measured in cells)" in noise.caption.text()
    status = run(filtering)
    assert "Photon noise (estimated)." in status and "Poisson-Gaussian noise, gain " in status
    result = viewer.layers.selection.active
    expected = gd.denoise(photons, NLMeans(), noise=found, axes="XY")
    assert_array_equal(result.data, expected.image)
    assert result.metadata[METADATA_KEY]["noise"] == list(expected.record.noise)
    assert_array_equal(pasted(filtering)["denoised"], expected.image)
    assert "--noise poisson-gaussian" in copied(filtering.command_action)
    assert "measures the noise again" in filtering.status.text()
    # Of another layer it is not taken, but can be chosen again.
    filtering.layer.choose(viewer.layers["other"])
    assert filtering.model.noise.kind == "auto" and filtering.request().run.noise is None
    noise.choose("measured")
    assert filtering.request().run.noise == found
    assert "measured in cells" in noise.caption.text()


def test_speckle_on_a_logarithmic_scale_is_called_so_after_a_run_too(
    viewer, open_panel, run, noisy
):
    layer = viewer.add_image(noisy)
    spectrum = dataclasses.replace(noise_spectrum(noisy), log_speckle=True)
    found = estimate((Correlated.of_spectrum(spectrum),), spectra=(spectrum,))
    panel = open_panel()
    panel.take_noise(layer, "YX", found, "it")
    assert "Speckle on a logarithmic scale (" in run(panel)


def test_noise_handed_over_comes_back_with_its_layer(viewer, open_panel, noisy):
    cells, other = viewer.add_image(noisy, name="cells"), viewer.add_image(noisy[:30], name="o")
    panel = open_panel()
    noise = panel.options.noise
    panel.take_noise(cells, "YX", estimate(), "cells")
    panel.layer.choose(other)
    assert panel.model.noise.kind == "auto"
    panel.take_noise(other, "YX", estimate((PoissonGaussian(2.0, 1.0),)), "o")
    panel.layer.choose(cells)
    assert panel.request().run.noise == estimate()
    assert "measured in cells" in noise.caption.text()
    noise.choose("auto")
    panel.layer.choose(other)
    assert panel.model.noise.kind == "measured" and "measured in o" in noise.caption.text()
    panel.layer.choose(cells)
    assert panel.model.noise.kind == "auto"  # as it was left


def test_a_model_is_found_by_the_run(viewer, open_panel, run, click, copied, photons):
    viewer.add_image(photons, name="photons")
    panel = open_panel()
    noise = panel.options.noise
    assert noise.caption.text() == "The noise is measured before filtering."
    status = run(panel)
    expected = runs.denoise(photons, NLMeans(), noise="auto")
    assert_array_equal(viewer.layers[-1].data, expected.image)
    (model,) = expected.record.noise
    assert model["model"] == "poisson-gaussian"
    assert viewer.layers[-1].metadata[METADATA_KEY]["noise"] == [model]
    gain = f"gain {model['gain']:.4g}"
    assert gain in status and gain in noise.caption.text()
    assert "gd.nl_means(image)" in copied(panel.python_action)
    assert "--noise" not in copied(panel.command_action)
    noise.choose("one")
    assert panel.request().run.noise == "gaussian" and noise.caption.text() == ""
    run(panel)
    expected = runs.denoise(photons, NLMeans(), noise="gaussian")
    assert_array_equal(viewer.layers[-1].data, expected.image)
    assert f"sigma {expected.record.sigma[0]:.4g}" in noise.caption.text()
    assert "--noise gaussian" in copied(panel.command_action)
    click(panel.reset_button)
    assert gain in noise.caption.text() and panel.request().run.noise is None


def test_an_estimate_of_several_channels_and_a_sigma_that_is_kept(
    viewer, open_panel, run, qtbot, noisy
):
    image = np.stack([noisy, noisy // 2])
    layer = viewer.add_image(image, axis_labels=("c", "y", "x"))
    panel = open_panel()
    control = panel.options.noise
    qtbot.keyClicks(control.edit, "12, 7")
    assert panel.request().run.sigma == (12.0, 7.0)
    control.choose("auto")
    assert control.edit.text() == "" and panel.request().run.sigma is None
    control.choose("typed")
    assert panel.request().run.sigma == (12.0, 7.0)

    models = (Gaussian(10.0), Gaussian(5.0))
    panel.take_noise(layer, "CYX", estimate(models, sigma=(10.0, 5.0), axes="CYX"), "it")
    assert control.caption.text() == (
        "Gaussian noise, sigma 10; Gaussian noise, sigma 5 (measured in it)"
    )
    run(panel)
    expected = runs.denoise(image, NLMeans(), (10.0, 5.0), axes="CYX").image
    assert_array_equal(viewer.layers[-1].data, expected)
