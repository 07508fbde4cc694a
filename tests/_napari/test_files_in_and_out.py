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
from napari_gpu_denoise._napari.io import reading
from napari_gpu_denoise._napari.io.reading import get_reader, read
from napari_gpu_denoise._napari.io.writing import write_images
from napari_gpu_denoise._napari.layers.provenance import (
    FILE_KEY,
    METADATA_KEY,
    filter_title,
    first_origin,
    is_temporary,
    record_of,
    runs_in,
)
from napari_gpu_denoise.errors import LayerError, OutputError
from zarr_stores import write_store

OME = {
    **{"PhysicalSizeX": 0.2, "PhysicalSizeY": 0.25, "PhysicalSizeZ": 1500.0},
    **{"PhysicalSizeZUnit": "nm", "TimeIncrement": 50.0, "TimeIncrementUnit": "ms"},
    "Channel": {"Name": ["DAPI", "GFP"], "Color": [0x0000FFFF, 0x00FF00FF]},
}
FIVE_D = (2, 3, 2, 20, 24)  # time points, slices, channels, rows and columns
UNITS = {"t": "second", "z": "micrometer", "y": "micrometer", "x": "micrometer"}
SCALE = {"t": 2.0, "z": 1.5, "y": 0.25, "x": 0.2}


def noise(*shape, dtype=np.uint16):
    return np.random.default_rng(5).normal(100, 8, shape).astype(dtype)


def layer_data(data, labels=None, **attributes):
    """A layer; with labels of its axes, it has their units and scale, too."""
    if labels is not None:
        known = {"scale": [SCALE[a] for a in labels], "units": [UNITS[a] for a in labels]}
        attributes = {"axis_labels": tuple(labels), **known, **attributes}
    return Image(data, **attributes).as_layer_data_tuple()


def layers_of(path):
    return [layer_data(data, **attributes) for data, attributes, _ in read(str(path))]


def ome(path):
    tifffile.imwrite(path, noise(*FIVE_D), metadata={"axes": "TZCYX", **OME})


def imagej(path):
    rgb = (1, 0, 0), (0, 1, 1)
    tables = [np.stack([np.arange(256) * on for on in each]).astype(np.uint8) for each in rgb]
    told = {"axes": "TZCYX", "unit": "micron", "spacing": 1.5, "finterval": 0.5, "LUTs": tables}
    told |= {"Ranges": (90.0, 120.0, 80.0, 130.0), "mode": "composite"}
    image = noise(*FIVE_D)
    tifffile.imwrite(path, image, imagej=True, resolution=(5.0, 4.0), metadata=told)


def nifti(path):
    made = nibabel.Nifti1Image(noise(24, 20, 3, dtype=np.int16), np.diag([1.5, 2.0, 2.5, 1.0]))
    made.header.set_xyzt_units("mm", "sec")
    made.to_filename(path)


def colours(path):
    """Without a name of the first axis."""
    tifffile.imwrite(path, noise(3, 20, 24, 3, dtype=np.uint8), photometric="rgb")


def narrow(path):
    tifffile.imwrite(path, noise(20, 3), metadata={"axes": "YX"})


def planar(path):
    """Planes of colours, and alpha."""
    looks = {"photometric": "rgb", "planarconfig": "separate", "extrasamples": ["unassalpha"]}
    tifffile.imwrite(path, noise(4, 20, 24, dtype=np.uint8), **looks)


def store(path):
    pytest.importorskip("zarr", reason="zarr is not installed")
    write_store(path, noise(3, 2, 20, 24), "TCYX", chunks=(1, 1, 20, 24))


def plain(channels):
    """Without colours."""

    def write(path):
        image = noise(channels, 20, 24)
        tifffile.imwrite(path, image, metadata={"axes": "CYX"}, photometric="minisblack")

    return write


@pytest.fixture
def five_d(tmp_path):
    path = tmp_path / "cells.ome.tif"
    ome(path)
    return path


# --- files as layers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "write", "same", "each"),
    [
        (
            "a.ome.tif",
            ome,
            {"scale": (50.0, 1500.0, 0.25, 0.2), "blending": "additive", "rgb": False}
            | {"units": ("millisecond", "nanometer", "micrometer", "micrometer")},
            {"name": ["a DAPI", "a GFP"], "colormap": ["#0000ff", "#00ff00"]},
        ),
        (
            "a.tif",
            imagej,
            {"scale": (0.5, 1.5, 0.25, 0.2), "units": tuple(UNITS.values())},
            {"name": ["a channel 0", "a channel 1"], "colormap": ["#ff0000", "#00ffff"]}
            | {"contrast_limits": [(90.0, 120.0), (80.0, 130.0)]},
        ),
        (
            "a.nii.gz",
            nifti,
            {"name": "a", "axis_labels": ("z", "y", "x"), "scale": (2.5, 2.0, 1.5)}
            | {"units": ("millimeter",) * 3},
            {"colormap": ["gray"]},
        ),
        ("a.tif", colours, {"rgb": True, "axis_labels": ("axis 0", "y", "x")}, {"name": ["a"]}),
        ("a.tif", narrow, {"rgb": False, "axis_labels": ("y", "x")}, {"name": ["a"]}),
        (
            "a.ome.zarr",
            store,
            {"scale": (2.0, 0.25, 0.2), "contrast_limits": (10.0, 240.0), "multiscale": False},
            {"name": ["a dye 0", "a dye 1"]},
        ),
        ("a.ome.tif", plain(2), {}, {"colormap": ["magenta", "green"]}),
        ("a.ome.tif", plain(3), {}, {"colormap": ["cyan", "yellow", "magenta"]}),
    ],
)
def test_layers_are_as_their_file_says(tmp_path, name, write, same, each):
    write(tmp_path / name)
    assert get_reader(str(tmp_path / name)) is read
    layers, image = read(str(tmp_path / name)), gd.read(tmp_path / name)
    for number, (data, attributes, kind) in enumerate(layers):
        wanted = {**same, **{name: found[number] for name, found in each.items()}}
        assert kind == "image" and {name: attributes[name] for name in wanted} == wanted
        split = image.axes.index("C") if "C" in image.axes else None
        expected = image.data if split is None else image.data.take(number, split)
        assert_array_equal(data, expected)
        # What a layer remembers is plain.
        remembered = attributes["metadata"][FILE_KEY]
        assert json.loads(json.dumps(remembered))["split"] == split
        assert ("colormap" in attributes) != attributes["rgb"]
    assert {len(found) for found in each.values()} == {len(layers)}


def test_results_are_named_by_their_filter(five_d, tmp_path):
    settings = gd.BM3D.of(profile="fast")
    (report,) = gd.run_batch(five_d, settings, 20, output=tmp_path / "out").files
    # A layer that was saved under its name is not named twice.
    saved = tmp_path / "cells BM3D.ome.tif"
    saved.write_bytes(report.output.read_bytes())
    found = [
        attributes["name"] for path in (report.output, saved) for _, attributes, _ in read(path)
    ]
    assert found == ["cells DAPI BM3D", "cells GFP BM3D", "cells BM3D DAPI", "cells BM3D GFP"]
    assert filter_title({"filter": "dct3d"}) == "Sliding 3D DCT"  # which was removed
    assert filter_title({"filter": ["dct3d"]}) == filter_title({}) == ""


def test_large_files_are_read_when_they_are_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "LARGEST_LOADED", 0)
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
    assert get_reader(str(text)) is None and get_reader([str(five_d), str(five_d)]) is None


# --- what napari's own reader leaves out ----------------------------------------------------------


def test_axes_and_pixel_size_of_the_file_are_offered(viewer, open_panel, tmp_path, qtbot):
    path, image = tmp_path / "volume.ome.tif", noise(6, 20, 24)
    told = {"PhysicalSizeZ": 0.3, "PhysicalSizeY": 0.1, "PhysicalSizeX": 0.1}
    tifffile.imwrite(path, image, metadata={"axes": "ZYX", **told})
    with layer_source(path=str(path), reader_plugin="napari"):
        layer = viewer.add_image(image)
    panel = open_panel("NL-means")
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
        # napari drops axes of length 1
        ("TZYX", (1, 3, 20, 24), {}, {"axis_labels": tuple("zyx"), "scale": (1, 1, 0.1)}),
        ("ZYX", (3, 20, 24), {"axis_labels": tuple("tyx"), "scale": (9, 1, 1)}, {}),
        ("ZYX", (3, 20, 24), {"axis_labels": tuple("zyx")}, {"scale": (1, 1, 0.1)}),
        ("ZYX", (3, 20, 24), {"scale": (9, 1, 1)}, {"axis_labels": tuple("zyx")}),
        ("YXS", (20, 24, 3), {"rgb": True}, {"scale": (1, 0.1)}),
        # another image than that of the file, or none
        ("ZYX", (3, 20, 24), {"shape": (4, 20, 24)}, {}),
        ("ZYX", (3, 20, 24), {"shape": (20, 24, 3), "rgb": True}, {}),
        ("", (20, 24), {}, {}),
    ],
)
def test_what_a_layer_lacks_is_offered(axes, shape, attributes, offered, tmp_path):
    path, image = tmp_path / "a.ome.tif", noise(*shape, dtype=np.uint8)
    if axes:
        tifffile.imwrite(path, image, metadata={"axes": axes, "PhysicalSizeX": 0.1}, ome=True)
    shape, looks = attributes.get("shape"), {k: v for k, v in attributes.items() if k != "shape"}
    with layer_source(path=str(path)):
        layer = Image(np.zeros(shape, np.uint8) if shape else np.squeeze(image), **looks)
    found = attributes_in_file(layer)
    assert ("units" in found) == ("scale" in found)
    assert {name: each for name, each in found.items() if name != "units"} == offered


# --- runs of the panel ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("suffix", "write", "lazily"),
    [
        (".ome.tif", ome, False),
        (".tif", imagej, False),
        (".tif", planar, False),
        (".nii", nifti, False),
        (".ome.zarr", store, False),
        (".ome.zarr", store, True),
    ],
)
def test_a_run_is_saved_as_the_command_line_writes_it(
    suffix, write, lazily, viewer, open_panel, run, tmp_path, monkeypatch
):
    if lazily:
        monkeypatch.setattr(reading, "LARGEST_LOADED", 0)
    path, saved, expected = (tmp_path / f"{name}{suffix}" for name in ("in", "saved", "expected"))
    write(path)
    layers, panel, made = viewer.open(str(path), plugin=PLUGIN), open_panel("NL-means"), set()
    assert layers[0].multiscale == lazily
    for layer in layers:
        panel.layer.choose(layer)
        type_sigma(panel, "8")
        assert run(panel).startswith("Done"), panel.status.text()
        made.add(viewer.layers[viewer.layers.index(layer) + 1])
    viewer.layers.selection = made
    viewer.layers.save(str(saved), selected=True, plugin=PLUGIN)
    assert not gd.run_batch(path, gd.NLMeans(), 8, output=expected, axes=None).failed
    ours, theirs = gd.read(saved), gd.read(expected)
    assert_array_equal(ours.data, theirs.data)
    for name in ("axes", "kind", "voxel", "voxel_unit", "pixel_metadata"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert len(ours.history) == len(layers) == (2 if "C" in ours.axes else 1)
    for record in ours.history:
        for name in ("filter", "settings", "sigma_source", "output_dtype", "device"):
            assert record[name] == theirs.history[-1][name], name


def test_records_go_along_and_are_not_written_twice(five_d, tmp_path):
    first, second = tmp_path / "first.ome.tif", tmp_path / "second.ome.tif"
    like = gd.read(five_d)
    gd.write(first, like.data, like, [{"n": 0}, {"n": 1, "channel": 1}])
    given = layers_of(first)
    for number, (_, attributes, _) in enumerate(given):
        *earlier, last = runs_in(attributes["metadata"][METADATA_KEY])
        assert last["n"] == number and len(earlier) == number
        made = {"n": number + 2, "history": [*earlier, last]}
        attributes["metadata"] = {**attributes["metadata"], METADATA_KEY: made}
    write_images(str(second), given)
    known = [{"n": 0}, *({"n": n, "channel": c} for n, c in ((1, 1), (2, 0), (3, 1)))]
    assert list(gd.read(second).history) == known


# --- layers as files ------------------------------------------------------------------------------


def test_layers_of_a_file_are_saved_as_it_is_moved_ones_with_their_new_scale(
    five_d, tmp_path, told
):
    given, whole = layers_of(five_d), tifffile.imread(five_d)
    write_images(str(tmp_path / "saved.ome.tif"), given)
    assert_array_equal(tifffile.imread(tmp_path / "saved.ome.tif"), whole)
    for _, attributes, _ in given:
        attributes["scale"] = (50.0, 3000.0, 0.25, 0.2)
    write_images(str(tmp_path / "moved.ome.tif"), given)
    found = gd.read(tmp_path / "moved.ome.tif")
    assert found.pixel_metadata.steps["Z"] == (3000.0, "nanometer")
    assert [channel.name for channel in found.pixel_metadata.channels] == ["DAPI", "GFP"]
    assert_array_equal(found.data, np.moveaxis(whole, 2, found.axes.index("C")))
    assert any("was moved" in text for text in told())
    given = layers_of(five_d)
    for _, attributes, _ in given:
        attributes["units"] = ("second", *attributes["units"][1:])
    write_images(str(tmp_path / "slower.ome.tif"), given)
    assert gd.read(tmp_path / "slower.ome.tif").pixel_metadata.steps["T"] == (50.0, "second")


def test_layers_that_are_not_their_whole_file_make_one_of_their_own(five_d, tmp_path):
    pytest.importorskip("zarr", reason="zarr is not installed")
    (first, looks, kind), second = layers_of(five_d)
    cropped = [(data[:, 1:], *rest) for data, *rest in layers_of(five_d)]
    image = tifffile.imread(five_d)
    for name, given, axes, expected in (
        ("both.ome.tif", [second, (first, looks, kind)], "TZCYX", image),
        ("one.ome.tif", [second], "TZYX", image[:, :, 1]),
        ("cropped.ome.tif", cropped, "TCZYX", np.moveaxis(image[:, 1:], 2, 1)),
        ("other.ome.zarr", layers_of(five_d), "TCZYX", np.moveaxis(image, 2, 1)),
    ):
        write_images(str(tmp_path / name), given)
        found = gd.read(tmp_path / name)
        assert found.axes == axes and found.pixel_metadata.steps["X"] == (0.2, "micrometer")
        assert_array_equal(found.data, expected)


@pytest.mark.parametrize("changed", [True, False], ids=["changed", "gone"])
def test_layers_of_a_file_that_is_another_by_now(five_d, tmp_path, changed):
    given = layers_of(five_d)
    five_d.unlink()
    if changed:
        other = {"axes": "TZCYX", **OME, "PhysicalSizeX": 9.0, "Channel": {"Name": ["A", "B"]}}
        tifffile.imwrite(five_d, noise(*FIVE_D), metadata=other)
    write_images(str(tmp_path / "out.ome.tif"), given)
    found = gd.read(tmp_path / "out.ome.tif")
    assert found.pixel_metadata.steps["X"] == (0.2, "micrometer")
    assert [channel.name for channel in found.pixel_metadata.channels] == ["DAPI", "GFP"]


def unit_steps(*scale, unit="um"):
    return {"scale": scale, "units": (unit,) + ("um",) * (len(scale) - 1)}


@pytest.mark.parametrize(
    ("name", "shape", "given", "axes", "kind", "said"),
    [
        ("a.ome.tif", (3, 4, 20, 24), {"labels": "tzyx"}, "TZYX", "ome", ""),
        ("a.ome.tif", (20, 24, 4), {"labels": "yxt"}, "TYX", "ome", ""),
        ("a.ome.zarr", (4, 700, 24), {"labels": "zyx"}, "ZYX", "zarr", ""),
        ("a.tif", (2, 20, 24, 4), {"labels": "tyx", "rgb": True}, "TYXS", "ome", ""),
        # Axes without a name are named by their unit, where there is one of it.
        ("a.ome.tif", (6, 20, 24), unit_steps(0.3, 0.1, 0.2), "ZYX", "ome", "saved as Z"),
        ("a.tif", (6, 20, 24), unit_steps(9, 1, 2, unit="s"), "TYX", "ome", "saved as T"),
        ("a.tif", (2, 3, 20, 24), unit_steps(4, 3, 2, 1), "..YX", "plain", "do not fit OME"),
    ],
)
def test_a_layer_of_no_file_comes_back_as_it_was(
    tmp_path, told, name, shape, given, axes, kind, said
):
    data, out = noise(*shape, dtype=np.uint8), tmp_path / name
    looks = {} if "rgb" in given else {"colormap": "green"}
    made = layer_data(data, **given, **looks, name="cells")
    assert write_images(str(out), [made]) == [str(out)]
    found = gd.read(out)
    assert (found.filter_axes, found.kind) == (axes, kind)
    turned = (2, 0, 1) if "yxt" in given.values() else range(len(shape))
    assert_array_equal(found.data, data.transpose(turned))
    assert (found.alpha is not None) == ("rgb" in given)
    (channel,) = found.pixel_metadata.channels
    assert (channel.name, channel.colour) == ("cells", "#00ff00" if looks else "")
    ((_, attributes, _),) = read(str(out))
    places = [turned[n] for n in range(len(made[1]["scale"]))]
    assert attributes["scale"] == tuple(made[1]["scale"][n] for n in places)
    assert [str(attributes["units"][n]) for n in range(len(places))] == [
        str(made[1]["units"][n]) for n in places
    ]
    assert any(said in text for text in told()) if said else not told()


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"dtype": np.float32}, ""),
        ({"shape": (20, 24), "labels": "yx"}, "'red' and 'blue' differ in shape"),
        ({"scale": (2, 0.5, 0.2)}, "'red' and 'blue' differ in scale"),
        ({"shape": (3, 20, 24, 3), "rgb": True}, "differ in shape or axes"),
    ],
)
def test_layers_of_one_shape_are_channels(tmp_path, other, said):
    other, out = {"shape": (3, 20, 24), "labels": "tyx", **other}, tmp_path / "both.ome.tif"
    one = noise(3, 20, 24)
    two = noise(*other.pop("shape"), dtype=other.pop("dtype", np.uint8))
    looks = {} if "rgb" in other else {"colormap": "blue"}
    given = [layer_data(one, "tyx", name="red", colormap="red")]
    given.append(layer_data(two, name="blue", **looks, **other))
    if said:
        with pytest.raises(LayerError, match=said):
            write_images(str(out), given)
        assert not any(tmp_path.iterdir())
        return
    write_images(str(out), given)
    found = gd.read(out)
    assert (found.axes, found.data.dtype) == ("TCYX", np.float32)
    assert_array_equal(found.data, np.stack([one, two], 1))
    channels = [(channel.name, channel.colour) for channel in found.pixel_metadata.channels]
    assert channels == [("red", "#ff0000"), ("blue", "#0000ff")]


def test_what_is_not_written(five_d, tmp_path, told):
    before, given = five_d.read_bytes(), layers_of(five_d)
    with pytest.raises(OutputError, match="never replaced"):
        write_images(str(five_d), given)
    assert five_d.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [five_d.name]
    existing = tmp_path / "there.ome.tif"
    existing.write_bytes(b"mine")
    with pytest.raises(OutputError, match=r"there\.ome\.tif exists"):
        write_images(str(tmp_path / "there"), given)  # nobody asked about this name
    assert existing.read_bytes() == b"mine"
    plane = layer_data(noise(20, 24))
    preview = layer_data(noise(32, 40), metadata={METADATA_KEY: {"temporary": "preview"}})
    rgb = layer_data(noise(20, 24, 3, dtype=np.uint8), rgb=True)
    for name, layer, kind, said in (
        ("a.nii", plane, LayerError, r"end the name with \.ome\.tif"),  # for what was read from one
        ("a.dcm", plane, LayerError, "read from DICOM"),
        ("a.ome.zarr", rgb, OutputError, "is RGB"),
        ("a.tif", preview, LayerError, "run the filter"),
    ):
        with pytest.raises(kind, match=said):
            write_images(str(tmp_path / name), [layer])
    (path,) = write_images(str(tmp_path / "all.tif"), [preview, plane])
    assert gd.read(path).data.shape == (20, 24)
    assert "Previews and comparisons are not saved." in told()


def test_a_dicom_series_is_opened_and_saved(tmp_path):
    pytest.importorskip("pydicom", reason="needs the extra formats")
    from files.test_dicom import series

    folder = series(tmp_path / "head", noise(3, 20, 24))
    assert get_reader(str(tmp_path)) is None
    ((data, attributes, _),) = get_reader(str(folder))(str(folder))
    assert attributes["scale"] == (2.5, 0.5, 0.25) and attributes["axis_labels"] == ("z", "y", "x")
    for name in ("out.dcm", "out.ome.tif"):
        (path,) = write_images(str(tmp_path / name), [layer_data(data, **attributes)])
        assert_array_equal(gd.read(path).data, data)
        assert gd.read(path).voxel == (2.5, 0.5, 0.25)
    (channel,) = gd.read(path).pixel_metadata.channels
    assert channel.colour == "#ffffff"  # of the layer, as the file tells none


def test_napari_draws_while_it_saves(qtbot, tmp_path):
    ticks = []
    timer = QTimer()
    timer.timeout.connect(lambda: ticks.append(None))
    timer.start(1)

    def wait():
        while len(ticks) < 20:
            time.sleep(0.001)

    def fail():
        raise ZeroDivisionError

    given = {"contrast_limits": (0, 255), "multiscale": False}
    data, broken = (Sliced(np.zeros((4096, 4096), np.uint8), on_read=each) for each in (wait, fail))
    (path,) = write_images(str(tmp_path / "new.tif"), [layer_data(data, **given)])
    assert len(ticks) >= 20 and gd.read(path).data.shape == data.shape
    with pytest.raises(OutputError, match="ZeroDivisionError"):
        write_images(str(tmp_path / "other.tif"), [layer_data(broken, **given)])


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
