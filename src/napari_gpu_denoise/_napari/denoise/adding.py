"""Layers of a run that has ended."""

from __future__ import annotations

from napari.viewer import Viewer

from napari_gpu_denoise._napari.denoise.run import Outcome
from napari_gpu_denoise._napari.layers.results import NewLayer, add_layer, at_places


def add_layers(viewer: Viewer, outcome: Outcome, title: str) -> None:
    """Add the result of a run, and its maps, under the title of the filter."""
    request, suffix = outcome.request, ""
    provenance = outcome.result.record.as_dict()
    source = at_places(request.source, request.places) if request.places else request.source
    for word, place in (("frame", request.frame), ("slice", request.slice)):
        if place is not None:
            suffix, provenance[word] = f"{suffix}, {word} {place}", place
    result = NewLayer("", "image", outcome.result.image, source.attributes)
    for layer in (result, *outcome.maps):
        add_layer(viewer, source, layer, f"{title} {layer.title}".rstrip() + suffix, provenance)
