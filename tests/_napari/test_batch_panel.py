"""The panel "Batch": files in, results out, as the command line makes them."""

import shlex
import threading

import numpy as np
import pytest
import tifffile
from numpy.testing import assert_array_equal
from qtpy.QtCore import QMimeData, QPointF, Qt, QUrl
from qtpy.QtGui import QDropEvent

import napari_gpu_denoise as gd
from _napari.inputs import choose, click, copied
from _napari.noise_records import estimate
from napari_gpu_denoise import cli
from napari_gpu_denoise._napari import docks
from napari_gpu_denoise._napari.layers.provenance import is_result
from napari_gpu_denoise._napari.tasks import Outcome
from napari_gpu_denoise.files import FORMAT_NAMES, one_file
from napari_gpu_denoise.files.batch import BatchProgress, BatchReport
from napari_gpu_denoise.noise.models import Gaussian
from napari_gpu_denoise.noise.structure.record import parse_correction
from zarr_stores import write_store


def image(seed=0, shape=(20, 24)):
    return np.random.default_rng(seed).normal(100, 9, shape).astype(np.uint16)


@pytest.fixture
def folder(tmp_path):
    """Three images, one of them broken, and a text file."""
    raw = tmp_path / "raw"
    raw.mkdir()
    for seed, name in enumerate("ac"):
        tifffile.imwrite(raw / f"{name}.tif", image(seed))
    (raw / "b.tif").write_text("not what its name says")
    (raw / "notes.txt").write_text("Monday")
    return raw


@pytest.fixture
def turns(calls, monkeypatch):
    """Let each file wait for its turn half way."""
    turns, stand_in = threading.Semaphore(0), one_file.denoise_image

    def wait(step):
        if step.done == 1:
            turns.acquire()
        return step

    def begin(data, run, progress):
        return stand_in(data, run, progress.within(wait))

    monkeypatch.setattr(one_file, "denoise_image", begin)
    return turns


@pytest.fixture
def batch(viewer, qtbot):
    """Add files to the panel, and wait until it has looked at them."""
    panel = docks.open_panel(viewer, "Batch")
    qtbot.waitUntil(lambda: panel.form.options.device.caption.text() != "")
    panel.form.filter.show_settings(gd.NLMeans(window=5))

    def add(*names):
        rows, before = panel.files.rows, len(panel.files.rows)
        panel.add([str(name) for name in names])
        qtbot.waitUntil(lambda: len(rows) >= before + len(names) and all(r.header for r in rows))
        return panel

    return add


def states(panel):
    return {row.path.name: row.state for row in panel.files.rows}


def cell(panel, row, column):
    return panel.files.rows[row].text(column)


def test_a_folder(batch, folder, run, calls, qtbot):
    panel, said = batch(folder), []
    panel.progress.valueChanged.connect(lambda _: said.append(panel.status.text()))
    assert [cell(panel, n, 0) for n in range(3)] == ["a.tif", "b.tif", "c.tif"]
    assert [cell(panel, n, 1) for n in (0, 1)] == ["Y20 X24", "cannot be read"]
    assert panel.form.output.text() == str(folder / "denoised")
    assert panel.run_button.text() == "Denoise 2 files"  # that can be read
    assert run(panel) == "<b>Not all done.</b> 2 denoised, 1 failed, 0 skipped."
    assert states(panel) == {"a.tif": "done", "b.tif": "failed", "c.tif": "done"}
    assert cell(panel, 0, 2).startswith("Done in ") and "7 values clipped" in cell(panel, 0, 2)
    assert cell(panel, 1, 2).startswith("Not a TIFF")  # the name is in the first column
    assert "1 of 2 files done." in said
    panel.files.rows[1].setSelected(True)
    assert panel.selected.text().startswith("b.tif: ")
    assert panel.selected.text().endswith(cell(panel, 1, 2))
    assert_array_equal(tifffile.imread(folder / "denoised/c.tif"), image(1) + 1)
    assert sorted(each.name for each in (folder / "denoised").iterdir()) == ["a.tif", "c.tif"]
    assert panel.run_button.text() == "Try 1 file again"
    tifffile.imwrite(folder / "b.tif", image(7))
    assert run(panel) == "<b>Done.</b> 3 denoised, 0 failed, 0 skipped."
    assert len(calls) == 3
    qtbot.waitUntil(lambda: cell(panel, 1, 1) == "Y20 X24")
    # What was said holds until the settings are others.
    panel.form.output.setText(str(folder / "elsewhere"))
    assert panel.status.text() == ""


def test_a_file_as_recommended(batch, tmp_path, run):
    tifffile.imwrite(tmp_path / "a.tif", image(shape=(64, 64)))
    panel = batch(tmp_path / "a.tif")
    choose(panel.form.filter.box, gd.Recommended)
    assert panel.form.filter.form.isHidden()  # it has no settings
    assert "Done" in run(panel)
    record = gd.read(tmp_path / "denoised/a.tif").history[-1]
    assert f"Done by {record['recommended'].split(',')[0]} in " in cell(panel, 0, 2)
    assert "gd.Recommended()" in copied(panel.python_action)
    assert copied(panel.command_action).startswith("gpu-denoise auto ")


def test_stop_and_go_on(batch, folder, calls, turns, qtbot, run):
    (folder / "b.tif").unlink()
    panel = batch(folder)
    choose(panel.form.existing, {"overwrite": True})
    click(panel.run_button)
    assert not panel.run_button.isEnabled()
    qtbot.waitUntil(lambda: panel.status.text() == "0 of 2 files done.")
    turns.release()
    qtbot.waitUntil(lambda: len(calls) == 2)
    qtbot.waitUntil(lambda: states(panel) == {"a.tif": "done", "c.tif": "running"})
    click(panel.stop_button)
    assert panel.status.text() == "Stopping …" and not panel.stop_button.isEnabled()
    turns.release(2)
    qtbot.waitUntil(lambda: not panel.runs.running)
    assert panel.status.text() == "<b>Stopped.</b> 1 denoised, 0 failed, 0 skipped."
    assert cell(panel, 1, 2) == "Stopped; it will start from the beginning"
    assert panel.run_button.text() == "Continue with 1 file"
    click(panel.run_button)
    assert panel.runs.request.batch.options.resume
    qtbot.waitUntil(lambda: panel.run_button.isEnabled())
    assert panel.status.text() == "<b>Done.</b> 2 denoised, 0 failed, 0 skipped."
    assert len(calls) == 3
    assert panel.run_button.text() == "Denoise 2 files"
    # What was complete when a batch was stopped is known at its end.
    done, panel._todo = panel.files.rows[0].report, panel.files.rows
    for row in panel.files.rows:
        row.wait()
    panel.files.rows[1].run(BatchProgress(panel.files.rows[1].path, 1, 2, 3, 4, "part"))
    panel.runs.ended.emit(Outcome(None, BatchReport((done,), True, ("b.part is kept",))))
    assert cell(panel, 1, 2) == "Stopped; what is done is kept"
    assert states(panel) == {"a.tif": "done", "c.tif": "stopped"}
    # One of them can be opened.
    panel.files.selectAll()
    assert panel.open_button.isEnabled()


def test_closed_half_way(batch, folder, calls, turns, qtbot):
    panel = batch(folder / "a.tif")
    click(panel.run_button)
    qtbot.waitUntil(lambda: bool(calls) and states(panel) == {"a.tif": "running"})
    worker = panel.runs.worker
    panel.stop()
    turns.release()
    qtbot.waitUntil(lambda: not (panel.runs.running or worker.is_running))
    assert states(panel) == {"a.tif": "stopped"} and not (folder / "denoised/a.tif").exists()


def test_inputs_and_results_are_opened_in_compare(viewer, batch, tmp_path, run, qtbot):
    source, result = tmp_path / "a.ome.tif", tmp_path / "denoised" / "a.ome.tif"
    told = {"axes": "CYX", "Channel": {"Name": ["DAPI", "GFP"]}}
    tifffile.imwrite(source, image(1, (2, 20, 24)), metadata=told)
    panel = batch(source)
    run(panel)
    viewer.open(str(source), plugin="napari-gpu-denoise")
    panel.files.rows[0].setSelected(True)
    viewer.camera.center, viewer.camera.zoom = (900.0, 900.0), 40.0
    click(panel.open_button)
    assert_array_equal(viewer.camera.center[-2:], (9.5, 11.5))  # of the image
    compared = viewer.window.dock_widgets["Compare (GPU Denoise)"]
    qtbot.waitUntil(lambda: compared.overlay.mode == "curtain")
    before, after = viewer.layers[:2], [each for each in viewer.layers if is_result(each)]
    assert compared.layer.layers() == tuple(after) and compared.before.layer() == before[0]
    assert [each.name for each in after] == ["a DAPI NL-means", "a GFP NL-means"]
    assert {each.source.path for each in after} == {str(result)}
    assert [each.source.path for each in viewer.layers].count(str(source)) == 2  # not opened again


def test_existing_results(batch, folder, run, calls):
    tifffile.imwrite(folder / "b.tif", image(2))
    panel = batch(folder)
    run(panel)
    panel.form.filter.form.controls["window"].value = 7
    run(panel)
    assert set(states(panel).values()) == {"failed"}
    assert "choose Replace them at Existing results" in cell(panel, 0, 2)
    choose(panel.form.existing, {})
    run(panel)
    assert set(states(panel).values()) == {"skipped"}
    assert "exists and was kept" in cell(panel, 0, 2)
    choose(panel.form.existing, {"overwrite": True})
    assert run(panel) == "<b>Done.</b> 3 denoised, 0 failed, 0 skipped."
    choose(panel.form.existing, {"resume": True})
    assert run(panel) == "<b>Done.</b> 0 denoised, 0 failed, 3 skipped."
    assert len(calls) == 6


def test_files_are_dropped_onto_the_list(batch, folder, qtbot):
    panel = batch(folder / "c.tif")
    names = ("a.tif", "c.tif", "b.tif", "notes.txt")
    dragged = QMimeData()
    dragged.setUrls([QUrl.fromLocalFile(str(folder / name)) for name in names])
    place, act = QPointF(20, 20), Qt.DropAction.CopyAction
    buttons = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    panel.files.dropEvent(QDropEvent(place, act, dragged, *buttons))
    qtbot.waitUntil(lambda: len(panel.files.rows) == 3)
    assert f"notes.txt is not a {FORMAT_NAMES} file" in panel.status.text()
    assert list(states(panel)) == ["c.tif", "a.tif", "b.tif"]
    # Two rows at once: those behind the first move up.
    for row in panel.files.rows[:2]:
        row.setSelected(True)
    qtbot.keyClick(panel.files, Qt.Key.Key_Delete)
    assert list(states(panel)) == ["b.tif"]


def test_code_that_does_the_same(batch, folder, calls, tmp_path, capsys):
    panel = batch(folder)
    panel.form.output.setText(str(tmp_path / "out.1"))
    panel.form.options.noise.edit.setText("9")
    panel.form.options.noise.choose("typed")
    panel.form.options.strength.slider.setValue(5)
    panel.form.axes.setText("YX")
    choose(panel.form.existing, {"overwrite": True})
    choose(panel.form.options.correct, "stripes")
    wanted = panel.form.run()
    command = copied(panel.command_action)
    assert command.count(".tif") == 0  # the folder stands for its files
    cli.main(shlex.split(command)[1:])
    assert "2 denoised, 1 failed" in capsys.readouterr().out
    scope = {}
    exec(copied(panel.python_action), scope)
    assert [file.input.name for file in scope["report"].failed] == ["b.tif"]
    assert sorted(each.name for each in (tmp_path / "out.1").iterdir()) == ["a.tif", "c.tif"]
    same = wanted.filter, "YX", parse_correction("stripes"), wanted.sigma_factor, [9]
    for run in calls:
        sigma = np.ravel(run.sigma).tolist()
        assert (run.filter, run.axes, run.correct, run.sigma_factor, sigma) == same


def test_settings_and_noise_come_from_other_panels(viewer, open_panel, open_noise, measured, quick):
    viewer.add_image(image(), name="one")
    tuned = open_panel("BM3D")
    tuned.form.profile.setCurrentText("fast")
    tuned.form.controls["threshold"].value = 2.5
    tuned.options.noise.hand_over(estimate((Gaussian(9.0),)), "one")
    tuned.options.strength.slider.setValue(4)
    tuned.options.nonfinite.setCurrentIndex(1)
    click(tuned.batch_button)
    panel = viewer.window.dock_widgets["Batch (GPU Denoise)"]
    run, shown = panel.form.run(), tuned.request().run
    for name in ("filter", "sigma", "noise", "nonfinite", "correct", "sigma_factor", "dtype"):
        assert getattr(run, name) == getattr(shown, name), name
    noise = open_noise()
    measured(noise)
    noise.target.setCurrentText("Batch")
    noise.use()
    assert panel.form.run().noise is noise.estimate()


def test_what_is_missing_is_told(batch, folder):
    panel = batch()
    click(panel.run_button)
    assert "There are no files in the list" in panel.status.text()
    batch(folder)
    panel.form.output.clear()
    click(panel.command_action)
    assert "choose one at Results in" in panel.status.text()
    panel.form.output.setText("out")
    panel.form.options.noise.choose("typed")
    panel.form.options.noise.edit.setText("much")
    click(panel.run_button)
    assert "much&#x27; is not a number" in panel.status.text() and not panel.runs.running


def test_fields_of_a_plate_have_names_that_differ(batch, tmp_path):
    pytest.importorskip("zarr")
    for field in "01":
        write_store(tmp_path / "screen.ome.zarr/A/1" / field, image(), "YX", levels=1)
    panel = batch(*(tmp_path / "screen.ome.zarr/A/1" / field for field in "01"))
    assert [cell(panel, n, 0) for n in (0, 1)] == [f"screen_A_1_{n}.ome.zarr" for n in (0, 1)]
    assert panel.form.output.text() == str(tmp_path / "denoised")
