"""The examples run as a user starts them."""

from __future__ import annotations

import napari
import numpy as np
import pytest

from tools.conftest import load


@pytest.fixture
def live():
    """The example of a camera, as a module."""
    return load("live_camera", "examples")


def test_a_camera_is_shown_denoised_until_the_window_is_closed(live, viewer, qtbot, monkeypatch):
    taken, ended = [], []

    def camera():
        try:
            for image in live_camera(shape=(48, 40), seconds=0):
                taken.append(image)
                yield image
        finally:
            ended.append(True)

    def until_it_is_closed():
        qtbot.waitUntil(lambda: "denoised" in viewer.layers)
        first = viewer.layers["denoised"].data
        qtbot.waitUntil(lambda: viewer.layers["denoised"].data is not first)
        assert viewer.title.endswith(" frames/s") and viewer.title[0].isdigit()
        shown, denoised = (viewer.layers[name].data for name in ("camera", "denoised"))
        assert any(shown is image for image in taken)
        assert denoised.shape == shown.shape == (48, 40)
        # Photons of neighbouring pixels differ by noise, those of the denoised image hardly.
        rough, smooth = (np.diff(pixels.astype(float)).std() for pixels in (shown, denoised))
        assert smooth < 0.5 * rough
        assert not ended

    live_camera = live.simulated_camera
    monkeypatch.setattr(live, "simulated_camera", camera)
    monkeypatch.setattr(napari, "Viewer", lambda: viewer)
    monkeypatch.setattr(napari, "run", until_it_is_closed)
    title = viewer.title
    live.main([])
    viewer.title = title
    assert ended


def test_a_camera_of_micro_manager(live):
    pytest.importorskip("pymmcore_plus", reason="pip install pymmcore-plus mm-test-adapters")
    pytest.importorskip("mm_test_adapters", reason="pip install mm-test-adapters")
    camera = live.micro_manager("MMConfig_demo.cfg", exposure=5.0)
    image, other = next(camera), next(camera)
    assert image.ndim == 2 and image.shape == other.shape
    core = camera.gi_frame.f_locals["core"]
    camera.close()
    assert not core.isSequenceRunning()
