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
from fuzz.cases import IN_NAPARI, KINDS, kind_of, made
from fuzz.run_cases import Worker
from fuzz.watching import ACCEPTED, Case, outcome

CASES, BLOCKS = 99 * len(KINDS), 2  # a block for each process of the tests
# Kinds whose cases take longer: every third one is run.
LONGER = KINDS[KINDS.index("OME-Zarr tree") :]


@pytest.mark.parametrize("block", range(BLOCKS))
def test_of_numbers(block):
    """In a process of their own, whose memory is limited; a crash names its case."""
    worker, wrong = Worker(limit=None), []
    for number in range(CASES * block // BLOCKS, CASES * (block + 1) // BLOCKS):
        kind = kind_of(number)
        if kind == IN_NAPARI or (kind in LONGER and number // len(KINDS) % 3):
            continue
        label, detail, told = worker.run(number)
        if label not in ACCEPTED:
            wrong.append(f"case {number}, {kind_of(number)}: {label}: {detail}\n    {told}")
    worker.end()
    assert not wrong, "\n".join([*wrong, "repeat one: python tests/fuzz/run_cases.py --case N"])


@pytest.mark.gui
@pytest.mark.parametrize("number", range(12))
def test_of_layers(tmp_path, number):
    """In this process, which may have loaded napari."""
    pytest.importorskip("napari")
    case = made(IN_NAPARI, Random(number), tmp_path)
    found = outcome(case, tmp_path)
    assert found.label in ACCEPTED, f"{case.told}: {found}"


def test_a_number_is_one_case(tmp_path):
    for number in range(3 * len(KINDS)):
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
    for name in ("data", "out"):
        (tmp_path / name).mkdir()
    secret, link = tmp_path / "secret", tmp_path / "data" / "link"
    secret.write_text("secret")
    (tmp_path / "other").mkdir()

    def raising(error):
        raise error

    named = gd.errors.FileError("it is gone")
    cases = {
        watching.RESULT: lambda: (tmp_path / "data" / "new").write_text("x"),
        watching.NAMED: lambda: raising(named),
        watching.RAW: lambda: raising(KeyError("x")),
        watching.LOSS: lambda: raising(watching.Loss("a plane")),
        watching.CODE: lambda: pickle.loads(payload.PICKLE),
    }
    for label, run in cases.items():
        assert outcome(Case("", run), tmp_path).label == label
    outside = [
        secret.read_text,
        lambda: secret.write_text("another"),
        lambda: secret.rename(tmp_path / "data" / "moved"),
        lambda: os.listdir(tmp_path / "other"),
        lambda: (tmp_path / "made").mkdir(),
        lambda: shutil.rmtree(tmp_path / "other"),
        lambda: open("/etc/passwd").close(),
        # What no event tells.
        lambda: subprocess.run([sys.executable, "-c", f"open({str(secret)!r}, 'w')"], check=True),
    ]
    for run in outside:
        secret.write_text("secret")
        (tmp_path / "other").mkdir(exist_ok=True)
        assert outcome(Case("", run), tmp_path).label == watching.OUTSIDE
    if os.name != "nt":
        link.symlink_to(tmp_path / "other")
        assert outcome(Case("", link.unlink), tmp_path).label == watching.RESULT
        os.mkfifo(link)
        waits = outcome(Case("", link.read_text), tmp_path)
        assert waits.label == watching.OUTSIDE and "pipe" in waits.detail
        named = outcome(Case("", lambda: gd.read(link)), tmp_path)
        assert named.label == watching.NAMED
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
        file_cases.compare(pixels[:1], pixels)
    spoilt = pixels.copy()
    spoilt[1, 4:8] = 0
    with pytest.raises(watching.Loss, match="four rows"):
        file_cases.compare(spoilt, pixels)
