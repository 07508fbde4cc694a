"""Run many cases in processes of their own, which may crash or hang, and print a table.

    python tests/fuzz/run_cases.py --cases 10000 [--kind "TIFF tags"]
    python tests/fuzz/run_cases.py --case 1234

A case is its number, so that any can be repeated; `--case` shows what it did and what came of it.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
if str(TESTS) not in sys.path:
    sys.path.insert(0, str(TESTS))

from fuzz.watching import ACCEPTED, CRASH, HANG, OUTCOMES  # noqa: E402

LIMIT_S = 10  # a case takes well below a second, but for the kernels it may build
MEMORY = 12 << 30  # bytes of addresses, of which the OpenCL of the CPU takes some
READY = "ready"
# Workers share the cores.
_ONE_THREAD = ("POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT", "OMP_NUM_THREADS")
_ONE_THREAD += ("OPENBLAS_NUM_THREADS", "BLOSC_NTHREADS")


def work() -> None:
    """Run the cases whose numbers come in, one a line."""
    with contextlib.suppress(ImportError, OSError, ValueError):  # not on every system
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    from filters.one_pass import Plain
    from fuzz.cases import prepare, run_case
    from napari_gpu_denoise.opencl import program
    from opencl.builtins import replace_header

    program.Session = Plain  # kernels that are built quickly
    replace_header()
    # What a case prints is not an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        number = int(line)
        prepare()
        print(READY, file=answers, flush=True)
        case, found = run_case(number)
        print(json.dumps([*found, case.told[:500]]), file=answers, flush=True)


class Worker:
    """A process that runs cases, and is started again when one ends it.

    A case that takes longer than `limit` seconds is ended, and run again once, as it may have built
    kernels, which the OpenCL of the CPU keeps; None waits for ever.
    """

    def __init__(self, limit: float | None = LIMIT_S) -> None:
        self._process: subprocess.Popen | None = None
        self._limit = limit

    def run(self, number: int) -> tuple[str, str, str]:
        """Return how a case ended, in what, and what it was."""
        found = self._run(number)
        return self._run(number) if found[0] == HANG else found

    def _run(self, number: int) -> tuple[str, str, str]:
        if self._process is None:
            command = [sys.executable, "-W", "ignore", __file__, "--worker"]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self._complaints = tempfile.TemporaryFile()  # noqa: SIM115
            self._process = subprocess.Popen(command, text=True, stderr=self._complaints, **pipes)
        held = self._process
        with contextlib.suppress(BrokenPipeError):
            print(number, file=held.stdin, flush=True)
        held.stdout.readline()  # what it loads for the first case is not in the time of that
        late = threading.Event()
        timer = threading.Timer(self._limit or 0, lambda: (late.set(), held.kill()))
        if self._limit is not None:
            timer.start()
        line = held.stdout.readline()
        timer.cancel()
        if line:
            return tuple(json.loads(line))
        code = held.wait()
        self._process = None
        if late.is_set():
            return HANG, f"longer than {self._limit:g} s", ""
        self._complaints.seek(0)
        last = self._complaints.read()[-300:].decode("utf-8", "replace").strip()
        return CRASH, signal.Signals(-code).name if code < 0 else f"exit code {code}", last

    def end(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.stdin.close()
            self._process.wait()
            self._process = None


def report(given: argparse.Namespace) -> int:
    """Print what is not accepted, and a table; return 1 if there is any such case."""
    from fuzz.cases import KINDS, kind_of

    os.environ.update({name: os.environ.get(name, "1") for name in _ONE_THREAD})
    kinds = given.kind or KINDS
    numbers = range(given.first, given.first + given.cases)
    counts: collections.Counter = collections.Counter()
    idle = [Worker(given.limit) for _ in range(given.workers)]

    def run(number: int) -> tuple[int, tuple[str, str, str]]:
        worker = idle.pop()
        found = worker.run(number)
        idle.append(worker)
        return number, found

    with ThreadPoolExecutor(given.workers) as threads:
        chosen = [number for number in numbers if kind_of(number) in kinds]
        for number, (label, detail, told) in threads.map(run, chosen):
            counts[kind_of(number), label] += 1
            if label not in ACCEPTED:
                print(
                    f"case {number}, {kind_of(number)}: {label}: {detail}\n    {told}", flush=True
                )
    for worker in idle:
        worker.end()
    print(f"\n| kind | {' | '.join(OUTCOMES)} |\n| --- {'| ---: ' * len(OUTCOMES)}|")
    for kind in kinds:
        print(f"| {kind} | {' | '.join(str(counts[kind, label]) for label in OUTCOMES)} |")
    return int(any(counts[kind, label] for kind, label in counts if label not in ACCEPTED))


def repeat(number: int) -> int:
    """Run one case in this process, and show all about it."""
    from fuzz import cases

    case, found = cases.run_case(number)
    print(f"case {number}, {cases.kind_of(number)}: {case.told}\n{found.label}: {found.detail}")
    return found.label not in ACCEPTED


def main() -> int:
    """Run what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--case", type=int, help="repeat one case, in this process")
    add("--cases", type=int, default=10000, help="how many (default: 10000)")
    add("--first", type=int, default=0, help="number of the first (default: 0)")
    add("--workers", type=int, default=2, help="processes (default: 2)")
    add("--kind", action="append", default=[], help="only cases of this kind")
    about = f"seconds after which a case hangs (default: {LIMIT_S}); more on a busy machine"
    add("--limit", type=float, default=LIMIT_S, help=about)
    add("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work()
        return 0
    return report(given) if given.case is None else repeat(given.case)


if __name__ == "__main__":
    sys.exit(main())
