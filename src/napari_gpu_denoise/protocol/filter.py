"""The base class of all filters: what a run needs to know about a filter, with defaults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

from napari_gpu_denoise.errors import AxesError, SettingsError
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.noise.models import NoiseModel
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.plan import FramePlan, TilePlan
from napari_gpu_denoise.protocol.settings import Settings, setting_fields
from napari_gpu_denoise.protocol.tiles import Reach

if TYPE_CHECKING:
    from napari_gpu_denoise.noise.record import NoiseEstimate


@dataclass(frozen=True)
class Context:
    """What a filter is prepared for; what is not known yet has its default.

    Attributes
    ----------
    names, shape : str, tuple of int
        Axes of the array, as `check_axes` returns them, and its shape.
    noise : tuple of NoiseModel
        One for all channels, or one for each; none where sigma is all that is known.
    image : array, optional
        The pixels, with these axes; may be lazy, and hold NaN where there is no image.
    strength : float
        How many times as strong as it is the noise is to be treated.
    """

    names: str
    shape: tuple[int, ...]
    noise: tuple[NoiseModel, ...] = ()
    image: Any = None
    strength: float = 1.0

    @cached_property
    def channels(self) -> int:
        """Number of channels."""
        axis = channel_axis(self.names)
        return 1 if axis is None else self.shape[axis]

    @property
    def rgb(self) -> bool:
        """Whether the channels are red, green and blue."""
        axis = channel_axis(self.names)
        return axis is not None and self.names[axis] == "S" and self.channels == 3


@dataclass(frozen=True)
class Filter(Settings):
    """A filter: its settings, the fields of a frozen dataclass, and what follows from them.

    A subclass sets `name`, `title` and `summary`, declares its settings with `setting`, and
    overrides `plan` and everything else that differs from the defaults below. Nothing except `plan`
    uses a device. `prepare` makes every choice that depends on an image.

    Attributes
    ----------
    name : str
        Name of the function and of the command, such as ``"bm3d"``.
    title : str
        Name to display, such as ``"BM3D"``.
    summary : str
        One line for menus and ``--help``.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    summary: ClassVar[str]

    # No settings, but what `prepare` finds out: the noise that the filter accounts for itself, one
    # model for all channels or one for each, and notes on choices for the record.
    noise: tuple[NoiseModel, ...] = field(default=(), kw_only=True, repr=False)
    notes: tuple[str, ...] = field(default=(), kw_only=True, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.noise, tuple):  # pyright: ignore[reportUnnecessaryIsInstance] untyped callers
            raise SettingsError(
                "noise is not a setting of a filter",
                "give it to the function that filters, as denoise(image, filter, noise=...)",
            )

    def prepare(self, context: Context) -> Self:
        """Return the filter for an array: with every choice that what is known of it allows.

        A setting for an axis of length 1 gets its default, so that the result is the same as
        without that axis, to the last bit. Override to choose more, and call this first. A filter
        that is prepared already may be prepared again, when more is known.

        Raises
        ------
        AxesError
            If a setting needs an axis that the array does not have.
        SettingsError
            If the settings do not fit the array otherwise.
        """
        if len(self.noise) not in (0, 1, context.channels):
            raise SettingsError(
                f"{len(self.noise)} noise models were given for {context.channels} channels: give "
                "one, or one for each channel."
            )
        unused, names = {}, context.names
        for spec in setting_fields(self):
            axis, value = spec.metadata["needs_axis"], getattr(self, spec.name)
            if axis is None or value == spec.default:
                continue
            if axis not in names:
                raise AxesError(
                    f"{spec.name}={value} needs an axis {axis}, but the axes are {names!r}",
                    f"name them, as axes='{axis}YX'",
                    code="axis-needed",
                    axis=axis,
                )
            if context.shape[names.index(axis)] == 1 and not spec.default:
                unused[spec.name] = spec.default
        return replace(self, **unused) if unused else self

    # Axes and array.

    @property
    def joint(self) -> str:
        """Axes filtered together with Y and X: any of C (channels), T and Z. Default: none."""
        return ""

    @property
    def over_time(self) -> bool:
        """Whether frames are filtered in order by a `FramePlan`, each uploaded once.

        Otherwise the array is cut into tiles. Default: False.
        """
        return False

    @property
    def reach(self) -> Reach:
        """How far around a pixel the filter looks: the margin of a tile. Default: nowhere."""
        return Reach()

    @property
    def smallest(self) -> int:
        """Smallest height and width; smaller planes are extended by mirroring. Default: 1 pixel."""
        return 1

    def reach_along(self, axis: str) -> tuple[int, int]:
        """Return how far the filter looks before and after a pixel along a named axis."""
        if axis not in "YX" and not (axis in "TZ" and axis in self.joint):
            return 0, 0
        reach = self.reach
        return {"T": reach.t, "Z": reach.z, "Y": reach.y, "X": reach.x}[axis]

    def uncut_axes(self, names: str) -> set[int]:
        """Return the axes along which an image is never cut into parts.

        These are channels that are filtered together, and those that are `read_whole`.
        """
        channel = channel_axis(names) if "C" in self.joint else None
        uncut = {i for i, letter in enumerate(names) if letter in self.read_whole}
        return uncut if channel is None else uncut | {channel}

    @property
    def read_whole(self) -> str:
        """Axes read whole whatever part is yielded.

        Frames over time are compared in brightness as a whole, and checked for being empty.
        """
        return "" if not self.over_time else "ZYX" if self.whole_volumes else "YX"

    # Noise.

    @property
    def sigma_unused(self) -> str:
        """Why the filter needs no sigma, in words for the record. Default: empty, it needs one.

        No noise is measured for such a filter. A sigma of 0 still marks pixels to leave unchanged.
        """
        return ""

    @property
    def keeps_zero(self) -> bool:
        """Whether to keep offsets in grey levels, because ratios matter. Default: False."""
        return False

    def estimate_sigma(self, image: Any, names: str) -> NoiseEstimate | None:
        """Measure the noise as this filter defines it; None to use the general estimate."""
        return None

    def takes(self, models: Sequence[NoiseModel]) -> bool:
        """Return whether the filter handles noise of these models itself. Default: False.

        There is one model per channel, or one for all. Noise that depends on brightness is
        otherwise stabilised before the filter; so it is if the models describe correlation, too.
        Settings for another kind of noise raise `SettingsError`.
        """
        return False

    @property
    def keeps_sigma(self) -> bool:
        """Whether `prepare` makes the filter stronger, as sigma is unused, or needed as it is.

        Default: False, sigma is multiplied by the strength.
        """
        return False

    # Result and brightness over time.

    @property
    def yields_map(self) -> bool:
        """Whether the result is a map of other numbers than grey levels, such as classes."""
        return False

    @property
    def compares_brightness(self) -> bool:
        """Whether the brightness of frames is compared, to correct for bleaching and flicker."""
        return False

    @property
    def whole_volumes(self) -> bool:
        """Whether frames over time are volumes that are compared in brightness as a whole.

        They are then never cut into chunks along Z. Default: False.
        """
        return False

    # Cost.

    @property
    def operations_per_pixel(self) -> float:
        """Arithmetic operations per pixel, to limit the time of a tile on a CPU. Default: 1000."""
        return 1000.0

    @property
    def operations_per_launch(self) -> float:
        """The same for the longest launch, so that display drivers do not abort it."""
        return self.operations_per_pixel

    # How it runs.

    @property
    def uses(self) -> tuple[str, ...]:
        """The filters that a device is tested with before the run. Default: this one."""
        return (self.name,)

    def denoised(self, image: Any, run: Any, out: Any, ledger: Any, progress: Any) -> Any:
        """Return the `Result` of a run on an `Input`, made by runs of other filters.

        Default: None, the filter has a `plan`.
        """
        return None

    def plan(self, arena: Arena) -> TilePlan | FramePlan:
        """Return the plan that runs this filter in one thread, with buffers from `arena`."""
        raise NotImplementedError(f"{type(self).__name__} has no plan")
