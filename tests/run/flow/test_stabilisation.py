"""Stabilising transforms on the device, around every filter: as the models do it on the host."""

from __future__ import annotations

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.program import session
from napari_gpu_denoise.protocol.plan import FrameNote
from napari_gpu_denoise.run.flow.work import Stabilisation
from scenes import IMAGE_FILTERS, STABILISED, follows_time, joining, prepared, scene, small

PHOTONS = [
    gd.PoissonGaussian(*numbers)
    for numbers in [
        (0.28, 3.1, 14.7),
        (2.0, 0.0, 0.0),
        (1e-4, 3e-5, 1e-3),
        (300.0, 40.0, -50.0),
        (1.0, 60.0, 100.0),
        (0.01, 900.0, 0.0),
    ]
]
MAGNITUDES = [gd.Rician(6.5), gd.Rician(2e-3)]
SPECKLES = [gd.Speckle(4.0, least=0.18), gd.Speckle(1.0, least=1e-6)]
TABLE = gd.SignalDependent((-1e4, 1e5), (300.0, 20.0))
ALL = dict.fromkeys([*STABILISED, *PHOTONS, *MAGNITUDES, *SPECKLES, TABLE])


def levels_of(model) -> np.ndarray:
    """Return grey levels as they come with such noise, from far below no light to very bright."""
    unit = {"poisson-gaussian": getattr(model, "gain", 0), "rician": getattr(model, "sigma", 0)}
    unit = unit.get(model.name, 1.0)
    spread = np.concatenate([-np.geomspace(1e3, 1e-3, 900), [0.0], np.geomspace(1e-3, 1e6, 3000)])
    if model.name != "poisson-gaussian":
        return np.maximum(unit * spread, 0)
    return model.offset + unit * spread + model.read_noise * np.tile([-3, 0, 3], len(spread))[::3]


def changed(device, models, values: np.ndarray, what: str, signed=True, maps=False) -> np.ndarray:
    """Return values that were changed on a device: a frame for each model, of equal lengths."""
    import pyopencl as cl

    here = session(device)
    values = values.astype(np.float32)
    buffer = cl.Buffer(here.context, cl.mem_flags.COPY_HOST_PTR, hostbuf=values)
    queue, out = here.queue(), np.empty_like(values)
    different = list(dict.fromkeys(models))
    numbers = np.array([different.index(model) for model in models])
    with here.turn:
        around = Stabilisation(different, Arena(here), signed, maps)
        launches = getattr(around, what)(queue, buffer, numbers, len(values) // len(models))
        cl.enqueue_copy(queue, out, buffer)
    assert {name for name, _ in launches} <= {"stabilise", "inverse"}
    # Equal neighbours are changed at once.
    assert len(launches) == (0 if maps else 1 + np.count_nonzero(np.diff(numbers)))
    return out


@pytest.mark.parametrize("model", ALL, ids=lambda model: model.summary())
def test_the_device_transforms_as_the_model_does(device, model):
    values = levels_of(model).astype(np.float32)
    expected = model.stabilise(values).astype(np.float64)
    error = np.abs(changed(device, [model], values, "forward") - expected)
    assert np.ptp(expected) > 3
    # 2 / 1000 of the noise, beside what float32 rounds
    assert np.all(error <= 2e-3 + 3e-7 * np.abs(expected)), error.max()

    # The inverse is the exact unbiased one.
    stabilised = np.unique(model.stabilise(values))
    stabilised = np.concatenate([stabilised - 0.7, stabilised, stabilised + 0.01])
    expected = model.inverse(stabilised).astype(np.float64)
    found = changed(device, [model], stabilised, "inverse")
    noise = np.sqrt(model.variance(np.abs(expected)))
    unit = {"poisson-gaussian": lambda: model.gain, "rician": lambda: model.sigma}
    noise += 0.05 * unit.get(model.name, float)()  # without light, or read noise, there is none
    error = np.abs(found - expected)
    # Single precision of the stabilised value is worth so much of a grey level.
    assert np.all(error <= 2e-3 * noise + 1e-6 * np.abs(expected)), (error / noise).max()
    np.testing.assert_array_equal(
        changed(device, [model], values, "inverse", maps=True), values, "maps are no grey levels"
    )


def test_magnitudes_below_noise_are_negative_or_nothing(device):
    model, signs = gd.Rician(5.0), {}
    values = np.linspace(-2, 2, 101, dtype=np.float32)
    for signed in (True, False):
        out = changed(device, [model], values, "inverse", signed)
        expected = model.inverse(values)
        np.testing.assert_allclose(out, expected if signed else expected.clip(0), atol=0.02)
        signs[signed] = out.min()
    assert signs[True] < -4
    assert signs[False] == 0


def test_each_frame_is_changed_by_its_own_model(device):
    one, other = PHOTONS[:2]
    models = [one, one, other, one, other, other]
    values = np.random.default_rng(0).uniform(20, 900, (6, 4097)).astype(np.float32)
    out = changed(device, models, values.ravel(), "forward").reshape(values.shape)
    back = changed(device, models, out.ravel(), "inverse").reshape(values.shape)
    for model, given, there, result in zip(models, values, out, back, strict=True):
        np.testing.assert_array_equal(there, changed(device, [model], given, "forward"))
        np.testing.assert_array_equal(result, changed(device, [model], there, "inverse"))
    assert not np.array_equal(changed(device, [other], values[0], "forward"), out[0])


def test_brightness_is_that_of_stabilised_values(device):
    models = PHOTONS[0], PHOTONS[1]
    around = Stabilisation(models, Arena(session(device)), True, False)
    means = np.array([[30.0, 70.0], [50.0, 90.0]])
    note = FrameNote(np.ones(2), means, models=np.array([1, 0]))
    found = around.note(note).means
    np.testing.assert_array_equal(found[0], models[1].stabilise(means[0]))
    np.testing.assert_array_equal(found[1], models[0].stabilise(means[1]))
    plain = FrameNote(np.ones(2), models=np.array([1, 0]))
    assert around.note(plain) is plain


def drawn(model, clean: np.ndarray, seed: int = 0) -> np.ndarray:
    """Return an image with the noise of a model."""
    rng = np.random.default_rng(seed)
    if model.name == "poisson-gaussian":
        light = rng.poisson(np.maximum(clean - model.offset, 0) / model.gain) * model.gain
        image = model.offset + light + rng.normal(0, model.read_noise, clean.shape)
    elif model.name == "rician":
        parts = rng.normal(0, model.sigma, (2, *clean.shape))
        image = np.hypot(clean + parts[0], parts[1])
    elif model.name == "speckle":
        image = clean * rng.gamma(model.looks, 1 / model.looks, clean.shape)
    else:
        image = clean + np.sqrt(model.variance(clean)) * rng.standard_normal(clean.shape)
    return image.astype(np.float32)


def axes_for(kind, axes: str) -> str:
    return "T" + axes if follows_time(kind) and "T" not in axes else axes


def in_steps(image, settings, models, axes: str, device) -> np.ndarray:
    """Filter between the transforms of the host, channel by channel."""
    axis = axes.find("C")
    if axis < 0:
        seen = models[0].stabilise(image)
        out = gd.denoise(seen, settings, models[0].sigma_after, axes=axes, device=device).image
        return models[0].inverse(out)
    parts = [
        in_steps(np.take(image, k, axis), settings, (model,), axes.replace("C", ""), device)
        for k, model in enumerate(models)
    ]
    return np.stack(parts, axis)


@pytest.mark.parametrize(
    ("kind", "axes", "model"),
    [(kind, "YX", model) for kind in IMAGE_FILTERS for model in STABILISED]
    + [(gd.NLMeans, "ZYX", PHOTONS[0]), (gd.NLMeans, "TYX", MAGNITUDES[0])],
    ids=lambda one: getattr(one, "name", one),
)
def test_every_filter_runs_between_the_transforms(kind, device, model, axes):
    axes = axes_for(kind, axes)
    settings = joining(kind, axes)
    image = drawn(model, scene(*{2: (45, 53), 3: (3, 33, 37), 4: (2, 2, 33, 37)}[len(axes)]))
    result = gd.denoise(image, settings, noise=model, axes=axes, device=device)
    applied = prepared(settings, axes, image.shape, (model,))
    if not settings.takes((model,)):
        expected = in_steps(image, settings, (model,), axes, device)
    else:  # a filter that knows this noise itself
        sigma = None if model.name == "speckle" else model.sigma
        expected = gd.denoise(image, applied, sigma, axes=axes, device=device).image
    np.testing.assert_allclose(result.image, expected, rtol=2e-3, atol=0.05)
    assert np.abs(result.image - image).mean() > 1
    assert result.record.noise == (model.as_dict(),)
    assert result.record.sigma == (() if applied is None else result.record.sigma)
    assert result.record.as_dict()["noise"] == [model.as_dict()]


def test_no_light_gives_no_negative_number(device):
    model = gd.PoissonGaussian(2.0, 0.0, 0.0)
    image = np.zeros((3, 40, 41), np.float32)
    image[0, 10:20, 10:20] = 2.0
    image[1] = np.random.default_rng(0).poisson(0.05, (40, 41)) * 2.0
    for settings in map(small, IMAGE_FILTERS):
        out = gd.denoise(image, settings, noise=model, axes="TYX", device=device).image
        assert np.isfinite(out).all()
        assert out.min() >= 0
        assert out[2].max() < 1e-6
    dark = gd.PoissonGaussian(2.0, 3.0, 100.0)
    noisy = np.random.default_rng(1).normal(100, 3, (64, 64)).astype(np.float32)
    out = gd.bm3d(noisy, noise=dark, settings=small(gd.BM3D), device=device)
    assert out.min() >= 100
    assert abs(out.mean() - 100) < 0.5


def test_maps_are_shown_as_they_are(device):
    model = PHOTONS[1]
    image = drawn(model, scene(48, 56))
    maps = gd.isoline_maps(image, noise=model, device=device)
    expected = gd.isoline_maps(model.stabilise(image), model.sigma_after, device=device)
    np.testing.assert_array_equal(maps.classes, expected.classes)
    assert maps.directions.max() <= 180
    assert len(np.unique(maps.classes)) > 1
