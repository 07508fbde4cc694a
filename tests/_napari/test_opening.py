"""Opening of panels: what is loaded first, and how few clicks a result takes."""

import subprocess
import sys

import numpy as np
import pytest
import tifffile

pytestmark = pytest.mark.gui

LOADING = """
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

# Mesa's OpenGL and pip's OpenCL drivers each bring an LLVM; mixed, they abort the process.
OPENGL = """
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

MOST_CLICKS = 4


@pytest.fixture
def printed(tmp_path, monkeypatch):
    """Run a script in a process of its own; returns what it prints."""
    monkeypatch.setenv("NAPARI_CONFIG", str(tmp_path / "settings.yaml"))

    def run_it(script):
        ended = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr[-2000:]
        return ended.stdout

    return run_it


def test_the_gui_thread_imports_nothing_heavy(printed):
    assert "True" in printed(LOADING)


def test_napari_survives_the_search_for_devices(printed):
    text = printed(OPENGL)
    assert "Done in " in text and text.split()[-1] == "2"


@pytest.fixture
def stack(tmp_path):
    """A noisy 5D OME-TIFF with two channels, and the same without noise, (t, c, z, y, x)."""
    rng = np.random.default_rng(8)
    z, y, x = np.mgrid[:5, :40, :44]
    clean = np.stack([200 + 120 * np.sin((x + 2 * z) / 6) * np.cos(y / 7), 900 - 9.0 * (x + y)])
    clean = np.stack([clean] * 3)
    path = tmp_path / "unknown.ome.tif"
    noisy = np.rint(clean + rng.normal(0, 20, clean.shape)).clip(0).astype(np.uint16)
    metadata = {
        "axes": "TCZYX",
        "PhysicalSizeX": 0.2,
        "PhysicalSizeXUnit": "µm",
        "PhysicalSizeY": 0.2,
        "PhysicalSizeYUnit": "µm",
        "PhysicalSizeZ": 0.5,
        "PhysicalSizeZUnit": "µm",
    }
    tifffile.imwrite(path, noisy, metadata=metadata, photometric="minisblack")
    return path, noisy, clean


def test_both_channels_of_a_file_of_five_axes(viewer, qtbot, click, stack):
    from _napari.test_menus import find

    path, noisy, clean = stack
    viewer.open(path, plugin="napari-gpu-denoise")
    assert len(viewer.layers) == 2
    clicks = 2  # the menu Layers, and the entry; submenus open under the pointer
    entry = find(viewer.window.layers_menu, ["Filter", "Denoise (GPU)", "Denoise (GPU Denoise)"])
    entry.trigger()
    name = "Denoise (GPU Denoise)"
    qtbot.waitUntil(lambda: name in viewer.window.dock_widgets)
    panel = viewer.window.dock_widgets[name]
    click(panel.run_button)
    clicks += 1
    qtbot.waitUntil(lambda: panel.run_button.isEnabled())
    assert clicks <= MOST_CLICKS and panel.status.text() == "2 layers done."
    sources = [each for each in viewer.layers if "(" not in each.name]
    for channel, source in enumerate(sources):
        (made,) = [each for each in viewer.layers if each.name.startswith(f"{source.name} (BM4D")]
        assert made.metadata["napari-gpu-denoise"]["axes"] == "TZYX"
        np.testing.assert_allclose(made.scale, source.scale)
        assert made.units == source.units
        before, after = (
            np.std(image - clean[:, channel]) for image in (noisy[:, channel], made.data)
        )
        assert after < before / 3
