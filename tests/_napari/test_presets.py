"""Presets of the user's own, and settings that are remembered between sessions."""

import json

import pytest
from qtpy.QtWidgets import QInputDialog

from _napari.inputs import type_sigma
from napari_gpu_denoise import errors
from napari_gpu_denoise._napari.denoise import presets
from napari_gpu_denoise._napari.denoise.form import SettingsForm
from napari_gpu_denoise.filters import BM3D, BM4D, NLMeans

pytestmark = pytest.mark.gui


@pytest.fixture
def form(qtbot):
    made = SettingsForm(BM4D)
    qtbot.addWidget(made)
    made.set_axes("TZYX")
    return made


@pytest.fixture
def save(form, monkeypatch):
    """Save what the form shows, and answer the question for the name."""

    def save_it(name, agreed=True):
        monkeypatch.setattr(QInputDialog, "getText", lambda *_, **__: (name, agreed))
        form.presets.save_action.trigger()

    return save_it


def items(form):
    return [form.profile.itemText(row) for row in range(form.profile.count())]


def test_a_preset_is_saved_chosen_and_deleted(form, save, qtbot, kept, told):
    save("mine", agreed=False)
    assert not kept.exists()
    save("fast")
    assert "choose another one" in told()[-1]
    form.controls["threshold"].value = 3.5
    save("thick slices")
    assert items(form) == [*BM4D.presets, "thick slices", "custom"]
    assert form.profile.currentText() == "thick slices"
    form.profile.setCurrentText("fast")
    assert form.settings() == BM4D.of(profile="fast")
    form.profile.setCurrentText("thick slices")
    assert form.settings() == BM4D(threshold=3.5)
    later = SettingsForm(BM4D)
    qtbot.addWidget(later)
    assert items(later) == items(form)
    assert presets.own(BM3D) == {}
    form.presets.offer()
    assert form.presets.delete_action.text() == "Delete thick slices"
    form.presets.delete_action.trigger()
    assert items(form) == [*BM4D.presets, "custom"] and form.profile.currentText() == "custom"
    assert form.settings() == BM4D(threshold=3.5)
    form.presets.offer()
    assert not form.presets.delete_action.isEnabled()


@pytest.mark.parametrize("name", ["", "  ", "normal", "custom"])
def test_names_that_mean_something_else(name):
    with pytest.raises(errors.SettingsError, match="not a name for a preset of your own"):
        presets.save(BM3D(), name)


def test_a_profile_keeps_the_voxel_that_was_typed(form):
    form.controls["voxel"].value = "2, 0.5, 0.5"
    assert form.profile.currentText() == "normal"
    form.profile.setCurrentText("fast")
    assert form.controls["voxel"].value == "2, 0.5, 0.5"
    assert form.settings() == BM4D.of(profile="fast", voxel="2, 0.5, 0.5")
    assert form.profile.currentText() == "fast"
    presets.save(form.settings(), "mine")
    assert presets.own(BM4D) == {"mine": BM4D.of(profile="fast")}


def test_settings_of_another_version(kept):
    presets.save(NLMeans(patch=6), "mine")
    file = kept / "settings.json"
    stored = json.loads(file.read_text())
    stored["presets"]["nl_means"]["mine"]["gone"] = 1
    stored["presets"]["nl_means"] |= {"odd": {"patch": "wide"}, "older": 7}
    stored["last"] = {"nl_means": [1]}
    file.write_text(json.dumps(stored))
    assert presets.own(NLMeans) == {"mine": NLMeans(patch=6)}
    assert presets.last(NLMeans) is None


@pytest.mark.parametrize("damaged", ["{", "[" * 100_000])
def test_a_damaged_file_is_put_aside(kept, damaged):
    kept.mkdir()
    (kept / "settings.json").write_text(damaged)
    assert presets.own(BM3D) == {} and presets.last(BM3D) is None
    presets.remember(BM3D(threshold=3.0))
    assert presets.last(BM3D) == BM3D(threshold=3.0)
    assert (kept / "settings.damaged").read_text() == damaged
    (kept / "settings.json").write_text("damaged again")
    presets.save(BM3D(), "mine")
    assert (kept / "settings.damaged").read_text() == damaged
    assert (kept / "settings.damaged1").read_text() == "damaged again"


def test_the_settings_of_the_last_run_are_those_of_the_next_panel(viewer, open_panel, run, noisy):
    viewer.add_image(noisy)
    panel = open_panel()
    type_sigma(panel)
    panel.form.controls["strength"].value = 0.8
    assert presets.last(NLMeans) is None
    run(panel)
    assert presets.last(NLMeans) == NLMeans(strength=0.8)
    viewer.window.remove_dock_widget(panel)
    assert open_panel().form.settings() == NLMeans(strength=0.8)
