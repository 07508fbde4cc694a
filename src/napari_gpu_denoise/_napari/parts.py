"""Small Qt widgets and layouts that the panels share."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from qtpy import QtWidgets
from qtpy.QtCore import QEvent, QObject, QSize, Qt, QTimer
from qtpy.QtGui import QKeyEvent, QResizeEvent

_BORDER = 2  # pixels that napari's theme puts around

Told = TypeVar("Told", bound=QtWidgets.QWidget)
Box = TypeVar("Box", bound=QtWidgets.QComboBox)


def wrapped(text: str) -> str:
    """Return a tooltip that Qt breaks into lines; it shows plain text as one long line."""
    return f"<qt>{html.escape(text)}</qt>"


def told(widget: Told, tip: str = "", name: str = "") -> Told:
    """Give a widget a tooltip, and the name that a screen reader says; return it."""
    widget.setToolTip(wrapped(tip) if tip else "")
    widget.setAccessibleName(name)
    return widget


class Caption(QtWidgets.QLabel):
    """Wrapped text that is never cut off: in a low panel other widgets shrink instead."""

    def __init__(self, *, rich: bool = False):
        super().__init__()
        self.setWordWrap(True)
        links = Qt.TextInteractionFlag.LinksAccessibleByMouse
        self.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse | links)
        # Named: Qt would take escaped text without any tags for plain text.
        self.setTextFormat(Qt.TextFormat.RichText if rich else Qt.TextFormat.PlainText)

    def setText(self, text: str) -> None:
        """Show a text."""
        super().setText(text)
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Adapt the height to the new width."""
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        # Layouts respect a minimum height, but not the height that wrapped text needs. The one set
        # before would count as needed.
        self.setMinimumHeight(0)
        self.setMinimumHeight(self.heightForWidth(self.width()) if self.text() else 0)


def button(text: str, tip: str, act: Callable[[], Any] | None = None) -> QtWidgets.QPushButton:
    """Return a button with a tooltip, and what a click does."""
    made = told(QtWidgets.QPushButton(text), tip)
    if act is not None:
        made.clicked.connect(lambda: act())
    return made


def narrow(box: Box, characters: int = 12) -> Box:
    """Allow a list to be narrower than its longest item."""
    box.setSizeAdjustPolicy(
        QtWidgets.QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
    )
    box.setMinimumContentsLength(characters)
    return box


def add_item(box: QtWidgets.QComboBox, text: str, value: Any, tip: str) -> None:
    """Add an item with a tooltip of its own to a list."""
    box.addItem(text, value)
    box.setItemData(box.count() - 1, wrapped(tip), Qt.ItemDataRole.ToolTipRole)


def disable_item(box: QtWidgets.QComboBox, row: int) -> None:
    """Show an item of a list that cannot be chosen."""
    box.setItemData(row, 0, Qt.ItemDataRole.UserRole - 1)


def row_of(
    *widgets: QtWidgets.QWidget, spacing: int = 6, shares: Sequence[int] = ()
) -> QtWidgets.QHBoxLayout:
    """Return widgets beside each other, without a margin.

    `shares` are those that the first ones take of the width.
    """
    layout = QtWidgets.QHBoxLayout()
    layout.setSpacing(spacing)
    layout.setContentsMargins(0, 0, 0, 0)
    for number, widget in enumerate(widgets):
        layout.addWidget(widget, shares[number] if number < len(shares) else 0)
    return layout


def holding(layout: QtWidgets.QLayout) -> QtWidgets.QWidget:
    """Return a widget that holds a layout."""
    widget = QtWidgets.QWidget()
    widget.setLayout(layout)
    return widget


def stack(
    layout: QtWidgets.QVBoxLayout,
    parts: Iterable[QtWidgets.QWidget | QtWidgets.QLayout],
    spacing: int,
) -> None:
    """Put widgets and layouts below each other, without a margin."""
    layout.setContentsMargins(0, 0, 0, 0)
    layout.setSpacing(spacing)
    for each in parts:
        if isinstance(each, QtWidgets.QLayout):
            layout.addLayout(each)
        else:
            layout.addWidget(each)


def choice(items: Mapping[str, Any], tip: str, name: str = "") -> QtWidgets.QComboBox:
    """Return a drop-down list of texts and their values."""
    box = told(QtWidgets.QComboBox(), tip, name)
    for text, value in items.items():
        box.addItem(text, value)
    return box


def progress_bar() -> QtWidgets.QProgressBar:
    """Return a progress bar that keeps its room while it is hidden."""
    bar = QtWidgets.QProgressBar()
    policy = bar.sizePolicy()
    policy.setRetainSizeWhenHidden(True)
    bar.setSizePolicy(policy)
    return bar


def settling_timer(parent: QObject, milliseconds: int, act: Callable[[], Any]) -> QTimer:
    """Return a timer that acts once, a while after it was last started."""
    timer = QTimer(parent)
    timer.setSingleShot(True)
    timer.setInterval(milliseconds)
    timer.timeout.connect(act)
    return timer


def ruler() -> QtWidgets.QFrame:
    """Return a horizontal line between parts of a form."""
    line = QtWidgets.QFrame()
    line.setFrameShape(QtWidgets.QFrame.Shape.HLine)
    return line


def form_layout(rows: dict[str, QtWidgets.QWidget] | None = None) -> QtWidgets.QFormLayout:
    """Return a form of labels and controls with the spacing all parts of the panel share."""
    layout = QtWidgets.QFormLayout()
    layout.setContentsMargins(0, 0, 0, 0)
    layout.setSpacing(6)
    layout.setFieldGrowthPolicy(QtWidgets.QFormLayout.FieldGrowthPolicy.AllNonFixedFieldsGrow)
    # In a narrow dock a control goes below its label.
    layout.setRowWrapPolicy(QtWidgets.QFormLayout.RowWrapPolicy.WrapLongRows)
    layout.setLabelAlignment(Qt.AlignmentFlag.AlignLeft)
    for label, control in (rows or {}).items():
        layout.addRow(label, control)
    return layout


class Section(QtWidgets.QWidget):
    """A form under a title, a flat button that shows and hides it."""

    def __init__(self, title: str, form: QtWidgets.QFormLayout):
        super().__init__()
        # The arrow is part of the text: an icon would keep the colour of the previous theme.
        self._title, self._content = title, holding(form)
        self.title_button = told(QtWidgets.QPushButton(), name=title)
        self.title_button.setCheckable(True)
        # Flat in both states; a checked button of napari's theme is as bright as a selection.
        self.title_button.setStyleSheet(
            "QPushButton { text-align: left; border: none; background: transparent; }"
        )
        self.title_button.toggled.connect(self.show_content)
        form.setContentsMargins(12, 0, 0, 4)
        # Qt gives wrapped rows too little height in layouts as deeply nested as this one.
        form.setRowWrapPolicy(QtWidgets.QFormLayout.RowWrapPolicy.DontWrapRows)
        stack(QtWidgets.QVBoxLayout(self), (self.title_button, self._content), spacing=0)
        self.show_content(False)

    def show_content(self, shown: bool) -> None:
        """Show or hide the form."""
        self.title_button.setText(("▾ " if shown else "▸ ") + self._title)
        self.title_button.setChecked(shown)
        self._content.setVisible(shown)


class Scrolled(QtWidgets.QScrollArea):
    """Scrolls vertically only: never narrower than its content."""

    def __init__(self, inside: QtWidgets.QWidget):
        super().__init__()
        self.setWidgetResizable(True)
        self.setFrameShape(QtWidgets.QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setWidget(inside)
        self._inside = inside

    def minimumSizeHint(self) -> QSize:
        """Return the width of the content beside a scroll bar, and a few lines of height."""
        width = self._inside.minimumSizeHint().width()
        bar = self.verticalScrollBar().sizeHint().width()
        return QSize(width + bar + _BORDER, super().minimumSizeHint().height())

    def sizeHint(self) -> QSize:
        """Return the size at which nothing is scrolled."""
        return QSize(self.minimumSizeHint().width(), self._inside.sizeHint().height())

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Update the layout when the content needs another width, as after a new theme."""
        if watched is self.widget() and event.type() == QEvent.Type.LayoutRequest:
            self.updateGeometry()
        return super().eventFilter(watched, event)


class WheelGuard(QObject):
    """Keeps the mouse wheel from changing a control that passes under the pointer."""

    def watch(self, widget: QtWidgets.QWidget) -> None:
        """Guard a control: the wheel works on it only after it was clicked."""
        widget.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        widget.installEventFilter(self)

    def eventFilter(self, watched: Any, event: QEvent) -> bool:
        """Pass wheel events of controls without focus to the scroll area."""
        if event.type() == QEvent.Type.Wheel and not watched.hasFocus():
            event.ignore()
            return True
        return super().eventFilter(watched, event)


class DecimalComma(QObject):
    """Makes a decimal point of a comma typed into a control, which it belongs to."""

    def __init__(self, control: QtWidgets.QWidget):
        super().__init__(control)
        control.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Replace the key."""
        pressed = QEvent.Type.KeyPress, ","
        if isinstance(event, QKeyEvent) and (event.type(), event.text()) == pressed:
            point = QKeyEvent(event.type(), Qt.Key.Key_Period, event.modifiers(), ".")
            QtWidgets.QApplication.sendEvent(watched, point)
            return True
        return super().eventFilter(watched, event)
