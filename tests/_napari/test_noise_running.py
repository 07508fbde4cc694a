"""Measuring off the GUI thread: superseded, closed, and of few planes."""

import threading
import time

import numpy as np
import pytest

pytestmark = pytest.mark.gui


@pytest.fixture
def slow(monkeypatch):
    """Hold measuring of images of 40 rows until the gate opens; what began and what ended."""
    from _napari.noise_records import estimate
    from napari_gpu_denoise._napari.noise import measuring

    gate, began, ended = threading.Event(), [], []

    def wait(image, axes=None, model="auto", *, device=None):
        began.append(image.shape)
        if image.shape[-2] == 40:
            gate.wait()
        _ = image[0]  # of lazy data this stops
        ended.append(image.shape)
        return estimate(notes=(f"{image.shape[-2]} rows",))

    monkeypatch.setattr(measuring, "estimate_noise", wait)
    yield gate, began, ended
    gate.set()


def test_another_layer_takes_the_place(viewer, open_noise, measured, slow, qtbot):
    gate, began, ended = slow
    viewer.add_image(np.zeros((40, 30)), name="long")
    panel = open_noise()
    qtbot.waitUntil(lambda: began == [(40, 30)])
    viewer.add_image(np.zeros((20, 30)), name="short")
    assert panel.layer.currentText() == "short" and panel.status.text() == "Measuring …"
    qtbot.wait(400)
    assert panel.estimate() is None
    gate.set()
    measured(panel)
    assert ended == [(40, 30), (20, 30)]
    assert panel.estimate().notes == ("20 rows",)
    qtbot.wait(100)
    assert panel.estimate().notes == ("20 rows",)


def test_a_result_that_comes_too_late(viewer, open_noise, measured, slow, qtbot):
    gate, began, ended = slow
    viewer.add_image(np.zeros((40, 30)), name="long")
    panel = open_noise()
    qtbot.waitUntil(lambda: bool(began))
    worker = panel._measuring.worker
    gate.set()
    # The worker ends, but Qt has not told the panel yet.
    while worker.is_running:
        time.sleep(0.01)
    viewer.layers.clear()
    qtbot.wait(100)
    assert ended and panel.estimate() is None and panel.result.verdict.text() == ""


def test_the_gui_is_free_meanwhile(viewer, open_noise, slow, qtbot):
    gate, began, _ = slow
    viewer.add_image(np.zeros((40, 30)))
    panel = open_noise()
    qtbot.waitUntil(lambda: bool(began))
    assert panel.status.text() == "Measuring …" and not panel.use_button.isEnabled()
    for _ in range(5):
        viewer.add_labels(np.zeros((4, 4), int))  # handled while it measures
    assert len(viewer.layers) == 6
    gate.set()


@pytest.mark.parametrize("closed", ["panel", "viewer"])
def test_closed_in_the_middle(viewer, open_noise, slow, qtbot, closed):
    import dask.array as da

    gate, began, ended = slow
    viewer.add_image(da.zeros((40, 30), chunks=10))
    panel = open_noise()
    qtbot.waitUntil(lambda: bool(began))
    worker = panel._measuring.worker
    if closed == "panel":
        viewer.window.remove_dock_widget(panel)
    else:
        viewer.close()
    assert worker.abort_requested
    gate.set()
    qtbot.waitUntil(lambda: not worker.is_running)
    qtbot.wait(50)
    assert ended == []  # it was stopped before it read
    if closed == "panel":
        again = open_noise()
        assert again is not panel


def test_a_closed_panel_follows_nothing(viewer, open_noise, measured, quick, noisy, qtbot):
    viewer.add_image(noisy)
    panel = open_noise()
    measured(panel)
    viewer.window.remove_dock_widget(panel)
    viewer.add_image(noisy[:30])
    qtbot.wait(500)
    assert len(quick) == 1


def test_a_long_lazy_stack_is_sampled(viewer, open_noise, measured):
    import dask.array as da

    read = []

    def frame(block_info=None):
        number = block_info[None]["array-location"][0][0]
        read.append(number)
        return np.random.default_rng(number).normal(100, 7, (1, 48, 64)).astype(np.float32)

    chunks = ((1,) * 400, (48,), (64,))
    stack = da.map_blocks(frame, chunks=chunks, dtype=np.float32, meta=np.empty((0, 0, 0), "f4"))
    viewer.add_image(stack, axis_labels=("t", "y", "x"), contrast_limits=(0, 200), cache=False)
    panel = open_noise()
    assert measured(panel) == ""
    assert panel.estimate().sigma[0] == pytest.approx(7, rel=0.05)
    assert f"{panel.estimate().planes} of 400 planes" in panel.result.rows.text()
    assert len(set(read)) <= 80
