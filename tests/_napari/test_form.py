"""The form made from any dataclass of settings."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from napari_gpu_denoise._napari.denoise.form import SettingsForm
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.protocol.settings import Settings, setting

pytestmark = pytest.mark.gui


@dataclass(frozen=True)
class Every(Settings):
    """One setting of each kind."""

    name: ClassVar[str] = "every"
    presets: ClassVar[dict[str, dict]] = {
        "normal": {},
        "small": {"width": 1, "transform": "haar", "group": 2, "threshold": 0.0005},
    }

    width: int = setting(3, "How wide", bounds=(1, 9), unit="pixels")
    amount: float = setting(0.5, "How much", bounds=(0.0, 2.0))
    threshold: float = setting(0.0025, "Where to stop, if < 1", bounds=(0.0, 1.0))
    transform: str = setting("dct", "Which transform", choices=("dct", "haar"))
    group: int = setting(16, "How many", choices=(1, 2, 4, 8, 16), unit="patches")
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
        "group": 8,
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


def test_choices_keep_their_type(form):
    group = form.controls["group"]
    assert [type(choice) for choice in group.choices] == [int] * 5
    group.native.setCurrentText("4")
    assert type(group.value) is int
    assert form.settings().group == 4
    assert repr(form.settings().group) == "4"


def test_a_profile_sets_the_controls_and_is_told_once(form):
    told = []
    form.changed.connect(lambda: told.append(form.settings()))
    form.controls["amount"].value = 1.25
    form.profile.setCurrentText("small")
    assert told[1:] == [Every.of(profile="small")]
    form.profile.setCurrentText("normal")
    assert form.settings() == Every()
    form.profile.setCurrentText("small")
    form.reset()
    assert form.settings() == Every()
    assert form.profile.currentText() == "normal"


def test_the_profile_follows_the_controls(form):
    names = [form.profile.itemText(row) for row in range(form.profile.count())]
    assert names == ["normal", "small", "custom"]
    assert not form.profile.model().item(2).isEnabled()  # shown, never chosen
    assert form.profile.currentText() == "normal"
    form.controls["width"].value = 1
    assert form.profile.currentText() == "custom"
    assert form.settings() == Every(width=1)
    for name, value in {"transform": "haar", "group": 2, "threshold": 0.0005}.items():
        form.controls[name].value = value
    assert form.profile.currentText() == "small"
    # What its axis does not let through does not count.
    form.controls["frames_after"].value = 2
    assert form.profile.currentText() == "custom"
    form.set_axes("ZYX")
    assert form.profile.currentText() == "small"


def test_settings_that_do_not_go_together_are_no_profile(qtbot):
    from napari_gpu_denoise.filters import NLMeans

    form = SettingsForm(NLMeans)
    qtbot.addWidget(form)
    form.controls["window"].value = 20
    assert form.profile.currentText() == "custom"
    form.profile.setCurrentText("fine")
    assert form.settings() == NLMeans.of(profile="fine")


def test_a_filter_with_one_profile(qtbot):
    @dataclass(frozen=True)
    class Plain(Settings):
        name: ClassVar[str] = "plain"
        width: int = setting(3, "How wide", bounds=(1, 9))

    form = SettingsForm(Plain)
    qtbot.addWidget(form)
    form.controls["width"].value = 5
    assert form.settings() == Plain(width=5) and form.profile.currentText() == "custom"


@pytest.mark.parametrize("kind", FILTERS)
def test_every_filter_gets_a_form(qtbot, kind):
    form = SettingsForm(kind)
    qtbot.addWidget(form)
    form.set_axes("CTZYX")
    assert form.settings() == kind()
    for profile in reversed(kind.presets):
        form.profile.setCurrentText(profile)
        assert form.settings() == kind.of(profile=profile)
        assert form.profile.currentText() == profile


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
