"""Many files: each on its own, none over another, and a report that tells all."""

from __future__ import annotations

import dataclasses
import gc
import json
import shutil
import threading
import time
import weakref
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tifffile

import napari_gpu_denoise as gd
from files.tiffs import handmade, image
from napari_gpu_denoise.errors import (
    DeviceMemoryError,
    FileError,
    ImageError,
    KernelError,
    NoDeviceError,
    NonFiniteError,
    OutputError,
)
from napari_gpu_denoise.files import FORMAT_NAMES, batch, formats, one_file
from napari_gpu_denoise.files import output as outputs
from napari_gpu_denoise.files.batch import BatchProgress, run_batch
from napari_gpu_denoise.files.formats import find_files
from napari_gpu_denoise.files.image_file import ImageFile
from napari_gpu_denoise.files.output import check_folder, check_output
from napari_gpu_denoise.run.request import BASE, HostMemory, Run

SETTINGS = gd.NLMeans(window=5)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three images and a text file, in a folder that is the current one."""
    monkeypatch.chdir(tmp_path)
    Path("raw").mkdir()
    for seed, name in enumerate("abc"):
        tifffile.imwrite(f"raw/{name}.tif", image(seed))
    Path("raw/notes.txt").write_text("Monday")
    return tmp_path


def names(path: Path) -> list[str]:
    return sorted(p.name for p in path.iterdir())


def test_what_is_handed_on(folder, calls):
    tifffile.imwrite("raw/t.tif", image(0, (2, 12, 14)), imagej=True, metadata={"axes": "TYX"})
    run_batch(["raw/a.tif", "raw/t.tif"], SETTINGS, [1.5, 2], output="out", nonfinite="keep")
    assert [(run.filter, run.sigma) for run in calls] == [(SETTINGS, (1.5, 2.0))] * 2
    assert [run.axes for run in calls] == ["YX", "TYX"]
    assert calls[0].nonfinite == "keep"
    options = {"axes": "ZYX", "memory_limit": 5, "device": "x"}
    run_batch("raw/t.tif", SETTINGS, output="other/", memory_limit_host="1G", **options)
    assert calls[-1] == Run(SETTINGS, host_memory=HostMemory(1 << 30), **options)


def test_text_among_images_is_skipped(folder, calls):
    report = run_batch("raw/*", SETTINGS, output="out")
    (skipped,) = report.skipped
    assert skipped.input == Path("raw/notes.txt")
    said = f"{skipped.input} is not a {FORMAT_NAMES} file and was skipped."
    assert skipped.skipped == said
    assert (len(report.done), report.failed, report.cancelled) == (3, (), False)
    assert names(folder / "out") == ["a.tif", "b.tif", "c.tif"]
    plain = json.loads(json.dumps(report.as_dict()))
    assert [bool(file["output"]) for file in plain["files"]] == [True, True, True, False]
    assert plain["files"][0]["record"]["filter"] == "nl_means"
    assert plain["cancelled"] is False
    # Alone it is an error.
    report = run_batch("raw/notes.txt", SETTINGS, output="other")
    assert isinstance(report.failed[0].error, FileError)
    assert not (folder / "other").exists()


def test_failures_do_not_stop_the_others(folder, calls):
    Path("raw/b.tif").write_text("not what its name says")
    tifffile.imwrite("raw/d.tif", np.full((12, 14), np.nan, np.float32))
    report = run_batch(["raw", "raw/none.tif"], SETTINGS, output="out")
    assert [file.input.name for file in report.done] == ["a.tif", "c.tif"]
    failed = {file.input.name: type(file.error) for file in report.failed}
    assert failed == {"b.tif": FileError, "d.tif": NonFiniteError, "none.tif": FileError}
    assert names(folder / "out") == ["a.tif", "c.tif"]
    report = run_batch("raw", SETTINGS, output="other", stop_on_error=True)
    assert [file.input.name for file in report.files] == ["a.tif", "b.tif"]


def test_a_report_does_not_hold_the_pixels_of_files_that_failed(folder, monkeypatch):
    held = []

    def fail(*_, **__):
        pixels = image()
        held.append(weakref.ref(pixels))
        try:
            raise MemoryError
        except MemoryError as error:
            raise DeviceMemoryError("too little") from error

    monkeypatch.setattr(batch, "denoise_file", fail)
    monkeypatch.setattr(batch, "choose_devices", lambda *_: (SimpleNamespace(shares_cores=False),))
    report = run_batch("raw/*.tif", SETTINGS, 5, output="out")
    assert len(report.failed) == 3 and len(held) == 5  # two are tried alone once more
    assert [pixels() for pixels in held] == [None] * 5


@pytest.mark.parametrize(
    "error", [DeviceMemoryError("too little"), MemoryError(), ZeroDivisionError()]
)
def test_any_error_is_told(folder, calls, monkeypatch, error):
    monkeypatch.setattr(one_file, "denoise_image", lambda *_, **__: raising(error))
    report = run_batch("raw", SETTINGS, output="out")
    assert [file.error for file in report.files] == [error] * 3
    assert report.as_dict()["files"][0]["error"]["kind"] == type(error).__name__


def test_no_device_is_told_at_once(folder, monkeypatch):
    monkeypatch.setattr(batch, "choose_devices", lambda *_: raising(NoDeviceError("none")))
    with pytest.raises(NoDeviceError):
        run_batch("raw", SETTINGS, output="out")
    assert not (folder / "out").exists()


def raising(error):
    raise error


def test_input_is_never_replaced(folder, calls):
    """Whatever the folder is called, and whether the input is its own or that of another file."""
    raw = {path.name: path.read_bytes() for path in (folder / "raw").iterdir()}
    (folder / "link").symlink_to(folder / "raw")
    for output in ("raw", "raw/../raw", "link", str(folder / "raw") + "/"):
        report = run_batch("raw/*.tif", SETTINGS, output=output, overwrite=True)
        assert len(report.failed) == 3
        assert all("never replaced" in str(file.error) for file in report.failed)
    (folder / "out").mkdir()
    (folder / "out" / "a.tif").hardlink_to(folder / "raw" / "b.tif")
    report = run_batch("raw/[ab].tif", SETTINGS, output="out", overwrite=True)
    assert [file.input.name for file in report.failed] == ["a.tif"]
    assert {path.name: path.read_bytes() for path in (folder / "raw").iterdir()} == raw
    assert calls[1:] == []  # refused before the work, not after it


def test_same_name_twice(folder, calls):
    """Such a batch did not begin, for two files in a hundred."""
    for number, place in enumerate(("day1", "more/day1", "more/day2")):
        Path(place).mkdir(parents=True)
        tifffile.imwrite(f"{place}/A.tif", image(5 + number))
    inputs = ["raw", "day1", "more/day1", "more/day2"]
    report = run_batch(inputs, SETTINGS, output="out")
    assert not report.failed
    here = Path.cwd().name
    expected = ["b.tif", "c.tif", f"{here}_day1_A.tif", "more_day1_A.tif", "day2_A.tif"]
    assert names(folder / "out") == sorted([*expected, "raw_a.tif"])
    np.testing.assert_array_equal(tifffile.imread("out/more_day1_A.tif"), image(6) + 1)


@pytest.mark.parametrize("overwrite", [False, True])
def test_same_name_twice_in_one_folder(folder, calls, overwrite):
    tifffile.imwrite("raw/A.TIF", image(5))
    options = {"output": "out", "overwrite": overwrite}
    for _ in range(2):
        report = run_batch(["raw/a.tif", "raw/b.tif", "raw/A.TIF"], SETTINGS, **options)
        (failed,) = report.failed
        assert failed.input == Path("raw/A.TIF") and isinstance(failed.error, OutputError)
        assert "a.tif and raw/A.TIF would have the same name in out" in str(failed.error)
        assert names(folder / "out") == ["a.tif", "b.tif"]


@pytest.mark.parametrize("nothing", ["void", "raw/*.png"])
def test_what_holds_nothing_does_not_stop_the_others(folder, calls, nothing):
    Path("void").mkdir()
    report = run_batch([nothing, "raw"], SETTINGS, output="out")
    assert [file.input for file in report.failed] == [Path(nothing)]
    assert isinstance(report.failed[0].error, FileError)
    assert len(report.done) == 3


def test_results_that_are_one_file(folder, calls):
    """Two names in the output folder that lead to one file."""
    Path("out").mkdir()
    Path("out/b.tif").symlink_to(folder / "out" / "a.tif")
    report = run_batch("raw", SETTINGS, output="out", overwrite=True)
    assert [file.input.name for file in report.failed] == ["b.tif"]
    np.testing.assert_array_equal(tifffile.imread("out/a.tif"), image(0) + 1)


def test_one_file_or_a_folder(folder, calls):
    (done,) = run_batch("raw/a.tif", SETTINGS, output="one.TIF").done
    assert done.output == Path("one.TIF")
    assert Path("one.TIF").is_file()
    (done,) = run_batch(Path("raw/a.tif"), SETTINGS, output=Path("new/deep")).done
    assert done.output == Path("new/deep/a.tif")
    (done,) = run_batch("raw/a.tif", SETTINGS, output="run.1/").done
    assert done.output == Path("run.1/a.tif")
    with pytest.raises(OutputError, match="give a folder"):
        run_batch("raw", SETTINGS, output="all.tif")
    with pytest.raises(OutputError, match="neither"):
        run_batch("raw/a.tif", SETTINGS, output="a.png")
    Path("file").write_text("in the way")
    (failed,) = run_batch("raw/a.tif", SETTINGS, output="file/deep").failed
    assert isinstance(failed.error, OutputError) and "cannot be created" in str(failed.error)


def test_find_files(folder):
    def found(inputs):
        return [path.as_posix() for path in find_files(inputs)]

    assert found("raw/?.tif") == ["raw/a.tif", "raw/b.tif", "raw/c.tif"]
    assert found("raw") == found("**/*.tif") == found("raw/?.tif")
    assert found(["raw/c.tif", "raw/../raw/a.tif", "raw"]) == [
        "raw/c.tif",
        "raw/../raw/a.tif",
        "raw/b.tif",
    ]
    assert found("raw/none.tif") == ["raw/none.tif"]
    tifffile.imwrite("raw/d[1].tif", image())
    assert found("raw/d[1].tif") == ["raw/d[1].tif"]
    Path("void").mkdir()
    for nothing in ([], "raw/*.png", "void"):
        with pytest.raises(FileError):
            find_files(nothing)


def test_types_are_refused_before_the_work(folder, calls):
    tifffile.imwrite("ij.tif", image(), imagej=True)
    tifffile.imwrite("complex.tif", image().astype(np.complex64))
    for name, options, kind in (
        ("ij.tif", {"dtype": "int64"}, OutputError),
        ("complex.tif", {}, ImageError),
    ):
        (failed,) = run_batch(name, SETTINGS, output="out", **options).failed
        assert isinstance(failed.error, kind) and calls == []


def test_set_of_files_is_one_image(folder, calls):
    """Each file of an OME-TIFF set names them all; the image is denoised once."""
    Path("set").mkdir()
    handmade(folder / "set")
    report = run_batch("set/*.tif", SETTINGS, output="out")
    assert [file.input.name for file in report.done] == ["0.ome.tif"]
    assert "was read with an earlier file" in report.skipped[0].skipped
    assert tifffile.imread("out/0.ome.tif").shape == (4, 20, 30)
    for resume in (False, True):
        report = run_batch("set/*.tif", SETTINGS, output="out", resume=resume)
        assert (report.done, len(report.skipped)) == ((), 2)
        assert names(folder / "out") == ["0.ome.tif"]


def test_vendor_file_becomes_tif(folder, calls):
    tifffile.imwrite("slide.lsm", image())
    (done,) = run_batch("slide.lsm", SETTINGS, output="out").done
    assert done.output == Path("out/slide.tif")


def test_progress(folder, calls):
    seen: list[BatchProgress] = []
    run_batch("raw/*", SETTINGS, output="out", progress=seen.append)
    assert [state.index for state in seen] == [0] * 4 + [1] * 4 + [2] * 4 + [3]
    assert {state.count for state in seen} == {4}
    assert [(state.done, state.total) for state in seen[:4]] == [(0, 0), (0, 2), (1, 2), (2, 2)]
    assert seen[4].path == Path("raw/b.tif")


def test_cancel_within_a_file(folder, calls, monkeypatch):
    cancel, plain = threading.Event(), one_file.denoise_image

    def held(data, run, progress):
        if calls:
            progress.tell(1, 2)
            cancel.wait()
        return plain(data, run, progress)

    monkeypatch.setattr(one_file, "denoise_image", held)

    def stop(state):
        if state.index == 1 and state.done == 1:
            cancel.set()

    report = run_batch("raw", SETTINGS, output="out", progress=stop, cancel=cancel)
    assert report.cancelled
    assert [file.input.name for file in report.files] == ["a.tif"]
    assert names(folder / "out") == ["a.tif"]
    # And before the first.
    count, report = len(calls), run_batch("raw", SETTINGS, output="other", cancel=cancel)
    assert (report.files, report.cancelled, len(calls)) == ((), True, count)


@pytest.mark.parametrize("number", [1, 2])
def test_cancel_when_a_file_is_done(folder, calls, monkeypatch, number):
    """After the last one nothing was left out."""
    cancel, plain = threading.Event(), one_file.denoise_image

    def stand_in(data, run, progress):
        result = plain(data, run, progress)
        if len(calls) == number + 1:
            cancel.set()
        return result

    monkeypatch.setattr(one_file, "denoise_image", stand_in)
    report = run_batch("raw", SETTINGS, output="out", cancel=cancel)
    assert (len(report.done), report.cancelled) == (number + 1, number < 2)


def test_an_error_that_a_cancel_causes_is_not_reported(folder, calls, monkeypatch):
    """Ctrl-C is also sent to the compiler of the device, which then fails."""
    cancel = threading.Event()

    def fail(data, run, progress):
        cancel.set()
        raise KernelError("it cannot build")

    monkeypatch.setattr(one_file, "denoise_image", fail)
    report = run_batch("raw", SETTINGS, output="out", cancel=cancel)
    assert (report.files, report.cancelled) == ((), True)


def test_files_flow(folder, calls, monkeypatch):
    """Small files are denoised several at once, and reported in their order, with damaged ones."""
    for name in "df":
        shutil.copy("raw/a.tif", f"raw/{name}.tif")
    Path("raw/e.tif").write_bytes(Path("raw/a.tif").read_bytes()[:-20])
    met, plain, begun = threading.Barrier(3, timeout=600), batch.denoise_file, []

    def meeting(path, *given, **options):
        begun.append(path.name)
        if path.name[0] in "bcd":
            met.wait()
            time.sleep(0.1 * (path.name == "b.tif"))
        return plain(path, *given, **options)

    monkeypatch.setattr(batch, "denoise_file", meeting)
    report = run_batch("raw", SETTINGS, output="out")
    assert [file.input.name[0] for file in report.files] == [*"abcdef"]
    assert [file.input.name for file in report.failed] == ["e.tif"]
    assert begun[0] == "a.tif" and names(folder / "out") == [f"{one}.tif" for one in "abcdf"]
    assert {*map(tuple, report.spent)} == {("reading", "filtering", "writing")}
    told = dataclasses.replace(report, spent=({"reading": 27.0}, {"writing": 63.0})).summary
    assert told == "5 denoised, 1 failed, 0 skipped. Most time: writing, 70 %."


@pytest.mark.parametrize(
    ("settings", "used"), [(SETTINGS, "a"), (gd.BM3D.of(profile="high"), "ab")]
)
def test_devices_that_files_do_not_keep_busy_are_not_opened(folder, monkeypatch, settings, used):
    known = {"shares_cores": False, "compute_units": 132, "kind": "discrete GPU"}
    devices, given = tuple(SimpleNamespace(name=name, **known) for name in "ab"), []

    def fail(path, target, run, *_, **__):
        given.append(run.device)
        raise ZeroDivisionError

    monkeypatch.setattr(batch, "denoise_file", fail)
    monkeypatch.setattr(batch, "choose_devices", lambda *_: devices)
    assert len(run_batch("raw/*.tif", settings, 5, output="out").failed) == 3
    assert given[0] == devices  # the first has no others beside it
    assert sorted({each.name for taken in given[1:] for each in taken}) == [*used]


def test_a_file_that_lacks_memory_beside_others_is_tried_alone(folder, calls, monkeypatch):
    plain, tried = batch.denoise_file, []

    def short(path, *given, **options):
        tried.append(path.name)
        if tried.count(path.name) == 1 and path.name != "a.tif":
            raise DeviceMemoryError("too little")
        return plain(path, *given, **options)

    monkeypatch.setattr(batch, "denoise_file", short)
    report = run_batch("raw", SETTINGS, output="out")
    assert [file.output.name for file in report.done] == ["a.tif", "b.tif", "c.tif"]
    assert sorted(tried) == ["a.tif", "b.tif", "b.tif", "c.tif", "c.tif"]


def test_memory_limits_how_many_images_are_held(folder, calls, monkeypatch):
    """When a file is read, nothing of the one before is held any more."""
    alive: list[weakref.ref] = []
    read = ImageFile.loaded

    def watched(lazy, **options):
        gc.collect()
        assert [ref for ref in alive if ref() is not None] == []
        picture = read(lazy, **options)
        alive.append(weakref.ref(picture))
        return picture

    monkeypatch.setattr(ImageFile, "loaded", watched)
    enough = BASE + 4000  # for one image of 168 pixels and its result, of float32 at most
    report = run_batch("raw", SETTINGS, output="out", memory_limit_host=enough)
    assert len(report.done) == len(alive) == 3


@pytest.mark.parametrize("kind", ["assocalpha", "unassalpha", "unspecified"])
@pytest.mark.parametrize("dtype", ["same", "float32"])
@pytest.mark.parametrize("colours", [3, 1])
def test_alpha_passes_as_it_is(tmp_path, kind, dtype, colours):
    """A further sample that is no alpha is filtered."""
    pixels = image(1, (20, 30, colours + 1))
    photometric = "rgb" if colours == 3 else "minisblack"
    source, target = tmp_path / "in.tif", tmp_path / "out.tif"
    options = {"extrasamples": [kind], "planarconfig": "contig"}
    tifffile.imwrite(source, pixels, photometric=photometric, **options)
    report = run_batch([source], SETTINGS, 20.0, output=target, dtype=dtype)
    assert not report.files[0].error
    written = gd.read(target)
    assert written.axes == "YXS"
    assert written.metadata["extrasamples"] == gd.read(source).metadata["extrasamples"]
    count = colours + (kind == "unspecified")
    expected = gd.denoise(pixels[..., :count], SETTINGS, 20.0, axes="YXS", dtype=dtype).image
    np.testing.assert_array_equal(written.data[..., :count], expected)
    np.testing.assert_array_equal(written.data[..., count:], pixels[..., count:])


@pytest.mark.parametrize("dtype", [None, "auto", "float32", "uint16"])
def test_a_type_that_is_asked_for_is_that_of_a_palette_image_too(tmp_path, dtype):
    path, table = tmp_path / "in.tif", np.ones((3, 256), np.uint16)
    tifffile.imwrite(path, image(), photometric="palette", colormap=table)
    run_batch(path, SETTINGS, 3, output=tmp_path / "out.tif", dtype=dtype)
    wanted = np.uint8 if dtype in (None, "auto") else dtype
    assert formats.read(tmp_path / "out.tif").data.dtype == wanted


@pytest.mark.parametrize("how", ["itself", "link", "hard link"])
def test_companions_of_another_input_are_never_replaced(folder, calls, how):
    """The second file of an OME-TIFF set, which only its XML names, has the name of a result."""
    Path("set").mkdir()
    handmade(folder / "set")
    tifffile.imwrite("raw/1.ome.tif", image())
    second = folder / "set/1.ome.tif"
    before, output = second.read_bytes(), Path("set" if how == "itself" else "out")
    output.mkdir(exist_ok=True)
    if how != "itself":
        link = output / "1.ome.tif"
        (link.symlink_to if how == "link" else link.hardlink_to)(second)
    options = {"output": output, "overwrite": True}
    report = run_batch(["raw/1.ome.tif", "set/0.ome.tif"], SETTINGS, **options)
    assert "never replaced" in str(report.failed[0].error) and second.read_bytes() == before


@pytest.mark.parametrize("name", ["in.zarr/a.tif", "in.zarr/zarr.json", "x.txt"])
def test_what_a_command_has_read_is_never_replaced(folder, name):
    """Neither a file by another name, nor a member of a store, nor a folder around it."""
    Path("in.zarr").mkdir()
    for file in "in.zarr/a.tif", "in.zarr/zarr.json", "X.TXT":
        Path(file).write_text("precious")
    Path("x.txt").exists() or Path("x.txt").hardlink_to("X.TXT")
    options = {"overwrite": True, "keep": ()}
    check_output(name, **options)
    check_folder("in.zarr", **options)
    for read in ("X.TXT",) if name == "x.txt" else (name, "in.zarr"):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(outputs, "read_files", {read})
            with pytest.raises(OutputError, match="is an input, which is never replaced"):
                check_output(name, **options)
            if read != "X.TXT":
                with pytest.raises(OutputError, match="input"):
                    check_folder("in.zarr", **options)
