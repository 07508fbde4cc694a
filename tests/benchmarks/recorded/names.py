"""Names that a redesign changes: settings on the way in, records on the way back.

The cases name filters and settings as they were called when the first results were recorded. Fill
in the three tables when names change, so that hashes stay comparable.
"""

from __future__ import annotations

from typing import Any

from .answers import Answer

# Old name of a setting to its new one. "isoline.length" holds for one filter, "length" for all.
RENAMED: dict[str, str] = {
    "isoline.length": "segment_length",
    "isoline.pixels": "max_length",
    "wiener": "wiener_sigma",
}
# Values of settings that are words: ("isoline.show", "image") to a new word.
RENAMED_VALUES: dict[tuple[str, str], Any] = {}
# New keys of records, estimates and noise models to the ones of today.
RENAMED_KEYS: dict[str, str] = {
    "segment_length": "length",
    "max_length": "pixels",
    "wiener_sigma": "wiener",
}

KINDS = ("nl_means", "bm3d", "vbm3d", "isoline")
_PASSING = ("version", "date", "device", "input", "output", "path")  # differ from run to run
_WORDS = ("sigma_source", "notes", "method", "reason", "verdict", "skipped", "text", "summary")


def setting_name(kind: str, name: str) -> str:
    """Return what a setting is called now."""
    return RENAMED.get(f"{kind}.{name}", RENAMED.get(name, name))


def renamed_settings(kind: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Return settings with the names and words that they have now."""
    return {
        setting_name(kind, name): RENAMED_VALUES.get((f"{kind}.{name}", value), value)
        for name, value in changes.items()
    }


def split(plain: Any) -> Answer:
    """Part plain values into a record and words; leave out what differs from run to run."""
    words: dict[str, Any] = {}
    record = old_keys(_without_words(plain, words, ""))
    return Answer(record=record if isinstance(record, dict) else {"all": record}, words=words)


def _without_words(value: Any, words: dict[str, Any], path: str) -> Any:
    if isinstance(value, dict):
        kept = {}
        for key, each in value.items():
            if key == "settings":  # one of them is called method
                kept[key] = each
            elif key in _WORDS:
                words[f"{path}{key}"] = each
            elif key not in _PASSING or isinstance(each, dict):
                kept[key] = _without_words(each, words, f"{path}{key}.")
        return kept
    if isinstance(value, (list, tuple)):
        return [_without_words(each, words, f"{path}{k}.") for k, each in enumerate(value)]
    return value


def old_keys(record: Any) -> Any:
    """Return a record with the names that the recorded results have."""
    if isinstance(record, list):
        return [old_keys(each) for each in record]
    if not isinstance(record, dict):
        return record
    plain = {RENAMED_KEYS.get(key, key): old_keys(each) for key, each in record.items()}
    kind = plain.get("filter")
    if kind in KINDS and isinstance(plain.get("settings"), dict):
        plain["settings"] = _old_settings(kind, plain["settings"])
    return plain


def _old_settings(kind: str, chosen: dict[str, Any]) -> dict[str, Any]:
    values = {(name, new): old for (name, old), new in RENAMED_VALUES.items()}
    names = {}
    for old, new in RENAMED.items():
        owner, _, name = old.rpartition(".")
        if owner in ("", kind):
            names[new] = name
    found = {names.get(name, name): value for name, value in chosen.items()}
    return {
        name: values.get((f"{kind}.{name}", value), value) if isinstance(value, str) else value
        for name, value in found.items()
    }
