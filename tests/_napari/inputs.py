"""Data that are read from elsewhere, layers placed in the world, controls and menus by hand."""

import threading

import numpy as np
from qtpy.QtCore import Qt
from qtpy.QtGui import QAction
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QApplication

from napari_gpu_denoise.run.progress import Progress

# Where a layer of two planes lies, and what is known of it.
PLACED = {
    "scale": (2.0, 0.5, 0.25),
    "translate": (1, 2, 3),
    "rotate": [[1, 0, 0], [0, 0.6, -0.8], [0, 0.8, 0.6]],
    "shear": (0.1, 0.0, 0.2),
    "affine": np.diag([1.0, 2.0, 2.0, 1.0]),
    "units": ("second", "micrometer", "micrometer"),
    "axis_labels": ("t", "y", "x"),
}


def assert_same_place(layer, source):
    for attribute in ("scale", "translate", "rotate", "shear", "affine"):
        np.testing.assert_allclose(getattr(layer, attribute), getattr(source, attribute))
    assert (layer.units, layer.axis_labels) == (source.units, source.axis_labels)


class Sliced:
    """An array that can only be sliced, as a file's; it counts what is read of it.

    `on_read` is called before a thread other than that of the GUI reads.
    """

    def __init__(self, array, chunks=None, on_read=lambda: None):
        self.array, self.shape, self.dtype, self.ndim = array, array.shape, array.dtype, array.ndim
        self.read, self._on_read = [], on_read
        if chunks is not None:
            self.chunks = chunks

    def __getitem__(self, index):
        if threading.current_thread() is not threading.main_thread():
            self._on_read()
        self.read.append(index)
        return self.array[index]


def add_sliced(viewer, array, on_read=lambda: None, **attributes):
    """Add a layer of frames that are read when they are needed."""
    known = {"contrast_limits": (0, 900), "axis_labels": ("t", "y", "x"), "multiscale": False}
    return viewer.add_image(Sliced(array, on_read=on_read), **{**known, **attributes})


def drive(work, request, stopped=None):
    """Call what a task works with; returns the steps that it reports, and its value."""
    steps = []
    return steps, work(request, Progress(steps.append, stopped))


def click(what):
    """Click a button with the mouse, or choose an entry of a menu."""
    if isinstance(what, QAction):
        what.trigger()
    else:
        QTest.mouseClick(what, Qt.MouseButton.LeftButton)


def copied(button):
    """Click a button that copies text; return the text."""
    click(button)
    return QApplication.clipboard().text()


def rectangle(top, left, bottom, right, *plane):
    """Return the corners of a rectangle on a plane of a layer."""
    corners = [(top, left), (top, right), (bottom, right), (bottom, left)]
    return np.array([(*plane, *corner) for corner in corners], float)


def choose(box, value):
    """Choose the entry of a list that stands for a value."""
    box.setCurrentIndex(box.findData(value))


def type_sigma(panel, text="10"):
    """Type sigma in a filter's panel."""
    panel.options.noise.edit.setText(text)


def layer_names(viewer):
    return [layer.name for layer in viewer.layers]


def find_entry(menu, *path):
    """Follow titles down napari's menus."""
    for title in path:
        menu.aboutToShow.emit()
        titles = {a.text().replace("&", ""): a for a in menu.actions()}
        action = titles[title]
        menu = action.menu()
    return action
