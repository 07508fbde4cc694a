"""What panels would do as they are set: inputs, what is hidden, names, times; no window."""

import dataclasses

import numpy as np
import pytest
from napari.components import ViewerModel
from napari.layers import Image
from napari.layers._source import layer_source

from napari_gpu_denoise._napari import resolve as resolving
from napari_gpu_denoise._napari.layers.provenance import (
    FILE_KEY,
    METADATA_KEY,
    SOURCE,
    SOURCE_ID,
    Origin,
    describe,
    identity,
    is_renamed,
    temporary_metadata,
)
from napari_gpu_denoise._napari.model import (
    MEASURED,
    RECTANGLE,
    TYPED,
    VIEW,
    NoiseChoice,
    Options,
    PanelModel,
    RegionChoice,
    known_of,
)
from napari_gpu_denoise._napari.resolve import Problem, Resolved, inputs_of, resolve
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters import BM3D, BM4D, VBM3D, Isoline, NLMeans
from napari_gpu_denoise.noise.models import Gaussian
from napari_gpu_denoise.opencl.device import choose_devices

NOISE = np.random.default_rng(0).normal(100, 5, (6, 24, 30)).astype(np.float32)


def result_of(layer, kind=BM3D, **record):
    """A result of a layer, as a run would add it."""
    record = {"filter": kind.name, SOURCE: layer.name, SOURCE_ID: identity(layer), **record}
    record = {"settings": kind().as_dict(), **record}
    name = f"{layer.name} {kind.title}"
    return Image(layer.data, name=name, blending=layer.blending, metadata={METADATA_KEY: record})


@pytest.fixture
def viewer():
    """Two channels that are added up, each with a result, and labels."""
    made = ViewerModel()
    for name in ("red", "green"):
        layer = Image(NOISE[0], name=name, blending="additive")
        made.layers.extend([layer, result_of(layer)])
    made.add_labels(np.zeros((24, 30), int), name="cells")
    return made


def resolved(viewer, *layers, axes="YX", settings=None, **given):
    model = PanelModel(layers, axes, settings=settings or NLMeans(), **given)
    return resolve(model, viewer.dims)


def named(layers):
    return [each.name for each in layers]


# --- which layers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selected", "inputs"),
    [
        (["red"], ["red"]),
        (["red BM3D"], ["red"]),
        (["green BM3D", "red BM3D"], ["red", "green"]),
        (["red", "red BM3D"], ["red"]),
        (["green", "red BM3D"], ["red", "green"]),
        (["cells"], []),
        ([], []),
    ],
)
def test_results_stand_for_their_sources_be_they_one_or_many(viewer, selected, inputs):
    assert named(inputs_of([viewer.layers[n] for n in selected], viewer.layers)) == inputs


def test_a_preview_and_a_result_of_a_result_stand_for_the_source_too(viewer):
    red, first = viewer.layers["red"], viewer.layers["red BM3D"]
    history = [first.metadata[METADATA_KEY]]
    second = result_of(first, VBM3D, history=history)
    preview = Image(NOISE[0], metadata=temporary_metadata("preview", red))
    viewer.layers.extend([second, preview])
    for each in (second, preview):
        assert inputs_of([each], viewer.layers) == (red,)
    viewer.layers.remove(red)
    assert inputs_of([second], viewer.layers) == (first,)
    # What is left of one whose sources are gone is an image like any other.
    viewer.layers.remove(first)
    assert inputs_of([second], viewer.layers) == (second,)


def from_file(path="/data/a.tif", shape=(4, 5), **attributes):
    with layer_source(path=path):
        return Image(np.zeros(shape), **attributes)


def test_layers_of_one_file():
    first, second = from_file(), from_file()
    result = from_file(metadata={METADATA_KEY: {SOURCE_ID: identity(first)}})
    others = [from_file("/data/b.tif"), from_file(shape=(6, 5)), Image(np.zeros((4, 5)))]
    layers = [first, *others, result, second]
    assert resolving.channels_of(second, layers) == (first, second)
    assert resolving.channels_in_words((first, second)) == "Both layers of a.tif"
    assert resolving.channels_of(result, layers) == resolving.channels_of(others[2], layers) == ()
    known = dict(path="/data/a.tif", split=0, name="", colour="", stamp=())
    channels = [
        from_file(metadata={FILE_KEY: dataclasses.asdict(Origin(**known, place=n))})
        for n in range(3)
    ]
    assert resolving.channels_in_words(channels) == "All 3 channels of a.tif"


# --- what is hidden -------------------------------------------------------------------------------


def test_of_each_channel_that_is_previewed_one_version_is_seen(viewer):
    red, green = viewer.layers["red"], viewer.layers["green"]

    def hidden(*shown):
        return named(resolving.hidden_by(shown, viewer.layers))

    assert hidden(red) == ["red", "red BM3D"]
    assert hidden(red, green) == ["red", "red BM3D", "green", "green BM3D"]
    red.visible = False
    assert hidden(red) == ["red BM3D"]
    # What covers its source hides nothing.
    green.blending = "translucent"
    assert hidden(green) == []


# --- names ----------------------------------------------------------------------------------------


def test_names_are_short_and_how_a_result_was_made_is_told_beside(viewer):
    red = viewer.layers["red"]
    settings = BM3D.of(profile="fast")
    drawn = viewer.add_shapes([np.array([[4, 5], [4, 20], [16, 20], [16, 5]])])
    given = {"region": RegionChoice(RECTANGLE, drawn), "options": Options(strength=1.41)}
    found = resolved(viewer, red, settings=settings, **given)
    (request,) = found.requests
    assert request.name == "red BM3D" and found.what == "rectangle"
    assert request.cut == {"rows": slice(4, 17), "columns": slice(5, 21)}
    place = {"frame": 2, "rows": [4, 17], "columns": [5, 21]}
    made = result_of(red, settings=settings.as_dict(), sigma_factor=1.41, **place)
    told = "BM3D: profile fast, strength 1.41, frame 2, rows 4 to 16, columns 5 to 20"
    assert describe(made) == told
    assert describe(red) == ""
    red.corner_pixels = np.array([[3, -4], [12, 20]])
    found = resolved(viewer, red, region=RegionChoice(VIEW))
    assert found.what == "view"
    assert found.requests[0].cut == {"rows": slice(3, 13), "columns": slice(0, 21)}


def test_a_result_that_the_user_named_is_known(viewer):
    made = viewer.layers["red BM3D"]
    assert not is_renamed(made)
    made.name = "red BM3D [2]"  # by napari
    assert not is_renamed(made)
    made.name = "mine"
    assert is_renamed(made)


# --- what is run ----------------------------------------------------------------------------------


def test_places_and_layers_in_words(viewer):
    stack = viewer.add_image(NOISE, name="stack")
    viewer.dims.set_current_step(0, 3)
    alone = Options(alone=frozenset("T"))
    found = resolved(viewer, stack, axes="TYX", options=alone)
    assert found.what == "frame 3" and found.requests[0].cut == {"frames": 3}
    # Where there is no time, the box is not shown.
    assert resolved(viewer, stack, axes="ZYX", options=alone).what == ""
    pair = viewer.layers["red"], viewer.layers["green"]
    assert resolved(viewer, *pair).what == "2 layers"
    several = resolved(viewer, stack, *pair, axes="TYX").requests
    assert [each.axes for each in several] == ["TYX", "YX", "YX"]
    viewer.dims.ndisplay = 3
    problem = resolved(viewer, stack, axes="TYX", options=alone)
    assert "does not show a single frame" in str(problem.error)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"axes": "TYX", "settings": BM4D()}, "BM4D filters volumes"),
        ({"axes": ".YX", "settings": VBM3D()}, "no axis is named T"),
        ({"axes": "YX"}, "names 2 axes"),
        ({"axes": "TYX", "settings": SettingsError("these conflict")}, "these conflict"),
        ({"axes": "TYX", "noise": NoiseChoice(TYPED, "ten")}, "is not a number"),
        ({"axes": "TYX", "region": RegionChoice(RECTANGLE)}, "no rectangle yet"),
    ],
)
def test_what_a_run_would_refuse_is_told_before_it(viewer, given, said):
    found = resolved(viewer, viewer.add_image(NOISE), **given)
    assert isinstance(found, Problem) and said in str(found.error)
    # Frames would hold what called this, such as widgets, for a worker to free: napari crashed.
    error = found.error
    while error is not None:
        assert error.__traceback__ is None
        error = error.__cause__ or error.__context__


def test_a_map_of_colours_needs_them_joined(viewer):
    colours = viewer.add_image(np.zeros((24, 30, 3), np.uint8), rgb=True)
    given = {"axes": "YXS", "noise": NoiseChoice(TYPED, "5")}
    found = resolved(viewer, colours, settings=Isoline(show="directions"), **given)
    assert found.requests[0].run.dtype == np.float32
    apart = Isoline(show="directions", channels="separate")
    assert "needs Channels" in str(resolved(viewer, colours, settings=apart, **given).error)


def test_without_a_layer_one_is_asked_for(viewer):
    assert "open an image first" in str(resolved(viewer).error)


def test_the_key_changes_with_what_is_to_be_done_only(viewer):
    red, found = viewer.layers["red"], []
    model = PanelModel((red,), "YX", settings=NLMeans())
    for change in (
        lambda: None,
        lambda: setattr(red, "visible", False),
        lambda: setattr(red, "name", "other"),
        lambda: setattr(model, "options", Options(strength=0.5)),
        lambda: setattr(model, "axes", "XX"),
    ):
        change()
        found.append(resolve(model, viewer.dims).key)
    assert found[0] == found[1] == found[2] and len({*map(str, found)}) == 3


def test_noise_is_measured_once_for_a_layer_and_what_it_depends_on(viewer):
    red = viewer.layers["red"]

    def memory(**given):
        return resolved(viewer, red, **given).requests[0].memory

    first = memory()
    assert first is not None and memory(settings=BM3D()) is first
    assert memory(options=Options(correct="stripes")) is not first is not memory(axes="XY")
    model = PanelModel((red,), "YX")
    assert resolving.measurement(model, red, viewer.dims).memory is first
    for told in (NoiseChoice(TYPED, "5"), NoiseChoice("correlated")):
        assert memory(noise=told) is None
    red.data[3, 3] += 100  # in place
    assert memory() is not first


def test_axes_that_were_typed_hold_for_the_layer_where_they_fit(viewer):
    stack = viewer.add_image(NOISE)
    assert resolving.axes_of(stack) == ".YX"
    known_of(stack).axes = "TYX"
    assert resolving.axes_of(stack, ("z", "y", "x")) == "TYX"
    stack.data = NOISE[0]
    assert resolving.axes_of(stack) == "YX"


def test_the_first_run_on_a_device_says_that_it_compiles(viewer, monkeypatch):
    found, devices = resolved(viewer, viewer.layers["red"]), choose_devices(None)
    monkeypatch.setattr(resolving, "was_used", lambda device, use: True)
    assert found.expected(devices) == "Takes a few seconds."
    monkeypatch.setattr(resolving, "was_used", lambda device, use: use != "nl_means")
    assert found.expected(devices).endswith("First run on this device: compiling, once.")
    assert isinstance(found, Resolved)
    counts = viewer.add_image(NOISE[0].astype(np.uint8))
    odd = resolved(viewer, counts, noise=NoiseChoice(TYPED, "1e9"))
    assert odd.expected(devices).startswith("Sigma is larger than any grey level")


def test_each_channel_has_the_noise_that_is_typed_or_measured_for_it(viewer):
    from _napari.noise_records import estimate

    pair = viewer.add_image(NOISE[:2])
    known = estimate((Gaussian(10.0), Gaussian(5.0)), sigma=(10.0, 5.0), axes="CYX")
    typed = NoiseChoice(TYPED, "12, 7", known, "it")
    for noise, expected in (
        (typed, ((12.0, 7.0), None)),
        (dataclasses.replace(typed, kind=MEASURED), (None, known)),
        (dataclasses.replace(typed, kind="auto"), (None, None)),  # it counts while it is chosen
        (NoiseChoice("correlated"), (None, "correlated")),  # which the run fits
    ):
        run = resolved(viewer, pair, axes="CYX", noise=noise).requests[0].run
        assert (run.sigma, run.noise) == expected
