"""Filter series of measurements as a few images: their principal components.

Diffusion directions, echoes, spectral channels and lifetime bins show one object many times. All
measurements of a voxel are turned by an orthonormal matrix, so that a few components hold the
object and each has the noise of a measurement; these are filtered as images or volumes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NoReturn

import numpy as np

from napari_gpu_denoise.errors import AxesError, ImageError, Note, SettingsError, SigmaError
from napari_gpu_denoise.filters import filters_for
from napari_gpu_denoise.image.axes import UNNAMED
from napari_gpu_denoise.image.levels import Levels, convert, is_plain, output_dtype
from napari_gpu_denoise.image.threads import ahead, copy_threads
from napari_gpu_denoise.noise.magnitude import lacks_values
from napari_gpu_denoise.noise.models import Correlated, Gaussian, NoiseModel, Rician
from napari_gpu_denoise.opencl.device import choose_devices
from napari_gpu_denoise.protocol.filter import Context, Filter
from napari_gpu_denoise.protocol.settings import setting
from napari_gpu_denoise.run.denoise import denoise_image, filter_function
from napari_gpu_denoise.run.input import Block, Input
from napari_gpu_denoise.run.job import check_kept, type_for_noise
from napari_gpu_denoise.run.noise import NoiseMemory, Sigma, measured_noise, resolve_noise
from napari_gpu_denoise.run.progress import Progress
from napari_gpu_denoise.run.record import Result, Tally, result_notes
from napari_gpu_denoise.run.request import Run

MEASUREMENTS = "D"  # the axis of measurements of which only that is known
FEWEST = 6  # measurements, of which a subspace can be told from noise
_LEAST_COMPONENTS = 4
_SURE = 1.05  # times what noise reaches: its sigma is known to some 2 % at best
SLICES = 4  # of a volume, from which a filter of volumes gains by them
_BRIGHT = 3.0  # sigma of magnitudes from which their noise is sigma; here of nearly all pixels
_CHANCE = 1e-2  # that the mean of noise alone exceeds the limit of the guard anywhere
_ODD = 2.5  # times the median that a measurement is not explained by the others
_AT_ONCE = 1 << 29  # bytes of products of components that threads may make
_SMOOTH = 2.0  # pixels: width of the map of the noise of photons


@dataclass(frozen=True)
class Subspace(Filter):
    """Settings of `subspace`: which axis, filter and components."""

    along: str = setting("", "axis of the measurements, by default the one that is not T, Z, Y, X")
    filter: str = setting(
        "auto", "filter of the components: BM4D of volumes", choices=("auto", "bm4d", "bm3d")
    )
    filter_profile: str = setting(
        "normal", "profile of that filter", choices=("normal", "fast", "high", "best")
    )
    components: int = setting(
        0, "components that are kept: 0 chooses by the noise", bounds=(0, 65536), advanced=True
    )
    keep_events: bool = setting(
        False, "whether places that change as no others do are filtered in each measurement alone"
    )

    name: ClassVar[str] = "subspace"
    title: ClassVar[str] = "Subspace"
    summary: ClassVar[str] = "Series of measurements: diffusion directions, spectra, lifetimes."
    presets: ClassVar[dict[str, dict[str, Any]]] = {"normal": {}} | {
        name: {"filter_profile": name} for name in ("fast", "high", "best")
    }

    @property
    def uses(self) -> tuple[str, ...]:
        """The filters that a device is tested with."""
        return ("bm4d", "bm3d") if self.filter == "auto" else (self.filter,)

    def prepare(self, context: Context) -> NoReturn:
        """Refuse to filter parts: the components depend on all of a series."""
        raise SettingsError(
            "Subspace() needs the whole series",
            "call subspace() or denoise() for it, without dask arrays, streams, workers or parts",
            code="whole-series",
        )

    def denoised(self, image: Input, run: Run, out: Any, ledger: Any, progress: Progress) -> Result:
        """Denoise a series; `ledger` keeps its noise and components, and which are filtered."""
        series = _Series(image, self.axis_of(image.names), run, progress)
        name = ("bm4d" if series.has_volumes else "bm3d") if self.filter == "auto" else self.filter
        filter = filters_for(name)[0].of(profile=self.filter_profile)
        dtypes = {"dtype": series.dtype, "nonfinite": "raise", "host_memory": None}
        inner = replace(run, filter=filter, **dtypes)
        sigma, *known = ledger.known("series") or (series.noise(inner),)
        series.use(sigma)
        if not known:
            known = series.components(self.components)
            ledger.keep("series", (sigma, *known))
        series.scale, vectors, certain, notes = known
        given = np.dtype(image.array.dtype)
        dtype = output_dtype(run.dtype, given)
        if dtype is None:
            dtype = type_for_noise(given, sigma, filter, image.array, image.names)
        if out is None or callable(out):
            out = (out or np.empty)(tuple(image.array.shape), dtype)
        shape, kept = (vectors.shape[1], *series.shape), ledger if image.lazy else None
        components, filtered = (
            kept.room(name, shape, series.dtype) if kept else np.empty(shape, series.dtype)
            for name in ("components", "filtered")
        )
        forward = (vectors.T / series.scale).astype(series.dtype)
        for slab, values in series.even_slabs(series.dtype):
            components[:, slab] = (forward @ values).reshape(len(forward), -1, *shape[2:])
        told = series.told(inner, UNNAMED + series.names)
        made = denoise_image(components, told, filtered, ledger=kept, progress=progress)
        series.fit(components, filtered, certain)
        alone = series.told(inner, series.names) if self.keep_events else None
        tally, left = series.write(vectors, components, out, alone)
        # Of components, which have no grey levels, such notes mean nothing.
        ours = ("unchanged", "biased")
        of_filter = (n for n in made.record.notes if getattr(n, "code", "") not in ours)
        one = series.place(slice(None), slice(series.count // 2, series.count // 2 + 1))
        pair = image.block(run.nonfinite, one).given, np.asarray(out[one])
        seen = result_notes(*pair, image.names, sigma.models)
        record = replace(
            made.record,
            filter=self.name,
            settings=self.as_dict(),
            axes=image.names,
            input_dtype=str(given),
            output_dtype=str(dtype),
            saturated=tally.saturated,
            nonfinite=tally.nonfinite,
            notes=(*sigma.notes, *notes, *of_filter, *left, *seen),
            **sigma.recorded,
        )
        return Result(out, record)

    def axis_of(self, names: str) -> int:
        """Return the number of the axis of measurements; raises `AxesError` if there is none."""
        others = [letter for letter in names if letter not in "TZYXS"]
        along = self.along.upper() or (others[0] if len(others) == 1 else "")
        if not along or along not in names or along in "TZYX":
            raise AxesError(
                f"{along or 'None'} of the axes {names!r} is known to hold measurements; along T, "
                "time, brief events would be lost",
                "name it, as axes='DZYX', and if there are several, give along='D'; over time, use "
                "vbm3d or bm4d",
                code="measurements",
            )
        return names.index(along)


class _Series:
    """Measurements along an axis of an image, of which slabs are read with this axis first.

    `names` and `shape` are those of the other axes; those that the filters of components do not
    know have no name. Noise is white, of standard deviation 1, once grey levels are stabilised by
    `model`, if there is one, and divided by the `scale` of their measurement, (m,), and the
    `spread` of their place, of the lengths of the other axes or 1.
    """

    model: NoiseModel | None = None
    law: NoiseModel | None = None  # of the variance of grey levels that are not stabilised
    correlated: Correlated | None = None  # of standard deviation 1
    scale: np.ndarray
    spread: np.ndarray

    def __init__(self, image: Input, axis: int, run: Run, progress: Progress):
        self.image, self.axis, self.run, self.progress = image, axis, run, progress
        lengths = [int(n) for n in image.array.shape]
        self.count = lengths.pop(axis)
        self.shape = tuple(lengths)
        others = image.names[:axis] + image.names[axis + 1 :]
        self.names = "".join(letter if letter in "ZYX" else UNNAMED for letter in others)
        given = np.dtype(image.array.dtype)
        exact = is_plain(given) or (given.kind == "f" and given.itemsize <= 4)
        self.dtype = np.dtype(np.float32 if exact else np.float64)
        self.has_volumes = dict(zip(self.names, lengths, strict=True)).get("Z", 1) >= SLICES
        self.along = "ZYX" if self.has_volumes else "YX"  # axes of windows
        # Where pixels are finite, and not the same in all measurements as beside a mask.
        self.known = np.zeros(self.shape, bool)
        self.measures_noise = run.sigma is None and isinstance(run.noise, str | NoiseMemory | None)
        if not FEWEST <= self.count <= math.prod(self.shape):
            raise ImageError(
                f"{self.count} measurements of {math.prod(self.shape)} pixels have no subspace: "
                f"give at least {FEWEST}, and no more than pixels, or filter each by bm3d or bm4d."
            )

    # Pixels

    def slabs(self) -> list[slice]:
        """Return parts of the first of the other axes, of which all measurements are read."""
        nbytes = self.count * math.prod(self.shape[1:]) * self.dtype.itemsize
        # In memory, slabs that fit caches; of files, few that share chunks.
        nbytes *= 1 if self.image.lazy else 8
        step = max(1, self.run.limits.part_bytes // nbytes)
        return [slice(k, min(k + step, self.shape[0])) for k in range(0, self.shape[0], step)]

    def place(self, slab: slice, number: slice = slice(None)) -> tuple[slice, ...]:
        """Return the index of a slab of some measurements into the image."""
        index = [slab, *[slice(None)] * (len(self.shape) - 1)]
        index.insert(self.axis, number)
        return tuple(index)

    def block(self, slab: slice, number: slice = slice(None)) -> Block:
        """Return a slab of some measurements, (m, ...); what is finite is copied, as `dtype`."""
        block = self.image.block(self.run.nonfinite, self.place(slab, number))
        if block.ends is not None and not np.isfinite(block.ends).all():
            Levels.of(block.finite)  # refuses NaN and infinity
        given, finite = (np.moveaxis(p, self.axis, 0) for p in (block.given, block.finite))
        mask = block.nonfinite_mask
        mask = mask if mask is None else np.moveaxis(mask, self.axis, 0)
        return Block(given, finite.astype(self.dtype, order="C"), mask, block.ends)

    def weights(self, slab: slice = slice(None)) -> np.ndarray:
        """Return what makes the noise of pixels of a slab the same; 0 where there is none."""
        spread = np.broadcast_to(self.spread, self.shape)[slab]
        weights = np.where(self.known[slab] & (spread > 0), 1 / np.maximum(spread, 1e-30), 0)
        return weights.astype(self.dtype)

    def even(self, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return grey levels whose noise is the `scale` of their measurement everywhere."""
        return weights * (values if self.model is None else self.model.stabilise(values))

    def even_slabs(self, dtype: Any) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield slabs of all measurements with even noise, (m, pixel); see which are `known`."""

        def read(slab: slice) -> np.ndarray:
            block = self.block(slab)
            self.known[slab] = (block.finite != block.finite[:1]).any(axis=0)
            if block.nonfinite_mask is not None:
                self.known[slab] &= ~block.nonfinite_mask.any(axis=0)
            even = self.even(block.finite, self.weights(slab)).reshape(self.count, -1)
            return even.astype(dtype, copy=False)

        slabs, threads = self.slabs(), 1 if self.image.lazy else copy_threads()
        for slab, values in zip(slabs, ahead(read, slabs, threads), strict=True):
            self.progress.check()
            yield slab, values

    # Noise

    def noise(self, run: Run) -> Sigma:
        """Return the noise of a run; sigma, if it is measured, is that of repeats if there are any.

        Those most alike by the angle between them are bright, as without diffusion weighting.
        """
        array, names = self.image.array, list(self.image.names)
        names[self.axis] = UNNAMED if self.measures_noise else names[self.axis]
        context = Context("".join(names), tuple(array.shape))
        device = choose_devices(run.device, *run.uses)[0]
        filter = run.filter.prepare(context)
        found = resolve_noise(run.sigma, run.noise, array, filter, context, device)
        if len(set(found.models)) > 1:
            raise SettingsError("Give one noise model for all measurements of a subspace.")
        (model,) = found.models[:1] or (Gaussian(1.0),)
        if not self.measures_noise or model.models_correlation:
            return found
        magnitudes = isinstance(model, Rician)
        if found.array.size > 1 or not (model.additive or magnitudes):
            source = f"{found.source}; to repeat the run, measure again: this is not all it takes"
            return replace(found, source=source, estimate=None)
        slabs = self.slabs()
        some = self.block(slabs[len(slabs) // 2]).finite.reshape(self.count, -1)
        some = some[:, :: 1 + (some.size >> 22)].astype(np.float64)
        some = some[:, (some != some[0]).any(axis=0)]
        first, second = (self.block(slice(None), one).finite[0] for one in _repeats(some))
        difference = (second.astype(np.float64) - first) / math.sqrt(2)
        sigma = measured_noise(difference, self.names, Gaussian.name, device).sigma[0]
        if not sigma or (magnitudes and np.quantile(first[first != 0], 0.01) < _BRIGHT * sigma):
            return found
        kind = Rician if magnitudes or lacks_values(some / sigma) else Gaussian
        made = resolve_noise(None, kind(sigma), array, filter, context, device)
        source = f"{found.source}; sigma from the difference of the two measurements most alike"
        if kind is Rician and not magnitudes:
            source += "; values below 0 are missing, as of magnitudes"
        notes = tuple(note for note in found.notes if getattr(note, "code", "") != "unproven")
        return replace(made, values=(sigma,), source=source, notes=notes)

    def use(self, sigma: Sigma) -> None:
        """Set what makes the noise white."""
        model = sigma.models[0] if sigma.models else None
        if model is not None and sigma.stabilised and not isinstance(model, Rician):
            return self._use_law(model)
        array = np.moveaxis(sigma.array, self.axis, 0)
        scale = np.sqrt(np.square(array).mean(axis=tuple(range(1, array.ndim)), keepdims=True))
        if not scale.all():
            raise SigmaError(
                "The sigma of some measurements is 0, so that nothing can be filtered in them",
                "give a positive sigma",
            )
        if isinstance(model, Correlated):
            self.correlated = model.scaled(1 / model.sigma)
        self.model = model if sigma.stabilised else None
        self.spread = (array / scale).mean(axis=0)
        self.scale = np.broadcast_to(scale.ravel(), self.count)

    def _use_law(self, law: NoiseModel) -> None:
        """Set what suits a variance that depends on brightness: that of measurements and pixels.

        Stabilising single values of few photons would cost more than it gains.
        """
        from scipy.ndimage import gaussian_filter

        self.law, scale, variance = law, np.zeros(self.count), np.empty(self.shape)
        for slab in self.slabs():
            told = law.variance_told_by(self.block(slab).finite)
            scale, variance[slab] = scale + told.reshape(self.count, -1).sum(1), told.mean(axis=0)
            self.progress.check()
        if self.measures_noise:  # an offset that is slightly wrong would weigh too much in slices
            outer = tuple(k for k, letter in enumerate(self.names) if letter not in "YX")
            variance = variance.mean(axis=outer, keepdims=True)
        widths = [_SMOOTH if letter in "YX" else 0 for letter in self.names]
        variance = np.maximum(gaussian_filter(variance / variance.mean(), widths), 1e-3)
        self.spread = np.sqrt(variance)
        self.scale = np.sqrt(np.maximum(scale, 1e-6 * scale.mean()) / math.prod(self.shape))

    def told(self, run: Run, names: str) -> Run:
        """Return a run on images with these axes and noise of standard deviation 1."""
        sigma = 1.0 if self.correlated is None else None
        return replace(run, axes=names, sigma=sigma, noise=self.correlated)

    # Components

    def components(self, wanted: int) -> tuple[np.ndarray, np.ndarray, int, list[str]]:
        """Return scale, directions of components, (m, component), how many are certain, and notes.

        Twice as many are kept as exceed the noise, to lose nothing weak, or `wanted`. The scale of
        measured photon noise is what all other measurements do not predict of each (Roger, Arnold
        1996, doi:10.1080/01431169608949061), less the noise of the prediction.
        """
        count, products, voxels = self.count, 0.0, 0
        # In float32 weak components would depend on how the image is cut.
        for slab, values in self.even_slabs(np.float64):
            products = products + values @ values.T
            voxels += np.count_nonzero(self.weights(slab))
        if voxels < count:
            raise ImageError(
                f"Only {voxels} pixels are finite and differ between the {count} measurements: "
                "remove copies and damaged ones, or correct the order of the axes."
            )
        # What is left of each measurement by the best prediction from all others.
        left = 1 / np.diag(np.linalg.pinv(products, hermitian=True))
        edge = _SURE * (math.sqrt(voxels) + math.sqrt(count)) ** 2  # of the power of noise alone
        if self.law is not None and self.measures_noise:
            residual = np.sqrt(left / (voxels - count + 1))
            powers, vectors = np.linalg.eigh(products / np.outer(residual, residual))
            share = np.square(vectors[:, powers > edge]).sum(axis=1)
            self.scale = residual * np.sqrt(np.clip(1 - share, 0.1, 1))
        powers, vectors = np.linalg.eigh(products / np.outer(self.scale, self.scale))
        above = int(np.count_nonzero(powers > edge))
        kept = min(wanted or max(_LEAST_COMPONENTS, 2 * above), count)
        notes = [f"{kept} components of {count} were filtered; {above} exceed the noise"]
        left, power = left / self.scale**2, np.diag(products) / self.scale**2
        odd = left > _ODD * np.median(left)
        odd[np.argmax(power)] = False  # the only one without weighting is the brightest
        if odd.any():
            numbers = ", ".join(map(str, np.flatnonzero(odd)[:5]))
            fact = f"measurement {numbers} differs from all others, as damaged or moved ones do"
            remedy = "look at it, and filter the series without it if it is"
            notes.append(Note(fact, remedy, code="odd-measurement"))
        # If all exceed the noise, it is stronger than its sigma, and would be taken for borders.
        certain = min(above, kept) if above < count else 0
        if above == count:
            fact = "all components exceed the noise: sigma is too small, as of interpolated series"
            notes.append(f"{fact}: filter before interpolating")
        return self.scale, vectors[:, ::-1][:, :kept], certain, notes

    def fit(self, components: np.ndarray, filtered: np.ndarray, certain: int) -> None:
        """Replace noisy components by filtered ones, the first of them as these explain them.

        What was filtered stays as it is: a later run may find it.
        """
        outer = [k for k, letter in enumerate(self.names, 1) if letter not in self.along]
        noisy, guides = (
            np.moveaxis(one[:certain], outer, range(len(outer))) for one in (components, filtered)
        )
        # The largest power of the noise at any frequency, as that of white noise is 1.
        power = 1.0 if self.correlated is None else self.correlated.white_sigma**4
        for index in np.ndindex(noisy.shape[: len(outer)]):
            for slab, fitted in _fitted(noisy[index], guides[index], power * len(components)):
                noisy[index][:, slab] = fitted
                self.progress.check()
        components[certain:] = filtered[certain:]

    def write(
        self, vectors: np.ndarray, components: np.ndarray, out: Any, alone: Run | None
    ) -> tuple[Tally, list[Note]]:
        """Write the result; return what was counted, and a note on what it lacks: the guard.

        Where the mean of what was taken away in a window exceeds what noise alone would reach
        anywhere, there was more than noise; the run `alone`, if there is one, filters it.
        """
        from scipy import ndimage, special  # slow to import

        width = 3 if self.has_volumes else 5
        window = tuple(width if letter in self.along else 1 for letter in self.names)
        chance = _CHANCE / 2 / (self.count * math.prod(self.shape))
        limit = -float(special.ndtri(chance)) / math.sqrt(math.prod(window))
        weights = self.weights()
        known, spread = weights > 0, self.spread.astype(self.dtype)
        save = convert if out.dtype.kind == "f" else Levels(0, 1.0).store
        backward = (vectors * self.scale[:, None]).astype(self.dtype)
        rows = components.reshape(len(components), -1)

        def turned() -> Iterator[tuple[int, np.ndarray]]:
            # Several at once, as each product reads all components; in one thread, as it takes all.
            for first in range(0, self.count, copy_threads()):
                yield from enumerate(backward[first : first + copy_threads()] @ rows, first)

        def result(numbered: tuple[int, np.ndarray]) -> tuple[np.ndarray, Tally, np.ndarray]:
            number, made = numbered[0], numbered[1].reshape(self.shape)
            block = self.block(slice(None), slice(number, number + 1))
            check_kept(block, out.dtype)
            given, scale = block.finite[0], self.scale[number].astype(self.dtype)
            even, most = self.even(given, weights), limit * scale
            taken = ndimage.uniform_filter(np.where(known, even - made, 0), window, mode="constant")
            if self.law is not None:  # a few photons may be far more than their mean
                told = self.law.variance_told_by(given) * np.square(weights)
                told = ndimage.uniform_filter(told, window, mode="constant")
                most = limit * np.sqrt(np.maximum(told, scale**2))
            events = np.abs(taken) > most
            if alone is not None and events.any():
                plain = scale * denoise_image(even / scale, alone, progress=self.progress).image
                np.copyto(made, plain, where=ndimage.maximum_filter(events, window))
            levels = made * spread
            levels = levels if self.model is None else self.model.inverse(levels)
            target = np.empty((1, *self.shape), out.dtype)
            clipped = save(np.where(known, levels, given), target[0])
            block.restore(target)
            return target, Tally(clipped, block.nonfinite, block.fill), np.flatnonzero(events)

        tally, places = Tally(), []
        for number, made in enumerate(ahead(result, turned(), copy_threads())):
            target, counted, events = made
            place = self.place(slice(None), slice(number, number + 1))
            out[place] = np.moveaxis(target, 0, self.axis)
            tally += counted
            places.append(events)
            self.progress.check()
        share = len(np.unique(np.concatenate(places))) / math.prod(self.shape)
        fact = f"single places ({100 * share:.2g} %) change in a way that the others do not: "
        fact += "what they show may be missing"
        remedy = "keep_events=True filters these in each measurement alone"
        note = Note(fact, remedy, code="events", share=share)
        return tally, [note] if share else []


def _fitted(
    noisy: np.ndarray, filtered: np.ndarray, ridge: float
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield slabs of noisy components of an image as all filtered ones together explain them.

    Components show the same borders, and each filtered one blurs them in another way. In windows,
    of three blocks a side, every noisy one is fitted by a combination of the filtered ones, with a
    ridge for the noise of so many components; a block takes the mean combination of the windows
    beside it (He, Sun, Tang 2013, doi:10.1109/TPAMI.2012.213, for one guide).
    """
    from scipy.ndimage import uniform_filter  # slow to import

    count, axes = len(noisy), noisy.ndim - 1
    order = *range(1, 2 * axes, 2), *range(2, 2 * axes + 1, 2), 0

    def blocks(array: np.ndarray) -> np.ndarray:
        """Return a slab by blocks, (..., pixel, component), the last ones filled up with 0."""
        array = np.pad(array, [(0, 0), *((0, length % 2) for length in array.shape[1:])])
        grid = [length // 2 for length in array.shape[1:]]
        halves = array.reshape(count, *(n for length in grid for n in (length, 2)))
        return halves.transpose(order).reshape(*grid, 2**axes, count).astype(np.float64)

    def beside(values: np.ndarray) -> np.ndarray:
        return uniform_filter(values, (1, *[3] * (axes - 1), 1, 1), mode="nearest")

    def means(slabs: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
        """Yield the mean of each slab and those beside it; beyond the first and last are these."""
        near = [next(slabs)] * 2
        for slab in slabs:
            near = [*near[-2:], slab]
            yield np.mean(near, axis=0)
        yield np.mean([*near[-2:], near[-1]], axis=0)

    def products(slab: slice) -> np.ndarray:
        guide = blocks(filtered[:, slab])
        both = np.concatenate([guide, blocks(noisy[:, slab])], axis=-1)
        return beside(guide.swapaxes(-1, -2) @ both)

    def shares(both: np.ndarray) -> np.ndarray:
        power = both[..., :count] + ridge / 3**axes * np.eye(count)
        return beside(np.linalg.solve(power, both[..., count:]))

    def combined(given: tuple[slice, np.ndarray]) -> tuple[slice, np.ndarray]:
        slab, share = given
        part = filtered[:, slab]
        made = (blocks(part) @ share).reshape(*share.shape[:axes], *[2] * axes, count)
        made = made.transpose(np.argsort(order))
        made = made.reshape(count, *(2 * length for length in made.shape[1::2]))
        return slab, made[tuple(map(slice, part.shape))]

    slabs = [slice(k, k + 2) for k in range(0, noisy.shape[1], 2)]
    nbytes = 16 * count * noisy[:, 0].size >> (axes - 1)  # of the products of a slab
    threads = max(1, min(copy_threads(), _AT_ONCE // max(nbytes, 1)))
    found = means(ahead(shares, means(ahead(products, slabs, threads)), threads))
    yield from ahead(combined, zip(slabs, found, strict=True), threads)


def _repeats(values: np.ndarray) -> Iterator[slice]:
    """Yield the places of the two measurements that are most alike, but no copies."""
    products = values @ values.T
    powers = np.maximum(np.diag(products), 1e-300)
    alike = products / np.sqrt(np.outer(powers, powers))
    alike[alike > 1 - 1e-9] = -1
    for number in np.unravel_index(np.argmax(alike), alike.shape):
        yield slice(int(number), int(number) + 1)


@filter_function(Subspace)
def subspace() -> None:
    """Denoise a series of measurements of one object by its principal components.

    For diffusion directions, echoes, inversion times, spectral channels and lifetime bins; not for
    time-lapses, in which brief events would be lost.

    Parameters
    ----------
    {inputs}
    profile : {"normal", "fast", "high", "best"}, optional
        Profile of the filter of components.
    axes : str
        Names of the axes, such as ``"DZYX"``. One of them holds the measurements: any letter but
        T, Z, Y and X. The fourth axis of a NIfTI file with a .bval file is D.
    {common}

    See Also
    --------
    denoise : The same with a record of the run.
    bm4d : For single volumes, and for volumes over time.

    Notes
    -----
    Each component has the noise of a measurement, and the first few hold the object. These are
    filtered, and fitted in small windows by all filtered ones, as they show the same borders; the
    others are left out. What only few pixels show in few measurements is in no
    component: where more than noise was taken away, a note says so, and `keep_events` keeps it.

    References
    ----------
    L. Zhuang, J. M. Bioucas-Dias, "Fast hyperspectral image denoising and inpainting based on
    low-rank and sparse representations", IEEE J-STARS 11 (2018), doi:10.1109/JSTARS.2018.2796570.

    K. He, J. Sun, X. Tang, "Guided image filtering", IEEE Transactions on Pattern Analysis and
    Machine Intelligence 35 (2013), doi:10.1109/TPAMI.2012.213.

    Examples
    --------
    >>> import napari_gpu_denoise as gd
    >>> series = gd.read("dwi.nii.gz")                                  # doctest: +SKIP
    >>> out = gd.subspace(series.pixels, axes="DZYX")                   # doctest: +SKIP
    """
