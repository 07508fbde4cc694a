"""Maps in place of a result; noise that is given by settings."""

import pytest
from numpy.testing import assert_allclose, assert_array_equal

import napari_gpu_denoise as gd
from _napari.inputs import layer_names


@pytest.fixture
def noisy(noisy):
    """A part of the picture, which takes less time."""
    return noisy[:40, :48]


def test_a_map_is_a_layer(viewer, open_panel, run, qtbot, noisy, pasted):
    looks = {"colormap": "magma", "contrast_limits": (0, 7), "scale": (3, 3)}
    viewer.add_image(noisy, name="cells", **looks)
    panel = open_panel("Isoline")
    run(panel)
    panel.form.controls["show"].value = "directions"
    panel.preview.box.setChecked(True)
    qtbot.waitUntil(lambda: "after a run" in panel.preview.caption.text())
    panel.preview.box.setChecked(False)
    run(panel)
    assert layer_names(viewer) == ["cells", "cells Isoline", "cells Isoline directions"]
    made, settings = viewer.layers[-1], panel.form.settings()
    assert_array_equal(made.data, gd.denoise(noisy, settings, dtype="float32").image)
    assert_array_equal(pasted(panel)["denoised"], made.data)
    assert_allclose(made.scale, (3, 3))
    # Its numbers are no grey levels.
    assert made.colormap.name == "gray" and made.contrast_limits != [0, 7]
    run(panel)
    assert len(viewer.layers) == 3


def test_sigma_is_not_asked_for_where_it_is_not_used(viewer, open_panel, run, noisy, qtbot, pasted):
    viewer.add_image(noisy, name="speckle")
    panel = open_panel("Isoline")
    noise, controls = panel.options.noise, panel.form.controls
    qtbot.keyClicks(noise.edit, "nonsense")
    controls["criterion"].value = "multiplicative"
    assert not noise.mode.isEnabled() and not noise.edit.isEnabled()
    assert (noise.edit.text(), noise.edit.placeholderText()) == ("", "not used")
    controls["looks"].value = 2.5
    assert "multiplicative noise of 2.5 looks" in noise.edit.toolTip()
    assert panel.request().run.sigma is None
    assert "Sigma not used: multiplicative noise of 2.5 looks." in run(panel)
    assert_array_equal(pasted(panel)["denoised"], viewer.layers[-1].data)
    noise.choose("auto")
    assert noise.caption.text() == ""
    noise.choose("typed")
    # What was typed comes back.
    controls["criterion"].value = "additive"
    assert noise.edit.isEnabled() and noise.edit.text() == "nonsense"
