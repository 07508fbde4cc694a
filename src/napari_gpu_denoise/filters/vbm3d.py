"""VBM3D: BM3D for videos, whose groups are gathered along the motion."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from napari_gpu_denoise.axes import UNNAMED
from napari_gpu_denoise.errors import AxesError, SettingsError
from napari_gpu_denoise.filters import pass_fields
from napari_gpu_denoise.filters.call import denoised
from napari_gpu_denoise.filters.channel_settings import settled_channels
from napari_gpu_denoise.filters.group_settings import PATCH, GroupSettings
from napari_gpu_denoise.filters.pass_fields import BASIC, FINAL
from napari_gpu_denoise.filters.predictive_search import VideoSearch
from napari_gpu_denoise.filters.settings import Settings, setting
from napari_gpu_denoise.filters.vbm3d_plan import Plan
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.tiles import Reach

# Without later frames a frame gets estimates from its own references alone: it takes more of them.
_STEPS = {"basic": 6, "final": 4}
_STEPS_ALONE = {"basic": 2, "final": 3}


def _step(of: str):
    name = "basic" if of == BASIC else "final"
    return setting(
        0,
        f"Spacing of the reference patches {of}; 1 is best and slowest, 0 is {_STEPS[name]}, or "
        f"{_STEPS_ALONE[name]} without later frames",
        bounds=(0, PATCH),
        unit="pixels",
        advanced=True,
    )


def _still(default: float, of: str):
    return setting(
        default,
        f"Taken off the mean squared difference of a patch that has not moved {of}",
        bounds=(0.0, 100.0),
        unit="sigma squared",
        advanced=True,
    )


@dataclass(frozen=True)
class VBM3D(Settings):
    """Settings of VBM3D.

    Patches are followed from frame to frame, forward and backward, and filtered together: by a
    threshold in the first pass, by a Wiener filter told by the first result in the second.
    """

    name: ClassVar[str] = "vbm3d"
    title: ClassVar[str] = "VBM3D"
    summary: ClassVar[str] = "BM3D for time-lapses: follows what moves; the best quality over time"
    presets: ClassVar[dict[str, dict]] = {
        "normal": {},
        "fast": {"step_basic": 8, "step_final": 6, "frames_before": 2, "frames_after": 2},
        "high": {
            **{"step_basic": 4, "step_final": 3, "coarse": 1},
            **{"neighbours_basic": 16, "neighbours_final": 16},
        },
    }

    frames_before: int = setting(
        4, "Earlier frames searched as well", bounds=(0, 16), unit="frames", needs_axis="T"
    )
    frames_after: int = setting(
        4,
        "Later frames searched as well; 0 filters without delay",
        bounds=(0, 16),
        unit="frames",
        needs_axis="T",
    )
    stages: str = setting(
        "both", "Both passes, or the first one alone: quicker, less good", choices=("both", "basic")
    )
    threshold: float = setting(
        3.0,
        "Coefficients below this are removed in the first pass",
        bounds=(0.0, 10.0),
        unit="sigma",
    )
    wiener: float = setting(
        1.0,
        "Noise that the Wiener filter of the second pass is told of",
        bounds=(0.0, 10.0),
        unit="sigma",
    )
    flicker: bool = setting(
        True, "Allow for bleaching and flicker: brightness that changes from frame to frame"
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
    window: int = setting(
        5,
        "Full width of the search window in the frame of a reference patch (odd)",
        bounds=(1, 39),
        unit="pixels",
        advanced=True,
    )
    motion: bool = setting(
        True,
        "Follow motion: look further around in the next frame, then where things move on to",
    )
    window_nearest: int = setting(
        15,
        "Full width of the search window in the frames beside it, with motion (odd)",
        bounds=(1, 39),
        unit="pixels",
        advanced=True,
    )
    coarse: int = setting(
        2,
        "Spacing of the displacements tried first in that window, with motion; 1 tries all",
        bounds=(1, 4),
        unit="pixels",
        advanced=True,
    )
    window_next: int = setting(
        5,
        "Full width of the search windows in the other frames (odd)",
        bounds=(1, 15),
        unit="pixels",
        advanced=True,
    )
    per_frame: int = setting(
        2, "Most patches kept of each frame", bounds=(1, 8), unit="patches", advanced=True
    )
    step_basic: int = _step(BASIC)
    step_final: int = _step(FINAL)
    neighbours_basic: int = pass_fields.neighbours(8, BASIC)
    neighbours_final: int = pass_fields.neighbours(8, FINAL)
    transform_basic: str = pass_fields.transform("dct", BASIC)
    transform_final: str = pass_fields.transform("dct", FINAL)
    stack_basic: str = pass_fields.stack("haar", BASIC)
    stack_final: str = pass_fields.stack("haar", FINAL)
    similar_basic: float = pass_fields.similar(5.0, BASIC)
    similar_final: float = pass_fields.similar(2.0, FINAL)
    still_basic: float = _still(0.12, BASIC)
    still_final: float = _still(0.02, FINAL)
    kaiser: float = setting(
        2.0,
        "Beta of the Kaiser window that estimates are joined with",
        bounds=(0.0, 4.0),
        advanced=True,
    )
    shared_noise: bool = setting(
        False,
        "Allow for the noise that overlapping patches of a group share; in Haar stacks only",
        advanced=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("window", "window_nearest", "window_next"):
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
        """Which axes are filtered together with Y and X: time, and channels that share matches."""
        return "CT" if self.channels in ("opponent", "joint") else "T"

    def for_array(self, names: str, shape: tuple[int, ...]) -> VBM3D:
        """Return the settings for an array: colour is known by its axes.

        Raises
        ------
        AxesError
            If there is no time, but an axis that may be.
        SettingsError
            If its channels do not fit the settings.
        """
        unnamed = [n for a, n in zip(names, shape, strict=True) if a == UNNAMED and n > 1]
        if "T" not in names and unnamed:
            raise AxesError(
                "VBM3D follows what it finds through time, but no axis is named T: name the axes, "
                "as axes='TYX'."
            )
        return replace(self, channels=settled_channels(self, names, shape))

    @property
    def steps(self) -> dict[str, int]:
        """Spacing of the reference patches in each pass."""
        chosen = {"basic": self.step_basic, "final": self.step_final}
        ordinary = _STEPS if self.frames_after else _STEPS_ALONE
        return {name: step or ordinary[name] for name, step in chosen.items()}

    @property
    def passes(self) -> dict[str, GroupSettings]:
        """The passes, in their order: ``"basic"``, ``"final"``."""
        passes = {}
        for name in ("basic", "final") if self.stages == "both" else ("basic",):
            passes[name] = GroupSettings(
                VideoSearch(
                    PATCH,
                    self.steps[name],
                    self.window,
                    self.window_next,
                    self.per_frame,
                    getattr(self, f"neighbours_{name}"),
                    (self.frames_before, self.frames_after),
                    getattr(self, f"still_{name}"),
                    self.window_nearest if self.motion else 0,
                    self.coarse,
                    getattr(self, f"similar_{name}"),
                ),
                getattr(self, f"transform_{name}"),
                getattr(self, f"stack_{name}"),
                similar=getattr(self, f"similar_{name}"),
                threshold=self.threshold if name == "basic" else self.wiener,
                wiener=name == "final",
                kaiser=self.kaiser,
                shared_noise=self.shared_noise and getattr(self, f"stack_{name}") == "haar",
            )
        return passes

    @property
    def reach(self) -> Reach:
        """How far around a pixel, in space and time, the filter looks."""
        passes = self.passes.values()
        around = sum(one.reach for one in passes)
        before = len(passes) * (self.frames_before + self.frames_after)
        after = len(passes) * (min(self.frames_before, self.frames_after) + self.frames_after)
        return Reach((before, after), (0, 0), (around, around), (around, around))

    def rings(self, batch: int) -> tuple[int, int]:
        """Return how many frames the rings of images, and of sums, must hold for a batch."""
        late = min(self.frames_before, self.frames_after)
        sums = batch + late + self.frames_after
        return sums + self.frames_after + self.frames_before, sums

    def frame_bytes(self, batch: int) -> float:
        """Return device bytes a pixel of a frame, beside input and output, for a batch."""
        passes = self.passes.values()
        images, sums = self.rings(batch)
        matches = max(8 * one.search.neighbours / one.search.step**2 for one in passes)
        rings = len(passes) * (4 * images + 8 * sums)
        guide = 4 * images * len(passes) if "C" in self.joint else 0
        return rings + guide + batch * (matches + 12)

    @property
    def bytes_per_pixel(self) -> float:
        """Device bytes a pixel of a frame needs beside its input and output."""
        return self.frame_bytes(1)

    @property
    def operations_per_pixel(self) -> float:
        """Arithmetic of the searches and of the transforms."""
        return sum(sum(self._operations(one)) for one in self.passes.values())

    @property
    def operations_per_launch(self) -> float:
        """The longest search, or the longest filtering of groups."""
        return max(max(self._operations(one)) for one in self.passes.values())

    @staticmethod
    def _operations(one: GroupSettings) -> tuple[float, float]:
        compared = 2.0 * one.search.candidates * PATCH**2 / one.search.step**2
        return compared, one.operations_per_pixel[1]

    def plan(self, arena: Arena) -> Plan:
        """Return what runs this filter on one device, from one thread."""
        return Plan(self, arena)


def vbm3d(
    image,
    sigma=None,
    *,
    noise=None,
    profile: str | None = None,
    axes: str | None = None,
    settings: VBM3D | None = None,
    dtype=None,
    nonfinite: str = "raise",
    device=None,
    memory_limit: int | None = None,
    progress=None,
    cancel=None,
    **changes,
) -> np.ndarray:
    """Denoise a time-lapse by VBM3D, BM3D whose groups follow what moves.

    Parameters
    ----------
    image : array_like
        Pixels of any real type, with an axis T. Never modified.
    sigma : float, array_like or None, optional
        Standard deviation of the noise in grey levels of the image: one value, one a channel, one
        a plane (so one a frame), or a map of shape (ny, nx); see `denoise`. None measures the
        noise (see `noise`); where it is 0 the image comes back unchanged.
    noise : NoiseModel, NoiseEstimate, str or float, optional
        A model of the noise, one a channel or one for all; what `estimate_noise` returned; the name
        of a model, such as ``"gaussian"``, to measure its parameters; or ``"auto"``, the default
        without `sigma`, to measure which it is; see `denoise`. A `sigma` that is given wins.
    profile : {"normal", "fast", "high"}, optional
        Settings to start from, by default ``"normal"``; single ones given as keywords win.
        ``"fast"`` looks at two frames before and after, takes half the time on a GPU and loses
        about 0.4 dB; ``"high"`` takes four times as long and gains up to 0.6 dB in strong noise.
    axes : str, optional
        Names of the axes, such as ``"TYX"``, ``"TZYX"`` (every slice is a video of its own),
        ``"TCYX"`` or ``"TYXS"``. Every axis but T, Y and X is independent, but for channels (see
        `channels`). Without T, axes that have no name are refused, as one of them may be time.
    settings : VBM3D, optional
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
        Called as ``progress(done, total)`` with numbers of frames.
    cancel : object with ``is_set()``, optional
        An event that stops the run after the next frames.
    **changes
        Fields of `VBM3D`, among them `frames_before` and `frames_after` (4 frames; with
        ``frames_after=0`` a frame depends on earlier ones alone), `stages` (``"both"``;
        ``"basic"`` returns the first pass alone), `threshold` (3.0 sigma), `wiener` (1.0 sigma),
        `flicker` (True: allow for brightness that changes from frame to frame), `motion` (True:
        follow motion), `channels` (``"auto"``), `window` (5 pixels), `window_nearest` (15 pixels),
        `window_next` (5 pixels), `step_basic` and `step_final` (0 pixels: 6 and 4, or 2 and 3
        without later frames), `neighbours_basic` and `neighbours_final` (8), `shared_noise`
        (False).

    Returns
    -------
    ndarray
        A new array of the shape of `image`.

    Raises
    ------
    SettingsError, AxesError, SigmaError, ImageError, NonFiniteError
        If the input does not fit; `AxesError` also if no axis is named T but one may be time.
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
    stream : The same for frames that come one after another, with the same result.
    denoise : The same with a record of what was done, or for some of the frames.
    bm3d : For single images, volumes, and planes that are not in time.
    nl_means : Over time too; without time better on speckle.

    Notes
    -----
    Patches are 8 x 8. Every reference patch is compared with about 350 others of 64 pixels, in
    each of two passes, whatever the size of the frames; there are ``ny * nx / step**2`` of them in
    a frame. Filtering takes about ``1600 * neighbours / step**2`` operations a pixel and pass.
    Device memory does not depend on the number of frames, each of which is sent and filtered once.

    A frame depends on ``2 * (frames_before + frames_after)`` earlier frames and on
    ``2 * (frames_after + min(frames_before, frames_after))`` later ones, 16 and 16 by default:
    that is the delay of a stream. With ``frames_after=0`` there is none.

    Brightness that changes in whole frames, by a gain and an offset, is allowed for and kept.
    Frames of one grey level are neither filtered nor used for others. A frame that is stored twice
    is not recognised: its noise passes for signal, so take it out before.

    Repeated runs on one device are bitwise equal, and so are parts, streams and the whole, for
    integers of 8 and 16 bits.

    References
    ----------
    K. Dabov, A. Foi and K. Egiazarian, "Video denoising by sparse 3D transform-domain
    collaborative filtering", 15th European Signal Processing Conference, EUSIPCO 2007.

    A. Davy and T. Ehret, "GPU acceleration of NL-means, BM3D and VBM3D", Journal of Real-Time
    Image Processing 18 (2020), sections 2.3 and 4.2, :doi:`10.1007/s11554-020-00945-4`.

    Examples
    --------
    >>> out = vbm3d(video, sigma=20, axes="TYX")                       # doctest: +SKIP
    >>> out = vbm3d(video, axes="TYXS", profile="fast")                # doctest: +SKIP
    >>> out = vbm3d(cells, sigma=12, axes="TCYX", frames_after=0)      # doctest: +SKIP
    """
    return denoised(
        image,
        VBM3D.of(settings, profile=profile, **changes),
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
