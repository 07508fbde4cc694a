"""Errors and notes of the library, as panels word them."""

import numpy as np
import pytest

pytest.importorskip("napari", reason="napari is not installed")

import napari_gpu_denoise as gd
from napari_gpu_denoise._napari.wording import counted, in_panel, label_of
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.protocol.settings import setting_fields

IMAGE = np.random.default_rng(0).normal(100, 5, (6, 2, 24, 32)).astype(np.float32)
HOLED = np.where(np.arange(IMAGE.size).reshape(IMAGE.shape) == 67, np.float32("nan"), IMAGE)
# What belongs to scripts alone.
CODE = ("=", "--", "None", "map of shape", "lengths (")


@pytest.mark.parametrize(
    ("given", "instead"),
    [
        ({"image": HOLED, "axes": "TCYX", "sigma": 5}, "Leave them in place"),
        ({"axes": "TCYX", "sigma": -3}, "choose Automatic"),
        ({"axes": "TCYX", "sigma": (1, 2, 3)}, "give one number, or one for each channel."),
        ({"image": IMAGE[0, 0], "axes": "YX", "sigma": (1, 2)}, "give one number."),
        ({"axes": "..YX", "filter": gd.VBM3D()}, "name it at Axes, such as TYX."),
    ],
)
def test_errors_name_controls(given, instead):
    with pytest.raises(DenoiseError) as caught:
        gd.denoise(**{"image": IMAGE, "filter": gd.NLMeans(), **given})
    error = caught.value
    assert any(word in str(error) for word in CODE), str(error)
    after = in_panel(error)
    assert instead in after, after
    rest = after.replace("sigma=-3", "")  # what was typed
    assert not any(word in rest for word in CODE), after


@pytest.mark.parametrize("kind", FILTERS)
def test_errors_of_settings_name_controls(kind):
    for spec in setting_fields(kind):
        with pytest.raises(DenoiseError) as caught:
            kind(**{spec.name: -77 if type(spec.default) in (int, float) else "xyz"})
        text = in_panel(caught.value)
        assert "=" not in text and text.startswith(label_of(spec.name)), text


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: gd.NLMeans(window=20), "Window 20 must be odd."),
        (
            lambda: gd.denoise(np.ones((4, 5)), gd.NLMeans(), axes=5),
            "Axes 5 is not text: give one string with a letter per axis, such as 'YX'.",
        ),
    ],
)
def test_errors_are_not_in_python(call, said):
    with pytest.raises(DenoiseError) as caught:
        call()
    assert in_panel(caught.value).startswith(said)


def test_words_and_notes():
    assert counted(1, "value was", "values were") == "1 value was"
    assert counted(2, "value was", "values were") == "2 values were"
    assert label_of("strength", "sigma") == "Parameter h (sigma)"
