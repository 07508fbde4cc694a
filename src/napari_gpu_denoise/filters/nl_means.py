"""Patchwise NL-means (Davy and Ehret 2020, section 2.1, algorithms 1 and 4)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.call import denoised
from napari_gpu_denoise.filters.frame_links import FrameLinks
from napari_gpu_denoise.filters.patch_search import PatchSearch, SearchSettings, Variant
from napari_gpu_denoise.filters.settings import Settings, setting
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.pipeline import TileSigma
from napari_gpu_denoise.tiles import Reach, Span, Tile
from napari_gpu_denoise.video import FrameNote

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
        a plane, or a map of shape (ny, nx); see `denoise`. None estimates it; where it is 0 the
        image comes back unchanged.
    axes : str, optional
        Names of the axes, such as ``"TZYX"``, ``"CYX"`` or ``"YXC"``. Y and X are filtered; T and
        Z join the search only with `frames_before`, `frames_after` or `slices`; every other axis
        is independent. By default the last two are Y and X, the rest independent planes.
    settings : NLMeans, optional
        Settings to start from; single ones can be given as keywords.
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
        brightness that changes from frame to frame), `slices` (0: slices along Z).

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

    References
    ----------
    A. Davy and T. Ehret, "GPU acceleration of NL-means, BM3D and VBM3D", Journal of Real-Time
    Image Processing 18 (2020), section 2.1, algorithms 1 and 4, :doi:`10.1007/s11554-020-00945-4`.

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
        axes=axes,
        dtype=dtype,
        nonfinite=nonfinite,
        device=device,
        memory_limit=memory_limit,
        progress=progress,
        cancel=cancel,
    )


class Plan:
    """Kernels and buffers of NL-means on one device; belongs to one thread.

    Parameters
    ----------
    settings : NLMeans
        What to run.
    arena : Arena
        Keeps the buffers.
    variant : Variant, optional
        The search kernel to use, by default the one that fits the device.
    """

    def __init__(self, settings: NLMeans, arena: Arena, variant: Variant | None = None):
        self.settings = settings
        self.arena = arena
        session = arena.session
        wanted = SearchSettings(
            settings.patch,
            settings.step,
            settings.window,
            settings.neighbours,
            (settings.frames_before, settings.frames_after),
            settings.slices,
        )
        self.search = PatchSearch(wanted, arena, variant)
        constants = self.search.constants
        self.group = _average_group(settings, session.device)
        self._average: dict[bool, Any] = {}  # with and without a map of sigma
        self._aggregate = arena.kernel(
            "nl_means/aggregate_patches", {key: constants[key] for key in ("PATCH", "STEP")}
        )

    def _averaging(self, is_map: bool):
        """Return the averaging kernel, made when it is first needed."""
        if is_map not in self._average:
            own = {"WINDOW": self.settings.window, "SIGMA_MAP": int(is_map)}
            self._average[is_map] = self.arena.kernel(
                "nl_means/average_patches", {**self.search.constants, **own, **self.group}
            )
        return self._average[is_map]

    def enqueue(
        self,
        queue,
        tile: Tile,
        source,
        out,
        sigma: TileSigma,
        ring: tuple[int, int] | None = None,
        alike: Any = None,
        first_out: int = 0,
    ) -> list:
        """Enqueue the filter for one tile.

        Parameters
        ----------
        queue : pyopencl.CommandQueue
            In-order queue.
        tile : Tile
            What is read and what is yielded.
        source, out : pyopencl.Buffer
            float32, of shape ``tile.source_shape`` and ``tile.shape``.
        sigma : TileSigma
            Noise of the frames, or of every pixel.
        ring, alike
            As `PatchSearch.enqueue` takes them.
        first_out : int, optional
            Frames (t, z) in `out` before those of this tile.

        Returns
        -------
        list of (str, pyopencl.Event)
            The launches, by name, for whoever times them.
        """
        i32, f32, settings = np.int32, np.float32, self.settings
        matches = self.search.enqueue(queue, tile, source, ring, alike)
        nt, nz, ny, nx = tile.shape
        snt, snz, sny, snx = tile.source_shape
        frames, references = nt * nz, matches.rows.count * matches.columns.count
        estimates = self.arena.buffer("estimates", 4 * frames * references * settings.patch**2)
        group_x, group_y = self.group["GROUP_X"], self.group["GROUP_Y"]
        across, down = -(-matches.columns.count // group_x), -(-matches.rows.count // group_y)
        is_map = sigma.variation is not None
        average = self._averaging(is_map)(
            queue,
            (settings.patch, across * down * group_x * group_y, frames),
            (settings.patch, group_x * group_y, 1),
            *(matches.padded, *matches.layout, *matches.grid, i32(across)),
            *(matches.offsets, matches.keys),
            *(sigma.levels, f32(settings.strength), f32(settings.flat), estimates),
            *((sigma.variation, i32(snx)) if is_map else ()),
        )
        margins = (tile.t.margin, tile.z.margin, tile.y.margin, tile.x.margin)
        aggregate = self._aggregate(
            queue,
            (nx, ny, frames),
            None,
            *(estimates, *matches.grid, source),
            *map(i32, (*(ring or (0, snt)), snz, sny, snx)),
            *map(i32, margins),
            *(i32(nz), i32(ny), i32(nx), i32(first_out), out),
        )
        return [*matches.events, ("average", average), ("aggregate", aggregate)]


class FramePlan(Plan):
    """The same for a time-lapse, whose frames come in order and stay in a ring while needed.

    Parameters
    ----------
    settings : NLMeans
        What to run.
    arena : Arena
        Keeps the buffers.
    variant : Variant, optional
        As for `Plan`.
    """

    def __init__(self, settings: NLMeans, arena: Arena, variant: Variant | None = None):
        super().__init__(settings, arena, variant)
        self.ahead = settings.frames_after

    def begin(self, tile: Tile, batch: int, first: int, start: int, variation: Any) -> None:
        """Prepare for the frames of a video, or of a part of each; see `video.FramePlan`."""
        settings = self.settings
        self._tile, self._variation = tile, variation
        self._first = self._known = first
        self._ring = batch + settings.frames_before + settings.frames_after
        self._sigma: dict[int, np.ndarray] = {}
        self._links = FrameLinks(
            (settings.frames_before, settings.frames_after), [[1.0]], [1.0], unlike=math.inf
        )

    def take(self, queue, frames, notes: list[FrameNote]) -> list[tuple[str, Any]]:
        """Enqueue the storing of the next frames."""
        import pyopencl as cl

        nbytes = 4 * math.prod(self._tile.source_shape[1:])
        ring = self._held_frames(nbytes)
        launches = []
        for k, note in enumerate(notes):
            slot = self._known % self._ring
            copy = cl.enqueue_copy(
                queue,
                ring,
                frames,
                byte_count=nbytes,
                src_offset=k * nbytes,
                dst_offset=slot * nbytes,
            )
            launches.append(("store", copy))
            begin = self._tile.z.start - note.first_slice
            self._sigma[self._known] = note.sigma[begin : begin + self._tile.z.size]
            # A volume has no brightness to compare, and its slices may differ in noise.
            sigma = note.sigma if len(note.sigma) == 1 else np.ones(1)
            self._links.add(self._known, replace(note, sigma=sigma))
            self._known += 1
        return launches

    def enqueue_frames(self, queue, start: int, count: int, ended: bool, out) -> list:
        """Enqueue what yields the next frames."""
        filtered, _ = self._links.links(start, count)
        plain = np.all(filtered[..., 0] == 1) and np.all(filtered[..., 1] == 0)
        launches: list = []
        if plain and self._alike(filtered[0], start):
            self._enqueue_some(queue, start, count, None, 0, out, launches)
        else:
            # Every frame sees the others as bright as itself.
            for k in range(count):
                self._enqueue_some(queue, start + k, 1, filtered[0, k], k, out, launches)
        before = start + count - self.settings.frames_before
        for t in [t for t in self._sigma if t < before]:
            del self._sigma[t]
        self._links.forget(before - 1)
        return launches

    def _alike(self, links: np.ndarray, start: int) -> bool:
        """Return whether every frame that is there may be searched from every other."""
        before = self.settings.frames_before
        there = np.array(
            [
                [self._first <= start + k + d - before < self._known for d in range(links.shape[1])]
                for k in range(len(links))
            ]
        )
        return bool(np.all(links[..., 2][there] > 0))

    def _enqueue_some(self, queue, start, count, links, first_out, out, launches: list) -> None:
        settings = self.settings
        stop = start + count
        lowest = max(start - settings.frames_before, self._first)
        highest = min(stop + settings.frames_after, self._known)
        tile = replace(self._tile, t=Span(start, stop, lowest, highest, highest))
        nz = tile.z.size
        sigma = np.concatenate([self._sigma[t] for t in range(start, stop)])
        levels = self._sent(queue, "frame sigma", sigma, launches)
        alike = None
        if links is not None:
            here = settings.frames_before
            links = links.copy()
            if links[here, 2] == 0:  # a frame that comes back as it is
                links[here] = (1, 0, 1)
            links = links[here - (start - lowest) :][: highest - lowest]
            alike = self._sent(queue, "frame links", links, launches)
        ring = self._held_frames(4 * math.prod(tile.source_shape[1:]))
        launches += self.enqueue(
            *(queue, tile, ring, out, TileSigma(levels, self._variation)),
            *((lowest % self._ring, self._ring), alike, first_out * nz),
        )

    def _sent(self, queue, name: str, values: np.ndarray, launches: list):
        """Copy a small array to the device; `launches` keeps it alive until it is there."""
        import pyopencl as cl

        array = np.ascontiguousarray(values, np.float32)
        buffer = self.arena.buffer(name, array.nbytes)
        # On a CPU there is nothing to gain by not waiting.
        waits = self.arena.session.device.kind in ("CPU", "simulator")
        launches.append(("tables", cl.enqueue_copy(queue, buffer, array, is_blocking=waits)))
        return buffer

    def _held_frames(self, nbytes: int):
        return self.arena.buffer("frames", self._ring * nbytes)


def _average_group(settings: NLMeans, device: Device) -> dict[str, int]:
    """Return the build constants of the averaging kernel: the references a work-group serves.

    A GPU copies what they can reach to local memory, unless the search spans several frames.
    """
    patch, step, neighbours = settings.patch, settings.step, settings.neighbours
    copies = device.float_lanes == 1 and not settings.joint
    limit = min(device.local_memory, 32768)
    for items in (128, 64, 32, 1):
        side = max(1, math.isqrt(items // patch))
        width = (side - 1) * step + patch + settings.window - 1
        nbytes = side**2 * (12 * neighbours + 8 * patch)
        if copies and nbytes + 4 * width**2 <= limit and patch * side**2 <= device.max_group:
            return {"GROUP_X": side, "GROUP_Y": side, "LOCAL_TILE": 1}
    each = 12 * neighbours + 8 * patch
    count = max(1, min(limit // each, 128 // patch, device.max_group // patch))
    return {"GROUP_X": count, "GROUP_Y": 1, "LOCAL_TILE": 0}
