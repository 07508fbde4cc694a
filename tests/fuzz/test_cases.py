"""Cases by their number: each ends well, whatever it is.

``python tests/fuzz/run_cases.py --case 1234`` repeats a case.
"""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from random import Random

import pytest

import napari_gpu_denoise as gd
from fuzz import file_cases, payload, tiff_seeds, watching
from fuzz.cases import KINDS, kind_of, made
from fuzz.run_cases import Worker
from fuzz.watching import ACCEPTED, Case, outcome

CASES, BLOCKS = 15 * len(KINDS), 2  # a block for each process of the tests
# Kinds whose cases take longer: every third one is run.
LONGER = ("records", "checkpoints")


@pytest.mark.parametrize("block", range(BLOCKS))
def test_of_numbers(block):
    """In a process of their own, whose memory is limited; a crash names its case."""
    worker, wrong = Worker(limit=None), []
    for number in range(CASES * block // BLOCKS, CASES * (block + 1) // BLOCKS):
        kind = kind_of(number)
        if kind in LONGER and number // len(KINDS) % 3:
            continue
        label, detail, told = worker.run(number)
        if label not in ACCEPTED:
            wrong.append(f"case {number}, {kind_of(number)}: {label}: {detail}\n    {told}")
    worker.end()
    assert not wrong, "\n".join([*wrong, "repeat one: python tests/fuzz/run_cases.py --case N"])


def test_a_number_is_one_case(tmp_path):
    for number in range(2 * len(KINDS)):
        told, files = [], []
        for copy in "ab":
            folder = tmp_path / f"{number}{copy}"
            told.append(made(kind_of(number), Random(number), folder).told[:40])
            found = (path for path in folder.rglob("*") if path.is_file())
            own = str(folder).encode()  # in absolute names
            held = {path.relative_to(folder): path.read_bytes() for path in found}
            files.append({name: data.replace(own, b"") for name, data in held.items()})
        assert told[0] == told[1]
        assert files[0] == files[1]


def test_outcomes_are_told_apart(tmp_path):
    for name in ("data", "out", "other"):
        (tmp_path / name).mkdir()
    secret, pipe = tmp_path / "secret", tmp_path / "data" / "pipe"
    secret.write_text("secret")

    def raising(error):
        raise error

    named = gd.errors.FileError("it is gone")
    written = [sys.executable, "-c", f"open({str(secret)!r}, 'w')"]
    cases = [
        (watching.RESULT, lambda: (tmp_path / "data" / "new").write_text("x")),
        (watching.NAMED, lambda: raising(named)),
        (watching.RAW, lambda: raising(type(named)())),
        (watching.RAW, lambda: raising(KeyError("x"))),
        (watching.LOSS, lambda: raising(watching.Loss("a plane"))),
        (watching.CODE, lambda: pickle.loads(payload.PICKLE)),
        (watching.OUTSIDE, secret.read_text),
        (watching.OUTSIDE, lambda: secret.write_text("another")),
        (watching.OUTSIDE, lambda: os.listdir(tmp_path / "other")),
        (watching.OUTSIDE, lambda: (tmp_path / "made").mkdir()),
        (watching.OUTSIDE, lambda: shutil.rmtree(tmp_path / "other")),
        (watching.OUTSIDE, lambda: open("/etc/passwd").close()),
        # What no event tells.
        (watching.OUTSIDE, lambda: subprocess.run(written, check=True)),
    ]
    for label, run in cases:
        assert outcome(Case("", run), tmp_path).label == label
    if os.name != "nt":
        os.mkfifo(pipe)
        waits = outcome(Case("", pipe.read_text), tmp_path)
        assert waits.label == watching.OUTSIDE and "pipe" in waits.detail
        assert outcome(Case("", lambda: gd.read(pipe)), tmp_path).label == watching.NAMED


def test_a_crash_is_told():
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
        file_cases.compare(pixels[:1], pixels)
    spoilt = pixels.copy()
    spoilt[1, 4:8] = 0
    with pytest.raises(watching.Loss, match="four rows"):
        file_cases.compare(spoilt, pixels)
