"""Whether the noise of neighbouring pixels is correlated, separated from texture.

The smoothest patches of a picture hold its noise and a little texture. Rougher ones hold the same
noise and more texture, so the difference is the spectrum of texture, whatever that of the noise is.
The power of the smoothest patches is fitted by a multiple of it and correlated noise:

    power = c(0,0) d(0,0) + c(0,1) d(0,1) + c(1,0) d(1,0) + c(1,1) d(1,1) + a texture,    a >= 0

with c the autocovariance of the noise and d the power of each of its lags. The two have different
shapes: texture falls steeply from the lowest frequencies on and leaves white noise flat at the
highest ones, while correlated noise is flat at the lowest and falls to the very last.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np

from napari_gpu_denoise.noise.patches.variance import medians
from napari_gpu_denoise.noise.patches.white import PATCH, cosine_transform

LAGS = 4  # largest displacement of the autocovariance, in pixels
HIGHEST = np.s_[PATCH // 2 :, PATCH // 2 :]  # frequencies that hold least texture
FREQUENCY = np.maximum(*np.indices((PATCH, PATCH)))  # the larger of those along y and x
LOWEST_BAND, MIDDLE_BAND = FREQUENCY == 1, (FREQUENCY == 2) | (FREQUENCY == 3)
ROUGHER = (0.04, 0.32)  # patches that show the texture, from and to, as shares of all by smoothness
CALM = (0.08, 0.16)  # those whose highest frequencies hold hardly any texture in most pictures
UNLIKE = 0.3  # relative error of texture, which is not the same in smooth and in rough patches
ROUNDS = 4  # iterations: weights depend on the fit
CURVED = 0.03  # relative error of the power of noise that four lags describe
LOWEST = 0.05  # lowest relative power that a fit may give a coefficient
STEEP = 3.0  # largest ratio of power, lowest frequencies to middle ones, of noise alone
GROWTH = 0.6  # correlation that texture may mimic, per growth at the highest frequencies
LEAST = 0.1  # correlation of neighbours that matters
SIGNIFICANT = 3.0  # standard errors by which it differs from 0
BETTER = 1.3  # ratio of the misfits of four and nine lags from which nine are used
MISFIT = 0.5  # mean squared error over its variance, above which the fit is less sure by as much
TRUSTED = 1.0  # the same, up to which texture and noise are separated reliably


class PatchPower(NamedTuple):
    """Power of the cosine coefficients, in patches from smooth to rough."""

    smoothest: np.ndarray  # (8, 8), of the smoothest patches
    rough: np.ndarray  # (8, 8), of rougher ones
    growth: float  # relative increase, at the highest frequencies, of patches in between
    independent: float  # number of smoothest patches that share no pixels


class CorrelationFit(NamedTuple):
    """Correlated noise: correlation of neighbouring pixels, and power without texture."""

    along_y: float  # correlation of neighbours
    along_x: float
    error: float  # the larger standard error of the two
    misfit: float  # mean squared error of the fit over its variance
    power: np.ndarray  # (8, 8), of the noise without texture

    @property
    def is_correlated(self) -> bool:
        """Whether neighbours are correlated beyond what texture or chance could cause."""
        largest = max(abs(self.along_y), abs(self.along_x))
        return largest > max(LEAST, SIGNIFICANT * self.error)

    @property
    def trusted(self) -> bool:
        """Whether noise and texture were separated reliably."""
        return self.misfit <= TRUSTED


def fit_correlation(powers: PatchPower) -> CorrelationFit | None:
    """Separate correlated noise from texture in the power of the smoothest patches.

    Whether noise is correlated is decided by a fit with four lags, which texture resembles least.
    The power is that of the same fit, or of one with nine lags where correlation of longer range
    makes that clearly better. None where there is no noise, or none that a fit would explain.
    """
    near, far = _fit(powers, 2), _fit(powers, 3)
    if near is None:
        return None
    lags, errors = near.lags, []  # at no displacement, along x, along y, along both
    for k in (1, 2):
        slope = np.zeros(len(near.covariance))
        slope[0], slope[k] = -lags[k] / lags[0] ** 2, 1 / lags[0]
        errors.append(math.sqrt(slope @ near.covariance @ slope))
    unsure = max(near.misfit / MISFIT, 1.0)
    kept = near if far is None or near.misfit < BETTER * far.misfit else far
    # Where texture hides the noise the fit replaces what was read.
    share = kept.chance / (kept.chance + kept.unlike)
    rest = powers.smoothest.ravel() - kept.texture - kept.noise
    clean = np.maximum(kept.noise + share * rest, LOWEST * kept.noise)
    return CorrelationFit(
        float(lags[2] / lags[0]),
        float(lags[1] / lags[0]),
        math.hypot(max(errors) * unsure, GROWTH * max(powers.growth, 0.0)),
        near.misfit,
        clean.reshape(PATCH, PATCH),
    )


class _Fit(NamedTuple):
    """A fit of noise and texture: autocovariance at each lag, and power by coefficient."""

    lags: np.ndarray  # relative to the power at the highest frequencies, as are all but the powers
    covariance: np.ndarray  # of the fitted lags and the strength of texture
    misfit: float  # mean squared error of the fit over its variance
    noise: np.ndarray  # power, squared grey levels
    texture: np.ndarray  # power, squared grey levels
    chance: np.ndarray  # variance by chance alone
    unlike: np.ndarray  # variance by texture that differs from that of rougher patches


def _fit(powers: PatchPower, reach: int) -> _Fit | None:
    """Fit texture and noise with lags below `reach` along y and x; None where no noise results."""
    level = float(medians(powers.smoothest[HIGHEST].ravel()))
    if not level > 0:
        return None
    power, rough = powers.smoothest.ravel() / level, powers.rough.ravel() / level
    texture = np.maximum(rough - power, 0)
    texture[0] = 0
    texture /= max(float(texture.max()), 1e-300)
    design, count = power_of_lags(reach, reach), reach**2
    terms = np.concatenate([design, texture[:, None]], axis=1)[1:]
    relative = 2 / max(powers.independent, 1.0)
    # Start with white noise; all power above it is texture.
    noise = np.ones(len(power))
    strength = max(float((power - 1) @ texture / max(texture @ texture, 1e-300)), 0.0)
    for _ in range(ROUNDS):
        chance = relative * np.square(noise + strength * texture)
        unlike = np.square(UNLIKE * strength * texture)
        variance = chance + unlike + np.square(CURVED * noise)
        # The first coefficient, the mean, is not known.
        weighted = (terms / variance[1:, None]).T
        normal, seen = weighted @ terms, weighted @ power[1:]
        for number in (count + 1, count):
            found, covariance = _solved(normal[:number, :number], seen[:number])
            strength = float(found[count]) if len(found) > count else 0.0
            if strength >= 0:
                break
        if not found[0] > 0:
            return None
        noise = np.maximum(design @ found[:count], LOWEST * found[0])
    error = np.square(power[1:] - terms[:, : len(found)] @ found) / variance[1:]
    misfit = float(error.sum()) / (len(error) - len(found))
    noise, texture = level * noise, level * strength * texture
    return _Fit(found[:count], covariance, misfit, noise, texture, chance, unlike)


def without_steep_texture(powers: PatchPower) -> np.ndarray:
    """Return the power of the smoothest patches less texture, (8, 8).

    So much texture is subtracted that the lowest frequencies have no more than 3 times the power of
    the middle ones, as in correlated noise of any range; none where texture is not steeper.
    """
    power, texture = powers.smoothest, np.maximum(powers.rough - powers.smoothest, 0)
    excess, steep = (
        float(each[LOWEST_BAND].mean() - STEEP * each[MIDDLE_BAND].mean())
        for each in (power, texture)
    )
    if excess <= 0 or steep <= 0:
        return power
    return np.maximum(power - excess / steep * texture, LOWEST * power)


def _solved(normal: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the solution of normal equations, and its covariance."""
    try:
        covariance = np.linalg.inv(normal)
    except np.linalg.LinAlgError:  # no texture at all, for one
        covariance = np.linalg.pinv(normal)
    return covariance @ seen, covariance


@cache
def power_of_lags(ny: int, nx: int) -> np.ndarray:
    """Return the power of each coefficient, (64, ny * nx), for an autocovariance of (ny, nx).

    Stationary noise with autocovariance c has, in coefficient k of an axis, the variance sum over d
    of c(d) a(k, d): a is 1 for d = 0, else twice the correlation of row k of the transform with
    itself shifted by d. Along two axes the sums factor, if c is symmetric along each.
    """
    transform = cosine_transform(PATCH)

    def along(lags: int) -> np.ndarray:
        shifted = [
            (transform[:, d:] * transform[:, : PATCH - d]).sum(axis=1) * (2 if d else 1)
            for d in range(lags)
        ]
        return np.array(shifted).T

    found = np.kron(along(ny), along(nx))
    found.flags.writeable = False  # it is kept for the next call
    return found


def autocovariance(power: np.ndarray) -> np.ndarray:
    """Return the autocovariance, (5, 5), that best fits this power of coefficients, (8, 8).

    Least squares of relative errors. The first coefficient is ignored; 0 where there is no power.
    """
    values = power.ravel()
    if not values[1:].any():
        return np.zeros((LAGS + 1, LAGS + 1))
    weight = 1 / np.maximum(values, 1e-3 * values.max())
    weight[0] = 0  # not measured
    design = power_of_lags(LAGS + 1, LAGS + 1)
    weighted = design * weight[:, None]
    found = np.linalg.solve(weighted.T @ weighted, weighted.T @ (values * weight))
    return found.reshape(LAGS + 1, LAGS + 1)
