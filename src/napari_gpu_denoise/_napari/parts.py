"""Small Qt parts that the panel and its forms are put together from."""

from __future__ import annotations

import html
from typing import Any

from qtpy.QtCore import QEvent, QObject, QSize, Qt
from qtpy.QtWidgets import QComboBox, QFormLayout, QFrame, QLabel, QScrollArea, QWidget
from superqt import QCollapsible


def wrapped(text: str) -> str:
    """Return a tooltip that Qt breaks into lines; plain text it would show as one long line."""
    return f"<qt>{html.escape(text)}</qt>"


def caption() -> QLabel:
    """Return a label for a sentence under a control."""
    label = QLabel()
    label.setWordWrap(True)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return label


def choice(items: dict[str, Any], tip: str) -> QComboBox:
    """Return a list of choices: text shown, value meant."""
    box = QComboBox()
    for text, value in items.items():
        box.addItem(text, value)
    box.setToolTip(wrapped(tip))
    return box


def ruler() -> QFrame:
    """Return a line that sets parts of a form apart."""
    line = QFrame()
    line.setFrameShape(QFrame.Shape.HLine)
    return line


def form_layout() -> QFormLayout:
    """Return a form layout with the spacing all parts of the panel share."""
    layout = QFormLayout()
    layout.setContentsMargins(0, 0, 0, 0)
    layout.setSpacing(6)
    layout.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.AllNonFixedFieldsGrow)
    layout.setLabelAlignment(Qt.AlignmentFlag.AlignLeft)
    return layout


def folded(title: str, layout: QFormLayout) -> QCollapsible:
    """Put a form under a title that folds it away; folded at first."""
    # The arrow stands in the text: as an icon it would keep the colour of the theme before.
    section = QCollapsible("▸ " + title, expandedIcon=" ", collapsedIcon=" ")
    section.toggleButton().setIconSize(QSize(0, 0))
    section.setDuration(0)
    section.layout().setContentsMargins(0, 0, 0, 0)
    # Flat in both states; a checked button of napari's theme is as bright as a selection.
    section.toggleButton().setStyleSheet(
        "QPushButton { text-align: left; border: none; background: transparent; }"
    )
    section.toggled.connect(lambda opened: section.setText(("▾ " if opened else "▸ ") + title))
    inside = QWidget()
    layout.setContentsMargins(12, 0, 0, 4)
    inside.setLayout(layout)
    section.addWidget(inside)
    return section


class Scrolled(QScrollArea):
    """Scrolls up and down only: never narrower than what it holds."""

    def __init__(self, inside: QWidget):
        super().__init__()
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setWidget(inside)

    def minimumSizeHint(self) -> QSize:
        """Return the width of the content beside a scroll bar, and a few lines of height."""
        width = self.widget().minimumSizeHint().width()
        bar = self.verticalScrollBar().sizeHint().width()
        return QSize(width + bar, super().minimumSizeHint().height())

    def sizeHint(self) -> QSize:
        """Return the size at which nothing is scrolled."""
        return QSize(self.minimumSizeHint().width(), self.widget().sizeHint().height())

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Tell the layout around when the content needs another width, as after a new theme."""
        if watched is self.widget() and event.type() == QEvent.Type.LayoutRequest:
            self.updateGeometry()
        return super().eventFilter(watched, event)


class WheelGuard(QObject):
    """Keeps the mouse wheel from changing a control that scrolls by under the pointer."""

    def watch(self, widget: QWidget) -> None:
        """Guard a control: the wheel works on it only after it was clicked."""
        widget.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        widget.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Hand wheel events of controls without focus on to the scroll area."""
        if event.type() == QEvent.Type.Wheel and not watched.hasFocus():
            event.ignore()
            return True
        return super().eventFilter(watched, event)
