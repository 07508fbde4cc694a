"""Settings that are remembered from panel to panel."""

import pytest

from _napari.inputs import type_sigma
from napari_gpu_denoise._napari.denoise import remembered
from napari_gpu_denoise._napari.denoise.form import SettingsForm
from napari_gpu_denoise.filters import BM4D, NLMeans

pytestmark = pytest.mark.gui


def test_a_profile_keeps_the_voxel_that_was_typed_which_is_not_remembered(qtbot):
    form = SettingsForm(BM4D)
    qtbot.addWidget(form)
    form.set_axes("TZYX")
    form.controls["voxel"].value = "2, 0.5, 0.5"
    assert form.profile.currentText() == "normal"
    form.profile.setCurrentText("fast")
    assert form.controls["voxel"].value == "2, 0.5, 0.5"
    assert form.settings() == BM4D.of(profile="fast", voxel="2, 0.5, 0.5")
    assert form.profile.currentText() == "fast"
    remembered.remember(form.settings())
    assert remembered.last(BM4D) == BM4D.of(profile="fast")


def test_the_settings_of_the_last_run_are_those_of_the_next_panel(viewer, open_panel, run, noisy):
    viewer.add_image(noisy)
    panel = open_panel()
    type_sigma(panel)
    panel.form.controls["strength"].value = 0.8
    assert remembered.last(NLMeans) is None
    run(panel)
    assert remembered.last(NLMeans) == NLMeans(strength=0.8)
    viewer.window.remove_dock_widget(panel)
    assert open_panel().form.settings() == NLMeans(strength=0.8)
