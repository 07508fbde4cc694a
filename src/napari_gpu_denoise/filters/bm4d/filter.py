"""BM4D: collaborative filtering of groups of similar cubes of a volume."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from napari_gpu_denoise.filters.bm3d import groups
from napari_gpu_denoise.filters.bm3d.correlated import (
    ALIKE,
    PREFILTER_CORRELATED,
    ModelledFilter,
    spectral_models,
)
from napari_gpu_denoise.filters.bm3d.groups import BASIC, FINAL, TRANSFORMS, TwoPasses
from napari_gpu_denoise.filters.bm4d.cubes import CubePass, CubeSpectrum
from napari_gpu_denoise.filters.bm4d.plan import Plan, SeriesPlan
from napari_gpu_denoise.filters.search.frame_links import (
    FrameSearch,
    flicker_setting,
    frames_setting,
)
from napari_gpu_denoise.filters.volumes import (
    AUTO,
    CUBES,
    VolumeFilter,
    cube_setting,
    voxel_setting,
)
from napari_gpu_denoise.noise.models import Correlated, NoiseModel
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.settings import setting
from napari_gpu_denoise.protocol.tiles import Reach
from napari_gpu_denoise.run.denoise import filter_function


def _step(default: int, of: str) -> Any:
    help = f"Spacing of reference cubes {of}, along an axis of four voxels (1 is slowest and best)"
    return setting(default, help, bounds=(1, 4), unit="voxels", advanced=True)


def _window(default: int, of: str) -> Any:
    help = f"Search window width {of} (odd), along an axis of four voxels"
    return setting(default, help, bounds=(1, 21), unit="voxels", advanced=True, odd=True)


def _transform(default: str, of: str) -> Any:
    return setting(default, f"3D transform of a cube {of}", choices=TRANSFORMS[:3], advanced=True)


# Limits for cubes of other volumes, in sigma squared: largest mean squared difference of cubes and
# of the blocks that they are in, and by how much a motion has to explain more than none.
_SIMILAR_NEXT = {"basic": 2.6, "final": 0.5}
_SIMILAR_BLOCK = {"basic": 2.6, "final": 0.5}
_STILL = {"basic": 0.4, "final": 0.1}
# Spacing of the cubes that are filtered alone before correlated noise is searched.
_PREFILTER_STEP = 3


@dataclass(frozen=True)
class BM4D(FrameSearch, TwoPasses, VolumeFilter):
    """Settings of BM4D.

    Groups of similar cubes are transformed together and small coefficients are removed: by hard
    thresholding in the first pass, by a Wiener filter based on the first result in the second.
    """

    name: ClassVar[str] = "bm4d"
    title: ClassVar[str] = "BM4D"
    summary: ClassVar[str] = "Block matching and 4D filtering: best quality for volumes"
    presets: ClassVar[dict[str, dict]] = {
        "normal": {},
        "fast": {
            "step_basic": 4,
            "step_final": 4,
            "window_basic": 9,
            "window_final": 9,
            "neighbours_basic": 16,
        },
        "high": {"step_basic": 2, "step_final": 2, "window_basic": 15, "window_final": 15},
    }

    cube: str = cube_setting()
    voxel: str = voxel_setting()
    frames_before: int = frames_setting(0, "Earlier volumes to search")
    frames_after: int = frames_setting(0, "Later volumes to search")
    flicker: bool = flicker_setting("volumes")
    stages: str = groups.stages()
    threshold: float = groups.threshold(2.9)
    wiener_sigma: float = groups.wiener_sigma(0.9)
    step_basic: int = _step(3, BASIC)
    step_final: int = _step(3, FINAL)
    window_basic: int = _window(13, BASIC)
    window_final: int = _window(11, FINAL)
    window_next: int = setting(
        7,
        "Window width of the motion search from volume to volume (odd), along an axis of "
        "four voxels",
        bounds=(1, 11),
        unit="voxels",
        advanced=True,
        odd=True,
    )
    neighbours_basic: int = groups.neighbours(32, BASIC, "cubes")
    neighbours_final: int = groups.neighbours(32, FINAL, "cubes")
    transform_basic: str = _transform("bior1.5", BASIC)
    transform_final: str = _transform("dct", FINAL)
    stack_basic: str = groups.stack("haar", BASIC, "cubes")
    stack_final: str = groups.stack("haar", FINAL, "cubes")
    similar_basic: float = groups.similar(25.0, BASIC, "cubes")
    similar_final: float = groups.similar(16.0, FINAL, "cubes")
    kaiser: float = groups.kaiser(3.0, "cubes")
    shared_noise: bool = groups.shared_noise(True, "cubes")

    @property
    def joint(self) -> str:
        """Slices, and time if other volumes are searched."""
        return super().joint + "T" * self.over_time

    @property
    def whole_volumes(self) -> bool:
        """Whether other volumes are searched."""
        return self.over_time

    @property
    def smallest(self) -> int:
        """The longest side of any cube."""
        return max(max(lengths) for lengths in CUBES.values())

    @property
    def passes(self) -> dict[str, CubePass]:
        """The passes, in order: ``"basic"``, ``"final"``."""
        return {
            name: CubePass(
                self.cube_shape,
                getattr(self, f"step_{name}"),
                getattr(self, f"window_{name}"),
                getattr(self, f"neighbours_{name}"),
                **self._shrinkage(name),
                guided=name == "final",
                frames=(self.frames_before, self.frames_after),
                next_window=self.window_next,
                similar_next=_SIMILAR_NEXT[name],
                similar_block=_SIMILAR_BLOCK[name],
                still=_STILL[name],
            )
            for name in self._pass_names()
        }

    @property
    def reach(self) -> Reach:
        """The sum over both passes; that of the furthest cubes if none are chosen yet."""
        names = CUBES if self.cube == AUTO else (self.cube,)
        passes = [replace(self, cube=name).passes.values() for name in names]
        sums = [np.sum([one.reach for one in each], axis=0) for each in passes]
        z, y, x = (int(length) for length in np.max(sums, axis=0))
        count = len(self.passes)
        time = count * self.frames_before, count * self.frames_after
        return Reach(time, (z, z), (y, y), (x, x))

    def plan(
        self, arena: Arena, variants: dict[str, dict[str, Any]] | None = None
    ) -> Plan | SeriesPlan:
        """Return the plan for one device; `variants` as `Plan` takes them."""
        kind = SeriesPlan if self.over_time else Plan
        return kind(self.passes, arena, variants)

    def for_noise(self, models: Sequence[NoiseModel]) -> BM4D | None:
        """Return a `CorrelatedBM4D` for correlated noise, these settings if all of it is white.

        Noise that depends on brightness has been stabilised. None if any model is of another kind.
        """
        found = spectral_models(models, volume=True)
        if not found:
            return None if found is None else self
        return CorrelatedBM4D(**vars(self), models=found)


@dataclass(frozen=True)
class CorrelatedBM4D(ModelledFilter, BM4D):
    """BM4D for correlated noise, made by `BM4D.for_noise`: sigma is that of each coefficient.

    If neighbours are very alike, cubes are compared in a volume that was filtered cube by cube, but
    over time.
    """

    # Not a setting: one noise model for all channels, or one for each.
    models: tuple[Correlated, ...] = field(kw_only=True)

    @property
    def joint(self) -> str:
        """Channels, too, that have spectra of their own; over time these are not told apart."""
        return super().joint + "C" * (len(self.models) > 1 and not self.over_time)

    @property
    def passes(self) -> dict[str, CubePass]:
        """The passes with the spectra of the noise."""
        spectra = tuple(CubeSpectrum(one.autocorrelation, one.along_z) for one in self.models)
        if self.over_time:
            spectra = (CubeSpectrum.mean(spectra, [one.sigma for one in self.models]),)
        passes = {name: replace(one, spectra=spectra) for name, one in super().passes.items()}
        alike = sum(one.neighbours for one in spectra) / len(spectra)
        if alike <= ALIKE or self.over_time:
            return passes
        # Noise alone makes nearby cubes look similar: each is filtered alone before the search.
        alone = {"step": _PREFILTER_STEP, "window": 1, "neighbours": 1, "similar": 0.0}
        alone |= {"transform": "dct", "threshold": PREFILTER_CORRELATED, "shared_noise": False}
        basic = passes.pop("basic")
        first = {"prefilter": replace(basic, **alone), "basic": replace(basic, guided=True)}
        return {**first, **passes}


@filter_function(BM4D)
def bm4d() -> np.ndarray:
    """Denoise volumes by BM4D, block matching and 4D filtering.

    Parameters
    ----------
    {inputs}
    profile : {"normal", "fast", "high"}, optional
        Settings to start from, by default ``"normal"``; settings given as keywords override it.
        ``"fast"`` takes about a third of the time of ``"normal"`` on a GPU and loses 0.3 to 0.6 dB;
        ``"high"`` takes about six times as long and gains up to 0.15 dB.
    axes : str
        Names of the axes, such as ``"ZYX"``, ``"TZYX"`` or ``"CZYX"``. Z, Y and X are required and
        filtered together, T only with `frames_before` or `frames_after`; volumes along every other
        axis are independent.
    {settings}
    {options}
    {fields}

    {outcome}

    See Also
    --------
    denoise : The same with a record of the run.
    stream : The same for volumes that arrive one by one.
    pri_nlm, dct3d : Faster.
    bm3d : For images, and for slices that have little in common.

    Notes
    -----
    Cubes contain 64 voxels. `cube` is ``"auto"`` by default: differences between slices are
    compared with differences between pixels, to find how flat the cubes should be. The record says
    which cubes were chosen, and why; if this cannot be found from the image, `voxel` decides. Steps
    and windows are given for cubes of 4 x 4 x 4, and are scaled with the sides of other cubes. For
    each voxel and pass, the search takes ``64 * (window / step)**3`` comparisons, and filtering
    about ``1600 * neighbours / step**3`` operations. Repeated runs on one device are bit-identical,
    with any tiles.

    With `frames_before` and `frames_after`, the mean of each cube over time and its deviation from
    that mean are filtered separately, each with its own noise level. Motion is followed in blocks,
    up to half of `window_next` from volume to volume; blocks that are not found in other volumes
    are filtered without them.

    Rician and photon noise is stabilised first. For correlated noise (``noise=Correlated(...)``, or
    an estimate that finds it), thresholds and weights follow the noise variance of each
    coefficient. Estimates treat slices as independent; use `Correlated.along_z` if they are not.

    References
    ----------
    M. Maggioni, V. Katkovnik, K. Egiazarian and A. Foi, "Nonlocal transform-domain filter for
    volumetric data denoising and reconstruction", IEEE Transactions on Image Processing 22 (2013),
    119-133, :doi:`10.1109/TIP.2012.2210725`.

    Y. Makinen, L. Azzari and A. Foi, "Collaborative filtering of correlated noise: exact
    transform-domain variance for improved shrinkage and patch matching", IEEE Transactions on
    Image Processing 29 (2020), section III, for `shared_noise`, :doi:`10.1109/TIP.2020.3014721`.

    Examples
    --------
    >>> out = bm4d(volume, axes="ZYX")                                 # doctest: +SKIP
    >>> out = bm4d(head, noise="rician", axes="ZYX", profile="fast")   # doctest: +SKIP
    >>> out = bm4d(cells, axes="TZYX", frames_before=1, frames_after=1)  # doctest: +SKIP
    """
