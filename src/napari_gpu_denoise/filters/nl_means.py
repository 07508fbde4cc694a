"""Patchwise NL-means (Davy and Ehret 2020, section 2.1, algorithms 1 and 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.call import denoised
from napari_gpu_denoise.filters.nl_means_plan import FramePlan, Plan
from napari_gpu_denoise.filters.settings import Settings, setting
from napari_gpu_denoise.noise.models import Gaussian, Rician
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.tiles import Reach

if TYPE_CHECKING:
    from napari_gpu_denoise.noise.noise_model import NoiseModel
    from napari_gpu_denoise.noise.sigma_estimate import SigmaEstimate

LARGEST_TABLE = 1 << 16


@dataclass(frozen=True)
class NLMeans(Settings):
    """Settings of patchwise NL-means.

    Every patch on a grid of spacing `step` is replaced by the weighted mean of the `neighbours`
    patches most similar to it in a search window; overlapping estimates are joined with tent
    weights.
    """

    name: ClassVar[str] = "nl_means"
    title: ClassVar[str] = "NL-means"
    summary: ClassVar[str] = "Patchwise non-local means: fast, keeps edges and texture"
    presets: ClassVar[dict[str, dict]] = {
        "normal": {},
        "fine": {"patch": 5, "step": 1},
        "video": {
            **{"patch": 16, "frames_before": 4, "frames_after": 4},
        },
    }

    patch: int = setting(8, "Width of a patch", bounds=(1, 32), unit="pixels")
    step: int = setting(
        4, "Spacing of the reference patches; 1 is best and slowest", bounds=(1, 32), unit="pixels"
    )
    window: int = setting(
        21, "Full width of the search window (odd)", bounds=(1, 101), unit="pixels"
    )
    neighbours: int = setting(
        16, "Number of similar patches averaged, the patch itself included", bounds=(1, 64)
    )
    strength: float = setting(
        1.0, "Decay h of the weights, in units of sigma", bounds=(0.05, 10.0), unit="sigma"
    )
    flat: float = setting(
        1.05,
        "A group whose variance is below this many sigma squared is taken as flat; 0 turns it off",
        bounds=(0.0, 10.0),
        unit="sigma squared",
        advanced=True,
    )
    frames_before: int = setting(
        0, "Earlier frames searched as well", bounds=(0, 16), unit="frames", needs_axis="T"
    )
    frames_after: int = setting(
        0, "Later frames searched as well", bounds=(0, 16), unit="frames", needs_axis="T"
    )
    flicker: bool = setting(
        True,
        "Allow for bleaching and flicker between frames: brightness that changes over time",
        advanced=True,
        needs_axis="T",
    )
    slices: int = setting(
        0, "Slices above and below searched as well", bounds=(0, 16), unit="slices", needs_axis="Z"
    )
    rician: bool = setting(
        False, "Take off what Rician noise adds to magnitudes, as MRI shows them"
    )
    distance: str = setting(
        "euclidean",
        "Compare patches as white noise asks, or as noise whose variance grows with brightness "
        "does (pearson, for ultrasound: sigma is then the square root of variance over mean)",
        choices=("euclidean", "pearson"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step > self.patch:
            raise SettingsError(
                f"step={self.step} leaves gaps between patches of width {self.patch}: "
                "choose a step of at most the patch."
            )
        if self.window % 2 == 0:
            raise SettingsError(f"window={self.window} has no centre: choose an odd width.")
        if self.offsets > LARGEST_TABLE:
            raise SettingsError(
                f"The search window holds {self.offsets} patches, more than {LARGEST_TABLE}: "
                "choose a smaller window, fewer frames or fewer slices."
            )
        if self.rician and self.distance == "pearson":
            raise SettingsError(
                "rician=True is for magnitudes of MRI, distance='pearson' for ultrasound: choose "
                "one of them."
            )

    @property
    def from_zero(self) -> bool:
        """Whether grey levels must count from 0, since squares or roots of them are taken."""
        return self.rician or self.distance == "pearson"

    @property
    def sigma_power(self) -> float:
        """What power of a grey level sigma has the unit of."""
        return 0.5 if self.distance == "pearson" else 1.0

    def estimate_sigma(self, image: Any, names: str) -> SigmaEstimate | None:
        """Return sigma of an array with these axes; None where it is that of white noise."""
        if not self.from_zero:
            return None
        # Not before it is wanted: it is much to load.
        from napari_gpu_denoise.filters.nl_means_sigma import magnitude_sigma, root_sigma

        return magnitude_sigma(image, names) if self.rician else root_sigma(image, names)

    def for_noise(self, models: tuple[NoiseModel, ...]) -> NLMeans | None:
        """Return the settings for noise of these models; None where it is to be stabilised first.

        Raises
        ------
        SettingsError
            If the settings are for other noise.
        """
        told = ", ".join(sorted({model.name for model in models}))
        if self.distance == "pearson":
            raise SettingsError(
                f"distance='pearson' is told of its noise by sigma alone, but noise is {told}: "
                "give sigma or none, or distance='euclidean'."
            )
        if not self.rician:
            return None
        # Far above sigma magnitudes have Gaussian noise, and may be taken for it.
        if all(isinstance(model, (Rician, Gaussian)) for model in models):
            return self
        raise SettingsError(f"rician=True does not go with noise that is {told}: leave one out.")

    @property
    def offsets(self) -> int:
        """Number of patches in the search window."""
        frames = 1 + self.frames_before + self.frames_after
        return self.window**2 * frames * (1 + 2 * self.slices)

    @property
    def joint(self) -> str:
        """Which of the axes T and Z are searched together with Y and X."""
        time = "T" if self.frames_before or self.frames_after else ""
        return time + ("Z" if self.slices else "")

    @property
    def smallest(self) -> int:
        """Smallest height and width; shorter frames are extended to it by mirroring."""
        return self.patch

    @property
    def reach(self) -> Reach:
        """How far around a pixel the filter looks."""
        around = self.window // 2 + self.patch - 1
        return Reach(
            (self.frames_before, self.frames_after),
            (self.slices, self.slices),
            (around, around),
            (around, around),
        )

    @property
    def bytes_per_pixel(self) -> float:
        """Device bytes a pixel of a tile, over time of a frame, needs beside input and output."""
        return self.frame_bytes(1) if "T" in self.joint else 8.0 + self._reference_bytes

    @property
    def _reference_bytes(self) -> float:
        """Device bytes a pixel that matches and estimates of the reference patches need."""
        return (4 * self.neighbours + 4 * self.patch**2) / self.step**2

    @property
    def operations_per_pixel(self) -> float:
        """Arithmetic of the plainest search."""
        return 2.0 * self.offsets * self.patch**2 / self.step**2

    @property
    def operations_per_launch(self) -> float:
        """The search takes nearly all."""
        return self.operations_per_pixel

    def frame_bytes(self, batch: int) -> float:
        """Return device bytes a pixel of a frame, beside input and output, for a batch."""
        frames = batch + self.frames_before + self.frames_after
        return 4.0 * frames * 3 + batch * self._reference_bytes

    def plan(self, arena: Arena) -> Plan:
        """Return what runs this filter on one device, from one thread."""
        return FramePlan(self, arena) if "T" in self.joint else Plan(self, arena)


def nl_means(
    image,
    sigma=None,
    *,
    noise=None,
    axes: str | None = None,
    settings: NLMeans | None = None,
    profile: str | None = None,
    dtype=None,
    nonfinite: str = "raise",
    device=None,
    memory_limit: int | None = None,
    progress=None,
    cancel=None,
    **changes,
) -> np.ndarray:
    """Denoise by patchwise NL-means.

    Parameters
    ----------
    image : array_like
        Pixels of any real type, two or more axes. Never modified.
    sigma : float, array_like or None, optional
        Standard deviation of the noise in grey levels of the image: one value, one a channel, one
        a plane, or a map of shape (ny, nx); see `denoise`. None measures the noise (see `noise`);
        where it is 0 the image comes back unchanged.
    axes : str, optional
        Names of the axes, such as ``"TZYX"``, ``"CYX"`` or ``"YXC"``. Y and X are filtered; T and
        Z join the search only with `frames_before`, `frames_after` or `slices`; every other axis
        is independent. By default the last two are Y and X, the rest independent planes.
    settings : NLMeans, optional
        Settings to start from; single ones can be given as keywords.
    noise : NoiseModel, NoiseEstimate, str or float, optional
        A model of the noise, one a channel or one for all; what `estimate_noise` returned; the name
        of a model, such as ``"gaussian"``, to measure its parameters; or ``"auto"``, the default
        without `sigma`, to measure which it is; see `denoise`. A `sigma` that is given wins.
    profile : {"normal", "fine", "video"}, optional
        Settings to start from instead: ``"normal"`` is the defaults, ``"fine"`` is ``patch=5,
        step=1``, better and slower, ``"video"`` is ``patch=16, frames_before=4, frames_after=4``,
        for time-lapses (needs an axis T). Single ones given as keywords win.
    dtype : data type, optional
        Type of the result, by default that of the image. Integers are rounded and saturated.
    nonfinite : {"raise", "keep"}, optional
        Refuse NaN and infinity, or leave them as they are without letting them spread.
    device : Device, int, str or None, optional
        Where to run; by default the best device there is.
    memory_limit : int, optional
        Largest number of bytes of device memory to use.
    progress : callable, optional
        Called as ``progress(done, total)`` with numbers of tiles, or of frames where others are
        searched too.
    cancel : object with ``is_set()``, optional
        An event that stops the run at the next tile or frame.
    **changes
        Fields of `NLMeans`: `patch` (8 pixels), `step` (4 pixels), `window` (21 pixels),
        `neighbours` (16), `strength` (1.0 sigma), `flat` (1.05), `frames_before` and
        `frames_after` (0: earlier and later frames along T that are searched as well; with
        ``frames_after=0`` a frame depends on earlier ones alone), `flicker` (True: allow for
        brightness that changes from frame to frame), `slices` (0: slices along Z), `rician`
        (False: take off the bias of magnitudes; sigma is then that of the two parts), `distance`
        ("euclidean", or "pearson" for noise of variance ``sigma**2 * mean``; sigma then has the
        unit of the square root of a grey level). Both estimate their own kind of sigma.

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
    denoise : The same with a record of what was done, or for some of the frames.
    stream : The same for frames that come one after another.
    vbm3d : For time-lapses; follows what moves.

    Notes
    -----
    The weights are ``exp(-max(d2 - 2 sigma**2, 0) / h**2)`` with ``h = strength * sigma`` and d2
    the mean squared difference of two patches. ``profile="fine"`` gives about 0.35 dB more than
    the defaults on photographs and takes about eight times as long. Work grows as
    ``pixels * (patch / step)**2 * window**2``, times the frames and slices searched. Repeated runs
    on one device are bitwise equal: no atomic additions are used.

    Along time a patch is found again as long as it stays within the window; motion is not
    followed. Every frame is sent to the device once. With `flicker` grey levels of other frames
    are brought to those of the frame that is filtered, where a gain and an offset of the whole
    frame explain the change; the result keeps its brightness. Frames of one grey level are neither
    filtered nor used for others. A frame that is stored twice is not recognised: its noise passes
    for signal.

    With `rician` squares are averaged and the result is ``sqrt(max(mean - 2 sigma**2, 0))``;
    groups whose mean square is at most ``2 * flat * sigma**2`` are taken as without signal.
    Signals below sigma come out too low. Brightness of frames is not compared. With "pearson" a
    distance is that of twice the square roots, which is that of Coupé et al. made symmetric, and
    values below 0 count as 0 in it; pixels themselves are averaged.

    References
    ----------
    A. Davy and T. Ehret, "GPU acceleration of NL-means, BM3D and VBM3D", Journal of Real-Time
    Image Processing 18 (2020), section 2.1, algorithms 1 and 4, :doi:`10.1007/s11554-020-00945-4`.

    J. V. Manjón et al., "MRI denoising using non-local means", Medical Image Analysis 12 (2008),
    514-523, and N. Wiest-Daesslé et al., "Rician noise removal by non-local means filtering for low
    signal-to-noise ratio MRI", MICCAI 2008, :doi:`10.1007/978-3-540-85990-1_21`, for `rician`.

    P. Coupé et al., "Nonlocal means-based speckle filtering for ultrasound images", IEEE Trans.
    Image Process. 18 (2009), 2221-2229, for the Pearson distance.

    Examples
    --------
    >>> out = nl_means(image, sigma=20)                              # doctest: +SKIP
    >>> out = nl_means(stack, axes="TYX", profile="fine")            # doctest: +SKIP
    >>> out = nl_means(stack, axes="TYX", profile="video")           # doctest: +SKIP
    """
    return denoised(
        image,
        NLMeans.of(settings, profile=profile, **changes),
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
