"""Fixtures that open napari with this plugin, its preferences in a folder of their own."""

from __future__ import annotations

import contextlib
import functools
import gc
import threading

import numpy as np
import pytest

pytest.importorskip("napari", reason="napari is not installed")

from napari.settings import get_settings
from napari.utils.notifications import notification_manager
from npe2 import PluginManifest

# napari's own settings stay in memory: the user's file is neither read nor, several times a test,
# written. This is too late if anything has asked for them.
with contextlib.suppress(RuntimeError):
    get_settings(path=None)

PLUGIN = "napari-gpu-denoise"
HUNG = 600_000  # milliseconds after which a wait is taken for a hang; no busy machine needs them


@pytest.fixture
def qtbot(qtbot, monkeypatch):
    """pytest-qt's robot, whose waits end for hung tests only: by default they end after 5 s."""
    for wait in ("waitUntil", "waitSignal", "waitExposed"):
        patient = functools.partial(getattr(qtbot, wait), timeout=HUNG)
        monkeypatch.setattr(qtbot, wait, patient)
    return qtbot


@pytest.fixture(scope="module", autouse=True)
def settled():
    """Look no further for garbage among what earlier modules of tests have left, such as imports.

    Each window looks for garbage three times, and what Qt and napari have loaded stays to the end.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def kept(tmp_path_factory, monkeypatch):
    """A folder for settings that are kept between sessions, in place of the user's."""
    found = tmp_path_factory.mktemp("kept") / "config"
    monkeypatch.setattr("napari_gpu_denoise._napari.denoise.presets.folder", lambda: found)
    return found


@pytest.fixture
def plugin(npe2pm, request):
    """The plugin as installed, and no other."""
    # napari before 0.9 keeps no settings of plugins, and has no such fixture
    with contextlib.suppress(pytest.FixtureLookupError):
        request.getfixturevalue("plugin_settings")
    npe2pm.register(PluginManifest.from_distribution(PLUGIN))
    return npe2pm


@pytest.fixture
def viewer(plugin, make_napari_viewer):
    """A napari window."""
    return make_napari_viewer()


@pytest.fixture
def open_panel(viewer, qtbot):
    """Open a filter's panel in the window as the Plugins menu does."""

    def open_it(title="NL-means"):
        _, panel = viewer.window.add_plugin_dock_widget(PLUGIN, title)
        qtbot.waitUntil(lambda: panel.options.device.caption.text() != "")
        return panel

    return open_it


@pytest.fixture
def open_noise(viewer):
    """Open the panel that measures noise as napari's menus do."""

    def open_it():
        from napari_gpu_denoise._napari.docks import open_panel

        return open_panel(viewer, "Estimated noise")

    return open_it


@pytest.fixture
def measured(qtbot):
    """Wait until a panel has measured, or says why not; returns its status line."""

    def wait(panel):
        def ended():
            return panel.estimate() is not None or panel.status.text().startswith("<b>Not")

        qtbot.waitUntil(ended)
        return panel.status.text()

    return wait


@pytest.fixture
def quick(monkeypatch):
    """Measure the spread of all pixels, at once; the list of what was measured."""
    from _napari.noise_records import estimate
    from napari_gpu_denoise._napari.noise import measuring
    from napari_gpu_denoise.image.axes import channel_axis
    from napari_gpu_denoise.noise.models import Gaussian

    asked = []

    def spread(image, axes=None, model="auto", *, device=None):
        pixels = np.asarray(image[...])
        asked.append((pixels, axes, model))
        channel = channel_axis(axes)
        count = 1 if channel is None else pixels.shape[channel]
        sigma = float(pixels.std())
        return estimate((Gaussian(sigma),) * count, sigma=(sigma,) * count, axes=axes)

    monkeypatch.setattr(measuring, "estimate_noise", spread)
    return asked


@pytest.fixture
def click(qtbot):
    """Click a button with the mouse."""
    from qtpy.QtCore import Qt

    return lambda button: qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


@pytest.fixture
def copied(click):
    """Click a button that copies text; returns the text."""
    from qtpy.QtWidgets import QApplication

    def copy(button):
        click(button)
        return QApplication.clipboard().text()

    return copy


@pytest.fixture
def pasted(viewer, copied):
    """Run a panel's Python call as in napari's console, up to a word; returns its variables.

    The layer that it adds is taken out again; it is the variable "added".
    """

    def paste(panel, until=None):
        scope, code = {"viewer": viewer}, copied(panel.python_button)
        before = list(viewer.layers)
        exec(code if until is None else code.partition(until)[0], scope)
        for layer in [each for each in viewer.layers if each not in before]:
            scope["added"] = layer
            viewer.layers.remove(layer)
        return scope

    return paste


@pytest.fixture
def finish(qtbot):
    """Wait for a panel's run to end; returns its status line."""

    def wait(panel):
        qtbot.waitUntil(lambda: panel.run_button.isEnabled())
        return panel.status.text()

    return wait


@pytest.fixture
def run(click, finish):
    """Click Run and wait for the end; returns the status line."""

    def run_it(panel):
        click(panel.run_button)
        return finish(panel)

    return run_it


@pytest.fixture
def told():
    """The notifications napari has shown."""
    notification_manager.records.clear()
    yield lambda: [str(record.message) for record in notification_manager.records]
    notification_manager.records.clear()


@pytest.fixture
def held(monkeypatch):
    """Hold every run back after its first tile, until the gate is opened."""
    from napari_gpu_denoise.run import denoise as runs

    real = runs.denoise_steps
    gate = threading.Event()

    def slow(*args, **kwargs):
        steps = real(*args, **kwargs)
        try:
            for step in steps:
                yield step
                if step.done:
                    break
            gate.wait()
            return (yield from steps)
        finally:
            steps.close()

    monkeypatch.setattr(runs, "denoise_steps", slow)
    yield gate
    gate.set()


@pytest.fixture
def stack():
    """Noise of standard deviation 5, float32, (5, 30, 40)."""
    return np.random.default_rng(0).normal(100, 5, (5, 30, 40)).astype(np.float32)


@pytest.fixture
def movie():
    """A patch of texture that moves over noise of standard deviation 10, uint16, (6, 40, 48)."""
    rng = np.random.default_rng(11)
    y, x = np.mgrid[:40, :48]
    frames = [500 + 80 * np.sin((x - 2 * t) / 4) * np.cos((y + t) / 5) for t in range(6)]
    return np.rint(frames + rng.normal(0, 10, (6, 40, 48))).astype(np.uint16)


@pytest.fixture
def noisy():
    """A smooth picture with noise of standard deviation 10, uint8, (64, 80)."""
    rng = np.random.default_rng(7)
    y, x = np.mgrid[:64, :80]
    clean = 110 + 60 * np.sin(y / 9) * np.cos(x / 11)
    return np.clip(np.rint(clean + rng.normal(0, 10, clean.shape)), 0, 255).astype(np.uint8)
