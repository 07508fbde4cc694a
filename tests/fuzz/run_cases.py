"""Run many cases in processes of their own, which may crash or hang, and print a table.

    python tests/fuzz/run_cases.py --cases 10000
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
import time
import traceback
from collections.abc import Iterable, Iterator
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
    from fuzz.cases import kind_of, prepare, run_case
    from napari_gpu_denoise.opencl import program
    from opencl.builtins import replace_header

    program.Session = Plain  # kernels that are built quickly
    replace_header()
    # What a case prints is not an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        number = int(line)
        prepare(kind_of(number))
        print(READY, file=answers, flush=True)
        begun = time.perf_counter()
        case, found = run_case(number)
        took = time.perf_counter() - begun
        answer = [number, kind_of(number), *found, case.told[:500], took]
        print(json.dumps(answer), file=answers, flush=True)


class Worker:
    """A process that runs cases, and is started again when one ends it.

    A case that takes longer than `limit` seconds is ended, and run again once, as it may have built
    kernels, which the OpenCL of the CPU keeps; None waits for ever.
    """

    def __init__(self, limit: float | None = LIMIT_S) -> None:
        self._process: subprocess.Popen | None = None
        self._limit = limit
        #: Seconds that the last case took.
        self.took = 0.0

    def run(self, number: int) -> tuple[str, str, str]:
        """Return how a case ended, in what, and what it was."""
        found = self._run(number)
        return self._run(number) if found[0] == HANG else found

    def _run(self, number: int) -> tuple[str, str, str]:
        if self._process is None:
            command = [sys.executable, "-W", "ignore", __file__, "--worker"]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self._complaints = tempfile.TemporaryFile()  # noqa: SIM115
            pipes["stderr"] = self._complaints
            self._process = subprocess.Popen(command, text=True, **pipes)
        held = self._process
        with contextlib.suppress(BrokenPipeError):
            print(number, file=held.stdin, flush=True)
        held.stdout.readline()  # what it loads for the first case is not in the time of that
        begun = time.perf_counter()
        late = threading.Event()
        timer = threading.Timer(self._limit or 0, lambda: (late.set(), held.kill()))
        if self._limit is not None:
            timer.start()
        line = held.stdout.readline()
        timer.cancel()
        if line:
            _, _, label, detail, told, self.took = json.loads(line)
            return label, detail, told
        self.took = time.perf_counter() - begun
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


def run_all(
    numbers: Iterable[int], workers: int, limit: float | None = LIMIT_S
) -> Iterator[tuple[int, str, str, str, float]]:
    """Run cases in several processes; yield number, outcome and seconds of each."""
    idle = [Worker(limit) for _ in range(workers)]

    def run(number: int) -> tuple[int, str, str, str, float]:
        worker = idle.pop()
        found = (number, *worker.run(number), worker.took)
        idle.append(worker)
        return found

    with ThreadPoolExecutor(workers) as threads:
        yield from threads.map(run, numbers)
    for worker in idle:
        worker.end()


def report(numbers: Iterable[int], workers: int, limit: float, wanted: list[str]) -> int:
    """Print what is not accepted, and a table; return how many such cases there are.

    Of all kinds, or of those that are `wanted`.
    """
    from fuzz.cases import KINDS, kind_of, left_out

    if workers > 1:
        os.environ.update({name: os.environ.get(name, "1") for name in _ONE_THREAD})
    without = {kind: why for kind, why in left_out().items() if not wanted or kind in wanted}
    chosen = [kind for kind in KINDS if kind not in without and (not wanted or kind in wanted)]
    todo = [number for number in numbers if kind_of(number) in chosen]
    counts: collections.Counter = collections.Counter()
    seconds: collections.Counter = collections.Counter()
    slowest, begun = (0.0, -1), time.perf_counter()
    for number, label, detail, told, took in run_all(todo, workers, limit):
        kind = kind_of(number)
        counts[kind, label] += 1
        seconds[kind] += took
        slowest = max(slowest, (took, number))
        if label not in ACCEPTED:
            print(f"case {number}, {kind}: {label}: {detail}\n    {told}", flush=True)
    print(f"\n| kind | cases | {' | '.join(OUTCOMES)} | s a case |")
    print(f"| --- {'| ---: ' * (len(OUTCOMES) + 2)}|")
    for name, kinds in (*((kind, [kind]) for kind in chosen), ("all", chosen)):
        row = [sum(counts[kind, label] for kind in kinds) for label in OUTCOMES]
        mean = sum(seconds[kind] for kind in kinds) / max(sum(row), 1)
        print(f"| {name} | {sum(row)} | {' | '.join(map(str, row))} | {mean:.2f} |")
    took = time.perf_counter() - begun
    print(f"\n{took:.0f} s; the slowest: case {slowest[1]}, {slowest[0]:.1f} s")
    for kind, why in without.items():
        number = sum(kind_of(each) == kind for each in numbers)
        print(f"left out: {number} cases of {kind!r}: {why}; run them where it is, by --kind")
    return sum(n for (_, label), n in counts.items() if label not in ACCEPTED)


def repeat(number: int) -> int:
    """Run one case in this process, and show all about it."""
    from fuzz import cases, watching

    place = watching._place

    def show(error: BaseException) -> str:
        traceback.print_exception(error)
        return place(error)

    watching._place = show
    case, found = cases.run_case(number)
    print(f"case {number}, {cases.kind_of(number)}: {case.told}\n{found.label}: {found.detail}")
    return found.label not in ACCEPTED


def main() -> int:
    """Run what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", type=int, help="repeat one case, in this process")
    parser.add_argument("--cases", type=int, default=10000, help="how many (default: 10000)")
    parser.add_argument("--first", type=int, default=0, help="number of the first (default: 0)")
    parser.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--kind", action="append", default=[], help="only cases of this kind")
    parser.add_argument(
        "--limit",
        type=float,
        default=LIMIT_S,
        help=f"seconds after which a case hangs (default: {LIMIT_S}); more on a busy machine",
    )
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work()
        return 0
    if given.case is not None:
        return repeat(given.case)
    numbers = range(given.first, given.first + given.cases)
    return min(1, report(numbers, given.workers, given.limit, given.kind))


if __name__ == "__main__":
    sys.exit(main())
