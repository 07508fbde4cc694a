"""Progress, cancel, errors, and closing things in the middle of a run."""

import threading
import time

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import napari_gpu_denoise as gd
from _napari.conftest import PLUGIN
from _napari.inputs import add_sliced, type_sigma
from napari_gpu_denoise.errors import NoDeviceError
from napari_gpu_denoise.opencl import device
from napari_gpu_denoise.run import denoise as runs

pytestmark = pytest.mark.gui


@pytest.fixture
def running(viewer, open_panel, click, qtbot, held, movie):
    """Start a run of a layer that is held after its first frame; returns the panel."""

    def start(**layer):
        add_sliced(viewer, movie, **layer)
        panel = open_panel()
        type_sigma(panel)
        click(panel.run_button)
        qtbot.waitUntil(lambda: panel.progress.value() == 1)
        return panel

    return start


def usable(panel):
    """Whether the panel is ready for the next run."""
    return (
        panel.run_button.isEnabled()
        and not panel.cancel_button.isEnabled()
        and panel.progress.isHidden()
    )


def test_cancel_adds_nothing_and_the_next_run_works(viewer, click, finish, held, running):
    panel = running()
    assert not panel.run_button.isEnabled()
    click(panel.cancel_button)
    assert not panel.cancel_button.isEnabled()
    held.set()
    assert finish(panel) == "Cancelled: no layer was added."
    assert len(viewer.layers) == 1 and usable(panel)
    seen = []
    panel.progress.valueChanged.connect(seen.append)
    click(panel.run_button)
    click(panel.run_button)  # while it is running, these do nothing
    panel.run()
    assert finish(panel).startswith("Done in ")
    assert len(viewer.layers) == 2 and usable(panel)
    moved = [value for value in seen if value > 0]
    assert len(moved) > 3 and moved == sorted(moved)
    assert panel.progress.value() == panel.progress.maximum() == moved[-1]


def test_source_removed_in_the_middle(viewer, finish, held, noisy, running):
    panel = running(name="gone")
    other = viewer.add_image(noisy, name="other")
    (source, _) = viewer.layers
    viewer.layers.remove(other)
    assert panel.runs.running
    viewer.layers.remove(source)
    held.set()
    assert finish(panel) == "Cancelled, as gone was removed: no layer was added."
    assert not viewer.layers and usable(panel)


def test_source_changed_in_the_middle(viewer, finish, held, movie, running):
    panel = running(name="cells", scale=(1, 3, 3))
    (source,) = viewer.layers
    source.scale, source.name = (1, 9, 9), "renamed"
    held.set()
    assert finish(panel).startswith("Done in ")
    result = viewer.layers[-1]
    assert result.name == "cells NL-means"
    assert_allclose(result.scale, (1, 3, 3))  # as it was when Run was clicked
    assert_array_equal(result.data, runs.denoise(movie, gd.NLMeans(), 10.0, axes="TYX").image)


def test_panel_closed_in_the_middle(viewer, open_panel, qtbot, held, running):
    panel = running()
    worker = panel.runs.worker
    viewer.window.remove_dock_widget(panel)
    held.set()
    qtbot.waitUntil(lambda: not worker.is_running)
    qtbot.wait(50)
    assert len(viewer.layers) == 1
    again = open_panel()
    assert again is not panel and usable(again)


def test_window_closed_in_the_middle(plugin, make_napari_viewer, click, qtbot, held, noisy):
    viewer = make_napari_viewer()
    viewer.add_image(noisy)
    _, panel = viewer.window.add_plugin_dock_widget(PLUGIN, "Filter")
    panel.filter.choose("bm3d")
    click(panel.run_button)
    worker = panel.runs.worker
    viewer.close()
    held.set()
    qtbot.waitUntil(lambda: not worker.is_running)
    assert worker.abort_requested


def test_no_device(viewer, open_panel, run, told, monkeypatch, noisy):
    viewer.add_image(noisy)
    monkeypatch.setattr(device, "_devices", tuple)
    panel = open_panel()
    assert panel.options.device.box.count() == 1
    assert "No OpenCL device was found" in panel.options.device.caption.text()
    status = run(panel)
    assert "No OpenCL device was found" in status and "pip install" in status
    assert told() and "Traceback" not in told()[-1]
    assert len(viewer.layers) == 1 and usable(panel)
    monkeypatch.undo()
    assert run(panel).startswith("Done in ")


def test_what_is_wrong_is_said_in_a_sentence(viewer, open_panel, run, told, noisy):
    viewer.add_labels(np.zeros((20, 20), np.uint8), name="cells")
    panel = open_panel()
    assert panel.layer.layer() is None and not panel.layer.model().item(0).isEnabled()
    status = run(panel)
    assert "There is no image layer" in status
    assert told() == [status.replace("<b>Not done.</b> ", "").replace("&gt;", ">")]

    holed = noisy.astype(np.float32)
    holed[2, 2] = np.nan
    viewer.add_image(holed, contrast_limits=(0, 255))
    status = run(panel)
    assert status.startswith("<b>Not done.</b> 1 of 5120 pixels are NaN or infinite")
    assert "Result and device" in status and "NaN or infinite" in told()[-1]

    panel.layer.choose(viewer.add_image(noisy))
    panel.axes.edit.setText("TX")
    assert "has no Y" in panel.axes.caption.text() and "has no Y" in run(panel)
    panel.axes.edit.setText("YX")
    type_sigma(panel, "-3")
    assert "not a standard deviation" in run(panel)
    type_sigma(panel)
    assert panel.status.text() == "Takes a few seconds."  # an error goes with what it is about
    # What does not go together is told at once.
    panel.form.controls["window"].value = 20
    assert panel.status.text() == "<b>Not ready.</b> Window 20 must be odd."
    assert "must be odd" in run(panel)
    assert len(viewer.layers) == 3 and usable(panel)
    panel.form.controls["window"].value = 11
    assert panel.status.text() == "Takes a few seconds."
    assert run(panel).startswith("Done in ")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("gears jammed"), "gears jammed"),
        (NoDeviceError("the card was pulled out"), "<b>Not done.</b> the card was pulled out"),
        (MemoryError(), "There is not enough memory for this image: crop it"),
    ],
    ids=["fault", "kernel", "memory"],
)
def test_a_run_that_fails(viewer, open_panel, run, told, movie, error, said):
    def broken():
        raise error

    add_sliced(viewer, movie, broken)
    panel = open_panel()
    assert said in run(panel)
    assert any(said.removeprefix("<b>Not done.</b> ") in text for text in told())
    assert len(viewer.layers) == 1 and usable(panel)


def test_cancel_when_the_result_is_on_its_way(viewer, open_panel, click, finish, movie):
    at_work = threading.Event()
    add_sliced(viewer, movie, at_work.set)
    panel = open_panel()
    click(panel.run_button)
    worker = panel.runs.worker
    # The worker ends, but Qt has not told the panel yet.
    at_work.wait()
    while worker.is_running:
        time.sleep(0.01)
    click(panel.cancel_button)
    assert finish(panel) == "Cancelled: no layer was added."
    assert len(viewer.layers) == 1


def test_cancel_is_heard_while_nothing_moves(viewer, open_panel, click, run, qtbot, movie):
    gate, readers = threading.Event(), []

    def hold_the_first():
        readers.append(threading.current_thread())
        if readers[-1] is readers[0]:
            gate.wait()

    add_sliced(viewer, movie, hold_the_first)
    panel = open_panel()
    click(panel.run_button)
    worker = panel.runs.worker
    qtbot.waitUntil(lambda: panel.status.text() == "Measuring noise …" and bool(readers))
    click(panel.cancel_button)
    assert panel.status.text() == "Cancelled: no layer was added."
    assert usable(panel)
    # The next run need not wait for the thread of the last.
    type_sigma(panel)
    assert run(panel).startswith("Done in ")
    said = panel.status.text()
    gate.set()
    qtbot.waitUntil(lambda: not worker.is_running)
    qtbot.wait(50)
    assert len(viewer.layers) == 2 and panel.status.text() == said and usable(panel)
