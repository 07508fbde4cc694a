"""Layers of a run that has ended, and their names."""

from __future__ import annotations

from napari.viewer import Viewer

from napari_gpu_denoise._napari.denoise.maps import offer_of
from napari_gpu_denoise._napari.denoise.run import Outcome
from napari_gpu_denoise._napari.layers.results import NewLayer, Replaced, add_layer, at_places
from napari_gpu_denoise._napari.wording import label_of
from napari_gpu_denoise.run.request import Run

_MOST_WORDS = 4  # in a name; the record has all settings
_CORRECTED = {"stripes": "stripes removed", "outliers": "outliers removed", "found": "corrected"}


def add_layers(viewer: Viewer, outcome: Outcome, title: str, keep: bool = True) -> list[Replaced]:
    """Add the result of a run, and its maps, under the title of the filter.

    Unless `keep`, they replace those of an earlier run of the filter on the same layer; returned
    is what was replaced.
    """
    request = outcome.request
    provenance = outcome.result.record.as_dict()
    source = at_places(request.source, request.places) if request.places else request.source
    words = differences(request.run)
    for word, place in (("frame", request.frame), ("slice", request.slice)):
        if place is not None:
            words.append(f"{word} {place}")
            provenance[word] = place
    result = NewLayer("", "image", outcome.result.image, source.attributes)
    replaced = []
    for layer in (result, *outcome.maps):
        name = ", ".join([f"{title} {layer.title}".rstrip(), *words])
        replaced.append(add_layer(viewer, source, layer, name, provenance, keep))
    return [each for each in replaced if each is not None]


def differences(run: Run) -> list[str]:
    """Return in a few words how a run differs from one with the defaults of its filter."""
    profile, changes = run.filter.nearest_profile()
    default = next(iter(run.filter.presets))
    words = [] if profile == default else [f"profile {profile}"]
    offer = offer_of(run.filter)
    # A voxel size is that of the layer; a map is no setting of the result.
    silent = {"voxel", "" if offer is None else offer.setting}
    for name, value in changes.items():
        label = label_of(name).lower()
        if name not in silent:
            words.append(
                f"{'' if value else 'no '}{label}"
                if isinstance(value, bool)
                else f"{label} {value}"
            )
    if run.sigma is not None:
        given = run.sigma if isinstance(run.sigma, tuple) else (run.sigma,)
        words.append("sigma " + " / ".join(f"{value:.4g}" for value in given))
    elif run.noise is not None:
        words.append("one sigma" if run.noise == "gaussian" else "noise as measured")
    if run.sigma_factor != 1:
        words.append(f"strength {run.sigma_factor:g}")
    if run.correct is not None:
        words.append(_CORRECTED.get(run.correct.as_argument(), "corrected"))
    if run.dtype == "float32":
        words.append("float32")
    return words if len(words) <= _MOST_WORDS else [*words[: _MOST_WORDS - 1], "…"]
