"""An estimate in words, and as what plots show."""

import dataclasses
import math

import numpy as np
import pytest

from _napari.noise_records import along, curve, estimate
from napari_gpu_denoise._napari.noise import plots, rows
from napari_gpu_denoise.noise.correlation import noise_spectrum
from napari_gpu_denoise.noise.models import Gaussian, PoissonGaussian

TABLE = tuple(tuple(float(y == x == 0) for x in range(5)) for y in range(5))


@pytest.mark.parametrize(
    ("value", "error", "said"),
    [
        (18.912, 0.104, "18.91 ± 0.10"),
        (0.28123, 0.0051, "0.2812 ± 0.0051"),
        (3.14159, math.nan, "3.142"),
        (7.0, 0.0, "7"),
        (2.5e-7, 3e-9, "2.5e-07 ± 3e-09"),
    ],
)
def test_errors_say_how_many_places_count(value, error, said):
    assert rows.measured(value, error) == said


def test_rows_with_units():
    photons = PoissonGaussian(0.28, 3.1, 14.7)
    errors = ({"gain": 0.004, "read_noise": 0.1},)
    found = rows.table(estimate((photons,), errors=errors), "1 of 1 plane")
    assert [(row.label, row.text) for row in found] == [
        ("Gain", "0.2800 ± 0.0040 grey levels per electron"),
        ("Read noise", "3.10 ± 0.10 grey levels"),
        ("Offset", "14.7 grey levels"),
        ("Mean sigma", "10.00 ± 0.10 grey levels"),
        ("Reason", "it was wanted"),
        ("Planes read", "1 of 1 plane"),
        ("Method", "made by hand"),
    ]
    two = estimate((Gaussian(10), Gaussian(20)))
    assert rows.table(two, "")[0].text == "10.00 ± 0.10, 20.00 ± 0.10 grey levels"
    said = rows.clipped(estimate(clipped=((0.0, 0.0125), (0.0, 0.01))))
    assert said == "0.00% of the pixels at the dark end, 1.25% at the bright end"


def test_levels_and_channels_in_plots():
    model = PoissonGaussian(0.2, 1.0, 60.0)
    used, left, line = plots.curve_series(estimate((model,), curves=(curve(),)))
    assert (used.x, used.y, used.look) == ([100.0, 140.0], [9.0, 17.0], "points")
    assert (left.x, left.y, left.look) == ([120.0], [99.0], "rings")
    assert (line.x[0], line.x[-1]) == (100, 140)
    assert (line.y[0], line.y[-1]) == (pytest.approx(9), pytest.approx(17))
    assert [series.name for series in (used, left, line)] == ["used", "left out", "model"]
    assert plots.curve_series(estimate((model,))) == []
    several = plots.curve_series(estimate((Gaussian(1), Gaussian(2)), curves=(curve(), curve())))
    assert [series.colour for series in several] == [0, 0, 0, 1, 1, 1]
    assert [series.name for series in several if series.name] == ["0", "1"]
    first, second = plots.along_series(along())
    assert (first.x, first.y, first.error) == ((0, 3, 6, 9), (1, 2, 3, 4), (0.1,) * 4)
    assert (second.name, second.colour) == ("1", 1)
    assert plots.along_series(None) == []


def test_whether_noise_is_white():
    spectrum = noise_spectrum(np.random.default_rng(0).normal(0, 5, (64, 64)))
    table = ((1.0, -0.001, *spectrum.autocorrelation[0][2:]), (0.123, *(0.0,) * 4))
    table += spectrum.autocorrelation[2:]
    found = estimate(spectra=(dataclasses.replace(spectrum, autocorrelation=table),))
    assert rows.whiteness(found) == "white; correlation of neighbours 0.00 along x, 0.12 along y"
    x, y = plots.autocorrelation_series(found)
    assert (x.y[1], y.y[1], x.name, y.look) == (-0.001, 0.123, "along x", "dashes")
    assert rows.whiteness(estimate()) == ""
    none = dataclasses.replace(found, sigma=(0.0,))
    assert rows.whiteness(none) == "" and plots.autocorrelation_series(none) == []
