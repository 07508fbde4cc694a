"""Results of runs: their files, their layers and names, and what is done with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import ref

from napari.layers import Layer
from napari.viewer import Viewer
from qtpy.QtWidgets import QCheckBox, QFileDialog, QVBoxLayout, QWidget

from napari_gpu_denoise._napari import docks, preferences
from napari_gpu_denoise._napari.denoise.run import Request, offer_of, size_of_file, suggested
from napari_gpu_denoise._napari.layers.provenance import identity, is_result, made_from
from napari_gpu_denoise._napari.layers.results import NewLayer, Replaced, add_layer, shines_through
from napari_gpu_denoise._napari.parts import button, row_of, stack, wrapped
from napari_gpu_denoise._napari.tasks import Outcome
from napari_gpu_denoise._napari.wording import label_of
from napari_gpu_denoise.files import zarr
from napari_gpu_denoise.protocol.settings import size_in_words
from napari_gpu_denoise.run.request import Run

_MOST_WORDS = 4  # in a name; the record has all settings
_CORRECTED = {"stripes": "stripes removed", "outliers": "outliers removed", "found": "corrected"}

_HIDE = (
    "Hide the layer once it is denoised. Ticked automatically where both would show through each "
    "other; additive channels, for example, would be twice as bright."
)
_KEEP = "Add a new layer for every run. Otherwise a run replaces the previous result."
_LOOKS = ("blending", "opacity")


def ask_for_files(panel: QWidget, requests: Sequence[Request]) -> list[Request]:
    """Return requests with a file for each result that needs one; none if the user names none."""
    largest, found = preferences.read().largest_result, []
    for request in requests:
        target = None
        if size := size_of_file(request, largest):
            target = _asked(panel, request, size)
            if target is None:
                return []
        found.append(replace(request, target=target))
    return found


def _asked(panel: QWidget, request: Request, size: int) -> Path | None:
    title = f"File for the result of {request.source.name} ({size_in_words(size)})"
    name, _ = QFileDialog.getSaveFileName(
        panel, title, suggested(request), "OME-Zarr (*.ome.zarr *.zarr)"
    )
    if not name:
        return None
    return Path(name if zarr.places.has_suffix(name) else f"{name}.ome.zarr")


def add_layers(viewer: Viewer, outcome: Outcome, title: str, keep: bool = True) -> list[Replaced]:
    """Add the result of a run, and its maps, under the title of the filter.

    Unless `keep`, they replace those of an earlier run of the filter on the same layer; returned
    is what was replaced.
    """
    request = outcome.request
    provenance = outcome.value.result.record.as_dict()
    source, words = request.placed, differences(request.run) + request.words
    spans = {"rows": request.rows, "columns": request.columns}
    provenance |= request.alone | {n: [at.start, at.stop] for n, at in spans.items() if at}
    result = NewLayer("", "image", outcome.value.result.image, source.attributes)
    replaced = []
    for layer in (result, *outcome.value.maps):
        name = ", ".join([f"{title} {layer.title}".rstrip(), *words])
        replaced.append(add_layer(viewer, source, layer, name, provenance, keep))
    return [each for each in replaced if each is not None]


def differences(run: Run) -> list[str]:
    """Return in a few words how a run differs from one with the defaults of its filter."""
    profile, changes = run.filter.nearest_profile()
    default = next(iter(run.filter.presets))
    words = [] if profile == default else [f"profile {profile}"]
    offer = offer_of(run.filter)
    # A voxel size is that of the layer; a map is no setting of the result.
    silent = {"voxel", "" if offer is None else offer.setting}
    for name, value in changes.items():
        label = label_of(name).lower()
        if name not in silent:
            words.append(
                f"{'' if value else 'no '}{label}"
                if isinstance(value, bool)
                else f"{label} {value}"
            )
    if run.sigma is not None:
        given = run.sigma if isinstance(run.sigma, tuple) else (run.sigma,)
        words.append("sigma " + " / ".join(f"{value:.4g}" for value in given))
    elif run.noise is not None:
        words.append("one sigma" if run.noise == "gaussian" else "noise as measured")
    if run.sigma_factor != 1:
        words.append(f"strength {run.sigma_factor:g}")
    if run.correct is not None:
        words.append(_CORRECTED.get(run.correct.as_argument(), "corrected"))
    if run.dtype == "float32":
        words.append("float32")
    return words if len(words) <= _MOST_WORDS else [*words[: _MOST_WORDS - 1], "…"]


class ResultOptions(QWidget):
    """Adds results; offers to hide their source, to keep earlier ones, to undo and to compare.

    What a run replaced, one result for each of its layers, is kept until the next run, or until its
    layer is removed, unless it takes 1 GiB.
    """

    def __init__(self, viewer: Viewer):
        super().__init__()
        self._viewer = viewer
        self._source: ref[Layer] | None = None
        self._result: ref[Layer] | None = None
        self._replaced: list[Replaced] = []
        self.undone = self._by_hand = False
        self._begun = True
        self.hide_source = QCheckBox("Hide source", toolTip=wrapped(_HIDE))
        self.keep_both = QCheckBox("Keep both results", toolTip=wrapped(_KEEP))
        self.hide_source.clicked.connect(self._take_choice)
        self.undo_button = button("Undo", "", self.undo)
        self.compare_button = button(
            "Compare",
            "Compare source and result: curtain, residual, grey levels along a line.",
            lambda: docks.open_panel(viewer, "Compare").choose(self.result()),
        )
        boxes = row_of(self.hide_source, self.keep_both)
        buttons = row_of(self.undo_button, self.compare_button)
        stack(QVBoxLayout(self), (boxes, buttons), spacing=6)
        self.refresh()

    def take(self, layer: Layer | None) -> None:
        """Follow the choice of a layer."""
        self._source = None if layer is None else ref(layer)
        self.suggest()

    def events(self) -> list[tuple[Any, Any]]:
        """Return the events of the layer to follow, and their slot."""
        layer = self._source and self._source()
        names = () if layer is None else _LOOKS
        return [(getattr(layer.events, name), self.suggest) for name in names]

    def suggest(self, event: object = None) -> None:
        """Tick what hides the source, where both would be seen at once, unless it was clicked."""
        layer = self._source and self._source()
        if layer is not None and not self._by_hand:
            self.hide_source.setChecked(shines_through(layer))

    def reset(self) -> None:
        """Set both boxes to their defaults."""
        self._by_hand = False
        self.keep_both.setChecked(False)
        self.hide_source.setChecked(False)
        self.suggest()

    def begin(self) -> None:
        """Note that a run, of one layer or of several, begins; its results are undone together."""
        self._begun = True

    def add(self, outcome: Outcome, title: str) -> None:
        """Add the layers of a run as the boxes say."""
        layers, wanted = self._viewer.layers, outcome.request.source.identity
        if self.undone or self._begun:
            self._replaced = []  # freed before more is taken
        self._begun = False
        self._replaced += add_layers(self._viewer, outcome, title, self.keep_both.isChecked())
        found = [each for each in made_from(wanted, layers) if is_result(each)]
        active = layers.selection.active
        newest = active if active in found else next(reversed(found), None)
        self.undone = False
        self._result = None if newest is None else ref(newest)
        if newest is not None:
            layers.selection.active = newest
        source = next((each for each in layers if identity(each) == wanted), None)
        if source is not None and self.hide_source.isChecked():
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
        names = ", ".join(each.name for each in self._replaced)
        self.undo_button.setToolTip(wrapped(f"Bring back {names}." if names else ""))

    def _take_choice(self) -> None:
        self._by_hand = True
