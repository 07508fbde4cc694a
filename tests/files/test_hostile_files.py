"""Files that lie: sets that point elsewhere, pixels that are not stored, foreign annotations."""

from __future__ import annotations

import dataclasses
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile

import napari_gpu_denoise as gd
from files.tiffs import GREY, ONE, PLAIN, TIFFDATA, TWO, handmade, noise, retagged
from napari_gpu_denoise.cli.commands import named_noise
from napari_gpu_denoise.errors import FileError, OutputError
from napari_gpu_denoise.files import formats, input_checks
from napari_gpu_denoise.files.image_file import ImageFile
from napari_gpu_denoise.files.output import new_file
from napari_gpu_denoise.files.tiff import ome_xml, reading
from tools.conftest import load

needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")


@pytest.fixture
def in_time():
    """Let a test fail that waits for a pipe."""

    def stop(*_):
        raise AssertionError("it hung")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pointing_to(folder, name: str):
    """Return a file of a set whose second file goes by this name."""
    path = handmade(folder)
    xml = tifffile.tiffcomment(path)
    told = TIFFDATA.format(t=2, name="1.ome.tif", uuid=f"urn:uuid:{TWO}")
    assert told in xml and ONE in xml
    xml = xml.replace(told, told.replace("1.ome.tif", name))
    tifffile.imwrite(path, noise(2, 20, 30, seed=0), description=xml.encode(), **PLAIN)
    return path


@pytest.mark.parametrize("way", ["above", "absolute", "link"])
def test_companions_elsewhere_are_not_read(tmp_path, way):
    folder, secret = tmp_path / "data", tmp_path / "secret"
    folder.mkdir()
    secret.mkdir()
    handmade(secret)
    kept = secret / "1.ome.tif"
    name = {"above": "../secret/1.ome.tif", "absolute": str(kept), "link": "link.ome.tif"}[way]
    if way == "link":
        (folder / name).symlink_to(kept)
    path = pointing_to(folder, name)
    picture = formats.read(path)
    assert not picture.data[2:].any()
    assert picture.files == (path,)
    assert any(name in note and "was not read" in note for note in picture.notes)
    assert any("2 of 4 planes" in note for note in picture.notes)
    allowed = formats.read(path, companions_anywhere=True)
    np.testing.assert_array_equal(allowed.data[2:], noise(2, 20, 30, seed=1))


def test_companions_below_are_read(tmp_path):
    (tmp_path / "below").mkdir()
    handmade(tmp_path / "below")
    picture = formats.read(pointing_to(tmp_path, "below/1.ome.tif"))
    np.testing.assert_array_equal(picture.data[2:], noise(2, 20, 30, seed=1))


@needs_pipes
@pytest.mark.parametrize("anywhere", [False, True])
def test_a_companion_that_is_a_pipe_does_not_hang(tmp_path, in_time, anywhere):
    os.mkfifo(tmp_path / "pipe.ome.tif")
    path = pointing_to(tmp_path, "pipe.ome.tif")
    picture = formats.read(path, companions_anywhere=anywhere)
    assert any("pipe.ome.tif" in note for note in picture.notes)


def odd(place: Path, kind: str) -> Path:
    """Return a name that leads to something else than a file."""
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "link to a pipe":
        os.mkfifo(place.with_name("pipe"))
        place.symlink_to("pipe")
    else:
        place.symlink_to({"device": "/dev/zero", "circle": place.name, "lost": "gone"}[kind])
    return place


WHY = {"circle": "[Tt]oo many levels of symbolic links|cannot be read"}
WHY["lost"] = "is a link to what is not there: fetch that"


@needs_pipes
@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "device", "circle", "lost"])
@pytest.mark.parametrize("name", ["in.tif", "in.nii", "in.nii.gz", "in"])
def test_what_is_no_file_is_not_read(tmp_path, in_time, kind, name):
    """A pipe was waited for, by a program that no Ctrl-C ended, links in a circle were a bug."""
    path = odd(tmp_path / name, kind)
    with pytest.raises(FileError, match=WHY.get(kind, "it is a pipe or a device")):
        gd.read(path)
    (file,) = gd.run_batch(path, gd.NLMeans(), output=tmp_path / "out.tif").files
    assert isinstance(file.error, FileError)
    assert not (tmp_path / "out.tif").exists()


@needs_pipes
@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("read", [named_noise, lambda path: load("bench").read_run(Path(path))])
def test_text_is_read_from_files_only(tmp_path, in_time, kind, read):
    with pytest.raises(FileError, match="it is a pipe or a device"):
        read(str(odd(tmp_path / "noise.json", kind)))


@needs_pipes
def test_a_pipe_in_place_of_a_file_that_was_looked_at_is_not_waited_for(
    tmp_path, in_time, monkeypatch
):
    path, look = tmp_path / "in.tif", input_checks.check_regular
    tifffile.imwrite(path, noise(20, 30))

    def check_regular(name, found):
        look(name, found)
        path.unlink()
        os.mkfifo(path)

    monkeypatch.setattr(input_checks, "check_regular", check_regular)
    with pytest.raises(OSError, match="it is a pipe or a device"):
        input_checks.open_regular(path)


@needs_pipes
@pytest.mark.parametrize("kind", ["pipe", "link to a pipe"])
def test_a_result_never_takes_the_place_of_a_pipe(tmp_path, in_time, kind):
    path, target = tmp_path / "in.tif", odd(tmp_path / "out.tif", kind)
    tifffile.imwrite(path, noise(20, 30))
    before = os.stat(target)
    options = {"output": target, "overwrite": True}
    (file,) = gd.run_batch(path, gd.NLMeans(), 10, **options).files
    assert isinstance(file.error, OutputError) and "pipe or a device" in str(file.error)
    assert os.stat(target) == before


@pytest.mark.parametrize("spoilt", ["lengths", "offsets"])
@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("layout", [{"rowsperstrip": 8}, {"tile": (16, 16)}])
def test_blocks_that_are_not_stored_are_counted(tmp_path, compression, layout, spoilt):
    path, image = tmp_path / "in.tif", noise(64, 32) + np.uint8(1)
    tifffile.imwrite(path, image, compression=compression, photometric="minisblack", **layout)
    assert not formats.read(path).notes
    with tifffile.TiffFile(path, mode="r+") as tif:
        page = tif.pages.first
        block = "Tile" if "tile" in layout else "Strip"
        name = "ByteCounts" if spoilt == "lengths" else "Offsets"
        held = page.databytecounts if spoilt == "lengths" else page.dataoffsets
        count = len(held)
        page.tags[block + name].overwrite([0] * (count // 2) + list(held[count // 2 :]))
    picture = formats.read(path)
    (note,) = (note for note in picture.notes if "not in the file" in note)
    assert note.startswith(f"{count // 2} of {count} strips or tiles (50 %)")
    np.testing.assert_array_equal(picture.data[32:], image[32:])
    assert not picture.data[:32].any()


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("layout", [{}, {"tile": (32, 32)}])
@pytest.mark.parametrize(
    ("compression", "mark", "lengths"),
    [
        ("jpeg", b"\xff\xc0", (5, ">HH")),
        ("jpeg2000", b"\xff\x4f\xff\x51", (8, ">II")),
        ("png", b"\x89PNG", (16, ">II")),
    ],
)
def test_an_image_in_a_strip_or_tile_that_is_larger_is_not_decoded(
    tmp_path, monkeypatch, compression, mark, lengths, layout, large
):
    monkeypatch.setattr(reading, "LARGE_PLANE", 1 if large else 1 << 27)
    path, image = tmp_path / "in.tif", np.full((64, 96), 9, np.uint8)
    options = {"photometric": "minisblack", "compression": compression, **layout}
    tifffile.imwrite(path, image, **options)
    np.testing.assert_allclose(gd.read(path).data, image, atol=1)
    data = bytearray(path.read_bytes())
    at = data.rindex(mark)
    skipped, two = lengths
    struct.pack_into(two, data, at + skipped, 9000, 9000)
    path.write_bytes(data)
    with pytest.raises(FileError, match="holds larger images than it declares"):
        gd.read(path)


def test_a_single_sample_that_is_called_alpha_is_filtered(tmp_path):
    """Nothing was left then, and an estimate of the noise divided by 0."""
    path = tmp_path / "in.tif"
    options = {"planarconfig": "contig", "extrasamples": ["unassalpha"]}
    tifffile.imwrite(path, noise(12, 14, 2), **options, **GREY)
    picture = formats.read(path)
    assert picture.axes == "YXS" and picture.alpha is not None
    single = dataclasses.replace(picture, data=picture.data[..., :1])
    assert single.alpha is None
    assert single.pixels.shape == (12, 14, 1)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("options", [{}, {"compression": "zlib", "rowsperstrip": 4}])
def test_colours_of_a_single_sample_are_grey(tmp_path, monkeypatch, options, large):
    """They had an axis that the result, which holds the same pixels, was read without."""
    path, target, image = tmp_path / "in.tif", tmp_path / "out.tif", noise(12, 14)
    monkeypatch.setattr(reading, "LARGE_PLANE", 1 if large else 1 << 27)
    tifffile.imwrite(path, image, **options)
    retagged(path, "PhotometricInterpretation", 2)
    picture = formats.read(path)
    np.testing.assert_array_equal(picture.data, image)
    assert picture.axes == "YX"
    formats.write(target, picture.data, picture)
    np.testing.assert_array_equal(formats.read(target).data, image)


@pytest.mark.parametrize("text", ["not JSON", "[1, 2]", "7", '{"a":' * 9999 + "1" + "}" * 9999])
def test_annotations_of_others_in_our_namespace_are_no_records(tmp_path, text):
    namespace = "http://www.openmicroscopy.org/Schemas/OME/2016-06"
    annotation = (
        f'<StructuredAnnotations xmlns="{namespace}"><CommentAnnotation ID="Annotation:0" '
        f'Namespace="{ome_xml.NAMESPACE}"><Value>{text}</Value></CommentAnnotation>'
        "</StructuredAnnotations>"
    )
    path = handmade(tmp_path, refs='<AnnotationRef ID="Annotation:0"/>', annotations=annotation)
    assert formats.read(path).history == ()


def test_unfinished_files_of_processes_that_are_gone_are_removed(tmp_path):
    """As kill -9 leaves them; those of living processes, and of other machines, stay."""
    script = """if True:
        import os, signal, sys
        from napari_gpu_denoise.files.output import new_file, new_folder

        with new_folder(sys.argv[1] + ".zarr") as folder, new_file(sys.argv[1] + ".tif") as file:
            (folder / "half").write_text("x")
            file.write(b"half")
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
    """
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "out")], check=False)
    left = [*tmp_path.iterdir()]
    assert sorted(each.is_dir() for each in left) == [False, True]
    own = left[0].with_name(left[0].name.replace(left[0].name.split("-")[3], str(os.getpid())))
    other = tmp_path / ".gpu-denoise-00000000-1-abc.part"
    own.write_bytes(b"")
    other.write_bytes(b"")
    with new_file(tmp_path / "out.tif") as file:
        file.write(b"whole")
    assert set(tmp_path.iterdir()) == {tmp_path / "out.tif", own, other}


@pytest.mark.parametrize(
    ("before", "after", "planes"),
    [
        ('SizeT="2"', 'SizeT="20000000"', 20_000_000),
        # tifffile divides the pixels by those of a page.
        ('SizeX="30"', 'SizeX="300000000"', 20_000_000),
    ],
)
def test_more_planes_than_could_be_listed_are_refused(tmp_path, before, after, planes):
    path = tmp_path / "in.ome.tif"
    tifffile.imwrite(path, noise(2, 20, 30), metadata={"axes": "TYX"}, **GREY)
    xml = tifffile.tiffcomment(path)
    tifffile.tiffcomment(path, xml.replace(before, after).encode())
    with pytest.raises(FileError, match=f"declares {planes} planes, but the file holds 2"):
        formats.read(path)


def test_free_memory_is_that_of_the_control_group(tmp_path):
    free = input_checks.free_memory()
    assert 0 < free < 1 << 60
    group = tmp_path / "cgroup" / "job" / "step"
    group.mkdir(parents=True)
    for folder, limit in ((group, "max"), (group.parent, "5000")):
        (folder / "memory.max").write_text(limit + "\n")
        (folder / "memory.current").write_text("4000\n")
        (folder / "memory.stat").write_text("anon 3000\ninactive_file 700\n")
    (tmp_path / "self").write_text("0::/job/step\n")
    assert input_checks.free_memory(tmp_path / "cgroup", tmp_path / "self") == 1700


@pytest.mark.parametrize(
    ("tag", "value", "resolution"),
    [
        ("ResolutionUnit", 0, (10, 1)),
        ("ResolutionUnit", 99, (10, 1)),
        ("XResolution", (0, 0), (1, 1)),
    ],
)
def test_a_resolution_that_is_not_valid_is_left_out(tmp_path, tag, value, resolution):
    path, target = tmp_path / "in.tif", tmp_path / "out.tif"
    tifffile.imwrite(path, noise(20, 30), resolution=(10, 10), resolutionunit=2)
    retagged(path, tag, value)
    picture = formats.read(path)
    formats.check_writable(picture, picture.data.dtype)
    notes = formats.write(target, picture.data, picture)
    assert [str(value) in note for note in notes] == [True] * (tag == "ResolutionUnit")
    with tifffile.TiffFile(target) as tif:
        assert tif.pages.first.tags["XResolution"].value == resolution
        assert tif.pages.first.tags["ResolutionUnit"].value == 1


def test_what_cannot_be_written_is_refused_before_the_work(tmp_path, monkeypatch):
    path, target = tmp_path / "in.tif", tmp_path / "out.tif"
    tifffile.imwrite(path, noise(20, 30), extratags=[(700, 1, 4, b"abcd", True)])

    def odd(self, **options):
        raise AssertionError("the pixels were read")

    monkeypatch.setattr(ImageFile, "loaded", odd)
    monkeypatch.setattr(reading, "_carried", lambda *_: [(700, 250, 4, b"abcd", True)])
    report = gd.run_batch(path, gd.NLMeans(), output=target)
    assert "cannot be written as TIFF" in str(report.files[0].error)
    assert not target.exists()
