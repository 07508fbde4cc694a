"""Opening of panels: what is loaded first, and how few clicks a result takes."""

import subprocess
import sys

import numpy as np
import pytest
import tifffile
from numpy.testing import assert_allclose

from _napari.conftest import PLUGIN
from _napari.inputs import find_entry

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
while "NL-means (GPU Denoise)" not in docks:
    QApplication.processEvents()
panel = docks["NL-means (GPU Denoise)"]
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

MOST_CLICKS = 4


def test_the_gui_thread_imports_nothing_heavy_and_survives_the_search_for_devices(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("NAPARI_CONFIG", str(tmp_path / "settings.yaml"))
    command = [sys.executable, "-c", SCRIPT]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert "Done in " in ended.stdout and ended.stdout.split()[-1] == "2"


@pytest.fixture
def stack(tmp_path):
    """A noisy 5D OME-TIFF with two channels, and the same without noise, (t, c, z, y, x)."""
    rng = np.random.default_rng(8)
    z, y, x = np.mgrid[:4, :32, :36]
    clean = np.stack([200 + 120 * np.sin((x + 2 * z) / 6) * np.cos(y / 7), 900 - 9.0 * (x + y)])
    clean = np.stack([clean] * 2)
    path = tmp_path / "unknown.ome.tif"
    noisy = np.rint(clean + rng.normal(0, 20, clean.shape)).clip(0).astype(np.uint16)
    metadata = {"axes": "TCZYX"}
    for axis, size in (("X", 0.2), ("Y", 0.2), ("Z", 0.5)):
        metadata |= {f"PhysicalSize{axis}": size, f"PhysicalSize{axis}Unit": "µm"}
    tifffile.imwrite(path, noisy, metadata=metadata, photometric="minisblack")
    return path, noisy, clean


def test_both_channels_of_a_file_of_five_axes(viewer, qtbot, click, stack):
    path, noisy, clean = stack
    viewer.open(path, plugin=PLUGIN)
    assert len(viewer.layers) == 2
    clicks = 2  # the menu Layers, and the entry; submenus open under the pointer
    name = "Denoise (GPU Denoise)"
    find_entry(viewer.window.layers_menu, "Filter", "Denoise (GPU)", name).trigger()
    qtbot.waitUntil(lambda: name in viewer.window.dock_widgets)
    panel = viewer.window.dock_widgets[name]
    click(panel.run_button)
    clicks += 1
    qtbot.waitUntil(lambda: panel.run_button.isEnabled())
    assert clicks <= MOST_CLICKS and panel.status.text() == "2 layers done."
    sources = [layer for layer in viewer.layers if "(" not in layer.name]
    for channel, source in enumerate(sources):
        begin = f"{source.name} (BM4D"
        (made,) = [layer for layer in viewer.layers if layer.name.startswith(begin)]
        assert made.metadata[PLUGIN]["axes"] == "TZYX"
        assert_allclose(made.scale, source.scale)
        assert made.units == source.units
        before, after = (
            np.std(image - clean[:, channel]) for image in (noisy[:, channel], made.data)
        )
        assert after < before / 3
