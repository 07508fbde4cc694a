"""Errors and notes of the library, as panels word them."""

import numpy as np
import pytest

pytest.importorskip("napari", reason="napari is not installed")

import napari_gpu_denoise as gd
from napari_gpu_denoise._napari.wording import counted, in_panel, label_of
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.noise.patches.white import estimate_sigma

IMAGE = np.random.default_rng(0).normal(100, 5, (6, 2, 24, 32)).astype(np.float32)
# What belongs to scripts alone.
CODE = ("=", "--", "None", "map of shape", "lengths (")


def reason_unusable(**given):
    """The error that refuses a call."""
    image = given.pop("image", IMAGE)
    with pytest.raises(DenoiseError) as caught:
        gd.denoise(image, given.pop("settings", gd.NLMeans()), **given)
    return caught.value


def holed():
    """An image with a pixel that is no number."""
    image = IMAGE.copy()
    image[0, 0, 2, 3] = np.nan
    return image


@pytest.mark.parametrize(
    ("given", "instead"),
    [
        ({"image": holed(), "axes": "TCYX", "sigma": 5}, "Leave them in place"),
        ({"axes": "TCYX", "sigma": -3}, "choose Automatic"),
        ({"axes": "TCYX", "sigma": (1, 2, 3)}, "give one number, or one for each channel."),
        ({"image": IMAGE[0, 0], "axes": "YX", "sigma": (1, 2)}, "give one number."),
        ({"axes": "..YX", "settings": gd.VBM3D()}, "name it at Axes, such as TYX."),
    ],
)
def test_errors_name_controls(given, instead):
    error = reason_unusable(**given)
    assert any(each in str(error) for each in CODE), str(error)
    after = in_panel(error)
    assert instead in after, after
    rest = after.replace("sigma=-3", "")  # what was typed
    assert not any(each in rest for each in CODE), after


def test_numbers_agree_with_what_is_counted():
    assert counted(1, "value was", "values were") == "1 value was"
    assert counted(2, "value was", "values were") == "2 values were"


def test_strength_is_not_the_label_of_a_setting():
    assert label_of("strength", "sigma") == "Parameter h (sigma)"


def test_a_note_names_a_control():
    y, x = np.mgrid[:128, :128]
    image = 400 * (1.2 + np.sin(x / 20) * np.cos(y / 25))
    (note,) = estimate_sigma(np.random.default_rng(1).poisson(image).astype(np.float32)).notes
    assert "noise='auto'" in note
    assert in_panel(note).endswith("a noise model works better: choose Automatic")
