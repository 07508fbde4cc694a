"""Estimates of noise made by hand, for tests that do not measure."""

from napari_gpu_denoise.noise.models import Gaussian
from napari_gpu_denoise.noise.patches.variance import VarianceCurve
from napari_gpu_denoise.noise.record import NoiseEstimate, SigmaSeries


def estimate(models=None, *, sigma=None, errors=None, axes="YX", **changes):
    """Return an estimate with these models; sigma is 10 with an error of 0.1 unless given."""
    models = models or (Gaussian(10.0),)
    count = len(models)
    fields = {
        "sigma": sigma or (10.0,) * count,
        "standard_error": (0.1,) * count,
        "method": "made by hand",
        "planes": count,
        "notes": (),
        "axes": axes,
        "models": models,
        "reason": "it was wanted",
        "errors": errors or tuple({"sigma": 0.1} for _ in models),
        "curves": (None,) * count,
        "frames": None,
        "slices": None,
        "others": None,
        "shape": (40, 50),
        "spectra": (None,) * count,
        "covariance": None,
        "clipped": ((0.0, 0.0),) * count,
    }
    return NoiseEstimate(**{**fields, **changes})


def curve():
    """Return three levels of brightness, of which the second is left out, and an empty one."""
    return VarianceCurve(
        (100.0, 120.0, 140.0, 160.0),
        (9.0, 99.0, 17.0, 0.0),
        (5, 5, 5, 0),
        (True, False, True, False),
    )


def along(axis="T"):
    """Return sigma of four frames of two channels."""
    values = ((1.0, 2.0, 3.0, 4.0), (5.0, 6.0, 7.0, 8.0))
    return SigmaSeries(axis, (0, 3, 6, 9), values, ((0.1,) * 4, (0.2,) * 4), ((1.0,) * 4,) * 2)
