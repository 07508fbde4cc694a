"""``gpu-denoise estimate``: the noise that the function finds, of large files from a few planes."""

from __future__ import annotations

import json
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import tifffile

import napari_gpu_denoise as gd
from cli.conftest import one_sentence
from files.tiffs import PLAIN, named, written
from napari_gpu_denoise.files import formats, tiff
from napari_gpu_denoise.noise.estimate import estimate_noise

KINDS = ("LZW, predictor", "ImageJ, signed", "OME", "alpha, planar")


def scene(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    clean = 60 + 50 * np.sin(np.arange(np.prod(shape)) / 700).reshape(shape)
    return np.random.default_rng(seed).normal(clean, 5).astype(dtype)


@pytest.fixture
def read(monkeypatch):
    """Numbers of the blocks that are read of a file, and "all" where it is read whole."""
    numbers = []
    by_block, whole = tiff.Planes._read, tiff.Planes._whole

    def block(self, number):
        numbers.append(number)
        return by_block(self, number)

    def everything(self):
        numbers.append("all")
        return whole(self)

    monkeypatch.setattr(tiff.Planes, "_read", block)
    monkeypatch.setattr(tiff.Planes, "_whole", everything)
    return numbers


@pytest.fixture
def large(limits):
    """Take every file for a large one."""
    limits(streamed_bytes=0)


@pytest.fixture
def report(run):
    """Return the estimate of the noise of a file."""

    def estimated(*argv: str) -> dict:
        code, out, err = run("estimate", *argv, "--json")
        assert (code, err) == (0, "")
        (found,) = json.loads(out)
        return found

    return estimated


def lazily(path: str, axes: str) -> dict:
    """The estimate of a dask array, read by tifffile alone; without alpha."""
    data = tifffile.imread(path)
    with formats.open_stack(Path(path)) as picture:
        data = data[picture.colours]
        if picture.metadata["signed16"]:
            data = (data.astype(np.int32) - 32768).astype(np.int16)
    return estimate_noise(da.from_array(data, chunks=-1), axes).as_dict()


# --- what is said ---------------------------------------------------------------------------------


def test_estimate(here, run):
    clean = np.add.outer(np.arange(60.0), np.arange(70.0))
    noisy = clean + np.random.default_rng(0).normal(0, 5, (3, 60, 70))
    tifffile.imwrite("noisy.tif", noisy.astype(np.float32), imagej=True, metadata={"axes": "TYX"})
    code, out, err = run("estimate", "noisy.tif")
    assert (code, err) == (0, "")
    expected = gd.estimate_noise(noisy.astype(np.float32), "TYX")
    advice = gd.recommend(noisy.astype(np.float32), "TYX", noise=expected)
    lines = [
        "noisy.tif (TYX, 3 x 60 x 70, float32)",
        "  read        3 of 3 planes",
        *(f"  {line}" for line in expected.summary().splitlines()),
        f"  recommended {advice.choice}, because {advice.reason}",
    ]
    assert out == "".join(f"{line}\n" for line in lines)
    code, out, _ = run("estimate", "noisy.tif", "--json")
    (report,) = json.loads(out)
    assert report["input"] == "noisy.tif"
    assert (report["axes"], report["planes"], report["total_planes"]) == ("TYX", 3, 3)
    assert gd.NoiseEstimate.from_dict(report).as_dict() == expected.as_dict()
    code, out, _ = run("estimate", "noisy.tif", "--axes", "cyx", "--json")
    (report,) = json.loads(out)
    assert len(report["sigma"]) == len(report["models"]) == 3
    assert report["sigma"][0] == pytest.approx(5, rel=0.2)
    code, out, err = run("estimate", "none.tif", "noisy.tif")
    assert code == 4
    assert "none.tif" in one_sentence(err)
    assert "noisy.tif" in out
    assert run("estimate", "noisy.tif", "--axes", "YX")[0] == 2


# --- large files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_large_files_are_sampled(here, report, read, large, kind):
    """And say what the same file says in Python, where it is not in memory."""
    path = "large.tif"
    shape = written(path, kind, 80).shape
    found = report(path)
    assert read and "all" not in read
    with formats.open_stack(Path(path)) as picture:
        expected = lazily(path, picture.filter_axes)
        lengths = zip(picture.axes, picture.pixels.shape, strict=True)
        total = int(np.prod([n for letter, n in lengths if letter not in "YX"]))
        assert len(set(read)) < np.prod(shape[: picture.data._outer])
    assert found["total_planes"] == total
    assert 8 <= found["planes"] <= total
    assert {name: found[name] for name in expected} == json.loads(json.dumps(expected))


@pytest.mark.parametrize("axes", ["TYX", "ZYX", "IYX"])
def test_long_stacks_are_read_in_part(here, run, report, read, large, axes):
    data = scene((150, 16, 24), "u2")
    tifffile.imwrite("long.tif", data, **named(axes))
    found = report("long.tif")
    assert len(set(read)) == found["planes"] < found["total_planes"] == 150
    assert len(read) <= 8 + 16 + 64
    assert found["planes"] <= {"T": 60, "Z": 40, "I": 40}[axes[0]]
    _, out, _ = run("estimate", "long.tif")
    assert f"\n  read        {found['planes']} of 150 planes\n  model " in out


@pytest.mark.parametrize("kind", ["ImageJ, signed", "alpha"])
def test_small_files_are_read_once(here, report, read, kind):
    """All frames and slices of an array in memory are looked at, up to 256 of them."""
    written("small.tif", kind, 80)
    found = report("small.tif")
    assert read == ["all"]
    picture = gd.read("small.tif")
    expected = gd.estimate_noise(picture.data[picture.colours], picture.filter_axes).as_dict()
    assert {name: found[name] for name in expected} == json.loads(json.dumps(expected))


@pytest.mark.parametrize("channels", [1, 3])
def test_few_planes_are_read_once(here, report, read, large, channels):
    """A sample of few is all of them, some of them several times."""
    for frames, sampled in ((24, False), (25, True)):
        data = scene((frames, channels, 16, 24), "u2")
        tifffile.imwrite("in.tif", data, **named("TCYX"))
        read.clear()
        assert report("in.tif", "--axes", "TCYX")["total_planes"] == frames * channels
        assert (read != ["all"]) == sampled


def test_planes_that_are_not_those_of_the_file(here, report, read, large):
    """Each would take a reading of the whole file."""
    data = scene((16, 24, 40), "u2")
    tifffile.imwrite("in.tif", data, **PLAIN)
    found = report("in.tif", "--axes", "yxt")
    assert read == ["all"]
    assert found["total_planes"] == 40
    assert found["sigma"] == list(gd.estimate_noise(data, "YXT").sigma)


@pytest.mark.parametrize("axes", ["YX", "TTYX", "TZX"])
def test_axes_that_do_not_fit_a_large_file(here, run, read, large, axes):
    tifffile.imwrite("in.tif", scene((40, 16, 24), "u2"), **named("TYX"))
    code, out, err = run("estimate", "in.tif", "--axes", axes)
    assert (code, out) == (2, "")
    assert "in.tif" in one_sentence(err)
    assert read == []
