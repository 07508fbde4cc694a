"""OpenCL looked for after OpenGL has drawn, as always in napari: in a process of its own."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.gui

# Mesa's OpenGL and pip's OpenCL drivers each bring an LLVM; mixed, they abort the process.
SCRIPT = """
import napari
import numpy as np
from qtpy.QtWidgets import QApplication

viewer = napari.Viewer(show=True)
viewer.add_image(np.random.default_rng(0).normal(100, 10, (40, 40)).astype(np.float32))
QApplication.processEvents()
assert "pyopencl" not in __import__("sys").modules
_, panel = viewer.window.add_plugin_dock_widget("napari-gpu-denoise", "NL-means")
while not panel.options.device.caption.text():
    QApplication.processEvents()
panel.run()
while not panel.run_button.isEnabled():
    QApplication.processEvents()
print(panel.status.text(), len(viewer.layers))
viewer.close()
"""


def test_napari_survives_the_search_for_devices(tmp_path, monkeypatch):
    monkeypatch.setenv("NAPARI_CONFIG", str(tmp_path / "settings.yaml"))
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert "Done in " in ended.stdout
    assert ended.stdout.split()[-1] == "2"
