"""Results that are nearly the image say so."""

from __future__ import annotations

import json
import warnings

import dask.array as da
import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import SaturationWarning, UnchangedWarning
from napari_gpu_denoise.run.record import result_notes
from scenes import Stored, noisy

SETTINGS = gd.NLMeans(window=5, neighbours=4)


def noted(code, before, after, names, models=()):
    """Return the note of a code on a result, if there is one."""
    found = result_notes(before, after, names, models)
    return next((note for note in found if note.code == code), None)


def notes(record) -> list[str]:
    return [note for note in record.notes if "nearly the same as the image" in note]


@pytest.mark.parametrize("axes", ["YX", "TYX", "YXS"])
@pytest.mark.parametrize("lazy", [False, True])
def test_a_sigma_far_too_small_is_noted(device, axes, lazy):
    shape = {"YX": (40, 50), "TYX": (3, 40, 50), "YXS": (40, 50, 3)}[axes]
    image = noisy(*shape)
    if axes == "TYX":
        image[2] /= 10  # the frame in the middle is looked at
    given, out = (Stored(image), np.empty_like(image)) if lazy else (image, None)
    options = {"axes": axes, "out": out, "device": device}
    (note,) = notes(gd.denoise(given, SETTINGS, 0.2, **options).record)
    assert "0% less" in note and "noise='correlated'" in note
    assert not notes(gd.denoise(given, SETTINGS, 20, **options).record)
    # A map of what a filter found in the image is no result to compare, however it varies.
    steps = np.where(image > 165, np.float32(0.5), np.float32(0))
    directions = {"filter": gd.Isoline(show="directions"), "sigma": 0.2, "axes": axes}
    assert not notes(gd.denoise(steps, **directions, device=device).record)


def test_only_measured_noise_is_warned_of(device):
    blank = np.full((40, 50), 7, np.uint8)
    options = {"settings": SETTINGS, "device": device}
    with pytest.warns(UnchangedWarning, match="sigma is 0"):
        gd.nl_means(blank, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gd.nl_means(blank, 0, **options)
        gd.nl_means(noisy(40, 50), 0.2, **options)
        gd.nl_means(noisy(40, 50), **options)


def test_share_of_the_variation():
    image = np.random.default_rng(0).normal(0, 10, (3, 60, 70))
    assert noted("unchanged", image, image * 0.9, "TYX") is None
    assert "3% less" in noted("unchanged", image, image * 0.97, "TYX")
    assert "0% less" in noted("unchanged", image, image * 1.2, "CYX")
    assert noted("unchanged", np.zeros((5, 5)), np.zeros((5, 5)), "YX") is None
    assert noted("unchanged", np.zeros((5, 1)), np.zeros((5, 1)), "YX") is None
    holes = np.where(image > 20, np.nan, image)
    assert "0% less" in noted("unchanged", holes, holes, "TYX")
    steps = np.kron(np.eye(8), np.ones((8, 8)))
    assert "0% less" in noted("unchanged", steps, steps, "YX")


@pytest.mark.parametrize(
    ("noise", "low"),
    [
        (
            gd.PoissonGaussian(1, 3, offset=1000),
            0,
        ),  # of a camera, on what its offset was taken from
        (gd.PoissonGaussian(50, 0), 0),
        (gd.Rician(10), -150),
        ("rician", -150),
        ("speckle", -150),
    ],
)
def test_noise_that_an_image_does_not_have_is_told(device, noise, low):
    image = noisy(64, 80, sigma=10) + low
    record = gd.denoise(image, gd.NLMeans(), noise=noise, device=device).record
    assert any("grey levels on average" in note for note in record.notes)
    with pytest.warns(UserWarning, match="grey levels on average"):
        gd.nl_means(image, noise=noise, device=device)


def test_the_mean_of_a_result():
    random = np.random.default_rng(0)
    clean = np.full((3, 60, 70), 20.0)
    counts, magnitude = random.poisson(clean), np.hypot(*random.normal(0, 5, (2, *clean.shape)))
    assert noted("biased", counts, clean, "TYX", [gd.PoissonGaussian(1, 0)]) is None
    # The mean of 0.2 photons a pixel moves by an eighth of the noise.
    assert noted("biased", counts, clean + 0.6, "TYX", []) is None
    assert "off by 1" in noted("biased", counts, clean + 1.5, "TYX", [])
    assert noted("biased", magnitude, 0 * clean, "CYX", [gd.Rician(5)] * 3) is None
    assert noted("biased", magnitude, 0 * clean, "CYX", []) is not None
    assert noted("biased", magnitude[:1], 0 * clean[:1], "CYX", [gd.Rician(5)] * 3) is None
    filled = np.where(counts > 30, np.where(counts > 31, 1e20, np.nan), counts)
    assert noted("biased", filled, np.where(counts > 30, filled, clean), "TYX", []) is None
    assert noted("biased", counts[..., :1], clean[..., :1], "TYX", []) is None


def measured(case: str) -> tuple[np.ndarray, dict]:
    """Return an image whose noise is told by more than a model, and options of its run."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[-1:1:192j, -1:1:200j]
    sigma, shape = np.float64(10.0), (192, 200)
    if case == "planes":
        sigma, shape = np.linspace(4.0, 30, 6)[:, None, None], (6, 96, 110)
    elif case == "places":
        sigma = 8 * (1 + 0.75 * (y**2 + x**2))
    image = (120 + sigma * rng.standard_normal(shape)).astype(np.float32)
    if case.startswith("blank"):
        image[:70] = 5
    return image, {"noise": "gaussian"} if case.endswith("sigma") else {}


@pytest.mark.parametrize("case", ["planes", "places", "blank", "blank, one sigma", "alike"])
def test_a_record_repeats_its_run_to_the_bit(device, case):
    image, options = measured(case)
    first = gd.denoise(image, SETTINGS, **options, device=device)
    record = json.loads(json.dumps(first.record.as_dict(), allow_nan=False))
    assert ("estimate" in record) == (case != "alike")
    if "estimate" in record:
        told = {"noise": gd.NoiseEstimate.from_dict(record["estimate"])}
    else:
        told = {"noise": [gd.NoiseModel.from_dict(each) for each in record["noise"]]}
    again = gd.denoise(image, SETTINGS, **told, dtype=record["output_dtype"], device=device)
    np.testing.assert_array_equal(again.image, first.image)


WAYS = {
    "dask": lambda image, **given: gd.nl_means(da.from_array(image, chunks=(2, 24, -1)), **given),
    "lazy": lambda image, **given: gd.denoise_lazy(image, SETTINGS, **given),
    "stream": lambda image, **given: list(gd.stream(SETTINGS, image, **given)),
    "stream over time": lambda image, **given: list(
        gd.stream(gd.NLMeans(window=5, frames_before=1), image, **given)
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_computed_later_warns_as_well(device, way):
    def told(image, **given):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            np.asarray(WAYS[way](image, device=device, **given))
        return [(each.category, str(each.message)) for each in caught]

    image = noisy(6, 48, 56, sigma=10)
    assert not told(image, sigma=10)
    ((kind, text),) = set(told(np.full_like(image, 7)))
    assert kind is UnchangedWarning and text.startswith("sigma is 0")
    clipped = told(image + 200, sigma=1.0, dtype="uint8")
    assert {kind for kind, _ in clipped} == {SaturationWarning}
    assert way in ("dask", "lazy") or len(clipped) == 1
    if way in ("dask", "lazy"):  # of a stream no result is kept to be compared
        ((kind, text),) = told(image - 150, noise=gd.Rician(10))
        assert kind is UserWarning and "grey levels on average" in text


@pytest.mark.parametrize("lazy", [False, True])
def test_fill_values_and_nan_are_no_change_of_the_mean(device, lazy):
    image = noisy(3, 40, 50)
    image[:, :, :15], image[:, :, 15:18] = 1e38, np.nan
    given, out = (Stored(image), np.empty_like(image)) if lazy else (image, None)
    options = {"axes": "TYX", "nonfinite": "keep", "out": out, "device": device}
    record = gd.denoise(given, SETTINGS, 20, **options).record
    assert not any("on average" in note for note in record.notes)
