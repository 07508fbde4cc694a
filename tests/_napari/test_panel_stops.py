"""Progress, cancel, errors, and closing things in the middle of a run."""

import threading
import time

import numpy as np
import pytest

from napari_gpu_denoise.errors import NoDeviceError
from napari_gpu_denoise.run import denoise as runs

pytestmark = pytest.mark.gui


@pytest.fixture
def big():
    """An image that a small memory limit cuts into many tiles."""
    rng = np.random.default_rng(1)
    return rng.normal(100, 10, (4, 128, 128)).astype(np.float32)


@pytest.fixture
def many_tiles(monkeypatch):
    """Set a memory limit so small that an image is cut into many tiles."""
    from napari_gpu_denoise._napari import preferences

    limited = preferences.Preferences(memory_limit=1_000_000)
    monkeypatch.setattr(preferences, "read", lambda: limited)


@pytest.fixture
def running(viewer, open_panel, click, qtbot, held, big, many_tiles):
    """Start a run of a layer that is held after its first tile; returns the panel."""

    def start(**layer):
        viewer.add_image(big, **layer)
        panel = open_panel()
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


def test_progress_moves_with_the_tiles(viewer, open_panel, run, big, many_tiles):
    viewer.add_image(big)
    panel = open_panel()
    seen = []
    panel.progress.valueChanged.connect(seen.append)
    run(panel)
    moved = [value for value in seen if value > 0]
    assert len(moved) > 3
    assert moved == sorted(moved)
    assert panel.progress.value() == panel.progress.maximum() == moved[-1]
    assert usable(panel)


def test_cancel_adds_nothing_and_the_next_run_works(viewer, run, click, finish, held, running):
    panel = running()
    assert not panel.run_button.isEnabled()
    click(panel.cancel_button)
    assert not panel.cancel_button.isEnabled()
    held.set()
    assert finish(panel) == "Cancelled: no layer was added."
    assert len(viewer.layers) == 1
    assert usable(panel)
    assert run(panel).startswith("Done in ")
    assert len(viewer.layers) == 2


def test_a_run_can_be_cancelled_in_napari_s_activity_dock(viewer, finish, held, running):
    from napari.utils.progress import progress

    panel = running(name="big")
    (bar,) = progress._all_instances
    assert "big" in bar.desc
    bar.cancel()
    held.set()
    assert finish(panel) == "Cancelled: no layer was added."
    assert not progress._all_instances
    assert len(viewer.layers) == 1


def test_second_click_while_running_does_nothing(
    viewer, open_panel, click, finish, qtbot, held, big, many_tiles
):
    viewer.add_image(big)
    panel = open_panel()
    click(panel.run_button)
    click(panel.run_button)
    panel.run()
    held.set()
    finish(panel)
    assert len(viewer.layers) == 2


def test_source_removed_in_the_middle(
    viewer, open_panel, click, finish, qtbot, held, big, many_tiles
):
    source = viewer.add_image(big, name="gone", scale=(1, 3, 3))
    panel = open_panel()
    held.set()
    expected = runs.denoise(big, panel.form.settings()).image
    held.clear()
    click(panel.run_button)
    qtbot.waitUntil(lambda: panel.progress.value() == 1)
    source.scale = (1, 9, 9)
    viewer.layers.remove(source)
    held.set()
    assert finish(panel).startswith("Done in ")
    (result,) = viewer.layers
    assert result.name == "gone (NL-means)"
    np.testing.assert_allclose(result.scale, (1, 3, 3))  # as it was when Run was clicked
    np.testing.assert_array_equal(result.data, expected)


def test_panel_closed_in_the_middle(viewer, open_panel, qtbot, held, running):
    panel = running()
    worker = panel.runs.worker
    ended = []
    worker.finished.connect(lambda: ended.append(True))
    viewer.window.remove_dock_widget(panel)
    held.set()
    qtbot.waitUntil(lambda: not worker.is_running)
    qtbot.wait(50)
    assert len(viewer.layers) == 1
    again = open_panel()
    assert again is not panel
    assert usable(again)


def test_viewer_closed_in_the_middle(viewer, qtbot, held, running):
    from napari.utils.progress import progress

    panel = running()
    worker = panel.runs.worker
    viewer.close()
    held.set()
    qtbot.waitUntil(lambda: not worker.is_running)
    qtbot.waitUntil(lambda: not progress._all_instances)
    assert worker.abort_requested


def test_no_device(viewer, open_panel, run, told, monkeypatch, noisy):
    from napari_gpu_denoise.opencl import device

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


def test_nan_is_refused_with_a_sentence(viewer, open_panel, run, told, noisy):
    image = noisy.astype(np.float32)
    image[2, 2] = np.nan
    viewer.add_image(image, contrast_limits=(0, 255))
    panel = open_panel()
    status = run(panel)
    assert status.startswith("<b>Not done.</b> 1 of 5120 pixels are NaN or infinite")
    assert "Result and device" in status
    assert any("NaN or infinite" in text for text in told())
    assert len(viewer.layers) == 1 and usable(panel)


@pytest.mark.parametrize(
    ("typed", "said"),
    [("TYX", "names 3 axes"), ("YY", "names Y twice"), ("Y1", "holds '1'"), ("TX", "has no Y")],
)
def test_wrong_axes(viewer, open_panel, run, told, noisy, typed, said):
    viewer.add_image(noisy)
    panel = open_panel()
    panel.axes.edit.setText(typed)
    assert said in panel.axes.caption.text()
    assert said in run(panel).replace("&#x27;", "'")
    assert said in told()[-1]
    assert len(viewer.layers) == 1 and usable(panel)


@pytest.mark.parametrize(
    ("typed", "said"),
    [("-3", "not a standard deviation"), ("ten", "not a number"), ("", "not a number")],
)
def test_wrong_sigma(viewer, open_panel, run, noisy, typed, said):
    viewer.add_image(noisy)
    panel = open_panel()
    panel.options.noise.choose("typed")
    panel.options.noise.edit.setText(typed)
    assert said in run(panel)
    assert len(viewer.layers) == 1 and usable(panel)


def test_settings_that_do_not_go_together_are_told_at_once(viewer, open_panel, run, noisy):
    viewer.add_image(noisy)
    panel = open_panel()
    panel.form.controls["window"].value = 20
    assert panel.status.text().startswith("<b>Not ready.</b> Window 20")
    assert "must be odd" in run(panel)
    panel.form.controls["window"].value = 11
    assert panel.status.text() == ""
    assert run(panel).startswith("Done in ")


def test_labels_are_refused(viewer, open_panel, run, told):
    viewer.add_labels(np.zeros((20, 20), np.uint8), name="cells")
    panel = open_panel()
    assert panel.layer.layer() is None
    assert not panel.layer.model().item(0).isEnabled()
    status = run(panel)
    assert "There is no image layer" in status
    assert told() == [status.replace("<b>Not done.</b> ", "").replace("&gt;", ">")]
    assert usable(panel)


def test_an_image_beside_labels_is_chosen(viewer, open_panel, noisy):
    viewer.add_image(noisy, name="picture")
    viewer.add_labels(np.zeros((20, 20), np.uint8))
    panel = open_panel()
    assert panel.layer.layer().name == "picture"
    viewer.layers.remove("picture")
    assert panel.layer.layer() is None
    viewer.add_image(noisy, name="next")
    assert panel.layer.layer().name == "next"
    viewer.layers["next"].name = "renamed"
    assert panel.layer.currentText() == "renamed"


def test_data_of_another_shape_after_the_choice(viewer, open_panel, run, noisy):
    layer = viewer.add_image(noisy)
    panel = open_panel()
    layer.data = noisy[:40, :50]
    assert run(panel).startswith("Done in ")
    assert viewer.layers[-1].data.shape == (40, 50)
    assert panel.axes.caption.text() == "40 by 50 pixels"


def test_a_fault_in_the_program_is_told_and_reported(
    viewer, open_panel, run, told, monkeypatch, noisy
):
    def broken(*args, **kwargs):
        yield from ()
        raise RuntimeError("gears jammed")

    monkeypatch.setattr(runs, "denoise_steps", broken)
    viewer.add_image(noisy)
    panel = open_panel()
    assert "gears jammed" in run(panel)
    assert any("gears jammed" in text for text in told())
    assert len(viewer.layers) == 1 and usable(panel)


def test_kernel_errors_end_the_run(viewer, open_panel, run, monkeypatch, noisy):
    def broken(*args, **kwargs):
        yield from ()
        raise NoDeviceError("the card was pulled out")

    monkeypatch.setattr(runs, "denoise_steps", broken)
    viewer.add_image(noisy)
    panel = open_panel()
    assert run(panel) == "<b>Not done.</b> the card was pulled out"
    assert usable(panel)


def test_cancel_when_the_result_is_on_its_way(
    viewer, open_panel, click, finish, noisy, monkeypatch
):
    real, at_work = runs.denoise_steps, threading.Event()

    def steps(*args, **kwargs):
        at_work.set()
        return real(*args, **kwargs)

    monkeypatch.setattr(runs, "denoise_steps", steps)
    viewer.add_image(noisy)
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


@pytest.mark.parametrize("stage", ["Measuring noise", "Compiling"])
def test_cancel_is_heard_while_nothing_moves(
    viewer, open_panel, click, run, qtbot, noisy, monkeypatch, stage
):
    from napari_gpu_denoise.noise import estimate
    from napari_gpu_denoise.run import part

    gate, workers = threading.Event(), []
    module, name = (estimate, "measure_noise") if stage[0] == "M" else (part, "TileFlow")
    real = getattr(module, name)

    def blocked(*args, **kwargs):
        gate.wait()
        return real(*args, **kwargs)

    monkeypatch.setattr(module, name, blocked)
    viewer.add_image(noisy)
    panel = open_panel()
    click(panel.run_button)
    workers.append(panel.runs.worker)
    qtbot.waitUntil(lambda: panel.status.text() == f"{stage} …")
    click(panel.cancel_button)
    assert panel.status.text() == "Cancelled: no layer was added."
    assert usable(panel)
    # The next run need not wait for the thread of the last.
    monkeypatch.setattr(module, name, real)
    panel.options.noise.edit.setText("10")
    panel.options.noise.choose("typed")
    assert run(panel).startswith("Done in ")
    said = panel.status.text()
    gate.set()
    qtbot.waitUntil(lambda: not workers[0].is_running)
    qtbot.wait(50)
    assert len(viewer.layers) == 2 and panel.status.text() == said and usable(panel)
