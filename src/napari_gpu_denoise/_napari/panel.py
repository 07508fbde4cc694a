"""Bases of the plugin's panels: status line, place in napari's window, layer and axes."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from napari.layers import Layer
from napari.utils.notifications import notification_manager, show_error
from napari.viewer import Viewer
from qtpy import QtWidgets
from qtpy.QtCore import QEvent, QSize
from qtpy.QtGui import QAction

from napari_gpu_denoise._napari import docks
from napari_gpu_denoise._napari.inputs import AxesInput, LayerInput, RegionInput
from napari_gpu_denoise._napari.layers.source import finest
from napari_gpu_denoise._napari.model import PanelModel, known_of
from napari_gpu_denoise._napari.parts import Caption, Scrolled, button, settling_timer, stack
from napari_gpu_denoise._napari.resolve import axes_of
from napari_gpu_denoise._napari.wording import REMEDIES, in_panel
from napari_gpu_denoise.errors import DenoiseError, Note

_PYTHON_COPIED = "Python call copied: paste it into napari's console."


class Panel(QtWidgets.QWidget):
    """A panel in a dock of napari's window.

    A subclass sets `title` and the texts below it, and says in `stop` how its work ends.
    """

    #: Display name in the manifest.
    title: ClassVar[str]
    #: In bold before an error.
    failed: ClassVar[str]
    #: Advice where Python runs out of memory.
    out_of_memory: ClassVar[str]
    #: Whether errors are notifications of napari, too.
    aloud: ClassVar[bool] = False
    #: Pixels in which every row has room beside its label.
    least_width: ClassVar[int] = 380
    #: What to do, by the codes of errors and notes.
    remedies: ClassVar[Mapping[str, str]] = REMEDIES

    def __init__(self, viewer: Viewer):
        super().__init__()
        # napari's menus give a proxy, whose layers are other objects each time.
        self._viewer = viewer = getattr(viewer, "__wrapped__", viewer)
        self.status = Caption(rich=True)
        self.status.linkActivated.connect(self._show_details)
        self.details = ""  # of the status, shown when it is clicked
        self._closed = False
        # A dictionary of its own, so that it can be reached when the panel is gone.
        self._followed: dict[str, list[tuple[Any, Callable]]] = {}
        lists = self._followed.values()
        self.destroyed.connect(lambda _=None: [_disconnect(each) for each in lists])
        for menu in (viewer.window.plugins_menu, viewer.window.layers_menu):
            menu.triggered.connect(self._come_forward)
        # Started when the panel gets a parent; the dock joins the window only afterwards. When it
        # is on the screen, the controls are put in: the GUI thread does not stand still for both.
        self._stacking = settling_timer(self, 0, self._stack)
        self._showing = settling_timer(self, 0, self._put_in)
        self._content = QtWidgets.QWidget()

    def arrange(
        self,
        rows: Iterable[QtWidgets.QWidget | QtWidgets.QLayout],
        below: Iterable[Sequence[QtWidgets.QWidget]],
        *,
        filled: bool = False,
    ) -> None:
        """Put `rows` in a part that scrolls, and rows of one or two widgets below it.

        If `filled`, the last of `rows` takes the height that is left.
        """
        inside = QtWidgets.QWidget()
        scrolled = QtWidgets.QVBoxLayout(inside)
        stack(scrolled, rows, spacing=8)
        scrolled.setContentsMargins(0, 0, 4, 0)
        if filled:
            scrolled.setStretch(scrolled.count() - 1, 1)
        else:
            scrolled.addStretch(1)
        grid = QtWidgets.QGridLayout()
        grid.setSpacing(6)
        for number, widgets in enumerate(below):
            for column, widget in enumerate(widgets):
                grid.addWidget(widget, number, column, 1, 3 - len(widgets))
        layout = QtWidgets.QVBoxLayout(self._content)
        layout.setContentsMargins(8, 8, 8, 8)
        layout.addWidget(Scrolled(inside), 1)
        layout.addLayout(grid)
        self._outer = QtWidgets.QVBoxLayout(self)
        stack(self._outer, (), spacing=0)
        self.setSizePolicy(
            QtWidgets.QSizePolicy.Policy.Preferred, QtWidgets.QSizePolicy.Policy.Expanding
        )

    def sizeHint(self) -> QSize:
        """Return a width at which rows are readable."""
        hint = self._content.sizeHint()
        return QSize(max(hint.width(), self.least_width), hint.height())

    def _stack(self) -> None:
        docks.stack(self, Panel, self._viewer)
        if self._content.parent() is None:
            self._showing.start()

    def _put_in(self) -> None:
        self._outer.addWidget(self._content)

    def changeEvent(self, event: QEvent) -> None:
        """Stop when the panel is taken out of its dock, which is how napari closes it."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.ParentChange:
            self._closed = self.parent() is None
            if self._closed:
                self.stop()
            else:
                self._stacking.start()

    def _come_forward(self, entry: QAction) -> None:
        """Show the panel when its menu entry is chosen again, by which napari has hidden it."""
        if entry.text().replace("&", "") == docks.NAME.format(self.title):
            docks.bring_forward(self)

    def follow(self, what: str, connections: Iterable[tuple[Any, Callable[[Any], None]]]) -> None:
        """Connect events while the panel exists, replacing earlier connections named `what`."""
        connected = self._followed.setdefault(what, [])
        _disconnect(connected)
        connected += connections
        for event, act in connected:
            event.connect(act)

    def stop(self) -> None:
        """Stop what is running; the panel is being closed."""
        raise NotImplementedError

    def say(self, text: str, stressed: str = "", details: str = "") -> None:
        """Show a sentence in the status line, after a lead in bold; details on a click."""
        lead = f"<b>{stressed}</b> " if stressed else ""
        colour = self.status.palette().color(self.status.foregroundRole()).name()  # of any theme
        link = f' <a href="#" style="color: {colour}">Details</a>' if details else ""
        self.details = details
        self.status.setText(lead + html.escape(text) + link)

    def _show_details(self, _: str = "") -> None:
        shown, _, _ = self.status.text().rpartition(" <a")
        self.status.setText(f"{shown} {html.escape(self.details)}")

    def show_error(self, error: Exception) -> None:
        """Show an error in the panel; a bug is always reported to napari."""
        if not isinstance(error, (DenoiseError, MemoryError)):
            self.say(f"Internal error: {error!r}. Please report it.", self.failed)
            notification_manager.receive_error(type(error), error, error.__traceback__)
            return
        sentence = self.worded(error) if isinstance(error, DenoiseError) else self.out_of_memory
        self.say(sentence, self.failed)
        if self.aloud:
            show_error(sentence)

    def worded(self, message: DenoiseError | Note | str) -> str:
        """Return an error or a note in terms of the controls of the panel."""
        return in_panel(message, self.remedies)

    def add_code_button(
        self,
        of: str,
        python: Callable[[], str],
        command: Callable[[], tuple[str, list[str]]] | None = None,
    ) -> None:
        """Make the button whose menu copies code `of` something.

        `command` returns a command line, and remarks on its differences. Both raise `DenoiseError`
        where there is no such code.
        """
        self.copy_button = button("Copy", f"Copy code {of}.")
        menu = QtWidgets.QMenu(self.copy_button)
        self.python_action = menu.addAction("Python call", partial(self.copy, python))
        if command is not None:
            self.command_action = menu.addAction("Command line", partial(self.copy, command))
        self.copy_button.setMenu(menu)

    def copy(self, code: Callable[[], str | tuple[str, list[str]]]) -> None:
        """Copy a Python call, or a command line and remarks on it."""
        try:
            made = code()
        except DenoiseError as error:
            self.show_error(error)
            return
        text, remarks = (made, []) if isinstance(made, str) else made
        said = _PYTHON_COPIED if text is made else "Command line copied."
        QtWidgets.QApplication.clipboard().setText(text)
        self.say(" ".join((said, *remarks)))


def _disconnect(connected: list[tuple[Any, Callable]]) -> None:
    while connected:
        event, act = connected.pop()
        event.disconnect(act)


class LayerPanel(Panel):
    """A panel that works on image layers, as `model` says."""

    #: List of the layers to choose from.
    layer_input: ClassVar[type[LayerInput]] = LayerInput

    def __init__(self, viewer: Viewer, tip: str, *, whole_files: bool = False):
        super().__init__(viewer)
        self.model = PanelModel()
        self.layer = self.layer_input(self._viewer, tip, whole_files=whole_files)
        selection = self._viewer.layers.selection.events.changed
        self.follow("selection", [(selection, self.layer.refresh)])

    # napari calls this whenever layers come, go, move or are renamed
    def reset_choices(self, event: object = None) -> None:
        """Follow the viewer's layers."""
        self.layer.refresh()


class ImagePanel(LayerPanel):
    """A panel that works on a region of layers, with the axes that it is told."""

    def __init__(
        self,
        viewer: Viewer,
        tip: str,
        regions: Mapping[str, str],
        region_tip: str,
        *,
        whole_files: bool = False,
    ):
        super().__init__(viewer, tip, whole_files=whole_files)
        self.axes = AxesInput()
        self.region = RegionInput(self._viewer, regions, region_tip)
        self.axes.edited.connect(self._on_edited)
        self.axes.changed.connect(self._take_axes)
        self.region.changed.connect(self._follow_region)
        self.region.shapes.chosen.connect(self._follow_region)
        self.region.draw_button.clicked.connect(lambda: self.region.draw(self.layer.layer()))

    def reset_choices(self, event: object = None) -> None:
        """Follow the viewer's layers."""
        super().reset_choices(event)
        self.region.refresh()

    def choose(self, *layers: Layer) -> None:
        """Choose layers, with their axes as another panel has them."""
        self.layer.choose(*layers)
        self.offer_axes()

    def _take_axes(self) -> None:
        self.model.axes = self.axes.letters()

    def _follow_region(self, event: object = None) -> None:
        """Follow the Shapes layer and the view, where the region is there."""
        self.model.region = self.region.region()
        self.follow("region", () if self.model.region.whole else self.region.events())

    def offer_axes(self, event: object = None) -> None:
        """Show the axes of the layer, and follow its labels, and the viewer's."""
        layer, shown = self.layer.layer(), self._viewer.dims
        events: list[tuple[Any, Callable]] = [(shown.events.axis_labels, self._follow_axes)]
        if layer is not None:
            events.append((layer.events.axis_labels, self._take_labels))
            events.append((layer.events.data, self._follow_axes))
        self.follow("labels", events)
        self.axes.of_file.offer(layer)
        if layer is None:
            self.axes.offer("", ())
        else:
            self.axes.offer(axes_of(layer, shown.axis_labels), finest(layer).shape)

    def _take_labels(self, event: object = None) -> None:
        """Follow new labels of the layer, which replace the letters typed before."""
        known_of(self.layer.layer()).axes = None
        self.offer_axes()

    def _follow_axes(self, event: object = None) -> None:
        if (layer := self.layer.layer()) is not None:
            now = axes_of(layer, self._viewer.dims.axis_labels), tuple(finest(layer).shape)
            if now != (self.axes.letters(), self.axes.shape):
                self.offer_axes()

    def _on_edited(self, text: str) -> None:
        if (layer := self.layer.layer()) is not None:
            known_of(layer).axes = text.upper()
