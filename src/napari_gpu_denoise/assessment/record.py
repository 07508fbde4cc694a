"""What is known of how good a result is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from napari_gpu_denoise.assessment.formulas import Detail, SigmaCheck, Statistics, decibels
from napari_gpu_denoise.noise.record import plain
from napari_gpu_denoise.run.record import Record

_BOUND = 1.645  # standard errors: beyond them are 5 % of a normal distribution at either side


@dataclass(frozen=True)
class ChannelQuality:
    """How good the result is in one channel.

    Attributes
    ----------
    noise : float
        Standard deviation of the noise, root of the mean square, grey levels.
    error : float
        Predicted error of the result, root of the mean square, grey levels; 0 where it is too small
        to be told.
    mse_error : float
        One standard error of the square of `error`, grey levels squared: of the noise of so few
        pixels, of the fresh noise, and of sigma where it was measured.
    psnr : float
        The error in dB below `Assessment.peak`; infinity where it is 0.
    gain : float
        By how many dB the error is below the noise; negative where it is above.
    detail : Detail
        Contrast kept, by spatial frequency.
    residual, twin : Statistics
        Of what the filter took away, in units of the noise: from the image, and from a twin of
        known noise. The first one says something only where it differs from the second.
    """

    noise: float
    error: float
    mse_error: float
    psnr: float
    gain: float
    detail: Detail
    residual: Statistics
    twin: Statistics

    @property
    def bounds(self) -> tuple[float, float]:
        """The interval that holds the error in 90 % of images, grey levels.

        It begins at 0 where the error may be too small to be told.
        """
        around = _BOUND * self.mse_error
        return math.sqrt(max(self.error**2 - around, 0.0)), math.sqrt(self.error**2 + around)

    @property
    def is_worse(self) -> bool:
        """Whether the error is above the noise by more than chance."""
        return self.bounds[0] > self.noise

    def words(self, peak: float) -> str:
        """Return error and PSNR, on a scale of `peak`, in words."""
        least, most = self.bounds
        of, at_least, gain, psnr = "of", "", self.gain, self.psnr
        if least:
            error = _measured(self.error, max(most - self.error, self.error - least))
            error += " grey levels (90 %)"
        else:
            error = f"at most {most:.2g} grey levels"
            at_least, gain, psnr = "at least ", *(decibels(most**2, p) for p in (self.noise, peak))
        if self.is_worse:
            of = "more than the"
        less = f" ({at_least}{gain:.1f} dB less)" if most < self.noise else ""
        return f"{error}, {of} {self.noise:.3g} before{less}; PSNR {at_least}{psnr:.1f} dB"


@dataclass(frozen=True)
class Assessment:
    """Quality of a filter's result, estimated from the noisy image alone.

    Attributes
    ----------
    filter : str
        Name of the filter.
    settings : dict
        Every setting by name.
    sigma_factor : float
        Factor by which sigma was multiplied for the filter: the requested strength.
    noise : str
        The noise that was assumed, in words.
    noise_source : str
        Origin of the noise: ``"given"``, or how it was estimated.
    axes : str
        Axes of the image.
    region : tuple of (int, int)
        Assessed region: start and stop along each axis.
    device : str
        Where the filter ran.
    peak : float
        Range of grey levels that the PSNR refers to.
    channels : tuple of ChannelQuality
        One for each channel, or a single one.
    check : SigmaCheck or None
        Whether sigma is right; None where this cannot be checked, as for correlated noise.
    warnings : tuple of str
        Reasons why the numbers are doubtful, or the result is worse than it could be.
    spacing : tuple of float or None
        Size of a pixel along Y and X, in `unit`.
    unit : str
        Unit of length; empty if unknown.
    seed : int
        Of the fresh noise.
    error_map : ndarray, float32
        Expected error around each pixel of `region`, grey levels: the root of a mean over some 30
        pixels. Not in `as_dict`.
    residual, twin_residual : ndarray, float32
        What the filter removed from the image, and from a twin with known noise, in units of the
        noise. Not in `as_dict`. They show if the noise is not as assumed. They do not show which
        detail was lost.
    """

    filter: str
    settings: dict[str, Any]
    sigma_factor: float
    noise: str
    noise_source: str
    axes: str
    region: tuple[tuple[int, int], ...]
    device: str
    peak: float
    channels: tuple[ChannelQuality, ...]
    check: SigmaCheck | None
    warnings: tuple[str, ...]
    spacing: tuple[float, float] | None
    unit: str
    seed: int
    error_map: np.ndarray = field(repr=False, compare=False)
    residual: np.ndarray = field(repr=False, compare=False)
    twin_residual: np.ndarray = field(repr=False, compare=False)

    @property
    def mse(self) -> float:
        """Predicted mean squared error over all channels, grey levels squared."""
        return float(np.mean([each.error**2 for each in self.channels]))

    @property
    def error(self) -> float:
        """Its root."""
        return math.sqrt(self.mse)

    @property
    def psnr(self) -> float:
        """Predicted PSNR over all channels, dB."""
        return 10 * math.log10(self.peak**2 / self.mse) if self.mse > 0 else math.inf

    def sentence(self) -> str:
        """Return the answer in a sentence: error before and after, and detail kept.

        Returns
        -------
        str
            Such as ``"The error falls from 12.2 to 1.6 grey levels; detail kept: half the contrast
            down to 0.31 µm."``. Of several channels, the root of the mean square error, and the
            detail of the one that keeps least.
        """
        before = math.sqrt(np.mean([each.noise**2 for each in self.channels]))
        most = math.sqrt(np.mean([each.bounds[1] ** 2 for each in self.channels]))
        told = all(each.bounds[0] for each in self.channels)
        after = f"{self.error:.2g}" if told else f"at most {most:.2g}"
        if any(each.is_worse for each in self.channels) or not most < before:
            rises = "rises" if self.error > before else "hardly falls"
            return f"The error {rises}, from {before:.3g} to {after} grey levels."
        text = f"The error falls from {before:.3g} to {after} grey levels"
        judged = [k for k, each in enumerate(self.channels) if each.detail.limit is not None]
        if not judged:
            return f"{text}; the noise hides all detail."
        fewest = min(judged, key=lambda k: self.channels[k].detail.half or math.inf)
        return f"{text}; detail kept: {self.detail_words(fewest)}."

    def detail_words(self, channel: int = 0) -> str:
        """Return the size of the finest detail that keeps half its contrast, in words.

        Parameters
        ----------
        channel : int, optional
            Number of the channel.

        Returns
        -------
        str
            Such as ``"half the contrast down to 0.31 µm"``.
        """
        detail = self.channels[channel].detail
        if detail.limit is None:
            return "the noise hides all detail: how much is kept cannot be measured"
        if detail.half is None:
            return (
                f"at least half the contrast down to {self._length(detail.limit)}; the noise hides "
                "finer detail"
            )
        return f"half the contrast down to {self._length(detail.half)}"

    def _length(self, frequency: float) -> str:
        """Return the period of a frequency as text."""
        finer = min(self.spacing) if self.spacing else 1.0
        return f"{finer / frequency:.2g} {self.unit if self.spacing else 'pixels'}".rstrip()

    def lines(self, said: Callable[[str], str] = str) -> list[tuple[str, str]]:
        """Return the findings as titles and texts.

        Parameters
        ----------
        said : callable, optional
            Function that returns the wording of a warning for a front end.

        Returns
        -------
        list of (str, str)
            The title of a continuation line is empty.
        """
        several = len(self.channels) > 1
        lines: list[tuple[str, str]] = []
        for k, each in enumerate(self.channels):
            name = f"channel {k}: " if several else ""
            lines.append(("Expected error", f"{name}{each.words(self.peak)}"))
        for k, _ in enumerate(self.channels):
            name = f"channel {k}: " if several else ""
            lines.append(("Detail kept", f"{name}{self.detail_words(k)}"))
        for k, each in enumerate(self.channels):
            name = f"channel {k}: " if several else ""
            lines.append(("Residual", f"{name}{_beside(each)}"))
        lines.append(("PSNR refers to", f"a range of {self.peak:.4g} grey levels"))
        lines.append(("Check of sigma", self.check_words()))
        lines.append(("Noise assumed", f"{self.noise} ({self.noise_source})"))
        if self.sigma_factor != 1:
            lines.append(("Strength", f"the filter used {self.sigma_factor:g} times this"))
        lines += [("Warning", said(each)) for each in self.warnings]
        last, merged = "", []
        for title, text in lines:
            merged.append(("" if title == last else title, text))
            last = title
        return merged

    def check_words(self) -> str:
        """Return in words whether sigma is right."""
        if self.check is None:
            return "not possible: the noise is not white, or the filter takes no sigma"
        if self.check.fits:
            return "right: unseen pixels are predicted best at about this sigma"
        return (
            f"unseen pixels are predicted best at {self.check.best:.2g} times this sigma: sigma "
            "may be wrong"
        )

    def summary(self, said: Callable[[str], str] = str) -> str:
        """Return half a page of text; `said` is as in `lines`."""
        rows = self.lines(said)
        width = max(len(title) for title, _ in rows)
        region = ", ".join(
            f"{axis if axis != '.' else 'plane'} {start}:{stop}"
            for axis, (start, stop) in zip(self.axes, self.region, strict=True)
        )
        head = [("Region", region), ("Filter", self.filter)]
        return "\n".join(f"{title:{width}}  {text}" for title, text in (*head, *rows))

    def as_dict(self) -> dict[str, Any]:
        """Return everything except the pictures as plain values, ready for JSON.

        Returns
        -------
        dict
            The fields by name, `mse`, `error` and `psnr` over all channels, and for each channel
            `detail_words`. Numbers that are not finite are None.
        """
        pictures = ("error_map", "residual", "twin_residual")
        kept = asdict(replace(self, **dict.fromkeys(pictures)))
        values = {name: value for name, value in kept.items() if name not in pictures}
        own = {"mse": self.mse, "error": self.error, "psnr": self.psnr}
        words = [self.detail_words(k) for k in range(len(self.channels))]
        own["warnings"] = list(map(str, self.warnings))
        return plain({**values, **own, "detail_words": words})

    def noted(self, record: Record) -> Record:
        """Return the record of a result with this assessment in it.

        Parameters
        ----------
        record : Record
            Of a run with the same filter.

        Returns
        -------
        Record
        """
        return replace(record, assessment=self.as_dict())


def _measured(value: float, error: float) -> str:
    places = min(max(1 - math.floor(math.log10(error)), 0), 9) if 0 < error < math.inf else 3
    return f"{value:.{places}f} ± {error:.{places}f}"


def _beside(each: ChannelQuality) -> str:
    residual, twin = each.residual, each.twin
    return (
        f"variance {residual.variance:.2f} times that of the noise (twin {twin.variance:.2f}), "
        f"correlation of neighbours {residual.along_x:+.2f}, {residual.along_y:+.2f} "
        f"(twin {twin.along_x:+.2f}, {twin.along_y:+.2f})"
    )
