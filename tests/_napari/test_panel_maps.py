"""Edge and direction maps beside the result; noise that is given by settings."""

import dataclasses

import dask.array as da
import numpy as np
import pytest

import napari_gpu_denoise as gd
from _napari.lazy_data import Sliced, drive
from napari_gpu_denoise._napari.denoise import run as maps
from napari_gpu_denoise._napari.denoise.run import Request, steps
from napari_gpu_denoise._napari.layers import arrays
from napari_gpu_denoise._napari.layers.provenance import METADATA_KEY
from napari_gpu_denoise._napari.layers.source import Source
from napari_gpu_denoise.filters import FILTERS, Isoline
from napari_gpu_denoise.run import denoise as runs
from napari_gpu_denoise.run.record import Progress
from napari_gpu_denoise.run.request import Run

pytestmark = pytest.mark.gui


@pytest.fixture
def isoline_panel(open_panel):
    """Open the panel of the isoline filter, set to show its maps."""

    def open_it():
        panel = open_panel("Isoline")
        panel.maps.click()
        return panel

    return open_it


def shown(viewer, name):
    """The two layers of a result, by the name of the source and what stands behind it."""
    source, _, frame = name.partition(",")
    found = []
    for what in ("classes", "directions"):
        ends = f"{source} (Isoline {what}", f"{frame})"
        named = (each.name for each in viewer.layers)
        found += [name for name in named if name.startswith(ends[0]) and name.endswith(ends[1])]
    return [viewer.layers[name] for name in found]


def same(layers, expected):
    for layer, values in zip(layers, (expected.classes, expected.directions), strict=True):
        np.testing.assert_array_equal(layer.data, values)


def test_offered_where_there_is_something_to_show(viewer, open_panel):
    for kind in FILTERS:
        panel = open_panel(kind.title)
        offer = maps.offer_of(kind)
        assert panel.maps.isHidden() == (offer is None) != hasattr(kind, "show")
        if offer is not None:
            assert offer.setting not in panel.form.controls
            assert callable(getattr(gd, offer.function))
        fields = {field.name for field in dataclasses.fields(kind)}
        assert set(panel.form.controls) == fields - ({offer.setting} if offer else set())


def test_two_layers_lie_where_the_source_does(viewer, isoline_panel, run, noisy):
    stack = np.stack([noisy, noisy[::-1]])
    source = viewer.add_image(
        stack,
        name="cells",
        scale=(2.0, 0.5, 0.25),
        translate=(1, 2, 3),
        rotate=[[1, 0, 0], [0, 0.6, -0.8], [0, 0.8, 0.6]],
        shear=(0.1, 0.0, 0.2),
        affine=np.diag([1.0, 2.0, 2.0, 1.0]),
        units=("second", "micrometer", "micrometer"),
        axis_labels=("t", "y", "x"),
        colormap="magma",
        gamma=0.8,
        metadata={"stain": "DAPI"},
    )
    panel = isoline_panel()
    said = []
    panel.progress.valueChanged.connect(lambda _: said.append(panel.status.text()))
    assert run(panel).startswith("Done in ")
    assert any(text.startswith("Making maps: tile") for text in said)
    expected = gd.isoline_maps(stack, axes="TYX")
    names = [layer.name for layer in viewer.layers]
    title = "cells (Isoline"
    assert names == ["cells", f"{title})", f"{title} directions)", f"{title} classes)"]
    np.testing.assert_array_equal(
        viewer.layers[1].data, runs.denoise(stack, Isoline(), axes="TYX").image
    )
    classes, directions = shown(viewer, "cells")
    same((classes, directions), expected)
    for layer in (classes, directions):
        for attribute in ("scale", "translate", "rotate", "shear", "affine"):
            np.testing.assert_allclose(getattr(layer, attribute), getattr(source, attribute))
        assert layer.units == source.units and layer.axis_labels == source.axis_labels
        assert layer.metadata["stain"] == "DAPI"
        assert layer.metadata[METADATA_KEY]["filter"] == "isoline"
    assert type(classes).__name__ == "Labels" and classes.opacity == 0.5 and classes.visible
    assert classes.data.dtype == np.uint8
    assert list(classes.features["class"]) == ["low slope", "edge", "isoline"]
    assert classes.colormap.map(np.array([0]))[0, 3] == 0  # low slope is clear
    assert (classes.colormap.map(np.array([1, 2]))[:, 3] == 1).all()
    assert directions.colormap.name == "hsv" and directions.gamma == 1
    assert tuple(directions.contrast_limits) == (0, 180)
    assert not directions.visible


def test_pixels_averaged_are_a_layer(viewer, open_panel, run, noisy):
    viewer.add_image(noisy, name="cells")
    panel = open_panel("NL-means, pixelwise")
    panel.maps.click()
    assert run(panel).startswith("Done in ")
    title = "cells (NL-means, pixelwise"
    assert [one.name for one in viewer.layers][1:] == [f"{title})", f"{title} pixels averaged)"]
    count = viewer.layers[-1]
    np.testing.assert_array_equal(count.data, gd.pixels_averaged(noisy))
    assert type(count).__name__ == "Image" and not count.visible


def test_hard_choices_turn_once_around_and_pi_ld_has_no_classes(viewer, isoline_panel, run, noisy):
    viewer.add_image(noisy, name="a")
    panel = isoline_panel()
    panel.form.profile.setCurrentText("paper")
    run(panel)
    same(shown(viewer, "a"), gd.isoline_maps(noisy, profile="paper"))
    assert tuple(viewer.layers["a (Isoline directions, profile paper)"].contrast_limits) == (0, 360)
    viewer.layers.clear()
    viewer.add_image(noisy[:32, :32], name="b")
    panel.form.controls["method"].value = "pi-ld"
    assert run(panel).startswith("Done in ")
    words = "profile paper, method pi-ld"
    names = ["b", f"b (Isoline, {words})", f"b (Isoline directions, {words})"]
    assert [layer.name for layer in viewer.layers] == names


@pytest.mark.parametrize("lazy", [False, True])
def test_of_one_frame(viewer, isoline_panel, run, click, movie, lazy, pasted):
    data = da.from_array(movie, chunks=(2, 40, 48)) if lazy else movie
    labels = ("t", "y", "x")
    viewer.add_image(
        data, name="movie", scale=(2, 1, 1), axis_labels=labels, contrast_limits=(0, 900)
    )
    viewer.dims.set_current_step(0, 4)
    panel = isoline_panel()
    panel.places.boxes["T"].click()
    run(panel)
    expected = gd.isoline_maps(movie, axes="TYX", frames=4)
    layers = shown(viewer, "movie,, frame 4")
    same(layers, expected)
    for layer in layers:
        np.testing.assert_allclose(layer.translate, (8, 0, 0))
    scope = pasted(panel)
    np.testing.assert_array_equal(scope["denoised"], viewer.layers["movie (Isoline, frame 4)"].data)
    same(layers, scope["maps"])


@pytest.mark.parametrize("sigma", [None, (5.0, 9.0, 0.0, 12.0, 7.0, 3.0)])
@pytest.mark.parametrize("frame", [None, 2, 3])
def test_of_lazy_frames(movie, sigma, frame):
    data = Sliced(movie)
    given = (Source("movie", data), Run(Isoline(), sigma, axes="TYX"))
    _, outcome = drive(steps(Request(*given, frame=frame, maps=True)))
    assert not outcome.without_maps
    expected = gd.isoline_maps(movie, sigma, axes="TYX", frames=frame)
    same(reversed(outcome.maps), expected)
    _, outcome = drive(steps(Request(*given, frame=frame)))
    assert not outcome.maps


# Bytes a pixel that are too many: the result has them, the directions have, the result alone has.
@pytest.mark.parametrize(("dtype", "most"), [("uint16", 1), ("uint16", 3), ("float64", 6)])
def test_not_of_what_is_too_large_for_memory(
    viewer, isoline_panel, run, movie, monkeypatch, dtype, most
):
    lazy = da.from_array(movie.astype(dtype))
    viewer.add_image(lazy, name="a", axis_labels=("t", "y", "x"), contrast_limits=(0, 900))
    panel = isoline_panel()
    monkeypatch.setattr(arrays, "LARGEST_IN_MEMORY", most * movie.size)
    status = run(panel)
    assert "Maps are not made for stacks this large: try Only" in status
    assert len(viewer.layers) == 2
    panel.places.boxes["T"].click()
    run(panel)
    assert len(viewer.layers) == 5


@pytest.mark.parametrize("alpha", [False, True])
def test_of_colours(viewer, isoline_panel, run, noisy, alpha, pasted):
    colour = np.stack([noisy, noisy // 2, 255 - noisy, *[noisy] * alpha], axis=-1)
    viewer.add_image(colour, rgb=True, name="rgb", scale=(3, 3))
    panel = isoline_panel()
    run(panel)
    layers = shown(viewer, "rgb")
    same(layers, gd.isoline_maps(colour[..., :3], axes="YXS"))
    for layer in layers:
        assert layer.data.shape == noisy.shape
        np.testing.assert_allclose(layer.scale, (3, 3))
    scope = pasted(panel)
    same(layers, scope["maps"])
    panel.form.controls["channels"].value = "separate"
    panel.results.keep_both.click()
    before = len(viewer.layers)
    assert "Maps of colours need Channels" in run(panel)
    assert len(viewer.layers) == before + 1


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
        np.testing.assert_array_equal(classes.data[k], found)


def test_cancel_while_it_is_looked_at(
    viewer, isoline_panel, click, finish, qtbot, noisy, monkeypatch
):
    reached = []
    real = maps.OFFERS["isoline"].steps

    def slow(*args, **kwargs):
        running = real(*args, **kwargs)
        try:
            while True:
                reached.append(True)
                yield Progress(0, 1)
        finally:
            running.close()
            reached.append("closed")

    offer = maps.OFFERS["isoline"]
    monkeypatch.setitem(maps.OFFERS, "isoline", dataclasses.replace(offer, steps=slow))
    viewer.add_image(noisy)
    panel = isoline_panel()
    click(panel.run_button)
    qtbot.waitUntil(lambda: len(reached) > 3)
    click(panel.cancel_button)
    assert finish(panel) == "Cancelled: no layer was added."
    qtbot.waitUntil(lambda: reached[-1] == "closed")  # in its thread
    assert len(viewer.layers) == 1


def test_maps_are_made_by_the_worker(viewer, isoline_panel, run, noisy, monkeypatch):
    import threading

    makers = []
    offer = maps.OFFERS["isoline"]

    def watched(*args, **kwargs):
        makers.append(threading.current_thread())
        return (yield from offer.steps(*args, **kwargs))

    monkeypatch.setitem(maps.OFFERS, "isoline", dataclasses.replace(offer, steps=watched))
    viewer.add_image(noisy)
    run(isoline_panel())
    assert len(makers) == 1 and threading.main_thread() not in makers


def test_reset_unticks_it(viewer, isoline_panel, click, noisy):
    viewer.add_image(noisy)
    panel = isoline_panel()
    assert panel.request().maps
    click(panel.reset_button)
    assert not panel.request().maps


def test_copied_calls(viewer, isoline_panel, run, click, noisy, qtbot, copied, pasted):
    viewer.add_image(noisy, name="a")
    panel = isoline_panel()
    panel.form.profile.setCurrentText("paper")
    panel.form.controls["segment_length"].value = 4
    qtbot.keyClicks(panel.options.noise.edit, "9")
    panel.options.dtype.setCurrentIndex(2)
    run(panel)
    lines = copied(panel.python_button)
    assert "maps = gd.isoline_maps(image, sigma=9.0, profile='paper', segment_length=4)" in lines
    scope = pasted(panel)
    same(shown(viewer, "a"), scope["maps"])
    click(panel.command_button)
    assert "Maps need a separate run with --show." in panel.status.text()
    panel.maps.click()
    assert "maps" not in copied(panel.python_button)


def test_sigma_is_not_asked_for_where_it_is_not_used(
    viewer, open_panel, run, click, noisy, qtbot, pasted
):
    viewer.add_image(noisy, name="speckle")
    panel = open_panel("Isoline")
    run(panel)
    assert panel.options.noise.edit.text()
    panel.form.controls["criterion"].value = "multiplicative"
    assert not panel.options.noise.mode.isEnabled() and not panel.options.noise.edit.isEnabled()
    assert panel.options.noise.edit.text() == ""
    assert panel.options.noise.edit.placeholderText() == "not used"
    assert "multiplicative noise of 4 looks" in panel.options.noise.edit.toolTip()
    panel.form.controls["looks"].value = 2.5
    assert "2.5 looks" in panel.options.noise.mode.toolTip()
    status = run(panel)
    assert "Sigma not used: multiplicative noise of 2.5 looks." in status
    assert "grey levels" not in status
    expected = runs.denoise(noisy, Isoline(criterion="multiplicative", looks=2.5))
    np.testing.assert_array_equal(viewer.layers[-1].data, expected.image)
    scope = pasted(panel)
    np.testing.assert_array_equal(scope["denoised"], expected.image)
    click(panel.reset_button)
    assert panel.options.noise.edit.isEnabled()
    assert panel.options.noise.edit.placeholderText() == "sigma"
    assert "Standard deviation" in panel.options.noise.edit.toolTip()
    # What was typed comes back, and is not used meanwhile.
    qtbot.keyClicks(panel.options.noise.edit, "nonsense")
    panel.form.controls["criterion"].value = "multiplicative"
    assert panel.request().run.sigma is None
    panel.form.controls["criterion"].value = "additive"
    assert panel.options.noise.edit.text() == "nonsense"


def test_filters_without_joined_channels_make_no_maps_of_colours(viewer, open_panel, run, noisy):
    viewer.add_image(np.dstack([noisy] * 3), rgb=True)
    panel = open_panel("Shapiro-Wilk NL-means")
    panel.maps.click()
    assert "This filter makes no maps of colours" in run(panel)
