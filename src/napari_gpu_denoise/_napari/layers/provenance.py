"""Which layer was made from which: what the metadata of results say of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from napari.layers import Layer

from napari_gpu_denoise._napari.layers.source import METADATA_KEY, TEMPORARY, is_temporary

HISTORY = "history"  # in a record: those of the source, a result itself
SOURCE, SOURCE_ID = "source", "source_id"  # name and identity of the layer it was made from
MAP = "map"  # title of a map beside a result


def record_of(layer: Layer) -> dict[str, Any]:
    """Return the record of how a layer was made; empty for one that is no result."""
    found = layer.metadata.get(METADATA_KEY)
    return found if isinstance(found, dict) else {}


def is_result(layer: Layer) -> bool:
    """Return whether a layer is a filtered image: neither a map nor temporary."""
    record = record_of(layer)
    return "filter" in record and MAP not in record and TEMPORARY not in record


def identity(layer: Layer) -> str:
    """Return what stays the same of a layer as long as napari runs."""
    return str(layer.unique_id)


def origin_of(layer: Layer, layers: Iterable[Layer]) -> Layer | None:
    """Return the layer among others that a result was made from, if it is still there.

    In a later session, where identities are new, it is known by its name.
    """
    record = record_of(layer)
    return _named_in(record, layer, list(layers)) if record else None


def first_origin(layer: Layer, layers: Iterable[Layer]) -> Layer:
    """Return the earliest layer still there that a result goes back to; any other layer itself."""
    record, layers = record_of(layer), list(layers)
    for each in (*record.get(HISTORY, ()), record) if record else ():
        if (found := _named_in(each, layer, layers)) is not None:
            return found
    return layer


def _named_in(record: dict[str, Any], result: Layer, layers: list[Layer]) -> Layer | None:
    others = [each for each in layers if each is not result]
    found = [each for each in others if identity(each) == record.get(SOURCE_ID)]
    found += [each for each in others if each.name == record.get(SOURCE)]
    return next(iter(found), None)


def made_from(source: Layer | str, layers: Iterable[Layer]) -> list[Layer]:
    """Return the results and maps of a layer, or of one with an identity, bottom first."""
    wanted = source if isinstance(source, str) else identity(source)
    found = [each for each in layers if record_of(each).get(SOURCE_ID) == wanted]
    return [each for each in found if not is_temporary(each)]
