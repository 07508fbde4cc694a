"""Settings and profiles: where they start from, what wins, what they are called."""

from dataclasses import FrozenInstanceError, dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise import filters
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.protocol.settings import Settings, setting, setting_fields


@dataclass(frozen=True)
class Blur(Settings):
    """Settings of a filter with profiles."""

    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "normal": {},
        "fast": {"width": 3, "step": 4, "rounds": 1},
        "soft": {"strength": 2.0},
    }

    width: int = setting(7, "How wide", bounds=(1, 9))
    step: int = setting(2, "How often", bounds=(1, 8))
    rounds: int = setting(3, "How many times", bounds=(1, 5))
    strength: float = setting(1.0, "How much", bounds=(0.0, 4.0))


@dataclass(frozen=True)
class Plain(Settings):
    """Settings of a filter without profiles."""

    width: int = setting(7, "How wide", bounds=(1, 9))


def test_a_profile_changes_the_defaults_it_names():
    assert Blur.of() == Blur.of(profile="normal") == Blur()
    assert Blur.of(profile="fast") == Blur(width=3, step=4, rounds=1)
    assert Plain.of(profile="normal") == Plain()


def test_settings_given_one_by_one_win_over_the_profile():
    assert Blur.of(profile="fast", step=1, strength=3) == Blur(
        width=3, step=1, rounds=1, strength=3.0
    )
    # Also where they set it back to the default.
    assert Blur.of(profile="fast", width=7) == Blur(step=4, rounds=1)


def test_settings_are_values_of_the_declared_type():
    settings = Blur(width=5.0, step=np.int64(2), strength=2)
    assert settings == Blur(width=5, step=2, strength=2.0)
    values = settings.width, settings.step, settings.strength
    assert [type(value) for value in values] == [int, int, float]
    assert hash(settings) == hash(Blur(width=5, step=2, strength=2.0))
    with pytest.raises(FrozenInstanceError):
        settings.width = 3


def test_settings_given_as_an_object_are_the_start():
    start = Blur(width=5)
    assert Blur.of(start) is not Blur.of(start, step=3)
    assert Blur.of(start, step=3) == Blur(width=5, step=3)
    assert start == Blur(width=5)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"profile": "quick"}, "Blur has no profile 'quick': it has normal, fast, soft."),
        ({"profile": ["fast"]}, "Blur has no profile"),
        ({"settings": Blur(), "profile": "fast"}, "Both settings and profile='fast' were given"),
        ({"settings": Plain()}, "must be a Blur object, not Plain"),
        ({"profile": "fast", "size": 1}, "Blur has no setting 'size'"),
        ({"profile": "fast", "width": 99}, "width=99 is out of bounds"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(given, sentence):
    with pytest.raises(SettingsError, match=sentence) as caught:
        Blur.of(**given)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("settings", "shortest"),
    [
        (Blur(), ("normal", {})),
        (Blur(strength=2), ("soft", {})),
        (Blur(width=3, step=4, rounds=1), ("fast", {})),
        (Plain(), ("normal", {})),
        (Blur(width=5), ("normal", {"width": 5})),
        (Blur(width=3, step=4), ("normal", {"width": 3, "step": 4})),
        (Blur(width=3, step=4, rounds=1, strength=3), ("fast", {"strength": 3.0})),
        (Blur(width=3, step=4, rounds=2), ("fast", {"rounds": 2})),
        (Blur(width=5, strength=2), ("normal", {"width": 5, "strength": 2.0})),
    ],
)
def test_the_shortest_way_to_say_settings(settings, shortest):
    profile, changes = shortest
    assert settings.nearest_profile() == shortest
    assert settings.profile_name() == ("custom" if changes else profile)
    assert type(settings).of(profile=profile, **changes) == settings


@pytest.mark.parametrize("kind", FILTERS)
def test_profiles_of_the_filters(kind):
    first, *others = kind.presets
    assert kind.presets[first] == {}
    assert "custom" not in kind.presets
    names = {spec.name for spec in setting_fields(kind)}
    seen = [kind()]
    for profile in others:
        assert kind.presets[profile].keys() <= names
        made = kind.of(profile=profile)
        assert made not in seen
        assert made.profile_name() == profile
        seen.append(made)


@pytest.mark.parametrize("name", ["pri_nlm", "PRINLM", "dct3d", "DCT3D"])
def test_a_removed_filter_names_its_successor(name):
    assert name not in gd.__all__
    for module in (gd, filters):
        with pytest.raises(SettingsError, match="was removed: use BM4D with profile='fast'"):
            getattr(module, name)
    gd.BM4D.of(profile="fast")
