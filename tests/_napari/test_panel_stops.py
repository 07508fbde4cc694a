"""Progress, cancel, errors, and closing things in the middle of a run."""

import gc
import weakref

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import napari_gpu_denoise as gd
from _napari.conftest import PLUGIN
from _napari.inputs import add_sliced, click, type_sigma
from napari_gpu_denoise.errors import NoDeviceError
from napari_gpu_denoise.run import denoise as runs


@pytest.fixture
def running(viewer, open_panel, qtbot, held, movie):
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


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("button", "Cancelled: no layer was added."),
        ("source removed", "Cancelled, as cells was removed: no layer was added."),
    ],
)
def test_a_run_that_is_ended_adds_nothing(viewer, finish, held, running, run, noisy, how, said):
    panel = running(name="cells")
    (source,) = viewer.layers
    viewer.layers.remove(viewer.add_image(noisy, name="other"))
    assert panel.runs.running and not panel.run_button.isEnabled()
    if how == "button":
        click(panel.cancel_button)
    else:
        viewer.layers.remove(source)
    held.set()
    assert finish(panel) == said
    assert list(viewer.layers) == [source] * (how != "source removed") and usable(panel)
    if viewer.layers:
        assert run(panel).startswith("Done in ") and len(viewer.layers) == 2


def test_a_run_is_of_the_layer_as_it_was(viewer, finish, held, movie, running):
    panel, seen = running(name="cells", scale=(1, 3, 3)), []
    panel.progress.valueChanged.connect(seen.append)
    (source,) = viewer.layers
    source.scale, source.name = (1, 9, 9), "renamed"
    assert panel.status.text().startswith("Denoising: frame 1 of 6")
    click(panel.run_button)  # while it is running, these do nothing
    panel.run()
    held.set()
    assert finish(panel).startswith("Done in ")
    _, result = viewer.layers
    assert result.name == "cells NL-means" and usable(panel)
    assert_allclose(result.scale, (1, 3, 3))
    assert_array_equal(result.data, runs.denoise(movie, gd.NLMeans(), 10.0, axes="TYX").image)
    moved = [value for value in seen if value > 0]
    assert len(moved) > 3 and moved == sorted(moved)
    assert panel.progress.value() == panel.progress.maximum() == moved[-1]


@pytest.mark.usefixtures("window")
@pytest.mark.parametrize("closed", ["panel", "window"])
def test_closed_in_the_middle(request, plugin, qtbot, held, noisy, closed):
    made = request.getfixturevalue("viewer" if closed == "panel" else "make_napari_viewer")
    viewer = made if closed == "panel" else made()
    viewer.add_image(noisy)
    _, panel = viewer.window.add_plugin_dock_widget(PLUGIN, "Filter")
    panel.filter.choose("bm3d")
    click(panel.run_button)
    worker = panel.runs.worker
    if closed == "panel":
        viewer.window.remove_dock_widget(panel)
    else:
        viewer.close()
    held.set()
    qtbot.waitUntil(lambda: not worker.is_running)
    assert worker.abort_requested
    if closed == "panel":
        qtbot.wait(50)
        assert len(viewer.layers) == 1
        _, again = viewer.window.add_plugin_dock_widget(PLUGIN, "Filter")
        assert again is not panel and usable(again)


def test_no_device(viewer, open_panel, run, told, machine, monkeypatch, noisy):
    viewer.add_image(noisy)
    machine()
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
    type_sigma(panel)
    assert panel.status.text() == "Takes a few seconds."  # an error goes with what it is about
    # What does not go together is told at once.
    panel.form.controls["window"].value = 20
    assert panel.status.text() == "<b>Not ready.</b> Window 20 must be odd."
    assert "must be odd" in run(panel)
    assert len(viewer.layers) == 2 and usable(panel)


def test_devices_that_are_listed_late_leave_what_was_said(viewer, open_panel, run, noisy):
    viewer.add_image(noisy)
    panel = open_panel()
    for image, begins in ((None, "Takes "), (noisy, "Done in "), (noisy * np.nan, "<b>Not done")):
        if image is not None:
            viewer.layers[0].data = image
            run(panel)
        said = panel.status.text()
        panel.options.device.listed.emit()
        assert panel.status.text() == said and said.startswith(begins)


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


@pytest.mark.usefixtures("window")
def test_a_large_result_is_kept_in_a_file_that_lives_as_long_as_its_layer(
    viewer, open_panel, run, movie, small_memory, qtbot
):
    add_sliced(viewer, movie, name="a")
    panel = open_panel()
    assert f"The result, 23 kB, is kept in a temporary file in {small_memory}" in run(panel)
    result = viewer.layers["a NL-means"]
    assert_array_equal(result.data, gd.nl_means(movie, axes="TYX"))
    mapping = weakref.ref(result.data.base)
    viewer.layers.remove(result)
    del result

    def gone():
        gc.collect()
        return mapping() is None

    qtbot.waitUntil(gone)
