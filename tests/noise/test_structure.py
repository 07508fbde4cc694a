"""Structured noise: what is found in simulated images, and what is not taken for it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import napari_gpu_denoise as gd
from napari_gpu_denoise import errors
from napari_gpu_denoise.noise.structure import amplitudes, find, hum, neighbours, outliers
from napari_gpu_denoise.noise.structure.find import finite_plane

SIGMA = 10.0


def cells(shape=(192, 224), seed=0) -> np.ndarray:
    """Return discs with soft edges on a sloping background, levels 20 to 200."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[: shape[0], : shape[1]]
    image = 20 + 30 * y / shape[0]
    for _ in range(12):
        cy, cx, radius = rng.uniform(0, shape[0]), rng.uniform(0, shape[1]), rng.uniform(8, 30)
        image = image + 60 / (1 + np.exp((np.hypot(y - cy, x - cx) - radius) / 2))
    return image


def noisy(clean=None, seed=1) -> np.ndarray:
    clean = cells() if clean is None else clean
    return clean + np.random.default_rng(seed).normal(0, SIGMA, clean.shape)


def offsets(count, strength, seed=2) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, strength, count)


def kinds(image, axes=None) -> list[str]:
    return [each.kind for each in gd.find_structure(image, axes).findings]


@pytest.mark.parametrize("strength", [0.5, 1.0, 2.0])
def test_rows_and_columns_are_found_with_their_strength(strength):
    image = noisy()
    given = offsets(len(image), strength * SIGMA)
    (found,) = gd.find_structure(image + given[:, None]).findings
    assert found.kind == "rows" and found.fixed is None
    assert found.strength == pytest.approx(given.std(), rel=0.25)
    assert 0.5 < found.confidence <= 1
    across = offsets(image.shape[1], strength * SIGMA)
    assert kinds(image + across) == ["columns"]


def test_a_clean_image_has_none():
    assert not gd.find_structure(cells())
    assert not gd.find_structure(noisy())
    assert gd.find_structure(noisy()).summary() == "no structured noise was found"


@pytest.mark.parametrize("mean", [0.05, 0.3, 1.0, 5.0])
def test_photons_are_not_outliers(mean):
    rng = np.random.default_rng(3)
    assert kinds(rng.poisson(cells() / cells().mean() * mean).astype(np.uint8)) == []


def test_objects_across_the_whole_image_are_not_stripes():
    y, x = np.mgrid[:192, :224]
    horizon = np.where(y > 80, 150.0, 30.0) + np.where(y > 120, 40.0, 0.0)
    waves = 60 * np.sin(y / 9.0) * (x > 120)  # a texture in half of the image
    assert kinds(noisy(horizon)) == []
    assert kinds(noisy(cells() + waves)) == []


def test_offsets_over_time_are_fixed_or_change():
    stack = noisy(np.stack([cells()] * 4))
    same = gd.find_structure(stack + offsets(192, 8)[:, None], "TYX").findings
    assert [(each.kind, each.fixed) for each in same] == [("rows", True)]
    changing = offsets(4 * 192, 8).reshape(4, 192, 1)
    found = gd.find_structure(stack + changing, "TYX").findings
    assert [(each.kind, each.fixed) for each in found] == [("rows", False)]


def test_each_channel_has_its_own():
    image = np.stack([noisy(), noisy(seed=5) + offsets(192, 10)[:, None]])
    (found,) = gd.find_structure(image, "CYX").findings
    assert (found.kind, found.channel) == ("rows", 1)
    assert "in channel 1" in found.words()


@pytest.mark.parametrize("fy, fx", [(0.08, 0.0), (0.0, 0.21), (0.11, 0.07), (-0.3, 0.2)])
def test_hum_is_found_with_frequency_amplitude_and_phase(fy, fx):
    image = noisy()
    y, x = np.mgrid[: image.shape[0], : image.shape[1]]
    wave = 9 * np.cos(2 * math.pi * (fy * y + fx * x) + 0.7)
    (found,) = hum.find_waves((image + wave).astype(np.float32))
    assert abs(found.fy - fy) < 3e-4 and abs(found.fx - fx) < 3e-4
    assert abs(found.amplitude) == pytest.approx(9, rel=0.1)
    assert np.std(found.over(image.shape) - wave) < 0.15 * np.std(wave)
    assert "hum" in kinds(image + wave)


def test_hot_and_dead_pixels_are_found_where_they_are():
    image, rng = noisy(), np.random.default_rng(4)
    places = rng.random(image.shape)
    hot, dead = places < 0.001, places > 0.999
    image[hot] += 200
    image[dead] -= 200
    found = gd.find_structure(image).findings
    assert [each.kind for each in found] == ["hot", "dead"]
    assert found[0].share == pytest.approx(100 * hot.mean(), rel=0.15)
    for each, mask in zip(outliers.find_outliers(finite_plane(image)), (hot, dead), strict=True):
        assert (each.mask & ~mask).sum() <= 1
        assert (each.mask & mask).sum() >= 0.85 * mask.sum()


def membranes(seed: int, size=256) -> np.ndarray:
    """Return dark lines and grain, as in an electron micrograph, with noise."""
    rng = np.random.default_rng(seed)
    phase = 60 * gaussian_filter(rng.normal(size=(size, size)), 9)
    grain = 20 * gaussian_filter(rng.normal(size=(size, size)), 1.2)
    lines = 50 * np.exp(-((np.sin(phase) / 0.25) ** 2))
    return 150 - lines + grain + rng.normal(0, SIGMA, (size, size))


@pytest.mark.parametrize("seed", [0, 2, 5, 7])
def test_faint_dead_pixels_are_found_in_texture(seed):
    image = membranes(seed)
    assert kinds(image) == []
    image[np.random.default_rng(seed + 100).random(image.shape) < 0.001] -= 7.5 * SIGMA
    assert kinds(image) == ["dead"]


def test_neighbours_are_sorted():
    values = np.random.default_rng(7).integers(0, 9, (12, 11)).astype(np.float32)
    found = np.stack(neighbours.sorted_neighbours(np.pad(values, 1, mode="reflect"), slice(0, 12)))
    for y, x in ((1, 1), (5, 6), (10, 9)):
        around = np.delete(values[y - 1 : y + 2, x - 1 : x + 2].ravel(), 4)
        assert found[:, y, x].tolist() == np.sort(around).tolist()


def test_nan_padding_and_extreme_values_are_left_out():
    striped = noisy() + offsets(192, 10)[:, None]
    padded = np.zeros((260, 300))
    padded[30:222, 40:264] = striped
    assert kinds(padded) == ["rows"]
    striped[20:60, 30:90] = np.nan
    assert kinds(striped) == ["rows"]
    assert kinds(np.full((64, 64), np.nan)) == kinds(np.zeros((64, 64))) == []
    assert kinds(np.full((64, 64), 1e300)) == kinds(noisy() * 1e30) == []
    for shape in ((1, 1), (3, 200), (200, 3), (15, 48), (16, 48), (17, 65)):
        assert kinds(np.random.default_rng(0).normal(0, 1, shape)) == []


def test_scale_and_offset_do_not_matter():
    image = noisy() + offsets(192, 7)[:, None]
    (first,) = gd.find_structure(image).findings
    (second,) = gd.find_structure(1e-4 * image + 2).findings
    assert second.strength == pytest.approx(1e-4 * first.strength, rel=1e-2)


def test_estimates_name_what_was_found(capsys):
    estimate = gd.estimate_noise(noisy() + offsets(192, 10)[:, None])
    (note,) = [each for each in estimate.notes if "individual offsets" in each]
    assert note.code == "structured" and "correct='found'" in note
    assert not any("offsets" in each for each in gd.estimate_noise(noisy()).notes)
    json.dumps(gd.find_structure(noisy()).as_dict())
    json.dumps(estimate.as_dict())


def test_wrong_axes_are_refused():
    with pytest.raises(errors.AxesError):
        gd.find_structure(noisy(), "TYX")


@pytest.mark.parametrize("shape", [(70, 101), (96, 64)])
def test_amplitudes_are_those_of_windowed_blocks(shape):
    plane = np.random.default_rng(8).normal(0, 5, shape).astype(np.float32)
    frequencies = np.random.default_rng(9).uniform(-0.5, 0.5, (19, 2))
    found = amplitudes.along_y(amplitudes.along_x(plane, frequencies[:, 1]), frequencies[:, 0])
    y, x = np.indices(shape)
    cuts = [np.arange(amplitudes.BLOCKS + 1) * n // amplitudes.BLOCKS for n in shape]
    for (fy, fx), each in zip(frequencies, found, strict=True):
        turned = plane * np.exp(-2j * math.pi * (fy * y + fx * x))
        for j, k in np.ndindex(each.shape):
            inside = slice(*cuts[0][j : j + 2]), slice(*cuts[1][k : k + 2])
            window = np.multiply.outer(*(np.hanning(n + 2)[1:-1] for n in turned[inside].shape))
            expected = (turned[inside] * window).sum() / window.sum()
            assert abs(each[j, k] - expected) < 1e-4


def test_waves_are_found_beside_each_other_and_near_the_axes():
    y, x = np.mgrid[:160, :200]
    given = [(0.2, 0.0), (-0.11, 0.31), (0.25, 0.02), (0.4, 0.13)]
    waves = sum(8 * np.cos(2 * math.pi * (fy * y + fx * x)) for fy, fx in given)
    found = hum.find_waves(np.random.default_rng(10).normal(waves, SIGMA).astype(np.float32))
    assert len(found) == len(given)
    for fy, fx in given:
        nearest = min(abs(each.fy - fy) + abs(each.fx - fx) for each in found)
        assert nearest < 1e-3
    rest = hum.without(waves.astype(np.float32), found)
    assert rest.std() < 0.1 * waves.std()


def test_few_possible_outliers_are_told_from_many():
    for seed, image in enumerate((cells(), membranes(1), 300 * cells() / cells().max())):
        rng = np.random.default_rng(seed)
        for scale in (0, 8, 25):
            plane = finite_plane(rng.normal(image, 3) if seed < 2 else rng.poisson(image))
            plane[rng.random(plane.shape) < 3e-4] += scale * SIGMA
            every, many = outliers.find_outliers(plane), outliers.find_many(plane)
            for one, other in zip(every, many, strict=True):
                assert one.weight == other.weight
                assert not one.weight or np.array_equal(one.mask, other.mask)
            if scale != 8:
                assert any(each.found for each in many) == (scale == 25)


def test_threads_and_copies_change_nothing(monkeypatch):
    x = np.arange(224)
    image = (noisy() + offsets(192, 8)[:, None] + 6 * np.cos(x / 2.1)).astype(np.float32)
    image[np.random.default_rng(11).random(image.shape) < 0.001] += 200
    first = gd.find_structure(image)
    assert {each.kind for each in first.findings} >= {"rows", "hum", "hot"}
    monkeypatch.setattr(find, "_THREADED", 0)
    assert gd.find_structure(image) == first
    assert gd.find_structure(image.astype(np.float64)) == first
