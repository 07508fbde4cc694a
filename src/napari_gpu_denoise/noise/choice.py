"""The noise model that most channels of an image call for."""

from __future__ import annotations

from collections import Counter

from napari_gpu_denoise.noise import models
from napari_gpu_denoise.noise.channel import ChannelNoise
from napari_gpu_denoise.noise.models import AUTO, NoiseModel


def chosen_model(channels: list[ChannelNoise], name: str) -> tuple[type[NoiseModel], str]:
    """Return the model that is named or that most channels call for, and why it is that one.

    Each channel votes for the last model in `MODELS` that it has evidence for, and a majority
    decides. A model that also describes additive noise is chosen even by one channel, where no
    other calls for a third model and the noise of those that do not call for it is white. Then a
    model that refines the chosen or named one replaces it where most channels have evidence for
    that.
    """
    simplest = models.MODELS[0]
    noisy = [each for each in channels if each.sigma > 0 or each.spectra is not None]
    if name != AUTO:
        chosen = next(model for model in models.MODELS if model.name == name)
        reason = "this model was requested"
    elif not any(each.sigma for each in channels):
        chosen, reason = simplest, "no noise was found"
    else:
        votes = [_vote(each) for each in noisy]
        chosen, count = Counter(model for model, _ in votes).most_common(1)[0]
        if 2 * count <= len(votes) and len(votes) > 1:
            chosen = simplest
        rarer = {model for model, _ in votes} - {simplest}
        if chosen is simplest and len(rarer) == 1:
            chosen = _beside(rarer.pop(), noisy, votes)
        reasons = [why for model, why in votes if model is chosen]
        reason = reasons[0] if reasons else "the channels do not agree on a model"
    known = [each for each in noisy if each.spectra is not None]
    for model in models.MODELS:
        if model.refines is chosen:
            found = [why for each in known if (why := model.evidence(each))]
            if 2 * len(found) > len(known):
                return model, f"{reason}, and {found[0]}"
    return chosen, reason


def _beside(
    model: type[NoiseModel],
    channels: list[ChannelNoise],
    votes: list[tuple[type[NoiseModel], str]],
) -> type[NoiseModel]:
    """Return the model that some channels call for, if it does no harm to the others."""
    simplest = models.MODELS[0]
    others = [each for each, (vote, _) in zip(channels, votes, strict=True) if vote is simplest]
    white = all(each.spectrum is None or each.spectrum.white for each in others)
    return model if model.includes_additive and white else simplest


def _vote(channel: ChannelNoise) -> tuple[type[NoiseModel], str]:
    """Return the model that one channel calls for, and why."""
    for model in reversed(models.MODELS[1:]):
        if channel.spectra is not None and model.refines is None:
            reason = model.evidence(channel)
            if reason:
                return model, reason
    simplest = models.MODELS[0]
    return simplest, simplest.evidence(channel) or ""
