"""What every format of image files keeps to: tests that the tests of each format inherit.

A format says how another program writes a small image, which axes, types and metadata its files
hold, and how a file lies about its size. What does not apply is switched off by an attribute, with
the reason beside it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import pytest
import tifffile

import napari_gpu_denoise as gd
from files.damage import damage, damaged_values, watched
from files.tiffs import RECORD
from napari_gpu_denoise import estimate_noise
from napari_gpu_denoise.errors import Cancelled, DenoiseError, FileError, ImageError, OutputError
from napari_gpu_denoise.files import formats, input_checks
from napari_gpu_denoise.files.image_file import METRES, ImageFile, Steps
from napari_gpu_denoise.files.tiff import reading
from napari_gpu_denoise.run import request
from scenes import Stored, small

SETTINGS = small(gd.NLMeans)
UNITS = METRES | {"second": 1.0, "millisecond": 1e-3, "": 1.0}
LENGTHS = {"T": 3, "C": 2, "Z": 4, "Y": 24, "X": 32, "S": 3}
#: Numbers of damaged files, for each format; the last are tried before a release.
CASES = [range(0, 6), range(6, 12), pytest.param(range(12, 1000), marks=pytest.mark.thorough)]
ODD_NAMES = ("in put 100% Größe µ 細胞#1", "-o [0-9]* it's; $HOME a.b..c")


def apart(unit: str = "micrometer", **steps: float) -> Steps:
    """Return steps along axes, those in time in seconds."""
    return {a: (step, "second" if a == "T" else unit) for a, step in steps.items()}


def files_of(path: Path) -> dict[Path, bytes]:
    """Return what a file holds, or all files of a folder."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return {each: each.read_bytes() for each in files if each.is_file()}


def error_of(path: Path, call) -> str:
    """Return the one sentence, about a file, of the error that a call raises."""
    with pytest.raises((FileError, ImageError, OutputError)) as caught:
        call()
    said = str(caught.value)
    assert path.name in said and "\n" not in said and said.endswith(".")
    return said


def run(path: Path, output: Path, settings=SETTINGS, sigma=20.0, **options):
    """Denoise a file; return the report on it, or raise its error."""
    (file,) = gd.run_batch(path, settings, sigma, output=output, **options).files
    if file.error is not None:
        raise file.error
    return file


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Take away the right to write to a folder, from root too."""
    folders = [folder, *(each for each in folder.rglob("*") if each.is_dir())]
    for each in folders:
        each.chmod(0o555)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)  # nobody
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        for each in folders:
            each.chmod(0o755)


class Failing(Stored):
    """Pixels that can be read once, or not at all."""

    def __init__(self, array: np.ndarray, error: BaseException, at_once: bool) -> None:
        super().__init__(array)
        self.ndim, self.size, self.nbytes = array.ndim, array.size, array.nbytes
        self.error, self.left = error, 0 if at_once else 1

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index):
        self.left -= 1
        if self.left < 0:
            raise self.error
        return super().__getitem__(index)


class FormatContract:
    """Tests of a format, which says how its files are written and lie."""

    #: How the names of its files end, and those of results in its own format, and in others.
    ending: str
    results: tuple[str, ...]
    others: tuple[str, ...] = ()
    #: Axes of images, the largest last; types of pixels; steps and names of channels in a file.
    axes: tuple[str, ...]
    types: tuple[str, ...]
    steps = apart(T=2.0, Z=1.5, Y=0.25, X=0.2)
    channels: tuple[str, ...] = ()
    #: Modules without which it cannot be read; the package of the first has its name.
    modules: tuple[str, ...]
    #: What is said of a file of the largest image, after a function let it lie, as about its size.
    lies: tuple[tuple[str, Callable[[Path], object]], ...]
    #: Whether planes are read on demand; levels by which results differ, where they are rounded.
    by_plane = True
    at_once = False  # whether so few pixels are written in one piece
    streams_always = False
    rounding = 0.0
    misses_files = True  # of a folder
    damaged = 1  # every so many of the cases are tried; none if damage may end the program

    def write(self, path: Path, image: np.ndarray, axes: str) -> object:
        """Write an image as another program does."""
        raise NotImplementedError

    def check_kept(self, before: Path, after: Path) -> None:
        """Compare what only this format has, in a file and in its result."""

    def pytest_generate_tests(self, metafunc) -> None:
        known = {"axes": self.axes, "dtype": self.types}
        for name in known.keys() & {*metafunc.fixturenames}:
            metafunc.parametrize(name, known[name])
        if "lie" in metafunc.fixturenames:
            metafunc.parametrize(("said", "lie"), self.lies)

    @property
    def end(self) -> str:
        """How the name of a result ends."""
        return (self.results + self.others)[0]

    # --- helpers ----------------------------------------------------------------------------------

    def image(self, axes: str = "", dtype: str = "") -> np.ndarray:
        """Return pixels, none of which is 0."""
        shape = [LENGTHS[a] for a in axes or self.axes[-1]]
        return np.random.default_rng(0).integers(1, 200, shape).astype(dtype or self.types[0])

    def written(self, folder: Path, axes: str = "", name: str = "in", image=None):
        """Write an image; return its path and pixels."""
        folder.mkdir(parents=True, exist_ok=True)
        axes, path = axes or self.axes[-1], folder / (name + self.ending)
        image = self.image(axes) if image is None else image
        self.write(path, image, axes)
        return path, image

    def check_metadata(self, picture: ImageFile, axes: str) -> None:
        """Compare steps and channels with those that were written, in any unit."""
        steps = picture.pixel_metadata.steps
        expected = {a: step for a, step in self.steps.items() if a in axes}
        assert {a: v * UNITS[u] for a, (v, u) in steps.items() if a in axes} == pytest.approx(
            {a: v * UNITS[u] for a, (v, u) in expected.items()}, rel=1e-6
        )
        if {"Z", "Y", "X"} <= expected.keys():
            scale = 1e-6 if picture.voxel_unit == "µm" else 1e-3
            voxel = [expected[a][0] * UNITS[expected[a][1]] / scale for a in "ZYX"]
            assert picture.voxel == pytest.approx(voxel, rel=1e-6)
        names = tuple(filter(None, (each.name for each in picture.pixel_metadata.channels)))
        assert names == (self.channels if "C" in axes else ())

    # --- reading ----------------------------------------------------------------------------------

    def test_pixels_axes_and_metadata_are_read(self, tmp_path, axes):
        path, image = self.written(tmp_path, axes)
        assert formats.is_image(path) and formats.find_files([path]) == [path]
        with formats.open_stack(path) as opened:
            picture = opened.loaded()
            for name in ("shape", "dtype", "ndim", "size", "nbytes"):
                assert getattr(opened.data, name) == getattr(image, name), name
            for index in (0, -1, (..., 2), np.s_[..., 2:9, ::-2], np.s_[::2, 1:]):
                np.testing.assert_array_equal(opened.data[index], image[index])
            if len(axes.rstrip("S")) > 2:
                places = (axes.index("Y"), axes.index("X"))
                assert opened.data.reads_by_plane(*places) == self.by_plane
            np.asarray(opened.data[0])[...] = 7  # what is read may be changed
            with ThreadPoolExecutor(4) as threads:
                for k, plane in enumerate(threads.map(lambda k: opened.data[k % 2], range(8))):
                    np.testing.assert_array_equal(plane, image[k % 2])
            assert estimate_noise(opened.pixels, opened.filter_axes)
        with pytest.raises(KeyError, match="mine"), formats.open_stack(path):
            raise KeyError("mine")
        if self.results:  # it still tells how to write another
            gd.write(tmp_path / f"out{self.end}", image, opened)
        assert error_of(path, lambda: opened.data[0]).split(": ")[0].endswith("is closed")
        np.testing.assert_array_equal(picture.data, image)
        assert picture.data.dtype == image.dtype and picture.data.dtype.isnative
        assert (picture.axes, picture.notes, picture.history) == (axes, (), ())
        self.check_metadata(picture, axes)

    def test_every_type_is_read_and_written(self, tmp_path, dtype):
        """With the ends of its range; the result has the same, of whatever type it is given."""
        axes = min(self.axes, key=len)
        image = self.image(axes, dtype)
        ends = np.iinfo(dtype) if image.dtype.kind in "iu" else np.finfo(dtype)
        image.flat[0], image.flat[-1] = ends.min, ends.max
        path, _ = self.written(tmp_path, axes, image=image)
        picture = gd.read(path)
        assert picture.data.dtype == dtype
        np.testing.assert_array_equal(picture.data, image)
        if not self.results:
            return
        others = ("float64", "uint8", "int16", "int64", "float16") * (dtype == self.types[0])
        for other in (dtype, "float32", *others):
            with np.errstate(all="ignore"):
                levels = image.astype(other)
            if levels.dtype.kind == "f":
                levels.flat[5] = {"float32": np.nan, "float64": np.inf, "float16": -np.inf}[other]
            out = tmp_path / f"{other}{self.end}"
            try:
                notes = formats.write(out, levels, picture, overwrite=True)
            except OutputError as error:
                assert error.code == "file-dtype" and other not in (dtype, "float32")
                with pytest.raises(OutputError, match="cannot hold"):
                    formats.check_writable(picture, levels.dtype)
                continue
            assert notes or np.array_equal(gd.read(out).data, levels, equal_nan=True)

    # --- results ----------------------------------------------------------------------------------

    def test_results_are_like_their_input(self, tmp_path, axes):
        """Denoised twice, a file tells both runs, oldest first."""
        if not self.results:
            return  # it is only read
        path, image = self.written(tmp_path / "data", axes)
        before = files_of(tmp_path / "data")
        given, once = gd.read(path), tmp_path / ("once" + self.end)
        levels = np.ascontiguousarray(image[::-1])
        assert gd.write(once, levels, given, RECORD) == ()
        again = gd.read(once)
        np.testing.assert_array_equal(again.data, levels)
        assert (again.axes, again.kind, again.notes) == (axes, given.kind, ())
        assert again.data.dtype == levels.dtype
        assert again.pixel_metadata == given.pixel_metadata
        assert (again.voxel, again.voxel_unit) == (given.voxel, given.voxel_unit)
        assert again.history == (RECORD.as_dict(),)
        self.check_kept(path, once)
        twice = tmp_path / ("twice" + self.end)
        gd.write(twice, image, again, RECORD)
        assert gd.read(twice).history == (RECORD.as_dict(),) * 2
        assert files_of(tmp_path / "data") == before

    def test_results_of_other_formats_keep_metadata_or_tell(self, tmp_path, axes):
        path, image = self.written(tmp_path, axes)
        given = gd.read(path)
        for end in self.others:
            out = tmp_path / f"out{end}"
            lacking = {".nii": set("CS"), ".ome.zarr": {"S"}}.get(end.removesuffix(".gz"), set())
            if lacking & {*axes}:
                with pytest.raises(OutputError, match=r"end the name of the result with \.ome"):
                    gd.write(out, image, given)
                continue
            notes = gd.write(out, image, given, RECORD)
            again = gd.read(out)
            np.testing.assert_array_equal(np.squeeze(again.data), image)
            assert again.axes[-len(axes) :] == axes or again.axes == "TZYX"  # of one slice
            assert (again.data.dtype, again.history) == (image.dtype, (RECORD.as_dict(),))
            self.check_metadata(again, axes)
            assert self.results or "cannot be written" in " ".join(notes)
            told = replace(given, history=(RECORD.as_dict(),))
            notes = gd.write(tmp_path / f"more{end}", image, told)
            assert "Records of earlier filters stay in" in " ".join(notes)

    def test_results_of_formats_that_it_does_not_become_are_refused(self, tmp_path):
        path, image = self.written(tmp_path)
        allowed = self.results + self.others
        ends = {".tif", ".nii", ".ome.zarr", ".dcm", ".mkv", ".png", ""}
        ends -= {end for end in ends if any(each.endswith(end) for each in allowed if end)}
        if formats.format_named(f"a{self.end}") is formats.FORMATS[0]:
            ends -= {".png", ""}  # a TIFF may have any name
        for end in ends | ({self.ending} if not self.results else set()):
            with pytest.raises(OutputError, match="end it with"):
                gd.write(tmp_path / f"out{end}", image, gd.read(path))
        assert os.listdir(tmp_path) == [path.name]

    def test_a_stack_larger_than_memory_is_read_plane_by_plane(self, tmp_path, monkeypatch, limits):
        path, _ = self.written(tmp_path)
        whole = gd.denoise(gd.read(path).data, SETTINGS, 20.0, axes=gd.read(path).filter_axes)
        limits(streamed_bytes=0)
        with monkeypatch.context() as patch:
            patch.setattr(reading, "LARGE_PLANE", 1)  # nor are planes written whole
            if self.by_plane:
                patch.setattr(ImageFile, "loaded", None)  # nothing is read whole
            file = run(path, tmp_path / f"out{self.end}")
        again = gd.read(file.output)
        np.testing.assert_allclose(again.data, whole.image, rtol=0, atol=self.rounding)
        assert again.history[-1] == file.record.as_dict()
        assert again.axes == gd.read(path).axes
        limits(streamed_bytes=1 << 27)
        monkeypatch.setattr(input_checks, "free_memory", lambda: 500)
        out = tmp_path / f"more{self.end}"
        assert "of memory" in error_of(path, lambda: gd.read(path))
        if not self.streams_always:
            assert "of memory" in error_of(path, lambda: run(path, out)) and not out.exists()

    def test_a_result_is_that_of_one_input(self, tmp_path, limits):
        """Streamed, if it can be; files that are read whole: test_same_input.py."""
        limits(streamed_bytes=0)
        output = tmp_path / f"out{self.end}"
        first, image = self.written(tmp_path / "one")
        image.flat[-1] ^= 1
        path, _ = self.written(tmp_path / "two", image=image)
        run(first, output)
        kept = files_of(output)
        os.utime(first, ns=(1, 1))  # as a copy has another time
        assert "is complete and was kept" in run(first, output, resume=True).skipped
        with pytest.raises(OutputError, match="was made with a different input: choose another"):
            run(path, output, resume=True)
        assert files_of(output) == kept

    # --- writing never destroys -------------------------------------------------------------------

    def test_the_input_is_never_replaced(self, tmp_path):
        path, image = self.written(tmp_path / "data")
        before, given = files_of(path), gd.read(path)
        links = tmp_path / f"soft{self.end}", tmp_path / f"hard{self.end}"
        links[0].symlink_to(path)
        names = [tmp_path / "none" / ".." / "data" / path.name, path, links[0]]
        names += [path / f"in{self.end}"] * path.is_dir()
        if path.is_file():
            links[1].hardlink_to(path)
            names.append(links[1])
        (tmp_path / "none").mkdir()
        for name in names[2 * (self.ending not in self.results) :]:
            with pytest.raises(OutputError, match="input"):
                gd.write(name, image, given, RECORD, overwrite=True)
        assert files_of(path) == before

    def test_an_existing_result_is_kept(self, tmp_path):
        path, image = self.written(tmp_path / "data")
        given, out = gd.read(path), tmp_path / f"out{self.end}"
        out.write_text("precious")
        with pytest.raises(OutputError, match=r"exists.*overwrite=True"):
            gd.write(out, image, given)
        assert out.read_text() == "precious"
        out.unlink()
        gd.write(out, image, given)
        kept = files_of(out)
        with pytest.raises(OutputError, match=r"exists.*overwrite=True"):
            gd.write(out, image[::-1], given)
        assert "exists and was kept" in gd.run_batch(path, SETTINGS, 9, output=out).files[0].skipped
        assert files_of(out) == kept
        if out.is_file():  # the new one takes its name: it is not written into
            (tmp_path / "data" / "backup").hardlink_to(out)
        link = tmp_path / f"link{self.end}"
        link.symlink_to(out)
        gd.write(link, image[::-1], given, overwrite=True)
        np.testing.assert_array_equal(gd.read(out).data, image[::-1])
        assert link.is_symlink() and gd.read(link).data.shape == image.shape
        assert not out.is_file() or [*kept.values()] == [(tmp_path / "data/backup").read_bytes()]
        with pytest.raises(OutputError, match="same shape"):
            gd.write(tmp_path / f"new{self.end}", image[1:], given)
        for name in (f"none/new{self.end}", "x" * 300 + self.end):
            with pytest.raises(OutputError, match="cannot be written"):
                gd.write(tmp_path / name, image, given)
        assert sorted(os.listdir(tmp_path)) == ["data", link.name, out.name]

    @pytest.mark.parametrize("exists", [False, True])
    def test_a_failure_in_the_middle_leaves_nothing(self, tmp_path, exists):
        path, image = self.written(tmp_path / "data")
        given, out = gd.read(path), tmp_path / f"out{self.end}"
        if exists:
            gd.write(out, image, given)
        before = files_of(tmp_path)
        failures = [FileError("It is gone."), OutputError("It is full."), Cancelled("Stopped.")]
        for error in (*failures, MemoryError(), KeyboardInterrupt()):
            source = Failing(image, error, self.at_once)
            with pytest.raises(type(error)) as caught:
                gd.write(out, source, given, overwrite=True)
            assert caught.value is error
            assert files_of(tmp_path) == before
        names = {"data", *[out.name] * exists}
        assert {each.name for each in tmp_path.iterdir()} == names

    @pytest.mark.parametrize("share", [0.2, 0.9])
    def test_a_full_disk_is_named(self, tmp_path, share):
        resource = pytest.importorskip("resource", reason="limits of the system")
        path, image = self.written(tmp_path / "data")
        given, out = gd.read(path), tmp_path / "out"
        out.mkdir()
        name = out / f"a{self.end}"
        gd.write(name, image, given)
        room = int(share * max(map(len, files_of(name).values())))
        shutil.rmtree(name) if name.is_dir() else name.unlink()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
            with pytest.raises(OutputError, match=f"{name.name} cannot be written: the disk is"):
                gd.write(name, image, given)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, before)
        assert os.listdir(out) == []

    @pytest.mark.skipif(os.name == "nt", reason="rights are others there")
    def test_a_read_only_folder_is_read_and_named(self):
        with tempfile.TemporaryDirectory() as made:  # which others may enter, unlike tmp_path
            folder = Path(made)
            path, image = self.written(folder)
            given = gd.read(path)  # with all that is imported
            with locked(folder):
                np.testing.assert_array_equal(gd.read(path).data, image)
                out = folder / f"out{self.end}"
                said = error_of(out, lambda: gd.write(out, image, given))
            assert "cannot be written: Permission denied" in said
            assert [each.name for each in folder.iterdir()] == [path.name]

    @pytest.mark.parametrize("name", ODD_NAMES)
    def test_odd_names_are_names(self, tmp_path, name):
        path, image = self.written(tmp_path / name, name=name)
        for given in (path, os.fspath(path), path.as_uri()):
            np.testing.assert_array_equal(gd.read(given).data, image)
        folder = tmp_path / name
        assert formats.find_files([path.as_uri(), path, folder.as_uri()]) == [path]
        for inputs, number in ((path, "a"), ([path.as_uri()], "b"), (folder, "c")):
            output = tmp_path / "out" / number
            output = output if number == "a" else f"{output.as_uri()}/"
            (file,) = gd.run_batch(inputs, SETTINGS, 20, output=output).files
            assert file.error is None and file.output.name == name + self.end
            assert gd.read(file.output).history[-1]["source"] == path.name

    # --- damaged and hostile ----------------------------------------------------------------------

    def test_a_file_that_is_cut_is_refused_or_told(self, tmp_path):
        """At every tenth of a file, read at once or plane by plane; of a folder, of each kind."""
        path, image = self.written(tmp_path)
        told = 0
        files = files_of(path)
        # The first of those whose names differ in a number, such as slices and chunks.
        kinds = {(re.sub(r"\d", "", each.name), len(each.parts)): each for each in reversed(files)}
        for file, whole in ((each, files[each]) for each in kinds.values()):
            for tenth in range(-(path.is_dir() and self.misses_files), 10):
                if tenth < 0:
                    file.unlink()  # of a folder, it may be lost
                else:
                    file.write_bytes(whole[: len(whole) * tenth // 10])
                for read in (gd.read, planes_of):
                    try:
                        picture = read(path)
                    except (FileError, ImageError) as error:
                        said, told = str(error), told + 1
                        with contextlib.suppress(FileError):
                            assert formats.find_files(path)[0].name.startswith(path.name)
                        assert "\n" not in said and said.endswith(".") and str(path) in said
                    else:
                        assert picture.notes or np.array_equal(picture.data, image), tenth
                        told += bool(picture.notes)
            file.write_bytes(whole)
        assert told >= 14
        file = max(files, key=lambda each: len(files[each]))
        file.write_bytes(files[file][: len(files[file]) // 2])
        with contextlib.suppress(DenoiseError):
            assert run(path, tmp_path / f"out{self.end}").notes
        assert not [*tmp_path.glob(".*part")]

    @pytest.mark.parametrize("numbers", CASES, ids=str)
    def test_a_damaged_file_gives_a_result_or_a_named_error(self, tmp_path, numbers):
        """Whatever its bytes, tags, headers, texts and records say; nothing else is opened."""
        for number in numbers[:: self.damaged] if self.damaged else ():
            rng, folder = Random(number), tmp_path / f"{number}"
            axes = self.axes[number % len(self.axes)]
            path, image = self.written(folder / "data", axes)
            if self.results and number % 3 == 0:  # a result, whose record a stranger changed
                record = damaged_values(rng, RECORD.as_dict())
                path = folder / "data" / f"own{self.end}"
                gd.write(path, image, gd.read(folder / "data" / f"in{self.ending}"), [record])
            if number % 6:
                damage(rng, rng.choice([*files_of(path)]))
            check_named(path, folder / f"out{self.end}", number)

    def test_lies_are_refused_before_memory_is_used(self, tmp_path, said, lie):
        path, _ = self.written(tmp_path)
        gd.read(path)
        lie(path)
        tracemalloc.start()
        try:
            refused, out = error_of(path, lambda: gd.read(path)), tmp_path / f"out{self.end}"
            assert re.search(said, refused)
            assert error_of(path, lambda: run(path, out)) == refused and not out.exists()
            assert tracemalloc.get_traced_memory()[1] < 100 << 20
        finally:
            tracemalloc.stop()

    def test_what_is_no_image_is_named(self, tmp_path):
        path = tmp_path / ("none" + self.ending)
        assert "none" in error_of(path, lambda: gd.read(path))
        for name, content in (("empty", b""), ("text", b"Dear microscope, " * 99)):
            path = tmp_path / (name + self.ending)
            path.write_bytes(content)
            out = tmp_path / f"out{self.end}"
            said = error_of(path, partial(gd.read, path))
            assert error_of(path, partial(run, path, out)) == said and not out.exists()
            assert not formats.is_image(path)

    def test_without_its_package_an_error_says_what_to_install(self, tmp_path, monkeypatch):
        if not self.modules:
            return  # its reader is always there
        path, _ = self.written(tmp_path)
        for name in self.modules:
            monkeypatch.setitem(sys.modules, name, None)
        assert formats.is_image(path) and formats.find_files([path]) == [path]
        package = self.modules[0].replace("_", "-")
        with pytest.raises(FileError, match=f"pip install .*{package}"):
            gd.read(path)


def check_named(path: Path, out: Path, number: int) -> None:
    """Read a file, write its pixels again, and filter it, or see a named error."""
    secret = path.parent.parent / "secret"
    secret.mkdir(exist_ok=True)
    tifffile.imwrite(secret / "in.tif", np.ones((9, 9), np.uint8))
    with contextlib.suppress(DenoiseError, MemoryError), watched(secret):
        picture = gd.read(path)
        assert picture.data.ndim == len(picture.axes) and picture.data.size
        assert all(isinstance(each, dict) for each in picture.history)
        gd.write(out, picture.data, picture, RECORD)
        again = gd.read(out)
        pair = np.squeeze(again.data), np.squeeze(picture.data)
        np.testing.assert_array_equal(*pair)
        assert again.history[-1] == RECORD.as_dict()
    named = contextlib.suppress(DenoiseError)  # such as of a plate, which names its images
    with named, watched(secret), pytest.MonkeyPatch.context() as patch:
        if number % 2:  # in parts
            patch.setattr(request, "USUAL_LIMITS", replace(request.USUAL_LIMITS, streamed_bytes=0))
            patch.setattr(reading, "LARGE_PLANE", 1)
        given = {"resume": True} if number % 6 == 0 else {"overwrite": True, "dtype": "float32"}
        (file,) = gd.run_batch(path, SETTINGS, 20.0, output=out, **given).files
        assert isinstance(file.error, DenoiseError | MemoryError | None)
        if file.error is None and not file.skipped:
            json.dumps(file.as_dict())
            shapes = [np.squeeze(gd.read(each).data).shape for each in (path, out)]
            assert shapes[0] == shapes[1]


class SameWriter:
    """Put before a format whose files are written as those of another, which is tested for that."""

    test_an_existing_result_is_kept = test_the_input_is_never_replaced = None
    test_a_full_disk_is_named = test_a_read_only_folder_is_read_and_named = None
    test_a_failure_in_the_middle_leaves_nothing = test_odd_names_are_names = None


def planes_of(path: Path) -> ImageFile:
    """Read an image plane by plane."""
    with formats.open_stack(path) as picture:
        data = picture.data
        planes = [data[place] for place in np.ndindex(data.shape[:-2])]
        return replace(picture, data=np.array(planes).reshape(data.shape))
