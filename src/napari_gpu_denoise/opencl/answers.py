"""Answers of device tests, kept in the cache folder for later processes.

A file a device and driver. Whatever is wrong with it or with the folder means: test again.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import platform
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from napari_gpu_denoise.locks import locked
from napari_gpu_denoise.opencl.caches import cache_folder
from napari_gpu_denoise.opencl.source import kernel_folder
from napari_gpu_denoise.version import package_version

# Lines of /proc/cpuinfo that say what a compiler may use, on x86 and on Arm.
_PROCESSOR = ("vendor", "cpu family", "model", "stepping", "flags", "CPU ", "Features")
_PATIENCE = 120.0  # seconds for which another process that tests the same device is waited for


class Answer(NamedTuple):
    """What a test says of a device: its fault, if any, and how wide its vectors may be.

    An answer that does not last, such as that of a test that was interrupted, is not kept.
    """

    problem: str
    float_lanes: int
    lasting: bool = True


def answer_file(device: Any) -> Path:
    """Return the file of a `Device` with its driver, processor and version of this package."""
    told = [device.handle.platform.version, device.platform, device.name, device.version]
    told += [device.driver, str(device.float_lanes), package_version()]
    if device.shares_cores:
        told.append(_processor())
    digest = hashlib.sha256("\0".join(told).encode("utf-8")).hexdigest()[:32]
    return cache_folder() / f"device-{digest}.json"


def kept_answer(file: Path, lanes: int) -> Answer | None:
    """Return the answer in a file for a device that reports so many lanes; None if it is no use.

    A device that failed is tested again after the kernels have changed.
    """
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        answer = Answer(str(kept["problem"]), int(kept["float_lanes"]))
        outdated = answer.problem and kept["kernels"] != _kernels()
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return None if outdated or not 1 <= answer.float_lanes <= lanes else answer


def keep_answer(file: Path, device: Any, answer: Answer) -> None:
    """Write an answer that lasts to its file."""
    if not answer.lasting:
        return
    kept = {"device": str(device), **answer._asdict(), "kernels": _kernels()}
    begun = file.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        begun.write_text(json.dumps(kept), encoding="utf-8")
        os.replace(begun, file)


def forget_answers() -> None:
    """Have all devices tested again by later processes, and by this one if it has tested none."""
    with contextlib.suppress(OSError):
        for file in list(cache_folder().glob("device-*.json")):
            file.unlink()


@contextlib.contextmanager
def turn(file: Path) -> Iterator[None]:
    """Wait until nobody else tests the device of a file."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
            stack.callback(os.close, handle)
            patience = time.monotonic() + _PATIENCE
            while not locked(handle) and time.monotonic() < patience:
                time.sleep(0.05)
        yield


@lru_cache(maxsize=1)
def _processor() -> str:
    """Return model and features of the processor."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            first: Iterable[str] = itertools.takewhile(str.strip, lines)
            return "".join(line for line in first if line.startswith(_PROCESSOR))
    except (OSError, ValueError):
        return platform.processor()


def _kernels() -> str:
    """Return a digest of the sizes and times of all kernel files."""
    states = (
        (file.as_posix(), status.st_size, status.st_mtime_ns)
        for file in sorted(kernel_folder().rglob("*"))
        for status in (file.stat(),)
    )
    return hashlib.sha256(repr(list(states)).encode("utf-8")).hexdigest()[:32]
