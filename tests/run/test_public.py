"""Signatures and documentation of the public functions: shared parts, and every setting."""

import inspect
import re

import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.protocol.settings import setting_fields

FUNCTIONS = {
    "nl_means": gd.NLMeans,
    "bm3d": gd.BM3D,
    "vbm3d": gd.VBM3D,
    "isoline": gd.Isoline,
    "isoline_maps": gd.Isoline,
}
SECTIONS = {"Parameters", "Returns", "Raises", "See Also", "Notes", "Examples"}


def sections(doc: str) -> dict[str, str]:
    """Return the sections of a numpydoc docstring, by title."""
    found = re.split(r"^([A-Z][\w ]+)\n-+$", inspect.cleandoc(doc), flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))


def parameters(doc: str) -> dict[str, str]:
    """Return what a docstring says of each parameter."""
    items = re.split(r"^(\w+) : (.*)$", sections(doc)["Parameters"], flags=re.MULTILINE)
    names, kinds, texts = items[1::3], items[2::3], items[3::3]
    assert len(set(names)) == len(names)
    return {n: f"{k}\n{t}" for n, k, t in zip(names, kinds, texts, strict=True)}


@pytest.fixture(params=FUNCTIONS)
def function(request):
    return getattr(gd, request.param)


def test_the_signature_holds_every_setting(function):
    signature = inspect.signature(function)
    assert [*signature.parameters][:2] == ["image", "sigma"]
    for spec in setting_fields(FUNCTIONS[function.__name__]):
        parameter = signature.parameters[spec.name]
        assert parameter.kind is parameter.KEYWORD_ONLY
        assert parameter.default == spec.default


def test_every_parameter_is_documented(function):
    told = parameters(function.__doc__)
    assert {*told} == {*inspect.signature(function).parameters}
    for spec in setting_fields(FUNCTIONS[function.__name__]):
        text = " ".join(told[spec.name].split())
        assert f"default {spec.default}" in text.replace('"', "")
        assert spec.metadata["help"] in text
        assert spec.metadata["unit"] in text
        for value in (*(spec.metadata["bounds"] or ()), *(spec.metadata["choices"] or ())):
            assert (f"{value:g}" if isinstance(value, float | int) else value) in text


def test_the_docstring_is_complete(function):
    doc = function.__doc__
    assert {*sections(doc)} >= SECTIONS
    assert doc.splitlines()[0].endswith(".")
    assert not re.search(r"^ *\{\w+\} *$", doc, re.MULTILINE)
    assert max(map(len, doc.splitlines())) <= 100
    assert next(iter(parameters(doc))) == "image"


def test_what_is_no_setting_is_refused(function):
    import numpy as np

    with pytest.raises(gd.errors.SettingsError, match="has no setting 'treshold': it has "):
        function(np.zeros((20, 20)), 1.0, treshold=3)


def test_the_settings_that_were_given_are_used(device):
    import numpy as np

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
