"""Fixtures that open napari with this plugin, its preferences in a folder of their own."""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import numpy as np
import pytest

pytest.importorskip("napari", reason="napari is not installed")

import napari
from napari._app_model._app import NapariApplication, _napari_names
from napari._qt._qapp_model.qactions import init_qactions
from napari._qt.qt_viewer import QtViewer
from napari._qt.threads.status_checker import StatusChecker
from napari._vispy import canvas
from napari.components import ViewerModel
from napari.plugins import _initialize_plugins
from napari.settings import get_settings
from napari.utils.notifications import notification_manager
from napari.utils.progress import progress
from npe2 import PluginManifest
from npe2._pytest_plugin import TestPluginManager
from qtpy.QtCore import QEvent, Qt
from qtpy.QtWidgets import QApplication, QDockWidget, QMainWindow, QMenu, QWidget

from _napari.inputs import click, copied
from napari_gpu_denoise._napari import docks, loading
from napari_gpu_denoise._napari.denoise import panel as filter_panel
from napari_gpu_denoise._napari.noise import panel as noise_panel
from napari_gpu_denoise._napari.panel import Panel
from napari_gpu_denoise._napari.preview import live

# napari's own settings stay in memory: the user's file is neither read nor, several times a test,
# written. This is too late if anything has asked for them.
with contextlib.suppress(RuntimeError):
    get_settings(path=None)

for module in loading.MODULES:  # panels then open at once
    importlib.import_module(module)

HERE = Path(__file__).parent
PLUGIN = "napari-gpu-denoise"
CHANGES = "inserted", "removed", "reordered", "renamed"  # of layers, which docks are told of
HUNG = 600_000  # milliseconds after which a wait is taken for a hang; no busy machine needs them


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gui)


@pytest.fixture
def qtbot(qtbot, monkeypatch):
    """pytest-qt's robot, whose waits end for hung tests only: by default they end after 5 s."""
    for wait in ("waitUntil", "waitSignal", "waitExposed"):
        patient = functools.partial(getattr(qtbot, wait), timeout=HUNG)
        monkeypatch.setattr(qtbot, wait, patient)
    return qtbot


@pytest.fixture(autouse=True)
def settling(monkeypatch):
    """Take changes for settled sooner: a user has more in mind before the next one."""
    monkeypatch.setattr(noise_panel, "_SETTLED", 30)
    monkeypatch.setattr(filter_panel, "_SETTLED", 30)
    monkeypatch.setattr(live, "REST", 60)


@pytest.fixture(scope="module")
def plugins():
    """The plugins of napari and the menus that they make: this one as installed, and no other."""
    known, menus = TestPluginManager(), NapariApplication(f"tests {uuid4()}")
    menus.injection_store.namespace = _napari_names
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("npe2.PluginManager.instance", lambda: known)
        patch.setattr(NapariApplication, "get_app_model", lambda: menus)
        for once in (_initialize_plugins, init_qactions):
            once.cache_clear()
        known.register(PluginManifest.from_distribution(PLUGIN))
        yield known
        NapariApplication.destroy(menus.name)
        for once in (_initialize_plugins, init_qactions):
            once.cache_clear()


@pytest.fixture
def plugin(plugins, monkeypatch, tmp_path):
    """The plugin as installed, with settings of its own."""
    # napari before 0.9 keeps no settings of plugins
    forget = getattr(napari.settings, "_clear_plugin_settings_cache", None)
    if forget is not None:
        forget()
        monkeypatch.setattr(napari.settings, "_CFG_PATH", str(tmp_path / "settings.yaml"))
    yield plugins
    if forget is not None:
        forget()


class Docks(QMainWindow):
    """In place of napari's window: docks of panels, and menus without entries."""

    def __init__(self, viewer):
        super().__init__()
        self._viewer, self.dock_widgets = viewer, {}
        self.plugins_menu, self.layers_menu = QMenu(), QMenu()

    def add_dock_widget(self, panel, *, name, tabify=False):
        dock = QDockWidget(name, self)
        dock.setWidget(panel)
        self.addDockWidget(Qt.DockWidgetArea.RightDockWidgetArea, dock)
        self.dock_widgets[name] = panel
        for event in CHANGES if hasattr(panel, "reset_choices") else ():
            getattr(self._viewer.layers.events, event).connect(panel.reset_choices)

    def remove_dock_widget(self, panel):
        for name, each in list(self.dock_widgets.items()):
            if panel in (each, "all"):
                del self.dock_widgets[name]
                dock = each.parent()
                each.setParent(None)
                dock.deleteLater()


class Headless(ViewerModel):
    """napari's viewer without its window, which takes most of the time of a test that has one."""

    _window: Docks = None

    def __init__(self):
        super().__init__()
        self._window = Docks(self)

    @property
    def window(self):
        return self._window


@pytest.fixture(scope="module")
def window(plugins, qapp):
    """A napari window that the tests of a module share; `viewer` leaves it as it was.

    Those that look at no more than layers and panels do without it, as it is slow.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StatusChecker, "start", lambda _: None)
        patch.setattr(QtViewer, "_get_console", lambda _: QWidget())
        # It takes long to search for garbage after each layer that is removed.
        patch.setattr(canvas, "gc", SimpleNamespace(collect=lambda: 0), raising=False)
        shared = napari.Viewer(show=False)
        QtViewer._instances.clear()  # where `make_napari_viewer` looks for windows left open
        patch.setattr(shared.window._qt_window, "_save_current_window_settings", lambda: None)
        yield shared
        shared.close()


def state(viewer):
    """What tests may change of a window."""
    dims = viewer.dims
    return {
        "layers": list(viewer.layers),
        "panels": list(viewer.window.dock_widgets),
        "dims": (dims.ndim, dims.ndisplay, dims.order, dims.axis_labels),
        "keys": dict(viewer.keymap),
        "mouse": list(viewer.mouse_drag_callbacks),
        "theme": viewer.theme,
        "progress": list(progress._all_instances),
        "followed": {
            (owner, name): len(emitter.callbacks)
            for owner in ("dims", "layers")
            for name, emitter in getattr(viewer, owner).events.emitters.items()
        },
    }


@pytest.fixture
def viewer(request, plugin, qtbot):
    """An empty viewer, in a window for tests that use `window`; what a test opens is closed."""
    in_window = "window" in request.fixturenames
    viewer = request.getfixturevalue("window") if in_window else Headless()
    viewer.reset_view()
    before = state(viewer)
    yield viewer
    viewer.layers.clear()
    close_panels(viewer)
    viewer.theme, viewer.dims.ndisplay = before["theme"], 2
    viewer.dims.order, viewer.dims.axis_labels = (0, 1), before["dims"][-1]
    qtbot.waitUntil(lambda: not progress._all_instances)
    assert state(viewer) == before


def close_panels(viewer):
    """Close the panels as the user does, and forget them as napari does when a window closes."""
    viewer.window.remove_dock_widget("all")
    for panel in QApplication.topLevelWidgets():
        if isinstance(panel, Panel):
            for event in CHANGES if hasattr(panel, "reset_choices") else ():
                getattr(viewer.layers.events, event).disconnect(panel.reset_choices)
            panel.deleteLater()
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    QApplication.processEvents()


@pytest.fixture
def open_panel(viewer, qtbot):
    """Open the panel Filter, at a filter."""

    def open_it(title="NL-means"):
        panel = docks.open_panel(viewer, "Filter")
        panel.filter.box.setCurrentText(title)
        qtbot.waitUntil(lambda: panel.options.device.caption.text() != "")
        return panel

    return open_it


@pytest.fixture
def open_noise(viewer):
    """Open the panel that measures noise as napari's menus do."""

    return lambda: docks.open_panel(viewer, "Estimated noise")


@pytest.fixture
def measured(qtbot):
    """Wait until a panel has measured, or says why not; returns its status line."""

    def wait(panel):
        def ended():
            return panel.estimate() is not None or panel.status.text().startswith("<b>Not")

        qtbot.waitUntil(ended)
        return f"{panel.status.text()} {panel.details}".rstrip()

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
def pasted(viewer):
    """Run a panel's Python call as in napari's console, up to a word; returns its variables.

    The layer that it adds is taken out again; it is the variable "added".
    """

    def paste(panel, until=None):
        scope, code = {"viewer": viewer}, copied(panel.python_action)
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
        return f"{panel.status.text()} {panel.details}".rstrip()

    return wait


@pytest.fixture
def run(finish):
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
    """Hold every run back after its first tile, or before the end of its only one."""
    from napari_gpu_denoise.run import denoise as runs

    real, gate = runs.denoise_image, threading.Event()

    def slow(*args, progress, **options):
        done = []

        def hold(step):
            if any(done) or 0 < step.done == step.total:
                gate.wait()
            done.append(step.done)
            return step

        return real(*args, progress=progress.within(hold), **options)

    monkeypatch.setattr(runs, "denoise_image", slow)
    yield gate
    gate.set()


@pytest.fixture
def small_memory(monkeypatch, tmp_path):
    """Hold at most 1000 bytes of a result in memory; returns the folder of larger ones."""
    from napari_gpu_denoise._napari.layers import arrays

    folder = tmp_path / "results"
    folder.mkdir()
    monkeypatch.setattr(arrays, "LARGEST_IN_MEMORY", 1000)
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


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
