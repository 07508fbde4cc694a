"""``gpu-denoise assess``."""

from __future__ import annotations

import json
import shlex
import sys

import numpy as np
import pytest
import tifffile
from scipy.ndimage import gaussian_filter

from napari_gpu_denoise import samples
from napari_gpu_denoise.cli.arguments import build_parser
from napari_gpu_denoise.cli.commands import chosen_settings
from napari_gpu_denoise.filters import VBM3D

FAST = ["--step", "4", "--window", "11"]


@pytest.fixture
def file(tmp_path):
    rng = np.random.default_rng(0)
    clean = 100 + 200 * gaussian_filter(rng.normal(0, 1, (3, 80, 88)), (0, 4, 4))
    path = tmp_path / "in.tif"
    noisy = (clean + rng.normal(0, 10, clean.shape)).astype(np.float32)
    told = {"axes": "TYX", "spacing": 0.5, "unit": "um"}
    tifffile.imwrite(path, noisy, imagej=True, resolution=(5, 5), metadata=told)
    return path


def test_it_prints_half_a_page(file, run):
    code, text, _ = run("assess", "nl-means", file, "--sigma", "10", *FAST)
    assert code == 0 and "Expected error" in text and "T 1:2" in text
    assert len(text.splitlines()) < 30


def test_a_region_in_units_of_the_file(file, run):
    given = ["--sigma", "10", "--region", "0,8:72,0:64"]
    code, out, _ = run("assess", "nl-means", file, "--json", *given, *FAST)
    (printed,) = json.loads(out)
    assert code == 0 and printed["region"] == [[0, 1], [8, 72], [0, 64]]
    assert "µm" in printed["detail_words"][0] and printed["file_notes"] == []
    assert printed["spacing"] == [0.2, 0.2]


@pytest.mark.parametrize("command", [["estimate"], ["recommend"], ["assess", "nl-means"]])
def test_notes_of_a_file_are_printed(file, run, command):
    image = tifffile.imread(file)[0]
    with tifffile.TiffWriter(file, ome=True) as tif:
        options = {"tile": (32, 32), "photometric": "minisblack"}
        tif.write(image, subifds=1, metadata={"axes": "YX"}, **options)
        tif.write(image[::2, ::2], subfiletype=1, **options)
    code, out, _ = run(*command, file, "--json")
    (note,) = json.loads(out)[0]["file_notes"]
    assert code == 0 and note.startswith("The image is a pyramid")
    assert f"  note        {note}\n" in run(*command, file)[1]


@pytest.mark.parametrize(
    "more, code, word",
    [
        (["--region", "a:b"], 2, "not a region"),
        (["--region", "0,0:9,0:9"], 6, "--region"),
        (["--sigma", "0"], 2, "Sigma is 0"),
    ],
    ids=["region", "small", "sigma"],
)
def test_errors_say_what_to_do(file, run, more, code, word):
    given = [] if "--sigma" in more else ["--sigma", "10"]
    got, _, err = run("assess", "nl-means", file, *given, *more)
    assert got == code and word in err


@pytest.mark.skipif(sys.platform == "win32", reason="shlex reads POSIX quoting only")
def test_the_command_follows_the_advice(run, tmp_path):
    path = tmp_path / "my cells.tif"
    path.write_bytes(samples.path("fluorescence").read_bytes())
    code, out, _ = run("recommend", path, "--axes", "TYX", "--effort", "fast", "--json")
    (found,) = json.loads(out)
    words = shlex.split(found["command"])
    given = build_parser(words[1:]).parse_args(words[1:])
    assert code == 0 and chosen_settings(given) == VBM3D.of(profile="fast")
    assert (given.inputs, given.axes) == ([str(path)], "TYX")
    assert given.output == str(tmp_path / "my cells_vbm3d.tif") and not given.overwrite


def test_the_advice_in_words(run):
    code, out, err = run("recommend", samples.path("mri"), "missing.tif")
    assert code == 4 and "missing.tif" in err
    assert "  use         BM4D, profile normal\n" in out
    assert "  noise       Rician noise" in out
