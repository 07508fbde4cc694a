"""Files filtered by workers: the bits of one device, whoever fails or ends; errors in words."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import subprocess
import sys
import threading
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from importlib.util import find_spec

import numpy as np
import pytest
import tifffile

import napari_gpu_denoise as gd
from files.interrupted import PLAIN, Place
from napari_gpu_denoise.cli import main
from napari_gpu_denoise.errors import ClusterError, FileError, KernelError, NonFiniteError
from napari_gpu_denoise.files import batch, one_file
from napari_gpu_denoise.files import cluster as dask_workers
from napari_gpu_denoise.files.cluster import (
    ClusterReport,
    Patience,
    Results,
    connected,
    groups_of,
    result_of,
)
from napari_gpu_denoise.protocol.tiles import Span
from napari_gpu_denoise.run import by_parts
from napari_gpu_denoise.run.part import Part
from napari_gpu_denoise.version import package_version
from scenes import noisy, small
from zarr_stores import write_store

zarr = pytest.importorskip("zarr", reason="zarr is not installed")
VIDEO = small(gd.VBM3D, frames_before=1, frames_after=1)
needs_dask = pytest.mark.skipif(
    find_spec("distributed") is None, reason="dask.distributed is not installed"
)
pytestmark = pytest.mark.usefixtures("in_parts")


class Client:
    """A client of dask whose workers are threads; what they are given and return is pickled."""

    def __init__(self, *names):
        self._names, self._here = names, threading.local()
        self._pool = ThreadPoolExecutor(len(names))
        self._free = list(names)
        self.asked = []

    def submit(self, function, *given, key, pure, workers=None, allow_other_workers=True):
        self.asked.append(workers)
        future = self._pool.submit(self._work, pickle.dumps((function, *given)), workers)
        future.key = key
        return future

    def _work(self, sent, workers):
        # Those that are wanted are waited for.
        name = self._here.name = workers[0] if workers else self._free.pop()
        try:
            function, *given = pickle.loads(sent)
            return pickle.loads(pickle.dumps(function(*given)))
        finally:
            if not workers:
                self._free.append(name)

    def cancel(self, futures):
        for future in futures:
            future.cancel()

    def nthreads(self):
        return dict.fromkeys(self._names, 1)

    def run(self, function, *given, on_error):
        return {name: function(*given) for name in self._names}

    def address(self):
        return self._here.name


@pytest.fixture
def client(monkeypatch):
    made = Client("one", "two")
    monkeypatch.setattr(dask_workers, "address", made.address)
    yield made
    made._pool.shutdown()


@pytest.fixture
def place(tmp_path):
    """A place that holds an image of 36 parts."""
    return written(tmp_path)


def written(folder, dtype="uint16", kind="zarr", planes=6):
    image = noisy(planes, 50, 44, dtype=dtype)
    return Place(folder, kind).write(image, "TYX", chunks=(1, 30, 20))


CASES = {
    "zarr": ("zarr", PLAIN, 20.0, "uint16"),
    "noise and range are measured": ("zarr", PLAIN, None, "float32"),
    "TIFF": ("tif", VIDEO, 20.0, "uint16"),
}


@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_one_device(tmp_path, client, case):
    kind, settings, sigma, dtype = CASES[case]
    place = written(tmp_path, dtype, kind)
    expected, record = place.done(settings, sigma, name="plain")
    made, told = place.done(settings, sigma, client=client)
    np.testing.assert_array_equal(made, expected)
    assert made.dtype == expected.dtype
    for name in ("sigma", "notes", "saturated", "corrected"):
        assert getattr(told, name) == getattr(record, name)
    assert told.device in (record.device, f"2 x {record.device}")


def fail_on_one(monkeypatch, client, module, name):
    """Let a function fail on one of the workers; return a list of its calls there."""
    plain, failed = getattr(module, name), []

    def failing(*given, **options):
        if client.address() == "one":
            failed.append(given)
            raise KernelError("the device is broken.")
        return plain(*given, **options)

    monkeypatch.setattr(module, name, failing)
    return failed


def test_a_worker_whose_device_fails_is_avoided(place, client, monkeypatch):
    expected, _ = place.done(name="plain")
    failed = fail_on_one(monkeypatch, client, dask_workers, "filter_part")
    made, record = place.done(client=client)
    np.testing.assert_array_equal(made, expected)
    assert failed and ["two"] in client.asked
    assert "the device is broken" in " ".join(record.notes)
    # Where all fail, that is said.
    monkeypatch.setattr(client, "address", lambda: "one")
    assert "the device is broken" in str(place.failure(name="again", client=client).error)


def test_a_worker_that_is_late_writes_nothing(tmp_path, client, monkeypatch):
    place, plain = written(tmp_path, planes=3), dask_workers.filter_part
    late, sent, cancel = [], threading.Event(), threading.Event()

    def filter_part(*given):
        if client.address() == "one" and not late:
            late.append(given)
            assert sent.wait(60)
        return plain(*given)

    def stop(state):
        if state.done == 4:
            cancel.set()

    def files():
        inside = (each for each in place.notes.rglob("*") if each.is_file())
        return {each: each.stat().st_mtime_ns for each in inside}

    monkeypatch.setattr(dask_workers, "filter_part", filter_part)
    assert place.run(client=client, progress=stop, cancel=cancel)[0].cancelled
    before = files()
    sent.set()
    client._pool.shutdown()
    assert late and files() == before
    assert not any(".run-" in each.name for each in before)


@pytest.fixture
def several(tmp_path, monkeypatch):
    """Return a folder of small files, one of them damaged, and what becomes of the others."""
    monkeypatch.setattr(one_file, "STREAMED_BYTES", 20_000)
    folder, expected = tmp_path / "raw", {}
    folder.mkdir()
    # The last is as large as to be filtered part by part.
    shapes = [(33, 37), (34, 37), (35, 37), (36, 37), (2, 50, 44), (6, 50, 44)]
    for number, shape in enumerate(shapes):
        image, axes = noisy(*shape, dtype="uint16"), "TYX"[-len(shape) :]
        name = f"{number}.{'ome.zarr' if number == 4 else 'tif'}"
        if number == 4:
            write_store(folder / name, image, axes)
        else:
            tifffile.imwrite(folder / name, image, metadata={"axes": axes})
        expected[name] = gd.denoise(image, PLAIN, 20.0, axes=axes).image
    (folder / "damaged.tif").write_bytes(b"II*")
    return folder, expected


def test_small_files_are_spread_over_the_workers(several, client, monkeypatch):
    folder, expected = several
    met, plain, whole = threading.Barrier(2, timeout=60), batch.filtered_file, []

    def filtered_file(path, *given):
        whole.append(path.name)
        if len(whole) <= 2:
            met.wait()
        return plain(path, *given)

    filtered_file.__module__, filtered_file.__qualname__ = __name__, "spread"
    monkeypatch.setitem(globals(), "spread", filtered_file)
    monkeypatch.setattr(batch, "filtered_file", filtered_file)
    out, seen = folder.parent / "out", []
    options = {"output": out, "client": client, "progress": seen.append}
    report = gd.run_batch(folder, PLAIN, 20.0, **options)
    assert sorted(whole) == ["0.tif", "1.tif", "2.tif", "3.tif", "4.ome.zarr"]
    assert {file.output.name for file in report.done} == set(expected)
    for name, pixels in expected.items():
        np.testing.assert_array_equal(gd.read(out / name).data, pixels)
    (failed,) = report.failed
    assert failed.input.name == "damaged.tif" and isinstance(failed.error, FileError)
    assert {file.record.filter for file in report.done} == {"nl_means"}
    assert next((each.done, each.total) for each in seen if each.unit == "file") == (0, 7)
    again = gd.run_batch(folder, PLAIN, 20.0, resume=True, **options)
    assert len(again.skipped) == 6 and len(again.failed) == 1


def test_a_small_file_is_tried_on_another_worker(several, client, monkeypatch):
    folder, _ = several
    failed = fail_on_one(monkeypatch, client, batch, "denoise_file")
    options = {"output": folder.parent / "out", "client": client}
    inputs = [folder / f"{number}.tif" for number in range(4)]
    report = gd.run_batch(inputs, PLAIN, 20.0, **options)
    assert failed and len(report.done) == 4
    monkeypatch.setattr(client, "address", lambda: "one")
    report = gd.run_batch(inputs, PLAIN, 20.0, **options, overwrite=True, stop_on_error=True)
    assert len(report.files) == 1 and "the device is broken" in str(report.failed[0].error)
    cancel = threading.Event()
    cancel.set()
    assert gd.run_batch(inputs, PLAIN, 20.0, **options, cancel=cancel, overwrite=True).cancelled


def test_an_error_of_the_input_is_raised_at_once(tmp_path, client, monkeypatch):
    image = noisy(6, 50, 44)
    image[3, 20, 20] = np.nan
    place = Place(tmp_path, "zarr").write(image, "TYX")
    error = place.failure(client=client).error
    assert isinstance(error, NonFiniteError) and "nonfinite" in str(error)
    assert [each.name for each in tmp_path.iterdir()] == ["in.ome.zarr"]
    monkeypatch.setattr(dask_workers, "package_version", lambda: "0.0.1")
    with pytest.raises(ClusterError, match="install version"):
        place.done(client=client, nonfinite="keep")


@pytest.mark.parametrize("kind", ["zarr", "address"])
def test_one_device_goes_on_with_what_workers_began(tmp_path, client, monkeypatch, memory, kind):
    place, cancel = (
        written("memory://lab" if kind == "address" else tmp_path, kind=kind),
        threading.Event(),
    )

    def stop(state):
        if state.done == 5:
            cancel.set()

    assert place.run(client=client, progress=stop, cancel=cancel)[0].cancelled
    monkeypatch.setattr(by_parts, "filter_parts", counted := Counted(by_parts.filter_parts))
    place.resumed()
    assert 0 < counted.parts < 36
    place.check_as_uninterrupted()
    if kind == "address":
        names = sorted(each.rpartition("/")[2] for each in memory.ls("/lab/out.ome.zarr", False))
        assert names == ["0", "1", "zarr.json"]


class Counted:
    """A function that filters parts, and how many it was given."""

    def __init__(self, plain):
        self._plain = plain

    def __call__(self, devices, job, parts, *given, **options):
        self.parts = len(parts)
        return self._plain(devices, job, parts, *given, **options)


def test_parts_of_different_groups_share_no_chunk():
    lengths, size, unit = (10, 9), (2, 3), (3, 2)
    starts = itertools.product(*(range(0, n, s) for n, s in zip(lengths, size, strict=True)))
    parts = []
    for start in starts:
        each = zip(start, lengths, size, strict=True)
        spans = (Span.whole(n).part(a, min(a + s, n), (0, 0)) for a, n, s in each)
        parts.append(Part(tuple(spans)))
    chunks = []
    for group in groups_of(parts, unit):
        held = set()
        for part in group:
            ends = zip(part.yields, unit, strict=True)
            ranges = (range(a.start // u, (a.stop - 1) // u + 1) for a, u in ends)
            held |= set(itertools.product(*ranges))
        chunks.append(held)
    assert sum(map(len, groups_of(parts, unit))) == len(parts)
    assert len(chunks) == 4
    assert not any(a & b for a, b in itertools.combinations(chunks, 2))
    assert len(groups_of(parts, size)) == len(parts)
    assert len(groups_of(parts, None)) == 1


@pytest.mark.parametrize(
    ("found", "words"),
    [("0.0.1", "version 0.0.1 of napari-gpu-denoise"), (ImportError(), "no napari-gpu-denoise")],
)
def test_a_worker_with_another_version_or_none_is_named(place, client, monkeypatch, found, words):
    """Without the package it was ended by its first task, and the run waited for others."""
    monkeypatch.setattr(client, "run", lambda *_, **__: {"one": package_version(), "two": found})
    with pytest.raises(ClusterError, match=f"worker two has {words}: install version .* there"):
        place.done(client=client)


class KilledWorker(Exception):
    """What dask raises of a worker that died several times, by this name."""


def test_what_dask_raises_is_told_in_words():
    for error, kind, words in (
        (CancelledError(), ClusterError, "scheduler"),
        (ImportError("no x"), ClusterError, "no x"),
        (KilledWorker(), ClusterError, "memory"),
        (
            AttributeError("Can't get attribute 'seen' on"),
            ClusterError,
            "cannot load a module .*: install version .* there, as here",
        ),
        (
            RuntimeError("\nError during deserialization of the task graph."),
            ClusterError,
            "scheduler cannot",
        ),
        (FileError("it is gone."), FileError, "gone"),
    ):
        future = Future()
        future.set_exception(error)
        with pytest.raises(kind, match=words):
            result_of(future)


class CommClosedError(OSError):
    """What dask raises where a connection ends, by this name."""


@pytest.mark.parametrize("error", [CommClosedError("in <TCP>"), TimeoutError(), CancelledError()])
@pytest.mark.parametrize("method", ["run", "nthreads", "submit", "cancel", "result"])
def test_a_scheduler_that_is_lost_has_a_name(tmp_path, client, monkeypatch, method, error):
    def lost(*_, **__):
        raise error

    place = written(tmp_path, kind="tif")
    if method == "result":
        if isinstance(error, TimeoutError):
            return  # as a task may raise it
        monkeypatch.setattr(client, "_work", lost)
    else:
        monkeypatch.setattr(client, method, lost)
    if method == "cancel":  # when all is done
        assert place.done(client=client)
        return
    with pytest.raises(ClusterError, match="scheduler was lost: start it again"):
        place.done(client=client)


@needs_dask
def test_a_scheduler_without_workers_is_named(monkeypatch):
    import distributed

    monkeypatch.setattr(dask_workers, "_SECONDS", 3)
    options = {"n_workers": 0, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**options, protocol="tcp") as cluster:
        running = connected(cluster.scheduler_address)
        with pytest.raises(ClusterError, match="has no workers: start some"), running:
            pass


@needs_dask
@pytest.mark.parametrize("error", [TimeoutError(), CancelledError(), OSError()])
def test_closing_needs_nobody(monkeypatch, error):
    import distributed

    options = {"n_workers": 1, "processes": False, "dashboard_address": None}
    plain = distributed.Client.close

    def close(self, *given, **options):
        plain(self, *given, **options)
        raise error

    monkeypatch.setattr(distributed.Client, "close", close)
    started = distributed.LocalCluster(**options, protocol="tcp")
    with started as cluster, connected(cluster.scheduler_address) as client:
        assert client.nthreads()


def test_without_the_package_the_command_line_says_what_to_install(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "distributed", None)
    given = ["nl-means", "in.tif", "-o", str(tmp_path), "--workers"]
    assert main([*given, "2"]) == 9
    assert r"pip install 'napari-gpu-denoise[cluster]'" in capsys.readouterr().err
    assert main([*given, "0"]) == 2
    assert "'0' is not a number of at least 1" in capsys.readouterr().err


@needs_dask
def test_a_worker_that_is_killed_costs_its_parts_only(tmp_path):
    import dask.array as da

    place, killed = written(tmp_path, planes=12), []
    expected, _ = place.done(name="plain")
    with connected(workers=2) as client:
        before = client.run(os.getpid)
        for process in before.values():
            os.kill(process, signal.SIGINT)  # the terminal sends Ctrl-C to them, too

        def kill(state):
            if state.done > 5 and not killed:
                killed.append(next(iter(before.values())))
                os.kill(killed[0], signal.SIGKILL)

        made, record = place.done(client=client, progress=kill)
        np.testing.assert_array_equal(made, expected)
        assert killed
        assert "CPU" in record.device
        client.wait_for_workers(2)
        assert killed[0] not in client.run(os.getpid).values()
        # The same of a dask array.
        chunks = da.from_array(gd.read(place.input).data, chunks=(1, 50, 22))
        future = client.compute(gd.nl_means(chunks, 20.0, settings=PLAIN, axes="TYX"))
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        np.testing.assert_array_equal(future.result(), expected)


class Deserted(Client):
    """A client whose workers are all gone after some tasks."""

    left = 3

    def submit(self, *given, **options):
        self.left -= 1
        if self.left >= 0:
            return super().submit(*given, **options)
        future = Future()
        future.key = options["key"]
        return future

    def nthreads(self):
        return super().nthreads() if self.left >= 0 else {}


@pytest.fixture
def deserted(client, monkeypatch):
    monkeypatch.setattr(client, "__class__", Deserted)
    return client


@pytest.mark.parametrize("left", [0, 1, 3])
def test_a_run_without_workers_is_stopped_at_once(place, deserted, monkeypatch, left):
    """Ctrl-C was not seen, as the progress stayed the same."""
    monkeypatch.setattr(dask_workers, "Patience", lambda: Patience(look=0.01))
    monkeypatch.setattr(deserted, "left", left, raising=False)
    cancel, steps = threading.Event(), []

    def stop(state):
        steps.append(state)
        if len(steps) > 20 and steps[-1] == steps[-2]:
            cancel.set()

    assert place.run(client=deserted, progress=stop, cancel=cancel)[0].cancelled


def test_a_run_without_workers_says_so_and_ends(place, deserted, monkeypatch, caplog):
    monkeypatch.setattr(dask_workers, "Patience", lambda: Patience(0.01, 0.02, 0.1))
    with pytest.raises(ClusterError, match=r"no dask worker for 0\.1 s: start some"):
        place.done(client=deserted)
    assert [each.getMessage()[:25] for each in caplog.records] == ["There is no dask worker: "]


def test_a_result_that_is_lost_with_its_worker_blocks_nothing(client):
    """What was done, but not sent yet, is waited for, for ever if there is no worker."""
    end = threading.Event()

    class Lost(Future):
        key = "lost"

        def result(self, timeout=None):
            end.wait(60)

        def add_done_callback(self, call):
            threading.Thread(target=call, args=(self,), daemon=True).start()

    client.submit = lambda *_, **__: Lost()
    made = Results(client, iter([("x", print)]), 1, ClusterReport(), patience=Patience(look=0.01))
    assert next(made.arriving()) == (-1, None)
    end.set()


@needs_dask
@pytest.mark.parametrize(
    "address, why",
    [
        *((each, "no address of a dask scheduler") for each in ("foo://bar:1", "http://x:1", "")),
        *((each, "no address of a dask scheduler") for each in ("tcp://", "tcp://login1")),
        *((each, "needs certificates") for each in ("tls://127.0.0.1:9", "wss://127.0.0.1:9")),
    ],
)
def test_what_is_no_address_is_refused_before_it_is_tried(monkeypatch, address, why):
    """They were tried for a minute, with a traceback in the end."""
    import distributed

    monkeypatch.setattr(distributed, "Client", None)
    with pytest.raises(ClusterError, match=why), connected(address):
        pass


@needs_dask
def test_what_connecting_to_dask_raises(monkeypatch):
    """The dashboard is for this machine only."""
    import distributed

    def cluster(**options):
        raise OSError(options["dashboard_address"])

    monkeypatch.setattr(distributed, "LocalCluster", cluster)
    with pytest.raises(ClusterError, match=r"127\.0\.0\.1:8787"), connected(workers=1):
        pass
    monkeypatch.setattr(dask_workers, "_SECONDS", 0.2)
    with (
        pytest.raises(ClusterError, match="No dask scheduler answers"),
        connected("tcp://127.0.0.1:9"),
    ):
        pass


def test_workers_are_silent_about_what_a_failed_write_leaves():
    """A full disk was told in one sentence, below ten tracebacks of the workers."""
    script = """if True:
        import asyncio, gc
        from napari_gpu_denoise.files.cluster import dask_setup

        class Odd:
            def __del__(self):
                raise OSError("no space is left")

        async def failing():
            raise OSError("no space is left")

        async def main():
            task = asyncio.ensure_future(failing())
            await asyncio.sleep(0.01)
            del task
            gc.collect()

        dask_setup(None)
        Odd()
        asyncio.run(main())
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
