"""Choose the noise model that an image calls for: additive Gaussian noise where in doubt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from napari_gpu_denoise.noise import models
from napari_gpu_denoise.noise.channel import ChannelNoise
from napari_gpu_denoise.noise.models import AUTO, NoiseModel, model_named


class Choice(NamedTuple):
    """A noise model, and why it is that one."""

    model: type[NoiseModel]
    reason: str


def choose_model(channels: Sequence[ChannelNoise], name: str = AUTO) -> Choice:
    """Choose one model for all channels: the one named, or the one most channels call for.

    Each channel votes for the last model in `MODELS` that it has evidence for, and a majority
    decides. Then a model that refines the chosen or named one replaces it where most channels have
    evidence for that.
    """
    simplest = models.MODELS[0]
    noisy = [each for each in channels if each.sigma > 0 or each.spectra is not None]
    if name != AUTO:
        choice = Choice(model_named(name), "this model was requested")
    elif not any(each.sigma for each in channels):
        choice = Choice(simplest, "no noise was found")
    else:
        votes = [_vote(each) for each in noisy]
        model, count = Counter(each.model for each in votes).most_common(1)[0]
        if 2 * count <= len(votes) and len(votes) > 1:
            model = simplest
        reasons = [each.reason for each in votes if each.model is model]
        choice = Choice(model, reasons[0] if reasons else "the channels do not agree on a model")
    known = [each for each in noisy if each.spectra is not None]
    for model in models.MODELS:
        if model.refines is choice.model:
            found = [reason for each in known if (reason := model.evidence(each))]
            if 2 * len(found) > len(known):
                return Choice(model, f"{choice.reason}, and {found[0]}")
    return choice


def _vote(channel: ChannelNoise) -> Choice:
    """Return the model that one channel calls for."""
    for model in reversed(models.MODELS[1:]):
        if channel.spectra is not None and model.refines is None:
            reason = model.evidence(channel)
            if reason:
                return Choice(model, reason)
    simplest = models.MODELS[0]
    return Choice(simplest, simplest.evidence(channel) or "")
