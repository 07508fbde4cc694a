"""An estimate in words, and as what plots show."""

import dataclasses

import numpy as np
import pytest

from _napari.noise_records import along, curve, estimate
from napari_gpu_denoise._napari.noise import plots, rows
from napari_gpu_denoise.errors import Note
from napari_gpu_denoise.noise.correlation import noise_spectrum
from napari_gpu_denoise.noise.models import Gaussian, PoissonGaussian

TABLE = tuple(tuple(float(y == x == 0) for x in range(5)) for y in range(5))


def test_a_table_has_units_and_what_the_library_says():
    photons = PoissonGaussian(0.28, 3.1, 14.7)
    note = Note("it may be so", "measure=again", code="uneven")
    errors = ({"gain": 0.004, "read_noise": 0.1},)
    known = estimate((photons,), errors=errors, notes=(note,), frames=along())
    assert rows.noise_rows(known) == [
        ("Gain", "0.28 ± 0.004 grey levels per electron"),
        ("Read noise", "3.1 ± 0.1 grey levels"),
        ("Offset", "14.7 grey levels"),
        ("Because", "it was wanted"),
        ("Sigma", "10 ± 0.1 (made by hand, 1 plane)"),
        ("Per frame", "channel 0: 1 to 4; channel 1: 5 to 8 (4 read along T)"),
        ("Note", "it may be so: choose Automatic"),
    ]
    two = estimate((Gaussian(10), Gaussian(20)))
    assert rows.noise_rows(two)[0] == ("Sigma", "10 ± 0.1, 20 ± 0.1 grey levels")
    assert rows.as_html([("a", "<b>")]).count("&lt;b&gt;") == 1


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


def test_the_autocorrelation_of_noise():
    spectrum = noise_spectrum(np.random.default_rng(0).normal(0, 5, (64, 64)))
    table = ((1.0, -0.001, *spectrum.autocorrelation[0][2:]), (0.123, *(0.0,) * 4))
    table += spectrum.autocorrelation[2:]
    found = estimate(spectra=(dataclasses.replace(spectrum, autocorrelation=table),))
    x, y = plots.autocorrelation_series(found)
    assert (x.y[1], y.y[1], x.name, y.look) == (-0.001, 0.123, "along x", "dashes")
    none = dataclasses.replace(found, sigma=(0.0,))
    assert plots.autocorrelation_series(none) == []
