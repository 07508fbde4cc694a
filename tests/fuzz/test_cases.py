"""Cases by their number, and arguments that hypothesis chooses: each ends well, whatever it is.

``python tests/fuzz/run_cases.py --case 1234`` repeats a case.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz import file_cases, tiff_seeds, watching
from fuzz.array_cases import ARRAY_CASES
from fuzz.cases import KINDS, kind_of, made
from fuzz.run_cases import Worker
from fuzz.watching import ACCEPTED, Case, outcome

BLOCK, BLOCKS = 360, 3  # a block for each process of the tests, and one more


@pytest.mark.parametrize("block", range(BLOCKS))
def test_of_numbers(block):
    """In a process of their own, whose memory is limited; a crash names its case."""
    worker, wrong = Worker(limit=None), []
    for number in range(BLOCK * block, BLOCK * (block + 1)):
        label, detail, told = worker.run(number)
        if label not in ACCEPTED:
            wrong.append(f"case {number}, {kind_of(number)}: {label}: {detail}\n    {told}")
    worker.end()
    assert not wrong, "\n".join([*wrong, "repeat one: python tests/fuzz/run_cases.py --case N"])


@pytest.fixture
def quick(monkeypatch):
    """Build kernels without optimisation, as in the tests of filters."""
    from filters.one_pass import Plain
    from napari_gpu_denoise.opencl import program

    monkeypatch.setattr(program, "Session", Plain)
    monkeypatch.setattr(program, "_sessions", _SESSIONS)


_SESSIONS: dict = {}


@pytest.mark.parametrize("kind", ARRAY_CASES)
@settings(
    max_examples=60,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(random=st.randoms(use_true_random=False))
def test_of_arguments(quick, tmp_path, kind, random):
    case = made(kind, random, tmp_path)
    found = outcome(case, tmp_path)
    assert found.label in ACCEPTED, f"{case.told}: {found}"


def test_a_number_is_one_case(tmp_path):
    for number in range(3 * len(KINDS)):
        told, files = [], []
        for copy in "ab":
            folder = tmp_path / f"{number}{copy}"
            for name in ("data", "out", "secret"):
                (folder / name).mkdir(parents=True)
            told.append(made(kind_of(number), Random(number), folder).told[:40])
            found = (path for path in folder.rglob("*") if path.is_file())
            files.append({path.relative_to(folder): path.read_bytes() for path in found})
        assert told[0] == told[1]
        # Links elsewhere, and absolute names, are in folders of their own.
        assert files[0] == files[1] or kind_of(number) == "OME-XML"


def test_outcomes_are_told_apart(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "secret").write_text("secret")

    def raising(error):
        raise error

    named = file_cases.gd.errors.FileError("it is gone")
    cases = {
        watching.RESULT: lambda: (tmp_path / "data" / "new").write_text("x"),
        watching.NAMED: lambda: raising(named),
        watching.RAW: lambda: raising(KeyError("x")),
        watching.LOSS: lambda: raising(watching.Loss("a plane")),
        watching.OUTSIDE: lambda: (tmp_path / "secret").read_text(),
    }
    for label, run in cases.items():
        assert outcome(Case("", run), tmp_path).label == label
    assert outcome(Case("", lambda: raising(type(named)())), tmp_path).label == watching.RAW


def test_a_crash_is_told(monkeypatch):
    worker = Worker(limit=None)
    assert worker.run(KINDS.index("JSON"))[0] in ACCEPTED
    worker._process.kill()
    worker._process.wait()
    assert worker.run(0)[0] == watching.CRASH
    worker.end()


def test_lost_pixels_are_told(tmp_path):
    data, _, pixels = tiff_seeds.seed("strips")
    path = tmp_path / "in.tif"
    path.write_bytes(data)
    file_cases.read_it(path, tmp_path, pixels, {})
    with pytest.raises(watching.Loss, match="of"):
        file_cases.compare(pixels[:5], pixels)
    spoilt = pixels.copy()
    spoilt[4:8] = 0
    with pytest.raises(watching.Loss, match="four rows"):
        file_cases.compare(spoilt, pixels)
