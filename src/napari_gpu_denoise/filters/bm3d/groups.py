"""Groups of patches: settings of passes, kernels that suit a device, and correlated noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from napari_gpu_denoise.filters.channels import (
    INDEPENDENT,
    OPPONENT,
    JointFilter,
    Mixtures,
    mixtures_for,
)
from napari_gpu_denoise.filters.search.patch_search import SearchSettings, Variant
from napari_gpu_denoise.filters.search.video_search import VideoSearch
from napari_gpu_denoise.noise.correlation import LAGS
from napari_gpu_denoise.noise.models import Correlated, NoiseModel
from napari_gpu_denoise.noise.models.base import channel_correlations
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.protocol.filter import Context, Filter
from napari_gpu_denoise.protocol.settings import setting

PATCH = 8
TRANSFORMS = ("bior1.5", "dct", "dft")
STACK_TRANSFORMS = ("haar", "hadamard")


Search = TypeVar("Search", SearchSettings, VideoSearch)


@dataclass(frozen=True)
class GroupSettings(Generic[Search]):
    """One pass: what is searched, and how groups are filtered.

    `threshold` is in sigma: the hard threshold of coefficients, or the noise level assumed by a
    Wiener filter. `common` is the same for what the patches of a group have in common, if it is
    another one. `spectra` are the autocorrelations of the noise, (5, 5) each: one for all channels,
    or one for each; none for white noise. `kalman` filters from patch to patch instead, guided like
    a Wiener filter, and changes the reference alone.
    """

    search: Search
    transform: str
    stack: str
    similar: float
    threshold: float = 0.0
    common: float | None = None
    wiener: bool = False
    kalman: bool = False
    kaiser: float = 2.0
    shared_noise: bool = False
    spectra: tuple[tuple[tuple[float, ...], ...], ...] = ()

    @property
    def reach(self) -> int:
        """Reach in pixels: to a reference patch, and from there to its matches."""
        return 2 * (self.search.window // 2) + PATCH - 1 + self.search.beyond

    @property
    def operations_per_pixel(self) -> tuple[float, float]:
        """Operations of the search, and of the filtering of groups."""
        search = self.search
        images = 3 if self.wiener else 2
        compared = 2.0 * search.candidates * PATCH**2
        transformed = images * search.neighbours * PATCH**2 * (10.0 + 2 * math.log2(PATCH))
        return compared / search.step**2, transformed / search.step**2


def choose_group_variant(settings: GroupSettings[SearchSettings], device: Device) -> Variant:
    """Choose the kernel: whole groups as vectors on a CPU, a team of work-items a group on a GPU.

    Images are copied to local memory as far as it goes, the noisy one first. Where it is too small
    for a work-group, the work-group is made smaller.
    """
    if device.float_lanes >= 4:
        return Variant("shrink_lanes", {"GROUP_X": 8, "GROUP_Y": 4})
    limit = min(device.local_memory, 48 * 1024)
    neighbours, shared_noise = settings.search.neighbours, settings.shared_noise
    # Two spectra, or one and its variances: fewer patches per item leave registers for more items.
    few = neighbours == 8 if settings.wiener else neighbours == 16 and shared_noise
    depth = 4 if few else min(neighbours, 8)
    # Large groups with shared noise are bound by the fetching of instructions: many items that run
    # the same ones gain more than copies do.
    large = settings.wiener and shared_noise and neighbours == 32 and not settings.spectra
    copied = 0 if large else 1 + settings.wiener
    most = 256 if few or large else 128
    # Otherwise copies gain more than many items, and neighbours that share a slab the most.
    shapes = ((8, 4, (most, 64)), (4, 4, (64,)), (2, 2, (32,)), (1, 1, (8,)))
    choices = [((8, 8), copied, most)]
    if large and device.is_nvidia:
        # So many items get two thirds of the registers: spilling some costs less than few items do.
        choices.insert(0, ((8, 6), copied, 384))
    for group_x, group_y, sizes in shapes:
        for copies in range(copied, -1, -1):
            choices += [((group_x, group_y), copies, items) for items in sizes]
    for group, copies, items in choices:
        teams = max(1, min(items * depth // (8 * neighbours), group[0] * group[1]))
        variant = team_variant(device, group, depth, teams, copies)
        if local_bytes(settings, variant) <= limit and items <= device.max_group:
            return variant
    return variant


def team_variant(
    device: Device,
    group: tuple[int, int],
    depth: int,
    teams: int,
    copies: int = 0,
    wide: bool = False,
) -> Variant:
    """Return the kernel for a GPU whose work-groups serve `group` references along x and y.

    `wide` spends local memory to exchange all values of an item at once.
    """
    constants = {
        "GROUP_X": group[0],
        "GROUP_Y": group[1],
        "DEPTH": depth,
        "TEAMS": teams,
        "LOCAL_TILE": copies,
        "WARP_SYNC": device.is_nvidia,
        # Row length of a transposition in local memory, padded for 32 banks.
        "LINE": 9,
        "WIDE": wide,
    }
    return Variant("shrink_shared", constants)


def local_bytes(settings: GroupSettings[SearchSettings], variant: Variant) -> int:
    """Return the local memory that a work-group of `shrink_shared` needs, with a sigma map."""
    search, constants = settings.search, variant.constants
    parts = search.neighbours // constants["DEPTH"]
    each = 4 * (8 * constants["LINE"] * parts + 2 * search.neighbours)
    if settings.shared_noise:
        each += 16 * max(1, math.ceil(search.neighbours * (search.neighbours - 1) / 32))
    pixels = (1 + constants["LOCAL_TILE"]) * math.prod(slab_shape(search, variant))
    pixels += (PATCH + 1) * PATCH * settings.shared_noise  # correlations
    return constants["TEAMS"] * each + 4 * pixels


def slab_shape(search: SearchSettings, variant: Variant) -> tuple[int, int]:
    """Return height and width of the region that the groups of one work-group can reach."""
    around = PATCH + search.window - 1
    down, across = (variant.constants[name] - 1 for name in ("GROUP_Y", "GROUP_X"))
    return down * search.step + around, across * search.step + around


GROUPS = (1, 2, 4, 8, 16, 32)

BASIC, FINAL = "in the first pass", "in the second pass"


# Settings that BM3D and its kin have in common: a function declares the one of its name.


def threshold(default: float) -> Any:
    help = "Hard threshold for transform coefficients in the first pass"
    return setting(default, help, bounds=(0.0, 10.0), unit="sigma")


def wiener_sigma(default: float) -> Any:
    help = "Noise level assumed by the Wiener filter in the second pass"
    return setting(default, help, bounds=(0.0, 10.0), unit="sigma")


def neighbours(default: int, of: str, what: str = "patches") -> Any:
    help = f"Maximum number of {what} in a group {of}"
    return setting(default, help, choices=GROUPS, unit=what, advanced=True)


ITERATIONS = {"once": 1, "chain": 9}


def refine() -> Any:
    help = (
        "Then estimate patches again, as ridge combinations of similar ones: once, or in a chain "
        "of steps that each remove a part of the noise"
    )
    return setting("off", help, choices=("off", *ITERATIONS))


class TwoPasses(Filter):
    """Base of BM3D and its kin: one or two passes that filter groups of what is similar.

    `similar` is the maximum mean squared difference between patches of a group in both passes, in
    sigma squared, and `kaiser` beta of the window that weights overlapping patches. `shared_noise`
    accounts for noise that overlapping patches share, in Haar stacks.
    """

    stages: ClassVar[tuple[str, ...]] = ("basic", "final")
    refine: str
    threshold: float
    wiener_sigma: float
    transform_basic: str = "bior1.5"
    transform_final: str = "dct"
    stack_basic: str = "haar"
    stack_final: str = "haar"
    similar_basic: float = 25.0
    similar_final: float = 16.0
    kaiser: float
    shared_noise: bool = True
    ridge: Any = None  # `RidgeSettings` of combinations tile by tile after the last pass

    @property
    def passes(self) -> dict[str, Any]:
        """The passes by name, in order."""
        raise NotImplementedError(f"{type(self).__name__} has no passes")

    @property
    def operations_per_pixel(self) -> float:
        """Estimate for the searches, the transforms and the combinations."""
        more = self.ridge.operations_per_pixel if self.ridge else 0.0
        return sum(sum(one.operations_per_pixel) for one in self.passes.values()) + more

    @property
    def operations_per_launch(self) -> float:
        """The longest search, filtering of groups, at a quarter of its pace, or combination."""
        works = (one.operations_per_pixel for one in self.passes.values())
        longest = max(max(search, 4 * groups) for search, groups in works)
        one = self.ridge.operations_per_pixel / self.ridge.iterations if self.ridge else 0.0
        return max(longest, one)

    def takes(self, models: Sequence[NoiseModel]) -> bool:
        """Whether all models describe correlation; what depends on brightness is stabilised."""
        return self._spectral(models) is not None

    def _spectral(self, models: Sequence[NoiseModel]) -> tuple[Correlated, ...] | None:
        return spectral_models(models, volume="Z" in self.joint)

    def prepare(self, context: Context) -> Self:
        """Return the filter for an array, and for correlated noise; tell if it does not refine."""
        fitting = super().prepare(context)
        if found := self._spectral(context.noise):
            fitting = replace(fitting, noise=found)
        if self.refine == "off" or not (why := fitting.unrefined(context.noise or self.noise)):
            return fitting
        return replace(fitting, refine="off", notes=(*fitting.notes, f"not refined: {why}"))

    @cached_property
    def spectral(self) -> tuple[Correlated, ...]:
        """The noise that the filter accounts for, if it is correlated between pixels."""
        return tuple(model for model in self.noise if isinstance(model, Correlated))

    def unrefined(self, noise: Sequence[NoiseModel]) -> str:
        """Why results are not refined for such noise, whatever the setting says; empty if they are.

        Patches share more of correlated noise than combinations account for.
        """
        if not self._spectral(noise):
            return ""
        return "neighbouring pixels share noise, which ridge combinations do not account for"

    @property
    def iterations(self) -> int:
        """How many times patches are combined."""
        return 0 if self.unrefined(self.noise) else ITERATIONS.get(self.refine, 0)

    def _shrinkage(self, name: str) -> dict[str, Any]:
        """Return the fields of a pass that say how its groups are filtered."""
        stack = getattr(self, f"stack_{name}")
        return {
            "transform": getattr(self, f"transform_{name}"),
            "stack": stack,
            "similar": getattr(self, f"similar_{name}"),
            "threshold": self.threshold if name == "basic" else self.wiener_sigma,
            "wiener": name == "final",
            "kaiser": self.kaiser,
            "shared_noise": self.shared_noise and stack == "haar",
        }


class CollaborativeFilter(TwoPasses, JointFilter):
    """Base of BM3D and VBM3D: groups of similar patches."""

    @property
    def smallest(self) -> int:
        return PATCH

    def prepare(self, context: Context) -> Self:
        """Return the filter for an array, its channels, and white noise that they share."""
        fitting, noise = super().prepare(context).with_channels(context), context.noise
        if not noise or fitting.channels != "opponent":
            return fitting
        known = all(model.sigma_after and not model.models_correlation for model in noise)
        shared = known and np.any(channel_correlations(noise, 3) != np.eye(3))
        return replace(fitting, noise=noise) if shared else fitting

    @cached_property
    def mixtures(self) -> Mixtures:
        """What three channels are filtered as with ``channels="opponent"``."""
        if not self.noise:
            return INDEPENDENT
        if self.spectral:
            return INDEPENDENT._replace(strengths=np.array(opponent_strengths(self.spectral)))
        sigma = np.resize([model.sigma_after for model in self.noise], 3)
        return mixtures_for(channel_correlations(self.noise, 3) * np.outer(sigma, sigma))

    def _pass(self, name: str, search: Search, **more: Any) -> GroupSettings[Search]:
        return GroupSettings(search, **{**self._shrinkage(name), **more})

    def _with_spectra(
        self, passes: dict[str, GroupSettings[Search]]
    ) -> dict[str, GroupSettings[Search]]:
        """Return the passes with the spectra of the correlated noise that they filter."""
        if not self.spectral:
            return passes
        filtered, searched = spectra(self.spectral, self.channels)
        return {
            name: replace(one, spectra=searched if name == "prefilter" else filtered)
            for name, one in passes.items()
        }


# Corrections of Haar's sums by the differences beside them that make the wavelet bior1.5.
_BESIDE = 11 / 64

APARTS = 12  # displacement, in pixels, from which patches count as sharing no noise
LEAST_POWER = 1e-3  # of correlated noise at any frequency, relative to the mean power
_FURTHEST = 13  # distance, in pixels, from which noise is independent
_PERIOD = 64  # pixels: more than twice what two patches that share noise span
_PROJECTIONS = 200


def transform_matrix(name: str, length: int = 8) -> np.ndarray:
    """Return the matrix of a transform in `TRANSFORMS` of a line, with rows of unit norm.

    There are 1, 2, 4 or 8 values, 8 for the DFT. kernels/bm3d/patch_transform.h and
    kernels/bm4d/line_transform.h compute the same.
    """
    n, k = np.arange(length), np.arange(length)[:, None]
    if name == "dct":
        rows = np.cos(np.pi * k * (2 * n + 1) / (2 * length))
    elif name == "dft":
        turns = 2 * np.pi * n / 8
        waves = [wave(f * turns) for f in (1, 2, 3) for wave in (np.cos, np.sin)]
        rows = np.array([np.ones(8), *waves, (-1.0) ** n])
    else:
        rows = _wavelets(length, _BESIDE)
    return rows / np.sqrt((rows**2).sum(axis=1, keepdims=True))


def _wavelets(length: int, beside: float) -> np.ndarray:
    """Return the rows of a wavelet; of fewer than eight values all wavelets are Haar's."""
    if length == 1:
        return np.ones((1, 1))
    sums = np.repeat(np.eye(length // 2), 2, axis=1)
    differences = sums * (-1.0) ** np.arange(length)
    before, after = np.roll(differences, 1, axis=0), np.roll(differences, -1, axis=0)
    return np.vstack(
        [_wavelets(length // 2, 0.0) @ (sums - beside * (before - after)), differences]
    )


def correlations(name: str, length: int = 8) -> np.ndarray:
    """Return how white noise correlates between the spectra of two patches along one axis.

    The shape is (length + 1, length), by displacement along that axis and coefficient: 1 without
    displacement, 0 where patches lie side by side.
    """
    matrix, apart = transform_matrix(name, length), range(length + 1)
    return np.array([np.sum(matrix[:, d:] * matrix[:, : length - d], axis=1) for d in apart])


def extended_autocorrelation(autocorrelation) -> np.ndarray:
    """Extend an autocorrelation, given for displacements of 0, 1, ... along y and x, to 32 pixels.

    One that is cut off before it reaches 0 is not that of any noise: its power spectrum would be
    negative at some frequencies. By alternating projections (A. Papoulis, IEEE Trans. Circuits and
    Systems 22 (1975), :doi:`10.1109/TCS.1975.1084118`) a nearby one is found that has at least
    `LEAST_POWER` of the mean power at all frequencies, is 0 from `_FURTHEST` on and begins as
    given. If there is none, the given values change. The noise is symmetric along each axis.
    """
    found = np.zeros((_PERIOD // 2 + 1,) * 2)
    rows, columns = np.shape(autocorrelation)
    lag = np.arange(_PERIOD // 2 + 1)
    cosines = np.cos(2 * np.pi * np.outer(lag, lag) / _PERIOD)
    sums = cosines * np.where(lag % (_PERIOD // 2), 2.0, 1.0)  # all but the ends are there twice
    for _ in range(_PROJECTIONS):
        found[_FURTHEST:] = found[:, _FURTHEST:] = 0.0
        found[:rows, :columns] = autocorrelation
        power = np.maximum(sums @ found @ sums.T, LEAST_POWER)
        found = sums @ power @ sums.T / _PERIOD**2
    return found / found[0, 0]


@lru_cache(maxsize=32)
def covariances(name: str, autocorrelation: tuple[tuple[float, ...], ...]) -> np.ndarray:
    """Return the covariance of correlated noise in the spectra of two patches, in sigma squared.

    The shape is (12, 12, 8, 8), by displacement of the patches along y and x, and coefficient along
    y and x. Patches further apart count as sharing nothing. The array is cached: do not modify it.
    """
    along, near = products_at_distances(name), extended_autocorrelation(autocorrelation)
    return np.einsum("dfk,kl,egl->defg", along, near, along, optimize=True)


def products_at_distances(name: str, length: int = 8, apart: int = APARTS) -> np.ndarray:
    """Return sums of products of the coefficients' weights in two lines, by pixels between them.

    The shape is (apart, length, 33), by displacement of the lines, coefficient, and distance.
    """
    matrix, at = transform_matrix(name, length), np.arange(length)
    # Distance between pixel n of one line and pixel m of another, by their displacement.
    between = np.abs(np.arange(apart)[:, None, None] + at - at[:, None])
    along = np.zeros((apart, length, _PERIOD // 2 + 1))
    for d, distance in enumerate(between):
        for n, m in np.ndindex(length, length):
            along[d, :, distance[n, m]] += matrix[:, n] * matrix[:, m]
    return along


# If neighbouring pixels are correlated by more than this, along the axis that has more, patches are
# prefiltered with this threshold for matching: noise alone makes nearby patches look similar.
ALIKE = 0.6
PREFILTER_CORRELATED = 3.0

MOST_SCALES = 3
LEAST_SIDE = 32  # pixels of a halved image
# Sigma in a halved image, relative to that in the image, from which the halved image is filtered,
# too; it is 0.5 for white noise.
BLOTCHY = 0.7

# Noise that colours share by more than this comes from a camera, whose processing and compression
# leave more noise beside edges and texture than in the smooth places where it is measured, and
# with another spectrum: sigma is multiplied, and a part of the noise is taken for white.
SHARED = 0.25
CAMERA = 1.9
WHITE = 0.55

Autocorrelation = tuple[tuple[float, ...], ...]
_WHITE = tuple(tuple(float(y == x == 0) for x in range(LAGS + 1)) for y in range(LAGS + 1))


def spectra(
    models: tuple[Correlated, ...], channels: str
) -> tuple[tuple[Autocorrelation, ...], tuple[Autocorrelation, ...]]:
    """Return the autocorrelations of the noise in what is filtered, and in what is searched.

    `models`, and each result, are one for all channels or one for each.
    """
    filtered = searched = tuple(model.autocorrelation for model in models)
    sigmas = np.array([model.sigma for model in models])
    if len(models) > 1 and channels == "opponent":
        # The noise of channels is independent: variances add up.
        filtered = tuple(_average(filtered, np.square(row * sigmas)) for row in OPPONENT)
        if channel_correlation(models) > SHARED:
            filtered = tuple(
                _average((one, _WHITE), np.array([1 - WHITE, WHITE])) for one in filtered
            )
        searched = filtered[:1]
    elif len(models) > 1 and channels == "joint":
        # The guide is the mean of all channels, each divided by its sigma.
        searched = (_average(filtered, np.sign(sigmas)),)
    return filtered, searched


def channel_correlation(models: tuple[Correlated, ...]) -> float:
    """Return the mean correlation of the noise of these channels with that of others."""
    return float(np.mean([model.shared for model in models]))


def opponent_strengths(models: tuple[Correlated, ...]) -> tuple[float, float, float]:
    """Return sigma of opponent colours over what it would be if channels were independent.

    Variances of luminance add up with the covariances of the channels. Those of chrominance could
    be reduced by as much, but not at low frequencies, where the correlation is not measured.
    """
    shared = channel_correlation(models)
    if shared <= SHARED:
        return (1.0, 1.0, 1.0)
    return (CAMERA * math.sqrt(1 + 2 * shared), CAMERA, CAMERA)


def neighbours_alike(models: tuple[Correlated, ...]) -> bool:
    """Return whether noise of these models makes nearby patches look similar."""
    alike = np.mean([max(m.autocorrelation[0][1], m.autocorrelation[1][0]) for m in models])
    return bool(alike > ALIKE)


def most_scales(side: int, least: int = LEAST_SIDE) -> int:
    """Return on how many scales an image `side` pixels wide may be filtered, down to `least`."""
    return next(n for n in range(MOST_SCALES, 0, -1) if n == 1 or side >> (n - 1) >= least)


def scale_count(models: tuple[Correlated, ...], most: int) -> int:
    """Return on how many scales to filter noise of these models."""
    scales = 1
    while scales < most:
        halves = tuple(map(halved, models))
        before, after = (np.linalg.norm([m.sigma for m in each]) for each in (models, halves))
        if after <= BLOTCHY * before:
            break
        models, scales = halves, scales + 1
    return scales


@lru_cache(maxsize=64)
def halved(model: Correlated) -> Correlated:
    """Return the noise in an image whose pixels are means of 2 x 2."""
    lags = len(model.autocorrelation)
    near = extended_autocorrelation(model.autocorrelation)
    # Means of two pixels, two pixels apart, share none; their covariance is a sum over three lags.
    places, weights = 2 * np.arange(lags)[:, None] + [-1, 0, 1], [0.25, 0.5, 0.25]
    along = np.zeros((lags, len(near)))
    for row, at in zip(along, np.abs(places), strict=True):
        np.add.at(row, at, weights)
    table = along @ near @ along.T
    correlation = np.clip(table / table[0, 0], -1, 1)
    return Correlated(model.sigma * math.sqrt(table[0, 0]), correlation, model.shared)


def _average(tables: tuple[Autocorrelation, ...], weights: np.ndarray) -> Autocorrelation:
    # Without noise in any channel there is nothing to filter, and any table will do.
    weights = weights if np.any(weights) else np.ones(len(tables))
    table = np.tensordot(weights / np.sum(weights), np.array(tables), axes=1)
    return tuple(map(tuple, table.tolist()))


def spectral_models(
    models: Sequence[NoiseModel], *, volume: bool = False
) -> tuple[Correlated, ...] | None:
    """Return the correlated noise that is left after stabilisation, one for all channels or each.

    Empty if all of it is white, in a `volume` also along z, None if any model is of another kind.
    """
    if not models or not all(model.models_correlation for model in models):
        return None
    found = [one for one in (model.spectral for model in models) if isinstance(one, Correlated)]
    if all(model.white and not (volume and any(model.along_z[1:])) for model in found):
        return ()
    return tuple(found[:1] if len(set(found)) == 1 else found)
