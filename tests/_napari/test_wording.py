"""Errors and notes of the library, as panels word them."""

from functools import partial

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise._napari.wording import counted, in_panel, label_of
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.protocol.settings import setting_fields

IMAGE = np.random.default_rng(0).normal(100, 5, (6, 2, 24, 32)).astype(np.float32)
HOLED = np.where(np.arange(IMAGE.size).reshape(IMAGE.shape) == 67, np.float32("nan"), IMAGE)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (partial(gd.nl_means, HOLED, 5, axes="TCYX"), "Leave them in place"),
        (partial(gd.nl_means, IMAGE, -3, axes="TCYX"), "choose Automatic"),
        (partial(gd.nl_means, IMAGE, (1, 2, 3), axes="TCYX"), "one number, or one for each chann"),
        (partial(gd.nl_means, IMAGE[0, 0], (1, 2), axes="YX"), "give one number."),
        (partial(gd.vbm3d, IMAGE, axes="..YX"), "name it at Axes, such as TYX."),
        (partial(gd.NLMeans, window=20), "Window 20 must be odd."),
        (partial(gd.nl_means, IMAGE[0, 0], axes=5), "Axes 5 is not text: give one string with a"),
        *(
            (partial(kind, **{spec.name: -77 if type(spec.default) in (int, float) else "xyz"}), "")
            for kind in FILTERS
            for spec in setting_fields(kind)
        ),
    ],
)
def test_errors_name_controls(call, said):
    with pytest.raises(DenoiseError) as caught:
        call()
    text = in_panel(caught.value)
    assert said in text
    # What belongs to scripts alone.
    for code in ("=", "--", "None", "map of shape", "lengths ("):
        assert code not in text.replace("sigma=-3", ""), text
    if not said:
        assert text.startswith(label_of(*call.keywords)), text


def test_words():
    assert counted(1, "value was", "values were") == "1 value was"
    assert counted(2, "value was", "values were") == "2 values were"
    assert label_of("strength", "sigma") == "Parameter h (sigma)"
