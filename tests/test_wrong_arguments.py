"""Arguments of the wrong kind: a named error that says what to give, never a raw exception."""

from __future__ import annotations

import json
import threading

import dask.array as da
import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise import cli, errors
from napari_gpu_denoise.noise.record import NoiseEstimate
from scenes import noisy

IMAGE = noisy(24, 28)
WRONG = {
    "axes": [["Y", "X"], ("Y", "X"), 5, b"YX", "", "ÄX", True],
    "device": [1.5, [], True, b"cpu", -1, 10**30, {}],
    "memory_limit": ["x", "", -5, 0, [], True, float("nan"), float("inf"), "1e999"],
    "sigma": [10**400, [10**400], [], [[1, 2], [3]], 1j, object(), float("inf"), "x", -1],
    "cancel": [5, "x", [], True, lambda: True],
    "progress": [5, "x", []],
    "noise": [[], {}, "x", ["gaussian"], {"model": "rician"}, True],
    "dtype": ["x", 5, [], object, "S10", "M8[s]", complex],
    "nonfinite": [5, [], "x", None],
    "correct": ["x", 5, [None], {}, ("stripes", "x"), b"stripes", True],
    "profile": [5, [], "x", b"fast"],
}
CASES = {
    f"{name} {n}": (name, value) for name, values in WRONG.items() for n, value in enumerate(values)
}


@pytest.mark.parametrize(("name", "value"), CASES.values(), ids=CASES)
def test_of_a_function(device, name, value):
    with pytest.raises(errors.DenoiseError) as raised:
        gd.nl_means(IMAGE, **{"device": device, "sigma": 10, name: value})
    assert str(raised.value).endswith((".", "version'"))


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
    "lazy input": lambda image: gd.nl_means(da.from_array(image), 10),
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


@pytest.mark.parametrize("size", ["512M", "0.5 GB", "600000k", 2**29, np.int64(2**29), 5e8])
def test_sizes_of_memory(device, size):
    event = threading.Event()
    out = gd.nl_means(IMAGE, 10, memory_limit=size, device=device, cancel=event)
    np.testing.assert_array_equal(out, gd.nl_means(IMAGE, 10, device=device))


def test_a_device_by_a_number_of_numpy(device):
    out = gd.nl_means(IMAGE, 10, device=np.int64(device.index))
    np.testing.assert_array_equal(out, gd.nl_means(IMAGE, 10, device=device))


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
]


@pytest.mark.parametrize("text", SPOILT, ids=range(len(SPOILT)))
def test_of_a_file_of_noise(tmp_path, capsys, text):
    path = tmp_path / "noise.json"
    path.write_text(text)
    image = tmp_path / "in.npy"
    assert cli.main(["nl-means", str(image), "--noise", str(path)]) != 0
    told = capsys.readouterr().err
    assert "Traceback" not in told and "noise" in told
    if text.startswith("{") and len(text) < 100_000:
        with pytest.raises(errors.SettingsError):
            NoiseEstimate.from_dict(json.loads(text))
