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
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
if str(TESTS) not in sys.path:
    sys.path.insert(0, str(TESTS))

from fuzz.watching import ACCEPTED, CRASH, HANG, OUTCOMES  # noqa: E402

LIMIT_S = 120  # a case takes well below a second, but for the kernels it may build
MEMORY = 12 << 30  # bytes of addresses, of which the OpenCL of the CPU takes some


def work() -> None:
    """Run the cases whose numbers come in, one a line."""
    with contextlib.suppress(ImportError, OSError, ValueError):  # not on every system
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    from filters.one_pass import Plain
    from fuzz.cases import kind_of, run_case
    from napari_gpu_denoise.opencl import program

    program.Session = Plain  # kernels that are built quickly
    # What a case prints is not an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        number = int(line)
        case, found = run_case(number)
        answer = [number, kind_of(number), *found, case.told[:500]]
        print(json.dumps(answer), file=answers, flush=True)


class Worker:
    """A process that runs cases, and is started again when one ends it.

    A case that takes longer than `limit` seconds is ended; None waits for ever.
    """

    def __init__(self, limit: float | None = LIMIT_S) -> None:
        self._process: subprocess.Popen | None = None
        self._limit = limit

    def run(self, number: int) -> tuple[str, str, str]:
        """Return how a case ended, in what, and what it was."""
        if self._process is None:
            command = [sys.executable, "-W", "ignore", __file__, "--worker"]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            quiet = {"stderr": subprocess.DEVNULL}
            self._process = subprocess.Popen(command, text=True, **pipes, **quiet)
        held = self._process
        with contextlib.suppress(BrokenPipeError):
            print(number, file=held.stdin, flush=True)
        late = threading.Event()
        timer = threading.Timer(self._limit or 0, lambda: (late.set(), held.kill()))
        if self._limit is not None:
            timer.start()
        line = held.stdout.readline()
        timer.cancel()
        if line:
            _, _, label, detail, told = json.loads(line)
            return label, detail, told
        code = held.wait()
        self._process = None
        if late.is_set():
            return HANG, f"longer than {self._limit} s", ""
        return CRASH, signal.Signals(-code).name if code < 0 else f"exit code {code}", ""

    def end(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.stdin.close()
            self._process.wait()
            self._process = None


def run_all(numbers: range, workers: int) -> Iterator[tuple[int, str, str, str]]:
    """Run cases in several processes; yield their numbers and how they ended, as they do."""
    waiting, done = iter(numbers), collections.deque()
    lock = threading.Lock()

    def go() -> None:
        worker = Worker()
        while True:
            with lock:
                number = next(waiting, None)
            if number is None:
                break
            done.append((number, *worker.run(number)))
        worker.end()

    threads = [threading.Thread(target=go) for _ in range(workers)]
    for thread in threads:
        thread.start()
    while done or any(thread.is_alive() for thread in threads):
        if done:
            yield done.popleft()
        else:
            time.sleep(0.01)


def report(numbers: range, workers: int) -> int:
    """Print what is not accepted, and a table; return how many such cases there are."""
    from fuzz.cases import KINDS, kind_of

    counts: collections.Counter = collections.Counter()
    for number, label, detail, told in run_all(numbers, workers):
        counts[kind_of(number), label] += 1
        if label not in ACCEPTED:
            print(f"case {number}, {kind_of(number)}: {label}: {detail}\n    {told}", flush=True)
    shown = [label for label in OUTCOMES]
    print(f"\n| kind | cases | {' | '.join(shown)} |")
    print(f"| --- {'| ---: ' * (len(shown) + 1)}|")
    rows = dict.fromkeys(KINDS)
    for kind in rows:
        row = [counts[kind, label] for label in shown]
        print(f"| {kind} | {sum(row)} | {' | '.join(map(str, row))} |")
    row = [sum(counts[kind, label] for kind in rows) for label in shown]
    print(f"| all | {sum(row)} | {' | '.join(map(str, row))} |")
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
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work()
        return 0
    if given.case is not None:
        return repeat(given.case)
    return min(1, report(range(given.first, given.first + given.cases), given.workers))


if __name__ == "__main__":
    sys.exit(main())
