"""What takes long in opening a panel is loaded off the GUI thread: in a process of its own."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.gui

SCRIPT = """
import sys
import threading

seen = {}


class Watch:
    def find_spec(self, name, path=None, target=None):
        seen.setdefault(name, threading.current_thread())


sys.meta_path.insert(0, Watch())

import napari
from qtpy.QtWidgets import QApplication

viewer = napari.Viewer(show=True)
menu = viewer.window.layers_menu
for title in ("Filter", "Denoise (GPU)", "BM3D (GPU Denoise)"):
    menu.aboutToShow.emit()
    (action,) = [each for each in menu.actions() if each.text().replace("&", "") == title]
    menu = action.menu()
action.trigger()
docks = viewer.window.dock_widgets
while "BM3D (GPU Denoise)" not in docks:
    QApplication.processEvents()
panel = docks["BM3D (GPU Denoise)"]
while not panel.options.device.caption.text():
    QApplication.processEvents()
heavy = ("filters", "run.denoise", "noise.estimate", "_napari.denoise.panel")
for name in [f"napari_gpu_denoise.{each}" for each in heavy] + ["pyopencl"]:
    assert seen[name] is not threading.main_thread(), name
print(panel.options.device.box.count() > 1)
viewer.close()
"""


def test_the_gui_thread_imports_nothing_heavy(tmp_path, monkeypatch):
    monkeypatch.setenv("NAPARI_CONFIG", str(tmp_path / "settings.yaml"))
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert "True" in ended.stdout
