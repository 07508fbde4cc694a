"""Build programs in other processes, so that this one finds them in the cache of the driver.

NVIDIA's compiler takes one program at a time in a process, whatever the threads, and keeps on disk
what it has built. The first call of a filter needs four to eight programs, of 0.1 to 2 s each.
Whatever goes wrong there costs time only: this process then builds a program itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.isolation import cache_folder, loader

# Processes in a first call, each of which has a context: some 0.3 GB of device memory.
BUILDERS = 3
# Seconds for which a builder is waited for.
_PATIENCE = 60.0


class Task(NamedTuple):
    """A program to build, with its options as the driver gets them."""

    key: Hashable
    source: str
    options: str


def worth_it(device: Device) -> bool:
    """Whether other processes can build for a device, and this one finds the results."""
    cached = os.environ.get("CUDA_CACHE_DISABLE", "0") in ("", "0")
    mine = "nvidia" in device.platform.lower() and not getattr(sys, "frozen", False)
    if not (cached and mine):
        return False
    import pyopencl as cl

    return hasattr(cl.Program, "_process_build_options")  # it tells the options of a driver


class Built:
    """Programs that were built on this machine, which its drivers have in their cache by now.

    A folder for each driver has an empty file for each. If it is lost, or wrong as the cache was
    emptied, builders are started in vain, or are not.
    """

    def __init__(self, device: Device):
        of = _digest(device.platform, device.name, device.version, device.driver)
        self._folder = cache_folder() / f"built-{of}"

    def __contains__(self, task: Task) -> bool:
        return (self._folder / _digest(task.source, task.options)).exists()

    def add(self, task: Task) -> None:
        """Remember a program."""
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / _digest(task.source, task.options)).touch()


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode("utf-8")).hexdigest()[:32]


class BuildQueue:
    """The programs of one device that are to be built, by builders and by this process.

    Thread-safe. Whoever is free builds the longest that is left: source and time go together.
    """

    def __init__(self, device: Device):
        self._device = device
        self.built = Built(device)
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, Task] = {}
        self._begun: dict[Hashable, threading.Event] = {}
        self._builders = 0

    def add(self, tasks: Iterable[Task], builders: int = BUILDERS) -> None:
        """Have programs built that were not built on this machine, by up to so many builders."""
        with self._lock:
            for task in tasks:
                if task.key not in self._begun and task not in self.built:
                    self._waiting.setdefault(task.key, task)
            wanted = min(builders, len(self._waiting) - 1, (os.cpu_count() or 2) - 1)
            new = max(wanted - self._builders, 0)
            self._builders += new
        for _ in range(new):
            threading.Thread(target=self._feed, name="builder", daemon=True).start()

    @contextlib.contextmanager
    def next(self) -> Iterator[Task | None]:
        """Take a program to build within the block, the longest; None if there are no more."""
        task, done = None, threading.Event()
        with self._lock:
            if self._waiting:
                # Of equal ones, such as two passes, the last takes longer.
                *_, task = sorted(self._waiting.values(), key=lambda task: len(task.source))
                del self._waiting[task.key]
                self._begun[task.key] = done
        try:
            yield task
        finally:
            done.set()

    def wait(self, key: Hashable) -> None:
        """Wait until a program is built, if anybody has begun it."""
        with self._lock:
            begun = self._begun.get(key)
        if begun is not None:
            begun.wait(_PATIENCE)

    def _feed(self) -> None:
        """Start a builder and give it programs as long as there are any."""
        with contextlib.suppress(OSError, ValueError), _started(self._device) as process:
            # Nothing is taken before it is ready: all may be built by then.
            ready = process.stdout.readline()
            while ready:
                with self.next() as task:
                    if task is None:
                        break
                    _send(process.stdin, {"source": task.source, "options": task.options})
                    ready = process.stdout.readline()
            with self._lock:
                self._builders -= 1


@contextlib.contextmanager
def _started(device: Device):
    """Start a builder; it ends at the end of its input."""
    siblings = device.handle.platform.get_devices()
    quiet = {"creationflags": subprocess.CREATE_NO_WINDOW} if os.name == "nt" else {}
    with subprocess.Popen(
        [sys.executable, "-I", "-S", str(Path(__file__).with_name("builder.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        **quiet,
    ) as process:
        try:
            number = siblings.index(device.handle)
            _send(process.stdin, [loader(), device.platform, number])
            yield process
        finally:
            with contextlib.suppress(OSError):
                process.stdin.close()


def _send(pipe: Any, value: Any) -> None:
    pipe.write(json.dumps(value) + "\n")
    pipe.flush()
