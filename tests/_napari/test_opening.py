"""Opening of panels: what is loaded first, and how few clicks a result takes."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.gui

# Mesa's OpenGL and pip's OpenCL drivers each bring an LLVM; mixed, they abort the process.
SCRIPT = """
import sys
import threading

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
heavy = ("filters", "run.denoise", "noise.estimate", "_napari.denoise.panel")
for name in [f"napari_gpu_denoise.{each}" for each in heavy] + ["pyopencl"]:
    assert seen[name] is not threading.main_thread(), name
assert panel.options.device.box.count() > 1
panel.run()
while not panel.run_button.isEnabled():
    QApplication.processEvents()
print(panel.status.text(), len(viewer.layers))
viewer.close()
"""


def test_the_gui_thread_imports_nothing_heavy_and_survives_the_search_for_devices(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("NAPARI_CONFIG", str(tmp_path / "settings.yaml"))
    command = [sys.executable, "-c", SCRIPT]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert "Done in " in ended.stdout and ended.stdout.split()[-1] == "2"
