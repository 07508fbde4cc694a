"""Results at addresses that fsspec opens: what is there before they are complete, and locks.

What holds of files, too, is in test_unfinished.py; a server of S3 is asked in test_s3.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

import napari_gpu_denoise as gd
from files.interrupted import PLAIN, Place
from napari_gpu_denoise.errors import FileError, OutputError
from napari_gpu_denoise.files import resuming
from napari_gpu_denoise.files.zarr import Address, places, writing

pytest.importorskip("zarr", reason="zarr is not installed")
MemoryFileSystem = pytest.importorskip("fsspec.implementations.memory").MemoryFileSystem

pytestmark = pytest.mark.usefixtures("in_parts")
OUT = "/lab/out.ome.zarr"
NOTES = f"{OUT}/.gpu-denoise-unfinished"


@pytest.fixture
def lab(memory, monkeypatch):
    """Return a place in memory with an image of six parts."""
    monkeypatch.setattr(places, "_PAUSES", ())
    place = Place("memory://lab", "address").write()
    place.system = memory
    return place


def heads(place):
    """Return the files directly in the result, and whether there are notes on it."""
    names = [each.removeprefix(f"{OUT}/") for each in place.system.find(OUT)]
    return [n for n in names if "/" not in n], any(n.startswith(".gpu-denoise") for n in names)


def check_whole(place):
    expected = gd.denoise(gd.read(place.input).data, PLAIN, 20.0, axes="ZYX").image
    np.testing.assert_array_equal(gd.read(place.output).data, expected)


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_no_program_opens_half_a_result(lab, version):
    lab.write(version=version)
    lab.run(stop_at=2)
    assert heads(lab) == ([], True)
    with pytest.raises(FileError, match="holds no zarr"):
        gd.read(lab.output)
    lab.resumed()
    assert heads(lab) == (["zarr.json"] if version == "0.5" else [".zattrs", ".zgroup"], False)
    assert gd.read(lab.output).pixel_metadata == gd.read(lab.input).pixel_metadata
    check_whole(lab)


def test_another_run_begins_anew_or_is_refused(lab):
    lab.run(stop_at=3)
    error = str(lab.failure(resume=True, sigma=21.0).error)
    assert "started with a different sigma; the partial result was kept" in error
    for overwrite in (False, True):
        report, wrote = lab.run(overwrite=overwrite)
        assert report.done and len(wrote) == 6 and heads(lab) == (["zarr.json"], False)
    # What is no result is kept.
    lab.system.pipe_file("/lab/other.zarr/data", b"1")
    file = lab.failure(output="memory://lab/other.zarr", overwrite=True)
    assert "is not zarr: it is kept" in str(file.error)
    assert lab.system.exists("/lab/other.zarr/data")


def test_a_result_whose_notes_were_not_removed_is_complete(lab, monkeypatch):
    with monkeypatch.context() as killed:
        killed.setattr(resuming.ResumeLedger, "__exit__", lambda self, *_: self.notes.free())
        lab.run()
    assert heads(lab) == (["zarr.json"], True)
    assert "exists and was kept" in lab.run()[0].skipped[0].skipped
    assert "complete" in lab.run(resume=True)[0].skipped[0].skipped
    assert heads(lab) == (["zarr.json"], False)


@pytest.mark.parametrize("heads_written", [[], [".zgroup"], [".zattrs"]])
def test_a_run_that_was_killed_between_its_heads_is_resumed(lab, heads_written):
    """Zarr of version 2 has two files of metadata, and is complete when both are there."""
    lab.write(version="0.4")
    lab.run(stop_at=6)
    for name in heads_written:
        lab.system.pipe_file(f"{OUT}/{name}", b'{"zarr_format": 2}')
    lab.resumed()
    check_whole(lab)
    assert heads(lab) == ([".zattrs", ".zgroup"], False)


@pytest.mark.parametrize("done", [2, 6])  # some parts, or all
def test_a_run_that_was_thought_dead_ends(lab, done):
    """Before it writes metadata, removes or notes anything, though its renewals are far apart."""
    ledger = []

    def take(step):
        if step.done == done and not ledger:
            lab.system.pipe_file(f"{NOTES}/lock.json", b'{"run": "another"}')
            ledger.append(lab.system.cat_file(f"{NOTES}/ledger.json"))

    assert "Another process took over" in str(lab.failure(progress=take).error)
    assert heads(lab) == ([], True) and lab.system.exists(f"{OUT}/0/c/0/0/0")
    assert lab.system.cat_file(f"{NOTES}/lock.json") == b'{"run": "another"}'
    assert lab.system.cat_file(f"{NOTES}/ledger.json") == ledger[0]


def test_a_result_that_is_taken_over_at_the_last_moment_is_no_success(lab, monkeypatch):
    plain = writing.NewImage._describe

    def take(self, *given):
        plain(self, *given)
        lab.system.pipe_file(f"{NOTES}/lock.json", b"{}")

    monkeypatch.setattr(writing.NewImage, "_describe", take)
    assert "Another process took over" in str(lab.failure().error)


def test_a_network_that_stays_away_leaves_what_is_done(lab, monkeypatch):
    away, plain = [], MemoryFileSystem.pipe_file

    def pipe(self, path, *given, **options):
        if away:
            raise ConnectionError("the network is gone")
        return plain(self, path, *given, **options)

    with monkeypatch.context() as patched:
        patched.setattr(MemoryFileSystem, "pipe_file", pipe)
        file = lab.failure(progress=lambda step: away.append(1) if step.done == 3 else None)
    assert "the network is gone" in str(file.error)
    assert min(lab.resumed()) >= 3
    check_whole(lab)


def test_what_was_written_at_once_and_killed_is_replaced(lab, monkeypatch):
    picture = gd.read(lab.input)
    with monkeypatch.context() as killed:
        killed.setattr(Address, "remove", lambda self: None)
        killed.setattr(writing.NewImage, "finish", 0)
        with pytest.raises(TypeError):
            gd.write(lab.output, picture.data, picture)
    assert heads(lab) == ([], True)
    gd.write(lab.output, picture.data, picture)
    assert heads(lab) == (["zarr.json"], False)


class Store(dict):
    """Notes in memory, of a store that knows the condition of `create`, or not, or ignores it."""

    knows = "knows"

    def __init__(self):
        super().__init__()
        self._one = threading.Lock()

    text = dict.get

    def create(self, name, text):
        if self.knows == "does not know":
            raise NotImplementedError
        with self._one:
            if self.knows == "knows" and name in self:
                raise FileExistsError
            self[name] = text

    def replace(self, name, text):
        self[name] = text

    def remove(self, name):
        self.pop(name, None)


class Lock(resuming.RemoteCheckpoint):
    """A lock whose notes are in such a store."""

    text = create = replace = remove = None

    def __init__(self, store):
        super().__init__(Address(f"memory:/{OUT}"))
        self.text = lambda name, most=None: store.text(name)
        self.create, self.replace, self.remove = store.create, store.replace, store.remove


@pytest.fixture
def store(monkeypatch):
    """Return notes in memory; locks are renewed and expire fast."""
    monkeypatch.setattr(resuming, "_RENEWED", 0.02)
    monkeypatch.setattr(resuming, "_WATCHED", 0.3)
    monkeypatch.setattr(resuming, "_SETTLED", 0.3)
    return Store()


def seen_by_another_machine(monkeypatch):
    monkeypatch.setattr(resuming, "_held", set())
    monkeypatch.setattr(resuming, "_machine", lambda: "another")


def test_a_lock_keeps_others_out_while_it_is_renewed(store, monkeypatch):
    first = Lock(store)
    assert first.acquire() and not Lock(store).acquire()
    told = json.loads(store[resuming.LOCK])
    seen_by_another_machine(monkeypatch)
    assert not Lock(store).acquire()
    first.stop_renewing()
    second = Lock(store)
    assert second.acquire()
    # Nothing that the first does now ends the lock of the second.
    resuming._held.add(first._run)
    first.free()
    assert second.holds() and first.lost == "taken"
    second.free()
    assert resuming.LOCK not in store
    # Of a process of this machine that is gone.
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    gone = json.dumps({**told, "machine": "another", "process": ended.pid})
    monkeypatch.setattr(resuming, "_WATCHED", 60)
    assert os.name == "nt" or Lock(store)._is_free(gone)
    # Windows does not tell whether it is.
    monkeypatch.setattr(resuming, "_WATCHED", 0.1)
    monkeypatch.setattr(resuming, "is_alive", lambda process: pytest.fail("asked on Windows"))
    monkeypatch.setattr(resuming, "os", SimpleNamespace(name="nt", getpid=os.getpid))
    Lock(store)._is_free(gone)


@pytest.mark.parametrize("expired", [False, True])
@pytest.mark.parametrize("knows", ["knows", "ignores", "does not know"])
def test_of_runs_started_together_one_goes_ahead(store, monkeypatch, knows, expired):
    if expired:
        store[resuming.LOCK] = json.dumps({"run": "", "machine": "gone", "process": 1})
    store.knows = knows
    together, first = threading.Barrier(3), [True] * 3

    def text(name):
        """Let all find the same before any of them writes."""
        found = store.get(name)
        if name == resuming.LOCK and first:
            first.pop()
            together.wait(60)
        return found

    monkeypatch.setattr(store, "text", text, raising=False)
    locks = [Lock(store) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(Lock.acquire, locks)) == 1
    for lock in locks:
        lock.free()
    assert resuming.LOCK not in store


def test_notes_that_cannot_be_reached(lab, monkeypatch):
    def gone(*_, **__):
        raise ConnectionError("the network is gone")

    monkeypatch.setattr(MemoryFileSystem, "exists", gone)
    assert resuming.kept_note(lab.output).startswith("If parts of")
    with pytest.raises(OutputError, match="cannot be reached: the network is gone"):
        resuming.notes_on(lab.output).has("ledger.json")
    monkeypatch.undo()
