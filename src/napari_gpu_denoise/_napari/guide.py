"""The guide and the pages on methods, as they come with the package, in a window."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from qtpy import QtWidgets
from qtpy.QtCore import Qt, QUrl
from qtpy.QtGui import QDesktopServices, QTextCursor, QTextDocument

import napari_gpu_denoise
from napari_gpu_denoise._napari.parts import row_of, told

_SIZE = (760, 720)  # pixels
_LINK_COLOUR = re.compile(r'(<a [^>]*><span style="[^"]*color:)#[0-9a-f]+')
# What only the pages on a forge show.
_HIDDEN = re.compile(r"<!--.*?-->|!\[[^\]]*\]\([^)]*\)", re.DOTALL)


def folder() -> Path:
    """Return the folder of the pages: that of the package, or of the repository."""
    package = Path(napari_gpu_denoise.__file__).parent
    installed = package / "docs"
    return installed if installed.is_dir() else package.parents[1] / "docs"


def anchor(heading: str) -> str:
    """Return the anchor of a heading, with which links to it end."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


class Guide(QtWidgets.QDialog):
    """Shows a page, given from the folder of all, at a heading after ``#`` if there is one.

    Links between pages are followed here, others in the browser.
    """

    def __init__(self, parent: QtWidgets.QWidget | None, page: str):
        super().__init__(parent)
        self.setWindowTitle("GPU Denoise: guide")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.resize(*_SIZE)
        self.text = QtWidgets.QTextBrowser()
        self.text.setOpenLinks(False)
        self.text.anchorClicked.connect(self._follow)
        layout = QtWidgets.QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.text)
        self._page = folder() / "index.md"  # from which links lead on
        self.show()  # first, as what is on top depends on the size
        self.raise_()
        self._follow(QUrl(page))

    def _follow(self, url: QUrl) -> None:
        if url.scheme() and url.scheme() != "file":
            QDesktopServices.openUrl(url)
            return
        if url.path():
            page = (self._page.parent / url.path()).resolve()
            if page.suffix != ".md" or not page.is_file():
                return
            self._page = page
            github = QTextDocument.MarkdownFeature.MarkdownDialectGitHub
            text = _HIDDEN.sub("", page.read_text(encoding="utf-8"))
            plain = QTextDocument()
            plain.setMarkdown(text, github)
            # Qt gives links a blue that a dark theme hides.
            colour = self.text.palette().text().color().name()
            self.text.setHtml(_LINK_COLOUR.sub(rf"\g<1>{colour}", plain.toHtml()))
            self.text.moveCursor(QTextCursor.MoveOperation.Start)
        if url.fragment():
            self._go_to(url.fragment())

    def _go_to(self, wanted: str) -> None:
        block = self.text.document().begin()
        while block.isValid():
            if block.blockFormat().headingLevel() and anchor(block.text()) == wanted:
                # From the end, so that the heading is on top.
                self.text.moveCursor(QTextCursor.MoveOperation.End)
                self.text.setTextCursor(QTextCursor(block))
                return
            block = block.next()


def with_guide(widget: QtWidgets.QWidget, page: Callable[[], str]) -> QtWidgets.QHBoxLayout:
    """Return a row of a widget and the button that opens a page in a window of its own."""
    button = told(QtWidgets.QToolButton(), "Open the guide.", "Guide")
    button.setText("?")
    button.clicked.connect(lambda: Guide(button.window(), page()))
    layout = row_of(widget, button, shares=(1,))
    layout.setAlignment(button, Qt.AlignmentFlag.AlignTop)
    return layout
