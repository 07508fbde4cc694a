"""The form made from any dataclass of settings."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
from qtpy.QtCore import QPoint, QPointF, Qt
from qtpy.QtGui import QWheelEvent
from qtpy.QtWidgets import QApplication

from napari_gpu_denoise._napari.denoise.form import SettingsForm
from napari_gpu_denoise._napari.model import numbers
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.protocol.settings import Settings, setting, setting_fields


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
def make(qtbot):
    """Make the form of a filter."""

    def make_it(kind, axes="TYX"):
        form = SettingsForm(kind)
        qtbot.addWidget(form)
        form.set_axes(axes)
        return form

    return make_it


def set_all(form, values):
    for name, value in values.items():
        form.controls[name].value = value


def test_every_control_is_its_field(make):
    form = make(Every)
    assert form.settings() == Every()
    width, group = form.controls["width"], form.controls["group"]
    assert (width.min, width.max) == (1, 9)
    assert tuple(form.controls["transform"].choices) == ("dct", "haar")
    wanted = {"width": 7, "amount": 1.25, "threshold": 0.0375, "transform": "haar", "group": 8}
    wanted |= {"colour": False, "label": "mine", "frames_after": 2}
    set_all(form, wanted)
    assert form.settings() == Every(**wanted)
    form.reset()
    assert form.settings() == Every()
    # Choices keep their type.
    assert [type(choice) for choice in group.choices] == [int] * 5
    group.native.setCurrentText("4")
    assert form.settings().group == 4 and type(form.settings().group) is int


def test_a_profile_sets_the_controls_is_told_once_and_follows_them(make):
    form = make(Every)
    told = []
    form.changed.connect(lambda: told.append(form.settings()))
    form.controls["amount"].value = 1.25
    form.profile.setCurrentText("small")
    assert told[1:] == [Every.of(profile="small")]
    form.profile.setCurrentText("normal")
    assert form.settings() == Every()
    form.profile.setCurrentText("small")
    form.reset()
    assert form.settings() == Every() and form.profile.currentText() == "normal"

    names = [form.profile.itemText(row) for row in range(form.profile.count())]
    assert names == ["normal", "small", "custom"]
    assert not form.profile.model().item(2).isEnabled()  # shown, never chosen
    form.controls["width"].value = 1
    assert form.profile.currentText() == "custom" and form.settings() == Every(width=1)
    set_all(form, {"transform": "haar", "group": 2, "threshold": 0.0005})
    assert form.profile.currentText() == "small"
    # What its axis does not let through does not count.
    form.controls["frames_after"].value = 2
    assert form.profile.currentText() == "custom"
    form.set_axes("ZYX")
    assert form.profile.currentText() == "small"


@pytest.mark.parametrize("kind", FILTERS)
def test_every_filter_gets_a_form_whose_arrows_pass_over_even_widths(make, kind):
    form = make(kind, "CTZYX")
    assert form.settings() == kind()
    for profile in reversed(kind.presets):
        form.profile.setCurrentText(profile)
        assert form.settings() == kind.of(profile=profile)
        assert form.profile.currentText() == profile
    odd = [spec for spec in setting_fields(kind) if "odd" in spec.metadata["help"]]
    assert odd == [spec for spec in setting_fields(kind) if spec.metadata["odd"]]
    for spec in odd:
        box = form.controls[spec.name].native
        seen = []
        box.valueChanged.connect(seen.append)
        box.setValue(1)
        for steps_up in [1] * 4 + [-1] * 6 + [1] * 2:
            box.stepBy(steps_up)
        assert len(set(seen)) > 3 and all(value % 2 or not value for value in seen)
        box.setValue(6)  # typed
        with pytest.raises(SettingsError, match=f"{spec.name}=6 must be odd"):
            form.settings()
        box.stepBy(1)
        assert box.value() == 7


def test_the_wheel_turns_only_a_control_that_was_clicked(make, qtbot):
    form = make(Every)
    form.show()
    qtbot.waitExposed(form)
    control = form.controls["width"]

    def turn():
        place, none, keys = QPointF(5, 5), Qt.MouseButton.NoButton, Qt.KeyboardModifier.NoModifier
        angles = QPoint(), QPoint(0, 120)
        event = QWheelEvent(place, place, *angles, none, keys, Qt.ScrollPhase.NoScrollPhase, False)
        QApplication.sendEvent(control.native, event)

    form.controls["amount"].native.setFocus()
    turn()
    assert control.value == 3
    form.activateWindow()
    control.native.setFocus()
    qtbot.waitUntil(control.native.hasFocus)
    turn()
    assert control.value == 4


def test_a_decimal_comma_in_a_setting(make, qtbot):
    form = make(Every)
    box = (control := form.controls["amount"]).native
    for typed, value in (("1,5", 1.5), ("0.75", 0.75)):
        box.selectAll()
        qtbot.keyClicks(box, typed)
        assert control.value == value


@pytest.mark.parametrize(
    ("text", "channels", "found"),
    [
        ("12,5", 1, (12.5,)),
        ("12,5 7,25", 2, (12.5, 7.25)),
        ("12.5, 7", 2, (12.5, 7.0)),
        ("12,7", 2, (12.0, 7.0)),
    ],
)
def test_a_decimal_comma_in_sigma(text, channels, found):
    assert tuple(map(float, numbers(text, channels))) == found
