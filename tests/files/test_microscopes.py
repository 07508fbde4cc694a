"""ND2, CZI and LIF, as their readers read them: axes, sizes, channels, scenes; results as TIFF.

CZI are written by the library of Zeiss. No package writes ND2 and LIF: small ones are made here, as
the readers nd2 and liffile read them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from xml.sax.saxutils import quoteattr

import numpy as np
import pytest
from pylibCZIrw import czi

import napari_gpu_denoise as gd
from files.contract import LENGTHS, FormatContract, SameWriter, apart
from napari_gpu_denoise.errors import FileError
from napari_gpu_denoise.files import formats
from scenes import noisy, small

SMALL = small(gd.NLMeans)
IMAGE = noisy(12, 24, 32).astype(np.uint16).reshape(3, 2, 2, 24, 32)  # t, z, c, y, x


def write_czi(path: Path, image: np.ndarray = IMAGE) -> Path:
    """Write an image (t, z, c, y, x) as CZI."""
    with czi.create_czi(str(path)) as made:
        for t, z, c in np.ndindex(image.shape[:3]):
            made.write(image[t, z, c][..., None], plane={"T": t, "Z": z, "C": c})
        names = {0: "DAPI", 1: "GFP"}
        made.write_metadata(channel_names=names, scale_x=1e-7, scale_y=2e-7, scale_z=5e-7)
    return path


def lif(path: Path, images: list[np.ndarray], dimensions: list[tuple], channels: str) -> Path:
    """Write images as LIF; dimensions are number, length, distance, unit and bytes apart."""
    told = "".join(
        f'<DimensionDescription DimID="{number}" NumberOfElements="{count}" Origin="0" '
        f'Length="{distance * (count - 1)}" Unit="{unit}" BitInc="0" BytesInc="{step}"/>'
        for number, count, distance, unit, step in dimensions
    )
    elements = "".join(
        f'<Element Name="Series {k + 1}"><Memory Size="{image.nbytes}" MemoryBlockID="Block{k}"/>'
        f"<Data><Image><ImageDescription><Channels>{channels}</Channels>"
        f"<Dimensions>{told}</Dimensions></ImageDescription></Image></Data></Element>"
        for k, image in enumerate(images)
    )
    head = (
        '<LMSDataContainerHeader Version="2"><Element Name="cells"><Data/><Memory Size="0" '
        f'MemoryBlockID="Block"/><Children>{elements}</Children></Element></LMSDataContainerHeader>'
    )
    text = head.encode("utf-16-le")
    content = struct.pack("<IIBI", 0x70, len(text) + 5, 0x2A, len(head)) + text
    for k, image in enumerate(images):
        name = f"Block{k}"
        content += struct.pack("<IIBQBI", 0x70, 0, 0x2A, image.nbytes, 0x2A, len(name))
        content += name.encode("utf-16-le") + image.tobytes()
    path.write_bytes(content)
    return path


def lif_channel(tag: int, offset: int, colour: str = "Green") -> str:
    return (
        f'<ChannelDescription DataType="0" ChannelTag="{tag}" BytesInc="{offset}" Resolution="16" '
        f'NameOfMeasuredQuantity="" Min="0" Max="1" Unit="" LUTName="{colour}" IsLUTInverted="0" '
        'BitInc="0"/>'
    )


def write_lif(
    path: Path, images: int = 2, image: np.ndarray = IMAGE, *, coloured: bool = False
) -> Path:
    """Write images (t, z, c, y, x), each one more than the one before, as LIF.

    Colours are told, without pixels.
    """
    nt, nz, nc, ny, nx = image.shape
    nc, apart_x = (3, 6) if coloured else (nc, 2)
    plane, stack = apart_x * nx * ny, apart_x * nx * ny * (1 if coloured else nc)
    dimensions = [(1, nx, 2e-7, "m", apart_x), (2, ny, 4e-7, "m", apart_x * nx)]
    dimensions += [(3, nz, 5e-7, "m", stack), (4, nt, 2.0, "s", stack * nz)]
    offsets = [2 * c if coloured else c * plane for c in range(nc)]
    channels = "".join(lif_channel((c + 1) * coloured, n) for c, n in enumerate(offsets))
    return lif(path, [image + np.uint16(k) for k in range(images)], dimensions, channels)


def write_scan(path: Path, scan: str, image: np.ndarray) -> Path:
    """Write an image of one channel as LIF, whose axes are named from the last to the first."""
    numbers = [" XYZTλA....L".index(letter) for letter in scan]
    steps = image.itemsize * np.cumprod([1, *image.shape[:0:-1]])
    dimensions = [
        (number, count, min(number, 3) * 1e-6, "m", step)
        for number, count, step in zip(numbers, image.shape[::-1], steps, strict=True)
    ]
    return lif(path, [image], dimensions, lif_channel(0, 0, "Gray"))


def variant(name: str, value: object) -> str:
    """Return a value as ND2 of version 2 has it in XML."""
    if isinstance(value, dict):
        inner = "".join(variant(key, each) for key, each in value.items())
        return f'<{name} runtype="CLxListVariant">{inner}</{name}>'
    kind = {bool: "bool", int: "lx_uint32", float: "double", str: "CLxStringW"}[type(value)]
    return f'<{name} runtype="{kind}" value={quoteattr(str(value))}/>'


def write_nd2(
    path: Path, stored: int = 99, positions: bool = False, image: np.ndarray = IMAGE
) -> Path:
    """Write an image (t, z, c, y, x) as ND2, of which so many frames are stored; t as places."""
    nt, nz, nc, ny, nx = image.shape
    stored = min(stored, nt * nz)
    wide = 2 * nc * nx
    sizes = {"uiWidth": nx, "uiWidthBytes": wide, "uiHeight": ny, "uiComp": nc}
    sizes |= {"uiBpcInMemory": 16, "uiBpcSignificant": 16, "uiSequenceCount": stored}
    probe = {"m_ExcitationSpectrum": {"uiCount": 0}}
    planes = {
        f"a{c}": {"sDescription": name, "uiCompCount": 1, "pFluorescentProbe": probe}
        for c, name in enumerate("ab")
    }
    shown = {"bCalibrated": True, "dCalibration": 0.1}
    shown["sPicturePlanes"] = {"uiCount": nc, "sPlane": planes}
    stack = {"eType": 4, "uLoopPars": {"uiCount": nz, "dZStep": 0.5}}
    times = {"uiCount": nt, "dStart": 0.0, "dPeriod": 2000.0, "dDuration": 4000.0}
    loops = {"eType": 1, "uLoopPars": times, "ppNextLevelEx": {"a": stack}}
    if positions:
        points = {f"i{k}": {"dPosX": float(k), "dPosY": 0.0, "dPosZ": 0.0} for k in range(nt)}
        loops |= {"eType": 2, "uLoopPars": {"uiCount": nt, "Points": points}}
    chunks = {
        "ImageAttributes!": {"SLxImageAttributes": sizes},
        "ImageMetadataSeq|0!": {"SLxPictureMetadata": shown},
        "ImageMetadata!": {"SLxExperiment": loops},
    }
    found = {
        key: (
            "<variant>" + "".join(variant(*each) for each in value.items()) + "</variant>"
        ).encode()
        for key, value in chunks.items()
    }
    found["CustomData|AcqTimesCache!"] = np.arange(float(nt * nz)).tobytes()
    for k, frame in enumerate(np.moveaxis(image, 2, -1).reshape(-1, ny, nx, nc)[:stored]):
        found[f"ImageDataSeq|{k}!"] = bytes(8) + frame.tobytes()  # after the time
    content = struct.pack(
        "<IIQ32s64s", 0xABECEDA, 32, 64, b"ND2 FILE SIGNATURE CHUNK NAME01!", b"Ver2.0"
    )
    places = b""
    for key, data in found.items():
        places += key.encode() + struct.pack("<QQ", len(content), len(data))
        content += struct.pack("<IIQ", 0xABECEDA, 4072, len(data)) + key.encode().ljust(4072, b"\0")
        content += data
    at, end = len(content), b"ND2 CHUNK MAP SIGNATURE 0000001!"
    places += end + struct.pack("<Q", at)
    name = b"ND2 FILEMAP SIGNATURE NAME 0001!"
    content += struct.pack("<IIQ", 0xABECEDA, len(name), len(places)) + name + places
    path.write_bytes(content)
    return path


def directory(data: bytes) -> int:
    """Return where the list of planes of a CZI is."""
    return int.from_bytes(data[84:92], "little")


def dimension(name: bytes, offset: int, data: bytes) -> int:
    """Return a place in a dimension of its first plane."""
    first = directory(data) + 192
    return offset + next(k for k in range(first, first + 100, 20) if data[k : k + 1] == name)


def lie(where: Callable[[bytes], int], value: int, length: int = 4) -> Callable[[Path], object]:
    """Return what writes a number into a file."""

    def spoil(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[where(data) : where(data) + length] = value.to_bytes(length, "little")
        path.write_bytes(data)

    return spoil


def replace(*pairs: tuple[str, str], encoding: str = "utf-8") -> Callable[[Path], object]:
    """Return what replaces texts of a file."""

    def spoil(path: Path) -> None:
        data = path.read_bytes()
        for few, many in pairs:
            data = data.replace(few.encode(encoding), many.encode(encoding))
        path.write_bytes(data)

    return spoil


class TestCzi(SameWriter, FormatContract):
    ending, results, others = ".czi", (), (".ome.tif", ".ome.zarr")
    axes, types = ("YX", "ZYX", "CZYX", "TCZYX"), ("uint16", "uint8")
    steps = apart(Z=0.5, Y=0.2, X=0.1)
    channels = ("DAPI", "GFP")
    modules = ("bioio_czi",)
    damaged = 0  # its reader is compiled, and may end the program
    # Its reader would end the program, or count planes for hours.
    lies = tuple(
        ("damaged", lie(*each))
        for each in (
            (lambda data: 84, 1 << 40, 8),  # where the directory is
            (lambda data: directory(data) + 24, 1 << 40, 8),  # its length
            (lambda data: directory(data) + 32, 1 << 20),  # its entries
            (lambda data: directory(data) + 32, 23),  # one less than there are
            (lambda data: directory(data) + 166, 1 << 50, 8),  # where a plane is
            (lambda data: directory(data) + 188, 1 << 20),  # its dimensions
            (partial(dimension, b"Z", 4), 1 << 30),  # its number
            (partial(dimension, b"X", 8), 1 << 30),  # its width
        )
    )

    def write(self, path, image, axes):
        shape = [LENGTHS[a] if a in axes else 1 for a in "TCZYX"]
        write_czi(path, image.reshape(shape).swapaxes(1, 2))


class TestLif(TestCzi):
    ending, types, axes, channels = ".lif", ("uint16",), ("TCZYX",), ("Green",) * 2
    steps = apart(T=2.0, Z=0.5, Y=0.4, X=0.2)
    modules, damaged = ("bioio_lif",), 1
    lies = (("damaged", replace(('Elements="32"', 'Elements="99"'), encoding="utf-16-le")),)

    def write(self, path, image, axes):
        write_lif(path, 1, image.swapaxes(1, 2))


class TestNd2(TestCzi):
    ending, types, axes, channels = ".nd2", ("uint16",), ("TZCYX",), ("a", "b")
    steps = apart(T=2.0, Z=0.5, Y=0.1, X=0.1)
    modules, damaged = ("bioio_nd2",), 6
    sizes = (("uiWidth", 32), ("uiHeight", 24), ("uiWidthBytes", 128))
    lies = (("declares|damaged", replace(*((variant(*e), variant(e[0], 10**9)) for e in sizes))),)

    def write(self, path, image, axes):
        write_nd2(path, image=image)


def test_colours_of_czi_are_rgb(tmp_path):
    colours = np.random.default_rng(0).integers(0, 255, (2, 24, 32, 3), np.uint8)
    with czi.create_czi(str(tmp_path / "a.czi")) as made:
        for t, frame in enumerate(colours):
            made.write(frame[..., ::-1], plane={"T": t, "Z": 0, "C": 0})  # BGR
    with formats.open_stack(tmp_path / "a.czi") as image:
        assert image.axes == "TYXS"
        np.testing.assert_array_equal(image.data[1], colours[1])
        np.testing.assert_array_equal(image.data, colours)


@pytest.mark.parametrize(
    ("numbers", "narrower"), [((0, 1), 0), ((0, 2), 5), ((3, 4), 0), ((1, 5, 7), 5)]
)
def test_every_scene_of_a_czi_is_an_image(tmp_path, numbers, narrower):
    """Also without names in the metadata, of other sizes, and with numbers left out."""
    path = tmp_path / "a.czi"
    with czi.create_czi(str(path)) as made:
        for k, scene in enumerate(numbers):
            for t in range(2):
                plane = IMAGE[t, 0, 0, :, : 32 - narrower * k] + np.uint16(k)
                place = {"plane": {"T": t, "C": 0}, "location": (500 * k, 0)}
                made.write(plane[..., None], **place, scene=scene)
        made.write_metadata(channel_names={0: "DAPI"}, scale_x=1e-7, scale_y=2e-7)
    names = [f"a.czi#{k + 1}" for k in range(len(numbers))]
    for given in (path, tmp_path, tmp_path / "*.czi"):
        assert [each.name for each in formats.find_files(given)] == names
    for k, name in enumerate(names):
        image = formats.read(tmp_path / name)
        assert (image.axes, image.notes) == ("TYX", ())
        expected = IMAGE[:2, 0, 0, :, : 32 - narrower * k] + np.uint16(k)
        np.testing.assert_array_equal(image.data, expected)
    assert Path(formats.beside(tmp_path / names[1], "bm3d")).name == "a_2_bm3d.ome.tif"
    (note,) = formats.read(path).notes
    assert f"holds {len(numbers)} images: the first" in note and "a.czi#2 names the second" in note
    report = gd.run_batch(path, SMALL, 20, output=tmp_path / "out")
    assert [f.output.name for f in report.done][-1] == f"a_{len(numbers)}.ome.tif"
    assert len(report.done) == len(numbers)


def test_planes_that_a_czi_lacks(tmp_path):
    path = write_czi(tmp_path / "a.czi")
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"<SizeT>3<", b"<SizeT>5<").replace(b"<SizeZ>2<", b"<SizeZ>4<"))
    notes = " ".join(formats.read(path).notes)
    assert "declares 5 along T but holds 3" in notes and "declares 4 along Z but holds 2" in notes
    entries = directory(whole) + 160
    length = 32 + 20 * int.from_bytes(whole[entries + 28 : entries + 32], "little")
    one, another = (slice(entries + k * length, entries + (k + 1) * length) for k in (10, 11))
    damaged = bytearray(whole)
    damaged[another] = whole[one]  # one stands there twice
    path.write_bytes(damaged)
    with pytest.raises(FileError, match="damaged"):
        formats.read(path)


@pytest.mark.parametrize("first", [9, 10**7])
def test_planes_of_a_czi_may_begin_late_but_not_so_late_that_none_can_count_them(tmp_path, first):
    path = tmp_path / "a.czi"
    with czi.create_czi(str(path)) as made:
        for t in range(2):
            made.write(IMAGE[t, 0, 0][..., None], plane={"T": first + t, "Z": 0, "C": 0})
    if first == 9:
        np.testing.assert_array_equal(formats.read(path).data, IMAGE[:2, 0, 0])
    else:
        with pytest.raises(FileError, match="damaged"):
            formats.read(path)


def test_czi_of_a_run_that_was_stopped(tmp_path):
    with czi.create_czi(str(tmp_path / "a.czi")) as made:
        for z, t in ((0, 0), (1, 0), (0, 1)):
            made.write(IMAGE[t, z, 0][..., None], plane={"T": t, "Z": z, "C": 0})
    with pytest.raises(FileError, match="lacks planes, as of a run that was stopped"):
        formats.read(tmp_path / "a.czi")


@pytest.mark.parametrize("kind", ["zstd0", "zstd1", "jpegxr"])
def test_planes_of_czi_larger_than_declared_are_refused_before_they_are_decoded(tmp_path, kind):
    path, codec = tmp_path / "a.czi", "zstd0" if kind == "jpegxr" else kind
    with czi.create_czi(str(path)) as made:
        options = {"compression_options": f"{codec}:ExplicitLevel=2"}
        made.write(IMAGE[0, 0, 0][..., None], plane={"C": 0}, **options)
    np.testing.assert_array_equal(formats.read(path).data, IMAGE[0, 0, 0])
    damaged = bytearray(path.read_bytes())
    start, head = damaged.index(b"\x28\xb5\x2f\xfd"), b"\x28\xb5\x2f\xfd\xe0"
    head += struct.pack("<Q", 1 << 30)
    if kind == "jpegxr":
        damaged[int.from_bytes(damaged[84:92], "little") + 160 + 18] = 4
        tags = struct.pack("<HHIIHHII", 0xBC80, 4, 1, 30000, 0xBC81, 4, 1, 30000)
        head = b"II\xbc\x01" + struct.pack("<IH", 8, 2) + tags
    damaged[start : start + len(head)] = head
    path.write_bytes(damaged)
    with pytest.raises(FileError, match=r"a\.czi is cut short or damaged: copy"):
        formats.read(path)


def test_frames_that_an_nd2_lacks(tmp_path):
    path = tmp_path / "cells.nd2"
    (note,) = formats.read(write_nd2(path, stored=4)).notes
    assert note == "2 of 6 frames are not in the file, as of a run that was stopped: read as 0."
    whole = write_nd2(path).read_bytes()
    at = whole.rindex(b"ImageDataSeq|3!") + 15
    path.write_bytes(whole[:at] + bytes(3) + b"\x01" + whole[at + 4 :])  # where it is
    assert "1 of 6 frames are not in the file" in formats.read(path).notes[0]
    path.write_bytes(
        whole.replace(
            b'uiHeight runtype="lx_uint32" value="24"', b'uiHeight runtype="lx_uint32" value="99"'
        )
    )
    with pytest.raises(FileError, match="cut short or damaged"):
        formats.read(path)


def test_positions_of_nd2_are_images(tmp_path):
    path = write_nd2(tmp_path / "cells.nd2", positions=True)
    names = ["cells.nd2#1", "cells.nd2#2", "cells.nd2#3"]
    assert [each.name for each in formats.find_files(path)] == names
    for k, name in enumerate(names):
        image = formats.read(tmp_path / name)
        assert image.axes == "ZCYX"
        np.testing.assert_array_equal(image.data, IMAGE[k])


def test_scenes_of_lif(tmp_path):
    path = write_lif(tmp_path / "cells.lif")
    image = formats.read(path)
    assert "holds 2 images: the first, 'Series 1', was used. cells.lif#2" in image.notes[0]
    second = formats.read(f"{path}#2")
    np.testing.assert_array_equal(second.data, IMAGE.swapaxes(1, 2) + 1)
    assert second.notes == ()
    with pytest.raises(FileError, match="has 2 images: name one of 1 to 2"):
        formats.read(f"{path}#3")
    # Each is an image of a batch, of a folder and of a pattern.
    for given in (path, tmp_path, tmp_path / "*.lif"):
        assert [each.name for each in formats.find_files(given)] == ["cells.lif#1", "cells.lif#2"]
    report = gd.run_batch(path, SMALL, 20, output=tmp_path / "out")
    assert [f.output.name for f in report.done] == ["cells_1.ome.tif", "cells_2.ome.tif"]
    again = formats.read(report.done[1].output)
    assert again.history[0]["source"] == "cells.lif#2"
    result = gd.denoise(second.data, SMALL, 20, axes="TCZYX").image
    np.testing.assert_array_equal(again.data, result)


@pytest.mark.parametrize(
    ("scan", "axes"),
    [
        *(("XZ", "YX"), ("XZT", "TYX"), ("XZY", "ZYX"), ("XYλ", "CYX"), ("XYλT", "TCYX")),
        *(("XT", "YX"), ("TX", "YX"), ("XYL", "LYX"), ("XYA", "AYX"), ("XYZT", "TZYX")),
    ],
)
def test_scans_of_lif(tmp_path, scan, axes):
    """Planes other than XY, wavelengths, and what else the microscope varies."""
    lengths = (32, 24, 3, 2)[: len(scan)]
    image = noisy(144, 32).astype(np.uint16).ravel()[: np.prod(lengths)].reshape(lengths[::-1])
    path = write_scan(tmp_path / "a.lif", scan, image)
    read = formats.read(path)
    assert read.axes == axes
    np.testing.assert_array_equal(read.data, image)
    assert any("of the scan are" in note for note in read.notes) == (axes[::-1] != scan)
    if scan == "XZY":  # Z and Y are exchanged
        assert read.voxel == pytest.approx((2.0, 3.0, 1.0))
    report = gd.run_batch(path, SMALL, 20, output=tmp_path / "out")
    assert [formats.read(f.output).axes[-2:] for f in report.done] == ["YX"]


def test_planes_that_a_lif_does_not_describe_are_noted(tmp_path):
    path = write_scan(tmp_path / "a.lif", "XYZ", IMAGE[:, 0, 0])
    whole = path.read_bytes()
    more, fewer = (f'Elements="{n}"'.encode("utf-16-le") for n in (3, 2))
    path.write_bytes(whole.replace(more, fewer))
    (note,) = formats.read(path).notes
    assert "holds 1 planes more than it describes" in note
    path.write_bytes(whole.replace(more, 'Elements="9"'.encode("utf-16-le")))
    with pytest.raises(FileError, match="cut short or damaged"):
        formats.read(path)


def test_lif_with_colours_is_refused(tmp_path):
    path = write_lif(tmp_path / "cells.lif", coloured=True)
    with pytest.raises(FileError, match="has colours, which are not read: save it as TIFF"):
        formats.read(path)
