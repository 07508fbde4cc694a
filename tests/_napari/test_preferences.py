"""The plugin's page in napari's preferences."""

import pytest

from napari_gpu_denoise._napari import preferences

pytestmark = pytest.mark.gui


def test_without_a_page_the_defaults_hold(monkeypatch):
    import napari.settings

    monkeypatch.delattr(napari.settings, "get_plugin_settings", raising=False)
    assert preferences.read() == preferences.Preferences(device=None, memory_limit=None)


def test_what_the_user_set_is_read(plugin):
    settings = pytest.importorskip("napari.settings")
    if not hasattr(settings, "get_plugin_settings"):
        pytest.skip("napari before 0.9 keeps no settings of plugins")
    assert preferences.read() == preferences.Preferences()
    computing = settings.get_plugin_settings("napari-gpu-denoise").computing
    computing.device = " cpu "
    computing.memory_limit = 250
    assert preferences.read() == preferences.Preferences("cpu", 250_000_000)


def test_the_panel_starts_with_them(viewer, open_panel, monkeypatch):
    monkeypatch.setattr(preferences, "read", lambda: preferences.Preferences(device="cpu"))
    panel = open_panel()
    assert panel.options.device.box.currentText() == "Automatic (cpu)"
    assert panel.options.device.device() == "cpu"
