"""Files as layers, runs of the panel, and layers as files: as the command line writes them."""

from __future__ import annotations

import gc
import json
import time

import nibabel
import numpy as np
import psutil
import pytest
import tifffile
from napari.layers import Image
from napari.layers._source import layer_source
from numpy.testing import assert_array_equal
from qtpy.QtCore import QTimer

import napari_gpu_denoise as gd
from _napari.conftest import PLUGIN
from _napari.inputs import Sliced, type_sigma
from napari_gpu_denoise._napari.compare.pair import first_places
from napari_gpu_denoise._napari.inputs import attributes_in_file
from napari_gpu_denoise._napari.io.reading import get_reader, read
from napari_gpu_denoise._napari.io.writing import write_images
from napari_gpu_denoise._napari.layers.provenance import (
    FILE_KEY,
    METADATA_KEY,
    filter_title,
    first_origin,
    is_temporary,
    record_of,
)
from napari_gpu_denoise.errors import LayerError, OutputError
from zarr_stores import write_store

pytestmark = pytest.mark.gui

OME = {
    "PhysicalSizeX": 0.2,
    "PhysicalSizeY": 0.25,
    "PhysicalSizeZ": 1500.0,
    "PhysicalSizeZUnit": "nm",
    "TimeIncrement": 50.0,
    "TimeIncrementUnit": "ms",
    "Channel": {"Name": ["DAPI", "GFP"], "Color": [0x0000FFFF, 0x00FF00FF]},
}
OME_UNITS = ("millisecond", "nanometer", "micrometer", "micrometer")
UNITS = {"t": "second", "z": "micrometer", "y": "micrometer", "x": "micrometer"}
SCALE = {"t": 2.0, "z": 1.5, "y": 0.25, "x": 0.2}


def noise(*shape, dtype=np.uint16):
    return np.random.default_rng(5).normal(100, 8, shape).astype(dtype)


def layer_data(data, **attributes):
    return Image(data, **attributes).as_layer_data_tuple()


def lazy_layer(data):
    return layer_data(data, contrast_limits=(0, 255), multiscale=False)


def placed(data, labels, **attributes):
    """A layer with these labels, units and scale."""
    known = {"scale": [SCALE[a] for a in labels], "units": [UNITS[a] for a in labels]}
    return layer_data(data, axis_labels=tuple(labels), **known, **attributes)


@pytest.fixture
def five_d(tmp_path):
    """An OME-TIFF of two channels, three time points and four slices."""
    path = tmp_path / "cells.ome.tif"
    tifffile.imwrite(path, noise(3, 4, 2, 32, 40), metadata={"axes": "TZCYX", **OME})
    return path


# --- files as layers ------------------------------------------------------------------------------


def test_channels_of_ome_are_layers_with_names_colours_scale_and_units(five_d):
    whole = tifffile.imread(five_d)
    layers = read(str(five_d))
    for number, (data, attributes, kind) in enumerate(layers):
        assert_array_equal(data, whole[:, :, number])
        assert kind == "image"
        assert attributes["axis_labels"] == ("t", "z", "y", "x")
        assert attributes["scale"] == (50.0, 1500.0, 0.25, 0.2)
        assert attributes["units"] == OME_UNITS
        assert attributes["blending"] == "additive"
        # What a layer remembers is plain.
        remembered = attributes["metadata"][FILE_KEY]
        assert json.loads(json.dumps(remembered))["axes"] == "TZCYX"
    assert [layer[1]["name"] for layer in layers] == ["cells DAPI", "cells GFP"]
    assert [layer[1]["colormap"] for layer in layers] == ["#0000ff", "#00ff00"]


@pytest.mark.parametrize("colours", [["magenta", "green"], ["cyan", "yellow", "magenta"]])
def test_colours_of_channels_without_any_are_those_of_napari(tmp_path, colours):
    path = tmp_path / "plain.ome.tif"
    image = noise(len(colours), 20, 24)
    tifffile.imwrite(path, image, metadata={"axes": "CYX"}, photometric="minisblack")
    assert [attributes["colormap"] for _, attributes, _ in read(str(path))] == colours


def test_results_are_named_by_their_filter(five_d, tmp_path):
    settings = gd.BM3D.of(profile="fast")
    (report,) = gd.run_batch(five_d, settings, 20, output=tmp_path / "out").files
    # A layer that was saved under its name is not named twice.
    saved = tmp_path / "cells BM3D.ome.tif"
    saved.write_bytes(report.output.read_bytes())
    for path, names in (
        (report.output, ["cells DAPI BM3D", "cells GFP BM3D"]),
        (saved, ["cells BM3D DAPI", "cells BM3D GFP"]),
    ):
        assert [attributes["name"] for _, attributes, _ in read(str(path))] == names


def test_stacks_of_imagej(tmp_path):
    path = tmp_path / "stack.tif"
    tables = [
        np.stack([np.arange(256) * on for on in rgb]).astype(np.uint8)
        for rgb in ((1, 0, 0), (0, 1, 1))
    ]
    told = {"axes": "TZCYX", "unit": "micron", "spacing": 1.5, "finterval": 0.5}
    told |= {"LUTs": tables, "Ranges": (90.0, 120.0, 80.0, 130.0), "mode": "composite"}
    image = noise(3, 4, 2, 32, 40)
    tifffile.imwrite(path, image, imagej=True, resolution=(5.0, 4.0), metadata=told)
    (_, first, _), (_, second, _) = read(str(path))
    assert first["scale"] == (0.5, 1.5, 0.25, 0.2)
    assert first["units"] == tuple(UNITS.values())
    assert (first["colormap"], second["colormap"]) == ("#ff0000", "#00ffff")
    assert (first["contrast_limits"], second["contrast_limits"]) == ((90.0, 120.0), (80.0, 130.0))
    assert first["name"] == "stack channel 0"


def test_volumes_of_nifti_and_unnamed_axes_of_colours(tmp_path):
    path = tmp_path / "head.nii.gz"
    made = nibabel.Nifti1Image(noise(8, 9, 10, dtype=np.int16), np.diag([1.5, 2.0, 2.5, 1.0]))
    made.header.set_xyzt_units("mm", "sec")
    made.to_filename(path)
    ((data, attributes, _),) = read(str(path))
    assert data.shape == (10, 9, 8)
    assert (attributes["name"], attributes["axis_labels"]) == ("head", ("z", "y", "x"))
    assert attributes["scale"] == (2.5, 2.0, 1.5)
    assert attributes["units"] == ("millimeter",) * 3
    path = tmp_path / "rgb.tif"
    tifffile.imwrite(path, noise(3, 20, 24, 3, dtype=np.uint8), photometric="rgb")
    ((data, attributes, _),) = read(str(path))
    assert data.shape == (3, 20, 24, 3) and attributes["rgb"]
    assert attributes["axis_labels"] == ("axis 0", "y", "x")
    assert "colormap" not in attributes


def test_large_files_are_read_when_they_are_looked_at(tmp_path, nothing_loaded):
    path, image = tmp_path / "large.tif", noise(4, 2, 20, 24)
    tifffile.imwrite(path, image, metadata={"axes": "TCYX"}, ome=True)

    def is_open():
        return str(path) in [file.path for file in psutil.Process().open_files()]

    layers = read(str(path))
    assert layers[1][0].chunks == ((1,) * 4, (20,), (24,))
    assert_array_equal(np.asarray(layers[1][0]), image[:, 1])
    assert is_open()
    del layers
    gc.collect()
    assert not is_open()  # it is closed with its last layer


def test_what_is_none_of_ours_is_left_to_others(tmp_path, five_d):
    text = tmp_path / "text.tif"
    text.write_text("not an image")
    assert get_reader(str(text)) is None
    assert get_reader([str(five_d), str(five_d)]) is None
    assert get_reader(str(five_d)) is read


def test_layers_are_opened_and_saved_by_napari_moved_ones_with_their_new_scale(
    viewer, five_d, tmp_path, told, open_panel, copied
):
    first, second = viewer.open(str(five_d), plugin=PLUGIN)
    assert tuple(map(str, first.units)) == OME_UNITS
    assert second.name == "cells GFP" and tuple(second.scale) == (50.0, 1500.0, 0.25, 0.2)
    # The command line of a channel names the axes of its file.
    assert "--axes TZCYX" in copied(open_panel().command_action)
    out = tmp_path / "saved.ome.tif"
    (saved,) = viewer.layers.save(str(out), plugin=PLUGIN)
    assert saved == str(out)
    assert_array_equal(tifffile.imread(out), tifffile.imread(five_d))
    for layer in (first, second):
        layer.scale = (50.0, 3000.0, 0.25, 0.2)
    viewer.layers.save(str(tmp_path / "moved.ome.tif"), plugin=PLUGIN)
    found = gd.read(tmp_path / "moved.ome.tif")
    assert found.pixel_metadata.steps["Z"] == (3000.0, "nanometer")
    assert [channel.name for channel in found.pixel_metadata.channels] == ["DAPI", "GFP"]
    moved = np.moveaxis(tifffile.imread(five_d), 2, found.axes.index("C"))
    assert_array_equal(found.data, moved)
    assert any("was moved" in text for text in told())


@pytest.mark.parametrize("changed", [True, False], ids=["changed", "gone"])
def test_layers_of_a_file_that_is_another_by_now(five_d, tmp_path, changed):
    given = [layer_data(data, **attributes) for data, attributes, _ in read(str(five_d))]
    five_d.unlink()
    if changed:
        other = {"axes": "TZCYX", **OME, "PhysicalSizeX": 9.0, "Channel": {"Name": ["A", "B"]}}
        tifffile.imwrite(five_d, noise(3, 4, 2, 32, 40), metadata=other)
    write_images(str(tmp_path / "out.ome.tif"), given)
    found = gd.read(tmp_path / "out.ome.tif")
    assert found.pixel_metadata.steps["X"] == (0.2, "micrometer")
    assert [channel.name for channel in found.pixel_metadata.channels] == ["DAPI", "GFP"]


# --- what napari's own reader leaves out ----------------------------------------------------------


@pytest.fixture
def opened(viewer):
    """Add pixels as a layer that napari's own reader has read from a file."""

    def add(path, data, **attributes):
        with layer_source(path=str(path), reader_plugin="napari"):
            return viewer.add_image(data, **attributes)

    return add


def test_axes_and_pixel_size_of_the_file_are_offered(opened, open_panel, click, tmp_path, qtbot):
    path, image = tmp_path / "volume.ome.tif", noise(6, 20, 24)
    told = {"PhysicalSizeZ": 0.3, "PhysicalSizeY": 0.1, "PhysicalSizeX": 0.1}
    tifffile.imwrite(path, image, metadata={"axes": "ZYX", **told})
    layer, panel = opened(path, image), open_panel("NL-means")
    offer = panel.axes.of_file
    qtbot.waitUntil(lambda: not offer.isHidden())
    assert offer.text() == "ZYX of the file" and "0.3 µm x 0.1 µm x 0.1 µm" in offer.toolTip()
    assert panel.axes.letters() == ".YX" and tuple(layer.scale) == (1, 1, 1)  # not assumed
    offer.click()
    assert panel.axes.letters() == "ZYX" and offer.isHidden()
    assert tuple(layer.scale) == (0.3, 0.1, 0.1)
    assert tuple(map(str, layer.units)) == ("micrometer",) * 3


@pytest.mark.parametrize(
    ("axes", "shape", "attributes", "offered"),
    [
        ("CZYX", (2, 3, 20, 24), {}, {"axis_labels": tuple("czyx"), "scale": (1, 1, 1, 0.1)}),
        ("YX", (20, 24), {}, {"scale": (1, 0.1)}),
        # napari drops axes of length 1
        ("TZYX", (1, 3, 20, 24), {}, {"axis_labels": tuple("zyx"), "scale": (1, 1, 0.1)}),
        ("ZYX", (3, 20, 24), {"axis_labels": tuple("tyx"), "scale": (9, 1, 1)}, {}),
        ("ZYX", (3, 20, 24), {"axis_labels": tuple("zyx")}, {"scale": (1, 1, 0.1)}),
        ("ZYX", (3, 20, 24), {"scale": (9, 1, 1)}, {"axis_labels": tuple("zyx")}),
        ("YXS", (20, 24, 3), {"rgb": True}, {"scale": (1, 0.1)}),
    ],
)
def test_what_a_layer_lacks_is_offered(axes, shape, attributes, offered, tmp_path):
    path, image = tmp_path / "a.ome.tif", noise(*shape, dtype=np.uint8)
    tifffile.imwrite(path, image, metadata={"axes": axes, "PhysicalSizeX": 0.1}, ome=True)
    with layer_source(path=str(path)):
        layer = Image(np.squeeze(image), **attributes)
    found = attributes_in_file(layer)
    assert ("units" in found) == ("scale" in found)
    assert {name: each for name, each in found.items() if name != "units"} == offered


def test_nothing_is_offered_of_another_file(tmp_path, five_d):
    with layer_source(path=str(five_d)):
        others = Image(noise(3, 20, 24)), Image(noise(20, 24, 3, dtype=np.uint8), rgb=True)
    with layer_source(path=str(tmp_path / "gone.tif")):
        gone = Image(noise(20, 24))
    assert [attributes_in_file(each) for each in (*others, gone)] == [{}] * 3


# --- runs of the panel ----------------------------------------------------------------------------


@pytest.fixture
def denoise_all(viewer, open_panel, run):
    """Denoise layers in the panel, with a sigma; returns the results, which are selected."""

    def run_them(layers, sigma="8"):
        panel, made = open_panel("NL-means"), []
        for layer in layers:
            panel.layer.choose(layer)
            type_sigma(panel, sigma)
            assert run(panel).startswith("Done"), panel.status.text()
            made.append(viewer.layers[viewer.layers.index(layer) + 1])
        viewer.layers.selection = set(made)
        return made

    return run_them


@pytest.mark.parametrize("kind", ["ome", "imagej", "plain", "nifti", "czi", "video"])
def test_a_run_is_saved_as_the_command_line_writes_it(kind, viewer, denoise_all, tmp_path):
    suffix = {"nifti": ".nii", "plain": ".tif", "imagej": ".tif", "video": ".mkv"}
    suffix, image = suffix.get(kind, ".ome.tif"), noise(3, 2, 32, 40)
    path = tmp_path / ("in.czi" if kind == "czi" else f"in{suffix}")
    channels = 2 if kind in ("ome", "imagej", "czi") else 1
    if kind == "ome":
        tifffile.imwrite(path, image, metadata={"axes": "TCYX", **OME})
    elif kind == "imagej":
        told = {"axes": "TCYX", "unit": "micron", "finterval": 0.5}
        tifffile.imwrite(path, image, imagej=True, resolution=(5.0, 4.0), metadata=told)
    elif kind == "plain":
        tifffile.imwrite(path, image[:, 0], metadata={"axes": "TYX"}, compression="zlib")
    elif kind == "czi":
        with pytest.importorskip("pylibCZIrw.czi").create_czi(str(path)) as made:
            for t, c in np.ndindex(3, 2):
                made.write(image[t, c][..., None], plane={"T": t, "C": c})
            made.write_metadata(channel_names={0: "DAPI", 1: "GFP"}, scale_x=1e-7, scale_y=2e-7)
    elif kind == "video":
        av = pytest.importorskip("av")
        with av.open(path, "w") as container:
            stream = container.add_stream("ffv1", rate=25)
            stream.height, stream.width, stream.pix_fmt = 32, 40, "gray"
            for pixels in image[:, 0].astype(np.uint8):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="gray")))
            container.mux(stream.encode(None))
    else:
        nibabel.Nifti1Image(image[:, 0].T.astype(np.int16), np.diag([2, 2, 3, 1])).to_filename(path)
    layers = viewer.open(str(path), plugin=PLUGIN)
    assert len(layers) == channels
    denoise_all(layers)
    saved, expected = tmp_path / f"saved{suffix}", tmp_path / f"expected{suffix}"
    viewer.layers.save(str(saved), selected=True, plugin=PLUGIN)
    assert not gd.run_batch(path, gd.NLMeans(), 8, output=expected, axes=None).failed
    ours, theirs = gd.read(saved), gd.read(expected)
    assert_array_equal(ours.data, theirs.data)
    for name in ("axes", "kind", "voxel", "voxel_unit"):
        assert getattr(ours, name) == getattr(theirs, name), name
    told, wanted = ours.pixel_metadata, theirs.pixel_metadata
    # This CZI tells no colours, and is written with those of its layers.
    assert told.steps == wanted.steps if kind == "czi" else told == wanted
    assert len(ours.history) == channels
    for record in ours.history:
        for name in ("filter", "settings", "sigma_source", "output_dtype", "device"):
            assert record[name] == theirs.history[-1][name], name


def test_records_go_along_and_are_not_written_twice(viewer, denoise_all, tmp_path):
    path, first, second = (tmp_path / f"{name}.tif" for name in ("in", "first", "second"))
    tifffile.imwrite(path, noise(40, 48), metadata={"axes": "YX"})
    gd.run_batch(path, gd.NLMeans(), 8, output=first)
    layers = viewer.open(str(first), plugin=PLUGIN)
    assert layers[0].metadata[METADATA_KEY]["filter"] == "nl_means"
    (made,) = denoise_all(layers, sigma="3")
    write_images(str(second), [made.as_layer_data_tuple()])
    assert [record["sigma"] for record in gd.read(second).history] == [[8.0], [3.0]]


@pytest.mark.parametrize("lazily", [False, True])
def test_ome_zarr_is_opened_filtered_and_saved(
    lazily, viewer, open_panel, denoise_all, copied, tmp_path, request
):
    pytest.importorskip("zarr", reason="zarr is not installed")
    if lazily:
        request.getfixturevalue("nothing_loaded")
    image = noise(3, 2, 32, 40)
    path = write_store(tmp_path / "in.ome.zarr", image, "TCYX", chunks=(1, 1, 32, 40))
    layers = viewer.open(str(path), plugin=PLUGIN)
    assert [layer.name for layer in layers] == ["in dye 0", "in dye 1"]
    assert layers[1].multiscale == lazily
    assert tuple(layers[0].scale) == (2.0, 0.25, 0.2)
    assert tuple(layers[0].contrast_limits) == (10.0, 240.0)
    command = copied(open_panel("NL-means").command_action)
    assert f"{tmp_path}/in_nl-means.ome.zarr" in command
    denoise_all(layers)
    saved, expected = tmp_path / "saved.ome.zarr", tmp_path / "expected.ome.zarr"
    viewer.layers.save(str(saved), selected=True, plugin=PLUGIN)
    assert not gd.run_batch(path, gd.NLMeans(), 8, output=expected).failed
    ours, theirs = gd.read(saved), gd.read(expected)
    assert_array_equal(ours.data, theirs.data)
    assert (ours.axes, ours.pixel_metadata) == (theirs.axes, theirs.pixel_metadata)
    assert len(ours.history) == 2
    layers.clear()


# --- layers as files ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "labels", "axes"),
    [
        ((3, 4, 20, 24), "tzyx", "TZYX"),
        ((4, 20, 24), "zyx", "ZYX"),
        ((20, 24), "yx", "YX"),
        ((20, 24, 4), "yxt", "TYX"),
    ],
)
def test_layers_of_no_file_become_ome_tiff(tmp_path, shape, labels, axes):
    data, out = noise(*shape), tmp_path / "new.ome.tif"
    made = placed(data, labels, colormap="green", name="cells")
    assert write_images(str(out), [made]) == [str(out)]
    found = gd.read(out)
    assert (found.axes, found.kind) == (axes, "ome")
    assert_array_equal(found.data, data.transpose([labels.index(a.lower()) for a in axes]))
    wanted = {a: (SCALE[a.lower()], UNITS[a.lower()]) for a in axes}
    assert found.pixel_metadata.steps == wanted
    (channel,) = found.pixel_metadata.channels
    assert (channel.name, channel.colour) == ("cells", "#00ff00")
    ((_, attributes, _),) = read(str(out))
    assert attributes["scale"] == tuple(SCALE[a.lower()] for a in axes)


def test_layers_of_one_shape_become_channels(tmp_path):
    one, two = noise(3, 20, 24), noise(3, 20, 24, dtype=np.float32)
    given = [
        layer_data(data, name=name, colormap=name, axis_labels=("t", "y", "x"))
        for data, name in ((one, "red"), (two, "blue"))
    ]
    write_images(str(tmp_path / "both.ome.tif"), given)
    found = gd.read(tmp_path / "both.ome.tif")
    assert (found.axes, found.data.dtype) == ("TCYX", np.float32)
    assert_array_equal(found.data, np.stack([one, two], 1))
    channels = [(channel.name, channel.colour) for channel in found.pixel_metadata.channels]
    assert channels == [("red", "#ff0000"), ("blue", "#0000ff")]
    with pytest.raises(LayerError, match="'red' and 'flat' differ in shape"):
        write_images(str(tmp_path / "no.tif"), [given[0], layer_data(noise(20, 24), name="flat")])
    assert not (tmp_path / "no.tif").exists()


def test_unnamed_axes_and_other_types_become_plain_tiff(tmp_path, told):
    out, data = tmp_path / "plain.tif", noise(2, 3, 20, 24, dtype=np.int64)
    units = ("pixel", "pixel", "um", "um")
    write_images(str(out), [layer_data(data, scale=(4, 3, 0.5, 0.5), units=units)])
    found = gd.read(out)
    assert (found.kind, found.filter_axes, found.data.dtype) == ("plain", "..YX", np.int64)
    assert_array_equal(found.data, data)
    ((_, attributes, _),) = read(str(out))
    assert attributes["scale"] == (4, 3, 0.5, 0.5)
    assert attributes["units"] == ("pixel", "pixel", "micrometer", "micrometer")
    assert any("do not fit OME-TIFF" in text for text in told())


@pytest.mark.parametrize(("unit", "axes"), [("um", "ZYX"), ("s", "TYX")])
def test_axes_without_a_name_are_named_by_their_unit(unit, axes, tmp_path, told):
    out, data = tmp_path / "new.ome.tif", noise(6, 20, 24)
    write_images(str(out), [layer_data(data, scale=(0.3, 0.1, 0.2), units=(unit, "um", "um"))])
    found = gd.read(out)
    assert (found.axes, found.kind) == (axes, "ome")
    ((_, attributes, _),) = read(str(out))
    assert attributes["scale"] == (0.3, 0.1, 0.2)
    assert f"saved as {axes[0]}" in told()[0]


def test_several_axes_of_one_unit_stay_without_a_name(tmp_path):
    out, data = tmp_path / "new.ome.tif", noise(2, 3, 20, 24)
    write_images(str(out), [layer_data(data, scale=(4, 3, 2, 1), units=("um",) * 4)])
    ((_, attributes, _),) = read(str(out))
    assert attributes["scale"] == (4, 3, 2, 1) and gd.read(out).filter_axes == "..YX"


def test_layers_of_other_pixel_sizes_are_not_one_image(tmp_path):
    known = {"units": ("um", "um"), "axis_labels": ("y", "x")}
    sizes = {"A": 0.1, "B": 0.2}
    given = [layer_data(noise(20, 24), name=n, scale=(s, s), **known) for n, s in sizes.items()]
    with pytest.raises(LayerError, match="'A' and 'B' differ in scale"):
        write_images(str(tmp_path / "no.ome.tif"), given)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("samples", [3, 4])
def test_planes_of_colours_are_colours(samples, viewer, tmp_path, denoise_all):
    path, image = tmp_path / "planar.tif", noise(samples, 20, 24, dtype=np.uint8)
    extra = ["unassalpha"] * (samples - 3)
    tifffile.imwrite(path, image, photometric="rgb", planarconfig="separate", extrasamples=extra)
    (layer,) = viewer.open(str(path), plugin=PLUGIN)
    assert layer.rgb
    assert_array_equal(layer.data, np.moveaxis(image, 0, -1))
    denoise_all([layer])
    saved, expected = tmp_path / "saved.tif", tmp_path / "expected.tif"
    viewer.layers.save(str(saved), selected=True, plugin=PLUGIN)
    assert not gd.run_batch(path, gd.NLMeans(), 8, output=expected).failed
    assert gd.read(saved).axes == gd.read(expected).axes == "SYX"
    assert_array_equal(gd.read(saved).data, gd.read(expected).data)


@pytest.mark.parametrize(("labels", "samples"), [("tyx", 4), ("tzcyx", 3)])
def test_colours(tmp_path, labels, samples):
    out = tmp_path / "rgb.ome.tif"
    colours = noise(*range(2, len(labels)), 20, 24, samples, dtype=np.uint8)
    write_images(str(out), [layer_data(colours, rgb=True, axis_labels=tuple(labels))])
    found = gd.read(out)
    assert (found.axes, found.kind) == (labels.upper() + "S", "ome")
    assert (found.alpha is not None) == (samples == 4)
    assert_array_equal(found.data, colours)


def test_layers_of_no_file_become_ome_zarr(tmp_path):
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    data, out = noise(4, 700, 24), tmp_path / "new.ome.zarr"
    assert write_images(str(out), [placed(data, "zyx", name="cells")]) == [str(out)]
    found = gd.read(out)
    assert_array_equal(found.data, data)
    assert (found.axes, found.voxel, found.voxel_unit) == ("ZYX", (1.5, 0.25, 0.2), "µm")
    assert found.pixel_metadata.channels[0].name == "cells"
    assert zarr.open_group(str(out), mode="r")["1"].shape == (4, 350, 12)
    colours = layer_data(noise(20, 24, 3, dtype=np.uint8), rgb=True)
    with pytest.raises(OutputError, match="is RGB"):
        write_images(str(tmp_path / "rgb.ome.zarr"), [colours])


def test_what_is_not_written(five_d, tmp_path, told):
    before = five_d.read_bytes()
    given = [layer_data(data, **attributes) for data, attributes, _ in read(str(five_d))]
    with pytest.raises(OutputError, match="never replaced"):
        write_images(str(five_d), given)
    assert five_d.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [five_d.name]
    existing = tmp_path / "there.ome.tif"
    existing.write_bytes(b"mine")
    with pytest.raises(OutputError, match=r"there\.ome\.tif exists"):
        write_images(str(tmp_path / "there"), given)  # nobody asked about this name
    assert existing.read_bytes() == b"mine"
    # NIfTI is for what was read from one.
    with pytest.raises(LayerError, match=r"end the name with \.ome\.tif"):
        write_images(str(tmp_path / "new.nii"), [layer_data(noise(20, 24))])
    preview = layer_data(noise(32, 40), metadata={METADATA_KEY: {"temporary": "preview"}})
    (path,) = write_images(str(tmp_path / "all.tif"), [preview, layer_data(noise(16, 20))])
    assert gd.read(path).data.shape == (16, 20)
    assert "Previews and comparisons are not saved." in told()
    with pytest.raises(LayerError, match="run the filter"):
        write_images(str(tmp_path / "none.tif"), [preview])


def test_a_dicom_series_is_opened_and_saved(tmp_path):
    pytest.importorskip("pydicom", reason="needs the extra formats")
    from files.test_dicom import series

    folder = series(tmp_path / "head", noise(3, 20, 24))
    assert get_reader(str(tmp_path)) is None
    ((data, attributes, _),) = get_reader(str(folder))(str(folder))
    assert attributes["scale"] == (2.5, 0.5, 0.25) and attributes["axis_labels"] == ("z", "y", "x")
    given = layer_data(data, **attributes)
    for name in ("out.dcm", "out.ome.tif"):
        (path,) = write_images(str(tmp_path / name), [given])
        assert_array_equal(gd.read(path).data, data)
        assert gd.read(path).voxel == (2.5, 0.5, 0.25)
    with pytest.raises(LayerError, match="read from DICOM"):
        write_images(str(tmp_path / "new.dcm"), [layer_data(noise(20, 24))])


def test_napari_draws_while_it_saves(qtbot, tmp_path):
    ticks = []
    timer = QTimer()
    timer.timeout.connect(lambda: ticks.append(None))
    timer.start(1)
    image = np.zeros((4096, 4096), np.uint8)

    def wait():
        while len(ticks) < 20:
            time.sleep(0.001)

    def fail():
        raise ZeroDivisionError

    data = Sliced(image, on_read=wait)
    (path,) = write_images(str(tmp_path / "new.tif"), [lazy_layer(data)])
    assert len(ticks) >= 20 and gd.read(path).data.shape == image.shape
    with pytest.raises(OutputError, match="ZeroDivisionError"):
        write_images(str(tmp_path / "other.tif"), [lazy_layer(Sliced(image, on_read=fail))])


def test_records_that_strangers_have_changed(tmp_path):
    """What only layers have is not taken from files, and thousands of records are soon compared."""
    path, image = tmp_path / "in.ome.tif", np.ones((2, 9, 8), np.uint8)
    tifffile.imwrite(path, image, metadata={"axes": "ZYX"}, photometric="minisblack")
    odd = {"filter": "x", "axes": 0.5, "slice": "x", "history": 5, "temporary": True}
    records = [{**odd, "number": number} for number in range(3000)]
    gd.write(tmp_path / "odd.ome.tif", image, gd.read(path), records)
    (data, attributes, _) = read(str(tmp_path / "odd.ome.tif"))[0]
    layer = Image(data, **attributes)
    assert not is_temporary(layer) and len(record_of(layer)["history"]) == 2999
    assert first_origin(layer, [layer]) is layer and first_places(layer) == [0, 0, 0]
    write_images(str(tmp_path / "out.ome.tif"), [layer.as_layer_data_tuple()])
    assert len(gd.read(tmp_path / "out.ome.tif").history) >= 3000


def test_results_of_a_removed_filter_keep_its_title():
    assert filter_title({"filter": "dct3d"}) == "Sliding 3D DCT"
    assert filter_title({"filter": "bm4d"}) == "BM4D"
    assert filter_title({"filter": ["dct3d"]}) == filter_title({}) == ""
