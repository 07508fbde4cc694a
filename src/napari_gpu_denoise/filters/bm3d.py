"""BM3D: collaborative filtering of groups of similar patches in a transform domain."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from napari_gpu_denoise.axes import channel_axis
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.call import denoised
from napari_gpu_denoise.filters.channel_mix import ChannelMix
from napari_gpu_denoise.filters.group_filter import (
    PATCH,
    STACK_TRANSFORMS,
    TRANSFORMS,
    GroupFilter,
    GroupSettings,
    Noisy,
    Pixels,
    spread,
)
from napari_gpu_denoise.filters.patch_search import SearchSettings
from napari_gpu_denoise.filters.settings import Settings, setting
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.pipeline import TileSigma
from napari_gpu_denoise.tiles import Reach, Tile

GROUPS = (1, 2, 4, 8, 16, 32)

# Step of the reference patches that matches are smoothed with.
PREFILTER_STEP = 2


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
    return setting(default, help, bounds=(1, 101), unit="pixels", advanced=True)


def _neighbours(default: int, of: str):
    return setting(
        default, f"Most patches in a group {of}", choices=GROUPS, unit="patches", advanced=True
    )


def _transform(default: str, of: str):
    return setting(default, f"Transform of a patch {of}", choices=TRANSFORMS, advanced=True)


def _stack(default: str, of: str):
    help = f"Transform along the stack of patches {of}"
    return setting(default, help, choices=STACK_TRANSFORMS, advanced=True)


def _similar(default: float, of: str):
    return setting(
        default,
        f"Largest mean squared difference of patches in a group {of}",
        bounds=(0.0, 1000.0),
        unit="sigma squared",
        advanced=True,
    )


_BASIC, _FINAL = "in the first pass", "in the second pass"


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
            "wiener": 1.0,
        },
        "high": {"step_basic": 2, "step_final": 2},
    }

    stages: str = setting(
        "both", "Both passes, or the first one alone: quicker, less good", choices=("both", "basic")
    )
    threshold: float = setting(
        2.7,
        "Coefficients below this are removed in the first pass",
        bounds=(0.0, 10.0),
        unit="sigma",
    )
    wiener: float = setting(
        0.9,
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
    step_basic: int = _step(3, _BASIC)
    step_final: int = _step(3, _FINAL)
    window_basic: int = _window(39, _BASIC)
    window_final: int = _window(39, _FINAL)
    neighbours_basic: int = _neighbours(16, _BASIC)
    neighbours_final: int = _neighbours(32, _FINAL)
    transform_basic: str = _transform("bior1.5", _BASIC)
    transform_final: str = _transform("dct", _FINAL)
    stack_basic: str = _stack("haar", _BASIC)
    stack_final: str = _stack("haar", _FINAL)
    similar_basic: float = _similar(25.0, _BASIC)
    similar_final: float = _similar(16.0, _FINAL)
    kaiser: float = setting(
        2.0,
        "Beta of the Kaiser window that estimates are joined with",
        bounds=(0.0, 20.0),
        advanced=True,
    )
    prefilter: str = setting(
        "auto",
        "Match on smoothed patches in the first pass; auto does so where noise is strong",
        choices=("auto", "on", "off"),
        advanced=True,
    )
    prefilter_threshold: float = setting(
        2.0,
        "Coefficients below this are removed by that smoothing",
        bounds=(0.0, 10.0),
        unit="sigma",
        advanced=True,
    )
    shared_noise: bool = setting(
        True,
        "Allow for noise that overlapping patches share, in the first pass; with Haar stacks only",
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
        axis = channel_axis(names)
        count = 1 if axis is None else shape[axis]
        channels = self.channels
        if channels == "auto":
            channels = "opponent" if count == 3 and names[axis] == "S" else "separate"
        if channels == "opponent" and count != 3:
            raise SettingsError(
                f"channels='opponent' needs three channels, red, green and blue, but there are "
                f"{count}: use channels='joint' or 'separate'."
            )
        if channels == "joint" and count == 1:
            channels = "separate"
        if channels == "joint" and self.guide >= count:
            raise SettingsError(
                f"guide={self.guide} is not one of the {count} channels: choose from 0 to "
                f"{count - 1}, or -1 for all."
            )
        return replace(self, channels=channels)

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
        shared = self.shared_noise and self.stack_basic == "haar"
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
                shared_noise=shared and name == "basic",
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


class Plan:
    """Kernels and buffers of BM3D on one device; belongs to one thread.

    Parameters
    ----------
    settings : BM3D
        What to run, for one array (see `BM3D.for_array`).
    arena : Arena
        Keeps the buffers.
    variants : dict, optional
        What to give `GroupFilter` for a pass, by its name.
    """

    def __init__(self, settings: BM3D, arena: Arena, variants: dict[str, dict] | None = None):
        self.settings = settings
        self.arena = arena
        variants = variants or {}
        self.passes = {
            name: GroupFilter(one, arena, **variants.get(name, {}))
            for name, one in settings.passes.items()
        }
        opponent = settings.channels == "opponent"
        self._mix = ChannelMix(opponent, settings.guide, arena) if settings.joint else None

    def enqueue(self, queue, tile: Tile, source, out, sigma: TileSigma) -> list[tuple[str, Any]]:
        """Enqueue the filter for one tile; return the launches by name."""
        launches: list[tuple[str, Any]] = []
        whole = spread(tile, max(tile.source_shape))
        noisy = Noisy(
            Pixels(source, whole),
            sigma.levels,
            None if sigma.variation is None else Pixels(sigma.variation, whole),
        )
        if self._mix is not None:
            noisy = self._mix.begin(queue, noisy, launches)
        # What each pass must yield for the next one, from the last to the first.
        yields, wanted = {}, tile
        for name in reversed(self.passes):
            yields[name] = wanted
            wanted = spread(wanted, self.passes[name].settings.reach)

        searched = guide = self._guide(queue, noisy, "noisy", launches)
        basic = None
        for name, one in self.passes.items():
            target, given = yields[name], noisy
            if name == "prefilter":
                target, given = replace(target, channels=1), guide
            found = replace(one.find(queue, target, searched.pixels), levels=searched.levels)
            mixed = self._mix is not None and self._mix.opponent
            straight = name == self._last and not mixed
            count = target.channels * math.prod(target.shape)
            buffer = out if straight else self.arena.buffer(f"{name} estimate", 4 * count)
            made = Pixels(buffer, target)
            steps = one.enqueue(queue, target, found, given, basic, made.buffer)
            launches += [(f"{name} {step}", event) for step, event in steps]
            if name == "prefilter":
                searched = replace(guide, pixels=made)
                continue
            basic = made
            if name != self._last:
                searched = self._guide(queue, replace(noisy, pixels=made), name, launches)
        if self._mix is not None and self._mix.opponent:
            self._mix.end(queue, replace(noisy, pixels=basic), out, launches)
        return launches

    @property
    def _last(self) -> str:
        return list(self.passes)[-1]

    def _guide(self, queue, image: Noisy, name: str, launches: list) -> Noisy:
        return image if self._mix is None else self._mix.guide(queue, image, name, launches)


def bm3d(
    image,
    sigma=None,
    *,
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
):
    """Denoise by BM3D."""
    return denoised(
        image,
        BM3D.of(settings, profile=profile, **changes),
        sigma,
        axes=axes,
        dtype=dtype,
        nonfinite=nonfinite,
        device=device,
        memory_limit=memory_limit,
        progress=progress,
        cancel=cancel,
    )
