"""Noise in a filter's panel: one sigma, a model found, one handed over, one typed."""

import dataclasses

import numpy as np
from numpy.testing import assert_array_equal

import napari_gpu_denoise as gd
from _napari.inputs import click, copied
from _napari.noise_records import estimate
from napari_gpu_denoise._napari.layers.provenance import METADATA_KEY
from napari_gpu_denoise.filters import NLMeans
from napari_gpu_denoise.noise.correlation import noise_spectrum
from napari_gpu_denoise.noise.models import Correlated, PoissonGaussian


def test_an_estimate_is_handed_to_a_filter(viewer, open_noise, measured, run, pasted):
    y, x = np.mgrid[:96, :96]
    clean = 60 + 50 * np.sin(x / 15) * np.sin(y / 12)
    photons = (10 + 5 * np.random.default_rng(2).poisson(clean)).astype(np.uint16)
    viewer.add_image(photons, name="cells")
    panel = open_noise()
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


def test_speckle_on_a_logarithmic_scale_is_called_so_after_a_run_too(
    viewer, open_panel, run, noisy
):
    layer = viewer.add_image(noisy)
    spectrum = dataclasses.replace(noise_spectrum(noisy), log_speckle=True)
    found = estimate((Correlated.of_spectrum(spectrum),), spectra=(spectrum,))
    panel = open_panel()
    panel.take_noise(layer, "YX", found, "it")
    assert "Speckle on a logarithmic scale (" in run(panel)


def test_noise_is_kept_for_each_layer(viewer, open_panel, noisy):
    cells, other = viewer.add_image(noisy, name="cells"), viewer.add_image(noisy[:30], name="o")
    panel = open_panel()
    noise = panel.options.noise
    assert noise.caption.text() == "The noise is measured before filtering."
    panel.take_noise(cells, "XY", estimate(), "cells")
    assert panel.axes.letters() == "XY"
    panel.layer.choose(other)
    assert panel.model.noise.kind == "auto" and panel.request().run.noise is None
    noise.choose("measured")  # of another layer it is not taken, but can be chosen
    assert panel.request().run.noise == estimate()
    panel.take_noise(other, "YX", estimate((PoissonGaussian(2.0, 1.0),)), "o")
    panel.layer.choose(cells)
    assert panel.request().run.noise == estimate()
    assert "measured in cells" in noise.caption.text()
    noise.choose("gaussian")
    assert panel.request().run.noise == "gaussian" and noise.caption.text() == ""
    noise.choose("auto")
    panel.layer.choose(other)
    assert panel.model.noise.kind == "measured" and "measured in o" in noise.caption.text()
    panel.layer.choose(cells)
    assert panel.model.noise.kind == "auto"  # as it was left
