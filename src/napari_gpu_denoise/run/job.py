"""A job: a run prepared for an image, and the parts that it is filtered in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import ImageError, NonFiniteError, Note
from napari_gpu_denoise.image.levels import (
    Levels,
    as_array,
    is_plain,
    levels_of_windows,
    output_dtype,
)
from napari_gpu_denoise.image.threads import quiet
from napari_gpu_denoise.noise.models import NoiseModel, PoissonGaussian
from napari_gpu_denoise.noise.sampling import PlaneReader
from napari_gpu_denoise.opencl.device import Device, choose_devices, names_of
from napari_gpu_denoise.protocol.filter import Context, Filter
from napari_gpu_denoise.run.flow.work import largest_in_planes
from napari_gpu_denoise.run.input import Block, Input
from napari_gpu_denoise.run.noise import Sigma, limit_sigma, resolve_noise, scaled, varies_within
from napari_gpu_denoise.run.record import NO_NOISE, DeviceReport, Record, result_notes
from napari_gpu_denoise.run.request import Run
from napari_gpu_denoise.version import package_version

# Share of the variance of the noise that a good filter leaves in an image with large smooth areas.
# It leaves more where there is texture.
_REMAINS = 0.1
_LOSS = 0.05  # dB that rounding may cost beside what remains
_ROUNDING = 1 / 12  # variance
# Least variance of the noise at which rounding costs no more.
_ENOUGH = _ROUNDING / (10 ** (_LOSS / 10) - 1) / _REMAINS
_FAR = 2.0**12  # times the noise: an offset that is removed before grey levels become float32
# NaN and infinity are replaced by the nearest finite pixel in a part and this margin around it:
# spots up to twice this width are filled as in the whole plane.
_FILL_MARGIN = 16
_SAMPLE = 1 << 16  # pixels that the mean variance of photon noise is taken from, about


def type_for_noise(
    given: np.dtype, sigma: Sigma, filter: Filter, image: Any, names: str
) -> np.dtype:
    """Return the integer type of an image for its result too, or float32 where noise is weak.

    From a standard deviation of the noise of about 8.5 grey levels on, rounding costs less than
    0.05 dB. Colour samples keep their type, as programs show floats of another range; so do
    integers of more than 16 bits, which float32 may not hold, and results that are no grey levels.
    """
    same = given.newbyteorder("=")
    grey = not filter.keeps_zero and not filter.yields_map
    if given.itemsize > 2 or "S" in names or not grey or filter.sigma_unused:
        return same
    variance = _variance(sigma, image, names)
    return np.dtype(np.float32) if 0 < variance < _ENOUGH else same


def _variance(sigma: Sigma, image: Any, names: str) -> float:
    """Return the mean variance of the noise, of the channel that has least."""
    if not sigma.stabilised:
        values = np.square(sigma.array)
        axes = tuple(k for k, name in enumerate(names) if name != "C")
        each = values.mean(axis=axes)
        return float(each[each > 0].min(initial=math.inf))
    reader, variances = PlaneReader(image, names), []
    for number, channel in enumerate(reader.channels):
        plane = reader.sampled(channel)[0]
        step = math.isqrt(plane.size // _SAMPLE) | 1  # odd: colour filters repeat every two pixels
        plane = plane[::step, ::step]
        model = sigma.models[number % len(sigma.models)]
        finite = plane[np.isfinite(plane)] if plane.dtype.kind == "f" else plane
        variances.append(float(model.variance(finite).mean()) if finite.size else math.inf)
    return min(variances)


def type_with(out: Any, shape: tuple[int, ...], dtype: np.dtype | None) -> np.dtype:
    """Return the type of a result for an array that takes it: `dtype`, or its own if that is None.

    Refuses an array that cannot take the result.
    """
    if not all(hasattr(out, name) for name in ("shape", "dtype", "__setitem__")):
        raise ImageError(
            f"out={out!r} is not an array", "give an array with shape, dtype and NumPy indexing"
        )
    own = tuple(out.shape), np.dtype(out.dtype).newbyteorder("=")
    if dtype is None and own[1].kind in "iuf" and own[1].itemsize <= 8:
        dtype = own[1]
    if dtype is None or own != (shape, dtype.newbyteorder("=")):
        kind = dtype or "real numbers"
        raise ImageError(
            f"out= has shape {own[0]} and type {own[1]}; expected are {shape} and {kind}",
            "give an array of that shape and type, or set its type with dtype=",
        )
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise ImageError("out= cannot be written to", "give an array that is not read-only")
    return dtype


@dataclass(frozen=True)
class Job:
    """A run prepared for an image: everything is checked, and the noise is known.

    It holds no pixels and no device object, so that any part can be filtered in any process.
    `filter` is prepared for this image and this noise, `dtypes` are those of the image and of the
    result, and `levels` is None if each part chooses its own.
    """

    run: Run
    names: str
    shape: tuple[int, ...]
    dtypes: tuple[np.dtype, np.dtype]
    filter: Filter
    sigma: Sigma
    levels: Levels | None

    @property
    def device(self) -> Device:
        """The device to run on, looked up in each process; one that the filter was tested on."""
        return choose_devices(self.run.device, self.filter.name)[0]

    def on(self, device: Device) -> Job:
        """Return the job for another device."""
        return replace(self, run=self.run.but(device=device))

    @cached_property
    def stabilised(self) -> tuple[NoiseModel, ...]:
        """Models to stabilise grey levels less `offset`; empty if the noise is not stabilised."""
        models, offset = self.sigma.models if self.sigma.stabilised else (), self.offset
        if not offset:
            return models
        photons = (one for one in models if isinstance(one, PoissonGaussian))  # which all are
        return tuple(replace(one, offset=one.offset - offset) for one in photons)

    @cached_property
    def offset(self) -> int:
        """What is taken from grey levels that are stabilised: an offset too large for float32."""
        if not self.sigma.stabilised or is_plain(self.dtypes[0]):
            return 0
        models = [one for one in self.sigma.models if isinstance(one, PoissonGaussian)]
        offsets = np.array([model.offset for model in models])
        least = np.array([_FAR * (model.gain + model.read_noise) for model in models])
        offset = round(max(offsets[np.abs(offsets) > least], key=abs, default=0))
        if offset and (np.abs(offsets - offset) > 2**8 * least).any():
            raise ImageError(
                f"The offsets of channels, from {min(offsets):.6g} to {max(offsets):.6g}, are too "
                "far apart for float32: filter the channels one by one."
            )
        return offset

    @cached_property
    def largest_sigma(self) -> np.ndarray | None:
        """The largest sigma of each whole plane if it is a map, else None."""
        array = self.sigma.array
        if not varies_within(array, self.names):
            return None
        return largest_in_planes(array, self.names)

    def levels_of(self, pixels: np.ndarray) -> Levels:
        """Return how the grey levels of a part are mapped to kernel values; refuse NaN."""
        levels = Levels.of(pixels, self.filter.keeps_zero) if self.levels is None else self.levels
        # Noise models are in grey levels, and stabilised values are of moderate size.
        return replace(levels, offset=self.offset, scale=1.0) if self.stabilised else levels

    def block(self, pixels: Any) -> Block:
        """Return pixels of a part, in memory, as a block."""
        return Block.of(as_array(pixels), self.names, self.run.nonfinite, self.levels)

    def sharing(self, windows: Iterable[Any], known: Levels | None = None) -> Job:
        """Return the job with levels for all parts, chosen from the pixels of ``Input.windows``.

        `known` are those whose offset may be removed.
        """
        keep_zero = self.filter.keeps_zero
        levels = levels_of_windows(windows, keep_zero) if keep_zero or known is None else known
        if levels and self.stabilised:
            levels = replace(levels, offset=self.offset, scale=1.0)
        return replace(self, levels=levels)

    def suited(self, block: Block) -> Job:
        """Return the job with levels and sigma that suit the values of a part."""
        levels, pixels = self.levels, block.finite
        if not is_plain(pixels.dtype):
            if levels is None or not levels.takes(block.range):
                levels = replace(self, levels=None).levels_of(pixels)  # refuses NaN and infinity
            low, high = map(float, block.range)
            spread = (levels.inner[1] - levels.inner[0]) / 2**19
            pixels = np.array([0, max(high - low, spread)])
        elif levels is not None:
            return self  # of an image in memory
        sigma = limit_sigma(self.sigma, pixels, is_stream_frame=True)
        if levels is self.levels and sigma is self.sigma:
            return self
        return replace(self, levels=levels, sigma=sigma)

    @cached_property
    def blank_width(self) -> int:
        """Width of constant squares that are not image and are returned as they are, or 0."""
        estimate = None if self.filter.yields_map else self.sigma.estimate
        return estimate.blank_width if estimate else 0

    @cached_property
    def noisy(self) -> bool:
        """Whether any pixel has noise; without, nothing is filtered."""
        return bool(self.sigma.array.any())

    @cached_property
    def margins(self) -> tuple[tuple[int, int], ...]:
        """How many pixels to read along each axis before and after those that a part yields.

        Without noise none is needed.
        """
        if not self.noisy:
            return ((0, 0),) * len(self.names)
        squares = max(self.blank_width - 1, 0)
        fill = _FILL_MARGIN * (self.run.nonfinite == "keep" and self.dtypes[0].kind == "f")
        found, whole = [], self.filter.read_whole
        for axis, length in zip(self.names, self.shape, strict=True):
            margin = (length, length) if axis in whole else self.filter.reach_along(axis)
            if axis in "YX":
                margin = max(margin[0], squares) + fill, max(margin[1], squares) + fill
            found.append(margin)
        return tuple(found)

    def unfiltered(self, pixels: np.ndarray) -> np.ndarray:
        """Return the result for pixels that are not filtered: the same, or 0 in a map."""
        if self.filter.yields_map:
            return np.broadcast_to(np.zeros((), pixels.dtype), pixels.shape)
        return pixels

    @quiet()
    def record(
        self, report: DeviceReport, pair: Callable[[], tuple[np.ndarray, np.ndarray]], device: str
    ) -> Record:
        """Return the record of this run, which has just ended.

        It names the noise and whatever else the user should know. `pair` returns pixels of the
        image and what became of them; `device` is named if the report names none.
        """
        notes, tally = [*self.sigma.notes, *self.filter.notes], report.tally
        smallest, names = self.filter.smallest, self.names
        unproven = any(getattr(note, "code", "") == "unproven" for note in notes)
        if self.noisy and not self.filter.yields_map:
            # The mean of squares is not that of magnitudes.
            unasked = {"unchanged": unproven, "biased": self.filter.keeps_zero}
            found = result_notes(*pair(), names, self.sigma.models)
            notes += (note for note in found if not unasked[note.code])
        if tally.fill:
            notes.append(f"fill values, far from all others, stay as they are: {tally.fill} pixels")
        if not self.noisy:
            notes += [] if unproven else [NO_NOISE]
        elif any(n < smallest for a, n in zip(names, self.shape, strict=True) if a in "YX"):
            notes.append(
                f"extended by mirroring to at least {smallest} pixels in Y and X, then cropped"
            )
        if output_dtype(self.run.dtype, self.dtypes[0]) is None and self.dtypes[1].kind == "f":
            notes.append(
                Note(
                    f"the result is {self.dtypes[1]}: rounding to {self.dtypes[0]} would add a "
                    "noticeable error to the remaining noise",
                    "dtype='same' rounds anyway",
                    code="float-result",
                )
            )
        told = (f"{one} failed, and its part was done again: {said}" for one, said in report.failed)
        notes += map(Note, dict.fromkeys(told))
        return Record(
            version=package_version(),
            filter=self.run.filter.name,
            settings=self.run.filter.as_dict(),
            axes=names,
            input_dtype=str(self.dtypes[0]),
            output_dtype=str(self.dtypes[1]),
            device=names_of(report.used.values()) or device,
            saturated=tally.saturated,
            nonfinite=tally.nonfinite,
            notes=tuple(notes),
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            sigma_factor=self.run.sigma_factor,
            **self.sigma.recorded,
        )


@quiet()
def start(
    run: Run,
    image: Any,
    block: Block | None = None,
    *,
    is_stream_frame: bool = False,
    choose: bool = True,
) -> Job:
    """Start a run on an image: choose the device, and measure the noise if it is not given.

    `image` is an `Input`, or what one is made of; `block` has its pixels if they are in memory, and
    may be given alone. Otherwise only planes to measure the noise on are read. `is_stream_frame`
    says that the image is the first frame of many along T. Without `choose` the device is chosen
    already, or will be by each process.
    """
    if isinstance(image, Block):
        block, image = image, image.given
    image = Input.of(image, run)
    run, names = image.adapted(run), image.names
    if choose:
        run = run.but(device=choose_devices(run.device, *run.uses)[0])
    pixels = block.finite if block else image.array
    shape = tuple(int(n) for n in pixels.shape)
    # A stream has an axis T, of unknown length.
    context = Context("T" + names, (2, *shape)) if is_stream_frame else Context(names, shape)
    filter = run.filter.prepare(context)
    given = np.dtype(pixels.dtype)
    wanted = output_dtype(run.dtype, given)
    if block is not None:
        check_kept(block, given if wanted is None else wanted)
        if not (is_plain(given) or np.isfinite(block.range).all()):
            Levels.of(pixels)  # refuses NaN and infinity
    # Pixels that were filled in hold no noise.
    measured = block.given if block else pixels
    noise = run.sigma, run.noise
    try:
        sigma = resolve_noise(*noise, measured, filter, context, run.device)
    except NonFiniteError:  # there is too little else
        sigma = resolve_noise(*noise, pixels, filter, context, run.device)
    seen = measured[None] if is_stream_frame else measured
    known = replace(context, noise=sigma.models, image=seen, strength=run.sigma_factor)
    applied = filter.prepare(known)
    if wanted is None:
        # By the measured sigma, before sigma_factor.
        wanted = type_for_noise(given, sigma, applied, pixels, names)
    sigma = scaled(sigma, 1.0 if applied.keeps_sigma else run.sigma_factor)
    if block is not None:
        sigma = limit_sigma(sigma, pixels, is_stream_frame)
    levels = Levels(0, 1.0) if block is not None and is_plain(given) else None
    job = Job(run, names, shape, (given, wanted), applied, sigma, levels)
    if block is None or levels is not None:
        return job  # of pixels that are not read yet, each part refuses NaN by itself
    return job.sharing(image.windows(), image.window_levels).suited(block)


def check_kept(block: Block, dtype: np.dtype) -> None:
    """Refuse to keep NaN and infinity in a type that cannot hold them."""
    mask = block.nonfinite_mask
    if mask is not None and dtype.kind != "f" and not np.isfinite(block.given[mask]).all():
        raise NonFiniteError(
            f"NaN and infinity cannot be kept in a result of type {dtype}",
            "use dtype='float32'",
            code="nonfinite-integer",
        )


def sigma_over(values: np.ndarray, region: Sequence[slice]) -> np.ndarray:
    """Return sigma over a region of the image; axes of length 1 stay as they are."""
    where = (part if n > 1 else slice(None) for part, n in zip(region, values.shape, strict=True))
    return values[tuple(where)]
