"""Image sets with published results, how each is scored, and images of nothing but noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import ndimage

from napari_gpu_denoise.errors import FileError, ImageError
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.run.denoise import denoise

SEED = 0
SIGMAS = (15.0, 25.0, 50.0)
_PEAK = 255.0
_IMAGES = (".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff")
_PHOTONS, _BRIGHT = 20.0, 4.0  # a pixel, on average; sigmas above the mean


class Case(NamedTuple):
    """A noisy image, its truth, and the sigma of synthetic noise (None of real noise)."""

    name: str
    noisy: np.ndarray
    clean: np.ndarray
    sigma: float | None


@dataclass(frozen=True)
class PublishedSet:
    """A set: its files, its size, and means that others have published, in dB.

    `shapes` are those of the complete set with the number of images of each. Of sets with real
    noise, `pairs` has the folder of noisy and of clean images, and the endings of their names.
    `rows` are by method, a mean for each sigma; `noisy` is the mean before any filter.
    """

    title: str
    source: str
    shapes: Mapping[tuple[int, ...], int]
    pairs: tuple[tuple[str, str], tuple[str, str]] | None = None
    rows: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    noisy: tuple[float, ...] = ()
    tolerance: float = 0.02

    @property
    def sigmas(self) -> tuple[float | None, ...]:
        """Standard deviations of the noise that is added; of real noise, None."""
        return (None,) if self.pairs else SIGMAS

    def is_complete(self, cases: list[Case]) -> bool:
        """Whether the images are as many, of the shapes, as the published results are of."""
        return Counter(case.clean.shape for case in cases) == dict(self.shapes)

    def read(self, folder: Path, sigma: float | None) -> list[Case]:
        """Read the images of a folder; noise of `sigma` is added, the same in every run.

        Raises
        ------
        FileError
            If files of the set are missing or cannot be read, or those of a pair differ in size.
        """
        if not folder.is_dir():
            raise FileError(f"{folder} is not a folder: give the one of {self.title}.")
        found = list(self._paired(folder) if self.pairs else self._noised(folder, sigma))
        if not found:
            where = f" in {self.pairs[0][0]}/" if self.pairs and self.pairs[0][0] else ""
            what = f"names that end in {self.pairs[0][1]}" if self.pairs else "names of images"
            raise FileError(f"{folder} has no files of {self.title}: it needs{where} {what}.")
        for case in found:
            if case.noisy.shape != case.clean.shape:
                raise FileError(f"{case.name} and its truth differ in size: copy the set again.")
        return found

    def _noised(self, folder: Path, sigma: float | None) -> Iterator[Case]:
        for path in _images(folder):
            clean = _read(path)
            noise = np.random.default_rng(SEED).normal(0, sigma or 0.0, clean.shape)
            yield Case(path.name, (clean + noise).astype(np.float32), clean, sigma)

    def _paired(self, folder: Path) -> Iterator[Case]:
        assert self.pairs
        (noisy, end), (clean, mean) = self.pairs
        for path in _images(folder / noisy):
            if not path.stem.endswith(end):
                continue
            truth = folder / clean / f"{path.stem.removesuffix(end)}{mean}{path.suffix}"
            if not truth.exists():
                raise FileError(f"{truth} is missing, the truth of {path.name}: add it.")
            yield Case(path.name, _read(path), _read(truth), None)


# Means of BSD68: README of the authors of DnCNN, github.com/cszn/DnCNN.
SETS: dict[str, PublishedSet] = {
    "bsd68": PublishedSet(
        "BSD68",
        "Zhang et al. 2017, doi.org/10.1109/TIP.2017.2662206; every method knows sigma",
        {(321, 481): 53, (481, 321): 15},
        rows={
            "BM3D": (31.07, 28.57, 25.62),
            "EPLL": (31.21, 28.68, 25.67),
            "WNNM": (31.37, 28.83, 25.87),
            "TNRD (trained)": (31.42, 28.92, 25.97),
            "DnCNN (network)": (31.73, 29.23, 26.23),
        },
        noisy=(24.61, 20.17, 14.15),
    ),
    "set12": PublishedSet(
        "Set12",
        "Zhang et al. 2017, doi.org/10.1109/TIP.2017.2662206; BM3D knows sigma",
        {(256, 256): 7, (512, 512): 5},
        rows={"BM3D": (32.37, 29.97, 26.72)},
        noisy=(24.61, 20.17, 14.15),
    ),
    "fmd": PublishedSet(
        "FMD, mixed test set, one raw frame",
        "Zhang et al. 2019, arxiv.org/abs/1812.10366",
        {(256, 256): 48},
        pairs=(("test_mix/raw", ""), ("test_mix/gt", "")),
        rows={"VST+NL-means": (31.25,), "VST+BM3D": (32.71,)},
        noisy=(27.21685,),
        tolerance=5e-4,
    ),
    "cc15": PublishedSet(
        "CC15",
        "images: Nam et al. 2016, doi.org/10.1109/CVPR.2016.186",
        {(512, 512, 3): 15},
        pairs=(("", "_real"), ("", "_mean")),
    ),
    "polyu": PublishedSet(
        "PolyU, crops of 512 x 512",
        "images: Xu et al. 2018, arxiv.org/abs/1804.02603",
        {(512, 512, 3): 100},
        pairs=(("", "_real"), ("", "_mean")),
    ),
}


def psnr(image: np.ndarray, clean: np.ndarray) -> float:
    """Return the PSNR in dB of peak 255; nothing is rounded, clipped or fitted."""
    error = np.subtract(image, clean, dtype=np.float64)
    return float(10 * np.log10(_PEAK**2 / np.mean(np.square(error))))


def filtered(case: Case, settings: Filter, told: bool, device: str | None) -> np.ndarray:
    """Filter a case; sigma is measured unless the filter is `told` it."""
    axes = "YXS" if case.noisy.ndim == 3 else "YX"
    sigma = case.sigma if told else None
    return denoise(case.noisy, settings, sigma, axes=axes, dtype="float32", device=device).image


def _images(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise FileError(f"{folder} is missing: give the folder that has it.")
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in _IMAGES)


def _read(path: Path) -> np.ndarray:
    import imagecodecs

    try:
        return np.asarray(imagecodecs.imread(str(path)))
    except Exception as error:
        raise FileError(f"{path} cannot be read as an image ({error}): copy it again.") from error


class NoiseScore(NamedTuple):
    """What a filter leaves of noise without objects.

    `kept` is the variance after the filter in units of that before. `before` and `after` are the
    numbers of pixels that are no darker than their neighbours and lie more than 4 standard
    deviations of the noise (of the input) above the mean: spots that a viewer would take for
    objects. `highest` is the largest deviation that is left, above or below, in the same units.
    """

    scene: str
    filter: str
    kept: float
    before: int
    after: int
    highest: float


def pure_noise() -> dict[str, tuple[np.ndarray, str, tuple[str, ...]]]:
    """Return images of noise without objects, their axes, and the filters to be tried on them."""
    rng = np.random.default_rng(SEED)
    gaussian = rng.normal(100, 10, (512, 512)).astype(np.float32)
    movie = rng.poisson(_PHOTONS, (16, 128, 128)).astype(np.uint16)
    volume = rng.poisson(_PHOTONS, (64, 64, 64)).astype(np.uint16)
    return {
        "Gaussian image": (gaussian, "YX", ("bm3d", "nl_means")),
        "photon movie": (movie, "TYX", ("bm3d", "nl_means", "vbm3d")),
        "photon volume": (volume, "ZYX", ("bm3d", "nl_means", "bm4d")),
    }


def noise_scores(
    device: str | None, images: Mapping[str, tuple[np.ndarray, str, tuple[str, ...]]] | None = None
) -> Iterator[NoiseScore]:
    """Filter images of pure noise, with nothing said; yield a score for each filter."""
    kinds: dict[str, Callable[[], Filter]] = {kind.name: kind for kind in FILTERS}
    for scene, (image, axes, names) in (images or pure_noise()).items():
        for name in names:
            given = {"axes": axes, "dtype": "float32", "device": device}
            result = denoise(image, kinds[name](), None, **given).image
            yield noise_score(scene, kinds[name]().title, image, result)


def noise_score(scene: str, title: str, image: np.ndarray, result: np.ndarray) -> NoiseScore:
    """Return what a result keeps of an image of pure noise.

    Raises
    ------
    ImageError
        If the image is constant.
    """
    mean, sigma = float(np.mean(image)), float(np.std(image))
    if not sigma:
        raise ImageError("The image is constant: give one with noise.")
    before, after = (_bright_maxima(each, mean + _BRIGHT * sigma) for each in (image, result))
    deviation = float(np.max(np.abs(result - mean))) / sigma
    return NoiseScore(scene, title, float(np.var(result)) / sigma**2, before, after, deviation)


def _bright_maxima(image: np.ndarray, level: float) -> int:
    return int(np.sum((image > level) & (image == ndimage.maximum_filter(image, size=3))))
