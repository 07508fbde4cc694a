"""Which noise an image is found to have, and how much."""

from __future__ import annotations

import json
import math

import dask.array as da
import imageio.v3 as imageio
import numpy as np
import pytest
import tifffile
from scipy.ndimage import gaussian_filter

import napari_gpu_denoise as gd
from napari_gpu_denoise import estimate_noise
from napari_gpu_denoise.errors import AxesError, ImageError, NonFiniteError, SettingsError
from napari_gpu_denoise.files import samples
from napari_gpu_denoise.noise.estimate import unexplained
from napari_gpu_denoise.noise.models import Gaussian
from napari_gpu_denoise.noise.models.base import Fit
from napari_gpu_denoise.noise.patches.variance import VarianceCurve
from reference.data import REASON, data_folder, microscopy_pairs, pictures

DATA = pytest.mark.skipif(data_folder() is None, reason=REASON)


def noise(shape=(192, 192), sigma=10.0, seed=0):
    return np.random.default_rng(seed).normal(0, sigma, shape)


def scene(ny=192, nx=192):
    """Levels from 20 to 220, edges, and fine texture over a part."""
    y, x = np.mgrid[:ny, :nx]
    picture = 20 + 150 * x / nx + 20 * np.cos(y / 25)
    picture[(y - 70) ** 2 + (x - 80) ** 2 < 1600] += 40
    return picture + np.where(y > 0.75 * ny, 12 * np.sin(2.1 * x) * np.sin(1.7 * y), 0)


def head(ny=192, nx=192):
    """An object of several levels on an empty ground."""
    y, x = np.mgrid[:ny, :nx]
    radius = np.hypot(y - ny / 2, x - nx / 2)
    return np.where(radius < 0.3 * nx, 100 + 60 * np.cos(radius / 7) + 0.2 * x, 0)


def photons(picture, gain=2.0, read=3.0, seed=0):
    rng = np.random.default_rng(seed)
    return gain * rng.poisson(picture / gain) + rng.normal(0, read, np.shape(picture))


def magnitudes(picture, sigma=10.0, seed=0):
    real, imaginary = np.random.default_rng(seed).normal(0, sigma, (2, *np.shape(picture)))
    return np.hypot(picture + real, imaginary)


def speckle(picture, looks=4.0, seed=0):
    return picture * np.random.default_rng(seed).gamma(looks, 1 / looks, np.shape(picture))


def blurred(width=1.0, shape=(192, 192), sigma=10.0, seed=0):
    found = gaussian_filter(noise(shape, 1, seed), width, mode="wrap")
    return sigma * found / found.std()


def texture(fall, seed=0, size=192):
    """Texture of standard deviation 1 whose amplitudes fall by a power of the frequency."""
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(size), np.fft.fftfreq(size)))
    frequency[0, 0] = 1
    found = np.fft.ifft2(np.fft.fft2(noise((size, size), seed=seed)) / frequency**fall).real
    return found / found.std()


def textured_levels():
    x = np.indices((192, 192))[1] / 192
    rough = 40 * texture(1.0, seed=9) * np.clip(1.6 * (x - 0.4), 0, 1)
    return 20 + 200 * x + rough + noise(sigma=5)


def few_photons(seed, step=1):
    """Their mean and variance are alike, and nearly their distribution."""
    picture = 3.5 + 3.5 * gaussian_filter(noise(sigma=12), 8).clip(0)
    return (step * np.random.default_rng(seed).poisson(picture)).astype(np.uint16)


def dark_magnitudes(seed):
    """Where all is dark, the variance tells, not the share of the background."""
    y, x = np.mgrid[:192, :192]
    return magnitudes(np.where(x < 10, 0, 40 + 15 * np.cos(y / 20)), 20, seed)


def dark_shadows(_):
    """Where light goes on to raise the variance, it does not matter how shadows are distributed."""
    picture = 0.9 * scene() + 80
    rng = np.random.default_rng(0)
    noisy = picture + rng.normal(0, np.sqrt(5 * picture))
    noisy[:, :24] = rng.rayleigh(36, (192, 24))
    return noisy


def with_gaps(image):
    image[::40, ::30] = np.nan
    return image


def few_levels(side):
    light = 10 + 90 * np.indices((side, side))[1] / side
    return np.random.default_rng(0).poisson(light)


def still_texture(_):
    """Fine texture hides the photon noise of one image, and the differences of frames show it."""
    y, x = np.mgrid[:128, :128]
    picture = 60 + x + 30 * np.sin(2.3 * x) * np.sin(1.9 * y)
    return np.array([photons(picture, 2, 0, seed) for seed in range(6)])


def moving(width):
    frames = np.array([120 + blurred(3, sigma=25)] * 5)
    for t, frame in enumerate(frames):
        frame[:, :width] = np.roll(frame, 9 * t, 0)[:, :width]
    return photons(frames, 0.5, 2)


IMAGES = {
    "gaussian": lambda seed=0: scene() + noise(seed=seed),
    "correlated": lambda seed=0: scene() + blurred(seed=seed),
    "poisson-gaussian": lambda seed=0: photons(scene(), seed=seed),
    "rician": lambda seed=0: magnitudes(head(), seed=seed),
    "speckle": lambda seed=0: speckle(scene(), seed=seed),
}
PHOTONS = np.sqrt(np.mean(2 * scene() + 9))
SPECKLE = np.sqrt(np.mean(scene() ** 2) / 4)
# Image of a seed, axes, kind of noise, what is known of it and how well, and how many seeds.
RECIPES = {
    "gaussian": (IMAGES["gaussian"], None, "gaussian", {"sigma": (10, 0.08)}, 1),
    "correlated": (IMAGES["correlated"], None, "correlated", {"sigma": (10, 0.15)}, 1),
    "photons": (
        *(IMAGES["poisson-gaussian"], None, "poisson-gaussian"),
        *({"sigma": (PHOTONS, 0.08), "gain": (2, 0.1), "read_noise": (3, 1)}, 1),
    ),
    "magnitudes": (IMAGES["rician"], None, "rician", {"sigma": (10, 0.03)}, 1),
    "speckle": (
        *(IMAGES["speckle"], None, "speckle"),
        *({"sigma": (SPECKLE, 0.08), "looks": (4, 0.15)}, 1),
    ),
    "few levels of photons": (lambda k: few_levels(32 + 8 * k), None, "poisson-gaussian", {}, 2),
    "levels with texture": (lambda _: textured_levels(), None, "gaussian", {"sigma": (5, 0.05)}, 1),
    "photons above shadows": (dark_shadows, None, "poisson-gaussian", {}, 1),
    "coarse integers": (
        lambda k: magnitudes(head(), 2.5, k).astype(np.uint8),
        *(None, "rician", {"sigma": (2.5, 0.02)}, 3),
    ),
    "integers": (
        lambda k: magnitudes(head(), 6, k).astype(np.uint8),
        *(None, "rician", {"sigma": (6, 0.02)}, 3),
    ),
    "little signal": (dark_magnitudes, None, "rician", {"sigma": (20, 0.03)}, 4),
    "little signal in integers": (
        lambda k: np.rint(dark_magnitudes(k)).astype(np.uint8),
        *(None, "rician", {"sigma": (20, 0.03)}, 4),
    ),
    "photons in float": (few_photons, None, "not rician", {}, 4),
    "photons in steps": (lambda k: few_photons(k, 5), None, "not rician", {}, 4),
    "gaps": (lambda _: with_gaps(scene() + noise()), None, "gaussian", {"sigma": (10, 0.06)}, 1),
    "tiny": (lambda _: 1e-250 * (scene() + noise()), None, "gaussian", {"sigma": (1e-249, 0.1)}, 1),
    "huge": (lambda _: 1e250 * (scene() + noise()), None, "gaussian", {"sigma": (1e251, 0.1)}, 1),
    "two of three channels": (
        lambda _: np.array([*map(IMAGES["poisson-gaussian"], (0, 1)), scene() + noise()]),
        *("CYX", "poisson-gaussian", {"gain": (2, 0.15)}, 1),
    ),
    "still frames": (still_texture, "TYX", "poisson-gaussian", {"gain": (2, 0.05)}, 1),
    "moving frames": (lambda _: moving(192), "TYX", "poisson-gaussian", {"gain": (0.5, 0.2)}, 1),
    "half moving": (lambda _: moving(100), "TYX", "poisson-gaussian", {"gain": (0.5, 0.2)}, 1),
    # What stays from frame to frame is no noise of photons.
    "fixed pattern": (
        lambda _: photons(scene()) + noise((4, 192, 192), 3),
        *("TYX", "gaussian", {"sigma": (3, 0.1)}, 1),
    ),
    **{
        f"repeats along {axes[0]}": (
            lambda _: np.array([magnitudes(head(), 7, seed) for seed in range(10)]),
            *(axes, "rician", {"sigma": (7, 0.01)}, 1),
        )
        for axes in ("TYX", "QYX", "ZYX")
    },
}


def named(name):
    """Return the name of a model to ask for: nothing proves correlated noise in one plane."""
    return "correlated" if name == "correlated" else "auto"


@pytest.mark.parametrize("name", RECIPES)
def test_kind_and_parameters(name):
    make, axes, kind, known, seeds = RECIPES[name]
    for seed in range(seeds):
        result = estimate_noise(make(seed), axes, named(kind))
        assert (result.name != kind[4:]) if kind.startswith("not ") else (result.name == kind)
        for parameter, (value, error) in known.items():
            found = result if parameter == "sigma" else result.models[0]
            found = getattr(found, parameter)
            found = found[0] if parameter == "sigma" else found
            assert found == pytest.approx(value, rel=error, abs=0), parameter
        assert 0 < result.standard_error[0] < 0.1 * result.sigma[0]
        assert result.errors[0].keys() <= result.models[0].as_dict().keys()
        assert result.reason
        if axes == "TYX" and kind == "poisson-gaussian":
            still = name == "still frames"
            assert ("differences of neighbouring frames" in result.method) == still
            assert ("still frames" in result.reason) == still
        if axes is None:
            assert result.frames is result.slices is result.covariance is None
        if name in ("photons", *IMAGES):
            assert result.white == (kind != "correlated")


def test_correlation_of_neighbours():
    found = estimate_noise(scene() + blurred(), model="correlated")
    assert found.sigma == (found.models[0].sigma,)
    assert found.models[0].autocorrelation[0][1] == pytest.approx(0.78, abs=0.08)


@pytest.mark.parametrize("image", [scene() + noise(), 100 + noise((3, 60, 70), 3)])
def test_white_gaussian_noise_has_the_sigma_of_filters(image):
    result, plain = estimate_noise(image), estimate_noise(image, model="gaussian")
    assert result.name == "gaussian"
    assert (result.sigma, result.standard_error) == (plain.sigma, plain.standard_error)
    assert (result.method, result.planes) == (plain.method, plain.planes)
    assert result.models == (gd.Gaussian(plain.sigma[0]),)


@pytest.mark.parametrize("model", ["gaussian", "poisson-gaussian", "rician", "speckle"])
def test_the_model_may_be_told(model):
    result = estimate_noise(scene() + noise(), model=model)
    assert result.name == model
    assert result.reason == "this model was requested"
    if model == "gaussian":
        assert result.sigma == estimate_noise(scene() + noise(), model="gaussian").sigma


def test_photon_noise_of_noise_that_does_not_grow():
    falling = scene() + noise() * (2 - scene() / 200)
    result = estimate_noise(falling, model="poisson-gaussian")
    assert result.models[0].gain > 0
    assert "does not clearly grow" in result.notes[0]


def test_gaussian_noise_of_photons_tells_what_it_hides():
    result = estimate_noise(photons(scene(), 3, 0), model="gaussian")
    assert "grows with brightness" in result.notes[0]
    assert result.sigma == estimate_noise(photons(scene(), 3, 0), model="gaussian").sigma


def test_correlated_noise_is_told_beside_other_models():
    result = estimate_noise(scene() + blurred(), model="rician")
    assert "is correlated" in result.notes[0]
    # Or texture, which looks alike.
    result = estimate_noise(120 + 20 * texture(1.5, seed=7) + noise(sigma=5))
    assert (result.name, result.white) == ("gaussian", True)
    assert "may be slightly correlated, or there is fine texture" in result.notes[0]


def test_unknown_model():
    with pytest.raises(SettingsError, match="speckle"):
        estimate_noise(scene(), model="poisson")


# Frames and slices


def test_sigma_of_every_frame():
    level = np.linspace(4, 20, 9)
    stack = scene(96, 96) + noise((9, 96, 96), 1) * level[:, None, None]
    found = estimate_noise(stack, "TYX").frames
    assert (found.axis, found.index) == ("T", tuple(range(9)))
    assert found.sigma[0] == pytest.approx(level, rel=0.1)
    errors = np.array(found.error[0]) / level
    assert np.all((errors > 0.001) & (errors < 0.1))
    assert estimate_noise(stack, "TYX").slices is None
    slices = estimate_noise(stack, "ZYX")
    assert slices.slices.axis == "Z"
    assert slices.slices.sigma == found.sigma
    assert slices.frames is None
    assert estimate_noise(stack).frames is None


@pytest.mark.parametrize("name", [name for name in IMAGES if name != "gaussian"])
def test_sigma_of_frames_of_every_model(name):
    """Steady noise has a steady sigma, which is that of the whole."""
    result = estimate_noise(np.array(list(map(IMAGES[name], range(3)))), "ZYX", named(name))
    assert result.name == name
    error = 0.25 if name == "correlated" else 0.08
    assert result.slices.sigma[0] == pytest.approx(result.sigma * 3, rel=error)


def test_frames_of_channels():
    stack = noise((4, 2, 64, 64), 1) * np.array([3, 9])[:, None, None]
    result = estimate_noise(stack, "TCYX")
    assert len(result.frames.sigma) == 2
    assert np.mean(result.frames.sigma, axis=1) == pytest.approx((3, 9), rel=0.1)
    assert np.max(np.abs(np.array(result.covariance.correlation) - np.eye(2))) < 0.1


def test_a_frame_without_finite_pixels():
    stack = 100 + noise((5, 64, 64))
    stack[1] = np.nan
    result = estimate_noise(stack, "TYX")
    assert math.isnan(result.frames.sigma[0][1])
    assert result.frames.sigma[0][2] == pytest.approx(10, rel=0.1)
    assert result.as_dict()["frames"]["sigma"][0][1] is None


def test_a_lazy_stack_is_sampled():
    read = []

    def plane(block_info=None):
        place = block_info[None]["chunk-location"][:2]
        read.append(place)
        return 100 + noise((1, 1, 40, 40), seed=100 * place[0] + place[1])

    chunks = ((1,) * 90, (1,) * 5, (40,), (40,))
    stack = da.map_blocks(plane, chunks=chunks, dtype=float, meta=np.empty((0,) * 4))
    result = estimate_noise(stack, "TZYX")
    assert result.sigma[0] == pytest.approx(10, rel=0.05)
    assert len(result.frames.index) == 32
    assert len(result.slices.index) == 5
    assert set(result.frames.index) <= set(range(90))
    assert result.planes == len(set(read)) < 70


def test_long_stacks_are_sampled():
    stack = np.broadcast_to(noise((40, 40)), (600, 40, 40)).copy()
    found = estimate_noise(stack, "TYX").frames
    assert len(found.index) == 32
    assert np.all(np.diff(found.index) > 0)
    stack[300:] *= 3
    found = estimate_noise(stack, "TYX").frames
    assert len(found.index) == 256
    assert np.all(np.diff(found.index) > 0)


def test_still_frames_without_photon_noise():
    stack = scene() + noise((5, 192, 192))
    result = estimate_noise(stack, "TYX")
    assert result.name == "gaussian"
    assert result.sigma == estimate_noise(stack, "TYX", "gaussian").sigma


def test_a_dark_part_of_an_object_is_no_background_of_magnitudes():
    """By its distribution it may be one of stronger noise, which the rest of the object shows."""
    picture = np.repeat(160 + 40 * np.cos(np.arange(96) / 9)[:, None], 96, axis=1)
    noisy = magnitudes(picture, 10)
    noisy[:32, :32] = magnitudes(np.zeros((32, 32)), 20)
    result = estimate_noise(noisy)
    assert result.name != "rician" or result.sigma[0] == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize("model", ["auto", "gaussian", "poisson-gaussian", "rician", "speckle"])
@pytest.mark.parametrize("value", [0, 7.5])
def test_a_constant_image(model, value):
    result = estimate_noise(np.full((2, 40, 40), value), "TYX", model)
    assert max(result.sigma) < 1e-3
    json.dumps(result.as_dict(), allow_nan=False)
    if model == "auto":
        assert result.models == (gd.Gaussian(0),)
        assert "no noise" in result.verdict()
        assert result.frames.sigma == ((0.0, 0.0),)


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (5, 40), (8, 8), (9, 12), (16, 16)])
def test_small_images(shape):
    """A few patches of 8 x 8 pixels that overlap prove nothing."""
    result, named = (estimate_noise(50 + noise(shape), model=m) for m in ("auto", "gaussian"))
    assert result.name == "gaussian"
    assert result.sigma == (named.sigma if min(shape) < 8 else (0.0,))
    assert any("not proven" in note for note in result.notes) == (min(shape) >= 8)
    json.dumps(result.as_dict(), allow_nan=False)


def test_refusals():
    with pytest.raises(NonFiniteError):
        estimate_noise(np.full((20, 20), np.nan))
    with pytest.raises(ImageError):
        estimate_noise(np.zeros((0, 5)))
    with pytest.raises(AxesError):
        estimate_noise(np.zeros((5, 5)), "TYX")


def test_clipped_pixels_are_counted():
    image = np.rint(scene() + noise()).clip(40, 150).astype(np.uint8)
    ((dark, bright),) = estimate_noise(image).clipped
    assert dark == pytest.approx(np.mean(image == 40))
    assert bright == pytest.approx(np.mean(image == 150))
    assert estimate_noise(scene() + noise()).clipped == ((0, 0),)


def test_one_channel_is_blank():
    stack = np.array([photons(scene()), np.full((192, 192), 9.0)])
    result = estimate_noise(stack, "CYX")
    assert result.sigma[1] < 1e-3
    json.dumps(result.as_dict(), allow_nan=False)


def test_y_after_x():
    image = scene() + gaussian_filter(noise((192, 192), 30), (0, 1))
    found = estimate_noise(image, "YX").spectra[0].autocorrelation
    turned = estimate_noise(image.T, "XY").spectra[0].autocorrelation
    assert turned == found
    assert found[0][1] > found[1][0] + 0.3


def test_input_is_not_modified():
    image = photons(scene())
    image.flags.writeable = False
    before = image.tobytes()
    assert estimate_noise(image) == estimate_noise(image.copy())
    assert image.tobytes() == before


# Words and records


@pytest.mark.parametrize("name", IMAGES)
def test_the_record_survives_json(name):
    stack = np.array([IMAGES[name]()] * 2)
    result = estimate_noise(stack, "CYX" if name == "gaussian" else "ZYX", named(name))
    text = json.dumps(result.as_dict(), allow_nan=False)
    again = gd.NoiseEstimate.from_dict(json.loads(text))
    assert again.as_dict() == result.as_dict()
    assert again.models == result.models
    assert again.curves == result.curves
    if name == "poisson-gaussian":
        assert math.isnan(again.errors[0]["offset"])
    assert (again.verdict(), again.summary()) == (result.verdict(), result.summary())
    assert json.loads(text)["model"] == name


@pytest.mark.parametrize("values", [{}, {"sigma": [1]}, {"covariance": None, "sigma": 3}])
def test_a_record_of_something_else(values):
    with pytest.raises(SettingsError, match="not a noise estimate"):
        gd.NoiseEstimate.from_dict(values)


def test_a_record_with_values_that_no_estimate_has():
    values = estimate_noise(np.random.default_rng(0).normal(90, 9, (40, 44))).as_dict()
    nested = []
    for _ in range(5000):
        nested = [nested]
    spectrum = {**values["spectra"][0], "autocorrelation": []}
    for change in ({"blank_width": math.inf}, {"notes": nested}, {"spectra": [spectrum]}):
        with pytest.raises(SettingsError, match="not a noise estimate"):
            gd.NoiseEstimate.from_dict(values | change)


@pytest.mark.parametrize("values", [None, 5, [5], "rician"])
def test_a_model_of_something_else(values):
    with pytest.raises(SettingsError, match="is not a noise model"):
        gd.NoiseModel.from_dict(values)


def test_verdict():
    found = {
        name: estimate_noise(make(), model=named(name)).verdict() for name, make in IMAGES.items()
    }
    assert found["gaussian"].startswith("Gaussian, sigma ")
    assert found["gaussian"].endswith("noise is white")
    assert found["correlated"].endswith("noise is correlated")
    assert found["poisson-gaussian"].startswith("Poisson-Gaussian, gain 2")
    assert found["rician"].startswith("Rician, sigma 10; noise is white")
    assert found["speckle"].startswith("Speckle, looks ")


def test_summary():
    stack = photons(np.array([scene()] * 2)[:, None])
    text = estimate_noise(stack, "TCYX").summary()
    for word in ("gain 2", "±", "because", "per frame", "2 read along T", "planes"):
        assert word in text
    assert "\n" in text


# Measured


@DATA
@pytest.mark.parametrize(("case", "name"), [("b", "poisson-gaussian"), ("dark", "gaussian")])
def test_sensor(case, name):
    folder = data_folder() / "sensor/emva_ccd12"
    files = [f"b_{k:03}" for k in (0, 6, 12, 24, 36)] if case == "b" else ["d_000"]
    stack = np.stack([imageio.imread(folder / f"{file}_snap_001.png") for file in files])
    result = estimate_noise(stack)
    assert result.name == name
    if case == "b":
        assert result.models[0].gain == pytest.approx(0.28, rel=0.15)


@DATA
def test_photographs():
    """Each kind of noise on every seventeenth photograph of the Berkeley set."""
    right = dict.fromkeys(("gaussian", "poisson-gaussian", "speckle"), 0)
    clean = [picture.astype(np.float64) for picture in pictures("bsd68").values()][::17]
    for seed, picture in enumerate(clean):
        cases = {
            "gaussian": picture + noise(picture.shape, 5 + 9 * seed, seed),
            "poisson-gaussian": photons(picture, 1 + seed, 3, seed),
            "speckle": speckle(picture, (1, 4, 16)[seed % 3], seed),
        }
        for name, image in cases.items():
            result = estimate_noise(image)
            right[name] += result.name == name
            if name == "gaussian":
                assert result.sigma[0] == pytest.approx(5 + 9 * seed, rel=0.1)
    assert set(right.values()) == {len(clean)}, right


@DATA
def test_measured_images():
    clip = data_folder() / "video/traffic_correlated_noise/frame_6.png"
    result = estimate_noise(imageio.imread(clip), "YXS")
    assert result.name == "correlated"
    assert result.sigma == pytest.approx((4.6,) * 3, rel=0.15)
    (noisy, _), *_ = microscopy_pairs().values()
    assert estimate_noise(noisy).name == "poisson-gaussian"
    for percent, picture in zip((3, 9), list(pictures("colin27").values())[3:5], strict=True):
        result = estimate_noise(magnitudes(picture, 2.55 * percent))
        assert result.name == "rician"
        assert result.sigma[0] == pytest.approx(2.55 * percent, rel=0.02)


@pytest.mark.parametrize(
    ("name", "model"),
    [("fluorescence", "poisson-gaussian"), ("mri", "rician"), ("ultrasound", "correlated")],
)
def test_samples(name, model):
    result = estimate_noise(tifffile.imread(samples.path(name)), samples.info(name).axes)
    assert result.name == model
    if name == "fluorescence":
        assert result.models[0].gain == pytest.approx(2.2, rel=0.08)
    if name == "mri":
        assert result.sigma[0] == pytest.approx(36, rel=0.03)


def blanked(planes):
    movie = scene(64, 80) + noise((25, 64, 80), 6)
    movie[planes] = 0
    return movie


@pytest.mark.parametrize(
    ("image", "said", "sigma"),
    [
        (np.full((64, 64), 7), "two grey levels at most", 0),
        (np.where(noise((64, 64)) > 0, 255, 0).astype(np.uint8), "two grey levels at most", 0),
        ((300 + noise((64, 64), 25)).clip(0, 255).astype(np.uint8), "at the ends of the grey", 0),
        (blanked(np.s_[10:15]), "frames read are blank", 6),
        (blanked(np.s_[::6]), "frames read are blank", 6),
        (blanked(np.s_[:0]) + 40 * noise((25, 64, 80), 1, 1) * (np.arange(25) == 12)[:, None, None],
         "differs by a factor of", 6),
    ],
)  # fmt: skip
def test_what_tells_little_of_noise_is_said(image, said, sigma):
    found = estimate_noise(image, "TYX"[-image.ndim :])
    assert any(said in note for note in found.notes)
    assert found.sigma[0] == pytest.approx(sigma, rel=0.1)


def test_what_the_noise_does_not_explain_is_said():
    curve = VarianceCurve((10.0, 50, 90), (9.0, 81, 400), (100, 300, 50), (True,) * 3)
    assert unexplained(Fit(Gaussian(3), {}, 3, 0.1, "", curve)) == 3
    assert unexplained(Fit(Gaussian(3), {}, 3, 0.1, "")) == 1
    found = estimate_noise(scene() + noise(sigma=3))
    assert not any("times as much" in note for note in found.notes)
