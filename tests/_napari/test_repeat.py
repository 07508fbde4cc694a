"""Repeat on another layer, on files, or as Python, what made a result."""

import dask.array as da
import numpy as np
import pytest
from napari.components import ViewerModel
from napari.layers import Image
from numpy.testing import assert_array_equal

import napari_gpu_denoise as gd
from _napari.inputs import assert_same_place, drive, layer_names
from _napari.noise_records import estimate
from napari_gpu_denoise._napari.denoise.results import add_result
from napari_gpu_denoise._napari.io.reading import read
from napari_gpu_denoise._napari.io.writing import write_images
from napari_gpu_denoise._napari.layers.provenance import METADATA_KEY, origin_of, records_of
from napari_gpu_denoise._napari.model import MEASURED, TYPED, NoiseChoice, Options, PanelModel
from napari_gpu_denoise._napari.resolve import repetition, request_of
from napari_gpu_denoise._napari.run import denoise_layer
from napari_gpu_denoise._napari.snippets import python_call
from napari_gpu_denoise._napari.tasks import Outcome
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.filters import BM3D, BM4D, NLMeans
from napari_gpu_denoise.noise.models import PoissonGaussian

TOLD = estimate((PoissonGaussian(2.0, 3.0),))
# Noise and options of three runs, one after another.
CHAIN = (
    (BM3D.of(profile="fast"), NoiseChoice(), Options("stripes", 1.41, "float32", "keep")),
    (NLMeans(step=2), NoiseChoice(TYPED, "4.5"), Options(nonfinite="keep")),
    (NLMeans(patch=5), NoiseChoice("gaussian"), Options(dtype="same", nonfinite="keep")),
)


def striped(seed):
    """Two planes with rows of individual offsets, and a pixel that is no number."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:64, :80]
    clean = 110 + 60 * np.sin(y / 9) * np.cos(x / 11) + rng.normal(0, 8, (2, 64, 1))
    image = (clean + rng.normal(0, 5 + 5 * seed, (2, 64, 80))).astype(np.float32)
    image[1, 3, 4] = np.nan
    return image


def filtered(viewer, layer, settings, noise, options, axes):
    """Run on a layer as the panel does; returns the layer of the result."""
    model = PanelModel((layer,), axes, noise=noise, settings=settings, options=options)
    return repeated(viewer, request_of(model, layer, settings, viewer.dims))


def repeated(viewer, request):
    _, done = drive(denoise_layer, request)
    return add_result(viewer, Outcome(request, done))


def test_a_chain_is_that_by_hand_on_another_layer_as_python_and_from_a_file(tmp_path):
    viewer = ViewerModel()
    labels, place = {"axis_labels": ("t", "y", "x")}, {"scale": (1, 0.5, 0.25), "gamma": 0.7}
    first = viewer.add_image(striped(0), name="first", **labels)
    other = viewer.add_image(striped(1), name="it's & other", **place)  # which names no axes
    ends = []
    for layer in (first, other):
        for settings, noise, options in CHAIN:
            layer = filtered(viewer, layer, settings, noise, options, "TYX")
        ends.append(layer)
    request = repetition(ends[0], other, viewer.dims)
    made = repeated(viewer, request)
    assert_array_equal(made.data, ends[1].data)
    assert made.data.dtype == ends[1].data.dtype and np.isnan(made.data[1, 3, 4])
    assert made.name == "it's & other BM3D NL-means NL-means [1]" and made.gamma == 0.7
    assert_same_place(made, other)
    assert origin_of(made, viewer.layers) == other
    assert viewer.layers.index(made) == viewer.layers.index(ends[1]) + 1
    # It can be repeated in turn: what was measured was measured there, what was told is the same.
    for mine, by_hand, started in zip(*map(records_of, (made, ends[1], ends[0])), strict=True):
        assert {**mine, "source_id": 0, "date": 0} == {**by_hand, "source_id": 0, "date": 0}
        assert (mine["sigma"] == started["sigma"]) == (mine["sigma_source"] == "given")
    names = layer_names(viewer)
    scope = {"viewer": viewer}
    exec(python_call(repetition(made, other, viewer.dims)), scope)
    assert_array_equal(scope["denoised"], made.data)
    write_images(str(tmp_path / "kept.ome.tif"), [ends[0].as_layer_data_tuple()])
    ((data, attributes, _),) = read(str(tmp_path / "kept.ome.tif"))
    kept = repetition(Image(data, **attributes), other, viewer.dims)
    assert (kept.run, kept.then) == (request.run, request.then)
    assert layer_names(viewer)[:-1] == names and viewer.layers[-1].name == f"{made.name[:-2]}2]"


def test_models_that_were_told_are_told_again_and_what_cannot_be_repeated_is_said():
    viewer = ViewerModel()
    layer = viewer.add_image(striped(0)[0], name="a")
    told = NoiseChoice(MEASURED, estimate=TOLD, origin="b")
    made = filtered(viewer, layer, NLMeans(), told, Options(), "YX")
    request = repetition(made, layer, viewer.dims)
    assert request.run.noise == TOLD.models
    _, again = drive(denoise_layer, request)
    assert_array_equal(again.result.image, made.data)
    assert "noise=gd.PoissonGaussian(" in python_call(request)
    record = made.metadata[METADATA_KEY]
    for change, said in (
        ({"filter": "bilateral"}, "tells no run of this version"),
        ({"asked": "what"}, "tells no run of this version"),
        ({"settings": {"patch": -1}}, "patch"),
        ({"sigma_source": "given as a map from 1 to 2", "asked": {}}, "as a map"),
        ({"filter": "bm4d", "settings": BM4D().as_dict()}, "BM4D filters volumes"),
    ):
        made.metadata[METADATA_KEY] = {**record, **change}
        with pytest.raises(DenoiseError, match=said):
            repetition(made, layer, viewer.dims)
    # A file that no panel made does not tell what was asked for.
    elsewhere = {"sigma_source": "given as a model", "asked": {}, "corrected": ["hot pixels"]}
    made.metadata[METADATA_KEY] = {**record, **elsewhere}
    run = repetition(made, layer, viewer.dims).run
    assert run.noise == TOLD.models and run.correct.as_argument() == "found"


@pytest.mark.filterwarnings("ignore::napari_gpu_denoise.errors.SaturationWarning")
def test_alpha_passes_every_run_and_a_voxel_is_that_of_the_layer():
    viewer, rng = ViewerModel(), np.random.default_rng(3)
    first, other = (
        viewer.add_image(
            da.from_array(rng.integers(0, 255, (40, 48, 4)).astype(np.uint8)), rgb=True
        )
        for _ in range(2)
    )
    typed, ends = NoiseChoice(TYPED, "9"), []
    for layer in (first, other):
        for settings in (NLMeans(step=4), BM3D.of(profile="fast")):
            layer = filtered(viewer, layer, settings, typed, Options(), "YXS")
        ends.append(layer)
    request = repetition(ends[0], other, viewer.dims)
    made = repeated(viewer, request)
    assert made.rgb and (made.data[..., 3] == np.asarray(other.data)[..., 3]).all()
    assert_array_equal(made.data, ends[1].data)
    scope = {"viewer": viewer}
    exec(python_call(request), scope)
    assert_array_equal(scope["denoised"], made.data)
    # Of volumes.
    thick, thin = (
        viewer.add_image(rng.normal(99, 9, (8, 24, 24)), scale=(z, 1, 1), axis_labels=tuple("zyx"))
        for z in (3, 2)
    )
    result = filtered(viewer, thick, BM4D.of(profile="fast"), typed, Options(), "ZYX")
    assert repetition(result, thin, viewer.dims).run.filter.voxel == "2, 1, 1"


def test_the_button(viewer, open_panel, run, finish, qtbot, noisy):
    first = viewer.add_image(noisy, name="a & b")
    panel = open_panel()
    assert not panel.results.repeat_button.isEnabled()
    run(panel)
    result = viewer.layers.selection.active
    others = [viewer.add_image(noisy[:, : 40 + k], name=f"o{k}") for k in range(2)]
    viewer.layers.selection.active = result
    panel.form.controls["step"].value = 1  # of the next run

    def entries():
        panel.results.menu.aboutToShow.emit()
        return {each.text(): each for each in panel.results.menu.actions() if each.text()}

    offered = entries()
    assert [*offered] == ["o1", "o0", "All 2 layers", "Many files (Batch)", "Copy Python call"]
    offered["All 2 layers"].trigger()
    assert finish(panel).endswith(": o1 NL-means, o0 NL-means.")
    for each in others:
        assert_array_equal(viewer.layers[f"{each.name} NL-means"].data, gd.nl_means(each.data))
    viewer.layers.selection.active = result
    entries()["Many files (Batch)"].trigger()
    batch = viewer.window.dock_widgets["Batch (GPU Denoise)"]
    qtbot.waitUntil(lambda: batch.form.options.device.caption.text() != "")
    assert batch.form.run().filter == NLMeans() and batch.form.run().noise is None
    # Of a chain Batch is told not to be able.
    made = filtered(viewer, result, NLMeans(), NoiseChoice(), Options(), "YX")
    viewer.layers.selection.active = made
    assert not entries()["Many files (Batch): one filter only, not 2"].isEnabled()
    viewer.layers.remove(first)
    viewer.layers.remove(result)
    viewer.layers.selection.active = made
    entries()["Copy Python call"].trigger()
    assert "was made from is not open" in panel.status.text()


def test_measured_noise_that_differs_by_plane_is_told_again_as_a_whole():
    viewer, rng = ViewerModel(), np.random.default_rng(0)
    planes = 100 + rng.normal(size=(2, 96, 96)) * np.array([[[4.0]], [[16.0]]])
    layer = viewer.add_image(planes.astype(np.float32), name="two", axis_labels=(".", "y", "x"))
    known = gd.estimate_noise(layer.data, axes=".YX")
    made = filtered(
        viewer, layer, NLMeans(), NoiseChoice(MEASURED, "", known, "x"), Options(), ".YX"
    )
    again = PanelModel.of_record(records_of(made)[-1])
    assert again.noise.estimate.as_dict() == known.as_dict()
    assert_array_equal(repeated(viewer, repetition(made, layer, viewer.dims)).data, made.data)
