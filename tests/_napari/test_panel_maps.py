"""Edge and direction maps beside the result; noise that is given by settings."""

import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import napari_gpu_denoise as gd
from _napari.inputs import (
    PLACED,
    Sliced,
    add_sliced,
    assert_same_place,
    drive,
    layer_names,
    type_sigma,
)
from napari_gpu_denoise._napari.layers.provenance import METADATA_KEY
from napari_gpu_denoise._napari.layers.source import Source
from napari_gpu_denoise._napari.run import Request, denoise_layer
from napari_gpu_denoise.filters import Isoline
from napari_gpu_denoise.run import denoise as runs
from napari_gpu_denoise.run.request import Run

pytestmark = pytest.mark.gui


@pytest.fixture
def noisy(noisy):
    """A part of the picture, which takes less time."""
    return noisy[:40, :48]


@pytest.fixture
def isoline_panel(open_panel):
    """Open the panel of the isoline filter, set to show its maps."""

    def open_it():
        panel = open_panel("Isoline")
        panel.maps.click()
        return panel

    return open_it


def shown(viewer, name):
    """The two layers of maps beside a result, by the name of its source."""
    return [viewer.layers[f"{name} Isoline {what}"] for what in ("classes", "directions")]


def same(layers, expected):
    for layer, values in zip(layers, (expected.classes, expected.directions), strict=True):
        assert_array_equal(layer.data, values)


def test_two_layers_lie_where_the_source_does(viewer, isoline_panel, run, noisy, click, watched):
    stack = np.stack([noisy, noisy[::-1]])
    looks = {"colormap": "magma", "gamma": 0.8, "metadata": {"stain": "DAPI"}}
    source = viewer.add_image(stack, name="cells", **PLACED, **looks)
    panel = isoline_panel()
    said = watched(panel)
    assert run(panel).startswith("Done in ")
    assert any(text.startswith("Making maps: tile") for text in said)
    title = "cells Isoline"
    names = ["cells", title, f"{title} directions", f"{title} classes"]
    assert layer_names(viewer) == names
    denoised = runs.denoise(stack, Isoline(), axes="TYX").image
    assert_array_equal(viewer.layers[1].data, denoised)
    classes, directions = shown(viewer, "cells")
    same((classes, directions), gd.isoline_maps(stack, axes="TYX"))
    for layer in (classes, directions):
        assert_same_place(layer, source)
        assert layer.metadata["stain"] == "DAPI"
        assert layer.metadata[METADATA_KEY]["filter"] == "isoline"
    assert type(classes).__name__ == "Labels" and classes.opacity == 0.5 and classes.visible
    assert classes.data.dtype == np.uint8
    assert list(classes.features["class"]) == ["low slope", "edge", "isoline"]
    assert classes.colormap.map(np.array([0]))[0, 3] == 0  # low slope is clear
    assert (classes.colormap.map(np.array([1, 2]))[:, 3] == 1).all()
    assert directions.colormap.name == "hsv" and directions.gamma == 1
    assert tuple(directions.contrast_limits) == (0, 180) and not directions.visible
    click(panel.reset_button)
    assert not panel.request().maps


def test_pixels_averaged_are_a_layer(viewer, open_panel, run, noisy):
    viewer.add_image(noisy, name="cells")
    panel = open_panel("NL-means, pixelwise")
    panel.maps.click()
    assert run(panel).startswith("Done in ")
    title = "cells NL-means, pixelwise"
    assert layer_names(viewer)[1:] == [title, f"{title} pixels averaged"]
    count = viewer.layers[-1]
    assert_array_equal(count.data, gd.nl_means_pixelwise(noisy, show="pixels", dtype="float32"))
    assert type(count).__name__ == "Image" and not count.visible


def test_of_one_frame(viewer, isoline_panel, run, movie, click, pasted):
    data = da.from_array(movie, chunks=(2, 40, 48))
    place = {"scale": (2, 1, 1), "axis_labels": ("t", "y", "x")}
    viewer.add_image(data, name="movie", contrast_limits=(0, 900), **place)
    viewer.dims.set_current_step(0, 4)
    panel = isoline_panel()
    panel.places.boxes["T"].click()
    run(panel)
    layers = shown(viewer, "movie")
    same(layers, gd.isoline_maps(movie, axes="TYX", frames=4))
    for layer in layers:
        assert_allclose(layer.translate, (8, 0, 0))
    click(panel.command_action)
    assert "Maps need a separate run with --show." in panel.status.text()
    scope = pasted(panel)
    assert_array_equal(scope["denoised"], viewer.layers["movie Isoline"].data)
    same(layers, scope["maps"])


@pytest.mark.parametrize("sigma", [None, (5.0, 9.0, 0.0, 12.0, 7.0, 3.0)])
@pytest.mark.parametrize("frame", [None, 2, 3])
def test_of_lazy_frames(movie, sigma, frame):
    given = (Source("movie", Sliced(movie)), Run(Isoline(), sigma, axes="TYX"))
    _, outcome = drive(denoise_layer, Request(*given, frame=frame, maps=True))
    assert not outcome.without_maps
    same(reversed(outcome.maps), gd.isoline_maps(movie, sigma, axes="TYX", frames=frame))


def test_a_method_without_classes_has_directions_alone(movie):
    given = Request(Source("a", movie[0]), Run(Isoline(method="pi-ld"), 8.0, axes="YX"), maps=True)
    (layer,) = drive(denoise_layer, given)[1].maps
    assert layer.title == "directions"


def test_not_of_what_is_too_large_for_memory(viewer, isoline_panel, run, movie, small_memory):
    panel = isoline_panel()
    type_sigma(panel)
    add_sliced(viewer, movie)
    assert "Maps are not made for stacks this large: try Only" in run(panel)
    assert len(viewer.layers) == 2
    panel.places.boxes["T"].click()
    run(panel)
    assert len(viewer.layers) == 5


def test_of_colours(viewer, isoline_panel, open_panel, run, noisy, pasted):
    colour = np.stack([noisy, noisy // 2, 255 - noisy, noisy], axis=-1)
    viewer.add_image(colour, rgb=True, name="rgb", scale=(3, 3))
    panel = isoline_panel()
    run(panel)
    layers = shown(viewer, "rgb")
    same(layers, gd.isoline_maps(colour[..., :3], axes="YXS"))
    for layer in layers:
        assert layer.data.shape == noisy.shape
        assert_allclose(layer.scale, (3, 3))
    same(layers, pasted(panel)["maps"])
    panel.form.controls["channels"].value = "separate"
    panel.results.keep_both.click()
    before = len(viewer.layers)
    assert "Maps of colours need Channels" in run(panel)
    assert len(viewer.layers) == before + 1
    other = open_panel("Shapiro-Wilk NL-means")
    other.maps.click()
    assert "This filter makes no maps of colours" in run(other)


@pytest.mark.parametrize("channels", ["separate", "joint"])
def test_of_channels(viewer, isoline_panel, run, noisy, channels):
    stack = np.stack([noisy, noisy[::-1]])
    viewer.add_image(stack, name="c", axis_labels=("c", "y", "x"), scale=(1, 2, 2))
    panel = isoline_panel()
    panel.form.controls["channels"].value = channels
    run(panel)
    expected = gd.isoline_maps(stack, axes="CYX", channels=channels)
    classes, directions = shown(viewer, "c")
    assert classes.data.shape == directions.data.shape == stack.shape
    for k in range(2):
        found = expected.classes if channels == "joint" else expected.classes[k]
        assert_array_equal(classes.data[k], found)


def test_sigma_is_not_asked_for_where_it_is_not_used(
    viewer, open_panel, run, click, noisy, qtbot, pasted
):
    viewer.add_image(noisy, name="speckle")
    panel = open_panel("Isoline")
    noise, controls = panel.options.noise, panel.form.controls
    controls["criterion"].value = "multiplicative"
    assert not noise.mode.isEnabled() and not noise.edit.isEnabled()
    assert (noise.edit.text(), noise.edit.placeholderText()) == ("", "not used")
    controls["looks"].value = 2.5
    assert "multiplicative noise of 2.5 looks" in noise.edit.toolTip()
    status = run(panel)
    assert "Sigma not used: multiplicative noise of 2.5 looks." in status
    expected = runs.denoise(noisy, Isoline(criterion="multiplicative", looks=2.5))
    assert_array_equal(viewer.layers[-1].data, expected.image)
    assert_array_equal(pasted(panel)["denoised"], expected.image)
    click(panel.reset_button)
    assert noise.edit.isEnabled() and noise.edit.placeholderText() == "sigma"
    # What was typed comes back, and is not used meanwhile.
    qtbot.keyClicks(noise.edit, "nonsense")
    controls["criterion"].value = "multiplicative"
    assert panel.request().run.sigma is None
    controls["criterion"].value = "additive"
    assert noise.edit.text() == "nonsense"
