"""The guide that panels open: pages that exist, at headings that exist."""

import pytest
from qtpy.QtCore import QUrl
from qtpy.QtGui import QDesktopServices
from qtpy.QtWidgets import QLabel, QToolButton, QWidget

from napari_gpu_denoise._napari import guide
from napari_gpu_denoise.filters import FILTERS

CHOOSING = "guide/choosing_settings.md#what-is-recommended"


def heading(text):
    """The text at the cursor, where a page was opened at a heading."""
    return text.textCursor().block().text()


@pytest.mark.parametrize("page", [*(f"methods/{kind.name}.md" for kind in FILTERS), CHOOSING])
def test_every_page_and_its_heading_are_there(qtbot, page):
    inside = QWidget()
    inside.setLayout(guide.with_guide(QLabel(), lambda: page))
    qtbot.addWidget(inside)
    inside.findChild(QToolButton).click()
    shown = inside.findChild(guide.Guide)
    text = shown.text.toPlainText()
    assert len(text) > 1000 and "<!--" not in text
    _, _, fragment = page.partition("#")
    assert guide.anchor(heading(shown.text)) == fragment or not fragment


def test_links_are_followed(qtbot, monkeypatch):
    shown = guide.Guide(None, CHOOSING)
    qtbot.addWidget(shown)
    shown.text.anchorClicked.emit(QUrl("../methods/volumes.md#cubes"))
    assert heading(shown.text) == "Cubes"
    shown.text.anchorClicked.emit(QUrl("bm4d.md#over-time"))
    assert heading(shown.text) == "Over time"
    opened = []
    monkeypatch.setattr(QDesktopServices, "openUrl", opened.append)
    shown.text.anchorClicked.emit(QUrl("https://example.org"))
    assert opened == [QUrl("https://example.org")]
    shown.text.anchorClicked.emit(QUrl("missing.md"))
    assert "Over time" in shown.text.toPlainText()
