"""Opening of panels: what is loaded first, and how few clicks a result takes."""

import subprocess
import sys

import qtpy

# Mesa's OpenGL and pip's OpenCL drivers each bring an LLVM; mixed, they abort the process.
SCRIPT = """
import sys
import threading
import types

seen = {}


class Watch:
    def find_spec(self, name, path=None, target=None):
        seen.setdefault(name, threading.current_thread())


sys.meta_path.insert(0, Watch())

import napari
import numpy as np
from qtpy.QtWidgets import QApplication

viewer = napari.Viewer(show=True)
viewer.add_image(np.random.default_rng(0).normal(100, 10, (40, 40)).astype(np.float32))
QApplication.processEvents()
assert "pyopencl" not in sys.modules
menu = viewer.window.layers_menu
for title in ("Filter", "Denoise (GPU)", "NL-means (GPU Denoise)"):
    menu.aboutToShow.emit()
    (action,) = [each for each in menu.actions() if each.text().replace("&", "") == title]
    menu = action.menu()
action.trigger()
docks = viewer.window.dock_widgets
while "Filter (GPU Denoise)" not in docks:
    QApplication.processEvents()
panel = docks["Filter (GPU Denoise)"]
while not panel.options.device.caption.text():
    QApplication.processEvents()
heavy = ("filters.bm3d", "run.denoise", "noise.estimate", "files.batch", "assessment.assess")
for name in [f"napari_gpu_denoise.{each}" for each in heavy] + ["pyopencl"]:
    assert seen[name] is not threading.main_thread(), name
# What declares classes of Qt ends the process now and then, if it does so in another thread.
for name in ("denoise.panel", "parts", "inputs", "tasks", "noise.plots"):
    assert seen[f"napari_gpu_denoise._napari.{name}"] is threading.main_thread(), name
assert panel.options.device.box.count() > 1
panel.run()
while not panel.run_button.isEnabled():
    QApplication.processEvents()
assert panel.status.text().startswith("Done in ") and len(viewer.layers) == 2

# Plots: another binding that something imported comes first in the order pyqtgraph looks for one.
from napari_gpu_denoise._napari.docks import open_panel

assert "pyqtgraph" not in sys.modules
for name in ("PyQt6", "PySide6", "PyQt5"):
    sys.modules.setdefault(name, types.ModuleType(name))
hooks = sys.excepthook, threading.excepthook
curve = open_panel(viewer, "Estimated noise").result.curve
while "_canvas" not in vars(curve):
    QApplication.processEvents()
import pyqtgraph.Qt

assert seen["pyqtgraph"] is threading.main_thread()
assert hooks == (sys.excepthook, threading.excepthook)
print(pyqtgraph.Qt.QT_LIB)
viewer.close()
"""


def test_the_gui_thread_imports_nothing_heavy_and_plots_take_napari_s_qt(tmp_path, monkeypatch):
    monkeypatch.setenv("NAPARI_CONFIG", str(tmp_path / "settings.yaml"))
    command = [sys.executable, "-c", SCRIPT]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert ended.stdout.split()[-1] == qtpy.API_NAME
