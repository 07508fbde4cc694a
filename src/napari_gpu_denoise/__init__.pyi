# By scripts/write_stub.py; do not edit.
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Protocol

import numpy as np
from dask.array import Array
from numpy.typing import ArrayLike, DTypeLike

from napari_gpu_denoise import errors as errors
from napari_gpu_denoise.assessment.recommend import Advice as Advice
from napari_gpu_denoise.assessment.record import Assessment as Assessment
from napari_gpu_denoise.files import samples as samples
from napari_gpu_denoise.files.batch import BatchProgress, BatchReport
from napari_gpu_denoise.files.image_file import Blocks, ImageFile
from napari_gpu_denoise.files.recommended import Recommended as Recommended
from napari_gpu_denoise.filters.bm3d.filter import BM3D as BM3D
from napari_gpu_denoise.filters.bm4d.filter import BM4D as BM4D
from napari_gpu_denoise.filters.isoline import Isoline as Isoline
from napari_gpu_denoise.filters.isoline import IsolineMaps as IsolineMaps
from napari_gpu_denoise.filters.nl_means import NLMeans as NLMeans
from napari_gpu_denoise.filters.pixelwise import NLMeansPixelwise as NLMeansPixelwise
from napari_gpu_denoise.filters.swnlm import SWNLM as SWNLM
from napari_gpu_denoise.filters.vbm3d import VBM3D as VBM3D
from napari_gpu_denoise.measurements.subspace import Subspace as Subspace
from napari_gpu_denoise.noise.models.base import NoiseModel as NoiseModel
from napari_gpu_denoise.noise.models.gaussian import Correlated as Correlated
from napari_gpu_denoise.noise.models.gaussian import Gaussian as Gaussian
from napari_gpu_denoise.noise.models.poisson_gaussian import CorrelatedPhotons as CorrelatedPhotons
from napari_gpu_denoise.noise.models.poisson_gaussian import PoissonGaussian as PoissonGaussian
from napari_gpu_denoise.noise.models.rician import Rician as Rician
from napari_gpu_denoise.noise.models.signal_dependent import SignalDependent as SignalDependent
from napari_gpu_denoise.noise.models.speckle import Speckle as Speckle
from napari_gpu_denoise.noise.record import NoiseEstimate as NoiseEstimate
from napari_gpu_denoise.noise.structure.record import CorrectionRequest
from napari_gpu_denoise.noise.structure.record import Finding as Finding
from napari_gpu_denoise.noise.structure.record import StructuredNoise as StructuredNoise
from napari_gpu_denoise.opencl.device import Device as Device
from napari_gpu_denoise.opencl.device import DeviceChoice
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.run.record import Record as Record
from napari_gpu_denoise.run.record import Result as Result
from napari_gpu_denoise.run.request import Run as Run

__all__: list[str]
__version__: str
FILTERS: tuple[type[Filter], ...]

class Stops(Protocol):
    """An event that stops a run, such as ``threading.Event()``."""

    def is_set(self) -> bool: ...

def assess(
    image: ArrayLike,
    filter: Filter,
    sigma: ArrayLike | None = None,
    *,
    noise: NoiseModel | Sequence[NoiseModel] | NoiseEstimate | str | float | None = None,
    axes: str | None = None,
    nonfinite: str = "raise",
    device: DeviceChoice = None,
    memory_limit: int | str | None = None,
    correct: CorrectionRequest | str | Sequence[str] | None = None,
    sigma_factor: float = 1.0,
    region: Sequence[int | slice] | None = None,
    spacing: float | tuple[float, float] | None = None,
    unit: str = "",
    progress: Callable[[int, int], None] | None = None,
    cancel: Stops | None = None,
) -> Assessment:
    """Estimate the quality of a filter's result from the noisy image alone."""

def bm3d(
    image: ArrayLike,
    sigma: ArrayLike | None = None,
    *,
    noise: NoiseModel | Sequence[NoiseModel] | NoiseEstimate | str | float | None = None,
    axes: str | None = None,
    dtype: DTypeLike | None = None,
    nonfinite: str = "raise",
    device: DeviceChoice = None,
    memory_limit: int | str | None = None,
    correct: CorrectionRequest | str | Sequence[str] | None = None,
    sigma_factor: float = 1.0,
    progress: Callable[[int, int], None] | None = None,
    cancel: Stops | None = None,
    profile: str | None = None,
    settings: BM3D | None = None,
    threshold: float = 2.75,
    wiener_sigma: float = 0.8,
    channels: str = "auto",
    refine: str = "off",
    step_basic: int = 3,
    step_final: int = 3,
    window_basic: int = 39,
    window_final: int = 39,
    neighbours_basic: int = 16,
    neighbours_final: int = 32,
    transform_basic: str = "bior1.5",
    transform_final: str = "dct",
    stack_basic: str = "haar",
    stack_final: str = "haar",
) -> np.ndarray:
    """Denoise by BM3D, block matching and 3D filtering."""

def bm4d(
    image: ArrayLike,
    sigma: ArrayLike | None = None,
    *,
    noise: NoiseModel | Sequence[NoiseModel] | NoiseEstimate | str | float | None = None,
    axes: str | None = None,
    dtype: DTypeLike | None = None,
    nonfinite: str = "raise",
    device: DeviceChoice = None,
    memory_limit: int | str | None = None,
    correct: CorrectionRequest | str | Sequence[str] | None = None,
    sigma_factor: float = 1.0,
    progress: Callable[[int, int], None] | None = None,
    cancel: Stops | None = None,
    profile: str | None = None,
    settings: BM4D | None = None,
    cube: str = "auto",
    voxel: str = "",
    frames_before: int = 0,
    frames_after: int = 0,
    refine: str = "off",
    threshold: float = 2.9,
    wiener_sigma: float = 0.9,
    step_basic: int = 3,
    step_final: int = 3,
    window_basic: int = 13,
    window_final: int = 11,
    neighbours_basic: int = 32,
    neighbours_final: int = 32,
) -> np.ndarray:
    """Denoise volumes by BM4D, block matching and 4D filtering."""

def choose(device: Device | int | str | None = None) -> Device:
    """Choose the device to run on."""

def denoise(
    image: ArrayLike,
    filter: Filter,
    sigma: ArrayLike | None = None,
    *,
    noise: NoiseModel | Sequence[NoiseModel] | NoiseEstimate | str | float | None = None,
    axes: str | None = None,
    dtype: DTypeLike | None = None,
    nonfinite: str = "raise",
    device: DeviceChoice = None,
    memory_limit: int | str | None = None,
    correct: CorrectionRequest | str | Sequence[str] | None = None,
    sigma_factor: float = 1.0,
    frames: int | slice | None = None,
    slices: int | slice | None = None,
    rows: slice | None = None,
    columns: slice | None = None,
    out: object = None,
    progress: Callable[[int, int], None] | None = None,
    cancel: Stops | None = None,
) -> Result:
    """Denoise an array."""

def denoise_lazy(
    array: Array,
    filter: Filter,
    sigma: ArrayLike | None = None,
    *,
    noise: NoiseModel | Sequence[NoiseModel] | NoiseEstimate | str | float | None = None,
    axes: str | None = None,
    dtype: DTypeLike | None = None,
    nonfinite: str = "raise",
    device: DeviceChoice = None,
    memory_limit: int | str | None = None,
    correct: CorrectionRequest | str | Sequence[str] | None = None,
    sigma_factor: float = 1.0,
) -> Array:
    """Denoise a dask array, chunk by chunk, when the result is computed."""

def devices() -> tuple[Device, ...]:
    """List every OpenCL device of this machine, in the order reported by the drivers."""

def estimate_noise(
    image: ArrayLike, axes: str | None = None, model: str = "auto", *, device: DeviceChoice = None
) -> NoiseEstimate:
    """Choose a noise model for an image, and measure its parameters."""

def find_structure(image: ArrayLike, axes: str | None = None) -> StructuredNoise:
    """Find offsets of rows or columns, periodic hum, and hot and dead pixels."""

def isoline(
    image: ArrayLike,
    sigma: ArrayLike | None = None,
    *,
    noise: NoiseModel | Sequence[NoiseModel] | NoiseEstimate | str | float | None = None,
    axes: str | None = None,
    dtype: DTypeLike | None = None,
    nonfinite: str = "raise",
    device: DeviceChoice = None,
    memory_limit: int | str | None = None,
    correct: CorrectionRequest | str | Sequence[str] | None = None,
    sigma_factor: float = 1.0,
    progress: Callable[[int, int], None] | None = None,
    cancel: Stops | None = None,
    profile: str | None = None,
    settings: Isoline | None = None,
    method: str = "hybrid",
    choice: str = "soft",
    segment_length: int = 5,
    max_length: int = 25,
    thickness: int = 2,
    staircase: int = 11,
    channels: str = "auto",
    criterion: str = "additive",
    looks: float = 4.0,
    show: str = "image",
) -> np.ndarray:
    """Denoise by averaging along lines of equal grey level."""

def isoline_maps(
    image: ArrayLike,
    sigma: ArrayLike | None = None,
    *,
    noise: NoiseModel | Sequence[NoiseModel] | NoiseEstimate | str | float | None = None,
    axes: str | None = None,
    nonfinite: str = "raise",
    device: DeviceChoice = None,
    memory_limit: int | str | None = None,
    correct: CorrectionRequest | str | Sequence[str] | None = None,
    sigma_factor: float = 1.0,
    frames: int | slice | None = None,
    slices: int | slice | None = None,
    rows: slice | None = None,
    columns: slice | None = None,
    progress: Callable[[int, int], None] | None = None,
    cancel: Stops | None = None,
    profile: str | None = None,
    settings: Isoline | None = None,
    method: str = "hybrid",
    choice: str = "soft",
    segment_length: int = 5,
    max_length: int = 25,
    thickness: int = 2,
    staircase: int = 11,
    channels: str = "auto",
    criterion: str = "additive",
    looks: float = 4.0,
    show: str = "image",
) -> IsolineMaps:
    """Return maps of edges, flat regions and isoline directions, as found by the isoline filter."""

def nl_means(
    image: ArrayLike,
    sigma: ArrayLike | None = None,
    *,
    noise: NoiseModel | Sequence[NoiseModel] | NoiseEstimate | str | float | None = None,
    axes: str | None = None,
    dtype: DTypeLike | None = None,
    nonfinite: str = "raise",
    device: DeviceChoice = None,
    memory_limit: int | str | None = None,
    correct: CorrectionRequest | str | Sequence[str] | None = None,
    sigma_factor: float = 1.0,
    progress: Callable[[int, int], None] | None = None,
    cancel: Stops | None = None,
    profile: str | None = None,
    settings: NLMeans | None = None,
    patch: int = 8,
    step: int = 4,
    window: int = 21,
    neighbours: int = 16,
    strength: float = 1.0,
    flat: float = 1.05,
    frames_before: int = 0,
    frames_after: int = 0,
    slices: int = 0,
    rician: bool = False,
) -> np.ndarray:
    """Denoise by patchwise NL-means."""

def nl_means_pixelwise(
    image: ArrayLike,
    sigma: ArrayLike | None = None,
    *,
    noise: NoiseModel | Sequence[NoiseModel] | NoiseEstimate | str | float | None = None,
    axes: str | None = None,
    dtype: DTypeLike | None = None,
    nonfinite: str = "raise",
    device: DeviceChoice = None,
    memory_limit: int | str | None = None,
    correct: CorrectionRequest | str | Sequence[str] | None = None,
    sigma_factor: float = 1.0,
    progress: Callable[[int, int], None] | None = None,
    cancel: Stops | None = None,
    profile: str | None = None,
    settings: NLMeansPixelwise | None = None,
    patch: int = 5,
    window: int = 13,
    strength: float = 0.75,
    weights: str = "exp",
    patch_shape: str = "box",
    frames_before: int = 0,
    frames_after: int = 0,
    slices: int = 0,
    patch_slices: int = 0,
    spacing: str = "off",
    voxel: str = "",
    channels: str = "auto",
    show: str = "image",
) -> np.ndarray:
    """Denoise by exact pixelwise NL-means."""

def read(path: str | os.PathLike[str], *, companions_anywhere: bool = False) -> ImageFile:
    """Read a NIfTI or DICOM file, a video, an OME-Zarr folder, or the first image of a TIFF file."""

def recommend(
    image: ArrayLike,
    axes: str | None = None,
    *,
    noise: NoiseEstimate | None = None,
    effort: str | None = None,
    device: Device | int | str | Sequence[Device | int | str] | None = None,
) -> Advice:
    """Recommend a filter, its profile and settings for an image."""

def release_memory() -> None:
    """Release the device memory and pinned memory kept between runs."""

def remove_outliers(
    image: ArrayLike,
    axes: str | None = None,
    *,
    threshold: float | None = None,
    dtype: DTypeLike | None = None,
    nonfinite: str = "raise",
) -> np.ndarray:
    """Replace hot and dead pixels by the median of their neighbours."""

def remove_stripes(
    image: ArrayLike,
    axes: str | None = None,
    *,
    kind: str = "found",
    fixed: bool | None = None,
    dtype: DTypeLike | None = None,
    nonfinite: str = "raise",
) -> np.ndarray:
    """Remove offsets of rows or columns, and periodic hum."""

def run_batch(
    inputs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    filter: Filter,
    sigma: ArrayLike | None = None,
    *,
    noise: NoiseModel | Sequence[NoiseModel] | NoiseEstimate | str | float | None = None,
    axes: str | None = None,
    dtype: DTypeLike | None = None,
    nonfinite: str = "raise",
    device: DeviceChoice = None,
    memory_limit: int | str | None = None,
    correct: CorrectionRequest | str | Sequence[str] | None = None,
    sigma_factor: float = 1.0,
    output: str | os.PathLike[str],
    memory_limit_host: int | str | None = None,
    overwrite: bool = False,
    resume: bool = False,
    companions_anywhere: bool = False,
    stop_on_error: bool = False,
    client: object = None,
    progress: Callable[[BatchProgress], None] | None = None,
    cancel: Stops | None = None,
) -> BatchReport:
    """Denoise TIFF, NIfTI, OME-Zarr and DICOM files with the same settings."""

def stream(
    filter: Filter,
    frames: Iterable[np.ndarray],
    sigma: ArrayLike | Callable[[int], ArrayLike] | None = None,
    *,
    noise: NoiseModel | Sequence[NoiseModel] | NoiseEstimate | str | float | None = None,
    axes: str | None = None,
    dtype: DTypeLike | None = None,
    nonfinite: str = "raise",
    device: DeviceChoice = None,
    memory_limit: int | str | None = None,
    correct: CorrectionRequest | str | Sequence[str] | None = None,
    sigma_factor: float = 1.0,
    live: bool = False,
) -> Generator[np.ndarray]:
    """Denoise frames one after another, with memory use that does not depend on their number."""

def subspace(
    image: ArrayLike,
    sigma: ArrayLike | None = None,
    *,
    noise: NoiseModel | Sequence[NoiseModel] | NoiseEstimate | str | float | None = None,
    axes: str | None = None,
    dtype: DTypeLike | None = None,
    nonfinite: str = "raise",
    device: DeviceChoice = None,
    memory_limit: int | str | None = None,
    correct: CorrectionRequest | str | Sequence[str] | None = None,
    sigma_factor: float = 1.0,
    progress: Callable[[int, int], None] | None = None,
    cancel: Stops | None = None,
    profile: str | None = None,
    settings: Subspace | None = None,
    along: str = "",
    filter: str = "auto",
    filter_profile: str = "normal",
    components: int = 0,
    keep_events: bool = False,
) -> np.ndarray:
    """Denoise a series of measurements of one object by its principal components."""

def swnlm(
    image: ArrayLike,
    sigma: ArrayLike | None = None,
    *,
    noise: NoiseModel | Sequence[NoiseModel] | NoiseEstimate | str | float | None = None,
    axes: str | None = None,
    dtype: DTypeLike | None = None,
    nonfinite: str = "raise",
    device: DeviceChoice = None,
    memory_limit: int | str | None = None,
    correct: CorrectionRequest | str | Sequence[str] | None = None,
    sigma_factor: float = 1.0,
    progress: Callable[[int, int], None] | None = None,
    cancel: Stops | None = None,
    profile: str | None = None,
    settings: SWNLM | None = None,
    patch: int = 5,
    window: int = 21,
    alpha: float = 0.05,
    widen: float = 1.0,
    fewest: int = 8,
    fallback: str = "exact",
    show: str = "image",
) -> np.ndarray:
    """Denoise by averaging pixels whose patches differ like noise."""

def vbm3d(
    image: ArrayLike,
    sigma: ArrayLike | None = None,
    *,
    noise: NoiseModel | Sequence[NoiseModel] | NoiseEstimate | str | float | None = None,
    axes: str | None = None,
    dtype: DTypeLike | None = None,
    nonfinite: str = "raise",
    device: DeviceChoice = None,
    memory_limit: int | str | None = None,
    correct: CorrectionRequest | str | Sequence[str] | None = None,
    sigma_factor: float = 1.0,
    progress: Callable[[int, int], None] | None = None,
    cancel: Stops | None = None,
    profile: str | None = None,
    settings: VBM3D | None = None,
    frames_before: int = 4,
    frames_after: int = 4,
    threshold: float = 3.4,
    threshold_common: float = 1.8,
    wiener_sigma: float = 1.2,
    wiener_common: float = 0.7,
    channels: str = "auto",
    refine: str = "off",
    window_nearest: int = 0,
    step_basic: int = 0,
    step_final: int = 0,
    neighbours_basic: int = 8,
    neighbours_final: int = 8,
) -> np.ndarray:
    """Denoise a time-lapse by VBM3D, BM3D whose groups follow motion."""

def why(device: DeviceChoice = None) -> str:
    """Say in one sentence which devices `choose_devices` returns, and why."""

def write(
    path: str | os.PathLike[str],
    data: np.ndarray | Blocks,
    like: ImageFile,
    record: Record | Sequence[dict[str, object]] | None = None,
    *,
    overwrite: bool = False,
) -> tuple[str, ...]:
    """Write new pixels with the metadata of another image, in its format."""
