"""Controls of the panel "Denoise", and their layout."""

from __future__ import annotations

import html
from collections.abc import Sequence

import napari.viewer
from qtpy.QtWidgets import QFrame, QVBoxLayout

from napari_gpu_denoise._napari.denoise.afterwards import Afterwards
from napari_gpu_denoise._napari.denoise.running import RunningPanel
from napari_gpu_denoise._napari.guide import with_guide
from napari_gpu_denoise._napari.parts import (
    Caption,
    button,
    choice,
    form_layout,
    progress_bar,
    stack,
)
from napari_gpu_denoise.filters.advice import cost
from napari_gpu_denoise.filters.advice.recommend import Advice

_TIP = (
    "Image layers to denoise: one layer, the selected layers, or all layers of a file, such as its "
    "channels. They are never changed."
)


class StartView(RunningPanel):
    """Layer and axes, the advice in words, one button to run it, and one for more settings."""

    def __init__(self, viewer: napari.viewer.Viewer):
        super().__init__(viewer, _TIP, whole_files=True)
        self.advice = Caption(rich=True)
        self.effort = choice(
            {"As recommended": None, "Faster": "fast", "Best quality": "high"},
            "Profile of the filter. Best quality takes much longer and gains little.",
        )
        self.effort.setAccessibleName("Effort")
        self.afterwards = Afterwards(viewer)
        self.run_button = button("Denoise", "Denoise as recommended. Results are new layers.")
        self.cancel_button = button("Cancel", "Stop; add no layer.")
        self.more_button = button(
            "More settings …", "Open the panel of this filter, with the layer and these settings."
        )
        self.progress = progress_bar()
        self._lay_out()
        self.show_running(False)

    def _lay_out(self) -> None:
        frame = QFrame()
        frame.setFrameShape(QFrame.Shape.StyledPanel)
        stack(inside := QVBoxLayout(frame), (self.advice,), spacing=0)
        inside.setContentsMargins(8, 8, 8, 8)
        effort = with_guide(self.effort, "guide/choosing_settings.md#what-is-recommended")
        self.arrange(
            (
                form_layout({"Image": self.layer, "Axes": self.axes}),
                frame,
                form_layout({"Effort": effort}),
            ),
            (
                (self.progress,),
                (self.status,),
                (self.afterwards,),
                (self.run_button,),
                (self.cancel_button, self.more_button),
            ),
        )

    def show_advice(self, names: Sequence[str], found: Sequence[Advice]) -> None:
        """Show the advice on layers; once where it is the same for all."""
        self.more_button.setEnabled(bool(found))
        if not found:
            self.advice.setText("")
            return
        same = len({(each.choice, each.reason) for each in found}) == 1
        time = cost.in_words(sum(each.seconds for each in found))
        if same:
            noise = " / ".join(dict.fromkeys(each.noise for each in found))
            parts = [_of_one(found[0], noise)]
        else:
            parts = [
                f"<b>{html.escape(name)}</b><br>{_of_one(each, each.noise)}"
                for name, each in zip(names, found, strict=True)
            ]
        hints = dict.fromkeys(hint for each in found for hint in each.hints)
        parts += [html.escape(hint) for hint in hints]
        parts.append(f"Takes {time}.")
        self.advice.setText("".join(f"<p style='margin: 0 0 6px 0'>{each}</p>" for each in parts))


def _of_one(advice: Advice, noise: str) -> str:
    image, reason, chosen = map(html.escape, (advice.image, advice.reason, advice.choice))
    name, _, rest = chosen.partition(", ")
    return (
        f"{image}; {html.escape(noise)}.</p><p style='margin: 0 0 6px 0'>"
        f"<b>{name}</b>{', ' + rest if rest else ''}, because {reason}."
    )
