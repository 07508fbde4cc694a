"""Change the package in one place at a time, and count which changes the tests notice.

    pip install coverage
    python scripts/mutants.py map             # run the suite once, note which test runs which line
    python scripts/mutants.py run             # 200 mutants, chosen by the seed 0
    python scripts/mutants.py run --only 17   # one of them again

A mutant is the package with one condition, number, operator or barrier changed, in Python or in a
kernel. Those to try are drawn from all that are possible, two thirds from ``src`` and one third
from ``kernels``; whether a number outside all functions is the best one is a question for
benchmarks, and is not asked. For each mutant the tests run that the map names for its line, those
that run least else first, until one fails or until `--seconds` of tests, by their time in the map,
are through. A mutant that lives is printed as a diff: either a test is missing, or the change is
equivalent, which is for the reader to see. The share that dies is a lower bound: what other
processes and Qt's threads run is not in the map, and the time is bounded. Mutants are tried in
copies of the last commit, so commit first.

Python lines that no test was seen to run, as those that run on import, are tested by what runs any
line of their module. Kernels are in the map by the name of their files, headers included.
"""

from __future__ import annotations

import argparse
import ast
import collections
import concurrent.futures
import difflib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MAP = ROOT / ".mutants.json"
_LINES = "NAPARI_GPU_DENOISE_LINES"  # the folder that the plugin below writes to

# --- what can be changed -----------------------------------------------------------------------

_COMPARE = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_ARITHMETIC = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "*",
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum"}
_NAMES |= {"maximum": "minimum", "argmax": "argmin", "argmin": "argmax", "floor": "ceil"}

_KERNEL = (
    (r"barrier\(CLK_LOCAL_MEM_FENCE\);", ";"),
    (r"\bmin\(", "max("),
    (r"\bmax\(", "min("),
    (r" <= ", " < "),
    (r" < ", " <= "),
    (r" >= ", " > "),
    (r" > ", " >= "),
    (r" == ", " != "),
    (r" && ", " || "),
    (r" \|\| ", " && "),
    (r" \+ ", " - "),
    (r" - ", " + "),
    (r" \* ", " + "),
    (r" \+= ", " -= "),
    (r"\b0\.5f\b", "0.25f"),
    (r"\b1\b(?![.\w])", "2"),
)


@dataclass(frozen=True)
class Mutant:
    """One change of one file: characters `start` to `stop` become `text`."""

    path: str
    line: int
    start: int
    stop: int
    text: str

    def changed(self, source: str) -> str:
        """Return the source with the change."""
        return source[: self.start] + self.text + source[self.stop :]

    def difference(self) -> str:
        """Return the change as a diff without context."""
        before = (ROOT / self.path).read_text(encoding="utf-8")
        lines = difflib.unified_diff(
            before.splitlines(), self.changed(before).splitlines(), n=0, lineterm=""
        )
        return "\n".join(line for line in list(lines)[3:])


def python_mutants(path: str) -> Iterator[Mutant]:
    """Yield the mutants of a module, but for annotations, docstrings and messages."""
    source = (ROOT / path).read_text(encoding="utf-8")
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    encoded = source.encode()

    def place(line: int, column: int) -> int:
        return len(encoded[: starts[line - 1] + column].decode())

    def replaced(node: ast.AST, text: str) -> Mutant:
        start = place(node.lineno, node.col_offset)
        return Mutant(path, node.lineno, start, place(node.end_lineno, node.end_col_offset), text)

    def between(left: ast.AST, right: ast.AST, text: str) -> Mutant:
        start = place(left.end_lineno, left.end_col_offset)
        stop = place(right.lineno, right.col_offset)
        # The operator alone: parentheses and line breaks around it stay.
        found = re.search(r"not in|is not|in|is|and|or|[<>=!+\-*/%]+", source[start:stop])
        return Mutant(path, left.end_lineno, start + found.start(), start + found.end(), text)

    def visit(node: ast.AST, within: bool = False) -> Iterator[Mutant]:
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom):
            return
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if isinstance(node, ast.keyword) and node.arg == "strict":
            return
        within = within or isinstance(node, ast.FunctionDef | ast.Lambda)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            yield between(node.left, node.comparators[0], _COMPARE[type(node.ops[0])])
        elif isinstance(node, ast.BoolOp):
            text = "or" if isinstance(node.op, ast.And) else "and"
            yield between(node.values[0], node.values[1], text)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield replaced(node, f"({ast.unparse(node.operand)})")
        elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            text = isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)
            if not text:
                yield between(node.left, node.right, _ARITHMETIC[type(node.op)])
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            yield replaced(node.test, "False")
            if not isinstance(node, ast.While):
                yield replaced(node.test, "True")
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float) and within:
            whole = isinstance(node.value, int)
            yield replaced(node, repr(node.value + 1 if whole else 1.5 * node.value or 1.0))
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield replaced(node, repr(not node.value))
        elif isinstance(node, ast.Name) and node.id in _NAMES:
            yield replaced(node, _NAMES[node.id])
        elif isinstance(node, ast.Attribute) and node.attr in _NAMES:
            stop = place(node.end_lineno, node.end_col_offset)
            yield Mutant(path, node.end_lineno, stop - len(node.attr), stop, _NAMES[node.attr])
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from visit(child, within)

    yield from visit(ast.parse(source))


def kernel_mutants(path: str) -> Iterator[Mutant]:
    """Yield the mutants of a kernel or header, but for comments and directives."""
    source = (ROOT / path).read_text(encoding="utf-8")
    start = 0
    for number, line in enumerate(source.splitlines(keepends=True), 1):
        code = "" if line.lstrip().startswith("#") else line.split("//")[0]
        for pattern, text in _KERNEL:
            for match in re.finditer(pattern, code):
                yield Mutant(path, number, start + match.start(), start + match.end(), text)
        start += len(line)


def chosen(count: int, seed: int) -> list[Mutant]:
    """Return mutants drawn from all, two thirds of them from Python, no two of one line."""
    generator = random.Random(seed)
    mutants: list[Mutant] = []
    kernels = count // 3
    for suffixes, folder, made, share in (
        ({".py"}, "src/napari_gpu_denoise", python_mutants, count - kernels),
        ({".cl", ".h"}, "kernels", kernel_mutants, kernels),
    ):
        paths = sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in suffixes)
        possible = [m for p in paths for m in made(p.relative_to(ROOT).as_posix())]
        generator.shuffle(possible)
        by_line = {(mutant.path, mutant.line): mutant for mutant in possible}
        mutants += list(by_line.values())[:share]
    return mutants


# --- which test runs which line ----------------------------------------------------------------


class LineRecorder:
    """A plugin of pytest: it notes the lines and the kernels that each test runs."""

    def __init__(self, folder: Path):
        import coverage

        from napari_gpu_denoise.opencl.program import Kernel, Session

        name = os.environ.get("PYTEST_XDIST_WORKER", "main")
        self.results = folder / f"{name}.json"
        self.coverage = coverage.Coverage(
            data_file=str(folder / f"{name}.coverage"),
            source=[str(ROOT / "src" / "napari_gpu_denoise")],
            config_file=False,
        )
        self.seconds: dict[str, float] = {}
        self.kernels: dict[str, list[str]] = collections.defaultdict(list)
        self.test, self.started = "", 0.0
        self.record_launches(Session, Kernel)
        self.coverage.start()

    def record_launches(self, session: type, kernel: type) -> None:
        """Note the files of a kernel whenever it is launched."""
        from napari_gpu_denoise.opencl.source import expand

        make, launch = session.kernel, kernel.__call__

        def made(self_: object, name: str, *arguments, **options):
            result = make(self_, name, *arguments, **options)
            result.files = set(re.findall(r'#line \d+ "(.+?)"', expand(f"{name}.cl")))
            return result

        def launched(self_: object, *arguments, **options):
            for file in getattr(self_, "files", ()):
                if self.kernels[file][-1:] != [self.test]:
                    self.kernels[file].append(self.test)
            return launch(self_, *arguments, **options)

        session.kernel, kernel.__call__ = made, launched

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Begin the lines of a test."""
        self.test, self.started = nodeid, time.monotonic()
        self.coverage.switch_context(nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """End them."""
        self.seconds[nodeid] = time.monotonic() - self.started
        self.test = ""
        self.coverage.switch_context("")

    def pytest_sessionfinish(self) -> None:
        """Write what was noted."""
        self.coverage.stop()
        data = self.coverage.get_data()
        places = {f"kernels/{file}": tests for file, tests in self.kernels.items()}
        for path in data.measured_files():
            name = Path(path).relative_to(ROOT).as_posix()
            for line, tests in data.contexts_by_lineno(path).items():
                places[f"{name}:{line}"] = tests
        found = {"seconds": self.seconds, "places": places}
        self.results.write_text(json.dumps(found), encoding="utf-8")


def pytest_configure(config) -> None:
    """Record, where this file is a plugin of pytest: in the processes that run tests."""
    folder = os.environ.get(_LINES)
    if folder and (hasattr(config, "workerinput") or not config.getoption("numprocesses", None)):
        config.pluginmanager.register(LineRecorder(Path(folder)))


def make_map(arguments: argparse.Namespace) -> int:
    """Run the suite and write which tests run each line."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, _LINES: folder}
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(ROOT / "scripts"), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        )
        suite = [sys.executable, "-m", "pytest", "-q", "-n", str(arguments.jobs), "-p", "mutants"]
        code = subprocess.run([*suite, *arguments.tests], cwd=ROOT, env=environment).returncode
        parts = [json.loads(path.read_text()) for path in Path(folder).glob("*.json")]
    seconds = {test: time for part in parts for test, time in part["seconds"].items()}
    tests_of: dict[str, set[str]] = collections.defaultdict(set)
    for part in parts:
        for place, tests in part["places"].items():
            tests_of[place].update(seconds.keys() & tests)
    breadth = collections.Counter(test for tests in tests_of.values() for test in tests)
    order = sorted(seconds, key=lambda test: (breadth[test], test))
    rank = {test: number for number, test in enumerate(order)}
    nearest = {
        place: [rank[test] for test in _few_of_each(sorted(tests, key=rank.get))]
        for place, tests in tests_of.items()
    }
    found = {"tests": [(test, seconds[test]) for test in order], "places": nearest}
    MAP.write_text(json.dumps(found), encoding="utf-8")
    print(f"{len(order)} tests, {len(nearest)} lines and kernels: {MAP}")
    return code


def _few_of_each(tests: list[str], each: int = 4, most: int = 80) -> list[str]:
    """Return the first of the tests, of each function only a few cases."""
    counts: collections.Counter[str] = collections.Counter()
    kept = []
    for test in tests:
        function = test.split("[")[0]
        counts[function] += 1
        if counts[function] <= each:
            kept.append(test)
    return kept[:most]


# --- trying mutants ----------------------------------------------------------------------------


def tests_for(mutant: Mutant, known: dict, limit: float) -> list[str]:
    """Return the tests to run for a mutant, at most `limit` seconds of them but at least one."""
    places = known["places"]
    numbers = places.get(mutant.path) or places.get(f"{mutant.path}:{mutant.line}")
    if not numbers:
        # Of a module any line, of a kernel any other of its folder.
        near = mutant.path if mutant.path.endswith(".py") else str(Path(mutant.path).parent)
        numbers = sorted({n for place in places if place.startswith(near) for n in places[place]})
    total, kept = 0.0, []
    for number in numbers:
        test, seconds = known["tests"][number]
        total += seconds
        if kept and total > limit:
            break
        kept.append(test)
    return kept


def run_tests(folder: Path, tests: list[str], limit: float) -> tuple[bool, str]:
    """Return whether tests pass in a copy of the project, and the first that does not."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    try:
        done = subprocess.run(
            [*command, *tests], cwd=folder, env=environment, capture_output=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return False, ""
    named = re.search(
        r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", done.stdout.decode(), re.MULTILINE
    )
    return done.returncode == 0, named[1] if named else ""


def outcome(mutant: Mutant, folder: Path, known: dict, limit: float) -> str:
    """Return what becomes of a mutant: "dies", "lives", or why that cannot be said."""
    tests = tests_for(mutant, known, limit)
    if not tests:
        return "lives: no test was seen to run it"
    path = folder / mutant.path
    source = path.read_text(encoding="utf-8")
    path.write_text(mutant.changed(source), encoding="utf-8")
    try:
        passed, failed = run_tests(folder, tests, 10 * limit + 300)
    finally:
        path.write_text(source, encoding="utf-8")
    if passed:
        return "lives"
    if failed and not run_tests(folder, [failed], 10 * limit + 300)[0]:
        return f"unclear: {failed} fails without the change, too"
    return "dies"


def try_mutants(arguments: argparse.Namespace) -> int:
    """Print what becomes of each mutant, and how many die."""
    known = json.loads(MAP.read_text(encoding="utf-8"))
    mutants = chosen(arguments.count, arguments.seed)
    numbers = arguments.only or range(len(mutants))
    counts: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as temporary:
        copies = [Path(temporary) / str(number) for number in range(arguments.jobs)]
        for copy in copies:
            subprocess.run(["git", "worktree", "add", "-q", "--detach", copy], cwd=ROOT, check=True)
        free = list(copies)

        def tried(number: int) -> tuple[int, str]:
            folder = free.pop()
            try:
                return number, outcome(mutants[number], folder, known, arguments.seconds)
            finally:
                free.append(folder)

        try:
            with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
                for done in concurrent.futures.as_completed(pool.submit(tried, n) for n in numbers):
                    number, result = done.result()
                    mutant = mutants[number]
                    part = "kernels" if mutant.path.startswith("kernels") else "src"
                    counts[f"{part} {result.split(':')[0]}"] += 1
                    print(f"{number} {mutant.path}:{mutant.line} {result}", flush=True)
                    if result != "dies":
                        print(mutant.difference(), flush=True)
        finally:
            for copy in copies:
                subprocess.run(["git", "worktree", "remove", "--force", copy], cwd=ROOT)
    for part in ("src", "kernels"):
        dead, alive = counts[f"{part} dies"], counts[f"{part} lives"]
        unclear = counts[f"{part} unclear"]
        print(f"{part}: {dead} of {dead + alive} die, {unclear} unclear")
    return 0


def main() -> int:
    """Parse the command line, and do what it asks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes, by default 2")
    commands = parser.add_subparsers(required=True)
    mapping = commands.add_parser("map", help="run the suite and note which test runs which line")
    mapping.add_argument("tests", nargs="*", help="files of tests, by default all")
    mapping.set_defaults(run=make_map)
    trying = commands.add_parser("run", help="try mutants")
    trying.add_argument("--count", type=int, default=200, help="how many are drawn, by default 200")
    trying.add_argument("--seed", type=int, default=0, help="what the choice follows, by default 0")
    trying.add_argument("--only", type=int, nargs="+", help="numbers of those to try")
    trying.add_argument("--seconds", type=float, default=60.0, help="tests for one, by default 60")
    trying.set_defaults(run=try_mutants)
    arguments = parser.parse_args()
    return arguments.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
