"""Which noise an image is found to have, how much, whether it is proven, and what is said of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import dask.array as da
import imageio.v3 as imageio
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import napari_gpu_denoise as gd
from napari_gpu_denoise import estimate_noise
from napari_gpu_denoise.errors import AxesError, ImageError, NonFiniteError, SettingsError
from napari_gpu_denoise.noise.record import is_unproven
from reference.data import REASON, data_folder, microscopy_pairs

DATA = pytest.mark.skipif(data_folder() is None, reason=REASON)
Y, X = np.indices((192, 192))


def noise(shape=(192, 192), sigma=10.0, seed=0):
    return np.random.default_rng(seed).normal(0, sigma, shape)


def scene(ny=192, nx=192):
    """Levels from 20 to 220, edges, and fine texture over a part."""
    y, x = np.mgrid[:ny, :nx]
    picture = 20 + 150 * x / nx + 20 * np.cos(y / 25)
    picture[(y - 70) ** 2 + (x - 80) ** 2 < 1600] += 40
    return picture + np.where(y > 0.75 * ny, 12 * np.sin(2.1 * x) * np.sin(1.7 * y), 0)


def smooth(side=256):
    y, x = np.mgrid[:side, :side] / side
    return 30 + 220 * x * (0.6 + 0.4 * np.cos(2 * y))


def head():
    """An object of several levels on an empty ground."""
    radius = np.hypot(Y - 96, X - 96)
    return np.where(radius < 0.3 * 192, 100 + 60 * np.cos(radius / 7) + 0.2 * X, 0)


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


def texture(fall, seed=0):
    """Texture of standard deviation 1 whose amplitudes fall by a power of the frequency."""
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(192), np.fft.fftfreq(192)))
    frequency[0, 0] = 1
    found = np.fft.ifft2(np.fft.fft2(noise(seed=seed)) / frequency**fall).real
    return found / found.std()


def textured_levels(_):
    rough = 40 * texture(1.0, seed=9) * np.clip(1.6 * (X / 192 - 0.4), 0, 1)
    return 20 + 200 * X / 192 + rough + noise(sigma=5)


def few_photons(seed, step=1):
    """Their mean and variance are alike, and nearly their distribution."""
    picture = 3.5 + 3.5 * gaussian_filter(noise(sigma=12), 8).clip(0)
    return (step * np.random.default_rng(seed).poisson(picture)).astype(np.uint16)


def dark_magnitudes(seed):
    """Where all is dark, the variance tells, not the share of the background."""
    return magnitudes(np.where(X < 10, 0, 40 + 15 * np.cos(Y / 20)), 20, seed)


def dark_shadows(_):
    """Where light goes on to raise the variance, it does not matter how shadows are distributed."""
    picture, rng = 0.9 * scene() + 80, np.random.default_rng(0)
    noisy = picture + rng.normal(0, np.sqrt(5 * picture))
    noisy[:, :24] = rng.rayleigh(36, (192, 24))
    return noisy


def dark_part(_):
    """By its distribution it may be background of stronger noise, which the rest refutes."""
    noisy = magnitudes(np.repeat(160 + 40 * np.cos(np.arange(96) / 9)[:, None], 96, axis=1), 10)
    noisy[:32, :32] = magnitudes(np.zeros((32, 32)), 20)
    return noisy


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


def holed(share):
    image = scene() + noise()
    image[np.random.default_rng(1).random(image.shape) < share] = np.nan
    return image


def blanked(planes):
    movie = scene(64, 80) + noise((25, 64, 80), 6)
    movie[planes] = 0
    return movie


def colours(share, gain=0.0, width=0.0, uneven=0):
    """Colours of white or correlated noise of which a share is common."""
    clean = smooth(384)[..., None] * (1, 0.8, 0.6)
    own, common = np.random.default_rng(3).normal(size=(384, 384, 3)), noise((384, 384, 1), 1, 9)
    unit = np.sqrt(share) * common + np.sqrt(1 - share) * own
    unit = gaussian_filter(unit, (width, width, 0)) if width else unit
    unit *= 1 + uneven * (np.indices((384, 384)).sum(axis=0) // 16 % 5 > 0)[..., None]
    return (clean + np.sqrt(gain * clean + 64) * unit / unit.std(axis=(0, 1))).astype(np.float32)


def correlated_photons(gain, read):
    return smooth() + np.sqrt(gain * smooth() + read**2) * blurred(0.9, (256, 256), 1)


def mixed(many):
    """Frames of three channels; the noise of so many is correlated."""
    kinds = [blurred if channel < many else lambda seed: noise(seed=seed) for channel in range(3)]
    frames = [[kind(seed=3 * t + c) for c, kind in enumerate(kinds)] for t in range(4)]
    return smooth(192) + np.array(frames)


def uneven_texture(_):
    """Whatever the smoothest patches hold differs from patch to patch, and can be predicted."""
    return smooth(192) + (2 + 8 * np.abs(blurred(6, sigma=1, seed=2))) * blurred(0.6, sigma=1)


def scanned(strength):
    """Objects without noise on a background without any, as of a scanner of today."""
    image = np.where((Y - 90) ** 2 + (X - 90) ** 2 < 50**2, blurred(2, sigma=20, seed=3), 0)
    return (image + noise(sigma=strength)).astype(np.float32)


class Recipe(NamedTuple):
    """An image of a seed, and what has to be found."""

    make: Callable[[int], np.ndarray]
    kind: str = "gaussian"
    known: Mapping[str, tuple[float, float]] = MappingProxyType({})  # parameters, relative error
    axes: str | None = None
    model: str = "auto"  # that is asked for
    seeds: int = 1
    note: str = ""  # what a note says; without, no note says that noise is unproven
    why: str = ""  # what reason, method or summary say


PHOTONS = {"sigma": (np.sqrt(np.mean(2 * scene() + 9)), 0.08), "gain": (2, 0.12)}
SPECKLE = {"sigma": (np.sqrt(np.mean(scene() ** 2) / 4), 0.08), "looks": (4, 0.15)}
CORRELATED = {"sigma": (10, 0.15), "neighbours": (0.78, 0.1)}
FRAMES = np.arange(25)[:, None, None]


def sigma(value, error=0.1):
    return {"sigma": (value, error)}


R = Recipe
RECIPES = {
    "gaussian": R(lambda k: scene() + noise(seed=k), known=sigma(10), why="noise is white"),
    "correlated": R(lambda k: scene() + blurred(seed=k), "correlated", CORRELATED, None,
                    "correlated", why="noise is correlated"),
    "poisson-gaussian": R(lambda k: photons(scene(), seed=k), "poisson-gaussian", PHOTONS,
                          why="grows linearly with brightness"),
    "rician": R(lambda k: magnitudes(head(), seed=k), "rician", sigma(10, 0.03),
                why="has a Rayleigh distribution"),
    "speckle": R(lambda k: speckle(scene(), seed=k), "speckle", SPECKLE, why="squared mean"),
    "levels with texture": R(textured_levels, known=sigma(5, 0.05)),
    "photons above shadows": R(dark_shadows, "poisson-gaussian"),
    "coarse integers": R(lambda k: magnitudes(head(), 2.5, k).astype(np.uint8), "rician",
                         sigma(2.5, 0.02), seeds=2),
    "little signal": R(dark_magnitudes, "rician", sigma(20, 0.03), seeds=2),
    "little signal in integers": R(lambda k: np.rint(dark_magnitudes(k)).astype(np.uint8),
                                   "rician", sigma(20, 0.03), seeds=2),
    "little signal in small numbers": R(lambda k: 1e-3 * dark_magnitudes(k), "rician",
                                        sigma(0.02, 0.03)),
    "correlated magnitudes": R(lambda k: np.hypot(0.2 * scene() + blurred(0.6, seed=1),
                                                  blurred(0.6, seed=2)), "rician",
                               note="is correlated"),
    "dark part": R(dark_part, "rician", sigma(10)),
    "photons in float": R(few_photons, "not rician", seeds=2),
    "photons in steps": R(lambda k: few_photons(k, 5), "not rician", seeds=2),
    "gaps": R(lambda _: holed(0.001), known=sigma(10)),
    # Frames, slices and channels.
    "two of three channels": R(lambda _: np.array([photons(scene()), photons(scene(), seed=1),
                               scene() + noise()]), "poisson-gaussian", {"gain": (2, 0.15)}, "CYX"),
    "a blank channel": R(lambda _: np.array([photons(scene()), 0 * X + 9.0]), "poisson-gaussian",
                         {"gain": (2, 0.15), "second sigma": (0, 1e-3)}, "CYX",
                         why="channel 1: noise is white"),
    "a blank colour": R(lambda _: (smooth(192)[..., None] + noise((192, 192, 3))) * (1, 1, 0),
                        known=sigma(10), axes="YXS"),
    "still frames": R(still_texture, "poisson-gaussian", {"gain": (2, 0.1)}, "TYX",
                      why="differences of neighbouring frames"),
    "moving frames": R(lambda _: moving(192), "poisson-gaussian", {"gain": (0.5, 0.2)}, "TYX"),
    "half moving": R(lambda _: moving(100), "poisson-gaussian", {"gain": (0.5, 0.2)}, "TYX"),
    "colours of one texture that moves": R(lambda _: np.stack([smooth(192) + [blurred(0.8, seed=k)
                                           for k in range(4)]] * 3, -1), "correlated", sigma(10),
                                           "TYXS"),
    **{f"correlated in {many} of three channels": R(lambda _, n=many: mixed(n), kind, {}, "TCYX")
       for many, kind in ((1, "gaussian"), (2, "correlated"))},
    "fixed pattern": R(lambda _: photons(scene()) + noise((4, 192, 192), 3), known=sigma(3),
                       axes="TYX"),  # which is no noise of photons
    **{f"repeats along {axes[0]}": R(lambda _: np.array([magnitudes(head(), 7, seed)
                                     for seed in range(10)]), "rician", sigma(7, 0.01), axes)
       for axes in ("TYX", "QYX", "ZYX")},
    "colours that share noise": R(lambda _: colours(0.6, width=0.8), "correlated",
                                  {"shared": (0.6, 0.1), "sigma": (8, 0.12)}, "YXS"),
    "uneven texture of colours": R(lambda _: colours(0.6, width=0.8, uneven=2), known=sigma(0, 0),
                                   axes="YXS", note="is not proven"),
    "colours of their own": R(lambda _: colours(0), known=sigma(8) | {"shared": (0, 0)},
                              axes="YXS"),
    "colours that share white noise": R(lambda _: colours(0.6), known={"shared": (0.6, 0.05)},
                                        axes="YXS", why="shared between colours"),
    "colours that share photons": R(lambda _: colours(0.6, 0.5), "poisson-gaussian",
                                    {"shared": (0.6, 0.05)}, "YXS"),
    # Models that are asked for.
    "white, as correlated": R(lambda _: smooth() + noise((256, 256), 9), "correlated",
                              sigma(9) | {"neighbours": (0, 0.1)}, None, "correlated"),
    "correlated photons": R(lambda _: correlated_photons(2, 3), "correlated-photons",
                            sigma(np.sqrt(np.mean(2 * smooth() + 9))), why="noise is correlated"),
    "correlated read noise": R(lambda _: correlated_photons(0.5, 10), "correlated-photons",
                               sigma(np.sqrt(np.mean(0.5 * smooth() + 100))), None,
                               "correlated-photons"),
    "falling, as photons": R(lambda _: scene() + noise() * (2 - scene() / 200), "poisson-gaussian",
                             {}, None, "poisson-gaussian", note="does not clearly grow"),
    "photons, as gaussian": R(lambda _: photons(scene(), 3, 0), "gaussian",
                              sigma(np.sqrt(np.mean(3 * scene()))), None, "gaussian",
                              note="grows with brightness", why="over the levels of brightness"),
    "correlated, as magnitudes": R(lambda _: scene() + blurred(), "rician", {}, None, "rician",
                                   note="is correlated"),
    # What proves nothing, or tells little of noise.
    "texture beside noise": R(lambda _: 120 + 20 * texture(1.5, seed=7) + noise(sigma=5),
                              note="is not proven, and 5", why="or there is fine texture"),
    "texture": R(lambda _: smooth(192) + blurred(0.7), known=sigma(0, 4), note="is not proven"),
    "uneven texture": R(uneven_texture, known=sigma(0, 0), note="is not proven"),
    "channels of texture": R(lambda _: smooth(192) + [blurred(0.7, seed=k) for k in (1, 2)],
                             known=sigma(0, 4), axes="CYX", note="of channel 1 may be fine"),
    "grey in colour": R(lambda _: np.stack([smooth(192) + blurred(0.7)] * 3, -1), known=sigma(0, 4),
                        axes="YXS", note="is not proven"),
    "white in colour beside texture": R(lambda _: np.stack([smooth(192) + blurred(0.8, sigma=8)
                                        + noise(sigma=2, seed=k) for k in (1, 2, 3)], -1),
                                        known=sigma(0, 5), axes="YXS", note="may be"),
    **{f"objects of a scanner, sigma {value}": R(lambda _, s=value: scanned(s), note=note,
                                                 known={"sigma": (value, 0.1 if value else 0.3)})
       for value, note in ((0, ""), (3, ""))},
    "few whole patches": R(lambda _: holed(0.3), known=sigma(0, 0), note="is not proven"),
    "drawing": R(lambda _: np.where(noise((64, 64)) > 0, 255, 0).astype(np.uint8),
                 note="two grey levels at most"),
    "saturated": R(lambda _: np.stack([(300 + noise((64, 64), 25)).clip(0, 255),
                                       30.0 * (X[:64, :64] // 8)]),
                   axes="CYX", note="at the ends of the grey"),
    "every sixth frame is blank": R(lambda _: blanked(np.s_[::6]), "gaussian", sigma(6), "TYX",
                                    note="frames read are blank"),
    "odd frame": R(lambda _: blanked([]) + (FRAMES == 12) * noise((25, 64, 80), 40, 1), "gaussian",
                   sigma(6), "TYX", note="differs by a factor of"),
    **{f"{shape[0]} x {shape[1]} pixels": R(lambda _, shape=shape: 50 + noise(shape), "gaussian",
       sigma(0, 0), note="two grey levels" if shape == (1, 1) else "is not proven")
       for shape in ((1, 1), (3, 3), (5, 40), (8, 8), (16, 16))},
}  # fmt: skip


def parameter(result: gd.NoiseEstimate, name: str) -> Any:
    if name == "second sigma":
        return result.sigma[1]
    if name == "neighbours":
        return result.models[0].autocorrelation[0][1]
    return result.sigma[0] if name == "sigma" else getattr(result.models[0], name)


@pytest.mark.parametrize("name", RECIPES)
def test_kind_parameters_and_notes(name):
    make, kind, known, axes, model, seeds, note, why = RECIPES[name]
    for seed in range(seeds):
        result = estimate_noise(make(seed), axes, model)
        assert (result.name != kind[4:]) if kind.startswith("not ") else (result.name == kind)
        for each, (value, error) in known.items():
            found = parameter(result, each)
            assert found == pytest.approx(value, rel=error, abs=0 if value else error), each
        assert any(note in each for each in result.notes) or not note
        unproven = "not proven" in note or "may be" in note
        assert is_unproven(result.notes) == unproven or name.startswith("objects")
        assert why in f"{result.reason} {result.method} {result.verdict()} {result.summary()}"
        assert result.reason.startswith("this model was requested") == (model != "auto")
        assert result.errors[0].keys() <= result.models[0].as_dict().keys()
        if not note and any(result.sigma):
            assert 0 < result.standard_error[0] < 0.1 * result.sigma[0]
        elif not any(result.sigma):
            assert "nothing to remove" in result.verdict()
            assert ("is proven" in result.verdict()) == is_unproven(result.notes)
        # The record survives JSON.
        text = json.dumps(result.as_dict(), allow_nan=False)
        again = gd.NoiseEstimate.from_dict(json.loads(text))
        assert again.as_dict() == result.as_dict()
        assert (again.models, again.curves) == (result.models, result.curves)
        assert (again.verdict(), again.summary()) == (result.verdict(), result.summary())


def test_refusals():
    for image, axes, model, error in (
        (np.full((20, 20), np.nan), None, "auto", NonFiniteError),
        (np.zeros((0, 5)), None, "auto", ImageError),
        (np.zeros((5, 5)), "TYX", "auto", AxesError),
        (scene(), None, "poisson", SettingsError),
    ):
        with pytest.raises(error, match="speckle" if model == "poisson" else ""):
            estimate_noise(image, axes, model)


# Frames and slices


def test_sigma_of_every_frame():
    level = np.linspace(4, 20, 9)
    stack = scene(96, 96) + noise((9, 96, 96), 1) * level[:, None, None]
    found = estimate_noise(stack, "TYX").frames
    assert (found.axis, found.index) == ("T", tuple(range(9)))
    assert found.sigma[0] == pytest.approx(level, rel=0.1)
    errors = np.array(found.error[0]) / level
    assert np.all((errors > 0.001) & (errors < 0.1))
    slices = estimate_noise(stack, "ZYX")
    assert (slices.slices.axis, slices.slices.sigma) == ("Z", found.sigma)
    assert slices.frames is estimate_noise(stack, "TYX").slices is estimate_noise(stack).frames
    stack[1] = np.nan
    result = estimate_noise(stack, "TYX")
    assert math.isnan(result.frames.sigma[0][1])
    assert result.as_dict()["frames"]["sigma"][0][1] is None


def test_stacks_are_sampled():
    read = []

    def plane(block_info=None):
        place = block_info[None]["chunk-location"][:2]
        read.append(place)
        return 100 + noise((1, 1, 40, 40), seed=100 * place[0] + place[1])

    chunks = ((1,) * 90, (1,) * 5, (40,), (40,))
    stack = da.map_blocks(plane, chunks=chunks, dtype=float, meta=np.empty((0,) * 4))
    result = estimate_noise(stack, "TZYX")
    assert result.sigma[0] == pytest.approx(10, rel=0.05)
    assert (len(result.frames.index), len(result.slices.index)) == (32, 5)
    assert set(result.frames.index) <= set(range(90))
    assert result.planes == len(set(read)) < 70
    stack = np.broadcast_to(noise((40, 40)), (600, 40, 40)).copy()
    for count in (32, 256):
        found = estimate_noise(stack, "TYX").frames
        assert len(found.index) == count and np.all(np.diff(found.index) > 0)
        stack[300:] *= 3


def test_clipped_pixels_are_counted():
    image = np.rint(scene() + noise()).clip(40, 150).astype(np.uint8)
    share = pytest.approx((np.mean(image[:191] == 40), np.mean(image[:191] == 150)))
    assert estimate_noise(image[:191]).clipped == (share,)
    # Of large planes every second row is read.
    assert estimate_noise(np.tile(image[:191], (30, 1))).clipped == (share,)
    assert estimate_noise(scene() + noise()).clipped == ((0, 0),)


def test_y_after_x_of_an_image_that_is_not_modified():
    image = scene() + gaussian_filter(noise((192, 192), 30), (0, 1))
    image.flags.writeable = False
    before = image.tobytes()
    found = estimate_noise(image, "YX").spectra[0].autocorrelation
    assert estimate_noise(image.T, "XY").spectra[0].autocorrelation == found
    assert found[0][1] > found[1][0] + 0.3
    assert image.tobytes() == before


@pytest.mark.parametrize("change", range(7))
def test_a_record_of_something_else(change):
    values, nested = estimate_noise(noise((40, 44))).as_dict(), []
    for _ in range(5000):
        nested = [nested]
    spectrum = {**values["spectra"][0], "autocorrelation": []}
    others = [{"blank_width": math.inf}, {"notes": nested}, {"spectra": [spectrum]}]
    others = [values | each for each in [*others, {"sigma": [1, 2]}]]
    with pytest.raises(SettingsError, match="not a noise estimate"):
        gd.NoiseEstimate.from_dict([{}, {"sigma": [1]}, {"covariance": None}, *others][change])


# Measured


@DATA
@pytest.mark.parametrize(("case", "name"), [("b", "poisson-gaussian"), ("dark", "gaussian")])
def test_sensor(case, name):
    folder = data_folder() / "sensor/emva_ccd12"
    files = [f"b_{k:03}" for k in (0, 6, 12, 24, 36)] if case == "b" else ["d_000"]
    stack = np.stack([imageio.imread(folder / f"{file}_snap_001.png") for file in files])
    result = estimate_noise(stack)
    assert result.name == name
    assert case != "b" or result.models[0].gain == pytest.approx(0.28, rel=0.15)


@DATA
def test_measured_images():
    clip = data_folder() / "video/traffic_correlated_noise/frame_6.png"
    result = estimate_noise(imageio.imread(clip), "YXS")
    assert result.name == "correlated"
    assert result.sigma == pytest.approx((4.6,) * 3, rel=0.15)
    (noisy, _), *_ = microscopy_pairs().values()
    assert estimate_noise(noisy).name == "poisson-gaussian"
