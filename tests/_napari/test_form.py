"""The form made from any dataclass of settings."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from napari_gpu_denoise._napari.form import SettingsForm, spoken
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.filters.settings import Settings, setting

pytestmark = pytest.mark.gui


@dataclass(frozen=True)
class Every(Settings):
    """One setting of each kind."""

    name: ClassVar[str] = "every"

    width: int = setting(3, "How wide", bounds=(1, 9), unit="pixels")
    amount: float = setting(0.5, "How much", bounds=(0.0, 2.0))
    threshold: float = setting(0.0025, "Where to stop, if < 1", bounds=(0.0, 1.0))
    transform: str = setting("dct", "Which transform", choices=("dct", "haar"))
    colour: bool = setting(True, "Whether in colour")
    label: str = setting("none", "Free text", advanced=True)
    frames_after: int = setting(0, "Later frames", bounds=(0, 4), unit="frames", needs_axis="T")


@pytest.fixture
def form(qtbot):
    made = SettingsForm(Every)
    qtbot.addWidget(made)
    made.set_axes("TYX")
    return made


def test_starts_at_the_defaults(form):
    assert form.settings() == Every()


def test_every_control_reaches_its_field(form):
    wanted = {
        "width": 7,
        "amount": 1.25,
        "threshold": 0.0375,
        "transform": "haar",
        "colour": False,
        "label": "mine",
        "frames_after": 2,
    }
    for name, value in wanted.items():
        form.controls[name].value = value
    assert form.settings() == Every(**wanted)
    form.reset()
    assert form.settings() == Every()


def test_bounds_and_choices_are_those_of_the_fields(form):
    width, transform = form.controls["width"], form.controls["transform"]
    assert (width.min, width.max) == (1, 9)
    assert tuple(transform.choices) == ("dct", "haar")


def test_changes_are_told(form, qtbot):
    with qtbot.waitSignal(form.changed, timeout=1000):
        form.controls["colour"].value = False


def test_settings_without_their_axis_stay_at_the_default(form):
    control = form.controls["frames_after"]
    control.value = 3
    form.set_axes("ZYX")
    assert not control.native.isEnabled()
    assert "axis T" in control.native.toolTip()
    assert form.settings().frames_after == 0
    form.set_axes("TYX")
    assert control.native.isEnabled()
    assert form.settings().frames_after == 3


def test_help_is_the_tooltip(form):
    assert "How much" in form.controls["amount"].native.toolTip()
    assert "if &lt; 1" in form.controls["threshold"].native.toolTip()


@pytest.mark.parametrize(
    ("name", "unit", "label"),
    [
        ("patch", "pixels", "Patch (pixels)"),
        ("frames_before", "frames", "Frames before"),
        ("neighbours", "", "Neighbours"),
    ],
)
def test_labels(name, unit, label):
    assert spoken(name, unit) == label


@pytest.mark.parametrize("kind", FILTERS)
def test_every_filter_gets_a_form(qtbot, kind):
    form = SettingsForm(kind)
    qtbot.addWidget(form)
    form.set_axes("CTZYX")
    assert form.settings() == kind()


def test_combinations_are_checked(form, qtbot):
    from napari_gpu_denoise.filters import NLMeans

    form = SettingsForm(NLMeans)
    qtbot.addWidget(form)
    form.controls["step"].value = 9
    with pytest.raises(SettingsError, match="step=9"):
        form.settings()


def test_the_wheel_turns_only_a_control_that_was_clicked(form, qtbot):
    from qtpy.QtCore import QPoint, QPointF, Qt
    from qtpy.QtGui import QWheelEvent
    from qtpy.QtWidgets import QApplication

    form.show()
    qtbot.waitExposed(form)
    control = form.controls["width"]

    def turn():
        event = QWheelEvent(
            QPointF(5, 5),
            QPointF(5, 5),
            QPoint(),
            QPoint(0, 120),
            Qt.MouseButton.NoButton,
            Qt.KeyboardModifier.NoModifier,
            Qt.ScrollPhase.NoScrollPhase,
            False,
        )
        QApplication.sendEvent(control.native, event)

    form.controls["amount"].native.setFocus()
    turn()
    assert control.value == 3
    form.activateWindow()
    control.native.setFocus()
    qtbot.waitUntil(control.native.hasFocus)
    turn()
    assert control.value == 4
