"""Checkpoints of interrupted runs that were damaged, or changed by strangers, for `resume=`."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import tifffile

import napari_gpu_denoise as gd
from fuzz import payload
from fuzz.file_cases import SMALL, as_large, damage_bytes
from fuzz.json_cases import damage_text, damage_values, nodes
from fuzz.watching import Case, Loss
from fuzz.zarr_cases import files_of, put_files
from napari_gpu_denoise.files import resuming
from scenes import SMALL_PARTS, noisy
from zarr_stores import write_store

_TIME = 1_700_000_000  # of all files of an input, by which a run knows it again
_NOISE = ({"sigma": 10}, {"noise": gd.PoissonGaussian(0.5, 4.0, 3.0)}, {"noise": "rician"}, {})


class Begun(NamedTuple):
    """A run that was stopped: files of its folder, the options, and the result without a stop."""

    files: dict[str, bytes]
    given: dict[str, Any]
    whole: np.ndarray


@lru_cache
def begun(number: int) -> Begun:
    """Stop a run after some parts, and run it without a stop."""
    ending, given = (".tif", ".ome.zarr")[number % 2], _NOISE[number // 2 % 4]
    with tempfile.TemporaryDirectory() as name, as_large(SMALL_PARTS):
        folder, cancel = Path(name), threading.Event()
        image = noisy(5, 24, 26, dtype="uint16")
        if ending == ".tif":
            tifffile.imwrite(folder / "in.tif", image, metadata={"axes": "ZYX"})
        else:
            write_store(folder / "in.ome.zarr", image, "ZYX", chunks=(1, 24, 26), levels=1)
        _set_times(folder)

        def stop(step: Any) -> None:
            if step.unit == "part" and step.done > number // 8:
                cancel.set()

        options = {"output": folder / f"out{ending}", "progress": stop, "cancel": cancel}
        gd.run_batch(folder / f"in{ending}", gd.NLMeans(**SMALL), **options, **given)
        files = files_of(folder)
        options = {"output": folder / f"whole{ending}"}
        gd.run_batch(folder / f"in{ending}", gd.NLMeans(**SMALL), **options, **given)
        return Begun(files, given, gd.read(folder / f"whole{ending}").data)


def _set_times(folder: Path) -> None:
    for place, _, names in os.walk(folder):
        for name in names:
            os.utime(os.path.join(place, name), (_TIME, _TIME))


def checkpoint_case(rng: Random, folder: Path) -> Case:
    """A run that goes on with a checkpoint of which something was changed."""
    number = rng.randrange(24)
    started, ending = begun(number), (".tif", ".ome.zarr")[number % 2]
    files, exact, told = dict(started.files), True, []
    for _ in range(rng.choice((1, 1, 2, 3))):
        ours = [name for name in files if name.startswith(".gpu-denoise-")]
        lists = [each for each in ours if each.endswith("/parts")]
        name = rng.choice(rng.choice((ours, lists, lists)) or [*files])
        try:
            done, same = _damage(rng, files, name)
        except (ValueError, TypeError, LookupError, RecursionError):  # by an earlier change
            done, same = "as it was", False
        told.append(f"{name.partition('/')[2] or name}: {done}")
        exact = exact and same and not name.startswith("in.")
    # The input is read only, the rest may be written to.
    for place in ("data", "out"):
        own = {n: data for n, data in files.items() if n.startswith("in.") == (place == "data")}
        put_files(folder / place, own)
    _set_times(folder / "data")

    def run() -> None:
        path, target = folder / "data" / f"in{ending}", folder / "out" / f"out{ending}"
        with as_large(SMALL_PARTS):
            options = {"output": target, "resume": True, **started.given}
            (file,) = gd.run_batch(path, gd.NLMeans(**SMALL), **options).files
        if file.error is not None:
            raise file.error
        after = gd.read(target)
        if after.data.shape != started.whole.shape or not after.history:
            raise Loss(f"the result has shape {after.data.shape}, or no record")
        if exact and not np.array_equal(after.data, started.whole):
            raise Loss("the result is another than without the stop")

    return Case(f"checkpoint {number} {started.given}, {'; '.join(told)}", run)


def _damage(rng: Random, files: dict[str, bytes], name: str) -> tuple[str, bool]:
    """Change a file; return what was done, and whether the result has to stay the same."""
    way, data = rng.randrange(8), bytearray(files[name])
    if way == 0:
        del files[name]
        return "removed", True
    if not name.endswith("/parts") or not data:
        done = damage_bytes(rng, data) if data else "empty"
        files[name] = bytes(data)
        # Chunks are known by their sizes only.
        return done, done not in ("flipped", "block", "empty") and "/image/" not in name
    lines = bytes(data).splitlines(True)
    number = rng.randrange(len(lines))
    if way < 6:
        key, value = json.loads(lines[number].partition(b" ")[2])
        done, value, same = _changed(rng, key, value)
        text = f"{json.dumps(value)}\n".encode()
        lines.insert(number, resuming._digest(text) + b" " + text)
        del lines[number + 1 - rng.randrange(2)]  # instead of what was said, or before it
    else:
        text = lines[number].decode()
        lines[number] = damage_text(rng, text).encode("utf-8", "surrogatepass")
        done, same = "text", True
    files[name] = b"".join(lines)
    return done, same


def _changed(rng: Random, key: Any, value: Any) -> tuple[str, list[Any], bool]:
    """Change what a line says; return words, what it says, and whether the result is the same."""
    models = [each for each in nodes(value) if each[1] in ("models", "fields", "kind", "array")]
    if isinstance(key, int):
        odd = (-1, 0, 10**30, "9" * 5000, "x", "", "1.5", "nan", 2, payload.EXPRESSION, None)
        value[rng.randrange(len(value))] = rng.choice(odd)
        key = rng.choice((key, key, *odd))
    elif models and rng.randrange(2):
        holder, last = rng.choice(models)
        module = "napari_gpu_denoise.run.record"
        kinds = (["os", "system"], ["fuzz.payload", "Payload"], [module, "finish"])
        odd = ([5], 5, None, {}, "x", json.loads("[" * 500 + "]" * 500), [[5, 5, 5, 5]])
        odd += tuple({"kind": kind, "fields": {}} for kind in kinds)
        odd += ({"kind": [module, "Tally"], "fields": {"saturated": payload.EXPRESSION}},)
        odd += ({"array": ["|O", [1], [1], "AAAAAAAAAAA="], "scalar": False},)
        odd += ({"array": ["<f8", [1], [2**40], "AAAAAAAAAAA="], "scalar": False},)
        holder[last] = rng.choice(odd)
    else:
        value = damage_values(rng, value)
    return f"{key} says {str(value)[:300]}", [key, value], isinstance(key, int)
