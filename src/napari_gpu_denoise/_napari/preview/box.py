"""The tick box of the live preview, and what it says."""

from __future__ import annotations

from qtpy.QtWidgets import QCheckBox, QVBoxLayout, QWidget

from napari_gpu_denoise._napari.parts import Caption, stack, wrapped

_TIP = (
    "Filter the visible part of the slice whenever settings, view or sliders change. The preview "
    "is a layer above the source, removed when this is unticked. Its pixels are those of a full "
    "run; while you drag, those of a faster profile."
)


class PreviewBox(QWidget):
    """A tick box, and below it a caption, empty unless it is ticked."""

    def __init__(self):
        super().__init__()
        self.box = QCheckBox("Live preview")
        self.box.setToolTip(wrapped(_TIP))
        self.caption = Caption()
        stack(QVBoxLayout(self), (self.box, self.caption), spacing=2)
        self.say("")

    def say(self, text: str) -> None:
        """Show what is previewed, or why nothing is."""
        if text != self.caption.text() or self.caption.isHidden() == bool(text):
            self.caption.setText(text)
            self.caption.setVisible(bool(text))
