"""From an unknown file to a good result of all its channels: few clicks, nothing typed."""

import numpy as np
import pytest
import tifffile

pytestmark = pytest.mark.gui
MOST_CLICKS = 4


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
