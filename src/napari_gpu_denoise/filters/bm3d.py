"""BM3D: collaborative filtering of groups of similar patches in a transform domain."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters import pass_fields
from napari_gpu_denoise.filters.bm3d_plan import Plan
from napari_gpu_denoise.filters.call import denoised
from napari_gpu_denoise.filters.channel_settings import settled_channels
from napari_gpu_denoise.filters.correlated_bm3d import CorrelatedBM3D
from napari_gpu_denoise.filters.group_settings import PATCH, GroupSettings
from napari_gpu_denoise.filters.pass_fields import BASIC, FINAL
from napari_gpu_denoise.filters.patch_search import SearchSettings
from napari_gpu_denoise.filters.settings import Settings, setting
from napari_gpu_denoise.noise.models import Correlated
from napari_gpu_denoise.noise.noise_model import NoiseModel
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.tiles import Reach

# Step of the reference patches that matches are smoothed with.
PREFILTER_STEP = 2

# Above this correlation of neighbours, along the axis that has more, patches are smoothed for the
# search, and with this threshold: patches near each other seem similar for their noise alone.
ALIKE = 0.6
PREFILTER_CORRELATED = 3.0


def _step(default: int, of: str):
    return setting(
        default,
        f"Spacing of the reference patches {of}; 1 is best and slowest",
        bounds=(1, PATCH),
        unit="pixels",
        advanced=True,
    )


def _window(default: int, of: str):
    help = f"Full width of the search window {of} (odd)"
    return setting(default, help, bounds=(1, 63), unit="pixels", advanced=True)


@dataclass(frozen=True)
class BM3D(Settings):
    """Settings of BM3D.

    Groups of similar patches are transformed together and their small coefficients removed: by a
    threshold in the first pass, by a Wiener filter told by the first result in the second.
    """

    name: ClassVar[str] = "bm3d"
    title: ClassVar[str] = "BM3D"
    summary: ClassVar[str] = "Block matching and 3D filtering: the best quality for still images"
    presets: ClassVar[dict[str, dict]] = {
        "normal": {},
        "fast": {
            "step_basic": 4,
            "step_final": 4,
            "window_basic": 21,
            "window_final": 21,
            "neighbours_basic": 8,
            "neighbours_final": 8,
            "stack_basic": "hadamard",
            "stack_final": "hadamard",
            "threshold": 2.7,
            "wiener": 1.0,
        },
        "high": {"step_basic": 1, "step_final": 1, "window_final": 63},
    }

    stages: str = setting(
        "both", "Both passes, or the first one alone: quicker, less good", choices=("both", "basic")
    )
    threshold: float = setting(
        2.75,
        "Coefficients below this are removed in the first pass",
        bounds=(0.0, 10.0),
        unit="sigma",
    )
    wiener: float = setting(
        0.8,
        "Noise that the Wiener filter of the second pass is told of",
        bounds=(0.0, 10.0),
        unit="sigma",
    )
    channels: str = setting(
        "auto",
        "Each channel on its own, as colours (opponent), or with shared matches (joint); auto is "
        "opponent for RGB, separate for others",
        choices=("auto", "separate", "opponent", "joint"),
    )
    guide: int = setting(
        -1,
        "Channel that joint matching looks at; -1 is all, weighted by their noise",
        bounds=(-1, 1000),
        advanced=True,
    )
    step_basic: int = _step(3, BASIC)
    step_final: int = _step(3, FINAL)
    window_basic: int = _window(39, BASIC)
    window_final: int = _window(39, FINAL)
    neighbours_basic: int = pass_fields.neighbours(16, BASIC)
    neighbours_final: int = pass_fields.neighbours(32, FINAL)
    transform_basic: str = pass_fields.transform("bior1.5", BASIC)
    transform_final: str = pass_fields.transform("dct", FINAL)
    stack_basic: str = pass_fields.stack("haar", BASIC)
    stack_final: str = pass_fields.stack("haar", FINAL)
    similar_basic: float = pass_fields.similar(25.0, BASIC)
    similar_final: float = pass_fields.similar(16.0, FINAL)
    kaiser: float = setting(
        2.0,
        "Beta of the Kaiser window that estimates are joined with",
        bounds=(0.0, 4.0),
        advanced=True,
    )
    prefilter: str = setting(
        "auto",
        "Match on smoothed patches in the first pass; auto does so where noise is strongly "
        "correlated",
        choices=("auto", "off", "on"),
        advanced=True,
    )
    prefilter_threshold: float = setting(
        2.0,
        "Coefficients below this are removed by that smoothing, if it is on",
        bounds=(0.0, 10.0),
        unit="sigma",
        advanced=True,
    )
    shared_noise: bool = setting(
        True,
        "Allow for the noise that overlapping patches of a group share; in Haar stacks only",
        advanced=True,
    )
    reproducible: bool = setting(True, "Repeated runs agree to the last bit", advanced=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("window_basic", "window_final"):
            if getattr(self, name) % 2 == 0:
                raise SettingsError(
                    f"{name}={getattr(self, name)} has no centre: choose an odd width."
                )

    @property
    def smallest(self) -> int:
        """Smallest height and width; shorter frames are extended to it by mirroring."""
        return PATCH

    @property
    def joint(self) -> str:
        """Which axes are filtered together with Y and X: channels, if they share matches."""
        return "C" if self.channels in ("opponent", "joint") else ""

    def for_array(self, names: str, shape: tuple[int, ...]) -> BM3D:
        """Return the settings for an array: colour is known by its axes.

        Raises
        ------
        SettingsError
            If its channels do not fit the settings.
        """
        return replace(self, channels=settled_channels(self, names, shape))

    def for_noise(self, models: tuple[NoiseModel, ...]) -> BM3D | CorrelatedBM3D | None:
        """Return the filter for noise of these models, one for all channels or one a channel.

        Returns
        -------
        CorrelatedBM3D, BM3D or None
            Correlated noise is filtered by its spectrum, with ``prefilter="auto"`` decided: where
            all models are white these settings are returned. None where other noise is among the
            models.
        """
        if not models or not all(isinstance(model, Correlated) for model in models):
            return None
        if all(model.white for model in models):
            return self
        models = models[:1] if len(set(models)) == 1 else tuple(models)
        if self.prefilter != "auto":
            return CorrelatedBM3D(self, models)
        alike = np.mean([max(m.autocorrelation[0][1], m.autocorrelation[1][0]) for m in models])
        smoothed = {"prefilter": "on", "prefilter_threshold": PREFILTER_CORRELATED}
        changes = smoothed if alike > ALIKE else {"prefilter": "off"}
        return CorrelatedBM3D(replace(self, **changes), models)

    @property
    def passes(self) -> dict[str, GroupSettings]:
        """The passes, in their order: ``"prefilter"``, ``"basic"``, ``"final"``."""
        passes = {}
        if self.prefilter == "on":
            passes["prefilter"] = GroupSettings(
                SearchSettings(PATCH, PREFILTER_STEP, 1, 1),
                self.transform_basic,
                self.stack_basic,
                similar=0.0,
                threshold=self.prefilter_threshold,
                kaiser=self.kaiser,
                reproducible=self.reproducible,
            )
        names = ("basic", "final") if self.stages == "both" else ("basic",)
        for name in names:
            passes[name] = GroupSettings(
                SearchSettings(
                    PATCH,
                    getattr(self, f"step_{name}"),
                    getattr(self, f"window_{name}"),
                    getattr(self, f"neighbours_{name}"),
                ),
                getattr(self, f"transform_{name}"),
                getattr(self, f"stack_{name}"),
                similar=getattr(self, f"similar_{name}"),
                threshold=self.threshold if name == "basic" else self.wiener,
                wiener=name == "final",
                kaiser=self.kaiser,
                reproducible=self.reproducible,
                shared_noise=self.shared_noise and getattr(self, f"stack_{name}") == "haar",
            )
        return passes

    @property
    def reach(self) -> Reach:
        """How far around a pixel the filter looks."""
        around = sum(one.reach for one in self.passes.values())
        return Reach(y=(around, around), x=(around, around))

    @property
    def bytes_per_pixel(self) -> float:
        """Device bytes a pixel of a tile needs beside its input and output."""
        most = max(
            4 * one.search.neighbours / one.search.step**2 + one.slab_bytes_per_pixel
            for one in self.passes.values()
        )
        return most + 24.0 + 8.0 * bool(self.joint)

    @property
    def operations_per_pixel(self) -> float:
        """Arithmetic of the searches and of the transforms."""
        return sum(sum(one.operations_per_pixel) for one in self.passes.values())

    @property
    def operations_per_launch(self) -> float:
        """The longest search, or the longest filtering of groups."""
        return max(max(one.operations_per_pixel) for one in self.passes.values())

    def plan(self, arena: Arena) -> Plan:
        """Return what runs this filter on one device, from one thread."""
        return Plan(self, arena)


def bm3d(
    image,
    sigma=None,
    *,
    noise=None,
    profile: str | None = None,
    axes: str | None = None,
    settings: BM3D | None = None,
    dtype=None,
    nonfinite: str = "raise",
    device=None,
    memory_limit: int | None = None,
    progress=None,
    cancel=None,
    **changes,
) -> np.ndarray:
    """Denoise by BM3D, block matching and 3D filtering.

    Parameters
    ----------
    image : array_like
        Pixels of any real type, two or more axes. Never modified.
    sigma : float, array_like or None, optional
        Standard deviation of the noise in grey levels of the image: one value, one a channel, one
        a plane, or a map of shape (ny, nx); see `denoise`. None measures the noise (see `noise`);
        where it is 0 the image comes back unchanged.
    noise : NoiseModel, NoiseEstimate, str or float, optional
        A model of the noise, one a channel or one for all; what `estimate_noise` returned; the name
        of a model, such as ``"gaussian"``, to measure its parameters; or ``"auto"``, the default
        without `sigma`, to measure which it is; see `denoise`. A `sigma` that is given wins.
    profile : {"normal", "fast", "high"}, optional
        Settings to start from, by default ``"normal"``; single ones given as keywords win.
        ``"fast"`` takes about a tenth of the time of ``"normal"`` on a GPU and loses 0.2 to 0.4 dB;
        ``"high"`` takes about ten times as long and gains about 0.05 dB.
    axes : str, optional
        Names of the axes, such as ``"TYX"``, ``"CYX"`` or ``"YXS"``. Y and X are filtered; planes
        along every other axis are independent, but for channels (see `channels`). By default the
        last two are Y and X, the rest independent planes.
    settings : BM3D, optional
        Settings to start from instead of a profile.
    dtype : data type, optional
        Type of the result, by default that of the image. Integers are rounded and saturated.
    nonfinite : {"raise", "keep"}, optional
        Refuse NaN and infinity, or leave them as they are without letting them spread.
    device : Device, int, str or None, optional
        Where to run; by default the best device there is.
    memory_limit : int, optional
        Largest number of bytes of device memory to use.
    progress : callable, optional
        Called as ``progress(done, total)`` after each tile.
    cancel : object with ``is_set()``, optional
        An event that stops the run at the next tile.
    **changes
        Fields of `BM3D`, among them `stages` (``"both"``; ``"basic"`` returns the first pass
        alone), `threshold` (2.75 sigma), `wiener` (0.8 sigma), `channels` (``"auto"``),
        `step_basic` and `step_final` (3 pixels), `window_basic` and `window_final` (39 pixels),
        `neighbours_basic` (16) and `neighbours_final` (32), `transform_basic` (``"bior1.5"``) and
        `transform_final` (``"dct"``), `stack_basic` and `stack_final` (``"haar"``),
        `shared_noise` (True), `reproducible` (True).

    Returns
    -------
    ndarray
        A new array of the shape of `image`.

    Raises
    ------
    SettingsError, AxesError, SigmaError, ImageError, NonFiniteError
        If the input does not fit.
    NoDeviceError, DeviceMemoryError, KernelError
        If the device does not.
    Cancelled
        If `cancel` was set.

    Warns
    -----
    SaturationWarning
        If results were clipped to the range of an integer type.

    See Also
    --------
    denoise : The same with a record of what was done.
    nl_means : Quicker, and better on speckle.

    Notes
    -----
    Patches are 8 x 8. The search takes ``64 * (window / step)**2`` comparisons of pixels a pixel,
    filtering about ``1600 * neighbours / step**2`` operations, each pass. Repeated runs on one
    device are bitwise equal, whatever the tiles, unless `reproducible` is False. With RGB (an axis
    S of length 3) luminance and chrominance are filtered with the matches of luminance.

    Told of correlated noise (``noise=Correlated(...)``, or an estimate that found it), thresholds
    and weights follow the variance of each coefficient.

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
    return denoised(
        image,
        BM3D.of(settings, profile=profile, **changes),
        sigma,
        noise=noise,
        axes=axes,
        dtype=dtype,
        nonfinite=nonfinite,
        device=device,
        memory_limit=memory_limit,
        progress=progress,
        cancel=cancel,
    )
