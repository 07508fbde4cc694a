"""What filters of volumes share: settings, the distance of slices, and cubes that suit it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.image.threads import in_threads
from napari_gpu_denoise.noise.sampling import spread, without_fill
from napari_gpu_denoise.protocol.settings import setting

AUTO = "auto"
CUBES = {"4x4x4": (4, 4, 4), "2x4x8": (2, 4, 8), "1x8x8": (1, 8, 8)}
"""Lengths along z, y and x, by name."""
FLAT = "1x8x8"

# Cubes of a shape are best up to this ratio of the distance of slices to that of pixels with the
# same difference (measured on MRI with slices left out, methods page).
_MOST = {"4x4x4": 1.8, "2x4x8": 4.0, FLAT: math.inf}

_LAGS = (1, 2, 3, 4, 6, 8, 12, 16)  # pixels
_SLICES, _OTHERS, _SIDE = 8, 2, 1024  # pairs of slices, positions along other axes, pixels read
# Differences between lags that are less than this many standard errors tell nothing.
_CERTAIN = 5.0


def slices_setting() -> Any:
    """Declare how many slices on each side are searched."""
    help = "Slices above and below to search"
    return setting(0, help, bounds=(0, 16), unit="slices", needs_axis="Z")


def voxel_setting(decides: str = "the best shape of cubes") -> Any:
    """Return the setting for the size of a voxel."""
    return setting(
        "",
        f"Voxel size along Z, Y and X, such as '2, 0.5, 0.5'; used if {decides} cannot be found "
        "from the image",
        advanced=True,
    )


def voxel_text(voxel: Any) -> str:
    """Return a voxel size, three numbers or text, as text; refuse anything else."""
    parts = voxel.replace(",", " ").split() if isinstance(voxel, str) else voxel
    try:
        sizes = [] if parts is None else [float(part) for part in parts]
    except (TypeError, ValueError):
        sizes = [math.nan]
    if sizes and not (len(sizes) == 3 and all(0 < size < math.inf for size in sizes)):
        raise SettingsError(
            f"voxel={voxel!r} is not a voxel size: give three positive numbers, along Z, Y and X, "
            "such as (2, 0.5, 0.5)."
        )
    return ", ".join(f"{size:g}" for size in sizes)


def choose_cube(image: Any, names: str, voxel: str) -> tuple[str, str]:
    """Return the cubes that suit an image with axes Z, Y and X, and why.

    Only some of the planes of `image` are read. The image decides if it can: a voxel size says
    nothing of how far the optics of a microscope blur along z.
    """
    slices = image.shape[names.index("Z")]
    if slices < CUBES["4x4x4"][0]:
        few = "1 slice is" if slices == 1 else f"{slices} slices are"
        return FLAT, f"{few} too few for cubes of several slices: cubes are 1x8x8"
    ratio, why = distance_of(image, names, voxel)
    name = next(name for name, most in _MOST.items() if ratio < most)
    return name, f"{why}: cubes are {name}"


def distance_of(image: Any, names: str, voxel: str) -> tuple[float, str]:
    """Return the distance of slices in pixels, 1 where it is unknown, and its source."""
    ratio = slice_distance(image, names)
    if ratio is not None:
        return ratio, f"neighbouring slices differ as much as pixels {ratio:.2g} apart"
    if voxel:
        z, y, x = (float(size) for size in voxel.split(", "))
        ratio = z / math.sqrt(y * x)
        return ratio, f"according to the voxel size, slices are {ratio:.2g} pixels apart"
    return 1.0, "the distance of slices cannot be measured in the image, and there is no voxel size"


def slice_distance(image: Any, names: str) -> float | None:
    """Return the distance of slices in pixels: so far away pixels differ as much along y and x.

    Squares of differences are compared, to which white noise adds the same at any distance. None if
    the image does not tell, because what changes is hidden by noise.
    """
    pairs = list(_neighbours(image, names))
    along, _ = _mean_square(pairs)
    fourth, count = _mean_square([((one - other) ** 2, 0) for one, other in pairs])
    error = math.sqrt(max(fourth - along**2, 0.0) / count) if count > 1 else math.nan
    planes = [plane for plane, _ in pairs]

    def differing(lag: int) -> float:
        down = [(plane[lag:], plane[:-lag]) for plane in planes]
        right = [(plane[:, lag:], plane[:, :-lag]) for plane in planes]
        return _mean_square(down + right)[0]

    lags = [lag for lag in _LAGS if lag < min(planes[0].shape) // 2]
    across = np.array(in_threads(differing, lags))
    # An image that repeats itself may differ less again farther away.
    across = np.maximum.accumulate(across)
    if len(across) < 2 or not across[-1] - across[0] > _CERTAIN * error:
        return None
    if along <= across[0]:
        return 1.0
    return float(np.interp(along, across, _LAGS[: len(across)], right=2.0 * _LAGS[-1]))


def _neighbours(image: Any, names: str):
    """Yield pairs of neighbouring slices, float32 (y, x), spread over the image."""
    z, y, x = (names.index(letter) for letter in "ZYX")
    places: list[Sequence[Any]] = [spread(n, _OTHERS) for n in image.shape]
    places[z] = spread(image.shape[z] - 1, _SLICES)
    for axis in (y, x):
        start = max(image.shape[axis] - _SIDE, 0) // 2
        places[axis] = [slice(start, start + _SIDE)]
    for at in itertools.product(*places):
        planes = []
        for step in (0, 1):
            index = list(at)
            index[z] += step
            plane = np.asarray(image[tuple(index)], np.float32)
            planes.append(without_fill(plane if y < x else plane.T))
        yield tuple(planes)


def _mean_square(pairs: Sequence[tuple[Any, Any]]) -> tuple[float, int]:
    """Return the mean squared difference of images, float32, and of how many finite values."""
    count, total = 0, 0.0
    spare = np.empty(max(one.size for one, _ in pairs), np.float32)
    for one, other in pairs:
        steps = np.subtract(one, other, out=spare[: one.size].reshape(one.shape))
        # Rows are added up in float32: with conversions all of this took ten times as long.
        some = float(np.einsum("ij,ij->i", steps, steps).sum(dtype=np.float64))
        if not math.isfinite(some):
            steps = steps[np.isfinite(np.multiply(steps, steps, out=steps))]
            some = float(steps.sum(dtype=np.float64))
        count += steps.size
        total += some
    return (total / count if count > 1 else math.nan), count
