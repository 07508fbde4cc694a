"""Results at addresses that fsspec opens, interrupted and gone on with; run against a server of S3
in test_s3.py."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import FileError, OutputError
from napari_gpu_denoise.files import resuming
from napari_gpu_denoise.files.zarr import Address, places, writing
from napari_gpu_denoise.run import part as parts_of_images
from scenes import noisy, small
from zarr_stores import write_store

fsspec = pytest.importorskip("fsspec")
LocalFileSystem = pytest.importorskip("fsspec.implementations.local").LocalFileSystem
pytest.importorskip("zarr", reason="zarr is not installed")

SETTINGS, IMAGE = small(gd.NLMeans), noisy(6, 33, 37, dtype="uint16")
PLACE, OUT = "memory://lab/in.ome.zarr", "memory://lab/out.ome.zarr"


class Disk(LocalFileSystem):
    """What is on disk, as a server has it: ``file://`` is read and written as folders are."""

    protocol = "disk"

    def __init__(self, **options):
        super().__init__(**{**options, "auto_mkdir": True})

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(os.fspath(path).removeprefix("disk://"))


fsspec.register_implementation("disk", Disk)


@pytest.fixture
def lab(monkeypatch):
    """Return a file system in memory with an image of six parts; each is noted at once."""
    monkeypatch.setattr(parts_of_images, "PART_BYTES", 1)
    monkeypatch.setattr(resuming, "_SECONDS", 0)
    monkeypatch.setattr(resuming, "_SHARE_OF_REPLACING", float("inf"))
    monkeypatch.setattr(places, "_PAUSES", ())
    system = fsspec.filesystem("memory")
    write_store(PLACE, IMAGE, "ZYX", chunks=(1, 33, 37))
    yield system
    system.rm("/lab", recursive=True)


def run(stop_at=None, **options):
    """Run, or stop when so many parts are done; return the report and the parts written."""
    cancel, wrote, plain = threading.Event(), [], resuming.ResumeLedger.wrote

    def counted(self, number, *given):
        if cancel.is_set():
            time.sleep(0.05)
        plain(self, number, *given)
        wrote.append(number)
        if len(wrote) == stop_at:
            cancel.set()

    options = {"sigma": 20.0, "output": OUT, "cancel": cancel, **options}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(resuming.ResumeLedger, "wrote", counted)
        return gd.run_batch(PLACE, SETTINGS, **options), wrote


def expected():
    return gd.denoise(IMAGE, SETTINGS, 20.0, axes="ZYX").image


def heads(system):
    """Return the files directly in the result, and whether there are notes on it."""
    names = [each.removeprefix("/lab/out.ome.zarr/") for each in system.find("/lab/out.ome.zarr")]
    return [n for n in names if "/" not in n], any(n.startswith(".gpu-denoise") for n in names)


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_a_cancelled_run_is_resumed(lab, version):
    write_store(PLACE, IMAGE, "ZYX", version, chunks=(1, 33, 37))
    report, first = run(stop_at=2)
    assert report.cancelled and heads(lab) == ([], True)
    assert report.notes == (
        f"The finished parts of {OUT} are kept there: repeat the run with resume=True",
    )
    with pytest.raises(FileError, match="holds no zarr"):
        gd.read(OUT)
    report, rest = run(resume=True)
    assert len(report.done) == 1 and rest and not set(first) & set(rest)
    assert heads(lab) == (["zarr.json"] if version == "0.5" else [".zattrs", ".zgroup"], False)
    found = gd.read(OUT)
    np.testing.assert_array_equal(found.data, expected())
    assert found.pixel_metadata == gd.read(PLACE).pixel_metadata
    (whole,) = run(output="memory://lab/whole.ome.zarr")[0].done
    assert replace(report.done[0].record, date="") == replace(whole.record, date="")
    assert "complete" in run(resume=True)[0].skipped[0].skipped


@pytest.mark.parametrize("damage", ["lost", "cut"])
@pytest.mark.parametrize("name", ["0/c/0/0/0", "0/zarr.json"])
def test_finished_parts_that_are_lost_are_done_again(lab, name, damage):
    _, first = run(stop_at=3)
    place = f"/lab/out.ome.zarr/{name}"
    if damage == "lost":
        lab.rm_file(place)
    else:
        lab.pipe_file(place, lab.cat_file(place)[:-9])
    report, rest = run(resume=True)
    assert len(report.done) == 1
    lost = {0} if "/c/" in name else set()
    assert set(rest) == set(range(6)) - set(first) | lost
    np.testing.assert_array_equal(gd.read(OUT).data, expected())


def test_another_run_begins_anew_or_is_refused(lab):
    run(stop_at=3)
    (file,) = run(resume=True, sigma=21.0)[0].failed
    assert "started with a different sigma; the partial result was kept" in str(file.error)
    write_store(PLACE, IMAGE, "ZYX", chunks=(1, 33, 37))
    (file,) = run(resume=True)[0].failed
    assert "a different input" in str(file.error)
    report, wrote = run()
    assert report.done and len(wrote) == 6 and heads(lab) == (["zarr.json"], False)
    # With overwrite what is complete is replaced, and what is no result is kept.
    report, wrote = run(overwrite=True)
    assert report.done and len(wrote) == 6
    lab.pipe_file("/lab/other.zarr/data", b"1")
    (file,) = run(output="memory://lab/other.zarr", overwrite=True)[0].failed
    assert "is not zarr: it is kept" in str(file.error) and lab.exists("/lab/other.zarr/data")


def test_a_result_whose_notes_were_not_removed_is_complete(lab, monkeypatch):
    with monkeypatch.context() as killed:
        killed.setattr(resuming.ResumeLedger, "__exit__", lambda self, *_: self.notes.free())
        run()
    assert heads(lab) == (["zarr.json"], True)
    assert "exists and was kept" in run()[0].skipped[0].skipped
    assert "complete" in run(resume=True)[0].skipped[0].skipped
    assert heads(lab) == (["zarr.json"], False)


def test_an_input_that_changes_during_the_run_is_refused(lab):
    seen = []

    def change(step):
        if step.done and not seen:
            seen.append(write_store(PLACE, IMAGE, "ZYX", chunks=(1, 33, 37)))

    (file,) = run(progress=change)[0].failed
    assert "was changed during the run" in str(file.error) and not file.notes
    assert heads(lab) == ([], True)


def test_a_second_run_is_refused(lab):
    seen = []

    def again(step):
        if step.total and not seen:
            seen.append(run()[0])

    report, _ = run(progress=again)
    (other,) = seen[0].failed
    assert "Another run is writing" in str(other.error) and not other.notes
    np.testing.assert_array_equal(gd.read(report.done[0].output).data, expected())


@pytest.mark.parametrize("done", [2, 6])  # some parts, or all
def test_a_run_that_was_thought_dead_ends(lab, done):
    """Before it writes metadata, removes or notes anything, though its renewals are far apart."""
    place = "/lab/out.ome.zarr/.gpu-denoise-unfinished/"
    ledger = []

    def take(step):
        if step.done == done and not ledger:
            lab.pipe_file(place + "lock.json", b'{"run": "another"}')
            ledger.append(lab.cat_file(place + "ledger.json"))

    (file,) = run(progress=take)[0].failed
    assert "Another process took over" in str(file.error)
    assert heads(lab) == ([], True) and lab.exists("/lab/out.ome.zarr/0/c/0/0/0")
    assert lab.cat_file(place + "lock.json") == b'{"run": "another"}'
    assert lab.cat_file(place + "ledger.json") == ledger[0]


def test_a_result_that_is_taken_over_at_the_last_moment_is_no_success(lab, monkeypatch):
    plain = writing.NewImage._describe

    def take(self, *given):
        plain(self, *given)
        lab.pipe_file("/lab/out.ome.zarr/.gpu-denoise-unfinished/lock.json", b"{}")

    monkeypatch.setattr(writing.NewImage, "_describe", take)
    assert "Another process took over" in str(run()[0].failed[0].error)


def test_what_is_removed_during_the_run_is_no_success(lab):
    def remove(step):
        if step.done == 3:
            lab.rm("/lab/out.ome.zarr", recursive=True)

    assert "was removed or moved" in str(run(progress=remove)[0].failed[0].error)


def test_a_network_that_stays_away_leaves_what_is_done(lab, monkeypatch):
    from fsspec.implementations.memory import MemoryFileSystem

    away, plain = [], MemoryFileSystem.pipe_file

    def pipe(self, path, *given, **options):
        if away:
            raise ConnectionError("the network is gone")
        return plain(self, path, *given, **options)

    with monkeypatch.context() as patched:
        patched.setattr(MemoryFileSystem, "pipe_file", pipe)
        report, _ = run(progress=lambda step: away.append(1) if step.done == 3 else None)
    assert "the network is gone" in str(report.failed[0].error)
    report, rest = run(resume=True)
    assert min(rest) >= 3
    np.testing.assert_array_equal(gd.read(OUT).data, expected())


def test_a_killed_run_is_resumed(lab, tmp_path, monkeypatch):
    """Killed in earnest; what is on disk stands for a server."""
    if os.name == "nt":
        pytest.skip("no SIGKILL")
    write_store(tmp_path / "in.ome.zarr", IMAGE, "ZYX", chunks=(1, 33, 37))
    place, target = (f"disk://{tmp_path}/{name}.ome.zarr" for name in ("in", "out"))
    script = (
        "import os, signal, sys\n"
        "import files.test_unfinished_at_addresses\n"
        "import napari_gpu_denoise as gd\n"
        "from napari_gpu_denoise.files import resuming\n"
        "from napari_gpu_denoise.run import part as parts_of_images\n"
        "from scenes import small\n"
        "parts_of_images.PART_BYTES, resuming._SHARE_OF_REPLACING = 1, float('inf')\n"
        "def progress(step):\n"
        "    if step.done == 4:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "gd.run_batch(sys.argv[1], small(gd.NLMeans), 20.0, output=sys.argv[2], progress=progress)"
    )
    known = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", script, place, target]
    assert subprocess.run(command, env=known, check=False).returncode == -signal.SIGKILL
    assert not (tmp_path / "out.ome.zarr" / "zarr.json").exists()
    wrote, plain = [], resuming.ResumeLedger.wrote
    monkeypatch.setattr(
        resuming.ResumeLedger, "wrote", lambda *given: (wrote.append(given[1]), plain(*given))
    )
    report = gd.run_batch(place, SETTINGS, 20.0, output=target, resume=True)
    assert report.done and min(wrote) >= 3
    np.testing.assert_array_equal(gd.read(target).data, expected())
    assert sorted(os.listdir(tmp_path / "out.ome.zarr")) == ["0", "1", "zarr.json"]


def test_what_was_written_at_once_and_killed_is_replaced(lab, monkeypatch):
    picture = gd.read(PLACE)
    with monkeypatch.context() as killed:
        killed.setattr(Address, "remove", lambda self: None)
        killed.setattr("napari_gpu_denoise.files.zarr.writing.NewImage.finish", 0)
        with pytest.raises(TypeError):
            gd.write(OUT, IMAGE, picture)
    assert heads(lab) == ([], True)
    gd.write(OUT, IMAGE, picture)
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

    def __init__(self, store):
        super().__init__(Address(OUT))
        self._store = store

    def text(self, name, most=None):
        return self._store.text(name)

    def create(self, name, text):
        self._store.create(name, text)

    def replace(self, name, text):
        self._store.replace(name, text)

    def remove(self, name):
        self._store.remove(name)


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
    from fsspec.implementations.memory import MemoryFileSystem

    def gone(*_, **__):
        raise ConnectionError("the network is gone")

    with monkeypatch.context() as patched:
        patched.setattr(MemoryFileSystem, "exists", gone)
        assert resuming.kept_note(Address(OUT)).startswith("If parts of")
        with pytest.raises(OutputError, match="cannot be reached: the network is gone"):
            resuming.notes_on(Address(OUT)).has("ledger.json")
