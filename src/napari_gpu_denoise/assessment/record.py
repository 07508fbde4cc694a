"""What is known of how good a result is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from napari_gpu_denoise.assessment.formulas import Detail, SigmaCheck, Statistics
from napari_gpu_denoise.noise.record import plain

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
    detail : Detail
        Contrast kept, by spatial frequency.
    residual, twin : Statistics
        Of what the filter took away, in units of the noise: from the image, and from a twin of
        known noise. The first one says something only where it differs from the second.
    """

    noise: float
    error: float
    mse_error: float
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

    def words(self) -> str:
        """Return the error in words."""
        least, most = self.bounds
        text, at_least = f"{_at_most(most)}, ", "at least " * (not least)
        if least:
            text = _measured(self.error, max(most - self.error, self.error - least))
            text += " grey levels (90 %), "
        text += f"{'more than the' if self.is_worse else 'of'} {self.noise:.3g} before"
        if 0 < most < self.noise:
            gain = 20 * math.log10(self.noise / (self.error if least else most))
            text += f" ({at_least}{gain:.1f} dB less)"
        return text

    def residual_words(self) -> str:
        """Return the residual beside that of the twin in words."""
        residual, twin = self.residual, self.twin
        return (
            f"variance {residual.variance:.2f} times that of the noise (twin {twin.variance:.2f}), "
            f"correlation of neighbours {residual.along_x:+.2f}, {residual.along_y:+.2f} "
            f"(twin {twin.along_x:+.2f}, {twin.along_y:+.2f})"
        )


def _at_most(most: float) -> str:
    return f"at most {most:.2g} grey levels" if most else "too little to be measured"


def _measured(value: float, error: float) -> str:
    places = min(max(1 - math.floor(math.log10(error)), 0), 9) if 0 < error < math.inf else 3
    return f"{value:.{places}f} ± {error:.{places}f}"


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
    channels : tuple of ChannelQuality
        One for each channel, or a single one.
    check : SigmaCheck or None
        Whether sigma is right; None where this cannot be checked, as for correlated noise, or
        where structure is stronger than noise.
    warnings : tuple of str
        Reasons why the numbers are doubtful, or the result is worse than it could be.
    spacing : tuple of float or None
        Size of a pixel along Y and X, in `unit`.
    unit : str
        Unit of length; empty if unknown.
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
    channels: tuple[ChannelQuality, ...]
    check: SigmaCheck | None
    warnings: tuple[str, ...]
    spacing: tuple[float, float] | None
    unit: str
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

    def sentence(self) -> str:
        """Return the answer in a sentence: error before and after, and detail kept.

        Of several channels, it has the root of the mean square error, and the detail of the one
        that keeps least.
        """
        before = math.sqrt(np.mean([each.noise**2 for each in self.channels]))
        most = math.sqrt(np.mean([each.bounds[1] ** 2 for each in self.channels]))
        told = all(each.bounds[0] for each in self.channels)
        after = f"{self.error:.2g} grey levels" if told else _at_most(most)
        if any(each.is_worse for each in self.channels) or not most < before:
            rises = "rises" if self.error > before else "hardly falls"
            return f"The error {rises}, from {before:.3g} to {after}."
        text = f"The error falls from {before:.3g} to {after}"
        judged = [k for k, each in enumerate(self.channels) if each.detail.limit is not None]
        if not judged:
            return f"{text}; the noise hides all detail."
        fewest = min(judged, key=lambda k: self.channels[k].detail.half or math.inf)
        return f"{text}; detail kept: {self.detail_words(fewest)}."

    def detail_words(self, channel: int = 0) -> str:
        """Return the size of the finest detail that keeps half its contrast, in words."""
        detail = self.channels[channel].detail
        if detail.limit is None:
            return "the noise hides all detail: how much is kept cannot be measured"
        finer = min(self.spacing) if self.spacing else 1.0
        length = f"{finer / (detail.half or detail.limit):.2g}"
        length = f"{length} {self.unit if self.spacing else 'pixels'}".rstrip()
        if detail.half is None:
            return f"at least half the contrast down to {length}; the noise hides finer detail"
        return f"half the contrast down to {length}"

    def check_words(self) -> str:
        """Return in words whether sigma is right."""
        if self.check is None:
            return "not possible: noise is not white, or weak beside structure; or sigma is unused"
        if self.check.fits:
            return "right: unseen pixels are predicted best at about this sigma"
        return (
            f"unseen pixels are predicted best at {self.check.best:.2g} times this sigma: sigma "
            "may be wrong"
        )

    def lines(self, said: Callable[[str], str] = str) -> list[tuple[str, str]]:
        """Return the findings as titles and texts; the title of a continuation line is empty.

        `said` returns the wording of a warning for a front end.
        """
        by_channel = {
            "Expected error": [each.words() for each in self.channels],
            "Detail kept": [self.detail_words(k) for k in range(len(self.channels))],
            "Residual": [each.residual_words() for each in self.channels],
        }
        if len(self.channels) > 1:
            by_channel = {
                title: [f"channel {k}: {text}" for k, text in enumerate(texts)]
                for title, texts in by_channel.items()
            }
        strength = f"the filter used {self.sigma_factor:g} times this"
        rows = by_channel | {
            "Check of sigma": [self.check_words()],
            "Noise assumed": [f"{self.noise} ({self.noise_source})"],
            "Strength": [strength] if self.sigma_factor != 1 else [],
            "Warning": [said(each) for each in self.warnings],
        }
        return [
            (title * (k == 0), text)
            for title, texts in rows.items()
            for k, text in enumerate(texts)
        ]

    def summary(self, said: Callable[[str], str] = str) -> str:
        """Return half a page of text; `said` is as in `lines`."""
        region = ", ".join(
            f"{axis if axis != '.' else 'plane'} {start}:{stop}"
            for axis, (start, stop) in zip(self.axes, self.region, strict=True)
        )
        rows = [("Region", region), ("Filter", self.filter), *self.lines(said)]
        width = max(len(title) for title, _ in rows)
        return "\n".join(f"{title:{width}}  {text}" for title, text in rows)

    def as_dict(self) -> dict[str, Any]:
        """Return everything except the pictures as plain values, ready for JSON.

        Besides the fields, it has `mse` and `error` over all channels, and for each channel
        `detail_words`. Numbers that are not finite are None.
        """
        values = asdict(replace(self, residual=None, twin_residual=None))
        del values["residual"], values["twin_residual"]
        words = [self.detail_words(k) for k in range(len(self.channels))]
        own = {"mse": self.mse, "error": self.error, "detail_words": words}
        return plain({**values, **own, "warnings": list(map(str, self.warnings))})
