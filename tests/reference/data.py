"""Pictures for tests and benchmarks that are too large, or not free, to be in the project."""

from __future__ import annotations

import os
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
import tifffile

VARIABLE = "GPU_DENOISE_DATA"
REASON = f"the data folder is not there: set {VARIABLE} to it"


def data_folder() -> Path | None:
    """Return the folder of shared data, or None where there is none.

    It is the one named by the environment variable ``GPU_DENOISE_DATA``, else ``shared/data``
    beside the checkout.

    Raises
    ------
    FileNotFoundError
        If the variable is set, but names no folder.
    """
    named = os.environ.get(VARIABLE)
    if named:
        if not Path(named).is_dir():
            raise FileNotFoundError(f"{VARIABLE} names {named}, which is not a folder.")
        return Path(named)
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    return beside if beside.is_dir() else None


def head() -> np.ndarray:
    """Read a volume of a head, float32 of shape (z, y, x), 0 to 255; see `pictures`."""
    import nibabel

    volume = np.asarray(nibabel.load(existing("mri/colin27.nii.gz")).dataobj, np.float32)
    volume *= 255 / volume.max()
    return np.ascontiguousarray(volume.T)


def pictures(name: str) -> dict[str, np.ndarray]:
    """Read a set of pictures.

    Parameters
    ----------
    name : str
        ``"bsd68"``, ``"set12"`` or ``"denoiselab13"``: photographs; ``"tractor"``: the luminance of
        ten video frames, ``"traffic"`` of ten more, ``"foliage"`` of 16; ``"colin27"``: slices of a
        head, 0 to 255; ``"colour"``: photographs; ``"trust"``: photographs full of texture.

    Returns
    -------
    dict of ndarray, (ny, nx) or in colour (ny, nx, 3), uint8 or float32
        By file or slice, in order.

    Raises
    ------
    FileNotFoundError
        If the data folder, or that set, is not there.
    """
    if name == "colin27":
        slices = head()
        return {f"slice {z}": slices[z] for z in range(30, 131, 10)}
    if name in ("tractor", "traffic"):
        luminance = np.array([0.299, 0.587, 0.114], np.float32)
        return {k: frame @ luminance for k, frame in _pngs(f"video/{name}_clean").items()}
    if name == "foliage":
        frames = tifffile.imread(existing("video/foliage_clean") / "foliage_luma.tif")
        return {f"frame {t:02}": frame for t, frame in enumerate(frames)}
    if name == "trust":
        files = [
            p for p in sorted(existing("trust").glob("*.webp")) if p.stem[-2:] not in ("_g", "_x")
        ]
        found = {p.stem: imageio.imread(p) for p in files}
        grey = np.array([0.299, 0.587, 0.114], np.float32)
        return {k: np.rint(i[..., :3] @ grey) if i.ndim == 3 else i for k, i in found.items()}
    return _pngs(f"images/{name}")


def photograph(ny: int, nx: int) -> np.ndarray:
    """Return photographs of BSD68 side by side, (ny, nx), float32, again and again if it is large.

    Raises
    ------
    FileNotFoundError
        If the data folder, or that set, is not there.
    """
    parts = [one if one.shape[0] < one.shape[1] else one.T for one in pictures("bsd68").values()]
    mosaic = np.block([parts[k : k + 4] for k in range(0, len(parts) // 4 * 4, 4)])
    more = [(0, max(n - m, 0)) for n, m in zip((ny, nx), mosaic.shape, strict=True)]
    return np.pad(mosaic, more, mode="wrap")[:ny, :nx].astype(np.float32)


def microscopy_pairs() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Read fluorescence images with their own noise, each with the mean of 400 such images.

    Each file is scaled and clipped to 8 bits on its own, so the two agree up to an affine map.

    Returns
    -------
    dict of (noisy, mean), both (ny, nx), uint8

    Raises
    ------
    FileNotFoundError
        If the data folder, or that set, is not there.
    """
    files = sorted(existing("microscopy/w2s").glob("input_avg1_*.tif"))
    means = [file.with_name(file.name.replace("input_avg1", "target_avg400")) for file in files]
    return {
        file.stem: (tifffile.imread(file), tifffile.imread(mean))
        for file, mean in zip(files, means, strict=True)
    }


def _pngs(folder: str) -> dict[str, np.ndarray]:
    return {file.stem: imageio.imread(file) for file in sorted(existing(folder).glob("*.png"))}


def existing(place: str) -> Path:
    folder = data_folder()
    if folder is None:
        raise FileNotFoundError(f"No pictures: {REASON}.")
    if not (folder / place).exists():
        raise FileNotFoundError(f"{folder / place} is not there.")
    return folder / place
