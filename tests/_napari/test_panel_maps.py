"""Maps in place of a result; noise that is given by settings."""

import pytest
from numpy.testing import assert_allclose, assert_array_equal

import napari_gpu_denoise as gd
from _napari.inputs import layer_names
from napari_gpu_denoise._napari.layers.provenance import describe, is_result
from napari_gpu_denoise.filters import Isoline
from napari_gpu_denoise.run import denoise as runs


@pytest.fixture
def noisy(noisy):
    """A part of the picture, which takes less time."""
    return noisy[:40, :48]


def test_a_map_is_a_layer(viewer, open_panel, run, qtbot, noisy, pasted):
    title, show = "Isoline", "directions"
    looks = {"colormap": "magma", "contrast_limits": (0, 7), "scale": (3, 3)}
    viewer.add_image(noisy, name="cells", **looks)
    panel = open_panel(title)
    run(panel)
    panel.form.controls["show"].value = show
    panel.preview.box.setChecked(True)
    qtbot.waitUntil(lambda: "after a run" in panel.preview.caption.text())
    panel.preview.box.setChecked(False)
    assert run(panel).startswith("Done in ")
    assert layer_names(viewer) == ["cells", f"cells {title}", f"cells {title} {show}"]
    made, settings = viewer.layers[-1], panel.form.settings()
    expected = gd.denoise(noisy, settings, dtype="float32").image
    assert_array_equal(made.data, expected)
    assert_array_equal(pasted(panel)["denoised"], expected)
    assert_allclose(made.scale, (3, 3))
    # Its numbers are no grey levels, and it is no result to compare.
    assert made.colormap.name == "gray" and made.contrast_limits != [0, 7]
    assert not is_result(made) and f"show {show}" in describe(made)
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
    expected = runs.denoise(noisy, Isoline(criterion="multiplicative", looks=2.5))
    assert_array_equal(viewer.layers[-1].data, expected.image)
    assert_array_equal(pasted(panel)["denoised"], expected.image)
    # What was typed comes back.
    controls["criterion"].value = "additive"
    assert noise.edit.isEnabled() and noise.edit.text() == "nonsense"
