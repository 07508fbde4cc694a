"""Image sets with published results, how each is scored, and images of nothing but noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import ndimage

from napari_gpu_denoise.errors import FileError, ImageError
from napari_gpu_denoise.filters import filters_for
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.run.denoise import denoise

SEED = 0
SIGMAS = (15.0, 25.0, 50.0)
_PEAK = 255.0
_IMAGES = (".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff")
_PHOTONS, _BRIGHT = 20.0, 4.0  # a pixel, on average; sigmas above the mean


class Case(NamedTuple):
    """A noisy image or video, its truth, and the sigma of synthetic noise (None of real noise)."""

    name: str
    noisy: np.ndarray
    clean: np.ndarray
    sigma: float | None


@dataclass(frozen=True)
class PublishedSet:
    """A set: its files, its size, and means that others have published, in dB.

    `shapes` are those of the images, or frames, of the complete set with the number of images, or
    videos, of each. Of sets with real noise, `pairs` has patterns of the names of noisy and of
    clean images, in which ``*`` stands for the same text and ``{}`` for a folder of `levels`;
    otherwise `levels` are the sigmas of noise that is added. A video is a folder of frames, of
    which the first `frames` count. With `fit`, an affine map of grey levels precedes each
    comparison. `rows` are by method, a mean for each level; `noisy` is the mean before any filter.
    """

    title: str
    source: str
    shapes: Mapping[tuple[int, ...], int]
    pairs: tuple[str, str] | None = None
    levels: tuple[float | str, ...] = SIGMAS
    frames: int = 0
    fit: bool = False
    rows: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    noisy: tuple[float, ...] = ()
    tolerance: float = 0.02

    @property
    def filter(self) -> str:
        """The filter that is tried by default."""
        return "vbm3d" if self.frames else "bm3d"

    def is_complete(self, shapes: Iterable[tuple[int, ...]]) -> bool:
        """Whether images of these shapes are as many as the published results are of."""
        return Counter(shape[bool(self.frames) :] for shape in shapes) == dict(self.shapes)

    def files(self, folder: Path) -> set[Path]:
        """Return the files that are read; FileError if those of any level of noise are missing."""
        pairs = (pair for level in self.levels for pair in self._files(folder, level))
        found = {path for pair in pairs for path in pair}
        return {file for path in found for file in (_images(path) if self.frames else [path])}

    def read(self, folder: Path, level: float | str) -> Iterator[Case]:
        """Read the images of a folder one by one; noise that is added is the same in every run.

        Raises
        ------
        FileError
            If files of the set are missing or cannot be read, or those of a pair differ in size.
        """
        sigma = level if isinstance(level, float) else None
        for path, truth in self._files(folder, level):
            clean = _read_frames(path, self.frames) if self.frames else _read(truth)
            if truth != path:
                noisy = _read(path)
            else:
                noise = np.random.default_rng(SEED).normal(0, sigma or 0.0, clean.shape)
                noisy = (clean + noise).astype(np.float32)
            if noisy.shape != clean.shape:
                raise FileError(f"{path.name} and its truth differ in size: copy the set again.")
            yield Case(path.name, noisy, clean, sigma)

    def _files(self, folder: Path, level: float | str) -> list[tuple[Path, Path]]:
        """Return each image or folder of frames with its truth, itself where noise is added."""
        if not folder.is_dir():
            raise FileError(f"{folder} is not a folder: give the one of {self.title}.")
        if self.pairs:
            found = self._pairs(folder, level, *self.pairs)
        else:
            videos = sorted(path for path in folder.iterdir() if path.is_dir())
            found = [(path, path) for path in (videos if self.frames else _images(folder))]
        if not found:
            what = "folders of frames" if self.frames else "images"
            where = f" named {self.pairs[0].format(level)}" if self.pairs else ""
            raise FileError(f"{folder} has no files of {self.title}: it needs {what}{where}.")
        return found

    @staticmethod
    def _pairs(folder: Path, level: float | str, *names: str) -> list[tuple[Path, Path]]:
        noisy, clean = (folder / name.format(level) for name in names)
        begin, end = noisy.name.split("*")
        found = []
        for path in _images(noisy.parent):
            if path.match(f"{noisy.name}.*"):
                name = clean.name.replace("*", path.stem[len(begin) : len(path.stem) - len(end)])
                truth = clean.with_name(name + path.suffix)
                if not truth.exists():
                    raise FileError(f"{truth} is missing, the truth of {path.name}: add it.")
                found.append((path, truth))
        return found


def _of_white_noise(sigmas: Iterable[float]) -> tuple[float, ...]:
    """Return the PSNR of images with white noise, in dB."""
    return tuple(round(float(20 * np.log10(_PEAK / sigma)), 2) for sigma in sigmas)


# Videos: README of the authors of DVDnet, github.com/m-tassano/dvdnet; 85 frames at most.
_VIDEO_SIGMAS = (10.0, 20.0, 30.0, 40.0, 50.0)
_DVDNET = "Tassano et al. 2019, arxiv.org/abs/1906.11890; every method knows sigma"
_FMD = ("raw", "avg2", "avg4", "avg8", "avg16")  # one frame, and means of 2 to 16
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
        noisy=_of_white_noise(SIGMAS),
    ),
    "set12": PublishedSet(
        "Set12",
        "Zhang et al. 2017, doi.org/10.1109/TIP.2017.2662206; BM3D knows sigma",
        {(256, 256): 7, (512, 512): 5},
        rows={"BM3D": (32.37, 29.97, 26.72)},
        noisy=_of_white_noise(SIGMAS),
    ),
    "fmd": PublishedSet(
        "FMD, mixed test set",
        "images: Zhang et al. 2019, arxiv.org/abs/1812.10366; means: see docs/quality.md",
        {(512, 512): 48},
        pairs=("test_mix/{}/*", "test_mix/gt/*"),
        levels=_FMD,
        rows={
            "VST+NL-means": (31.25, 32.85, 34.92, 37.09, 40.04),
            "PURE-LET": (31.95, 33.49, 35.29, 37.25, 39.59),
            "VST+BM3D": (32.71, 34.09, 36.05, 38.01, 40.60),
            "Noise2Noise (network)": (34.70, 35.54, 37.06, 38.60, 40.35),
        },
        noisy=(27.21685, 30.07771, 32.86057, 36.02677, 39.70265),
        tolerance=5e-4,
    ),
    "fmd-field": PublishedSet(
        "FMD, field 19 of one category",
        "images: Zhang et al. 2019, arxiv.org/abs/1812.10366",
        {(512, 512): 50},
        pairs=("{}/19/*", "gt/19/avg50"),
        levels=_FMD,
    ),
    "w2s": PublishedSet(
        "W2S, one wide-field frame against the mean of 400",
        "images: Zhou et al. 2020, arxiv.org/abs/2003.05961; networks: see docs/quality.md",
        {(512, 512): 10},
        pairs=("input_avg1_*", "target_avg400_*"),
        levels=("",),
        fit=True,
        rows={"Noise2Void": (29.22,), "Noise2Void, fast": (30.71,), "Noise2Noise": (30.49,)},
    ),
    "kodak24": PublishedSet(
        "Kodak24, RGB",
        "tables of MMagic, github.com/open-mmlab/mmagic; networks know sigma",
        {(512, 768, 3): 18, (768, 512, 3): 6},
        rows={
            "SwinIR (network)": (35.36, 32.90, 29.81),
            "Restormer (network)": (35.49, 33.05, 30.01),
        },
        noisy=_of_white_noise(SIGMAS),
    ),
    "davis": PublishedSet(
        "DAVIS 2017 test-dev, 480p",
        _DVDNET,
        {(480, 854, 3): 30},
        levels=_VIDEO_SIGMAS,
        frames=85,
        rows={
            "V-BM4D": (37.58, 33.88, 31.65, 30.05, 28.80),
            "VNLB": (38.85, 35.68, 33.73, 32.32, 31.13),
            "DVDnet (network)": (38.13, 35.70, 34.08, 32.86, 31.85),
        },
        noisy=_of_white_noise(_VIDEO_SIGMAS),
    ),
    "set8": PublishedSet(
        "Set8, 960 x 540",
        _DVDNET,
        {(540, 960, 3): 8},
        levels=_VIDEO_SIGMAS,
        frames=85,
        rows={
            "V-BM4D": (36.05, 32.19, 30.00, 28.48, 27.33),
            "VNLB": (37.26, 33.72, 31.74, 30.39, 29.24),
            "DVDnet (network)": (36.08, 33.49, 31.79, 30.55, 29.56),
        },
        noisy=_of_white_noise(_VIDEO_SIGMAS),
    ),
    "vid4": PublishedSet(
        "Vid4",
        "videos: Liu and Sun 2011, doi.org/10.1109/CVPR.2011.5995614",
        {(576, 720, 3): 1, (576, 704, 3): 1, (480, 720, 3): 2},
        levels=_VIDEO_SIGMAS,
        frames=85,
        noisy=_of_white_noise(_VIDEO_SIGMAS),
    ),
    "cc15": PublishedSet(
        "CC15",
        "images: Nam et al. 2016, doi.org/10.1109/CVPR.2016.186",
        {(512, 512, 3): 15},
        pairs=("*_real", "*_mean"),
        levels=("",),
    ),
    "polyu": PublishedSet(
        "PolyU, crops of 512 x 512",
        "images: Xu et al. 2018, arxiv.org/abs/1804.02603",
        {(512, 512, 3): 100},
        pairs=("*_real", "*_mean"),
        levels=("",),
    ),
}


def psnr(image: np.ndarray, clean: np.ndarray, frames: bool = False, fit: bool = False) -> float:
    """Return the PSNR in dB of peak 255, of a video the mean over its `frames`.

    Nothing is rounded or clipped. With `fit`, the affine map of the image that is nearest to the
    clean one takes its place.
    """
    if frames:
        return float(np.mean([psnr(*pair, fit=fit) for pair in zip(image, clean, strict=True)]))
    levels, truth = (np.asarray(each, np.float64) for each in (image, clean))
    if fit:
        slope, offset = np.polyfit(levels.ravel(), truth.ravel(), 1)
        levels = slope * levels + offset
    return float(10 * np.log10(_PEAK**2 / np.mean(np.square(levels - truth))))


def filtered(
    case: Case, settings: Filter, told: bool, device: str | None, frames: bool = False
) -> np.ndarray:
    """Filter a case, a video if it has `frames`; sigma is measured unless the filter is `told`."""
    axes = "T" * frames + "YX" + "S" * (case.noisy.ndim - frames - 2)
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
        reason = str(error).partition("\n")[0]
        raise FileError(f"{path} cannot be read as an image ({reason}): copy it again.") from error


def _read_frames(folder: Path, count: int) -> np.ndarray:
    frames = [_read(path) for path in _images(folder)[:count]]
    if len({frame.shape for frame in frames}) != 1:
        raise FileError(f"{folder} needs frames, all of one size: copy the set again.")
    return np.stack(frames)


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
    for scene, (image, axes, names) in (images or pure_noise()).items():
        for name in names:
            settings = filters_for(name)[0]()
            given = {"axes": axes, "dtype": "float32", "device": device}
            result = denoise(image, settings, None, **given).image
            yield noise_score(scene, settings.title, image, result)


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
