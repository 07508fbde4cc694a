"""Metadata of layers: the file a layer was read from, and the layer it was made from."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from napari.layers import Layer

from napari_gpu_denoise._napari.wording import label_of
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.files.image_file import ImageFile

METADATA_KEY = "napari-gpu-denoise"  # of the record of a result
FILE_KEY = "napari-gpu-denoise file"  # in the metadata of a layer

HISTORY = "history"  # in a record: those of the source, a result itself
SOURCE, SOURCE_ID = "source", "source_id"  # name and identity of the layer it was made from
TEMPORARY = "temporary"  # what a panel shows the layer for
ASKED = "asked"  # options of the run, which cannot be told from what it did


@dataclass(frozen=True)
class Origin:
    """The file that a layer was read from.

    `split` is the axis of channels there that was taken apart, None if none was, `place` that of
    the layer along it, else -1, `name` that channel's own. `stamp` tells whether the file has
    changed since.
    """

    path: str
    split: int | None
    place: int
    name: str
    colour: str
    stamp: tuple[int, ...]


def file_origin(metadata: Mapping[str, Any]) -> Origin | None:
    """Return the file that a layer with these metadata was made from; None if of none."""
    with suppress(KeyError, TypeError, ValueError):
        found = metadata[FILE_KEY]
        return Origin(**{**found, "stamp": tuple(found["stamp"])})
    return None


def split_axis(axes: str, shape: Sequence[int]) -> int | None:
    """Return the axis whose places become layers: channels, or samples that are no colours."""
    if "C" in axes:
        return axes.index("C")
    if "S" in axes and not is_rgb(axes, shape):
        return axes.index("S")
    return None


def is_rgb(axes: str, shape: Sequence[int]) -> bool:
    """Return whether napari can show the samples of pixels as colours."""
    return axes.endswith("S") and shape[-1] in (3, 4)


def layer_order(axes: str, rgb: bool) -> list[int]:
    """Return the order of the axes of a file in its layer: colours come last."""
    return sorted(range(len(axes)), key=lambda i: rgb and axes[i] == "S")


def placing(picture: ImageFile, axes: str) -> dict[str, Any]:
    """Return scale, units and labels of a layer with axes of a file; those unnamed are numbered."""
    steps = [picture.pixel_metadata.steps.get(axis, (1.0, "")) for axis in axes]
    return {
        "scale": tuple(step for step, _ in steps),
        "units": tuple(unit or "pixel" for _, unit in steps),
        "axis_labels": tuple(
            axis.lower() if axis in "TZCSYXD" else f"axis {number}"
            for number, axis in enumerate(axes)
        ),
    }


def stamp_of(picture: ImageFile) -> tuple[int, ...]:
    """Return numbers that change when a file of an image is written anew."""
    found: list[int] = []
    for path in picture.files or (Path(picture.path),):
        try:
            status = os.stat(path)
        except OSError:
            continue
        found += [status.st_size, status.st_mtime_ns]
    return tuple(found)


def is_temporary(layer: Layer) -> bool:
    """Return whether a panel shows a layer for a while only, such as a preview: it is no input."""
    return TEMPORARY in record_of(layer)


def temporary_metadata(kind: str, source: Layer) -> dict[str, Any]:
    """Return the metadata of a layer of a source that a panel shows for a while."""
    known = {SOURCE: source.name, SOURCE_ID: identity(source), TEMPORARY: kind}
    return {METADATA_KEY: known}


def record_in(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record in the metadata of a layer; empty for one that is no result."""
    found = metadata.get(METADATA_KEY)
    return found if isinstance(found, dict) else {}


def record_of(layer: Layer) -> dict[str, Any]:
    """Return the record of how a layer was made; empty for one that is no result."""
    return record_in(layer.metadata)


def records_of(layer: Layer) -> list[dict[str, Any]]:
    """Return the records of all runs that made a layer, oldest first."""
    return runs_in(record_of(layer))


def runs_in(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the records of all runs that a record tells of, oldest first, each alone."""
    own = {name: value for name, value in record.items() if name != HISTORY}
    return [*record.get(HISTORY, ()), own] if record else []


def is_result(layer: Layer) -> bool:
    """Return whether a layer is a filtered image: neither a map nor temporary."""
    record = record_of(layer)
    return "filter" in record and not map_of(record) and TEMPORARY not in record


def map_of(record: Mapping[str, Any]) -> str:
    """Return which map a filter shows in place of its result; empty for none."""
    shown = (record.get("settings") or {}).get("show", "image")
    return "" if shown == "image" else str(shown)


def filter_of(record: Mapping[str, Any]) -> type | None:
    """Return the filter of a record; None if it names none of this version."""
    from napari_gpu_denoise.filters import FILTERS
    from napari_gpu_denoise.measurements.subspace import Subspace

    return next((e for e in (*FILTERS, Subspace) if e.name == record.get("filter")), None)


def filter_title(record: Mapping[str, Any]) -> str:
    """Return the title of the filter of a record; empty if it names none of any version."""
    from napari_gpu_denoise.filters import REMOVED

    kind = filter_of(record)
    return REMOVED.get(str(record.get("filter")), "") if kind is None else kind.title


def name_of(record: Mapping[str, Any]) -> str:
    """Return the name that a result with a record is given: source, filter, and map if it is one.

    napari numbers a name that is taken.
    """
    words = record.get(SOURCE, ""), filter_title(record), map_of(record)
    return " ".join(filter(None, words))


def is_renamed(layer: Layer) -> bool:
    """Return whether the user has given a result a name of its own."""
    return re.sub(r" \[\d+\]$", "", layer.name) != name_of(record_of(layer))


def describe(layer: Layer) -> str:
    """Return how a result was made, in a line; empty for any other layer."""
    record, words = record_of(layer), []
    if (kind := filter_of(record)) is None:
        return ""
    with suppress(DenoiseError, TypeError, KeyError):  # of another version
        profile, changes = kind.of(**record["settings"]).nearest_profile()
        words.append(f"profile {profile}")
        words += [f"{label_of(name).lower()} {value}" for name, value in changes.items()]
    if (factor := record.get("sigma_factor", 1)) != 1:
        words.append(f"strength {factor:g}")
    words += [f"{word} {record[word]}" for word in ("frame", "slice") if word in record]
    spans = [(word, *record[word]) for word in ("rows", "columns") if word in record]
    words += [f"{word} {start} to {stop - 1}" for word, start, stop in spans]
    return f"{kind.title}: {', '.join([*words, *record.get('corrected', ())])}"


def identity(layer: Layer) -> str:
    """Return the ID of a layer, which stays the same as long as napari runs."""
    return str(layer.unique_id)


def origin_of(layer: Layer, layers: Iterable[Layer]) -> Layer | None:
    """Return the layer among others that a result was made from, if it is still there.

    In a later session, where identities are new, it is known by its name, or that of its file.
    """
    record = record_of(layer)
    runs = len(records_of(layer)) - 1
    return _named_in(record, layer, list(layers), runs) if record else None


def first_origin(layer: Layer, layers: Iterable[Layer]) -> Layer:
    """Return the earliest layer still there that a result goes back to; any other layer itself."""
    layers = list(layers)
    for runs, each in enumerate(records_of(layer)):
        if (found := _named_in(each, layer, layers, runs)) is not None:
            return found
    return layer


def _named_in(record: dict, result: Layer, layers: list[Layer], runs: int) -> Layer | None:
    """Return the layer that a record of a result names as its source, which so many runs made."""
    others, name = [each for each in layers if each != result], record.get(SOURCE)
    found = [each for each in others if identity(each) == record.get(SOURCE_ID)]
    found += [each for each in others if each.name == name]
    wanted = name, place_in_file(result)
    alike = [each for each in others if len(records_of(each)) == runs]
    found += [each for each in alike if (file_name(each), place_in_file(each)) == wanted]
    return next(iter(found), None)


def place_in_file(layer: Layer) -> int | None:
    """Return the place of a layer among the channels of its file; None if it is of none."""
    found = file_origin(layer.metadata)
    return None if found is None or found.place < 0 else found.place


def file_name(layer: Layer) -> str:
    """Return the name of the file of a layer, or of that it was made from; empty for none."""
    found = file_origin(layer.metadata)
    return Path(layer.source.path or "" if found is None else found.path).name


def made_from(source: Layer | str, layers: Iterable[Layer]) -> list[Layer]:
    """Return the results and maps of a layer, or of one with an identity, bottom first."""
    wanted = source if isinstance(source, str) else identity(source)
    found = [each for each in layers if record_of(each).get(SOURCE_ID) == wanted]
    return [each for each in found if not is_temporary(each)]
