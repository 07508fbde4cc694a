"""BM4D: collaborative filtering of groups of similar cubes of a volume."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from napari_gpu_denoise.errors import AxesError
from napari_gpu_denoise.filters.bm3d import groups
from napari_gpu_denoise.filters.bm3d.plan import yields_of_passes
from napari_gpu_denoise.filters.bm4d.cubes import (
    CUBE,
    CubeMotion,
    CubePass,
    CubeSearch,
    CubeSpectrum,
    Volumes,
    choose_shrinkage,
    share_sides,
    shared_noise,
)
from napari_gpu_denoise.filters.pixels import (
    Launcher,
    Pixels,
    including_margins,
    map_arguments,
    restrict_to,
    spread,
)
from napari_gpu_denoise.filters.ridge import NEIGHBOURS, RidgePlan, RidgeSettings
from napari_gpu_denoise.filters.search.frame_links import FrameLinks, FrameSearch, frames_setting
from napari_gpu_denoise.filters.sums import over_groups, sum_arguments
from napari_gpu_denoise.filters.volumes import AUTO, CUBES, choose_cube, voxel_setting, voxel_text
from napari_gpu_denoise.image.axes import UNNAMED
from napari_gpu_denoise.noise.models import NoiseModel
from napari_gpu_denoise.opencl.memory import Arena, constant_buffer
from napari_gpu_denoise.protocol.filter import Context
from napari_gpu_denoise.protocol.plan import (
    FrameNote,
    FramePlan,
    Launches,
    Sizes,
    TilePlan,
    TileSigma,
    together,
)
from napari_gpu_denoise.protocol.settings import setting
from napari_gpu_denoise.protocol.tiles import Reach, Span, Tile
from napari_gpu_denoise.run.denoise import filter_function

_SHARE = "SHARE_Z", "SHARE_Y", "SHARE_X"


class CubeFilter:
    """Kernels of one pass on one device; belongs to one thread."""

    def __init__(self, one: CubePass, arena: Arena):
        self.settings, self.arena = one, arena
        self.search = CubeSearch(one, arena)
        self.motion = CubeMotion(one, arena) if any(one.frames) else None
        self.variant = choose_shrinkage(one, arena.device)
        self._constants = {
            **one.constants,
            "NEIGHBOURS": one.neighbours,
            **self.search.offsets.index_bits,
            "TRANSFORM": groups.TRANSFORMS.index(one.transform),
            "STACK": groups.STACK_TRANSFORMS.index(one.stack),
            "WIENER": one.wiener,
            "SHARED_NOISE": one.shared_noise,
            "SPECTRUM": bool(one.spectra),
            **dict(zip(_SHARE, share_sides(one.cube, one.spectra), strict=True)),
            "BEFORE": one.frames[0],
            "AFTER": one.frames[1],
            **self.variant.constants,
        }
        self._join = arena.kernel("bm4d/join_cubes", one.constants)
        window = np.ones(1)
        for length in one.cube:
            window = np.kron(window, np.kaiser(length, one.kaiser))
        tables = window, shared_noise(one.transform, one.cube, one.spectra)
        self._kaiser, self._correlation = (
            constant_buffer(arena.session, table.astype(np.float32)) for table in tables
        )
        lengths = list(zip(one.windows, one.cube, one.steps, strict=True))
        around = np.prod([(width - 1 + side - 1) // step + 1 for width, side, step in lengths])
        matched = np.prod([(width - 1) // step + 2 for width, _, step in lengths])
        self._joining, self._adding = sum_arguments(int(around) * one.neighbours, int(matched))

    def searched(self, made: Tile, held: Tile) -> Tile:
        """Return the region searched to yield a tile, in an image of which `held` is available."""
        reach = tuple(width // 2 for width in self.settings.windows)
        return restrict_to(spread(made, reach), held)

    def buffers(self, made: Tile, held: Tile) -> Sizes:
        """Return the buffers needed to yield a tile from an image of which `held` is available."""
        tile = self.searched(made, held)
        sizes = self.search.buffers(tile)
        sums = 4 * tile.channels * tile.t.size * self.search.layout(tile).voxels
        more = {"sums": sums, "weights": sums}
        if self.settings.guided:
            more["padded noisy"] = sizes["padded"]
        if self.motion is not None:
            more |= self.motion.buffers(tile)
        return {**sizes, **more}

    def enqueue(
        self,
        run: Launcher,
        made: Tile,
        noisy: Volumes,
        basic: Volumes | None,
        sigma: TileSigma,
        out,
        place: int = 0,
        level: float = 0.0,
    ) -> None:
        """Enqueue the pass that yields the tile `made`, which reads all volumes there may be.

        `basic` is an estimate, if there is one, which is searched and guides a Wiener filter, and
        `sigma` that of the slices of all that is read. `out` is float32 of the shape of `made`, or
        several such: this is number `place`. `level` is sigma of the whole volume, to decide what
        moves over time.
        """
        one, buffers = self.settings, run.held
        searched, whole = basic or noisy, noisy.tile
        tile = self.searched(made, searched.tile)
        at, volumes = self.search.layout(tile), made.channels * made.t.size
        self.search.enqueue(run, tile, searched)
        images = {"noisy": buffers["padded"]}
        if basic is not None:
            self.search.pad(run, noisy, tile, buffers["padded noisy"])
            images["noisy"] = buffers["padded noisy"]
            images |= {"basic": buffers["padded"]} if one.wiener else {}
        for name in ("sums", "weights"):
            run.clear(buffers[name], 4 * volumes * at.voxels)
        first_slice = tile.z.source_start - whole.z.start
        slices = {"slices": whole.z.size, "first_slice": first_slice}
        slices["levels"] = sigma.read_levels
        corner = tile.y.source_start, tile.x.source_start
        sigma_map = map_arguments(Pixels(sigma.variation, whole), *corner)
        over_time = {}
        if self.motion is not None:
            there = searched.tile.t
            times = range(there.start - tile.t.start, there.stop - tile.t.start)
            still = one.still * level**2
            self.motion.enqueue(run, tile, at, still, times, slices)
            over_time = {
                **{"motion": buffers["motion"], **self.motion.arguments(tile)},
                **{"earliest": times[0], "latest": times[-1]},
                "similar_next": one.similar_next * CUBE,
            }
        constants = {**self._constants, "SIGMA_MAP": bool(sigma_map)}
        shrink = "shrink", self.arena.kernel(f"bm4d/{self.variant.kernel}", constants)
        added = {"sums": buffers["sums"], "weights": buffers["weights"], "kaiser": self._kaiser}
        added |= slices
        arguments = {
            **{**images, **at.arguments, **added, **sigma_map, **over_time},
            **{"offsets": self.search.offsets.table, "keys": buffers["keys"]},
            **({"spectrum_volumes": volumes // len(one.spectra)} if one.spectra else {}),
            **{"similar": one.similar * CUBE, "threshold": one.threshold**2},
            **{"correlation": self._correlation, **self._adding},
        }
        counts, team = [grid.count for grid in at.grids], constants.get("TEAM", 1)
        over_groups(run, shrink, constants, counts, volumes, team, **arguments)
        _, nz, ny, nx = made.shape
        run.over_pixels(
            *("join", self._join, nx, ny, volumes * nz),
            **{"noisy": images["noisy"], **at.place, **added, **self._joining},
            **{"top_z": made.z.start - tile.z.source_start, "nz": nz, "ny": ny, "nx": nx},
            **{"top": made.y.start - tile.y.source_start},
            **{"left": made.x.start - tile.x.source_start},
            **{"first_out": place * volumes, "out": out},
        )


class Plan(TilePlan):
    """Kernels and buffers of BM4D on one device; belongs to one thread."""

    def __init__(self, passes: dict[str, CubePass], arena: Arena):
        self.arena = arena
        self.passes = {name: CubeFilter(one, arena) for name, one in passes.items()}

    def buffers(self, tile: Tile, is_map: bool = False) -> Sizes:
        """Return the buffers for a tile; the second pass reuses those of the first one."""
        whole, made = including_margins(tile), yields_of_passes(self.passes, tile)
        sizes, held = [], whole
        for name, one in self.passes.items():
            sizes.append(one.buffers(made[name], held))
            held = made[name]
        for name in list(self.passes)[:-1]:
            one = made[name]
            sizes.append({f"{name} estimate": one.nbytes})
        return together(*sizes)

    def enqueue(self, queue, tile: Tile, source, out, sigma: TileSigma) -> Launches:
        """Enqueue the passes for one tile."""
        run = Launcher(self.arena, queue, self.hold(tile))
        made = yields_of_passes(self.passes, tile)
        noisy, estimate = Volumes(source, including_margins(tile)), None
        for name, one in self.passes.items():
            last = name == list(self.passes)[-1]
            result = out if last else run.held[f"{name} estimate"]
            with run.named(name):
                one.enqueue(run, made[name], noisy, estimate, sigma, result)
            estimate = Volumes(result, made[name])
        return run.launches


@dataclass(frozen=True)
class _Ring:
    """Volumes that are still needed: that of time t is in slot t modulo `length`."""

    buffer: Any
    length: int
    tile: Tile  # what there is of each volume

    def between(self, first: int, stop: int, links: Any) -> Volumes:
        """Return the volumes from one time to another."""
        time = Span(first, stop, first, stop, stop)
        place = first % self.length
        return Volumes(self.buffer, replace(self.tile, t=time), place, self.length, links)


class SeriesPlan(FramePlan):
    """Runs BM4D over volumes that come in order and stay in rings while they are needed.

    Groups take cubes of other times to filter those of their own volume. For each volume the others
    are brought to its grey levels.
    """

    def __init__(self, passes: dict[str, CubePass], arena: Arena):
        self.arena = arena
        self.passes = {name: CubeFilter(one, arena) for name, one in passes.items()}
        self._before, self._after = next(iter(passes.values())).frames
        self.ahead = len(passes) * self._after

    def buffers(self, tile: Tile, batch: int, is_map: bool = False) -> Sizes:
        """Return the rings, the tables of a volume, and what the passes need for one volume."""
        span, made = self._before + 1 + self._after, yields_of_passes(self.passes, tile)
        searched, sizes = including_margins(tile), []
        for name, one in self.passes.items():
            sizes.append(one.buffers(_at(made[name], 0, self._before, self._after), searched))
            searched = made[name]
        rings = {
            f"{name} ring": 4 * length * math.prod(held.shape[1:])
            for name, (length, held) in self._rings(tile, batch).items()
        }
        tables = {"volume links": 12 * span, "volume sigma": 4 * span * tile.z.source_size}
        return {**together(*sizes), **rings, **tables}

    def _rings(self, tile: Tile, batch: int) -> dict[str, tuple[int, Tile]]:
        """Return the length of each ring, and what there is of each volume in it."""
        rings = {"noisy": (self._before + batch + self.ahead, including_margins(tile))}
        if len(self.passes) > 1:
            made = yields_of_passes(self.passes, tile)["basic"]
            rings["basic"] = self._before + batch + self._after, made
        return rings

    def begin(self, tile: Tile, batch: int, first: int, start: int, variation: Any) -> None:
        self._tile, self._variation = tile, variation
        self._held = self.hold(tile, batch, variation is not None)
        self._made = yields_of_passes(self.passes, tile)
        self._images = {
            name: _Ring(self._held[f"{name} ring"], length, held)
            for name, (length, held) in self._rings(tile, batch).items()
        }
        self._first = self._known = first
        # The next volume that a basic estimate is made of: those before are not needed.
        self._filtered = max(start - self._before, first)
        self._sigma: dict[int, np.ndarray] = {}
        self._links = FrameLinks((self._before, self._after), [[1.0]], [1.0])

    def take(self, queue, frames, notes: list[FrameNote]) -> Launches:
        """Enqueue the storing of the next volumes, and the first pass where it can be made."""
        run, ring = Launcher(self.arena, queue, self._held), self._images["noisy"]
        nbytes = 4 * math.prod(ring.tile.shape[1:])
        for k, note in enumerate(notes):
            run.store(frames, k, ring.buffer, self._known % ring.length, nbytes)
            begin = self._tile.z.source_start - note.first_slice
            self._sigma[self._known] = note.sigma[begin : begin + self._tile.z.source_size]
            # One number says how noisy a volume is: its slices may differ.
            sigma = np.sqrt(np.mean(note.sigma**2, keepdims=True))
            self._links.add(self._known, replace(note, sigma=sigma))
            self._known += 1
        self._make_basic(run, self._known - self._after)
        return run.launches

    def enqueue_frames(self, queue, start: int, count: int, ended: bool, out) -> Launches:
        run = Launcher(self.arena, queue, self._held)
        if ended:
            self._make_basic(run, min(start + count + self._after, self._known))
        last = list(self.passes)[-1]
        for k in range(count):
            self._filter(run, last, start + k, out, k)
        oldest = start + count - self._before
        for t in [t for t in self._sigma if t < oldest - self._before]:
            del self._sigma[t]
        self._links.forget(oldest - self._before - 1)
        return run.launches

    def _make_basic(self, run: Launcher, stop: int) -> None:
        """Make the basic estimates of the volumes before `stop`."""
        if "basic" not in self._images:
            return
        ring = self._images["basic"]
        for t in range(self._filtered, stop):
            self._filter(run, "basic", t, ring.buffer, t % ring.length)
        self._filtered = max(self._filtered, stop)

    def _filter(self, run: Launcher, name: str, t: int, out, place: int) -> None:
        """Run a pass on a volume; its result is number `place` in `out`."""
        lowest = max(t - self._before, self._first)
        highest = min(t + self._after + 1, self._known)
        links = self._links.links(t, 1)[0][0, 0].copy()
        level = float(links[self._before, 2])
        if level == 0:  # a volume without noise is returned unchanged
            links[self._before] = 1, 0, 1
        sigma = np.zeros((len(links), self._tile.z.source_size))
        for other in range(lowest, highest):
            k = other - t + self._before
            sigma[k] = self._sigma[other] * links[k, 0]
        levels = run.send(sigma, "volume sigma")
        first = lowest - t + self._before
        links = links[first : first + highest - lowest]
        alike = run.send(links, "volume links")
        images = [self._images["noisy"], self._images.get("basic") if name == "final" else None]
        noisy, basic = (ring and ring.between(lowest, highest, alike) for ring in images)
        tile = _at(self._made[name], t, self._before, self._after)
        noise = TileSigma(None, self._variation, read_levels=levels)
        with run.named(name):
            self.passes[name].enqueue(run, tile, noisy, basic, noise, out, place, level)


def _at(tile: Tile, t: int, before: int, after: int) -> Tile:
    """Return a tile of one volume, which reads those around it, be they there or not."""
    return replace(tile, t=Span(t, t + 1, t - before, t + after + 1, t + after + 1))


def _step(default: int, of: str) -> Any:
    help = f"Spacing of reference cubes {of}, along an axis of four voxels (1 is slowest and best)"
    return setting(default, help, bounds=(1, 4), unit="voxels", advanced=True)


def _window(default: int, of: str) -> Any:
    help = f"Search window width {of} (odd), along an axis of four voxels"
    return setting(default, help, bounds=(1, 21), unit="voxels", advanced=True, odd=True)


# Width of the window of the motion search from volume to volume, along an axis of four voxels.
_WINDOW_NEXT = 7
# Limits for cubes of other volumes, in sigma squared: largest mean squared difference of cubes and
# of the blocks that they are in, and by how much a motion has to explain more than none.
_SIMILAR_NEXT = {"basic": 2.6, "final": 0.5}
_STILL = {"basic": 0.4, "final": 0.1}
# Spacing of the cubes that are filtered alone before correlated noise is searched.
_PREFILTER_STEP = 3


@dataclass(frozen=True)
class BM4D(FrameSearch, groups.TwoPasses):
    """Settings of BM4D.

    Groups of similar cubes are transformed together and small coefficients are removed: by hard
    thresholding in the first pass, by a Wiener filter based on the first result in the second.
    """

    name: ClassVar[str] = "bm4d"
    title: ClassVar[str] = "BM4D"
    summary: ClassVar[str] = "Block matching and 4D filtering: best quality for volumes"
    presets: ClassVar[dict[str, dict]] = {
        "normal": {},
        "fast": {
            "step_basic": 4,
            "step_final": 4,
            "window_basic": 9,
            "window_final": 9,
            "neighbours_basic": 16,
        },
        "high": {"step_basic": 2, "step_final": 2, "window_basic": 15, "window_final": 15},
        "best": {"refine": "chain"},
    }

    kaiser: ClassVar[float] = 3.0
    cube: str = setting(
        AUTO,
        "Shape of cubes along Z, Y and X; auto uses flatter cubes if slices are far apart",
        choices=(AUTO, *CUBES),
        unit="voxels",
    )
    voxel: str = voxel_setting()
    frames_before: int = frames_setting(0, "Earlier volumes to search")
    frames_after: int = frames_setting(0, "Later volumes to search")
    refine: str = groups.refine()
    threshold: float = groups.threshold(2.9)
    wiener_sigma: float = groups.wiener_sigma(0.9)
    step_basic: int = _step(3, groups.BASIC)
    step_final: int = _step(3, groups.FINAL)
    window_basic: int = _window(13, groups.BASIC)
    window_final: int = _window(11, groups.FINAL)
    neighbours_basic: int = groups.neighbours(32, groups.BASIC, "cubes")
    neighbours_final: int = groups.neighbours(32, groups.FINAL, "cubes")

    def __post_init__(self) -> None:
        object.__setattr__(self, "voxel", voxel_text(self.voxel))
        super().__post_init__()

    @property
    def joint(self) -> str:
        """Slices, time if other volumes are searched, else channels with spectra of their own."""
        own_spectra = len(self.noise) > 1 and not self.over_time
        return "Z" + "T" * self.over_time + "C" * own_spectra

    def prepare(self, context: Context) -> Self:
        """Return the filter for an array, with cubes that suit it; refuse one without Z."""
        fitting, names = super().prepare(context), context.names
        if "Z" not in names:
            raise no_volume(names, context.shape)
        if self.cube != AUTO and CUBES[self.cube][0] > context.shape[names.index("Z")]:
            fitting = replace(fitting, cube=AUTO)  # thinner ones
        if context.image is None or fitting.cube != AUTO:
            return fitting
        name, why = choose_cube(context.image, names, self.voxel)
        return replace(fitting, cube=name, notes=(why, *fitting.notes))

    @property
    def whole_volumes(self) -> bool:
        return self.over_time

    @property
    def smallest(self) -> int:
        """The longest side of any cube."""
        return max(max(lengths) for lengths in CUBES.values())

    @cached_property
    def passes(self) -> dict[str, CubePass]:
        """The passes, in order: ``"basic"``, ``"final"``.

        If neighbours are very alike, as correlated noise makes them, cubes are compared in a volume
        that was filtered cube by cube, ``"prefilter"``, but over time.
        """
        spectra = tuple(CubeSpectrum(one.autocorrelation, one.along_z) for one in self.spectral)
        if spectra and self.over_time:
            spectra = (CubeSpectrum.mean(spectra, [one.sigma for one in self.spectral]),)
        passes = {
            name: CubePass(
                CUBES["4x4x4" if self.cube == AUTO else self.cube],
                getattr(self, f"step_{name}"),
                getattr(self, f"window_{name}"),
                getattr(self, f"neighbours_{name}"),
                **self._shrinkage(name),
                guided=name == "final",
                spectra=spectra,
                frames=(self.frames_before, self.frames_after),
                next_window=_WINDOW_NEXT,
                similar_next=_SIMILAR_NEXT[name],
                still=_STILL[name],
            )
            for name in self.stages
        }
        alike = sum(one.neighbours for one in spectra) / max(len(spectra), 1)
        if alike <= groups.ALIKE or self.over_time:
            return passes
        # Noise alone makes nearby cubes look similar: each is filtered alone before the search.
        alone = {"step": _PREFILTER_STEP, "window": 1, "neighbours": 1, "similar": 0.0}
        alone |= {"transform": "dct", "threshold": groups.PREFILTER_CORRELATED}
        basic = passes.pop("basic")
        prefilter = replace(basic, **alone, shared_noise=False)
        return {"prefilter": prefilter, "basic": replace(basic, guided=True), **passes}

    def unrefined(self, noise: Sequence[NoiseModel]) -> str:
        """Why results are not refined: that of several volumes is not."""
        return super().unrefined(noise) or ("other volumes are searched" * self.over_time)

    @property
    def _ridge_search(self) -> CubePass:
        last = list(self.passes.values())[-1]
        return replace(last, step=3, window=11, neighbours=NEIGHBOURS)

    @cached_property
    def ridge(self) -> RidgeSettings | None:
        """The combinations after the last pass, if there are any."""
        one, count = self._ridge_search, self.iterations
        lengths = one.cube, one.steps, one.windows
        return RidgeSettings(*lengths, count, from_noisy=False, volume=True) if count else None

    @cached_property
    def reach(self) -> Reach:
        """The sum over both passes; that of the furthest cubes if none are chosen yet."""
        names = CUBES if self.cube == AUTO else (self.cube,)
        chosen = [replace(self, cube=name) for name in names]
        steps = [[*one.passes.values(), *filter(None, [one.ridge])] for one in chosen]
        sums = [np.sum([one.reach for one in each], axis=0) for each in steps]
        z, y, x = (int(length) for length in np.max(sums, axis=0))
        count = len(self.passes)
        time = count * self.frames_before, count * self.frames_after
        return Reach(time, (z, z), (y, y), (x, x))

    def plan(self, arena: Arena) -> Plan | SeriesPlan | RidgePlan:
        if self.over_time:
            return SeriesPlan(self.passes, arena)
        plan = Plan(self.passes, arena)
        if not self.ridge:
            return plan
        return RidgePlan(plan, self.ridge, CubeSearch(self._ridge_search, arena))


def no_volume(names: str, shape: tuple[int, ...]) -> AxesError:
    """Return an error that says how to name the axes, or what to use instead."""
    unnamed = [i for i, a in enumerate(names) if a == UNNAMED and shape[i] > 1]
    if unnamed:
        slices = unnamed[-1]
        named = names[:slices] + "Z" + names[slices + 1 :]
        if "T" not in named and named.count(UNNAMED) == 1:
            named = named.replace(UNNAMED, "T")
        return AxesError(
            "BM4D filters volumes, but no axis is named Z",
            f"name the axes, as axes={named!r}",
            code="axis-needed",
            axis="Z",
        )
    return AxesError(
        f"BM4D filters volumes, but the axes are {names!r}",
        "use bm3d for images, vbm3d for time-lapses, or name slices, as axes='ZYX'",
        code="volume-needed",
    )


@filter_function(BM4D)
def bm4d() -> None:
    """Denoise volumes by BM4D, block matching and 4D filtering.

    Parameters
    ----------
    {inputs}
    {profile}
        ``"fast"`` takes about a third of the time of ``"normal"`` on a GPU and loses 0.3 to 0.6 dB;
        ``"high"`` takes about six times as long and gains up to 0.15 dB; ``"best"`` refines the
        result of ``"normal"`` in a chain of steps, and gains about 0.5 dB.
    axes : str
        Names of the axes, such as ``"ZYX"``, ``"TZYX"`` or ``"CZYX"``. Z, Y and X are required and
        filtered together, T only with `frames_before` or `frames_after`; volumes along every other
        axis are independent.
    {common}

    See Also
    --------
    denoise : The same with a record of the run.
    stream : The same for volumes that arrive one by one.
    bm3d : For images, and for slices that have little in common.

    Notes
    -----
    Cubes contain 64 voxels. `cube` is ``"auto"`` by default: differences between slices are
    compared with differences between pixels, to find how flat the cubes should be. The record says
    which cubes were chosen, and why; if this cannot be found from the image, `voxel` decides. Steps
    and windows are given for cubes of 4 x 4 x 4, and are scaled with the sides of other cubes. For
    each voxel and pass, the search takes ``64 * (window / step)**3`` comparisons, and filtering
    about ``1600 * neighbours / step**3`` operations. Repeated runs on one device are bit-identical,
    with any tiles.

    With `frames_before` and `frames_after`, the mean of each cube over time and its deviation from
    that mean are filtered separately, each with its own noise level. Motion is followed in blocks,
    up to half of `window_next` from volume to volume; blocks that are not found in other volumes
    are filtered without them.

    Rician and photon noise is stabilised first. For correlated noise (``noise=Correlated(...)``, or
    an estimate that finds it), thresholds and weights follow the noise variance of each
    coefficient. Estimates treat slices as independent; use `Correlated.along_z` if they are not.

    References
    ----------
    M. Maggioni, V. Katkovnik, K. Egiazarian and A. Foi, "Nonlocal transform-domain filter for
    volumetric data denoising and reconstruction", IEEE Transactions on Image Processing 22 (2013),
    119-133, :doi:`10.1109/TIP.2012.2210725`.

    Y. Makinen, L. Azzari and A. Foi, "Collaborative filtering of correlated noise: exact
    transform-domain variance for improved shrinkage and patch matching", IEEE Transactions on
    Image Processing 29 (2020), section III, for `shared_noise`, :doi:`10.1109/TIP.2020.3014721`.

    Examples
    --------
    >>> out = bm4d(volume, axes="ZYX")                                 # doctest: +SKIP
    >>> out = bm4d(head, noise="rician", axes="ZYX", profile="fast")   # doctest: +SKIP
    >>> out = bm4d(cells, axes="TZYX", frames_before=1, frames_after=1)  # doctest: +SKIP
    """
