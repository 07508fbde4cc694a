"""``tools/quality.py``: sets in folders, and what is said of those that are incomplete."""

from __future__ import annotations

import csv
import os
import struct
import subprocess
import sys
import zlib
from dataclasses import replace

import imagecodecs
import numpy as np
import pytest

from cli.conftest import one_sentence
from napari_gpu_denoise.files import input_checks
from reference.data import REASON, data_folder
from tools.conftest import ROOT, load

published = load("published")
SETS, noise_score, psnr = published.SETS, published.noise_score, published.psnr

SHAPE = (24, 28)


def write(folder, name, image):
    folder.mkdir(parents=True, exist_ok=True)
    imagecodecs.imwrite(str(folder / name), np.asarray(image, np.uint8))


def photograph(seed: int, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.random.default_rng(seed).integers(60, 180, shape)


@pytest.fixture
def small(monkeypatch):
    """Sets of two small images, with their own names and tables."""
    for name, known in SETS.items():
        shape = (*SHAPE, 3) if len(next(iter(known.shapes))) == 3 else SHAPE
        changes = {"shapes": {shape: 2}, "tolerance": 1.0}
        if name == "fmd":
            changes["noisy"] = tuple(27.22 for _ in known.levels)
        if known.frames:
            changes |= {"levels": (20.0,), "noisy": (22.11,), "frames": 2}
            changes["rows"] = {method: means[1:2] for method, means in known.rows.items()}
        monkeypatch.setitem(SETS, name, replace(known, **changes))


def fill(folder, name, seeds=(0, 1)):
    """Write a set in the layout in which it is downloaded."""
    known = SETS[name]
    (shape,) = known.shapes
    for seed in seeds:
        clean = photograph(seed, shape)
        if known.frames:
            for t in range(3):
                write(folder / f"clip {seed}", f"{t:05}.png", clean + t)
        elif known.pairs is None:
            write(folder, f"{seed}.png", clean)
        else:
            clean = photograph(seed if "*" in known.pairs[1] else 0, shape)
            for level in known.levels:
                noise = np.random.default_rng(9 + seed).normal(0, 11.1, shape)
                for pattern, image in zip(known.pairs, (clean + noise, clean), strict=True):
                    path = folder / pattern.format(level).replace("*", str(seed))
                    write(path.parent, f"{path.name}.png", image)


@pytest.mark.parametrize("name", SETS)
def test_a_complete_set_is_printed_beside_published_means_and_stored(run, tmp_path, small, name):
    fill(tmp_path / "set", name)
    stored = tmp_path / "rows.csv"
    code, out, err = run("quality", name, tmp_path / "set", "--filter", "nl-means", "--csv", stored)
    assert code == 0, err
    assert "2 of 2 " in out and "NL-means here, nothing told" in out
    for method, means in SETS[name].rows.items():
        (row,) = (line for line in out.splitlines() if line.startswith(f"{method} "))
        assert row.split()[-len(means) :] == [f"{mean:.2f}" for mean in means]
    assert ("as expected" in out) == bool(SETS[name].noisy) and "not as expected" not in out
    with stored.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * len(SETS[name].levels)
    noisy = float(rows[0]["noisy dB"])
    known = SETS[name]
    expected = 27.22 if known.pairs else 22.11 if known.frames else 24.61
    assert noisy == pytest.approx(expected, abs=0.7) and float(rows[0]["result dB"]) != noisy
    assert rows[0]["version"] and rows[0]["device"]
    before = stored.read_bytes()
    code, _, err = run("quality", name, tmp_path / "set", "--csv", stored)
    assert code == 5 and "exists" in err and stored.read_bytes() == before


def test_a_part_of_a_set_or_another_version_is_named(run, tmp_path, small, monkeypatch):
    folder = tmp_path / "set"
    fill(folder, "set12", seeds=(0,))
    given = ("quality", "set12", folder, "--filter", "nl-means")
    code, out, _ = run(*given)
    assert code == 0 and "1 of 2 images" in out
    assert "images are missing" in out and "as expected" not in out

    fill(folder, "set12")
    monkeypatch.setitem(SETS, "set12", replace(SETS["set12"], noisy=(30.0, 20.17, 14.15)))
    code, out, _ = run(*given)
    assert code == 0 and "another version of the set" in out

    write(folder, "2.png", photograph(2, (24, 29)))
    code, out, _ = run(*given)
    assert code == 0 and "of other sizes" in out and "as expected" not in out
    (folder / "2.png").write_bytes(b"\x89PNG")
    code, _, err = run(*given)
    assert code == 4 and "2.png cannot be read" in err


def test_videos_are_filtered_by_vbm3d_with_the_first_frames(run, tmp_path, small):
    fill(tmp_path, "davis")
    code, out, err = run("quality", "davis", tmp_path, "--told")
    assert code == 0 and "VBM3D here, sigma told" in out and "2 of 2 videos" in out, err
    (case, _) = SETS["davis"].read(tmp_path, 20.0)
    assert case.noisy.shape == (2, *SHAPE, 3)
    write(tmp_path / "clip 1", "00001.png", photograph(1, (24, 29, 3)))
    code, _, err = run("quality", "davis", tmp_path)
    assert code == 4 and "clip 1 needs frames, all of one size" in one_sentence(err)


def test_sets_that_are_scaled_by_themselves_are_compared_after_an_affine_fit(run, tmp_path, small):
    fill(tmp_path, "w2s")
    before = run("quality", "w2s", tmp_path, "--filter", "nl-means")[1]
    for path in tmp_path.glob("input*"):
        write(tmp_path, path.name, imagecodecs.imread(str(path)) // 2 + 20)
    after = run("quality", "w2s", tmp_path, "--filter", "nl-means")[1]
    rows = [out.splitlines()[3].split()[-1] for out in (before, after)]
    assert "after an affine fit" in after
    assert float(rows[0]) == pytest.approx(float(rows[1]), abs=0.05)


def test_levels_of_fmd_are_columns(run, tmp_path, small):
    fill(tmp_path / "TwoPhoton_MICE", "fmd-field")
    assert (tmp_path / "TwoPhoton_MICE" / "raw" / "19" / "0.png").exists()
    assert (tmp_path / "TwoPhoton_MICE" / "gt" / "19" / "avg50.png").exists()
    stored = tmp_path / "rows.csv"
    given = ("quality", "fmd-field", tmp_path / "TwoPhoton_MICE", "--filter", "nl-means")
    code, out, err = run(*given, "--csv", stored)
    assert code == 0, err
    assert out.splitlines()[2].split() == ["raw", "avg2", "avg4", "avg8", "avg16"]
    with stored.open(newline="") as file:
        assert {row["noise"] for row in csv.DictReader(file)} == set(SETS["fmd-field"].levels)


@pytest.mark.skipif(data_folder() is None, reason=REASON)
def test_a_noisy_frame_of_w2s_has_the_psnr_that_was_published():
    """17.93 dB without a fit: README of Instant-Image-Denoising, image 010_0."""
    case = next(SETS["w2s"].read(data_folder() / "microscopy" / "w2s", ""))
    assert case.name == "input_avg1_010_0.tif"
    assert psnr(case.noisy, case.clean) == pytest.approx(17.93, abs=0.01)


def test_a_folder_of_which_files_are_missing_is_refused(run, tmp_path, small):
    code, _, err = run("quality", "bsd68", tmp_path / "none")
    assert code == 4 and "is not a folder" in one_sentence(err)
    code, _, err = run("quality", "bsd68", tmp_path)
    assert code == 4 and "has no files of BSD68" in one_sentence(err)
    code, _, err = run("quality", "fmd", tmp_path)
    assert code == 4 and "raw is missing" in one_sentence(err)
    fill(tmp_path, "fmd")
    for path in (tmp_path / "test_mix" / "avg16").iterdir():
        path.unlink()
    code, out, err = run("quality", "fmd", tmp_path)
    assert code == 4 and "it needs images named test_mix/avg16/*" in one_sentence(err)
    assert "dB" not in out
    fill(tmp_path, "polyu")
    write(tmp_path, "1_mean.png", photograph(1, (24, 29, 3)))
    code, _, err = run("quality", "polyu", tmp_path)
    assert code == 4 and "differ in size" in one_sentence(err)
    (tmp_path / "1_mean.png").unlink()
    code, _, err = run("quality", "polyu", tmp_path)
    assert code == 4 and "1_mean.png is missing" in one_sentence(err)
    assert "folder" in run("quality", "set12")[2] and "folder" in run("quality", "noise", ".")[2]


def test_of_pure_noise_variance_and_bright_maxima_are_printed(run, tmp_path, monkeypatch):
    rng = np.random.default_rng(3)
    scenes = {"image": (rng.normal(100, 10, (96, 96)).astype(np.float32), "YX", ("nl_means",))}
    scenes["movie"] = (rng.poisson(20, (4, 48, 48)).astype(np.uint16), "TYX", ("nl_means",))
    monkeypatch.setattr(published, "pure_noise", lambda: scenes)
    stored = tmp_path / "noise.csv"
    code, out, _ = run("quality", "noise", "--csv", stored)
    assert code == 0 and "bright maxima" in out and "movie" in out
    with stored.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["scene"] for row in rows] == ["image", "movie"]
    assert all(float(row["variance kept"]) < 0.1 for row in rows)


def test_spots_that_a_result_invents_are_counted():
    noise = np.random.default_rng(0).normal(50, 2, (64, 64))
    flat = np.full_like(noise, 50)
    assert noise_score("", "", noise, flat)[2:5:2] == (0.0, 0)
    invented = flat.copy()
    invented[10, 10] = invented[40, 20] = 50 + 5 * noise.std()
    score = noise_score("", "", noise, invented)
    assert score.after == 2 and score.highest == pytest.approx(5, abs=0.1)
    with pytest.raises(ValueError, match="constant"):
        noise_score("", "", flat, flat)


def test_pure_noise_has_scenes_for_every_filter():
    named = {name for _, _, names in published.pure_noise().values() for name in names}
    assert named == {"bm3d", "nl_means", "vbm3d", "bm4d"}


def test_psnr_is_of_peak_255_without_rounding():
    assert psnr(np.full((3, 3), 10.4), np.full((3, 3), 5.4)) == pytest.approx(34.1514, abs=1e-3)
    two = np.array([np.full((3, 3), 1.0), np.full((3, 3), 10.0)])
    assert psnr(two, 0 * two, frames=True) == pytest.approx(48.1308 - 10, abs=1e-3)


def png(nx: int, ny: int) -> bytes:
    """Return a PNG of zeros, which takes a thousandth of its pixels."""
    rows = zlib.compress(bytes(ny * (nx + 1)), 9)
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", nx, ny, 8, 0, 0, 0, 0)),
        (b"IDAT", rows),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )


JPEG = b"\xff\xd8\xff\xe0\0\x04ab\xff\xff\xc0\0\x11\x08" + struct.pack(">HHB", 65000, 65000, 3)
BMP = b"BM" + bytes(16) + struct.pack("<iiHH", 60000, -60000, 1, 8)
PICTURES = {
    "pipe": (os.mkfifo, "it is a pipe or a device"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "it is a pipe or a device"),
    "folder": (lambda path: path.mkdir(), "is a folder"),
    "empty": (lambda path: path.touch(), "is empty"),
    "PNG": (
        lambda path: path.write_bytes(png(20000, 20000)),
        "of memory",
    ),
    "JPEG": (lambda path: path.write_bytes(JPEG), "of memory"),
    "BMP": (lambda path: path.write_bytes(BMP), "of memory"),
    "cut JPEG": (lambda path: path.write_bytes(JPEG[:12]), "cannot be read as an image"),
    "text": (lambda path: path.write_text("Monday"), "or no image (it has another format)"),
}


@pytest.mark.skipif(os.name == "nt", reason="pipes and links")
@pytest.mark.parametrize("kind", PICTURES)
def test_pictures_are_looked_at_before_they_are_decoded(run, tmp_path, small, monkeypatch, kind):
    monkeypatch.setattr(input_checks, "free_memory", lambda: 1 << 34)
    make, said = PICTURES[kind]
    make(tmp_path / "a.png")
    code, _, err = run("quality", "set12", tmp_path)
    assert code == 4 and said in one_sentence(err)


def test_what_does_not_fit_into_memory_is_refused(run, tmp_path, small, monkeypatch):
    monkeypatch.setattr(input_checks, "free_memory", lambda: 10_000)
    for name in "0.png", "0.tif", "0.jpg", "0.bmp":
        write(tmp_path / name, name, photograph(0))
        code, _, err = run("quality", "set12", tmp_path / name)
        assert code == 4 and "of memory" in one_sentence(err)


@pytest.mark.skipif(os.name == "nt", reason="links")
@pytest.mark.parametrize("name", ["0.png", "link.csv"])
def test_no_picture_of_a_set_is_replaced(run, tmp_path, small, name):
    fill(tmp_path, "set12")
    (tmp_path / "link.csv").symlink_to(tmp_path / "0.png")
    before = (tmp_path / "0.png").read_bytes()
    code, _, err = run("quality", "set12", tmp_path, "--csv", tmp_path / name, "--overwrite")
    assert code == 5 and "is an input, which is never replaced" in one_sentence(err)
    assert (tmp_path / "0.png").read_bytes() == before


@pytest.mark.parametrize("name", ["quality", "warm"])
def test_a_tool_is_run_by_its_path_from_anywhere(tmp_path, name):
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / f"{name}.py"), "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: {name}.py")
