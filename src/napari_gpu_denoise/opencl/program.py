"""Sources, contexts, queues, programs and kernels, made once per process.

Programs are built in other processes, too, so that this one finds them in the cache of the driver:
NVIDIA's compiler takes one program at a time in a process, whatever the threads, and keeps on disk
what it has built. The first call of a filter needs four to eight programs, of 0.1 to 2 s each.
Whatever goes wrong there costs time only: this process then builds a program itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from napari_gpu_denoise.errors import DenoiseError, DeviceMemoryError, KernelError, NoDeviceError
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.isolation import NO_WINDOW, cache_folder, check_process, loader

Arguments = dict[str, str]
"""The arguments of a kernel in order: names and types, such as ``"int"`` or ``"float *"``."""

ProgramKey = tuple[str, tuple[tuple[str, int], ...]]
"""A program: its name and its constants."""

_INCLUDE = re.compile(r'^\s*#include\s+"([^"]+)"\s*$')
# Arguments that depend on constants: a part of the head, or a macro that stands for some.
_CHOICE = re.compile(r"#if[^\n]*\n(.*?)(?:#else[^\n]*\n(.*?))?#endif|\b([A-Z][A-Z_]+)\b", re.DOTALL)
_QUALIFIERS = {"__global", "__constant", "__local", "const", "restrict"}


@lru_cache(maxsize=1)
def kernel_folder() -> Path:
    """Return the folder of the OpenCL C files, in the installed package or in the checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "kernels"
    return installed if installed.is_dir() else package.parents[1] / "kernels"


@lru_cache(maxsize=64)
def expand(name: str) -> str:
    """Return the source of a kernel file, such as ``"nl_means/pad_far.cl"``, and its includes.

    Each include is expanded once. ``#line`` marks let compilers name the original file and line.
    """
    return _expand(name, seen=set())


def _expand(name: str, seen: set[str]) -> str:
    seen.add(name)
    lines = [f'#line 1 "{name}"']
    text = (kernel_folder() / name).read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), start=1):
        include = _INCLUDE.match(line)
        if not include:
            lines.append(line)
        elif include[1] not in seen:
            lines += [_expand(include[1], seen), f'#line {number + 1} "{name}"']
        else:
            lines.append("")
    return "\n".join(lines)


@lru_cache(maxsize=128)
def signatures(kernel: str, source: str) -> tuple[Arguments, ...]:
    """Return what a kernel may take: arguments may depend on constants, by ``#if`` and macros.

    Raises ValueError if the same names may stand in different orders.
    """
    head = re.search(rf"\bvoid {kernel}\((.*?)\)\s*\{{", source, re.DOTALL)
    if not head:
        raise ValueError(f"The source has no kernel {kernel}.")
    made = map(dict, _alternatives(head[1], source.replace("\\\n", " ")))
    found: dict[frozenset[str], Arguments] = {}
    for arguments in made:
        if list(found.setdefault(frozenset(arguments), arguments)) != list(arguments):
            raise ValueError(f"The arguments of {kernel} may have two orders.")
    return tuple(found.values())


def _alternatives(text: str, source: str) -> list[tuple[tuple[str, str], ...]]:
    """Return all lists of names and types that a part of a head may stand for."""
    found: list[tuple[tuple[str, str], ...]] = [()]
    end = 0
    for choice in _CHOICE.finditer(text):
        bodies = [choice[1], choice[2] or ""]
        if choice[3]:
            define = rf"^#define {choice[3]}\b(.*)$"
            bodies = re.findall(define, source, re.MULTILINE)
        fixed = tuple(map(_argument, _parts(text[end : choice.start()])))
        others = [each for body in dict.fromkeys(bodies) for each in _alternatives(body, source)]
        found = [(*before, *fixed, *each) for before in found for each in others]
        end = choice.end()
    fixed = tuple(map(_argument, _parts(text[end:])))
    return [(*before, *fixed) for before in found]


def _parts(text: str) -> Iterator[str]:
    return filter(None, map(str.strip, text.split(",")))


def _argument(text: str) -> tuple[str, str]:
    *words, name = text.replace("*", " * ").split()
    return name, " ".join(word for word in words if word not in _QUALIFIERS)


_NUMBERS = {"int": np.int32, "uint": np.uint32, "ulong": np.uint64, "float": np.float32}


class Kernel:
    """A kernel of a program, called with arguments by name; like all kernels, for one thread.

    Names, order and types are those in the head of the kernel in its `source`. Unless pyopencl is
    told the types, it handles every number by itself, which takes about 10 µs each: far longer than
    the launch.
    """

    def __init__(self, program: Any, name: str, source: str):
        import pyopencl as cl

        self._kernel = cl.Kernel(program, name)
        self._signatures = signatures(name, source)
        self._count, self._in_order = -1, itemgetter("")  # of the call before

    def __call__(self, queue, size: tuple, group: tuple | None, /, **given) -> Any:
        """Enqueue the kernel over `size` work-items in groups of `group`; return the event."""
        try:
            if len(given) != self._count:
                self._prepare(given.keys())
            arguments = self._in_order(given)
        except KeyError:  # as many of other names
            self._prepare(given.keys())
            arguments = self._in_order(given)
        return self._kernel(queue, size, group, *arguments)

    def _prepare(self, names: Set[str]) -> None:
        """Have arguments of these names passed as the kernel takes them."""
        nearest = min(self._signatures, key=lambda each: len(each.keys() ^ names))
        if nearest.keys() != names:
            raise TypeError(
                f"The kernel {self._kernel.function_name} is called with other arguments: "
                f"missing {sorted(nearest.keys() - names)}, "
                f"unknown {sorted(names - nearest.keys())}"
            )
        self._kernel.set_arg_types([_NUMBERS.get(kind) for kind in nearest.values()])
        one = next(iter(nearest))  # of a single name itemgetter would make no tuple
        self._in_order = itemgetter(*nearest) if len(nearest) > 1 else lambda given: (given[one],)
        self._count = len(names)


# Work-groups have one shape for all image sizes: PoCL compiles a kernel again for every shape, and
# a driver left to choose takes another shape for every image size, a poor one for odd sizes.
# Values per work-item on a CPU, in a vector loop, and work-items per group on a GPU.
_RUN = 4096
_GROUP = 128
# Pixels of a group along x and y.
_TILE = (32, 8)


def values_per_item(device: Device) -> int:
    """Return how many values one work-item processes, for kernels that act on single values."""
    return _RUN if device.float_lanes > 1 else 1


def value_grid(count: int, device: Device) -> tuple[tuple[int], tuple[int]]:
    """Return the global and local size for `count` values."""
    if device.float_lanes > 1:
        return (-(-count // _RUN),), (1,)
    group = min(_GROUP, device.max_group)
    return (-(-count // group) * group,), (group,)


def pixel_grid(
    device: Device, nx: int, ny: int, count: int
) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Return the global and local size for one work-item per pixel of `count` images.

    Rows and columns are rounded up to whole groups: kernels ignore what lies beyond.
    """
    across = min(_TILE[0], device.max_group)
    down = min(_TILE[1], device.max_group // across)
    return (-(-nx // across) * across, -(-ny // down) * down, count), (across, down, 1)


# Processes in a first call, each of which has a context: some 0.3 GB of device memory.
BUILDERS = 3
# Seconds for which a builder is waited for, and from one look at all of them to the next.
_PATIENCE, _MOMENT = 60.0, 0.005


class Task(NamedTuple):
    """A program to build, with its options as the driver gets them."""

    key: ProgramKey
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
        self._waiting: dict[ProgramKey, Task] = {}
        self._begun: dict[ProgramKey, threading.Event] = {}
        self._builders = 0

    def add(self, tasks: Iterable[Task], builders: int = BUILDERS) -> None:
        """Have programs built that were not built on this machine, by a number of builders."""
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

    def wait(self, key: ProgramKey) -> None:
        """Wait until a program is built, if anybody has begun it."""
        with self._lock:
            begun = self._begun.get(key)
        if begun is not None:
            begun.wait(_PATIENCE)

    def finish(self) -> None:
        """Wait until builders have built all that there is."""
        while self._builders:
            if not self._waiting and all(each.is_set() for each in [*self._begun.values()]):
                return
            time.sleep(_MOMENT)

    def _feed(self) -> None:
        """Start a builder and give it programs as long as there are any."""
        with contextlib.suppress(OSError, ValueError), _started(self._device) as process:
            # Nothing is taken before it is ready: all may be built by then.
            answers = iter(process.stdout or ())
            ready = next(answers, "")
            while ready:
                with self.next() as task:
                    if task is None:
                        break
                    _send(process, {"source": task.source, "options": task.options})
                    ready = next(answers, "")
                    if ready.strip() == "1":
                        self.built.add(task)
        with self._lock:
            self._builders -= 1


@contextlib.contextmanager
def _started(device: Device) -> Iterator[subprocess.Popen[str]]:
    """Start a builder; it ends at the end of its input, which is closed with the block."""
    siblings = device.handle.platform.get_devices()
    with subprocess.Popen(
        [sys.executable, "-I", "-S", str(Path(__file__).with_name("builder.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
        creationflags=NO_WINDOW,
    ) as process:
        _send(process, [loader(), device.platform, siblings.index(device.handle)])
        yield process


def _send(process: subprocess.Popen[str], value: Any) -> None:
    print(json.dumps(value), file=process.stdin, flush=True)


_MEMORY = (
    "MEM_OBJECT_ALLOCATION_FAILURE",
    "OUT_OF_RESOURCES",
    "OUT_OF_HOST_MEMORY",
    "INVALID_BUFFER_SIZE",
    "MAP_FAILURE",
)
# What drivers say when a device was reset or removed: its context is of no use any more.
_LOST = (
    "DEVICE_NOT_AVAILABLE",
    "INVALID_DEVICE",
    "INVALID_CONTEXT",
    "INVALID_COMMAND_QUEUE",
    "EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
    "unknown error",
)


def lacks_memory(error: Exception) -> bool:
    """Return whether an OpenCL error says that memory is missing."""
    return any(name in _status(error) for name in _MEMORY)


def lost_device(error: Exception) -> bool:
    """Return whether an OpenCL error says that the device is gone or was reset."""
    return any(name in _status(error) for name in _LOST)


def ends_context(error: Exception) -> bool:
    """Return whether a context may be of no use after an OpenCL error.

    NVIDIA's driver also says OUT_OF_RESOURCES of a launch that was stopped for taking too long.
    """
    return lost_device(error) or "OUT_OF_RESOURCES" in _status(error)


def opening_error(device: Device, error: Exception) -> DenoiseError:
    """Return the named error for a context that cannot be created."""
    if lacks_memory(error):
        return DeviceMemoryError(
            f"{device} cannot be opened, because it has too little free memory: close other "
            f"programs or choose another device ({error})."
        )
    if "DEVICE_NOT_AVAILABLE" in _status(error):
        return NoDeviceError(
            f"{device} cannot be opened, because another program uses it exclusively or it is "
            f"switched off: close that program or choose another device ({error})."
        )
    return NoDeviceError(
        f"{device} cannot be opened, perhaps because its driver was updated or does not support "
        f"it: restart the computer, reinstall the driver or choose another device ({error})."
    )


def running_error(device: Device, error: Exception) -> DenoiseError:
    """Return the named error for anything that fails once there is a context."""
    if lacks_memory(error):
        return DeviceMemoryError(
            f"{device} has too little free memory for this tile: close other programs or choose "
            f"another device ({error})."
        )
    if lost_device(error):
        return KernelError(
            f"{device} stopped in the middle of the work, perhaps because its driver was reset: "
            "try again, and if that fails too, update the driver or choose another device "
            f"({error})."
        )
    return KernelError(
        f"{device} failed while running a kernel: update its driver or choose another device "
        f"({error})."
    )


def _status(error: Exception) -> str:
    """Return the routine and the code of an error, without what a compiler said."""
    return str(error).partition(" - ")[0]


# Options of all programs. No relaxed mathematics: such flags gave coloured blocks on some drivers.
_OPTIONS = ("-cl-std=CL1.2",)

_log = logging.getLogger(__name__)
_lock = threading.RLock()
_sessions: dict[Device, Session] = {}


@dataclass
class Session:
    """The context of one device, and the programs built in it.

    Programs are shared between threads. Kernel objects are not thread-safe: `kernel` makes new
    ones for each plan. `turn` locks devices that one thread should use at a time. After `forget`,
    `ended` says that no new run uses the session. `ahead` builds programs in other processes, where
    that helps.
    """

    device: Device
    context: Any
    programs: dict[ProgramKey, Any] = field(default_factory=dict)
    # A lock for each program, so that threads build different ones at the same time.
    building: dict[ProgramKey | None, threading.Lock] = field(default_factory=dict)
    turn: Any = field(default_factory=threading.Lock)
    ended: bool = False
    ahead: BuildQueue | None = None

    def exclusive(self) -> Any:
        """Return a reusable context manager to enqueue in.

        On a device that shares the host's cores it admits one thread at a time: there are no cores
        to spare for a second run, and PoCL aborts if 16 threads enqueue at once.
        """
        return self.turn if self.device.shares_cores else contextlib.nullcontext()

    def queue(self, profiling: bool = False):
        """Return a new in-order command queue."""
        import pyopencl as cl

        if not profiling:
            return cl.CommandQueue(self.context)
        profiled = cl.command_queue_properties.PROFILING_ENABLE
        return cl.CommandQueue(self.context, properties=profiled)

    def kernel(
        self,
        name: str,
        constants: Mapping[str, int],
        coming: Callable[[], Iterable[ProgramKey]] | None = None,
    ) -> Kernel:
        """Return a new kernel object; its program is built once per process.

        `name` is the path of the kernel file without its suffix, and its last part the name of the
        kernel; `constants` are passed to the compiler (``-D``). `coming` returns the programs that
        will be asked for; it is called if they may be built at the same time as this one.
        """
        program = self.program(program_key(name, constants), coming)
        return Kernel(program, name.rsplit("/", 1)[-1], expand(name + ".cl"))

    def program(
        self, key: ProgramKey, coming: Callable[[], Iterable[ProgramKey]] | None = None
    ) -> Any:
        """Return a program, built once per process; `coming` as in `kernel`."""
        if self.ahead is not None and key not in self.programs:
            self._build_beside(self.ahead, key, coming)
        # The compilers of CPU drivers keep to one program at a time.
        one = None if self.device.shares_cores else key
        with _lock:
            alone = self.building.setdefault(one, threading.Lock())
        with alone:
            program = self.programs.get(key)
            if program is None:
                program = self.programs[key] = self._build(key)
                if self.ahead is not None:
                    self.ahead.built.add(self.task(key))
        return program

    def build_all(self, keys: Iterable[ProgramKey], builders: int) -> Iterator[ProgramKey]:
        """Build programs, with a number of other processes where that helps; yield each."""
        keys = list(keys)
        if self.ahead is not None:
            self.ahead.add(map(self.task, keys), builders)
            yield from self._build_waiting(self.ahead)
        for key in keys:
            if key not in self.programs:
                self.program(key)
                yield key

    def _build_beside(
        self,
        ahead: BuildQueue,
        key: ProgramKey,
        coming: Callable[[], Iterable[ProgramKey]] | None,
    ) -> None:
        """Take part in building the programs that are coming; return when nobody is at this one."""
        task = self.task(key)
        if coming is not None and task not in ahead.built:
            # Whatever fails there fails again in the run itself.
            with contextlib.suppress(Exception):
                ahead.add(map(self.task, coming()))
            for _ in self._build_waiting(ahead):
                pass
        ahead.wait(key)

    def _build_waiting(self, ahead: BuildQueue) -> Iterator[ProgramKey]:
        """Build what nobody else has begun, and yield it."""
        while True:
            with ahead.next() as task:
                if task is None:
                    return
                # If it cannot be built, whoever asks for it will hear why.
                with contextlib.suppress(Exception):
                    self.programs[task.key] = self._build(task.key)
                    ahead.built.add(task)
            yield task.key

    def task(self, key: ProgramKey) -> Task:
        import pyopencl as cl

        # pyopencl adds a path to the options, and drivers know a program by all of them.
        options, _ = cl.Program._process_build_options(self.context, build_options(key))
        return Task(key, expand(key[0] + ".cl"), options.decode("utf-8"))

    def _build(self, key: ProgramKey):
        import pyopencl as cl

        name, options = key[0], build_options(key)
        _log.debug("building %s for %s", name, self.device)
        try:
            with _quiet():
                return _built(self.context, expand(name + ".cl"), options)
        except cl.Error as error:
            if lacks_memory(error) or lost_device(error):
                raise  # not the fault of the kernel
            raise KernelError(
                f"{self.device} cannot build the kernel {name}: update its driver or choose "
                f"another device. The compiler says: {error}"
            ) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Have pyopencl not warn of compiler output within the block: it is shown if a build fails.

    Several threads may be in it: each removes what it added, where `catch_warnings` would restore
    the filters of another.
    """
    import pyopencl as cl

    filters: Any = warnings.filters  # a list
    own = "ignore", None, cl.CompilerWarning, None, 0
    filters.insert(0, own)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # somebody has reset the filters meanwhile
            filters.remove(own)


def _built(context: Any, source: str, options: list[str]) -> Any:
    """Build a program, which pyopencl keeps on disk where the driver does not.

    It raises KeyError if what it has kept is damaged: that is removed, and the program built anew.
    """
    import pyopencl as cl

    folder = cache_folder() / "programs"
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    # It waits for a minute where it cannot write.
    kept = str(folder) if os.access(folder, os.W_OK) else False
    program: Any = cl.Program(context, source)
    try:
        return program.build(options=options, cache_dir=kept)
    except KeyError:
        shutil.rmtree(folder, ignore_errors=True)
        return program.build(options=options, cache_dir=False)


def program_key(name: str, constants: Mapping[str, int]) -> ProgramKey:
    """Return the key of a program."""
    return name, tuple(sorted(constants.items()))


def build_options(key: ProgramKey) -> list[str]:
    """Return the options with which a program is built, always in the same order."""
    _, constants = key
    return [*_OPTIONS, *(f"-D{k}={int(v)}" for k, v in constants)]


def session(device: Device) -> Session:
    """Return the session of a device; it is made on first use.

    Raises
    ------
    NoDeviceError, DeviceMemoryError
        If the device cannot be opened.
    """
    import pyopencl as cl

    check_process()
    with _lock:
        if device not in _sessions:
            try:
                context = cl.Context([device.handle])
            except cl.Error as error:
                raise opening_error(device, error) from error
            ahead = BuildQueue(device) if worth_it(device) else None
            _sessions[device] = Session(device, context, ahead=ahead)
        return _sessions[device]


def share(opened: Session, device: Device) -> None:
    """Have runs on a device use the context of a session, unless they have one."""
    with _lock:
        _sessions.setdefault(device, replace(opened, device=device))


def forget(session: Session) -> None:
    """Let the next run open the device anew, as this context may be of no use any more."""
    session.ended = True
    with _lock:
        for key in [key for key, opened in _sessions.items() if opened is session]:
            del _sessions[key]
