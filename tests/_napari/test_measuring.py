"""Noise of layers: flat regions, measuring off the GUI thread, and what is kept for runs."""

import math
import threading

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from _napari.inputs import add_sliced
from napari_gpu_denoise._napari.layers.provenance import METADATA_KEY
from napari_gpu_denoise._napari.noise import measuring
from napari_gpu_denoise._napari.noise.measuring import flat_noise
from napari_gpu_denoise._napari.snippets import noise_option
from napari_gpu_denoise.errors import LayerError
from napari_gpu_denoise.filters import NLMeans
from napari_gpu_denoise.noise.estimate import estimate_noise
from napari_gpu_denoise.noise.models import MODELS, Correlated, Gaussian, PoissonGaussian, Rician
from napari_gpu_denoise.run.request import Run

RNG = np.random.default_rng(5)
WHITE = RNG.normal(500, 12, (40, 50))
MAGNITUDES = np.hypot(*RNG.normal(0, 12, (2, 60, 60)))


def test_sigma_is_the_standard_deviation_of_each_channel():
    found = flat_noise(WHITE, "YX")
    assert found.models == (Gaussian(float(WHITE.std(ddof=1))),)
    assert found.sigma == (float(WHITE.std(ddof=1)),)
    assert found.standard_error[0] == pytest.approx(12 / math.sqrt(2 * WHITE.size), rel=0.1)
    assert found.curves[0].mean == (float(WHITE.mean()),)
    assert found.white and "Gaussian" in found.verdict()
    image = np.stack([WHITE, 3 * WHITE], axis=-1)
    found = flat_noise(image, "YXC", "gaussian")
    assert found.planes == 2
    assert found.sigma[1] == pytest.approx(3 * found.sigma[0])
    assert flat_noise(np.full((20, 20), 7), "YX").sigma == (0.0,)
    clipped = np.full((10, 10), 40, np.uint8)
    clipped[0], clipped[1:3] = 0, 255
    assert flat_noise(clipped, "YX", "gaussian").clipped == ((0.1, 0.2),)


@pytest.mark.parametrize(
    ("model", "parameter", "most"),
    [("gaussian", "sigma", 1.2), ("rician", "sigma", 1.2), ("speckle", "looks", 1.6)],
)
def test_stated_errors_are_the_spread_of_many(model, parameter, most):
    draw, true = {
        "gaussian": (lambda: RNG.normal(0, 5, (16, 16)), 5),
        "rician": (lambda: np.hypot(*RNG.normal(0, 5, (2, 16, 16))), 5),
        "speckle": (lambda: RNG.gamma(4, 25, (32, 32)), 4),
    }[model]
    draws = [flat_noise(draw(), "YX", model) for _ in range(200)]
    values = [getattr(each.models[0], parameter) for each in draws]
    assert np.mean(values) == pytest.approx(true, rel=0.02)
    stated = np.mean([each.errors[0][parameter] for each in draws])
    assert 0.8 * np.std(values) <= stated <= most * np.std(values)


def test_background_of_magnitudes_and_neighbours_that_share_noise_are_seen():
    found = flat_noise(MAGNITUDES, "YX")
    assert isinstance(found.models[0], Rician) and "magnitudes" in found.reason
    assert found.sigma[0] == pytest.approx(12, rel=0.03)
    # With a signal it is no background, nor is noise that happens to have its mean; few pixels do
    # not tell.
    assert flat_noise(MAGNITUDES[:15, :15], "YX").name == "gaussian"
    assert flat_noise(np.hypot(MAGNITUDES, 60), "YX").name == "gaussian"
    assert flat_noise(RNG.normal(1.913 * 12, 12, (60, 60)).clip(0), "YX").name == "gaussian"
    wide = RNG.normal(0, 30, (65, 65))
    smooth = (wide[1:, 1:] + wide[:-1, 1:] + wide[1:, :-1] + wide[:-1, :-1]) / 4 + 100
    found = flat_noise(smooth, "YX")
    (model,) = found.models
    assert isinstance(model, Correlated) and not found.white
    assert model.sigma == pytest.approx(15, rel=0.06)
    assert model.autocorrelation[0][1] == pytest.approx(0.5, abs=0.12)


def test_objects_in_a_region_are_told():
    y, x = np.mgrid[:60, :80]
    objects = 45.0 * ((np.hypot(y - 20, x - 20) < 9) | (np.hypot(y - 40, x - 60) < 9))
    noise = np.random.default_rng(0).normal(100, 10, objects.shape)
    for uneven in (objects, 0.6 * x, 20.0 * (x > 30)):
        found = flat_noise(np.stack([noise, noise + uneven]), "CYX")
        (note,) = found.notes
        assert note.startswith("the region is not flat: its parts differ by ")
        within = float(note.partition("it is about ")[2].partition(")")[0])
        assert within == pytest.approx(10, rel=0.1) and found.sigma[1] > 12
        said = measuring.verdict(found)
        assert said == "The region is not flat: draw it where there is no object."
    # Filaments, closer than the parts that are compared, are not excused by their correlation.
    region = noise + 60 * np.sin(np.indices((60, 80)).sum(0) / 2.5) ** 8
    assert flat_noise(region, "YX").notes == ()
    (note,) = flat_noise(region, "YX", expected=[(Gaussian(12.0), 1.0)]).notes
    assert note.startswith("the region is not flat: its sigma is 2") and "layer here 12" in note


@pytest.mark.parametrize("factor", [1.0, 4.0], ids=["white", "correlated"])
def test_what_is_as_the_layer_says_is_flat(factor):
    rng = np.random.default_rng(2)
    for _ in range(50):
        flat = rng.normal(100, 10, (60, 60))
        flat = gaussian_filter(flat, 0.5) if factor > 1 else flat
        known = [(Gaussian(float(flat.std())), factor)]
        assert flat_noise(flat, "YX", expected=known).notes == ()
    bright = rng.normal(900, 30, (60, 60))  # than the rest
    assert flat_noise(bright, "YX", expected=[(PoissonGaussian(1.0, 3.0), 1.0)]).notes == ()


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, side: rng.normal(100, 10, (side, side)),
        lambda rng, side: gaussian_filter(rng.normal(0, 10, (side, side)), 1.5),
        lambda rng, side: np.hypot(*rng.normal(0, 10, (2, side, side))),
        lambda rng, side: rng.exponential(50, (side, side)),
        lambda rng, side: rng.poisson(0.3, (side, side)).astype(float),
    ],
    ids=["white", "correlated", "magnitudes", "speckle", "photons"],
)
def test_flat_regions_are_flat(draw):
    rng = np.random.default_rng(7)
    for side in (24, 100):
        wrong = [measuring._unevenness(draw(rng, side)) is not None for _ in range(200)]
        assert sum(wrong) <= 1


@pytest.mark.parametrize(
    ("region", "model", "said"),
    [
        (WHITE[:7, :7], "auto", "49 pixels"),
        (np.full((20, 20), np.nan), "auto", "0 pixels"),
        (np.zeros((20, 20)), "rician", "constant or dark"),
        (np.full((20, 20), 5.0), "speckle", "constant or dark"),
    ],
)
def test_what_a_region_cannot_tell(region, model, said):
    with pytest.raises(LayerError, match=said):
        flat_noise(region, "YX", model)


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.name)
def test_a_region_tells_any_additive_noise_and_else_why_it_does_not(kind):
    try:
        (model,) = flat_noise(WHITE, "YX", kind.name).models
    except LayerError as error:
        assert not kind.additive and "one brightness" in str(error)
    else:
        assert isinstance(model, kind) or (kind.models_correlation and model.is_one_sigma())


def test_a_region_tells_additive_noise_that_is_added(added_models):
    found = flat_noise(WHITE, "YX", "uniform")
    assert found.models == (added_models.Uniform.of_sigma(WHITE.std(ddof=1)),)
    assert "Uniform, width" in found.verdict()
    with pytest.raises(LayerError, match="one brightness"):
        flat_noise(WHITE, "YX", "multiplicative")
    run = Run(NLMeans(), noise=found)
    assert noise_option(run) == ["--sigma", str(found.sigma[0])]


def test_another_layer_takes_the_place_and_a_closed_panel_measures_nothing(
    viewer, open_noise, measured, qtbot, movie, noisy
):
    gate, began = threading.Event(), []

    def read():
        began.append(True)
        gate.wait()

    add_sliced(viewer, movie, read, name="long")
    panel = open_noise()
    qtbot.waitUntil(lambda: bool(began))
    assert panel.status.text() == "Measuring …" and not panel.use_button.isEnabled()
    viewer.add_image(noisy, name="short")
    assert panel.layer.currentText() == "short" and panel.status.text() == "Measuring …"
    assert panel.estimate() is None
    gate.set()
    measured(panel)
    assert panel.estimate() == estimate_noise(noisy)
    assert len(began) == 1  # it was stopped before it read more
    viewer.window.remove_dock_widget(panel)
    add_sliced(viewer, movie, read)
    qtbot.wait(100)
    assert len(began) == 1
    assert open_noise() is not panel


def test_a_long_lazy_stack_is_sampled(viewer, open_noise, measured):
    stack = np.random.default_rng(0).normal(100, 7, (400, 48, 64)).astype(np.float32)
    layer = add_sliced(viewer, stack)
    panel = open_noise()
    layer.data.read.clear()
    assert measured(panel) == ""
    assert panel.estimate().sigma[0] == pytest.approx(7, rel=0.05)
    assert f"{panel.estimate().planes} planes)" in panel.result.rows.text()
    assert len({k for first, *_ in layer.data.read for k in np.arange(400)[first].ravel()}) <= 80


def test_runs_take_the_noise_that_the_panel_has_measured(
    viewer, open_panel, open_noise, measured, quick, run, noisy
):
    source = viewer.add_image(noisy, name="cells")
    noise = open_noise()
    measured(noise)
    run(open_panel())
    result = viewer.layers[-1]
    assert result.metadata[METADATA_KEY]["sigma"] == list(noise.estimate().sigma)
    # The panel that measures does not follow onto results.
    assert viewer.layers.selection.active is result and noise.layer.layer() is source
