"""Requests of panels that are worked on off the GUI thread, and the time that is left."""

import threading

import pytest
from qtpy.QtCore import QEvent, QObject
from qtpy.QtWidgets import QApplication

from napari_gpu_denoise._napari.tasks import Task, TimeLeft
from napari_gpu_denoise.run.progress import MEASURING, Step


@pytest.fixture
def make(qtbot):
    """Make a task whose requests named "held" wait for the gate, and the others are done at once.

    Lists grow when a request begins and when it ends.
    """
    parent, gate, began, ended = QObject(), threading.Event(), [], []

    def work(request, progress):
        began.append(request)
        if request == "held":
            gate.wait()
            progress.check()
        return len(request)

    def make_it(**options):
        task = Task(parent, work, "a task", **options)
        task.ended.connect(lambda outcome: ended.append((outcome.request, outcome.value)))
        task.start("held")
        qtbot.waitUntil(lambda: began == ["held"])
        return task, gate, began, ended

    yield make_it
    gate.set()


def test_a_request_that_is_dropped_holds_up_no_other_and_has_no_outcome(make, qtbot):
    task, gate, _, ended = make()
    task.drop()  # heard while nothing moves
    assert not task.running and task.busy
    task.start("next")
    qtbot.waitUntil(lambda: ended == [("next", 4)])
    gate.set()
    qtbot.waitUntil(lambda: not task.busy)
    task.start("done")
    while task.worker.is_running:  # Qt has not told of its outcome yet
        pass
    task.drop()
    task.start("last")
    qtbot.waitUntil(lambda: not task.busy)
    assert ended == [("next", 4), ("last", 4)]


def test_alone_it_waits_for_the_thread_before(make, qtbot):
    task, gate, began, ended = make(alone=True)
    for request in ("one", "other"):
        task.start(request)
    qtbot.wait(50)
    assert began == ["held"]
    gate.set()
    qtbot.waitUntil(lambda: not task.busy)
    assert began == ["held", "other"] and ended == [("other", 5)]


def test_a_task_that_is_destroyed_leaves_its_threads(make, qtbot):
    task, gate, *_ = make()
    worker = task.worker
    task.deleteLater()
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    assert worker.abort_requested
    gate.set()
    qtbot.waitUntil(lambda: not worker.is_running)


def test_the_time_left():
    now = [0.0]
    left = TimeLeft(lambda: now[0])

    def words(time, done):
        now[0] = time
        return left.words(Step(done, 10, "Denoising: tile"))

    assert words(0.0, 0) == "Denoising: tile 0 of 10"
    assert words(2.0, 1) == "Denoising: tile 1 of 10"
    assert words(10.0, 5) == "Denoising: tile 5 of 10, about 10 seconds left"
    assert words(10.0, 10) == "Denoising: tile 10 of 10"
    assert left.words(Step(0, 0, MEASURING)) == "Measuring noise …"
    # Another layer begins anew, and stands still.
    for time in (20.0, 40.0):
        assert words(time, 1) == "Denoising: tile 1 of 10"
