"""The isoline filter: means along lines of equal grey level."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.call import denoised
from napari_gpu_denoise.filters.channel_settings import settled_channels
from napari_gpu_denoise.filters.isoline_margins import Margins
from napari_gpu_denoise.filters.isoline_patterns import DIRECTIONS
from napari_gpu_denoise.filters.isoline_plan import Plan
from napari_gpu_denoise.filters.settings import Settings, setting
from napari_gpu_denoise.noise.models import NoiseModel, Speckle
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.tiles import Reach


@dataclass(frozen=True)
class Isoline(Settings):
    """Settings of the isoline filter.

    Every pixel is averaged along the line of equal grey level that it lies on: segments in the
    direction that fits best, followed by those where they end.
    """

    name: ClassVar[str] = "isoline"
    title: ClassVar[str] = "Isoline"
    summary: ClassVar[str] = "Means along lines of equal grey level: quick, for live images"
    presets: ClassVar[dict[str, dict]] = {
        "normal": {},
        "fine": {"staircase": 15},
        "paper": {"choice": "hard", "thickness": 1, "staircase": 0},
    }

    method: str = setting(
        "hybrid",
        "Follow isolines along directions found before (pi-pd), but not where the slope is low "
        "(hybrid), or try all directions at each turn (pi-ld, slow)",
        choices=("hybrid", "pi-pd", "pi-ld"),
    )
    choice: str = setting(
        "soft",
        "Weigh directions and segments by how well they fit, or choose one (hard) as the paper "
        "does; pi-ld always chooses",
        choices=("soft", "hard"),
    )
    length: int = setting(5, "Length of a segment", bounds=(2, 10), unit="pixels")
    pixels: int = setting(25, "Longest isoline", bounds=(2, 100), unit="pixels")
    thickness: int = setting(2, "Thickness of an isoline", bounds=(1, 3), unit="pixels")
    staircase: int = setting(
        11,
        "Full width (odd) of the window of the staircase correction; 0 turns it off",
        bounds=(0, 21),
        unit="pixels",
    )
    channels: str = setting(
        "auto",
        "Each channel on its own, as colours (opponent), or along common isolines (joint); auto is "
        "opponent for RGB, separate for others",
        choices=("auto", "separate", "opponent", "joint"),
    )
    guide: int = setting(
        -1,
        "Channel that common isolines are found in; -1 is the luminance, all weighted by their "
        "noise",
        bounds=(-1, 1000),
        advanced=True,
    )
    criterion: str = setting(
        "additive",
        "Additive noise of standard deviation sigma, or speckle that multiplies the image "
        "(gamma distribution of so many looks; sigma is then not used)",
        choices=("additive", "multiplicative"),
    )
    looks: float = setting(
        4.0,
        "Number of looks of multiplicative noise: mean squared over variance where nothing varies",
        bounds=(0.1, 10000.0),
        unit="looks",
    )
    softness: float = setting(
        0.1,
        "How much worse than the best a direction may fit and still count (soft)",
        bounds=(0.001, 10.0),
        unit="sigma squared",
        advanced=True,
    )
    t_max: float = setting(
        1.0, "T_max: log-ratio at which an isoline ends (hard)", bounds=(0.0, 1000.0), advanced=True
    )
    t2_max: float = setting(
        2.0,
        "T2_max: log-ratio from which there is an edge (hard, hybrid)",
        bounds=(0.0, 1000.0),
        advanced=True,
    )
    deviation: int = setting(
        2,
        "Most steps of 11.25 degrees that an isoline turns by at the end of a segment (pi-ld)",
        bounds=(0, 16),
        advanced=True,
    )
    show: str = setting(
        "image",
        "Yield the denoised image, or what the filter saw: classes (0 low slope, 1 edge, 2 "
        "isoline) or directions (steps of 11.25 degrees)",
        choices=("image", "classes", "directions"),
        advanced=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.staircase and self.staircase % 2 == 0:
            raise SettingsError(
                f"staircase={self.staircase} has no centre: choose an odd width, or 0 for none."
            )
        if self.pixels < self.length:
            raise SettingsError(
                f"pixels={self.pixels} is less than one segment of {self.length}: choose at least "
                "the length."
            )
        if self.show == "classes" and self.method == "pi-ld":
            raise SettingsError(
                "method='pi-ld' has no classes: choose show='directions' or method='hybrid'."
            )

    @property
    def soft(self) -> bool:
        """Whether directions and segments are weighted."""
        return self.choice == "soft" and self.method != "pi-ld"

    @property
    def steps(self) -> int:
        """Segments that a weighted isoline is extended by each way."""
        return (self.pixels // self.length - 1) // 2

    @property
    def share_beside(self) -> float:
        """Weight of each of the two lines beside a weighted one: with three they are binomial."""
        return (self.thickness - 1) / 8

    @property
    def relative_noise(self) -> float:
        """Standard deviation of multiplicative noise, relative to the mean; 0 if it is additive."""
        return self.looks**-0.5 if self.criterion == "multiplicative" else 0.0

    @property
    def own_noise(self) -> str | None:
        """What the noise is, in words, if not what sigma tells."""
        if self.criterion == "additive":
            return None
        return f"not used: multiplicative noise of {self.looks:g} looks"

    @property
    def yields_map(self) -> bool:
        """Whether what it yields are no grey levels."""
        return self.show != "image"

    @property
    def smallest(self) -> int:
        """Smallest height and width: any."""
        return 1

    @property
    def joint(self) -> str:
        """Which axes are filtered together with Y and X: channels, if they share isolines."""
        return "C" if self.channels in ("opponent", "joint") else ""

    def for_array(self, names: str, shape: tuple[int, ...]) -> Isoline:
        """Return the settings for an array: colour is known by its axes.

        Raises
        ------
        SettingsError
            If its channels do not fit the settings.
        """
        if self.relative_noise == 0:
            return replace(self, channels=settled_channels(self, names, shape))
        # Differences of channels are no grey levels that noise multiplies.
        if self.channels == "opponent":
            raise SettingsError(
                "channels='opponent' does not go with multiplicative noise: use 'separate' or "
                "'joint'."
            )
        wanted = "separate" if self.channels == "auto" else self.channels
        settled = replace(self, channels=wanted)
        return replace(settled, channels=settled_channels(settled, names, shape))

    def for_noise(self, models: tuple[NoiseModel, ...]) -> Isoline | None:
        """Return the settings for speckle, which this filter knows itself; None for other noise."""
        looks = {model.looks for model in models if isinstance(model, Speckle)}
        least, most = type(self).__dataclass_fields__["looks"].metadata["bounds"]
        if len(looks) != 1 or not least <= min(looks) <= most:
            return None
        channels = "separate" if self.channels == "opponent" else self.channels
        return replace(self, criterion="multiplicative", looks=min(looks), channels=channels)

    @property
    def reach(self) -> Reach:
        """How far around a pixel the filter looks."""
        return Margins.of(self).reach

    @property
    def bytes_per_pixel(self) -> float:
        """Device bytes a pixel of a tile needs beside input and output."""
        if not self.soft:
            return 4.0 * 4 + 9
        # Padded pixels, pilot, fitted, lines both ways; residuals and directions by blocks.
        own = 4.0 * 5 + 17.25
        # Of speckle also the logarithm, padded and not; means along lines of both without planes.
        return own + 4.0 * (2 if self.staircase else 3) * (self.relative_noise > 0)

    @property
    def operations_per_pixel(self) -> float:
        """Arithmetic it takes."""
        if self.method == "pi-ld":
            segments = max(self.pixels // self.length, 1) - 1
            return 8.0 * DIRECTIONS * self.length * (1 + segments * (2 * self.deviation + 1))
        lines = 6.0 * DIRECTIONS * self.length * (2 if self.soft else 1)
        return lines + 13.0 * self.staircase**2

    @property
    def operations_per_launch(self) -> float:
        """The same; no launch takes much less."""
        return self.operations_per_pixel

    def plan(self, arena: Arena) -> Plan:
        """Return what runs this filter on one device, from one thread."""
        return Plan(self, arena)


def isoline(
    image,
    sigma=None,
    *,
    noise=None,
    axes: str | None = None,
    settings: Isoline | None = None,
    profile: str | None = None,
    dtype=None,
    nonfinite: str = "raise",
    device=None,
    memory_limit: int | None = None,
    progress=None,
    cancel=None,
    **changes,
) -> np.ndarray:
    """Denoise by means along lines of equal grey level.

    Parameters
    ----------
    image : array_like
        Pixels of any real type, two or more axes. Never modified.
    sigma : float, array_like or None, optional
        Standard deviation of the noise in grey levels of the image: one value, one a channel, one
        a plane, or a map of shape (ny, nx); see `denoise`. None measures the noise (see `noise`);
        where it is 0 the image comes back unchanged. With ``criterion="multiplicative"`` it is not
        used.
    axes : str, optional
        Names of the axes, such as ``"TZYX"``, ``"CYX"`` or ``"YXS"``. Y and X are filtered, every
        plane on its own. By default the last two are Y and X, the rest independent planes.
    settings : Isoline, optional
        Settings to start from; single ones can be given as keywords.
    noise : NoiseModel, NoiseEstimate, str or float, optional
        A model of the noise, one a channel or one for all; what `estimate_noise` returned; the name
        of a model, such as ``"gaussian"``, to measure its parameters; or ``"auto"``, the default
        without `sigma`, to measure which it is; see `denoise`. A `sigma` that is given wins.
    profile : {"normal", "fine", "paper"}, optional
        Settings to start from instead: ``"normal"`` is the defaults, ``"fine"`` is
        ``staircase=15``, ``"paper"`` is the hybrid filter of the paper to the letter,
        ``choice="hard", thickness=1, staircase=0``. Single ones given as keywords win.
    dtype : data type, optional
        Type of the result, by default that of the image. Integers are rounded and saturated.
    nonfinite : {"raise", "keep"}, optional
        Refuse NaN and infinity, or leave them as they are without letting them spread.
    device : Device, int, str or None, optional
        Where to run; by default the best device there is.
    memory_limit : int, optional
        Largest number of bytes of device memory to use.
    progress : callable, optional
        Called as ``progress(done, total)`` with numbers of tiles.
    cancel : object with ``is_set()``, optional
        An event that stops the run at the next tile.
    **changes
        Fields of `Isoline`: `method` (``"hybrid"``, ``"pi-pd"`` or ``"pi-ld"``), `choice`
        (``"soft"``: directions and segments are weighted by how well they fit; ``"hard"``: one is
        chosen, as in the paper), `length` (5 pixels: of a segment), `pixels` (25: longest isoline),
        `thickness` (2 pixels), `staircase` (11 pixels: window of the staircase correction, 0 is
        none), `channels` (``"auto"``: RGB as luminance and chrominance, others each on its own;
        ``"joint"``: along the isolines of the mean of all, or of one, the `guide`), `criterion`
        (``"additive"`` or ``"multiplicative"``: speckle of a gamma distribution) and `looks` (4.0),
        `softness` (0.1 sigma squared), `t_max` (1.0), `t2_max` (2.0), `deviation` (2), `show`
        (``"image"``; what the filter saw is easier to get from `isoline_maps`).

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
    isoline_maps : What the filter saw: classes and directions.
    denoise : The same with a record of what was done.

    Notes
    -----
    Steps of the defaults: in 16 directions, means along lines of ``2 * length + 1`` pixels, and of
    a small window where the slope is low, are weighted by how well they predict the pixels around
    from each other; planes are fitted to the noisy pixels around, weighted by how alike these means
    are (staircase correction); isolines are followed both ways along the directions found, and
    their ends averaged. The work is about ``700 + 15 * staircase**2`` operations a pixel.

    ``choice="hard"`` is the paper, except that the first pixel counts in the mean; sigma is then
    used by the staircase correction alone. ``method="pi-ld"`` always chooses; it is slow, and meant
    for comparison.

    References
    ----------
    G. Perrot, S. Domas, R. Couturier and N. Bertaux, "Fast GPU-based denoising filter using isoline
    levels", 2014, sections 3 to 5.

    A. Buades, B. Coll and J.-M. Morel, "The staircasing effect in neighborhood filters and its
    solution", IEEE Transactions on Image Processing 15 (2006), pages 1499 to 1505.

    Examples
    --------
    >>> out = isoline(image, sigma=20)                                     # doctest: +SKIP
    >>> out = isoline(image, criterion="multiplicative", looks=4)              # doctest: +SKIP
    >>> out = isoline(image, profile="paper")                              # doctest: +SKIP
    """
    return denoised(
        image,
        Isoline.of(settings, profile=profile, **changes),
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
