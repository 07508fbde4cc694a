"""Filter series of measurements as a few images: their principal components.

Diffusion directions, echoes, spectral channels and lifetime bins show one object many times. All
measurements of a voxel are turned by an orthonormal matrix, so that a few components hold the
object and each has the noise of a measurement; these are filtered as images or volumes.
"""

from __future__ import annotations

import math
import os
import tempfile
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, ClassVar, NoReturn

import numpy as np

from napari_gpu_denoise.errors import AxesError, ImageError, Note, SettingsError, SigmaError
from napari_gpu_denoise.filters import MODULES
from napari_gpu_denoise.image.axes import UNNAMED
from napari_gpu_denoise.image.levels import Levels, convert, is_plain, output_dtype
from napari_gpu_denoise.image.threads import ahead
from napari_gpu_denoise.noise.models import Gaussian, NoiseModel, PoissonGaussian, Rician
from napari_gpu_denoise.opencl.device import choose_devices
from napari_gpu_denoise.protocol.filter import Context, Filter
from napari_gpu_denoise.protocol.settings import setting
from napari_gpu_denoise.run.denoise import denoise_image, filter_function
from napari_gpu_denoise.run.input import Block, Input
from napari_gpu_denoise.run.job import check_kept, type_for_noise, type_with
from napari_gpu_denoise.run.noise import NoiseMemory, Sigma, measured_noise, resolve_noise
from napari_gpu_denoise.run.progress import MEASURING, Progress
from napari_gpu_denoise.run.record import Result, Tally
from napari_gpu_denoise.run.request import Run

MEASUREMENTS = "D"  # the axis of measurements of which only that is known
FEWEST = 6  # measurements, of which a subspace can be told from noise
_LEAST_COMPONENTS = 4
_SURE = 1.05  # times what noise reaches: its sigma is known to some 2 % at best
_SLICES = 4  # of a volume, from which a filter of volumes gains by them
_IN_MEMORY = 1 << 30  # bytes of components of a file that are kept in memory
_BRIGHT = 3.0  # sigma of magnitudes from which their noise is sigma
# The guard: windows in which what was taken away is averaged, of volumes and of planes, and the
# chance that the mean of noise alone exceeds the limit anywhere.
_WINDOWS = {True: (3, 3, 3), False: (1, 5, 5)}
_CHANCE = 1e-2
_ODD = 2.5  # times the median that a measurement is not explained by the others
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

    def denoised(self, image: Any, run: Run, out: Any, progress: Progress) -> Result:
        """Denoise a series, as `denoise_image` does an image."""
        image = Input.of(image, run)
        if run.measures_noise:
            progress.stage(MEASURING)
        series = _Series(image, self.axis_of(image.names), run)
        name = ("bm4d" if series.has_volumes else "bm3d") if self.filter == "auto" else self.filter
        kind = getattr(import_module(MODULES[name]), name.upper())
        adapted = image.adapted(run)
        inner = replace(adapted, filter=kind.of(profile=self.filter_profile))
        inner = replace(inner, dtype=series.dtype, nonfinite="raise", host_memory=None)
        sigma = series.noise(inner)
        noise = _Noise.of(sigma, series)
        forward, backward, notes = _components(series, noise, self.components)
        components, filtered = (series.room(len(forward)) for _ in range(2))
        for slab in series.slabs():
            values = noise.stabilised(series.block(slab).finite)
            components[:, slab] = np.tensordot(forward, values, 1)
            progress.check()
        told = noise.told(inner, UNNAMED + series.names)
        made = denoise_image(components, told, filtered, progress=progress)
        array, shape, given = image.array, tuple(image.array.shape), image.given
        dtype = output_dtype(adapted.dtype, np.dtype(array.dtype))
        fixed = out is not None and not callable(out)
        if fixed:
            dtype = type_with(out, shape, dtype)
        elif dtype is None:
            dtype = type_for_noise(np.dtype(array.dtype), sigma, inner.filter, array, image.names)
        result = out if fixed else (out or np.empty)(shape, dtype)
        alone = noise.told(inner, series.names) if self.keep_events else None
        tally, left = _write(series, noise, backward, filtered, result, alone, progress)
        record = replace(
            made.record,
            filter=self.name,
            settings=self.as_dict(),
            sigma=sigma.values,
            sigma_source=sigma.source,
            axes=image.names,
            input_dtype=str(given.dtype),
            output_dtype=str(dtype),
            saturated=tally.saturated,
            nonfinite=tally.nonfinite,
            notes=(*sigma.notes, *notes, *made.record.notes, *left),
            noise=tuple(model.as_dict() for model in sigma.models),
        )
        return Result(result, image.noted(record))

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
    know have no name.
    """

    def __init__(self, image: Input, axis: int, run: Run):
        self.image, self.axis, self.run = image, axis, run
        lengths = [int(n) for n in image.array.shape]
        self.count = lengths.pop(axis)
        self.shape = tuple(lengths)
        others = image.names[:axis] + image.names[axis + 1 :]
        self.names = "".join(letter if letter in "ZYX" else UNNAMED for letter in others)
        given = np.dtype(image.array.dtype)
        exact = is_plain(given) or (given.kind == "f" and given.itemsize <= 4)
        self.dtype = np.dtype(np.float32 if exact else np.float64)
        self.has_volumes = dict(zip(self.names, lengths, strict=True)).get("Z", 1) >= _SLICES
        # Where pixels are finite, and not the same in all measurements as beside a mask.
        self.known = np.zeros(self.shape, bool)
        self.measures_noise = run.sigma is None and isinstance(run.noise, str | NoiseMemory | None)
        if not FEWEST <= self.count <= math.prod(self.shape):
            raise ImageError(
                f"{self.count} measurements of {math.prod(self.shape)} pixels have no subspace: "
                f"give at least {FEWEST}, and no more than pixels, or filter each by bm3d or bm4d."
            )

    def slabs(self) -> list[slice]:
        """Return parts of the first of the other axes, of which all measurements are read."""
        nbytes = self.count * math.prod(self.shape[1:]) * self.dtype.itemsize
        step = max(1, self.run.limits.part_bytes // nbytes)
        return [slice(k, min(k + step, self.shape[0])) for k in range(0, self.shape[0], step)]

    def place(self, slab: slice, number: slice = slice(None)) -> tuple[slice, ...]:
        """Return the index of a slab of some measurements into the image."""
        index = [slab, *[slice(None)] * (len(self.shape) - 1)]
        index.insert(self.axis, number)
        return tuple(index)

    def block(self, slab: slice, number: slice = slice(None)) -> Block:
        """Return a slab of some measurements, (m, ...); what is finite is of type `dtype`."""
        block = self.image.block(self.run.nonfinite, self.place(slab, number))
        if not np.isfinite(block.range).all():
            Levels.of(block.finite)  # refuses NaN and infinity
        mask = block.nonfinite_mask
        parts = block.given, block.finite.astype(self.dtype), mask
        parts = (part if part is None else np.moveaxis(part, self.axis, 0) for part in parts)
        return Block(*parts, block.range)

    def room(self, count: int) -> np.ndarray:
        """Return an array for components, of a large file in a temporary one."""
        shape = count, *self.shape
        if not self.image.lazy or math.prod(shape) * self.dtype.itemsize < _IN_MEMORY:
            return np.empty(shape, self.dtype)
        with tempfile.TemporaryFile() as file:
            return np.memmap(file, self.dtype, "w+", shape=shape)

    def noise(self, run: Run) -> Sigma:
        """Return the noise of a run; if it is measured, sigma is that of repeats, if there are any.

        The difference of the two measurements that are most alike holds hardly any structure. As
        all are compared by the angle between them, these are bright ones, such as those without
        diffusion weighting. Photon noise is measured on the sum of all, which is brightest.
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
        if isinstance(model, PoissonGaussian):
            total = np.concatenate([self.block(one).finite.sum(axis=0) for one in self.slabs()])
            estimate = measured_noise(total, self.names, model.name, device)
            summed = estimate.models[0]
            read, offset = summed.read_noise / math.sqrt(self.count), summed.offset / self.count
            model = replace(summed, read_noise=read, offset=offset)
            source = f"estimated: {estimate.reason}; on the sum of all measurements"
            return replace(found, models=(model,), source=source, notes=())
        magnitudes = isinstance(model, Rician)
        if found.array.size > 1 or not (model.additive or magnitudes):
            return found
        first, second = self._repeats()
        difference = (second - first) / math.sqrt(2)
        sigma = measured_noise(difference, self.names, Gaussian.name, device).sigma[0]
        if not sigma or (magnitudes and np.median(first[first != 0]) < _BRIGHT * sigma):
            return found
        return replace(
            found,
            array=found.array if magnitudes else np.full((1,) * len(names), sigma),
            values=(sigma,),
            source=f"{found.source}; sigma from the difference of the two measurements most alike",
            models=(type(model)(sigma),),
            notes=tuple(note for note in found.notes if getattr(note, "code", "") != "unproven"),
        )

    def _repeats(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the two measurements that are most alike, but no copies of each other."""
        slabs = self.slabs()
        values = self.block(slabs[len(slabs) // 2]).finite.astype(np.float64)
        products = np.tensordot(values, values, (range(1, values.ndim),) * 2)
        powers = np.maximum(np.diag(products), 1e-300)
        alike = products / np.sqrt(np.outer(powers, powers))
        alike[alike > 1 - 1e-9] = -1
        pair = np.unravel_index(np.argmax(alike), alike.shape)
        numbers = (slice(int(k), int(k) + 1) for k in pair)
        return tuple(self.block(slice(None), one).finite[0].astype(float) for one in numbers)


@dataclass(frozen=True)
class _Noise:
    """What makes the noise of all measurements white, of standard deviation 1.

    Grey levels are stabilised by `model`, if there is one; those of a measurement are divided by
    its `scale`. What is left varies over the other axes by `spread`.
    """

    scale: np.ndarray  # (m,)
    spread: np.ndarray  # with the other axes, each with the length there or 1
    model: NoiseModel | None = None
    correlated: NoiseModel | None = None  # of standard deviation 1
    law: NoiseModel | None = None  # of the variance of grey levels that are not stabilised

    @classmethod
    def of(cls, sigma: Sigma, series: _Series) -> _Noise:
        """Return what suits the noise of a series."""
        model = sigma.models[0] if sigma.models else None
        if sigma.stabilised and not isinstance(model, Rician):
            return cls._of_variance(model, series)
        array = np.moveaxis(sigma.array, series.axis, 0)
        others = tuple(range(1, array.ndim))
        scale = np.sqrt(np.square(array).mean(axis=others, keepdims=True))
        if not scale.all():
            raise SigmaError(
                "The sigma of some measurements is 0, so that nothing can be filtered in them",
                "give a positive sigma",
            )
        correlated = None
        if model is not None and model.models_correlation:
            correlated = model.scaled(1 / model.sigma)
        spread = (array / scale).mean(axis=0)
        scale = np.broadcast_to(scale.ravel(), series.count)
        return cls(scale, spread, model if sigma.stabilised else None, correlated)

    @classmethod
    def _of_variance(cls, law: NoiseModel, series: _Series) -> _Noise:
        """Return that of noise whose variance depends on brightness, which is that of a pixel.

        Stabilising single values of few photons would cost more than it gains. The scale of
        measured noise is what all other measurements do not predict of each (R. E. Roger, J. F.
        Arnold, Int. J. Remote Sens. 17 (1996), doi:10.1080/01431169608949061), less the noise of
        the prediction.
        """
        from scipy.ndimage import gaussian_filter

        told = [law.variance_told_by(series.block(slab).finite) for slab in series.slabs()]
        scale = np.sum([each.reshape(series.count, -1).sum(axis=1) for each in told], axis=0)
        scale = np.maximum(scale / math.prod(series.shape), 1e-6 * scale.mean())
        outer = tuple(k for k, letter in enumerate(series.names) if letter not in "YX")
        variance = np.concatenate([each.mean(axis=0) for each in told])
        variance = variance.mean(axis=outer, keepdims=True)
        widths = [_SMOOTH if letter in "YX" else 0 for letter in series.names]
        variance = np.maximum(gaussian_filter(variance / variance.mean(), widths), 1e-3)
        made = cls(np.sqrt(scale), np.sqrt(variance), law=law)
        if not series.measures_noise:
            return made
        products, voxels = made.products(series)
        residual = 1 / np.diag(np.linalg.pinv(products, hermitian=True))
        residual = np.sqrt(residual / (voxels - series.count + 1))
        powers, vectors = np.linalg.eigh(products / np.outer(residual, residual))
        share = np.square(vectors[:, powers > _edge(voxels, series.count)]).sum(axis=1)
        return replace(made, scale=made.scale * residual * np.sqrt(np.clip(1 - share, 0.1, 1)))

    def stabilised(self, values: np.ndarray) -> np.ndarray:
        """Return grey levels whose noise does not depend on them."""
        return values if self.model is None else self.model.stabilise(values)

    def weights(self, slab: slice, known: np.ndarray) -> np.ndarray:
        """Return what makes the noise of pixels of a slab the same; 0 where there is none."""
        spread = self.spread[slab] if len(self.spread) > 1 else self.spread
        return np.where(known & (spread > 0), 1 / np.maximum(spread, 1e-30), 0)

    def products(self, series: _Series) -> tuple[np.ndarray, int]:
        """Return the products of all measurements of white noise, and the number of voxels."""
        products, voxels = 0.0, 0
        for slab in series.slabs():
            block = series.block(slab)
            series.known[slab] = (block.finite != block.finite[:1]).any(axis=0)
            if block.nonfinite_mask is not None:
                series.known[slab] &= ~block.nonfinite_mask.any(axis=0)
            weights = self.weights(slab, series.known[slab])
            values = (self.stabilised(block.finite) * weights).reshape(series.count, -1)
            products = products + values @ values.T
            voxels += np.count_nonzero(weights)
        if voxels < series.count:
            raise ImageError(
                f"Only {voxels} pixels differ between the {series.count} measurements: there is "
                "nothing to filter, or the order of the axes is wrong."
            )
        return products / np.outer(self.scale, self.scale), voxels

    def told(self, run: Run, names: str) -> Run:
        """Return a run on images with these axes and noise of standard deviation 1."""
        if self.correlated is not None:
            return replace(run, axes=names, sigma=None, noise=self.correlated)
        sigma = self.spread.reshape((1,) * (len(names) - self.spread.ndim) + self.spread.shape)
        sigma = sigma if np.ptp(sigma) else float(sigma.max())
        return replace(run, axes=names, sigma=sigma, noise=None)


def _edge(voxels: int, count: int) -> float:
    """Return what the largest eigenvalue of the products of white noise exceeds in 1 of 100 cases.

    I. M. Johnstone, Ann. Statist. 29 (2001), doi:10.1214/aos/1009210544.
    """
    roots = math.sqrt(voxels - 1), math.sqrt(count)
    return sum(roots) ** 2 + 2.02 * sum(roots) * sum(1 / root for root in roots) ** (1 / 3)


def _components(
    series: _Series, noise: _Noise, wanted: int
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return the matrices from stabilised grey levels to components and back, and notes.

    Twice as many components are kept as exceed the noise, to lose nothing weak, or `wanted`.
    """
    count = series.count
    products, voxels = noise.products(series)
    powers, vectors = np.linalg.eigh(products)
    above = np.count_nonzero(powers > _SURE * _edge(voxels, count))
    kept = min(wanted or max(_LEAST_COMPONENTS, 2 * above), count)
    notes = [f"{kept} components of {count} were filtered; {above} exceed the noise"]
    # What is left of each measurement by the best prediction from all others.
    left = 1 / np.diag(np.linalg.pinv(products, hermitian=True))
    odd = left > _ODD * np.median(left)
    odd[np.argmax(np.diag(products))] = False  # the only one without weighting is the brightest
    if odd.any():
        numbers = ", ".join(map(str, np.flatnonzero(odd)[:5]))
        fact = f"measurement {numbers} differs from all others, as damaged or moved ones do"
        remedy = "look at it, and filter the series without it if it is"
        notes.append(Note(fact, remedy, code="odd-measurement"))
    chosen, scale = vectors[:, ::-1][:, :kept], noise.scale[:, None]
    forward, backward = (chosen / scale).T, chosen * scale
    return forward.astype(series.dtype), backward.astype(series.dtype), notes


def _write(
    series: _Series,
    noise: _Noise,
    backward: np.ndarray,
    filtered: np.ndarray,
    out: Any,
    alone: Run | None,
    progress: Progress,
) -> tuple[Tally, list[Note]]:
    """Write the result; return what was counted, and a note on what it lacks: the guard.

    What single places show in few measurements lies in no component, and is lost as noise is. Where
    the mean of what was taken away in a window exceeds what noise alone would reach anywhere, there
    was more than noise; the run `alone`, if there is one, filters it.
    """
    from scipy.ndimage import maximum_filter, uniform_filter
    from scipy.special import ndtri  # slow to import

    window = dict(zip("ZYX", _WINDOWS[series.has_volumes], strict=True))
    window = tuple(window.get(letter, 1) for letter in series.names)
    chance = _CHANCE / 2 / (series.count * math.prod(series.shape))
    limit = -float(ndtri(chance)) / math.sqrt(math.prod(window))
    weights = noise.weights(slice(None), series.known).astype(series.dtype)

    def mean(values: np.ndarray) -> np.ndarray:
        return uniform_filter(values, window, mode="constant")

    def result(number: int) -> tuple[np.ndarray, Tally, np.ndarray]:
        block = series.block(slice(None), slice(number, number + 1))
        check_kept(block, out.dtype)
        given, scale = block.finite[0], noise.scale[number].astype(series.dtype)
        stabilised, made = noise.stabilised(given), np.tensordot(backward[number], filtered, 1)
        taken, most = mean((stabilised - made) * weights) / scale, limit
        if noise.law is not None:  # a few photons may be far more than their mean
            told = mean(noise.law.variance_told_by(given) * np.square(weights)) / scale**2
            most = limit * np.sqrt(np.maximum(told, 1))
        events = np.abs(taken) > most
        if alone is not None and events.any():
            plain = scale * denoise_image(stabilised / scale, alone, progress=progress).image
            np.copyto(made, plain, where=maximum_filter(events, window))
        levels = made if noise.model is None else noise.model.inverse(made)
        target = np.empty((1, *series.shape), out.dtype)
        clipped = convert(np.where(weights > 0, levels, given), target[0])
        block.restore(target)
        return target, Tally(clipped, block.nonfinite, block.fill), np.flatnonzero(events)

    tally, places = Tally(), []
    made = ahead(result, range(series.count), min(8, os.cpu_count() or 1))
    for number, (target, counted, events) in enumerate(made):
        place = series.place(slice(None), slice(number, number + 1))
        out[place] = np.moveaxis(target, 0, series.axis)
        tally += counted
        places.append(events)
        progress.check()
    share = len(np.unique(np.concatenate(places))) / math.prod(series.shape)
    fact = f"single places ({100 * share:.2g} %) change in a way that the others do not: what they "
    remedy = "keep_events=True filters these in each measurement alone"
    note = Note(fact + "show may be missing", remedy, code="events", share=share)
    return tally, [note] if share else []


@filter_function(Subspace)
def subspace() -> np.ndarray:
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
    filtered; the others are left out. Rician noise is stabilised first. Of photon noise, each
    measurement is divided by its own mean noise, and pixels have the noise of their brightness.

    What only few pixels show in few measurements is in no component. Where more than noise was
    taken away, a note says so, and `keep_events` keeps it.

    References
    ----------
    L. Zhuang, J. M. Bioucas-Dias, "Fast hyperspectral image denoising and inpainting based on
    low-rank and sparse representations", IEEE J-STARS 11 (2018), doi:10.1109/JSTARS.2018.2796570.

    Examples
    --------
    >>> import napari_gpu_denoise as gd
    >>> series = gd.read("dwi.nii.gz")                                  # doctest: +SKIP
    >>> out = gd.subspace(series.pixels, axes="DZYX")                   # doctest: +SKIP
    """
