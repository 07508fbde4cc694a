"""Files as layers, runs of the panel, and layers as files: as the command line writes them."""

from __future__ import annotations

import json
import threading
import time

import nibabel
import numpy as np
import pytest
import tifffile
from napari.layers import Image

import napari_gpu_denoise as gd
from _napari.conftest import PLUGIN
from napari_gpu_denoise._napari.compare.pair import first_places
from napari_gpu_denoise._napari.io import reading
from napari_gpu_denoise._napari.io.reading import get_reader, read
from napari_gpu_denoise._napari.io.writing import write_images
from napari_gpu_denoise._napari.layers.provenance import (
    FILE_KEY,
    METADATA_KEY,
    first_origin,
    is_temporary,
    record_of,
)
from napari_gpu_denoise.errors import LayerError, OutputError
from napari_gpu_denoise.files import formats

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


def noise(*shape, dtype=np.uint16):
    return np.random.default_rng(5).normal(100, 8, shape).astype(dtype)


@pytest.fixture
def five_d(tmp_path):
    """An OME-TIFF of two channels, three time points and four slices."""
    path = tmp_path / "cells.ome.tif"
    tifffile.imwrite(path, noise(3, 4, 2, 32, 40), metadata={"axes": "TZCYX", **OME})
    return path


def attributes_of(layer_data):
    return [attributes for _, attributes, _ in layer_data]


def test_channels_of_ome_are_layers_with_names_colours_scale_and_units(five_d):
    whole = tifffile.imread(five_d)
    first, second = read(str(five_d))
    for number, (data, attributes, kind) in enumerate((first, second)):
        np.testing.assert_array_equal(data, whole[:, :, number])
        assert kind == "image"
        assert attributes["axis_labels"] == ("t", "z", "y", "x")
        assert attributes["scale"] == (50.0, 1500.0, 0.25, 0.2)
        assert attributes["units"] == ("millisecond", "nanometer", "micrometer", "micrometer")
        assert attributes["blending"] == "additive"
    assert [each["name"] for each in attributes_of((first, second))] == ["cells DAPI", "cells GFP"]
    assert [each["colormap"] for each in attributes_of((first, second))] == ["#0000ff", "#00ff00"]


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
    first, second = attributes_of(read(str(path)))
    assert first["scale"] == (0.5, 1.5, 0.25, 0.2)
    assert first["units"] == ("second", "micrometer", "micrometer", "micrometer")
    assert (first["colormap"], second["colormap"]) == ("#ff0000", "#00ffff")
    assert (first["contrast_limits"], second["contrast_limits"]) == ((90.0, 120.0), (80.0, 130.0))
    assert first["name"] == "stack channel 0"


def test_volumes_of_nifti(tmp_path):
    path = tmp_path / "head.nii.gz"
    made = nibabel.Nifti1Image(noise(8, 9, 10, dtype=np.int16), np.diag([1.5, 2.0, 2.5, 1.0]))
    made.header.set_xyzt_units("mm", "sec")
    made.to_filename(path)
    ((data, attributes, _),) = read(str(path))
    assert data.shape == (10, 9, 8)
    assert (attributes["name"], attributes["axis_labels"]) == ("head", ("z", "y", "x"))
    assert attributes["scale"] == (2.5, 2.0, 1.5)
    assert attributes["units"] == ("millimeter",) * 3


def test_colours_stay_together_and_unnamed_axes_unnamed(tmp_path):
    path = tmp_path / "rgb.tif"
    tifffile.imwrite(path, noise(3, 20, 24, 3, dtype=np.uint8), photometric="rgb")
    ((data, attributes, _),) = read(str(path))
    assert data.shape == (3, 20, 24, 3) and attributes["rgb"]
    assert attributes["axis_labels"] == ("axis 0", "y", "x")
    assert "colormap" not in attributes


def test_large_files_are_read_when_they_are_looked_at(tmp_path, monkeypatch):
    import gc

    monkeypatch.setattr(reading, "LARGEST_LOADED", 0)
    path, image = tmp_path / "large.tif", noise(4, 2, 20, 24)
    tifffile.imwrite(path, image, metadata={"axes": "TCYX"}, ome=True)
    opened = []
    enter = reading._Held.__init__

    def counted(self, pixels, file):
        opened.append(pixels)
        enter(self, pixels, file)

    monkeypatch.setattr(reading._Held, "__init__", counted)
    layers = read(str(path))
    assert layers[1][0].chunks == ((1,) * 4, (20,), (24,))
    np.testing.assert_array_equal(np.asarray(layers[1][0]), image[:, 1])
    assert opened[0]._series is not None
    del layers
    gc.collect()
    assert opened[0]._series is None  # the file is closed with its last layer


def test_what_is_none_of_ours_is_left_to_others(tmp_path, five_d):
    text = tmp_path / "text.tif"
    text.write_text("not an image")
    assert get_reader(str(text)) is None
    assert get_reader([str(five_d), str(five_d)]) is None
    assert get_reader(str(five_d)) is read


def test_layers_are_opened_and_saved_by_napari(viewer, five_d, tmp_path):
    first, second = viewer.open(str(five_d), plugin=PLUGIN)
    assert [str(unit) for unit in first.units] == [
        *("millisecond", "nanometer", "micrometer", "micrometer"),
    ]
    assert second.name == "cells GFP" and tuple(second.scale) == (50.0, 1500.0, 0.25, 0.2)
    out = tmp_path / "saved.ome.tif"
    (saved,) = viewer.layers.save(str(out), plugin=PLUGIN)
    assert saved == str(out)
    np.testing.assert_array_equal(tifffile.imread(out), tifffile.imread(five_d))


@pytest.mark.parametrize("kind", ["ome", "imagej", "plain", "nifti"])
def test_a_run_is_saved_as_the_command_line_writes_it(kind, viewer, open_panel, run, tmp_path):
    suffix = ".nii" if kind == "nifti" else ".ome.tif" if kind == "ome" else ".tif"
    path, image = tmp_path / f"in{suffix}", noise(3, 2, 32, 40)
    told = {"axes": "TCYX", "unit": "micron", "finterval": 0.5}
    channels = 2
    if kind == "ome":
        told = {"axes": "TCYX", **OME}
        tifffile.imwrite(path, image, metadata=told)
    elif kind == "imagej":
        tifffile.imwrite(path, image, imagej=True, resolution=(5.0, 4.0), metadata=told)
    elif kind == "plain":
        tifffile.imwrite(path, image[:, 0], metadata={"axes": "TYX"}, compression="zlib")
        channels = 1
    else:
        nibabel.Nifti1Image(image[:, 0].T.astype(np.int16), np.diag([2, 2, 3, 1])).to_filename(path)
        channels = 1
    layers = viewer.open(str(path), plugin=PLUGIN)
    assert len(layers) == channels
    panel = open_panel("NL-means")
    made = []
    for layer in layers:
        panel.layer.choose(layer)
        panel.options.noise.choose("typed")
        panel.options.noise.edit.setText("8")
        assert run(panel).startswith("Done"), panel.status.text()
        made.append(viewer.layers[viewer.layers.index(layer) + 1])
    saved, expected = tmp_path / f"saved{suffix}", tmp_path / f"expected{suffix}"
    viewer.layers.selection = set(made)
    viewer.layers.save(str(saved), selected=True, plugin=PLUGIN)
    settings = gd.NLMeans()
    report = gd.run_batch(path, settings, 8, output=expected, axes=None)
    assert not report.failed
    ours, theirs = gd.read(saved), gd.read(expected)
    np.testing.assert_array_equal(ours.data, theirs.data)
    for name in ("axes", "kind", "voxel", "voxel_unit", "pixel_metadata"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert len(ours.history) == channels
    for record in ours.history:
        for name in ("filter", "settings", "sigma_source", "output_dtype", "device"):
            assert record[name] == theirs.history[-1][name], name


def test_records_go_along_and_are_not_written_twice(viewer, open_panel, run, tmp_path):
    path = tmp_path / "in.tif"
    tifffile.imwrite(path, noise(40, 48), metadata={"axes": "YX"})
    first = tmp_path / "first.tif"
    gd.run_batch(path, gd.NLMeans(), 8, output=first)
    (layer,) = viewer.open(str(first), plugin=PLUGIN)
    assert layer.metadata[METADATA_KEY]["filter"] == "nl_means"
    panel = open_panel("NL-means")
    panel.layer.choose(layer)
    panel.options.noise.choose("typed")
    panel.options.noise.edit.setText("3")
    assert run(panel).startswith("Done")
    second = tmp_path / "second.tif"
    write_images(str(second), [viewer.layers[viewer.layers.index(layer) + 1].as_layer_data_tuple()])
    assert [each["sigma"] for each in gd.read(second).history] == [[8.0], [3.0]]


def layer_data(data, **attributes):
    from napari.layers import Image

    return Image(data, **attributes).as_layer_data_tuple()


@pytest.mark.parametrize(
    ("shape", "labels", "axes"),
    [
        ((3, 4, 20, 24), ("t", "z", "y", "x"), "TZYX"),
        ((4, 20, 24), ("z", "y", "x"), "ZYX"),
        ((20, 24), ("y", "x"), "YX"),
        ((20, 24, 4), ("y", "x", "t"), "TYX"),
    ],
)
def test_layers_of_no_file_become_ome_tiff(tmp_path, shape, labels, axes):
    data, out = noise(*shape), tmp_path / "new.ome.tif"
    units = {"t": "second", "z": "micrometer", "y": "micrometer", "x": "micrometer"}
    scale = {"t": 2.0, "z": 1.5, "y": 0.25, "x": 0.2}
    made = layer_data(
        data,
        axis_labels=labels,
        scale=[scale[each] for each in labels],
        units=[units[each] for each in labels],
        colormap="green",
        name="cells",
    )
    assert write_images(str(out), [made]) == [str(out)]
    found = gd.read(out)
    assert (found.axes, found.kind) == (axes, "ome")
    order = [labels.index(each.lower()) for each in axes]
    np.testing.assert_array_equal(found.data, data.transpose(order))
    wanted = {a: (scale[a.lower()], units[a.lower()]) for a in axes}
    assert found.pixel_metadata.steps == wanted
    assert (found.pixel_metadata.channels[0].name, found.pixel_metadata.channels[0].colour) == (
        "cells",
        "#00ff00",
    )
    ((_, attributes, _),) = read(str(out))
    assert attributes["scale"] == tuple(scale[a.lower()] for a in axes)


def test_layers_of_one_shape_become_channels(tmp_path):
    one, two = noise(3, 20, 24), noise(3, 20, 24, dtype=np.float32)
    labels = {"axis_labels": ("t", "y", "x")}
    given = [
        layer_data(one, name="red", colormap="red", **labels),
        layer_data(two, name="blue", colormap="blue", **labels),
    ]
    write_images(str(tmp_path / "both.ome.tif"), given)
    found = gd.read(tmp_path / "both.ome.tif")
    assert (found.axes, found.data.dtype) == ("TCYX", np.float32)
    np.testing.assert_array_equal(found.data, np.stack([one, two], 1))
    assert [(each.name, each.colour) for each in found.pixel_metadata.channels] == [
        ("red", "#ff0000"),
        ("blue", "#0000ff"),
    ]
    other = layer_data(noise(20, 24), name="flat")
    with pytest.raises(LayerError, match="'red' and 'flat' differ in shape"):
        write_images(str(tmp_path / "no.tif"), [given[0], other])
    assert not (tmp_path / "no.tif").exists()


def test_unnamed_axes_and_other_types_become_plain_tiff(tmp_path, told):
    out = tmp_path / "plain.tif"
    data = noise(3, 20, 24, dtype=np.int64)
    write_images(str(out), [layer_data(data, scale=(1, 0.5, 0.5), units=("pixel", "um", "um"))])
    found = gd.read(out)
    assert (found.kind, found.filter_axes, found.data.dtype) == ("plain", ".YX", np.int64)
    np.testing.assert_array_equal(found.data, data)
    assert found.pixel_metadata.steps == {"Y": (0.5, "micrometer"), "X": (0.5, "micrometer")}
    assert any("do not fit OME-TIFF" in each for each in told())


def test_colours_and_booleans(tmp_path):
    out = tmp_path / "rgb.ome.tif"
    for samples in (3, 4):
        colours = noise(2, 20, 24, samples, dtype=np.uint8)
        write_images(str(out), [layer_data(colours, rgb=True, axis_labels=("t", "y", "x"))])
        found = gd.read(out)
        assert found.axes == "TYXS" and (found.alpha is not None) == (samples == 4)
        np.testing.assert_array_equal(found.data, colours)
    mask = noise(20, 24) > 100
    write_images(str(out), [layer_data(mask)])
    np.testing.assert_array_equal(gd.read(out).data, mask.astype(np.uint8))


def test_a_layer_that_was_moved_keeps_its_new_scale(viewer, five_d, tmp_path, told):
    layers = viewer.open(str(five_d), plugin=PLUGIN)
    for layer in layers:
        layer.scale = (50.0, 3000.0, 0.25, 0.2)
    out = tmp_path / "moved.ome.tif"
    viewer.layers.save(str(out), plugin=PLUGIN)
    found = gd.read(out)
    assert found.pixel_metadata.steps["Z"] == (3000.0, "nanometer")
    assert [each.name for each in found.pixel_metadata.channels] == ["DAPI", "GFP"]
    np.testing.assert_array_equal(
        found.data, np.moveaxis(tifffile.imread(five_d), 2, found.axes.index("C"))
    )
    assert any("was moved" in each for each in told())


def test_the_input_is_never_replaced_and_half_files_never_left(five_d, tmp_path):
    layers = read(str(five_d))
    before = five_d.read_bytes()
    given = [layer_data(data, **attributes) for data, attributes, _ in layers]
    with pytest.raises(OutputError, match="never replaced"):
        write_images(str(five_d), given)
    assert five_d.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == [five_d.name]
    existing = tmp_path / "there.ome.tif"
    existing.write_bytes(b"mine")
    with pytest.raises(OutputError, match=r"there\.ome\.tif exists"):
        write_images(str(tmp_path / "there"), given)  # nobody asked about this name
    assert existing.read_bytes() == b"mine"


def test_napari_draws_while_it_saves(qtbot, tmp_path, monkeypatch):
    from qtpy.QtCore import QTimer

    from napari_gpu_denoise._napari.io import writing

    ticks, held, whole = [], [], formats.write
    timer = QTimer()
    timer.timeout.connect(lambda: ticks.append(None))
    timer.start(1)

    def slow(*args, **options):
        held.append(threading.current_thread())
        while len(ticks) < 20:
            time.sleep(0.001)
        return whole(*args, **options)

    monkeypatch.setattr(writing, "_LARGE", 0)
    monkeypatch.setattr(writing.formats, "write", slow)
    (path,) = write_images(str(tmp_path / "new.tif"), [layer_data(noise(16, 20))])
    assert gd.read(path).data.shape == (16, 20) and held != [threading.main_thread()]
    monkeypatch.setattr(writing.formats, "write", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_images(str(tmp_path / "other.tif"), [layer_data(noise(16, 20))])


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


def test_previews_are_not_saved(tmp_path, told):
    preview = layer_data(noise(32, 40), metadata={"napari-gpu-denoise": {"temporary": "preview"}})
    whole = layer_data(noise(16, 20))
    (path,) = write_images(str(tmp_path / "all.tif"), [preview, whole])
    assert gd.read(path).data.shape == (16, 20)
    assert "Previews and comparisons are not saved." in told()
    with pytest.raises(LayerError, match="run the filter"):
        write_images(str(tmp_path / "none.tif"), [preview])


def test_what_a_layer_remembers_is_plain(five_d):
    for attributes in attributes_of(read(str(five_d))):
        assert json.loads(json.dumps(attributes["metadata"][FILE_KEY]))["axes"] == "TZCYX"


def test_names_of_nifti_are_for_what_was_read_from_one(tmp_path):
    with pytest.raises(LayerError, match=r"end the name with \.ome\.tif"):
        write_images(str(tmp_path / "new.nii"), [layer_data(noise(20, 24))])


def test_the_command_line_of_a_channel_names_the_axes_of_its_file(
    viewer, open_panel, copied, tmp_path
):
    path = tmp_path / "in.ome.tif"
    tifffile.imwrite(path, noise(3, 2, 32, 40), metadata={"axes": "TCYX", **OME})
    viewer.open(str(path), plugin=PLUGIN)
    panel = open_panel()
    assert "--axes TCYX" in copied(panel.command_button)


@pytest.mark.parametrize("lazily", [False, True])
def test_ome_zarr_is_opened_filtered_and_saved(
    lazily, viewer, open_panel, run, copied, tmp_path, monkeypatch
):
    pytest.importorskip("zarr", reason="zarr is not installed")
    from zarr_stores import write_store

    if lazily:
        monkeypatch.setattr(reading, "LARGEST_LOADED", 0)
    image = noise(3, 2, 32, 40)
    path = write_store(tmp_path / "in.ome.zarr", image, "TCYX", chunks=(1, 1, 32, 40))
    layers = viewer.open(str(path), plugin=PLUGIN)
    assert [each.name for each in layers] == ["in dye 0", "in dye 1"]
    assert layers[1].multiscale == lazily
    assert tuple(layers[0].scale) == (2.0, 0.25, 0.2)
    assert tuple(layers[0].contrast_limits) == (10.0, 240.0)
    panel = open_panel("NL-means")
    assert f"{tmp_path}/in_nl-means.ome.zarr" in copied(panel.command_button)
    made = []
    for layer in layers:
        panel.layer.choose(layer)
        panel.options.noise.choose("typed")
        panel.options.noise.edit.setText("8")
        assert run(panel).startswith("Done"), panel.status.text()
        made.append(viewer.layers[viewer.layers.index(layer) + 1])
    saved, expected = tmp_path / "saved.ome.zarr", tmp_path / "expected.ome.zarr"
    viewer.layers.selection = set(made)
    viewer.layers.save(str(saved), selected=True, plugin=PLUGIN)
    assert not gd.run_batch(path, gd.NLMeans(), 8, output=expected).failed
    ours, theirs = gd.read(saved), gd.read(expected)
    np.testing.assert_array_equal(ours.data, theirs.data)
    assert (ours.axes, ours.pixel_metadata, len(ours.history)) == (
        theirs.axes,
        theirs.pixel_metadata,
        2,
    )
    layers.clear(), viewer.layers.clear()


def test_layers_of_no_file_become_ome_zarr(tmp_path):
    pytest.importorskip("zarr", reason="zarr is not installed")
    data, out = noise(4, 700, 24), tmp_path / "new.ome.zarr"
    place = {"scale": (1.5, 0.25, 0.2), "units": ("micrometer",) * 3}
    made = layer_data(data, axis_labels=("z", "y", "x"), name="cells", **place)
    assert write_images(str(out), [made]) == [str(out)]
    found = gd.read(out)
    np.testing.assert_array_equal(found.data, data)
    assert (found.axes, found.voxel, found.voxel_unit) == ("ZYX", (1.5, 0.25, 0.2), "µm")
    assert found.pixel_metadata.channels[0].name == "cells"
    import zarr

    assert zarr.open_group(str(out), mode="r")["1"].shape == (4, 350, 12)
    colours = layer_data(noise(20, 24, 3, dtype=np.uint8), rgb=True)
    with pytest.raises(LayerError, match="is RGB"):
        write_images(str(tmp_path / "rgb.ome.zarr"), [colours])
