"""Base of the panels that run filters on layers: progress, results and errors."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from napari.viewer import Viewer

from napari_gpu_denoise._napari.denoise.results import ResultOptions, ask_for_files
from napari_gpu_denoise._napari.inputs import REGIONS, RegionInput
from napari_gpu_denoise._napari.layers.provenance import identity
from napari_gpu_denoise._napari.model import NoiseChoice
from napari_gpu_denoise._napari.panel import LayerPanel
from napari_gpu_denoise._napari.parts import button, progress_bar, settling_timer
from napari_gpu_denoise._napari.run import Request, denoise_layer, report
from napari_gpu_denoise._napari.tasks import Outcome, Task, TimeLeft
from napari_gpu_denoise._napari.wording import duration
from napari_gpu_denoise.errors import DenoiseError, Note
from napari_gpu_denoise.run.progress import Step

_SETTLED = 150  # milliseconds without a change of the region
_REGION_TIP = (
    "Part of the layer to filter, in all frames and slices. Its pixels are those of a full run; "
    "noise is measured on the whole layer. The result lies over this part. Current view: the "
    "visible part. Rectangle: click Draw, and drag one over the image."
)


class RunPanel(LayerPanel):
    """A panel with runs, a button that starts them, and one that cancels them.

    A subclass says in `requests` what to run, and may follow the results in `took`.
    """

    failed = "Not done."
    out_of_memory = (
        "There is not enough memory for this image: crop it, or filter the file with gpu-denoise."
    )
    aloud = True

    def __init__(self, viewer: Viewer, tip: str, run_tip: str, **options: Any):
        super().__init__(viewer, tip, **options)
        viewer = self._viewer
        self.region = RegionInput(viewer, REGIONS, _REGION_TIP)
        self._settled = settling_timer(self, _SETTLED, self.draw)
        self.results, self.progress = ResultOptions(viewer), progress_bar()
        self.run_button = button("Denoise", run_tip, lambda: self.run())
        self.cancel_button = button("Cancel", "Stop; add no layer.", lambda: self.cancel())
        self.proof_button = button(
            "Take it for noise",
            "Denoise again, and remove what may be noise or fine texture.",
            self._take_for_noise,
        )
        self.proof_button.hide()
        self._unproven = ""  # name of the model of noise that was not proven
        self.region.changed.connect(self._follow_region)
        self.region.shapes.chosen.connect(self._follow_region)
        self.region.draw_button.clicked.connect(lambda: self.region.draw(self.layer.layer()))
        self.run_on_return(lambda: self.run())
        self.results.undo_button.clicked.connect(self._on_undo)
        self.follow("removed layers", [(viewer.layers.events.removed, self._on_removed)])
        self.runs = Task(self, denoise_layer, bar=True)
        self.runs.told.connect(self._on_step)
        self.runs.ended.connect(self._on_outcome)
        self.runs.stopped.connect(self._on_stopped)
        self._count = 0  # of the runs that were started together
        self._ended: list[str] = []  # names of their results, empty for those that failed
        self._seconds = 0.0
        self._left = TimeLeft()
        self.show_running(False)

    def requests(self) -> list[Request]:
        """Return the runs, one for each layer; raises `DenoiseError` if something does not fit."""
        raise NotImplementedError

    def draw(self, event: object = None) -> None:
        """Show what follows from the settings and the viewer."""
        raise NotImplementedError

    def adding(self) -> AbstractContextManager[None]:
        """Return a context in which a result is added."""
        return nullcontext()

    def _follow_region(self, event: object = None) -> None:
        """Follow the Shapes layer and the view, where the region is there."""
        self.model.region = self.region.region()
        whole = self.model.region.whole
        self.follow("region", () if whole else self.region.events())
        self._settled.start()

    def took(self, outcome: Outcome) -> None:
        """Follow a result that was added; nothing by default."""

    def cancel(self) -> None:
        """Leave all runs at once; no more layers will be added."""
        if self.runs.running:
            self.runs.drop()
            self._on_stopped()

    def run(self) -> None:
        """Run for each of the layers chosen, one after another; errors are shown in the panel."""
        if self.runs.running:
            return
        try:
            requests = ask_for_files(self, self.requests())
        except DenoiseError as error:
            self._give_up(error)
            return
        if not requests:
            self.say(
                "Nothing was run, as no file was named for the result. Smaller results need none: "
                "see Ask for a file above (MB) in napari's preferences."
            )
            return
        self.show_running(True)
        self.results.begin()
        self._count, self._ended, self._seconds = len(requests), [], 0.0
        named = [(each, f"{each.run.filter.title} of {each.source.name}") for each in requests]
        self.runs.proceed(named)

    def _give_up(self, error: Exception) -> None:
        self.show_error(error)

    def show_running(self, running: bool) -> None:
        """Show that a run can be cancelled, or that the next one can be started."""
        self.run_button.setEnabled(not running)
        self.cancel_button.setEnabled(running)
        self.progress.setVisible(running)
        if running:
            self.progress.setRange(0, 0)
            self.say("Starting …")
            self.proof_button.hide()

    def reset_choices(self, event: object = None) -> None:
        """Follow the viewer's layers."""
        super().reset_choices(event)
        self.region.refresh()
        self.results.refresh()

    def _follow_looks(self) -> None:
        """Follow how the layer that is chosen looks, which decides whether it is hidden."""
        self.results.take(self.layer.layer())
        self.follow("looks", self.results.events())

    def _on_step(self, step: Step) -> None:
        self.progress.setRange(0, step.total)
        self.progress.setValue(step.done)
        number = self._count - self.runs.waiting
        place = f"{number} of {self._count}: " if self._count > 1 else ""
        self.say(place + self._left.words(step))

    def _on_outcome(self, outcome: Outcome) -> None:
        self._ended.append("" if outcome.error is not None else outcome.request.name)
        self._seconds += outcome.seconds
        self.show_running(self.runs.running)
        try:
            if outcome.error is not None:
                raise outcome.error
            with self.adding():
                self.results.add(outcome)
        except Exception as error:
            self.show_error(error)
            return
        notes = [each for each in outcome.value.result.record.notes if isinstance(each, Note)]
        unproven = [each.values["model"] for each in notes if each.code == "unproven"]
        self._unproven = next(iter(unproven), "")
        self.proof_button.setVisible(bool(unproven))
        self.took(outcome)
        if not self.runs.running:
            text, details = (
                (summary, "") if (summary := self._summary()) else report(outcome, self.worded)
            )
            self.say(text, details=details)

    def _summary(self) -> str:
        """Summarise several runs; empty for a single one."""
        if self._count < 2:
            return ""
        done, time = [*filter(None, self._ended)], duration(self._seconds)
        names = ", ".join(done)
        if failed := self._count - len(done):
            return f"{len(done)} of {self._count} layers done, {failed} failed, in {time}: {names}."
        return f"Done in {time}: {names}."

    def _take_for_noise(self) -> None:
        """Denoise again with the model of noise that was not proven."""
        self.model.noise = NoiseChoice(self._unproven)
        self.run()

    def _on_undo(self) -> None:
        self.say("Undone: the result before it is back." if self.results.undone else "Redone.")

    def _on_removed(self, event: Any) -> None:
        """Stop where the layer that is filtered is removed."""
        request = self.runs.request
        if request is not None and identity(event.value) == request.source.identity:
            self.cancel()
            self.say(f"Cancelled, as {request.source.name} was removed: no layer was added.")

    def _on_stopped(self) -> None:
        self.show_running(False)
        if ended := len(self._ended):
            self.say(f"Cancelled after {ended} of {self._count} runs, whose results stay.")
        else:
            self.say("Cancelled: no layer was added.")
