"""``gpu-denoise quality``: sets in folders, and what is said of those that are incomplete."""

from __future__ import annotations

import csv
from dataclasses import replace

import imagecodecs
import numpy as np
import pytest

from cli.conftest import one_sentence
from napari_gpu_denoise.assessment import published
from napari_gpu_denoise.assessment.published import SETS, noise_score, psnr

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
        monkeypatch.setitem(SETS, name, replace(known, shapes={shape: 2}, tolerance=1.0))


def fill(folder, name, seeds=(0, 1)):
    """Write a set in the layout in which it is downloaded."""
    known = SETS[name]
    (shape,) = known.shapes
    for seed in seeds:
        clean = photograph(seed, shape)
        if known.pairs is None:
            write(folder, f"{seed}.png", clean)
            continue
        (noisy, end), (truth, mean) = known.pairs
        noise = np.random.default_rng(9 + seed).normal(0, 11.1, shape)
        write(folder / noisy, f"{seed}{end}.png", clean + noise)
        write(folder / truth, f"{seed}{mean}.png", clean)


@pytest.mark.parametrize("name", SETS)
def test_a_complete_set_is_printed_beside_published_means_and_stored(run, tmp_path, small, name):
    fill(tmp_path / "set", name)
    stored = tmp_path / "rows.csv"
    code, out, err = run("quality", name, tmp_path / "set", "--filter", "nl-means", "--csv", stored)
    assert code == 0, err
    assert "2 of 2 images" in out and "NL-means here, nothing told" in out
    for method, means in SETS[name].rows.items():
        (row,) = (line for line in out.splitlines() if line.startswith(f"{method} "))
        assert row.split()[-len(means) :] == [f"{mean:.2f}" for mean in means]
    assert ("as expected" in out) == bool(SETS[name].noisy) and "not as expected" not in out
    with stored.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * len(SETS[name].sigmas)
    noisy = float(rows[0]["noisy dB"])
    expected = 24.61 if SETS[name].pairs is None else 27.22
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


def test_a_folder_of_which_files_are_missing_is_refused(run, tmp_path, small):
    code, _, err = run("quality", "bsd68", tmp_path / "none")
    assert code == 4 and "is not a folder" in one_sentence(err)
    code, _, err = run("quality", "bsd68", tmp_path)
    assert code == 4 and "has no files of BSD68" in one_sentence(err)
    code, _, err = run("quality", "fmd", tmp_path)
    assert code == 4 and "raw is missing" in one_sentence(err)
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
