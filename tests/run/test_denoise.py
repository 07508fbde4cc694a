"""One filter over one array: what does not depend on the filter, nor on the device."""

from __future__ import annotations

import dataclasses
import inspect
import re

import dask.array as da
import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import AxesError, Cancelled, ImageError
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.protocol.settings import setting_fields
from scenes import joining, noisy, prepared, small

KIND = FILTERS[0]


def test_the_record_tells_the_settings_as_they_were_given(device):
    @dataclasses.dataclass(frozen=True)
    class Doubled(KIND):
        def prepare(self, context):
            return dataclasses.replace(self, window=11)

    image = noisy(40, 44)
    result = gd.denoise(image, small(Doubled, window=5), 20, device=device)
    assert result.record.settings["window"] == 5
    expected = gd.denoise(image, small(KIND, window=11), 20, device=device).image
    np.testing.assert_array_equal(result.image, expected)
    lazy = gd.denoise_lazy(image, small(Doubled, window=5), 20, device=device)
    np.testing.assert_array_equal(lazy.compute(scheduler="synchronous"), expected)


def test_whoever_follows_a_run_may_stop_it(device):
    class Always:
        def is_set(self):
            return True

    def progress(done, total):
        raise KeyError("mine")

    for options, error in (({"cancel": Always()}, Cancelled), ({"progress": progress}, KeyError)):
        with pytest.raises(error):
            gd.denoise(noisy(20, 20), small(KIND), 20, device=device, **options)
    gd.denoise(noisy(20, 20), small(KIND), 20, device=device)


@pytest.mark.parametrize(("kind", "dtype"), [(gd.NLMeans, "float64"), (gd.VBM3D, "uint16")])
def test_a_rectangle_of_an_image_on_disk_is_read_part_by_part(kind, dtype, device, limits):
    image = (noisy(12, 40, 48) + 1e6 * (dtype == "float64")).astype(dtype)
    settings, options = joining(kind, "TYX", frames_after=0), {"axes": "TYX", "device": device}
    cut = {"rows": slice(7, 30), "columns": slice(20, 41)}
    whole = gd.denoise(image, settings, 9, **options).image[:, 7:30, 20:41]
    limits(part_bytes=2 * image[0].nbytes, frames_per_margin=1)
    lazy, steps = da.from_array(image, chunks=(1, 24, 24)), []
    told = {"progress": lambda *numbers: steps.append(numbers)}
    np.testing.assert_array_equal(gd.denoise(lazy, settings, 9, **cut, **options).image, whole)
    out = np.zeros(whole.shape, dtype)
    result = gd.denoise(lazy, settings, 9, **cut, **options, **told, out=out).image
    assert result is out and max(total for _, total in steps) > 1
    np.testing.assert_array_equal(out, whole)


@pytest.mark.parametrize("given", ["float64", "float32", "uint16"])
@pytest.mark.parametrize("kind", [np.array, da.from_array])
def test_the_result_takes_the_type_of_an_array_for_it(device, given, kind):
    image, out = noisy(40, 44, dtype=given), np.zeros((40, 44), np.float32)
    options = {"filter": small(KIND), "sigma": 20, "device": device}
    result = gd.denoise(kind(image), out=out, **options)
    assert result.image is out and result.record.output_dtype == "float32"
    np.testing.assert_array_equal(out, gd.denoise(image, dtype="float32", **options).image)
    with pytest.raises(ImageError, match=r"^out= has .* float32"):
        gd.denoise(image, out=out, dtype="float64", **options)


def test_a_rectangle_of_few_rows():
    settings = small(gd.BM3D)
    for rows in (settings.smallest, settings.smallest - 2):  # as few as it filters, and fewer
        image = noisy(3, rows, 40)
        whole = gd.denoise(image, settings, 12).image
        for given in (image, da.from_array(image)):
            few = gd.denoise(given, settings, 12, rows=slice(2, 4), columns=slice(-9, None)).image
            np.testing.assert_array_equal(few, whole[:, 2:4, -9:])
    with pytest.raises(AxesError, match=f"selects none of the {rows} rows along Y"):
        gd.denoise(image, settings, 12, rows=slice(6, 9))


def test_maps_of_a_rectangle(device):
    image, cut = noisy(64, 90), {"rows": slice(7, 30), "columns": slice(20, 41)}
    told = []
    options = {"progress": lambda *each: told.append(each), "memory_limit": 300000}
    whole, part = (gd.isoline_maps(image, 20, device=device, **each) for each in (options, cut))
    np.testing.assert_array_equal(part.classes, whole.classes[7:30, 20:41])
    assert told == [(done, told[0][1]) for done in range(told[0][1] + 1)] and len(told) > 3, told


def test_slices_that_are_not_there():
    with pytest.raises(AxesError, match="slices=9 selects none of the 5 slices along Z"):
        gd.denoise(noisy(5, 8, 9), gd.NLMeans(), 5, axes="ZYX", slices=9)
    with pytest.raises(AxesError, match="slices=1 needs an axis Z"):
        gd.denoise(noisy(5, 8, 9), gd.NLMeans(), 5, slices=1)


FUNCTIONS = {
    "nl_means": gd.NLMeans,
    "bm3d": gd.BM3D,
    "vbm3d": gd.VBM3D,
    "isoline": gd.Isoline,
    "isoline_maps": gd.Isoline,
}


def parameters(doc: str) -> dict[str, str]:
    """Return what a numpydoc docstring says of each parameter."""
    text = re.search(r"^Parameters\n-+$(.*?)^\w+\n-+$", inspect.cleandoc(doc), re.DOTALL | re.M)[1]
    items = re.split(r"^(\w+) : (.*)$", text, flags=re.MULTILINE)
    names, kinds, texts = items[1::3], items[2::3], items[3::3]
    assert len(set(names)) == len(names)
    return {n: f"{k}\n{t}" for n, k, t in zip(names, kinds, texts, strict=True)}


@pytest.fixture(params=FUNCTIONS)
def function(request):
    return getattr(gd, request.param)


def test_every_setting_is_in_the_signature_and_documented(function):
    signature, told = inspect.signature(function), parameters(function.__doc__)
    assert [*signature.parameters][:2] == ["image", "sigma"]
    assert {*told} == {*signature.parameters}
    for spec in setting_fields(FUNCTIONS[function.__name__]):
        assert signature.parameters[spec.name].default == spec.default
        text = " ".join(told[spec.name].split())
        assert f"default {spec.default}" in text.replace('"', "")
        assert spec.metadata["help"] in text and spec.metadata["unit"] in text
        for value in (*(spec.metadata["bounds"] or ()), *(spec.metadata["choices"] or ())):
            assert (f"{value:g}" if isinstance(value, float | int) else value) in text
    assert not re.search(r"^ *\{\w+\} *$", function.__doc__, re.MULTILINE)


def test_what_is_no_setting_is_refused(function):
    with pytest.raises(gd.errors.SettingsError, match="has no setting 'treshold': it has "):
        function(np.zeros((20, 20)), 1.0, treshold=3)


def test_the_settings_that_were_given_are_used(device):
    image = np.random.default_rng(0).normal(100, 10, (30, 30)).astype(np.float32)
    small = {"window": 5, "neighbours": 4, "device": device}
    given = gd.nl_means(image, 10, settings=gd.NLMeans(step=2), **small)
    np.testing.assert_array_equal(given, gd.nl_means(image, 10, step=2, **small))
    fine = gd.nl_means(image, 10, profile="fine", **small)
    np.testing.assert_array_equal(fine, gd.nl_means(image, 10, patch=5, step=1, **small))


@pytest.mark.parametrize("name", ["denoise", "denoise_lazy", "stream"])
def test_shared_paragraphs_are_filled_in(name):
    function = getattr(gd, name)
    told = parameters(function.__doc__)
    assert {*told} == {*inspect.signature(function).parameters}
    assert not re.search(r"^ *\{\w+\} *$", function.__doc__, re.MULTILINE)
    assert told["dtype"].startswith('data type, "auto" or "same", optional')


def test_settings_along_an_axis_of_length_one_do_not_apply():
    joined = joining(KIND, "TZ")
    assert prepared(joined, "TZYX", (3, 2, 5, 6)) == joined
    assert prepared(joined, "TZYX", (3, 1, 5, 6)) == joining(KIND, "T")
    assert prepared(joined, "TZYX", (1, 1, 5, 6)) == small(KIND)
    with pytest.raises(AxesError, match="needs an axis Z"):
        prepared(joined, "TYX", (3, 5, 6))
