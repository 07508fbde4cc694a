"""Results of runs: their layers, and what is done with them."""

from __future__ import annotations

from weakref import ref

from napari.layers import Layer
from napari.viewer import Viewer
from qtpy.QtWidgets import QCheckBox, QVBoxLayout, QWidget

from napari_gpu_denoise._napari import docks
from napari_gpu_denoise._napari.layers.provenance import identity, is_result, made_from
from napari_gpu_denoise._napari.layers.results import NewLayer, Replaced, add_layer, shines_through
from napari_gpu_denoise._napari.parts import button, row_of, stack, wrapped
from napari_gpu_denoise._napari.tasks import Outcome

_KEEP = "Add a new layer for every run. Otherwise a run replaces the previous result."


def add_layers(viewer: Viewer, outcome: Outcome, keep: bool = True) -> list[Replaced]:
    """Add the result of a run, and its maps.

    Unless `keep`, they replace those of an earlier run of the filter on the same layer; returned
    is what was replaced.
    """
    request = outcome.request
    provenance = outcome.value.result.record.as_dict()
    spans = {"rows": request.rows, "columns": request.columns}
    provenance |= request.alone | {n: [at.start, at.stop] for n, at in spans.items() if at}
    source = request.placed
    result = NewLayer("", "image", outcome.value.result.image, source.attributes)
    layers = (result, *outcome.value.maps)
    replaced = [add_layer(viewer, source, each, provenance, keep) for each in layers]
    return [each for each in replaced if each is not None]


class ResultOptions(QWidget):
    """Adds results; offers to keep earlier ones, to undo and to compare.

    A source that would show through its result is hidden: additive channels would be twice as
    bright. What a run replaced, one result for each of its layers, is kept until the next run, or
    until its layer is removed, unless it takes 1 GiB.
    """

    def __init__(self, viewer: Viewer):
        super().__init__()
        self._viewer = viewer
        self._result: ref[Layer] | None = None
        self._replaced: list[Replaced] = []
        self.undone = False
        self._begun = True
        self.keep_both = QCheckBox("Keep both results", toolTip=wrapped(_KEEP))
        self.undo_button = button("Undo", "Exchange the last result and that before.", self.undo)
        self.compare_button = button(
            "Compare",
            "Compare source and result: curtain, residual, grey levels along a line.",
            lambda: docks.open_panel(viewer, "Compare").take(self.result()),
        )
        buttons = row_of(self.undo_button, self.compare_button)
        stack(QVBoxLayout(self), (self.keep_both, buttons), spacing=6)
        self.refresh()

    def begin(self) -> None:
        """Note that a run, of one layer or of several, begins; its results are undone together."""
        self._begun = True

    def add(self, outcome: Outcome) -> None:
        """Add the layers of a run as the box says."""
        layers, wanted = self._viewer.layers, outcome.request.source.identity
        if self.undone or self._begun:
            self._replaced = []  # freed before more is taken
        self._begun = False
        self._replaced += add_layers(self._viewer, outcome, self.keep_both.isChecked())
        found = [each for each in made_from(wanted, layers) if is_result(each)]
        active = layers.selection.active
        newest = active if active in found else next(reversed(found), None)
        self.undone = False
        self._result = None if newest is None else ref(newest)
        if newest is not None:
            layers.selection.active = newest
        source = next((each for each in layers if identity(each) == wanted), None)
        if source is not None and shines_through(source):
            source.visible = False
        self.refresh()

    def undo(self) -> None:
        """Bring the result back that was replaced, or the newer one again."""
        for each in self._replaced:
            each.swap()
        self.undone = not self.undone
        self._tell()

    def result(self) -> Layer | None:
        """Return the layer of the last result, if it is still there."""
        layer = self._result and self._result()
        return layer if layer in self._viewer.layers else None

    def refresh(self) -> None:
        """Follow the viewer's layers: those that are gone can be neither undone nor compared."""
        layers = self._viewer.layers
        self._replaced = [each for each in self._replaced if each.layer() in layers]
        self._tell()

    def _tell(self) -> None:
        self.undo_button.setText("Redo" if self.undone else "Undo")
        self.undo_button.setVisible(bool(self._replaced))
        self.compare_button.setVisible(self.result() is not None)
