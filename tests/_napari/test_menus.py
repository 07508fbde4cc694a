"""The manifest, the entries of the plugin in napari's menus, and its page of the preferences."""

import inspect
import subprocess
import sys
from pathlib import Path

import napari.settings
import numpy as np
import pytest
from npe2 import PluginManifest
from npe2.manifest.utils import import_python_name
from numpy.testing import assert_allclose

from _napari.conftest import PLUGIN
from _napari.inputs import find_entry
from napari_gpu_denoise._napari import commands, preferences
from napari_gpu_denoise.files import samples
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.protocol.settings import setting_fields


def test_the_manifest_is_valid_complete_and_leads_to_what_exists():
    manifest = PluginManifest.from_distribution(PLUGIN)
    assert manifest.name == PLUGIN and manifest.is_visible
    manifest.validate_imports()
    offered = manifest.contributions
    known = {command.id: command for command in offered.commands}
    for widget in offered.widgets:
        made = import_python_name(known[widget.command].python_name)
        parameters = inspect.signature(made.__init__).parameters.values()
        assert "napari.viewer.Viewer" in [p.annotation for p in parameters]
    with pytest.raises(AttributeError, match="no panel 'no_such'"):
        _ = commands.no_such
    # In the command palette everything stands once, and what needs a path not at all.
    titles = [each.display_name for each in offered.widgets]
    widgets, samples_ = (
        {each.command for each in found} for found in (offered.widgets, offered.sample_data)
    )
    titles += [each.title for key, each in known.items() if key not in widgets | samples_]
    assert len(titles) == len(set(titles)) and {kind.title for kind in FILTERS} < set(titles)
    called = {known[f"{PLUGIN}.{name}"].enablement for name in ("read", "write")}
    assert called == {"False"}
    shown = {sample.key: sample.display_name for sample in offered.sample_data}
    assert shown == {name: samples.info(name).title for name in samples.names()}


def test_the_manifest_is_as_the_script_writes_it():
    script = Path(__file__).parents[2] / "scripts" / "write_manifest.py"
    assert subprocess.run([sys.executable, str(script), "--check"]).returncode == 0, (
        "run python scripts/write_manifest.py"
    )


@pytest.mark.usefixtures("window")
def test_menus_open_the_panels(viewer, qtbot):
    viewer.add_image(np.zeros((3, 20, 20)), axis_labels=("z", "y", "x"))
    docks, name = viewer.window.dock_widgets, "Filter (GPU Denoise)"
    for kind in FILTERS:
        entry = "Filter", "Denoise (GPU)", f"{kind.title} (GPU Denoise)"
        find_entry(viewer.window.layers_menu, *entry).trigger()
        qtbot.waitUntil(lambda: name in docks)
        panel = docks[name]
        qtbot.waitUntil(lambda panel=panel: panel.options.device.caption.text() != "")
        qtbot.waitUntil(lambda panel=panel, kind=kind: panel.filter.kind is kind)
        assert kind.summary == panel.summary.text()
        assert panel.layer.layer() is viewer.layers[0]
        assert panel.model.settings == kind()
        fields = {field.name for field in setting_fields(kind)}
        assert set(panel.form.controls) == fields and docks[name] is panel
    viewer.window.remove_dock_widget(panel)
    find_entry(viewer.window.plugins_menu, "GPU Denoise", name).trigger()
    assert docks[name] is not panel
    viewer.layers.clear()
    title = "Estimated noise (GPU Denoise)"
    for menu, path in (("layers_menu", "Measure"), ("plugins_menu", "GPU Denoise")):
        find_entry(getattr(viewer.window, menu), path, title).trigger()
        qtbot.waitUntil(lambda: title in docks)
        assert "no image layer" in docks[title].status.text()
        viewer.window.remove_dock_widget(docks[title])


@pytest.mark.parametrize(
    ("name", "axes", "scale", "units"),
    [
        ("fluorescence", "TYX", (2.0, 0.108, 0.108), ("second", "micrometer", "micrometer")),
        ("mri", "ZYX", (2.2, 2.0, 2.0), ("millimeter",) * 3),
        ("ultrasound", "TYX", (0.04, 0.18, 0.2), ("second", "millimeter", "millimeter")),
        ("diffusion", "DZYX", (1.0, 2.5, 2.5, 2.5), ("pixel", *("millimeter",) * 3)),
    ],
)
@pytest.mark.usefixtures("window")
def test_a_sample_opens_with_its_axes(viewer, name, axes, scale, units):
    entry = ("Open Sample", "GPU Denoise", samples.info(name).title)
    find_entry(viewer.window.file_menu, *entry).trigger()
    (layer,) = viewer.layers
    assert_allclose(layer.scale, scale)
    assert "".join(layer.axis_labels).upper() == axes and layer.data.ndim == len(axes)
    assert tuple(map(str, layer.units)) == units
    assert layer.name == name and layer.metadata["licence"] == samples.info(name).licence


def test_without_a_page_of_preferences_the_defaults_hold(monkeypatch):
    monkeypatch.delattr(napari.settings, "get_plugin_settings", raising=False)
    assert preferences.read() == preferences.Preferences(device=None, memory_limit=None)


@pytest.mark.skipif(
    not hasattr(napari.settings, "get_plugin_settings"),
    reason="napari before 0.9 keeps no settings of plugins",
)
def test_preferences_are_read_and_open_panels_follow_them(viewer, open_panel, noisy):
    assert preferences.read() == preferences.Preferences()
    computing = napari.settings.get_plugin_settings(PLUGIN).computing
    computing.memory_limit = 250
    viewer.add_image(noisy)
    panel = open_panel()
    box = panel.options.device.box
    assert box.itemText(0) == "Automatic"
    computing.device = " cpu "
    assert preferences.read() == preferences.Preferences("cpu", 250_000_000)
    assert box.currentText() == "Automatic (cpu)" and panel.model.device == "cpu"
    assert panel.request().run.device == "cpu"
    computing.device = "no such device"
    assert "no such device" in panel.options.device.caption.text()
    assert preferences.changed()[0] is computing.events.device
