"""The base class of all filters: every question that a run asks of one, with its default answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar, Self

from napari_gpu_denoise.errors import AxesError
from napari_gpu_denoise.noise.models import NoiseModel
from napari_gpu_denoise.noise.sigma_estimate import SigmaEstimate
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.run.plan import FramePlan, TilePlan
from napari_gpu_denoise.run.settings import Settings
from napari_gpu_denoise.run.tiles import Reach


class Filter(Settings):
    """A filter: its settings, which are the fields of a frozen dataclass, and what they imply.

    A subclass sets `name`, `title` and `summary`, declares its settings with `setting`, and
    overrides `plan` and whatever else differs from the defaults below. Nothing here touches a
    device except `plan`.

    Attributes
    ----------
    name : str
        Name of the function and of the command, such as ``"bm3d"``.
    title : str
        Name for people, such as ``"BM3D"``.
    summary : str
        One line for menus and ``--help``.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    summary: ClassVar[str]

    # What the filter works on.

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
        """Least height and width; smaller planes are extended by mirroring. Default: 1 pixel."""
        return 1

    def for_array(self, names: str, shape: tuple[int, ...]) -> Self:
        """Return the settings that apply to an array.

        A setting that looks along an axis of length 1 gets its default: the result is the same as
        without that axis, to the last bit. Override to decide more, such as how channels are
        joined; call this first.

        Parameters
        ----------
        names : str
            Axes of the array, as `check_axes` returns them.
        shape : tuple of int
            Its shape.

        Raises
        ------
        AxesError
            If a setting looks along an axis that the array does not have.
        SettingsError
            If the settings do not fit the array otherwise.
        """
        unused = {}
        for spec in fields(self):
            axis, value = spec.metadata.get("needs_axis"), getattr(self, spec.name)
            if axis is None or value == spec.default:
                continue
            if axis not in names:
                raise AxesError(
                    f"{spec.name}={value} needs an axis {axis}, but the axes are {names!r}",
                    f"name them, as axes='{axis}YX'",
                    code="axis-needed",
                    axis=axis,
                )
            if shape[names.index(axis)] == 1 and not spec.default:
                unused[spec.name] = spec.default
        return replace(self, **unused) if unused else self

    # Noise.

    @property
    def sigma_unused(self) -> str:
        """Why the filter needs no sigma, in words for the record; empty where it needs one.

        No noise is measured for such a filter, and none is passed to it. A sigma that is given
        still says, by 0, where pixels are to be left as they are. Default: empty.
        """
        return ""

    @property
    def sigma_power(self) -> float:
        """Power of a grey level that sigma has the unit of. Default: 1."""
        return 1.0

    @property
    def keeps_zero(self) -> bool:
        """Whether grey levels must count from 0, because ratios or roots of them are taken.

        No offset is then removed from wide types. Default: False.
        """
        return False

    def estimate_sigma(self, image: Any, names: str) -> SigmaEstimate | None:
        """Measure the noise as this filter defines it; None to use the general estimate."""
        return None

    def for_noise(self, models: Sequence[NoiseModel]) -> Filter | None:
        """Return the filter that handles noise of these models itself.

        Parameters
        ----------
        models : sequence of NoiseModel
            One for all channels, or one a channel.

        Returns
        -------
        Filter or None
            None, the default: noise that depends on brightness is stabilised before the filter.

        Raises
        ------
        SettingsError
            If the settings are for another kind of noise.
        """
        return None

    # What comes out.

    @property
    def yields_map(self) -> bool:
        """Whether the result is not grey levels but numbers of its own, such as classes."""
        return False

    # Brightness over time.

    @property
    def compares_brightness(self) -> bool:
        """Whether frames are compared in brightness, to allow for bleaching and flicker."""
        return False

    # Cost.

    @property
    def operations_per_pixel(self) -> float:
        """Arithmetic a pixel takes: bounds the time of a tile on a CPU. Default: 1000."""
        return 1000.0

    @property
    def operations_per_launch(self) -> float:
        """The same for the longest launch, so that display drivers do not end it."""
        return self.operations_per_pixel

    def plan(self, arena: Arena) -> TilePlan | FramePlan:
        """Return what runs this filter on one device, from one thread; buffers go to `arena`."""
        raise NotImplementedError(f"{type(self).__name__} has no plan")
