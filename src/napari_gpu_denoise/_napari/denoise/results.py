"""Results of runs: their layers, and what is done with them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from weakref import ref

from napari.layers import Layer
from napari.viewer import Viewer
from qtpy.QtWidgets import QCheckBox, QMenu, QWidget

from napari_gpu_denoise._napari import docks, resolve, snippets
from napari_gpu_denoise._napari.layers import provenance
from napari_gpu_denoise._napari.layers.results import add_layer, shines_through
from napari_gpu_denoise._napari.model import MEASURED, known_of
from napari_gpu_denoise._napari.parts import button, row_of, told
from napari_gpu_denoise._napari.tasks import Outcome

_REPEAT = (
    "Repeat all runs that made the selected result, in their order, on another layer or on files, "
    "or copy them as Python. Whole layers are filtered. Noise that was measured is measured again "
    "there; sigma or a model that was given stays as it is."
)
_ASKED = ("noise", "correct", "dtype", "nonfinite")  # of which a record tells only what was done
_KEEP = "Add a new layer for every run. Otherwise a run replaces the previous result."


def add_result(viewer: Viewer, outcome: Outcome, keep: bool = True) -> Layer:
    """Add the result of a run; return its layer.

    Unless `keep`, it replaces that of an earlier run of the filter on the same layer.
    """
    request, done = outcome.request, outcome.value
    runs = [each.as_dict() for each in (*done.earlier, done.result.record)]
    runs[0] |= request.alone | request.spans
    for record, run in zip(runs, (request.run, *request.then), strict=True):
        noise = run.noise if isinstance(run.noise, str | None) else MEASURED
        given = {"noise": noise, **snippets.common_arguments(run)}
        if asked := {name: given[name] for name in _ASKED if given.get(name)}:
            record[provenance.ASKED] = asked
    made = add_layer(viewer, request.placed, done.result.image, runs, keep)
    known_of(made).made_by = request.run_key
    return made


class ResultOptions(QWidget):
    """Adds results; offers to keep earlier ones, to compare, and to repeat.

    A source that would show through its result is hidden: additive channels would be twice as
    bright. `acts` are called with a result by `repeat_button`, which is to be put elsewhere: its
    runs are repeated on layers, in Batch, or copied.
    """

    def __init__(self, viewer: Viewer, *acts: Callable[..., object]):
        super().__init__()
        self._viewer = viewer
        self._result: ref[Layer] | None = None
        self.keep_both = told(QCheckBox("Keep both results"), _KEEP)
        self.compare_button = button(
            "Compare",
            "Compare source and result: curtain, residual, grey levels along a line.",
            lambda: docks.open_panel(viewer, "Compare").take(self.result()),
        )
        self._repeat, self._batch, self._copy = acts
        self.repeat_button = button("Repeat on", _REPEAT)
        self.menu = QMenu(self.repeat_button)
        self.menu.aboutToShow.connect(self._offer)
        self.repeat_button.setMenu(self.menu)
        self.setLayout(row_of(self.keep_both, self.compare_button))
        self.refresh()

    def add(self, outcome: Outcome) -> None:
        """Add the result of a run as the box says."""
        layers, wanted = self._viewer.layers, outcome.request.source.identity
        made = add_result(self._viewer, outcome, self.keep_both.isChecked())
        layers.selection.active = made
        if provenance.is_result(made):
            self._result = ref(made)
        source = next((each for each in layers if provenance.identity(each) == wanted), None)
        if source is not None and shines_through(source):
            source.visible = False
        self.refresh()

    def result(self) -> Layer | None:
        """Return the result that is selected, or else the last one, if it is still there."""
        layers = self._viewer.layers
        if (active := layers.selection.active) is not None and provenance.is_result(active):
            return active
        layer = self._result and self._result()
        return layer if layer in layers else None

    def refresh(self) -> None:
        """Follow the viewer's layers: one that is gone cannot be compared or repeated."""
        there = self.result() is not None
        self.compare_button.setVisible(there)
        self.repeat_button.setEnabled(there)

    def _offer(self) -> None:
        """List the images that the runs of the result can be repeated on."""
        self.menu.clear()
        if (result := self.result()) is None:
            return
        layers, runs = self._viewer.layers, len(provenance.records_of(result))
        origin = provenance.first_origin(result, layers)
        others = [each for each in reversed(resolve.inputs_of(layers, layers)) if each != origin]
        offered = {each.name.replace("&", "&&"): (each,) for each in others}
        if len(others) > 1:
            offered[f"All {len(others)} layers"] = tuple(others)
        for text, chosen in offered.items():
            self.menu.addAction(text, partial(self._repeat, result, chosen))
        self.menu.addSeparator()
        alone = "" if runs == 1 else f": one filter only, not {runs}"
        files = self.menu.addAction(f"Many files (Batch){alone}", partial(self._batch, result))
        files.setEnabled(runs == 1)
        self.menu.addAction("Copy Python call", partial(self._copy, result))
