"""Two files of results side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

SHOWN = 4  # values of a record that are printed


def compare(old: dict[str, Any], new: dict[str, Any], *, words: bool = False) -> bool:
    """Print what differs between two sets of cases.

    Parameters
    ----------
    old, new : dict
        As `record_results` writes them, with the cases that are to be compared.
    words : bool, optional
        Print differing texts as well; else they are only counted.

    Returns
    -------
    bool
        Whether all cases are there and their results are equal. Records do not count.
    """
    for what in ("device", "cpu"):
        if old["about"].get(what) != new["about"].get(what):
            print(f"ANOTHER {what.upper()}: {old['about'].get(what)} | {new['about'].get(what)}")
    before, after = old["cases"], new["cases"]
    missing = [name for name in before if name not in after]
    added = [name for name in after if name not in before]
    both = [name for name in before if name in after]
    results = [name for name in both if before[name]["result"] != after[name]["result"]]
    records = [name for name in both if before[name]["record"] != after[name]["record"]]
    texts = [name for name in both if before[name]["words"] != after[name]["words"]]
    for name in results:
        print(f"RESULT  {name}: {_difference(name, old, new)}")
    for name in records:
        print(f"RECORD  {name}")
        _print_values(before[name]["record_values"], after[name]["record_values"])
    for name in texts if words else ():
        print(f"WORDS   {name}")
        _print_values(before[name]["words_values"], after[name]["words_values"])
    for title, names in (("MISSING", missing), ("NEW    ", added)):
        for name in names:
            print(f"{title} {name}")
    print(
        f"{len(both)} cases compared: {len(results)} results, {len(records)} records and "
        f"{len(texts)} texts differ; {len(missing)} missing, {len(added)} new."
    )
    return not results and not missing


def _difference(name: str, old: dict[str, Any], new: dict[str, Any]) -> str:
    """Return how far two results are from each other, as far as that is known."""
    before, after = old["cases"][name], new["cases"][name]
    if before["shapes"] != after["shapes"]:
        return f"{before['shapes']} | {after['shapes']}"
    folders = [each["about"].get("arrays") for each in (old, new)]
    paths = [Path(folder or "") / file_name(name) for folder in folders]
    if not all(folders) or not all(path.is_file() for path in paths):
        return "differs (arrays were not kept)"
    found = []
    with np.load(paths[0]) as first, np.load(paths[1]) as second:
        for key in first.files:
            one, two = first[key], second[key]
            if one.dtype.kind not in "iuf":
                found += [f"{one} | {two}"] * bool(np.any(one != two))
                continue
            one, two = one.astype(np.float64), two.astype(np.float64)
            far = np.abs(one - two)[~((one == two) | (np.isnan(one) & np.isnan(two)))]
            if far.size:
                most = f"{np.nanmax(far):.3g}" if not np.isnan(far).all() else "NaN"
                spread = np.nanstd(one[np.isfinite(one)]) if np.isfinite(one).any() else 0
                found.append(
                    f"{key}: {far.size} of {one.size} values, by at most {most} "
                    f"(standard deviation of all {spread:.3g})"
                )
    return "; ".join(found) or "differs in the type or in bits that are no number"


def file_name(case: str) -> str:
    """Return the name of the file that keeps the arrays of a case."""
    return "".join(c if c.isalnum() or c in "-=." else "_" for c in case) + ".npz"


def _print_values(old: Any, new: Any) -> None:
    found = list(_differing(old, new, ""))
    for path, one, two in found[:SHOWN]:
        print(f"        {path}: {one!r:.300} | {two!r:.300}")
    if len(found) > SHOWN:
        print(f"        and {len(found) - SHOWN} more")


def _differing(old: Any, new: Any, path: str) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from _differing(old.get(key, "-"), new.get(key, "-"), f"{path}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (one, two) in enumerate(zip(old, new, strict=True)):
            yield from _differing(one, two, f"{path}[{number}]")
    elif repr(old) != repr(new):
        yield path.lstrip("."), old, new
