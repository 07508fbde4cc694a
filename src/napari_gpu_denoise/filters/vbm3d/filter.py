"""VBM3D: BM3D for videos, with groups of patches that follow motion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from napari_gpu_denoise.errors import AxesError
from napari_gpu_denoise.filters.bm3d import groups
from napari_gpu_denoise.filters.bm3d.correlated import (
    SpectralFilter,
    opponent_strengths,
    spectral_models,
)
from napari_gpu_denoise.filters.bm3d.groups import (
    BASIC,
    FINAL,
    PATCH,
    CollaborativeFilter,
    GroupSettings,
)
from napari_gpu_denoise.filters.channels import channels_setting, guide_setting
from napari_gpu_denoise.filters.search.frame_links import FrameSearch, frames_setting
from napari_gpu_denoise.filters.vbm3d.plan import Plan
from napari_gpu_denoise.filters.vbm3d.search import VideoSearch
from napari_gpu_denoise.image.axes import UNNAMED
from napari_gpu_denoise.noise.models import Correlated, NoiseModel
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.settings import setting
from napari_gpu_denoise.protocol.tiles import Reach
from napari_gpu_denoise.run.denoise import filter_function

# Without later frames only its own references estimate a frame: more of them are needed.
_STEPS = {"basic": 4, "final": 4}
_STEPS_ALONE = {"basic": 2, "final": 2}
_KALMAN_WINDOW = 5  # at least: it searches estimates, in which noise misleads less


def _step(of: str):
    name = "basic" if of == BASIC else "final"
    help = (
        f"Spacing of reference patches {of} (1 is slowest and best); 0 chooses {_STEPS[name]}, or "
        f"{_STEPS_ALONE[name]} without later frames"
    )
    return setting(0, help, bounds=(0, PATCH), unit="pixels", advanced=True)


def _window(default: int, most: int, where: str):
    help = f"Search window width {where} (odd)"
    return setting(default, help, bounds=(1, most), unit="pixels", advanced=True, odd=True)


def _still(default: float, of: str):
    help = f"Subtracted from the mean squared difference of a patch that has not moved, {of}"
    return setting(default, help, bounds=(0.0, 100.0), unit="sigma squared", advanced=True)


def _common(default: float, what: str, of: str):
    help = f"{what} for the part that the patches of a group have in common, {of}"
    return setting(default, help, bounds=(0.0, 10.0), unit="sigma", advanced=True)


@dataclass(frozen=True)
class VBM3D(FrameSearch, CollaborativeFilter):
    """Settings of VBM3D.

    Patches are followed from frame to frame, forward and backward, and filtered together: by hard
    thresholding in the first pass, by a Wiener filter based on the first result in the second.
    """

    name: ClassVar[str] = "vbm3d"
    title: ClassVar[str] = "VBM3D"
    summary: ClassVar[str] = "BM3D for time-lapses: follows motion, best quality over time"
    presets: ClassVar[dict[str, dict]] = {
        "normal": {},
        "fast": {"step_basic": 8, "step_final": 6, "frames_before": 2, "frames_after": 2},
        "high": {"step_basic": 3, "step_final": 2, "window_nearest": 19},
        "live": {
            **{"frames_before": 6, "frames_after": 0, "window_nearest": 19},
            **{"threshold": 3.0, "threshold_common": 2.2, "wiener_common": 0.8},
        },
    }

    frames_before: int = frames_setting(4, "Earlier frames to search")
    frames_after: int = frames_setting(4, "Later frames to search; 0 filters without delay")
    stages: str = groups.stages()
    threshold: float = groups.threshold(3.4)
    threshold_common: float = _common(1.8, "Hard threshold", BASIC)
    wiener_sigma: float = groups.wiener_sigma(1.2)
    wiener_common: float = _common(0.7, "Noise level assumed by the Wiener filter", FINAL)
    flicker: bool = setting(True, "Correct for bleaching and flicker between frames")
    channels: str = channels_setting("with shared patch matches")
    guide: int = guide_setting("used for joint matching")
    window: int = _window(3, 39, "in the frame of the reference patch")
    motion: bool = setting(
        True, "Follow motion: search wider in adjacent frames, then along the path found"
    )
    blocks: bool = setting(
        True,
        "Follow the motion of blocks of 24 x 24 pixels, instead of that of each patch",
        advanced=True,
    )
    window_nearest: int = _window(15, 39, "in adjacent frames, when following motion")
    coarse: int = setting(
        2,
        "Spacing of the first search in adjacent frames, if each patch is followed separately; 1 "
        "tries every position",
        bounds=(1, 4),
        unit="pixels",
        advanced=True,
    )
    window_next: int = _window(3, 15, "in the other frames")
    per_frame: int = setting(
        2,
        "Maximum number of matches kept in each frame",
        bounds=(1, 8),
        unit="patches",
        advanced=True,
    )
    step_basic: int = _step(BASIC)
    step_final: int = _step(FINAL)
    neighbours_basic: int = groups.neighbours(8, BASIC)
    neighbours_final: int = groups.neighbours(8, FINAL)
    transform_basic: str = groups.transform("bior1.5", BASIC)
    transform_final: str = groups.transform("dct", FINAL)
    kalman: bool = setting(
        True, "Without later frames: filter from frame to frame between the passes", advanced=True
    )
    stack_basic: str = groups.stack("haar", BASIC)
    stack_final: str = groups.stack("haar", FINAL)
    similar_basic: float = groups.similar(5.0, BASIC)
    similar_final: float = groups.similar(2.0, FINAL)
    still_basic: float = _still(0.12, BASIC)
    still_final: float = _still(0.02, FINAL)
    kaiser: float = groups.kaiser(1.0)
    shared_noise: bool = groups.shared_noise(False)

    @property
    def over_time(self) -> bool:
        """Always: frames are filtered in order."""
        return True

    @property
    def joint(self) -> str:
        """Time, and channels that share matches."""
        return super().joint + "T"

    def for_array(self, names: str, shape: tuple[int, ...]) -> VBM3D:
        """Return the settings for an array; refuse one with an unnamed axis that may be time."""
        fitting = super().for_array(names, shape)
        unnamed = [n for a, n in zip(names, shape, strict=True) if a == UNNAMED and n > 1]
        if "T" not in names and unnamed:
            raise AxesError(
                "VBM3D needs a time axis, but no axis is named T",
                "name the axes, as axes='TYX'",
                code="axis-needed",
                axis="T",
            )
        return fitting

    @property
    def steps(self) -> dict[str, int]:
        """Spacing of the reference patches in each pass, with 0 replaced by the default."""
        chosen = {"basic": self.step_basic, "final": self.step_final}
        ordinary = _STEPS if self.frames_after else _STEPS_ALONE
        return {name: step or ordinary[name] for name, step in chosen.items()}

    @property
    def passes(self) -> dict[str, GroupSettings]:
        """The passes, in order: ``"basic"``, ``"kalman"`` where it is of use, ``"final"``."""
        passes = {}
        for name in self._pass_names():
            search = VideoSearch(
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
                self.motion and self.blocks and max(self.frames_before, self.frames_after) > 0,
            )
            if name == "final" and self.kalman and self.frames_before and not self.frames_after:
                wide = max(self.window_next, _KALMAN_WINDOW)
                one_each = replace(search, step=2, kept=1, neighbours=4, following=wide)
                passes["kalman"] = self._pass(name, one_each, kalman=True, shared_noise=False)
            common = self.threshold_common if name == "basic" else self.wiener_common
            passes[name] = self._pass(name, search, common=common)
        return passes

    @property
    def reach(self) -> Reach:
        """The sum over the passes, in space and time."""
        passes = self.passes.values()
        around = sum(one.reach for one in passes)
        before = len(passes) * (self.frames_before + self.frames_after)
        after = len(passes) * (min(self.frames_before, self.frames_after) + self.frames_after)
        return Reach((before, after), (0, 0), (around, around), (around, around))

    def plan(self, arena: Arena, variants: dict[str, dict[str, Any]] | None = None) -> Plan:
        """Return the plan for one device; `variants` as `Plan` takes them."""
        return Plan(self.passes, self.channels, self.guide, arena, variants)

    def for_noise(self, models: Sequence[NoiseModel]) -> VBM3D | None:
        """Return a `CorrelatedVBM3D`, or what `BM3D.for_noise` does for other noise."""
        found = spectral_models(models)
        if not found:
            return None if found is None else self
        # Patches of a frame share far more of correlated noise than of white.
        return CorrelatedVBM3D(**{**vars(self), "shared_noise": True}, models=found)


@dataclass(frozen=True)
class CorrelatedVBM3D(SpectralFilter, VBM3D):
    """VBM3D for correlated noise, made by `VBM3D.for_noise`: sigma is that of each coefficient."""

    # Not a setting: one noise model for all channels, or one for each.
    models: tuple[Correlated, ...] = field(kw_only=True)

    def plan(self, arena: Arena, variants: dict[str, dict[str, Any]] | None = None) -> Plan:
        """Return the plan for one device; `variants` as `Plan` takes them."""
        strengths = opponent_strengths(self.models)
        return Plan(self.passes, self.channels, self.guide, arena, variants, strengths)


@filter_function(VBM3D)
def vbm3d() -> np.ndarray:
    """Denoise a time-lapse by VBM3D, BM3D whose groups follow motion.

    Parameters
    ----------
    {inputs}
    profile : {"normal", "fast", "high", "live"}, optional
        Settings to start from, by default ``"normal"``; settings given as keywords override it.
        ``"fast"`` uses two frames before and after, takes 0.6 of the time on a GPU and loses 0.3 to
        2 dB; ``"high"`` takes 2.4 times as long and gains 0.1 to 1.2 dB; ``"live"`` uses only
        earlier frames, so there is no delay, and loses 0.6 dB or more.
    axes : str, optional
        Names of the axes, such as ``"TYX"``, ``"TZYX"`` (every slice is a video of its own),
        ``"TCYX"`` or ``"TYXS"``. Every axis except T, Y and X is independent, except channels (see
        `channels`). Without T, axes without a name are rejected, because one of them may be time.
    {settings}
    {options}
    {fields}

    {outcome}

    See Also
    --------
    stream : The same for frames that arrive one by one, with the same result.
    denoise : The same with a record of the run, or for some of the frames.
    bm3d : For single images, volumes, and planes that are not a time series.
    nl_means : Also filters over time; better on speckle in single images.

    Notes
    -----
    In each pass, each of ``ny * nx / step**2`` patches of a frame is compared with about 80 others.
    Filtering takes about ``1600 * neighbours / step**2`` operations per pixel and pass.

    A frame depends on ``2 * (frames_before + frames_after)`` earlier frames and on
    ``2 * (frames_after + min(frames_before, frames_after))`` later ones, 16 and 16 by default:
    the delay of a stream. With ``frames_after=0`` there is none, and ``3 * frames_before`` earlier.

    Changes of brightness of whole frames, by a gain and an offset, are accounted for and kept.
    Constant frames are neither filtered nor used for others. Of identical frames only the nearest
    one is used, because copies contain the same noise. For correlated noise, thresholds and weights
    follow the variance of each coefficient, as in `bm3d`; noise shared by patches of a frame is
    then always accounted for. Repeated runs on one device are bit-identical, and so are parts,
    streams and the whole, for integers of 8 and 16 bits.

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
