"""Change the package in one place at a time, and count which changes the tests notice.

    pip install pytest-cov
    python scripts/mutants.py map             # run the suite once, note which test runs which line
    python scripts/mutants.py run             # 200 mutants, chosen by the seed 0
    python scripts/mutants.py run --only 17   # one of them again

A mutant is the package with one condition, number, operator or barrier changed, in Python or in a
kernel. Those to try are drawn from all that are possible, two thirds from ``src`` and one third
from ``kernels``; numbers outside all functions are left to benchmarks. For each, tests run that the
map names for its line, or that build its kernel, each with other constants than those before it,
until one fails. One that lives is printed: either a test is missing, or the change is equivalent,
which is for the reader to see. The share that dies is a lower bound: what other processes and Qt's
threads run is not in the map, and of many tests only some are tried. What is changed is a copy of
the last commit, so commit first.
"""

from __future__ import annotations

import argparse
import ast
import collections
import io
import os
import random
import re
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MAP = ROOT / ".mutants.coverage"
KERNELS = ROOT / ".mutants.kernels"  # lines: a test, a kernel and its constants
COMPARED = "tests/filters/test_gpu_kernels.py"  # with references: these run first
CASES_OF_A_TEST, TESTS_OF_A_MUTANT = 4, 40  # that are run at most

# What becomes of words and operators, in Python and in kernels.
_SWAPS = {
    **{"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="},
    **{"+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "*", "+=": "-=", "-=": "+="},
    **{"and": "or", "or": "and", "&&": "||", "||": "&&", "not": "", "is": "is not"},
    **{"if": "if not", "while": "while not", "True": "False", "False": "True"},
    **{"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum"},
    **{"maximum": "minimum", "argmax": "argmin", "argmin": "argmax", "floor": "ceil"},
    **{"0.5f": "0.25f", "1": "2", "barrier(CLK_LOCAL_MEM_FENCE);": ";"},
}
_OF_KERNELS = re.compile(
    r"barrier\(CLK_LOCAL_MEM_FENCE\);|(?<= )(?:[<>=!]=|&&|\|\||\+=|[<>+*-])(?= )"
    r"|\b(?:min|max)(?=\()|\b0\.5f\b|\b1\b(?![.\w])"
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
        """Return the line before and after the change."""
        source = (ROOT / self.path).read_text(encoding="utf-8")
        both = zip("-+", (source, self.changed(source)), strict=True)
        return "\n".join(sign + text.splitlines()[self.line - 1] for sign, text in both)


def python_mutants(path: str) -> Iterator[Mutant]:
    """Yield the mutants of a module: of words and operators, and of numbers within functions."""
    source = (ROOT / path).read_text(encoding="utf-8")
    starts = [0, 0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    within, left_out = set(), set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            body = range(node.body[0].lineno, node.end_lineno + 1)
            within.update(body)
            left_out.update(range(node.lineno, body.start))  # annotations
        elif isinstance(node, ast.Raise | ast.Import | ast.ImportFrom):
            left_out.update(range(node.lineno, node.end_lineno + 1))
    tokens = [
        token
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    ]
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        number, column = token.start
        # A star may stand before arguments, a condition within brackets, and "is" before "not".
        unary = before.type == tokenize.OP and before.string not in ")]}"
        odd = (token.string in "*/+-" and unary) or after.string == "not" or before.string == "is"
        named = token.string in ("if", "while") and ":=" in token.line
        if number in left_out or odd or named or after.string == "TYPE_CHECKING":
            continue
        text = _SWAPS.get(token.string) if token.type in (tokenize.OP, tokenize.NAME) else None
        if token.type == tokenize.NUMBER and number in within:
            value = ast.literal_eval(token.string)
            text = repr(value + 1 if isinstance(value, int) else 1.5 * value or 1.0)
        if text is not None:
            start = starts[number] + column
            yield Mutant(path, number, start, start + len(token.string), text)


def kernel_mutants(path: str) -> Iterator[Mutant]:
    """Yield the mutants of a kernel or header, but for comments and directives."""
    source = (ROOT / path).read_text(encoding="utf-8")
    start = 0
    for number, line in enumerate(source.splitlines(keepends=True), 1):
        code = "" if line.lstrip().startswith("#") else line.split("//")[0]
        for match in _OF_KERNELS.finditer(code):
            place = start + match.start(), start + match.end()
            yield Mutant(path, number, *place, _SWAPS[match[0]])
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


def make_map(arguments: argparse.Namespace) -> int:
    """Run the suite and note which tests run each line."""
    path = os.pathsep.join([f"{ROOT}/src", f"{ROOT}/scripts", os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "COVERAGE_FILE": str(MAP)}
    KERNELS.unlink(missing_ok=True)
    suite = [sys.executable, "-m", "pytest", "-q", "-n", str(arguments.jobs), "-p", "mutants"]
    suite += ["--cov=src/napari_gpu_denoise", "--cov-context=test", "--cov-report="]
    return subprocess.run([*suite, *arguments.tests], cwd=ROOT, env=environment).returncode


def pytest_configure() -> None:
    """Note in a process of the suite which test runs which kernel."""
    from napari_gpu_denoise.opencl.program import Kernel, Session

    make, call, noted = Session.kernel, Kernel.__call__, set()

    def kernel(session, name, constants, *coming):
        made = make(session, name, constants, *coming)
        made.build = f"{name}\t{sorted(constants.items())}"
        return made

    def called(made, /, *arguments, **given):
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
        line = f"{test}\t{getattr(made, 'build', None)}\n"
        if test and hasattr(made, "build") and line not in noted:
            noted.add(line)
            with KERNELS.open("a", encoding="utf-8") as file:
                file.write(line)
        return call(made, *arguments, **given)

    Session.kernel, Kernel.__call__ = kernel, called


class Map:
    """The tests that run each line of the package, by file and line, and that build each kernel."""

    def __init__(self):
        import coverage

        data = coverage.CoverageData(str(MAP))
        data.read()
        self.tests: dict[tuple[str, int], set[str]] = {}
        for file in data.measured_files():
            name = Path(file).relative_to(ROOT).as_posix()
            for line, contexts in data.contexts_by_lineno(file).items():
                self.tests[name, line] = {each.rpartition("|")[0] for each in contexts if each}
        self._lines = collections.Counter(test for tests in self.tests.values() for test in tests)
        self._builds: dict[str, dict[str, set]] = collections.defaultdict(dict)
        for line in KERNELS.read_text(encoding="utf-8").splitlines():
            test, name, *constants = line.split("\t")
            self._builds[f"{name}.cl"].setdefault(test, set()).add((name, *constants))

    def tests_for(self, mutant: Mutant) -> list[str]:
        """Return the tests to run for a mutant, those first that run least else."""
        if mutant.path.startswith("kernels"):
            return self._tests_of_kernels(mutant.path.partition("/")[2])[:TESTS_OF_A_MUTANT]
        found = self.tests.get((mutant.path, mutant.line)) or {
            test for place, tests in self.tests.items() if place[0] == mutant.path for test in tests
        }
        cases: dict[str, list] = collections.defaultdict(list)
        for test in sorted(found, key=lambda test: (self._lines[test], test)):
            cases[test.partition("[")[0]].append(test)
        kept = [test for of_one in cases.values() for test in of_one[:CASES_OF_A_TEST]]
        return kept[:TESTS_OF_A_MUTANT]

    def _tests_of_kernels(self, file: str) -> list[str]:
        """Return tests that run a file of kernels, each built as by none before it."""
        from napari_gpu_denoise.opencl.program import expand

        found: dict[str, set] = collections.defaultdict(set)
        for path in (ROOT / "kernels").rglob("*.cl"):
            name = path.relative_to(ROOT / "kernels").as_posix()
            for test, builds in self._builds[name].items() if f'"{file}"' in expand(name) else ():
                found[test] |= builds
        seen, new = set(), []
        for test in sorted(found, key=lambda test: (COMPARED not in test, len(found[test]), test)):
            new += [test] * bool(found[test] - seen)
            seen |= found[test]
        return new


def run_tests(folder: Path, tests: list[str], given: argparse.Namespace) -> tuple[bool, str]:
    """Return whether tests pass in a copy of the project, and the first that fails, or "time"."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "-p", "no:cacheprovider"]
    command += ["-n", str(given.jobs), *tests]
    path = os.pathsep.join([str(folder / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, timeout=given.seconds
        )
    except subprocess.TimeoutExpired:
        return False, "time"
    named = re.search(
        r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", done.stdout.decode(), re.MULTILINE
    )
    return done.returncode == 0, named[1] if named else ""


def outcome(mutant: Mutant, folder: Path, known: Map, given: argparse.Namespace) -> str:
    """Return what becomes of a mutant: "dies", "lives", or why that cannot be said."""
    tests = known.tests_for(mutant)
    if not tests:
        return "lives: no test was seen to run it"
    path = folder / mutant.path
    source = path.read_text(encoding="utf-8")
    path.write_text(mutant.changed(source), encoding="utf-8")
    try:
        passed, failed = run_tests(folder, tests, given)
    finally:
        path.write_text(source, encoding="utf-8")
    if passed:
        return "lives"
    if failed != "time" and not (failed and run_tests(folder, [failed], given)[0]):
        return f"unclear: {failed or 'no test'} fails without the change, too"
    return "dies"


def try_mutants(arguments: argparse.Namespace) -> int:
    """Print what becomes of each mutant, and how many die."""
    known, mutants = Map(), chosen(arguments.count, arguments.seed)
    counts: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "worktree", "add", "-q", "--detach", folder], cwd=ROOT, check=True)
        try:
            for number in arguments.only or range(len(mutants)):
                mutant = mutants[number]
                result = outcome(mutant, Path(folder), known, arguments)
                part = "kernels" if mutant.path.startswith("kernels") else "src"
                counts[f"{part} {result.split(':')[0]}"] += 1
                print(f"{number} {mutant.path}:{mutant.line} {result}", flush=True)
                if result != "dies":
                    print(mutant.difference(), flush=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", folder], cwd=ROOT)
    for part in ("src", "kernels"):
        dead, alive, unclear = (counts[f"{part} {what}"] for what in ("dies", "lives", "unclear"))
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
    trying.add_argument("--seconds", type=float, default=600.0, help="limit of the tests of one")
    trying.set_defaults(run=try_mutants)
    arguments = parser.parse_args()
    return arguments.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
