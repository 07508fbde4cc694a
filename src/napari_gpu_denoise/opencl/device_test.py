"""Test devices before they are used, in processes that a broken driver may take down.

What is run is in `filters/self_test.py`: a short test of the compiler, and each use of a device, a
filter or ``"noise"``, before its first result. At vectors as wide as its driver reports, a compiler
may abort or take minutes: PoCL 3.0 does both on AMD Zen 4. Narrower ones are then tried.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import logging
import os
import platform
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from napari_gpu_denoise.errors import DeviceMemoryError, KernelError, NoDeviceError
from napari_gpu_denoise.opencl.isolation import NO_WINDOW, cache_folder
from napari_gpu_denoise.version import package_version

# Lines of /proc/cpuinfo that say what a compiler may use, on x86 and on Arm.
_PROCESSOR = ("vendor", "cpu family", "model", "stepping", "flags", "CPU ", "Features")
_log = logging.getLogger(__name__)
_TURN_PATIENCE = 120.0  # seconds for which another process that tests the same device is waited for


class Answer(NamedTuple):
    """Answer of the tests of a device: its fault, if any, width of vectors, filters it passed.

    `passed` names uses, with an empty one for the compiler. An answer that does not last, such
    as that of a test that was interrupted, is not kept.
    """

    problem: str
    float_lanes: int
    lasting: bool = True
    passed: tuple[str, ...] = ()

    def covers(self, uses: Sequence[str]) -> bool:
        """Whether there is nothing more to test for these uses."""
        return bool(self.problem) or {"", *uses} <= {*self.passed}


def answer_file(device: Any) -> Path:
    """Return the file of a `Device` with its driver, processor and version of this package."""
    told = [device.handle.platform.version, device.platform, device.name, device.version]
    told += [device.driver, str(device.float_lanes), package_version()]
    if device.shares_cores:
        told.append(_processor())
    digest = hashlib.sha256("\0".join(told).encode("utf-8")).hexdigest()[:32]
    return cache_folder() / f"device-{digest}.json"


def kept_answer(file: Path, lanes: int) -> Answer:
    """Return the answer in a file for a device with this number of lanes; else an empty one."""
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        passed = tuple(map(str, kept["passed"]))
        answer = Answer(str(kept["problem"]), int(kept["float_lanes"]), passed=passed)
    except (OSError, ValueError, LookupError, TypeError):
        return Answer("", lanes)
    return answer if 1 <= answer.float_lanes <= lanes else Answer("", lanes)


def keep_answer(file: Path, device: Any, answer: Answer) -> None:
    """Write an answer that lasts to its file."""
    if not answer.lasting:
        return
    kept = {"device": str(device), **answer._asdict()}
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
    from filelock import FileLock

    lock = FileLock(file.with_suffix(".lock"), _TURN_PATIENCE, mode=0o600)
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@lru_cache(maxsize=1)
def _processor() -> str:
    """Return model and features of the processor."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            first: Iterable[str] = itertools.takewhile(str.strip, lines)
            return "".join(line for line in first if line.startswith(_PROCESSOR))
    except (OSError, ValueError):
        return platform.processor()


# Started by its name, and imported only where no process can be: it lies above this folder.
_MODULE = "napari_gpu_denoise.filters.self_test"
_NARROWER = (8, 4)  # floats of vectors to try where those of the driver fail

_here = threading.Lock()


class Patience(NamedTuple):
    """Seconds from one message of a process to the next, `idle` and `computing`.

    Compilers are slow: Mesa's takes up to 30 s for one kernel. They get less for `vectors` of which
    narrower ones can be tried: most take one second, PoCL 3.0 minutes before it aborts (AMD Zen 4).
    """

    idle: float = 30.0
    computing: float = 120.0
    vectors: float = 5.0


_PATIENCE = Patience()


class Outcome(NamedTuple):
    """What a test finds wrong, if anything, and whether it will find so again."""

    problem: str = ""
    lasting: bool = True


class NoProcessError(Exception):
    """No process can be started for a test."""


def answer_for(device: Any, uses: Sequence[str] = (), patience: Patience = _PATIENCE) -> Answer:
    """Return the answer of tests of a `Device`: the one kept, or that of a test made now.

    It has passed the test of the compiler and of these uses, or has a problem.
    """
    file = answer_file(device)
    known = kept_answer(file, device.float_lanes)
    if known.covers(uses):
        return known
    with turn(file):  # somebody may have tested it meanwhile
        known = kept_answer(file, device.float_lanes)
        if not known.covers(uses):
            what = " and ".join(use for use in uses if use not in known.passed) or "its compiler"
            _log.info("Testing %s with %s, once; this may take 5 s", device, what)
            known = _widest(device, known, uses, patience)
            keep_answer(file, device, known)
    return known


def _widest(device: Any, known: Answer, uses: Sequence[str], patience: Patience) -> Answer:
    """Find the widest vectors that a device computes with, of those that have not failed yet."""
    native, passed = known.float_lanes, known.passed
    try:
        for lanes in (native, *(n for n in _NARROWER if n < native)):
            steps = [step for step in dict.fromkeys(("", *uses)) if step not in passed]
            problem, lasting = _run(device, lanes, steps, patience)
            if not problem:
                return Answer("", lanes, lasting, (*passed, *steps))
            if not lasting:
                break
            passed = ()
    except TimeoutError as error:
        problem, lasting = str(error), True
    return Answer(problem, native, lasting)


def _run(device: Any, lanes: int, steps: Sequence[str], patience: Patience) -> Outcome:
    """Run a test in a process, or in this one if none can be started."""
    request = device.platform, device.name, device.index, lanes, steps
    try:
        return _run_apart(device, request, patience)
    except NoProcessError as reason:
        _say_here(str(reason))
    with _here:
        return outcome_of(import_module(_MODULE).run_steps(request), lambda step: None)


@cache
def _say_here(reason: str) -> None:
    warnings.warn(
        f"No process can be started to test OpenCL devices ({reason}), so they are tested in this "
        "one, which a broken driver would end.",
        stacklevel=2,
    )


def child_command(request: Sequence[Any]) -> list[str]:
    """Return the command that runs a test of a device."""
    return [sys.executable, "-P", "-W", "ignore", "-m", _MODULE, json.dumps(request)]


def _run_apart(device: Any, request: Sequence[Any], patience: Patience) -> Outcome:
    """Run a test in a process of its own.

    Raises
    ------
    NoProcessError
        If there is none, or if what is started is not this package.
    TimeoutError
        If it makes no progress.
    """
    if getattr(sys, "frozen", False) or not sys.executable:
        raise NoProcessError("this program contains its Python")
    step, result, lanes = "", None, request[3]
    with tempfile.TemporaryFile() as said:
        with _child(child_command(request), said) as process:
            ahead = device, request[4], process.stdin
            threading.Thread(target=_build_ahead, args=ahead, daemon=True).start()
            try:
                vectors = patience.vectors if lanes > min(_NARROWER) else patience.computing
                for message in _messages(process, patience._replace(vectors=vectors)):
                    step = message.get("step", step)
                    result = message.get("outcome", result)
            except KernelError as slow:
                return Outcome(str(slow))
        code, last = process.returncode, _last_words(said)
    if result is not None:
        return Outcome(*result)
    if not step and 0 < code < 128:
        raise NoProcessError(last or f"exit status {code}")
    names = {each.value: each.name for each in signal.Signals}
    name = names.get(-code, f"exit status {code}")
    # Sent by whoever wants an end, or memory: not by a fault.
    ended = name in ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")
    return Outcome(f"the test of {step or 'its driver'} ended with {name}: {last}", not ended)


def _build_ahead(device: Any, steps: Sequence[str], told: Any) -> None:
    """Have the programs of filters built beside the start of a test, and tell it when they are."""
    with contextlib.suppress(Exception):  # the test finds what is wrong
        if any(steps):
            import_module(_MODULE).build_ahead(device, steps)
    with contextlib.suppress(OSError, ValueError):  # it has ended
        told.write(b"\n")


@contextlib.contextmanager
def _child(command: list[str], said: Any) -> Iterator[subprocess.Popen]:
    """Start a process, whose standard error goes to a file, and end it with all of its own."""
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            *(command, 0, None, pipe, pipe, said),
            creationflags=NO_WINDOW,
            start_new_session=True,  # has no effect on Windows
        )
    except OSError as error:
        raise NoProcessError(str(error)) from error
    with process:
        try:
            yield process
        finally:
            _end(process)


def _end(process: subprocess.Popen) -> None:
    """Kill a process that has not ended, and those it has started."""
    if process.poll() is None:
        with contextlib.suppress(OSError):
            process.kill() if os.name == "nt" else os.killpg(process.pid, signal.SIGKILL)


def _messages(process: subprocess.Popen, patience: Patience) -> Iterator[dict[str, Any]]:
    """Yield what a process reports, line by line, as long as it makes progress."""
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        for line in process.stdout or ():
            lines.put(line)
        lines.put(b"")

    threading.Thread(target=read, daemon=True).start()
    message: dict[str, Any] = {}
    while line := _next_line(lines, process, message.get("step", ""), patience):
        try:
            message |= json.loads(line)
        except ValueError:
            raise NoProcessError(f"{sys.executable} is not Python") from None
        yield message
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)  # drivers write their caches at the end


def _next_line(
    lines: queue.SimpleQueue[bytes], process: subprocess.Popen, step: str, patience: Patience
) -> bytes:
    """Wait for a line of a process, but not if it hangs.

    A compiler computes, even if slowly on a busy machine, and a driver that hangs is mostly idle.
    """
    began, used = time.monotonic(), _seconds_used(process)
    while True:
        with contextlib.suppress(queue.Empty):
            return lines.get(timeout=min(patience.idle, 0.5))
        waited, computed = time.monotonic() - began, _seconds_used(process) - used
        if step.startswith("vectors") and patience.vectors < min(computed, patience.computing):
            raise KernelError(f"its compiler takes too long for {step}")
        if waited > patience.idle and not 0.05 * waited < computed < patience.computing:
            where = f" ({step})" if step else ""
            raise TimeoutError(f"it did not finish a test within {waited:.0f} s{where}")


def _seconds_used(process: subprocess.Popen) -> float:
    """Return the processor time of a process."""
    import psutil

    try:
        times = psutil.Process(process.pid).cpu_times()
    except psutil.Error:
        return 0.0
    return times.user + times.system


def _last_words(said: Any) -> str:
    """Return the line that names the error, or the last one."""
    said.seek(0)
    lines = [line.strip() for line in said.read().decode("utf-8", "replace").splitlines()]
    lines = [line for line in lines if line]
    named = [line for line in lines if "error" in line.lower()]
    return _short((named or lines or ["no message"])[-1])


def _short(text: str) -> str:
    """Return the first line of a text, and no more than fits into a list."""
    line = text.splitlines()[0] if text else ""
    return line if len(line) <= 300 else f"{line[:299]}…"


def outcome_of(steps: Iterable[str], tell: Callable[[str], None]) -> Outcome:
    """Do the steps of a test, whose names go to `tell`, up to the first that fails."""
    step = ""
    try:
        for step in steps:
            tell(step)
    except DeviceMemoryError:
        return Outcome(lasting=False)  # says nothing of the device; a run will say it
    except NoDeviceError as error:
        busy = "DEVICE_NOT_AVAILABLE" in str(error)
        return Outcome("" if busy else _short(str(error)), lasting=False)
    except Exception as error:
        wrong = isinstance(error, KernelError)
        told = str(error) if wrong else f"{type(error).__name__}: {error}"
        return Outcome(f"the test of {step} failed: {_short(told)}", lasting=wrong)
    return Outcome()
