"""Results of runs: their layers, and what is done with them."""

from __future__ import annotations

from weakref import ref

from napari.layers import Layer
from napari.viewer import Viewer
from qtpy.QtWidgets import QCheckBox, QWidget

from napari_gpu_denoise._napari import docks
from napari_gpu_denoise._napari.layers.provenance import identity, is_result
from napari_gpu_denoise._napari.layers.results import add_layer, shines_through
from napari_gpu_denoise._napari.model import known_of
from napari_gpu_denoise._napari.parts import button, row_of, told
from napari_gpu_denoise._napari.tasks import Outcome

_KEEP = "Add a new layer for every run. Otherwise a run replaces the previous result."


def add_result(viewer: Viewer, outcome: Outcome, keep: bool = True) -> Layer:
    """Add the result of a run; return its layer.

    Unless `keep`, it replaces that of an earlier run of the filter on the same layer.
    """
    request, result = outcome.request, outcome.value.result
    record = result.record.as_dict() | request.alone | request.spans
    made = add_layer(viewer, request.placed, result.image, record, keep)
    known_of(made).made_by = request.run_key
    return made


class ResultOptions(QWidget):
    """Adds results; offers to keep earlier ones, and to compare.

    A source that would show through its result is hidden: additive channels would be twice as
    bright.
    """

    def __init__(self, viewer: Viewer):
        super().__init__()
        self._viewer = viewer
        self._result: ref[Layer] | None = None
        self.keep_both = told(QCheckBox("Keep both results"), _KEEP)
        self.compare_button = button(
            "Compare",
            "Compare source and result: curtain, residual, grey levels along a line.",
            lambda: docks.open_panel(viewer, "Compare").take(self.result()),
        )
        self.setLayout(row_of(self.keep_both, self.compare_button))
        self.refresh()

    def add(self, outcome: Outcome) -> None:
        """Add the result of a run as the box says."""
        layers, wanted = self._viewer.layers, outcome.request.source.identity
        made = add_result(self._viewer, outcome, self.keep_both.isChecked())
        layers.selection.active = made
        if is_result(made):
            self._result = ref(made)
        source = next((each for each in layers if identity(each) == wanted), None)
        if source is not None and shines_through(source):
            source.visible = False
        self.refresh()

    def result(self) -> Layer | None:
        """Return the layer of the last result, if it is still there."""
        layer = self._result and self._result()
        return layer if layer in self._viewer.layers else None

    def refresh(self) -> None:
        """Follow the viewer's layers: one that is gone cannot be compared."""
        self.compare_button.setVisible(self.result() is not None)
