"""Arguments of the wrong kind: a named error that says what to give, never a raw exception."""

from __future__ import annotations

import json
import threading

import dask.array as da
import numpy as np
import pytest
import tifffile

import napari_gpu_denoise as gd
from napari_gpu_denoise import cli, errors
from napari_gpu_denoise.noise.record import NoiseEstimate
from scenes import noisy

IMAGE = noisy(24, 28)
# What NumPy or Python convert to numbers.
CONVERTED = [True, np.True_, b"5", "5", bytearray(b"5"), np.array(True), np.array("5"), 5 + 0j]
CONVERTED += [np.ma.array(5.0, mask=True)]
CONVERTED += [np.complex64(5), np.timedelta64(5, "s")]
WRONG = {
    "axes": [["Y", "X"], ("Y", "X"), 5, b"YX", "", "ÄX", True],
    "device": [1.5, [], True, b"cpu", -1, 10**30, {}, np.zeros(0)],
    "memory_limit": ["x", "", -5, 0, [], True, float("nan"), float("inf"), "1e999"],
    "sigma": [
        10**400,
        [10**400],
        [],
        [[1, 2], [3]],
        1j,
        object(),
        float("inf"),
        "x",
        -1,
        *CONVERTED,
    ],
    "sigma_factor": [0, -1, "much", float("nan"), float("inf"), None, *CONVERTED],
    "patch": CONVERTED,
    "cancel": [5, "x", [], True, lambda: True],
    "progress": [5, "x", []],
    "noise": [[], {}, "x", ["gaussian"], {"model": "rician"}, True, 10**400],
    "distance": [5, "x", np.ones(2)],
    "dtype": ["x", 5, [], object, "S10", "M8[s]", complex],
    "nonfinite": [5, [], "x", None, np.zeros(0), np.ones(2)],
    "correct": ["x", 5, [None], {}, ("stripes", "x"), b"stripes", True],
    "profile": [5, [], "x", b"fast", np.ones(2)],
}
CASES = {
    f"{name} {n}": (name, value) for name, values in WRONG.items() for n, value in enumerate(values)
}


@pytest.mark.parametrize(("name", "value"), CASES.values(), ids=CASES)
def test_of_a_function(device, name, value):
    with pytest.raises(errors.DenoiseError) as raised:
        gd.nl_means(IMAGE, **{"device": device, "sigma": 10, name: value})
    assert str(raised.value).endswith((".", "version'"))


SETTERS = {
    "sigma of frames": lambda one: list(gd.stream(gd.NLMeans(), [IMAGE], lambda number: one)),
    "sigma of channels": lambda one: gd.nl_means(np.stack([IMAGE] * 2), [one, 5.0], axes="CYX"),
    "model": gd.Gaussian,
    "threshold": lambda one: gd.remove_outliers(IMAGE, one),
    "spacing": lambda one: gd.assess(IMAGE, gd.NLMeans(), 10, spacing=one),
    "frames": lambda one: gd.denoise(
        np.stack([IMAGE] * 9), gd.NLMeans(), 5, axes="TYX", frames=one
    ),
}


@pytest.mark.parametrize("setter", SETTERS.values(), ids=SETTERS)
def test_of_what_converts_to_a_number(setter):
    for value in CONVERTED:
        with pytest.raises(errors.DenoiseError):
            setter(value)


@pytest.mark.parametrize("number", range(8))
def test_of_an_image(number):
    image = (None, 5, "x", [[1, 2], [3]], [], np.zeros(3), np.zeros((0, 3)), object())[number]
    for call in (gd.nl_means, gd.estimate_noise, lambda one: list(gd.stream(gd.NLMeans(), [one]))):
        with pytest.raises(errors.DenoiseError):
            call(image)


MASKED = np.ma.masked_less(IMAGE, np.sort(IMAGE, None)[7])


def series(image):
    gd.denoise(da.from_array(image[None], chunks=-1), gd.NLMeans(), 10, axes="TYX", out=OUT)


OUT = np.empty_like(IMAGE[None])
WAYS = {
    "function": lambda image: gd.nl_means(image, 10),
    "lazy input": lambda image: gd.nl_means(da.from_array(image), 10).compute(),
    "dask": lambda image: gd.denoise_lazy(da.from_array(image), gd.NLMeans(), 10).compute(),
    "series": series,
    "stream": lambda image: list(gd.stream(gd.NLMeans(), [image], 10)),
    "noise": gd.estimate_noise,
}


@pytest.mark.parametrize("way", WAYS)
def test_of_a_masked_array(way):
    with pytest.raises(errors.ImageError, match=r"\d+ pixels of the array are masked"):
        WAYS[way](MASKED)
    WAYS[way](np.ma.asarray(IMAGE))


class Tensor:
    """An array of another library, as those of torch: its type is none of NumPy."""

    dtype = object()

    def __init__(self, values, of_gradient=False):
        self.values, self.shape, self.of_gradient = values, values.shape, of_gradient

    def __getitem__(self, index):
        return Tensor(self.values[index])

    def __array__(self, dtype=None, copy=None):
        if self.of_gradient:
            raise RuntimeError("Use tensor.detach().numpy() instead.")
        return np.asarray(self.values, dtype)


FOREIGN = {
    "function": lambda image: gd.nl_means(image, 10),
    "dask": lambda image: gd.denoise_lazy(image, gd.NLMeans(), 10).compute(),
    "noise": lambda image: gd.estimate_noise(image).sigma,
    "stream": lambda image: list(gd.stream(gd.NLMeans(), [image], 10)),
}


@pytest.mark.parametrize("way", FOREIGN.values(), ids=FOREIGN)
def test_of_an_array_of_another_library(way):
    np.testing.assert_array_equal(way(Tensor(IMAGE)), way(IMAGE))
    with pytest.raises(errors.ImageError, match=r"not an array \(Use tensor.detach"):
        way(Tensor(IMAGE, of_gradient=True))


def test_sizes_of_memory_and_a_device_by_a_number_of_numpy(device):
    expected, event = gd.nl_means(IMAGE, 10, device=device), threading.Event()
    number = np.int64(device.index)
    for size in ("512M", "0.5 GB", "600000k", 2**29, np.int64(2**29), 5e8):
        out = gd.nl_means(IMAGE, 10, memory_limit=size, device=number, cancel=event)
        np.testing.assert_array_equal(out, expected)


FRAMES = [0.5, "x", b"x", [], [0], 1j, np.ones(2), slice("a"), slice(0.5), slice(0, 2, 0), {}]
NO_OUT = [5, "x", [[0]], np.zeros_like(IMAGE[1:]), np.zeros_like(IMAGE).astype(complex)]
LOCKED = np.zeros_like(IMAGE)
LOCKED.flags.writeable = False
OBJECTS = np.full((9, 9), None)
SETTINGS = gd.NLMeans()


def streamed(*given, **options):
    return list(gd.stream(*given, **options))


# A call for each wrong argument, its error, and what this says.
CALLS = [
    *((gd.denoise, (IMAGE[None], SETTINGS, 10), {"axes": "TYX", "frames": wrong}, "give a number")
      for wrong in FRAMES),
    *((gd.denoise, (IMAGE, SETTINGS, 10), {"out": wrong}, "out=") for wrong in NO_OUT),
    (gd.denoise, (IMAGE, SETTINGS, 10), {"out": np.zeros(IMAGE.shape), "dtype": "same"}, "out="),
    (gd.denoise, (IMAGE, SETTINGS, 10), {"out": LOCKED}, "read-only"),
    *((call, given, {}, "is not a filter")
      for wrong in (None, 5, "nl_means", gd.NLMeans, True)
      for call, given in (
          (gd.denoise, (IMAGE, wrong, 10)),
          (gd.denoise_lazy, (da.from_array(IMAGE), wrong, 10)),
          (streamed, (wrong, [IMAGE], 10)),
      )),
    *((streamed, (SETTINGS, wrong, 10), {}, "iterated") for wrong in (None, 5, True, 1.5)),
    *((streamed, (SETTINGS, [IMAGE], 10), {"live": wrong}, "neither True nor False")
      for wrong in (None, 5, "x", np.ones(2))),
    *((gd.estimate_noise, (IMAGE,), {"model": wrong}, "is not a noise model")
      for wrong in (None, 5, [], "x", np.ones((2, 2)))),
    (gd.denoise_lazy, (OBJECTS, SETTINGS, 10), {}, "type object"),
    *((gd.recommend, (IMAGE,), {"noise": wrong}, "is no estimate")
      for wrong in (5, "auto", gd.Gaussian(5), {})),
]  # fmt: skip
KINDS = {
    "give a number": errors.AxesError,
    "out=": errors.ImageError,
    "read-only": errors.ImageError,
    "iterated": errors.ImageError,
    "type object": errors.ImageError,
}


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_of_a_call(number):
    call, given, options, said = CALLS[number]
    with pytest.raises(KINDS.get(said, errors.SettingsError), match=said):
        call(*given, **options)


NO_PATHS, NO_FLAGS = (None, 5, b"x", ["a"], {}, True), (None, 0, "no", "", [], np.ones(2))
NO_RECORDS = (5, "x", b"x", {}, object(), [5], np.ones(2))


@pytest.mark.parametrize("number", range(7))
def test_of_files(tmp_path, number):
    def filtered(inputs=tmp_path / "in.tif", output=tmp_path / "out.tif", **options):
        return gd.run_batch(inputs, SETTINGS, 10, output=output, **options)

    def written(path=tmp_path / "out.tif", data=IMAGE, **options):
        return gd.write(path, data, **{"like": like, **options})

    tifffile.imwrite(tmp_path / "in.tif", IMAGE)
    like = gd.read(tmp_path / "in.tif")
    flags = ("overwrite", "resume", "companions_anywhere", "stop_on_error")
    calls = (
        [(call, (wrong,), {}) for call in (gd.read, written) for wrong in NO_PATHS],
        [(filtered, (None, 5, True)[n : n + 1], {}) for n in range(3)],
        [(filtered, (like.path, wrong), {}) for wrong in NO_PATHS],
        [(filtered, (), {name: wrong}) for name in flags for wrong in NO_FLAGS],
        [(filtered, (), {name: 5}) for name in ("progress", "cancel", "client")],
        [(written, (like.path, wrong), {}) for wrong in (None, 5, [[1]], IMAGE[1:])],
        [(written, (), {name: wrong}) for name in ("like", "record") for wrong in NO_RECORDS],
    )[number]
    for call, given, options in calls:
        with pytest.raises(errors.DenoiseError):
            call(*given, **options)
    assert [each.name for each in tmp_path.iterdir()] == ["in.tif"]


ESTIMATE = json.dumps(gd.estimate_noise(noisy(64, 64)).as_dict())
SPOILT = [
    '{"model":' * 100_000 + "1" + "}" * 100_000,
    "null",
    "[]",
    '{"models": 5}',
    '{"models": [[1]]}',
    '{"models": [{"model": ["rician"]}]}',
    ESTIMATE.replace('"models": [', '"models": [[1, 2], '),
    ESTIMATE.replace('"models": [{', '"models": [{"model": ["rician"], "was": 1, '),
    ESTIMATE.replace('"errors": [', '"errors": [5, '),
    ESTIMATE.replace('"spectra": [', '"spectra": ["x", '),
    ESTIMATE.replace('"spectra": [', '"spectra": [null, '),
    ESTIMATE.replace('"sigma": [', '"sigma": ["5", ', 1),
    ESTIMATE.replace('"sigma": [', f'"sigma": [1{"0" * 400}, ', 1),
    ESTIMATE.replace('"axes": "YX"', '"axes": 5'),
    ESTIMATE.replace('"clipped": [[', '"clipped": [[0, '),
    ESTIMATE.replace('"autocorrelation": [[', '"autocorrelation": [[1], ['),
    ESTIMATE.replace('"errors": [{', '"errors": [{"sigma": [1], "x": {}}, {'),
    ESTIMATE.replace(
        '"model": "gaussian", "sigma": ', '"model": "gaussian", "sigma": ' + "9" * 400
    ),
]


@pytest.mark.parametrize("text", SPOILT, ids=range(len(SPOILT)))
def test_of_a_file_of_noise(tmp_path, capsys, text):
    path = tmp_path / "noise.json"
    path.write_text(text)
    files = str(tmp_path / "in.tif"), "-o", str(tmp_path / "out.tif")
    assert cli.main(["nl-means", *files, "--noise", str(path)]) != 0
    told = capsys.readouterr().err
    assert "Traceback" not in told and "noise" in told
    if text.startswith("{") and len(text) < 100_000:
        with pytest.raises(errors.SettingsError):
            NoiseEstimate.from_dict(json.loads(text))
