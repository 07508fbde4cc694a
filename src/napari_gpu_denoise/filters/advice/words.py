"""An image and its noise in plain words."""

from __future__ import annotations

import math

from napari_gpu_denoise.noise.record import NoiseEstimate

_NOISE = {
    "gaussian": "noise of one strength",
    "poisson-gaussian": "photon noise",
    "rician": "Rician noise, as in MRI magnitudes",
    "speckle": "speckle",
    "correlated": "correlated noise",
    "correlated-photons": "correlated photon noise",
}
_NEGLIGIBLE = 1e-3  # of the read noise: a gain at which photon noise does not matter


def noise(estimate: NoiseEstimate) -> str:
    """Return the noise in words."""
    if not any(estimate.sigma):
        return "no noise"
    if estimate.name == "poisson-gaussian" and all(
        model.gain <= _NEGLIGIBLE * model.read_noise for model in estimate.models
    ):
        return _NOISE["gaussian"]
    return _NOISE.get(estimate.name, f"{estimate.models[0].title} noise")


def image(axes: str, shape: tuple[int, ...]) -> str:
    """Return what an image is, such as ``"Time-lapse of 80 frames, 512 by 512 pixels"``."""
    lengths = dict(zip(axes, shape, strict=True))
    frames, slices = lengths.get("T", 1), lengths.get("Z", 1)
    colour = "colour " if "S" in lengths else ""
    planes = math.prod(n for a, n in zip(axes, shape, strict=True) if a not in "TZCSYX")
    if frames > 1 and slices > 1:
        what = f"time-lapse of {frames} {colour}volumes of {slices} slices"
    elif frames > 1:
        what = f"{colour}time-lapse of {frames} frames"
    elif slices > 1:
        what = f"{colour}volume of {slices} slices"
    elif planes > 1:
        what = f"{planes} {colour}planes"
        planes = 1
    else:
        what = f"{colour}image"
    parts = [what[:1].upper() + what[1:], f"{lengths['Y']} by {lengths['X']} pixels"]
    if lengths.get("C", 1) > 1:
        parts.append(f"{lengths['C']} channels")
    if planes > 1:
        parts.append(f"{planes} times")
    return ", ".join(parts)
