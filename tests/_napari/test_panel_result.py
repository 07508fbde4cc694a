"""Click Run: the new layer, and what the panel says of it."""

import threading
from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from qtpy.QtCore import Qt

import napari_gpu_denoise as gd
from _napari.inputs import PLACED, assert_same_place, click, type_sigma
from napari_gpu_denoise._napari import docks
from napari_gpu_denoise._napari.layers.provenance import METADATA_KEY
from napari_gpu_denoise._napari.model import Options
from napari_gpu_denoise.errors import Note
from napari_gpu_denoise.filters import NLMeans
from napari_gpu_denoise.run import denoise as runs


def test_the_result_is_the_filters_and_looks_like_its_source(viewer, open_panel, run, noisy):
    stack = np.stack([noisy, noisy[::-1]])
    looks = {"colormap": "magma", "contrast_limits": (20, 200), "gamma": 0.8, "opacity": 0.7}
    looks |= {"blending": "additive", "interpolation2d": "linear", "metadata": {"stain": "DAPI"}}
    source = viewer.add_image(stack, name="cells", **PLACED, **looks)
    before = stack.copy()
    panel = open_panel()
    status = run(panel)

    result = viewer.layers[-1]
    assert_array_equal(result.data, runs.denoise(stack, NLMeans(), axes="TYX").image)
    assert result.data.dtype == np.uint8 and result.name == "cells NL-means" and result.visible
    assert_same_place(result, source)
    assert_allclose(result.contrast_limits, source.contrast_limits)
    for attribute in ("gamma", "blending", "opacity", "rgb", "multiscale", "interpolation2d"):
        assert getattr(result, attribute) == getattr(source, attribute), attribute
    assert result.colormap.name == "magma" and result.metadata["stain"] == "DAPI"
    assert_array_equal(source.data, before)

    record = result.metadata[METADATA_KEY]
    assert (record["filter"], record["axes"]) == ("nl_means", "TYX")
    assert (record["version"], record["settings"]["patch"]) == (gd.__version__, 8)
    assert METADATA_KEY not in source.metadata
    assert status.startswith("Done in ") and "Noise of one strength (estimated)." in status
    shown = panel.status.text()
    for detail in (record["device"], f"Gaussian noise, sigma {record['sigma'][0]:.4g}."):
        assert detail in panel.details and detail not in shown
    panel.status.linkActivated.emit("#")
    assert panel.status.text() == f"{shown.partition(' <a')[0]} {panel.details}"
    assert panel.options.noise.caption.text() == f"Gaussian noise, sigma {record['sigma'][0]:.4g}"

    # The result, which is selected now, stands for the image; whoever wants that can have it.
    panel.layer.follow_selection()
    assert viewer.layers.selection.active is result and panel.layer.layer() == source
    panel.layer.choose(result)
    assert panel.layer.layer() == result


def test_every_option_reaches_the_run_and_its_copied_call(
    viewer, open_panel, run, noisy, qtbot, pasted
):
    rows = np.random.default_rng(0).normal(0, 20, (5, len(noisy), 1))
    image = (noisy + rows).astype(np.float32)
    image[1, 3, 4], image[4, 50, 60] = np.nan, np.inf
    viewer.add_image(image, name="it's", contrast_limits=(0, 255))
    panel = open_panel()
    controls, options, device = panel.form.controls, panel.options, gd.choose()
    assert not controls["frames_before"].native.isEnabled()
    panel.axes.edit.setText("tyx")
    assert controls["frames_before"].native.isEnabled()
    panel.form.profile.setCurrentText("fine")
    changed = {"frames_before": 1, "frames_after": 1, "step": 2, "strength": 0.8}
    for name, value in changed.items():
        controls[name].value = value
    assert panel.form.profile.currentText() == "custom"
    qtbot.keyClicks(options.noise.edit, "25")
    assert panel.model.noise.kind == "typed"
    options.strength.slider.setValue(-20)
    assert options.strength.label.text() == "0.50"
    options.dtype.setCurrentIndex(2)
    options.correct.setCurrentText("Stripes")
    options.nonfinite.setCurrentIndex(1)
    options.device.box.setCurrentIndex(options.device.box.findData(device.index))
    status = run(panel)
    for words in (
        "Noise 25 grey levels (given).",
        "Strength 0.5.",
        "Corrected first: rows have individual offsets, ",
        "2 NaN or infinite pixels were left in place.",
    ):
        assert words in status
    result = viewer.layers[-1]
    settings = NLMeans.of(profile="fine", **changed)
    given = {"axes": "TYX", "dtype": "float32", "nonfinite": "keep", "correct": "stripes"}
    given["sigma_factor"] = 0.5
    expected = runs.denoise(image, settings, 25.0, **given, device=device.index)
    assert_array_equal(result.data, expected.image)
    assert result.data.dtype == np.float32 and np.isposinf(result.data[4, 50, 60])
    assert result.metadata[METADATA_KEY]["device"] == str(device)
    assert_array_equal(pasted(panel)["denoised"], result.data)

    qtbot.mouseDClick(options.strength.slider, Qt.MouseButton.LeftButton)
    assert options.strength.value() == 1
    options.strength.slider.setValue(10)
    click(panel.reset_button)
    asked = panel.request().run
    assert asked.sigma_factor == 1
    assert asked.filter == NLMeans() and panel.form.profile.currentText() == "normal"
    assert (asked.sigma, asked.axes, asked.dtype, asked.device) == (None, ".YX", None, None)
    assert asked.correct is None and asked.nonfinite == "raise"


def test_a_device_that_is_chosen_before_the_devices_are_known(viewer, open_panel):
    device, panel = gd.choose().index, docks.open_panel(viewer, "Filter")
    panel.model.options = Options(device=device)
    assert panel.options.device.box.currentData() is None
    open_panel()
    assert panel.options.device.box.currentData() == panel.model.options.device == device


def kinds_of_layers(noisy, read):
    """Layers of all kinds: data, the pixels that are filtered, axes, attributes and sigma."""
    alpha = np.random.default_rng(5).integers(0, 256, noisy.shape).astype(np.uint8)
    rgba = np.stack([noisy, noisy // 2, 255 - noisy, alpha], axis=-1)
    planes = np.stack([noisy, noisy[:, ::-1], noisy[::-1], noisy])
    mask = np.random.default_rng(0).random((3, 40, 48)) < 0.6
    labels = {"axis_labels": ("t", "y", "x"), "contrast_limits": (0, 1)}
    lazy = {
        "planes": da.from_array(planes, (3, 40, 80)).map_blocks(read, dtype=planes.dtype),
        "mask": da.from_array(mask),
        "rgba": da.from_array(rgba, 40),
    }
    return {
        "rgba": (lazy["rgba"], rgba[..., :3], "YXS", {"rgb": True}, None),
        "pyramid": ([noisy, noisy[::2, ::2]], noisy, "YX", {"multiscale": True}, None),
        "planes": (lazy["planes"], planes, ".YX", {"contrast_limits": (0, 255)}, None),
        "mask": (lazy["mask"], mask.astype(np.uint8), "TYX", labels, 0.4),
    }


@pytest.mark.parametrize("kind", ["rgba", "pyramid", "planes", "mask"])
def test_kinds_of_layers(viewer, open_panel, run, open_noise, measured, noisy, kind, pasted):
    readers = set()

    def read(block):
        readers.add(threading.current_thread())
        return block

    data, pixels, axes, looks, sigma = kinds_of_layers(noisy, read)[kind]
    source = viewer.add_image(data, name="cells", **looks)
    panel = open_panel()
    assert panel.axes.axes() == axes
    if sigma is not None:
        type_sigma(panel, str(sigma))
    readers.clear()  # napari has read the plane it shows
    assert run(panel).startswith("Done in ")
    assert threading.main_thread() not in readers and bool(readers) == (kind == "planes")
    result, expected = viewer.layers[-1], runs.denoise(pixels, NLMeans(), sigma, axes=axes)
    assert (result.rgb, result.multiscale) == ("rgb" in kind, False)
    assert result.data.dtype == expected.image.dtype
    filtered = np.s_[..., :3] if kind == "rgba" else np.s_[...]
    assert_array_equal(result.data[filtered], expected.image)
    if kind == "rgba":
        assert_array_equal(result.data[..., 3], np.asarray(data)[..., 3])
    assert result.metadata[METADATA_KEY]["sigma"] == list(expected.record.sigma)
    assert_array_equal(pasted(panel)["denoised"], result.data)
    if sigma is None:  # the panel of noise measures them, too
        noise = open_noise()
        noise.choose(source)
        assert measured(noise) == ""
        assert pasted(noise, until="denoised")["noise"] == noise.estimate()
        assert noise.estimate().sigma == gd.estimate_noise(pixels, axes).sigma


def test_noise_that_is_not_proven_is_removed_with_one_more_click(
    viewer, open_panel, run, finish, noisy
):
    viewer.add_image(noisy, name="cells")
    panel, ended = open_panel(), []
    panel.runs.ended.connect(ended.append)
    run(panel)
    assert panel.proof_button.isHidden()
    done = ended[0].value
    about = {"code": "unproven", "model": "correlated", "title": "Correlated"}
    record = replace(done.result.record, notes=(Note("it may be texture", "x", **about),))
    result = replace(done.result, record=record)
    panel._on_outcome(replace(ended[0], value=replace(done, result=result)))
    assert "It may be texture: click Take it for noise to remove it." in panel.status.text()
    click(panel.proof_button)
    finish(panel)
    (model,) = viewer.layers[-1].metadata[METADATA_KEY]["noise"]
    assert model["model"] == "correlated" and panel.model.noise.kind == "correlated"
    assert panel.options.noise.mode.currentText() == "Correlated Gaussian"
