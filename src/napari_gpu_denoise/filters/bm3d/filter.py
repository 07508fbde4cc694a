"""BM3D: collaborative filtering of groups of similar patches in a transform domain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Self

from napari_gpu_denoise.filters.bm3d import groups
from napari_gpu_denoise.filters.bm3d.plan import Plan, ScalesPlan, scales_reach
from napari_gpu_denoise.filters.channels import channels_setting
from napari_gpu_denoise.filters.ridge import NEIGHBOURS, RidgePlan, RidgeSettings
from napari_gpu_denoise.filters.search.patch_search import PatchSearch, SearchSettings
from napari_gpu_denoise.noise.models import NoiseModel
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.filter import Context
from napari_gpu_denoise.protocol.settings import setting
from napari_gpu_denoise.protocol.tiles import Reach
from napari_gpu_denoise.run.denoise import filter_function

PREFILTER_STEP = 2  # spacing of reference patches
_STABILISED = "single images whose noise depends on brightness gain nothing"
_RIDGE_SEARCH = SearchSettings(patch=6, step=3, window=49, neighbours=NEIGHBOURS)


def _step(default: int, of: str):
    help = f"Spacing of reference patches {of} (1 is slowest and best)"
    return setting(default, help, bounds=(1, groups.PATCH), unit="pixels", advanced=True)


def _window(default: int, of: str):
    help = f"Search window width {of} (odd)"
    return setting(default, help, bounds=(1, 63), unit="pixels", advanced=True, odd=True)


def _transform(default: str, of: str):
    help = f"2D transform of a patch {of}"
    return setting(default, help, choices=groups.TRANSFORMS, advanced=True)


def _stack(of: str):
    help = f"Transform along the stack of patches {of}"
    return setting("haar", help, choices=groups.STACK_TRANSFORMS, advanced=True)


_FAST = {
    "step_basic": 4,
    "step_final": 4,
    "window_basic": 21,
    "window_final": 21,
    "neighbours_basic": 8,
    "neighbours_final": 8,
    "stack_basic": "hadamard",
    "stack_final": "hadamard",
    "threshold": 2.7,
    "wiener_sigma": 1.0,
}


@dataclass(frozen=True)
class BM3D(groups.CollaborativeFilter):
    """Settings of BM3D.

    Groups of similar patches are transformed together and small coefficients are removed: by hard
    thresholding in the first pass, by a Wiener filter based on the first result in the second.
    """

    name: ClassVar[str] = "bm3d"
    title: ClassVar[str] = "BM3D"
    summary: ClassVar[str] = "Block matching and 3D filtering: best quality for still images"
    presets: ClassVar[dict[str, dict]] = {
        "normal": {},
        "fast": _FAST,
        "high": {"step_basic": 1, "step_final": 1, "window_final": 63},
        "live": {**_FAST, "step_basic": 8, "step_final": 8},
        "best": {"refine": "chain"},
    }

    kaiser: ClassVar[float] = 2.0
    threshold: float = groups.threshold(2.75)
    wiener_sigma: float = groups.wiener_sigma(0.8)
    channels: str = channels_setting("with shared patch matches")
    refine: str = groups.refine()
    step_basic: int = _step(3, groups.BASIC)
    step_final: int = _step(3, groups.FINAL)
    window_basic: int = _window(39, groups.BASIC)
    window_final: int = _window(39, groups.FINAL)
    neighbours_basic: int = groups.neighbours(16, groups.BASIC)
    neighbours_final: int = groups.neighbours(32, groups.FINAL)
    transform_basic: str = _transform("bior1.5", groups.BASIC)
    transform_final: str = _transform("dct", groups.FINAL)
    stack_basic: str = _stack(groups.BASIC)
    stack_final: str = _stack(groups.FINAL)
    # No settings, but what `prepare` chooses for correlated noise: whether the first pass searches
    # prefiltered patches, and the most scales, each half the size of the one before.
    prefiltered: bool = field(default=False, kw_only=True, repr=False)
    scales: int = field(default=groups.MOST_SCALES, kw_only=True, repr=False)

    def unrefined(self, noise: Sequence[NoiseModel]) -> str:
        """Why results are not refined: measured on photons, that of single images gains nothing."""
        additive = all(model.additive for model in noise)
        return super().unrefined(noise) or ("" if additive else _STABILISED)

    def prepare(self, context: Context) -> Self:
        """Return the filter for an array, with no more scales than its size and its noise allow."""
        fitting = super().prepare(context)
        side = min(context.shape[context.names.index(letter)] for letter in "YX")
        # Scales that were chosen for the noise need room for a patch on the coarsest one.
        most = groups.most_scales(side, groups.PATCH if self.spectral else groups.LEAST_SIDE)
        if fitting.scales > most:
            fitting = replace(fitting, scales=most)
        if self.spectral or not fitting.spectral:
            return fitting
        scales = groups.scale_count(fitting.spectral, fitting.scales)
        prefiltered = self.prefiltered or groups.neighbours_alike(fitting.spectral)
        return replace(fitting, scales=scales, prefiltered=prefiltered)

    @property
    def joint(self) -> str:
        """Channels that share matches, or have spectra of their own."""
        return "C" if len(self.noise) > 1 else super().joint

    @cached_property
    def passes(self) -> dict[str, groups.GroupSettings[SearchSettings]]:
        """The passes, in order: ``"prefilter"``, ``"basic"``, ``"final"``."""
        passes = {}
        if self.prefiltered:
            alone = {"similar": 0.0, "threshold": groups.PREFILTER_CORRELATED}
            search = SearchSettings(groups.PATCH, PREFILTER_STEP, 1, 1)
            passes["prefilter"] = self._pass("basic", search, **alone, shared_noise=False)
        for name in self.stages:
            widths = (getattr(self, f"{key}_{name}") for key in ("step", "window", "neighbours"))
            search = SearchSettings(groups.PATCH, *widths)
            passes[name] = self._pass(name, search)
        return self._with_spectra(passes)

    @cached_property
    def ridge(self) -> RidgeSettings | None:
        """The combinations after the last pass, if there are any."""
        count = self.iterations
        return RidgeSettings.of_image(count, _RIDGE_SEARCH) if count else None

    @cached_property
    def reach(self) -> Reach:
        """The sum over all passes, on the coarsest scale, and over all combinations after them."""
        around = sum(one.reach for one in self.passes.values())
        if self.ridge:
            around += self.ridge.reach[1]
        if self.spectral:
            around = scales_reach(around, self.scales)
        return Reach.of(around)

    @property
    def operations_per_pixel(self) -> float:
        """Those of all scales."""
        scales = self.scales if self.spectral else 1
        return super().operations_per_pixel * sum(0.25**k for k in range(scales))

    def plan(self, arena: Arena) -> Plan | ScalesPlan | RidgePlan:
        plan = Plan(self, arena)
        if self.ridge:
            return RidgePlan(plan, self.ridge, PatchSearch(_RIDGE_SEARCH, arena), plan.mix)
        if not self.spectral or self.scales < 2:
            return plan
        halves = tuple(map(groups.halved, self.spectral))
        pairs = zip(halves, self.spectral, strict=True)
        ratios = tuple(half.sigma / full.sigma if full.sigma else 0.0 for half, full in pairs)
        coarse = replace(self, noise=halves, scales=self.scales - 1)
        return ScalesPlan(plan, coarse.plan(arena), ratios, arena)


@filter_function(BM3D)
def bm3d() -> None:
    """Denoise by BM3D, block matching and 3D filtering.

    Parameters
    ----------
    {inputs}
    {profile}
        ``"fast"`` takes about a tenth of the time of ``"normal"`` on a GPU and loses 0.2 to 0.4 dB;
        ``"high"`` takes about ten times as long and gains about 0.05 dB; ``"live"``, for cameras,
        takes half the time of ``"fast"`` and loses another 0.5 dB; ``"best"`` refines the result of
        ``"normal"`` and gains 0.2 dB or more, except where noise depends on brightness.
    axes : str, optional
        Names of the axes, such as ``"TYX"``, ``"CYX"`` or ``"YXS"``. Y and X are filtered; planes
        along every other axis are independent, except channels (see `channels`). By default the
        last two are Y and X, the rest independent planes.
    {common}

    See Also
    --------
    denoise : The same with a record of the run.
    nl_means : Faster, and better on speckle.

    Notes
    -----
    Patches are 8 x 8. For each pixel and pass, the search takes ``64 * (window / step)**2``
    comparisons, and filtering about ``1600 * neighbours / step**2`` operations. Repeated runs on
    one device are bit-identical, with any tiles. In RGB images (an axis S of length 3) luminance
    and chrominance are filtered with the matches of luminance.

    For correlated noise (``noise=Correlated(...)``, or an estimate that finds it), thresholds and
    weights follow the noise variance of each coefficient.

    References
    ----------
    K. Dabov, A. Foi, V. Katkovnik and K. Egiazarian, "Image denoising by sparse 3-D
    transform-domain collaborative filtering", IEEE Transactions on Image Processing 16 (2007),
    :doi:`10.1109/TIP.2007.901238`.

    A. Davy and T. Ehret, "GPU acceleration of NL-means, BM3D and VBM3D", Journal of Real-Time
    Image Processing 18 (2020), sections 2.2 and 4.4, :doi:`10.1007/s11554-020-00945-4`.

    Y. Makinen, L. Azzari and A. Foi, "Collaborative filtering of correlated noise: exact
    transform-domain variance for improved shrinkage and patch matching", IEEE Transactions on
    Image Processing 29 (2020), section III, for `shared_noise` and correlated noise,
    :doi:`10.1109/TIP.2020.3014721`.

    Examples
    --------
    >>> out = bm3d(image, sigma=20)                                    # doctest: +SKIP
    >>> out = bm3d(rgb, sigma=20, axes="YXS", profile="fast")          # doctest: +SKIP
    >>> out = bm3d(cells, sigma=[9, 14], axes="CYX", channels="joint") # doctest: +SKIP
    """
