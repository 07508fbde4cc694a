"""Files filtered by workers: the bits of one device, whoever fails or ends; errors in words."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import tifffile

import napari_gpu_denoise as gd
from files.interrupted import PLAIN, Place
from napari_gpu_denoise.cli import main
from napari_gpu_denoise.errors import (
    ClusterError,
    FileError,
    KernelError,
    NoDeviceError,
    NonFiniteError,
)
from napari_gpu_denoise.files import batch
from napari_gpu_denoise.files import cluster as dask_workers
from napari_gpu_denoise.files.batch import Batch, denoise_files
from napari_gpu_denoise.files.cluster import NewWorkers, connected
from napari_gpu_denoise.run import by_parts
from napari_gpu_denoise.run.request import Run
from napari_gpu_denoise.version import package_version
from scenes import noisy, small
from zarr_stores import write_store

zarr = pytest.importorskip("zarr", reason="zarr is not installed")
distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
VIDEO = small(gd.NLMeans, frames_before=1, frames_after=1)
pytestmark = pytest.mark.usefixtures("in_parts")
IN_THREADS = {"processes": False, "dashboard_address": None, "threads_per_worker": 1}


@pytest.fixture(scope="module")
def cluster():
    """Return two workers that are threads of this process."""
    with distributed.LocalCluster(n_workers=2, **IN_THREADS) as made:
        yield made


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster, set_as_default=False) as made:
        yield made


@pytest.fixture
def one(cluster):
    """Return the address of one of the workers."""
    return cluster.workers[0].address


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
    limit = "8G" if kind == "tif" else None
    made, told = place.done(settings, sigma, client=client, memory_limit_host=limit)
    np.testing.assert_array_equal(made, expected)
    assert made.dtype == expected.dtype
    for name in ("sigma", "notes", "saturated", "corrected"):
        assert getattr(told, name) == getattr(record, name)
    assert told.device in (record.device, f"2 x {record.device}")


def test_parts_that_share_a_chunk_are_written_by_one_process(place, client, monkeypatch):
    expected, _ = place.done(name="plain")
    monkeypatch.setattr(dask_workers, "begin_chunks", lambda *_: False)
    made, _ = place.done(client=client)
    np.testing.assert_array_equal(made, expected)


def fail_on(address, monkeypatch, module, name, error=KernelError):
    """Let a function fail on one of the workers; return a list of its calls there."""
    plain, failed = getattr(module, name), []

    def failing(*given, **options):
        if address in ("all", distributed.get_worker().address):
            failed.append(given)
            raise error("the device is broken.")
        return plain(*given, **options)

    monkeypatch.setattr(module, name, failing)
    return failed


def test_a_worker_whose_device_fails_is_avoided(place, client, one, monkeypatch):
    expected, _ = place.done(name="plain")
    failed = fail_on(one, monkeypatch, dask_workers, "filter_part")
    made, record = place.done(client=client)
    np.testing.assert_array_equal(made, expected)
    assert failed and "the device is broken" in " ".join(record.notes)
    # Where all fail, that is said.
    fail_on("all", monkeypatch, dask_workers, "filter_part")
    assert "the device is broken" in str(place.failure(name="again", client=client).error)


def test_a_worker_that_is_late_writes_nothing(tmp_path, client, cluster, one, monkeypatch):
    place, plain = written(tmp_path, planes=3), dask_workers.filter_part
    late, sent, cancel = [], threading.Event(), threading.Event()

    def filter_part(*given):
        if distributed.get_worker().address == one and not late:
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
    while any(worker.state.executing_count > (k == 0) for k, worker in cluster.workers.items()):
        time.sleep(0.05)
    before = files()
    sent.set()
    while any(worker.state.executing_count for worker in cluster.workers.values()):
        time.sleep(0.05)
    assert late and files() == before


@pytest.fixture
def several(tmp_path, limits):
    """Return a folder of small files, one of them damaged, and what becomes of the others."""
    limits(streamed_bytes=20_000)
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
    met, plain, whole = threading.Barrier(2, timeout=60), batch.denoise_file, []

    def denoise_file(path, *given, **options):
        if given[2].client is None:
            whole.append(path.name)
            if len(whole) <= 2:
                met.wait()
        return plain(path, *given, **options)

    monkeypatch.setattr(batch, "denoise_file", denoise_file)
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


def test_threads_of_a_worker_open_a_file_once(place, monkeypatch):
    """What one of them had opened was closed when the other had opened it, too."""
    plain, opened, second = dask_workers.formats.open_stack, [], threading.Event()

    def open_stack(*given, **options):
        opened.append(given)
        if len(opened) == 1:
            assert second.wait(60)
            time.sleep(0.1)
        return plain(*given, **options)

    def read():
        if opened:
            second.set()
        return np.asarray(where.source()[:])

    monkeypatch.setattr(dask_workers.formats, "open_stack", open_stack)
    where = dask_workers.Place("run", str(place.input), False)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(read)
        while not opened:
            time.sleep(0.001)
        both = [pool.submit(read), first]
        np.testing.assert_array_equal(both[0].result(), both[1].result())
    assert len(opened) == 1


def test_a_small_file_is_tried_on_another_worker(several, client, one, monkeypatch):
    folder, _ = several
    failed = fail_on(one, monkeypatch, batch, "denoise_file")
    options = {"output": folder.parent / "out", "client": client}
    inputs = [folder / f"{number}.tif" for number in range(4)]
    report = gd.run_batch(inputs, PLAIN, 20.0, **options)
    assert failed and len(report.done) == 4
    fail_on("all", monkeypatch, batch, "denoise_file")
    report = gd.run_batch(inputs, PLAIN, 20.0, **options, overwrite=True, stop_on_error=True)
    assert len(report.files) == 1 and "the device is broken" in str(report.failed[0].error)
    cancel = threading.Event()
    cancel.set()
    assert gd.run_batch(inputs, PLAIN, 20.0, **options, cancel=cancel, overwrite=True).cancelled
    fail_on("all", monkeypatch, batch, "own_device", NoDeviceError)
    with pytest.raises(NoDeviceError, match="the device is broken"):
        gd.run_batch(inputs, PLAIN, 20.0, **options, overwrite=True)


@pytest.mark.parametrize(
    ("when", "begun"),
    [({"_WORTH": -1.0}, ["0.tif", "1.tif", "5.tif"]), ({"_ALONE": -1.0}, ["5.tif"]), ({}, None)],
)
def test_workers_are_started_when_they_shorten_a_batch(
    several, client, device, monkeypatch, tmp_path, when, begun
):
    """They then do all but the last file, which is large: it is filtered by all."""
    folder, expected = several
    here, plain = [], batch.denoise_file

    def denoise_file(path, *given, **options):
        if threading.current_thread() is threading.main_thread():
            here.append(path.name)
        return plain(path, *given, **options)

    monkeypatch.setattr(batch, "denoise_file", denoise_file)
    monkeypatch.setattr(NewWorkers, "started", lambda _: contextlib.nullcontext(client))
    for name, value in when.items():
        monkeypatch.setattr(dask_workers, name, value)
    workers = NewWorkers(2, device, str)
    run = Run(PLAIN, 20.0, device=device)
    report = denoise_files(Batch.of(folder, tmp_path / "made", run, workers=workers))
    assert len(report.done) == 6 and len(report.failed) == 1
    for file in report.done:
        np.testing.assert_array_equal(gd.read(file.output).data, expected[file.input.name])
    assert here == (begun or sorted(each.name for each in folder.iterdir()))
    assert ("No workers were started: they would have saved" in report.summary) == (not begun)


def test_a_worker_that_joins_during_the_run_does_what_is_left(place):
    """Nothing has to be told to it: here the only one that was there leaves, too."""
    expected, _ = place.done(name="plain")
    with distributed.LocalCluster(n_workers=1, **IN_THREADS) as growing:

        def replaced(state):
            if state.done == 5 and len(growing.workers) == 1:
                first = growing.workers[0].address
                growing.scale(2)
                client.wait_for_workers(2, timeout=60)
                client.retire_workers([first])

        with distributed.Client(growing, set_as_default=False) as client:
            made, record = place.done(client=client, progress=replaced)
    np.testing.assert_array_equal(made, expected)
    assert record.device.startswith("2 x ")


def test_an_error_of_the_input_is_raised_at_once(tmp_path, client, monkeypatch):
    image = noisy(6, 50, 44)
    image[3, 20, 20] = np.nan
    place = Place(tmp_path, "zarr").write(image, "TYX")
    error = place.failure(client=client).error
    assert isinstance(error, NonFiniteError) and "nonfinite" in str(error)
    # A part in flight may lie in a hidden folder.
    assert [each.name for each in tmp_path.glob("[!.]*")] == ["in.ome.zarr"]
    monkeypatch.setattr(dask_workers, "package_version", lambda: "0.0.1")
    with pytest.raises(ClusterError, match="install version"):
        place.done(client=client, nonfinite="keep")


def test_one_device_goes_on_with_what_workers_began(place, client, monkeypatch):
    cancel = threading.Event()

    def stop(state):
        if state.done == 5:
            cancel.set()

    assert place.run(client=client, progress=stop, cancel=cancel)[0].cancelled
    monkeypatch.setattr(by_parts, "filter_parts", counted := Counted(by_parts.filter_parts))
    place.resumed()
    assert 0 < counted.parts < 36
    place.check_as_uninterrupted()


def test_workers_write_to_an_address(client, memory):
    place = written("memory://lab", kind="address")
    expected, _ = place.done(name="plain")
    made, _ = place.done(client=client)
    np.testing.assert_array_equal(made, expected)
    names = sorted(each.rpartition("/")[2] for each in memory.ls("/lab/out.ome.zarr", False))
    assert names == ["0", "1", "zarr.json"]


class Counted:
    """A function that filters parts, and how many it was given."""

    def __init__(self, plain):
        self._plain = plain

    def __call__(self, devices, work, *given):
        self.parts = work.total
        return self._plain(devices, work, *given)


@pytest.mark.parametrize(
    ("found", "words"),
    [("0.0.1", "version 0.0.1 of napari-gpu-denoise"), (ImportError(), "no napari-gpu-denoise")],
)
def test_a_worker_with_another_version_or_none_is_named(place, client, monkeypatch, found, words):
    """Without the package it was ended by its first task, and the run waited for others."""
    monkeypatch.setattr(client, "run", lambda *_, **__: {"one": package_version(), "two": found})
    with pytest.raises(ClusterError, match=f"worker two has {words}: install version .* there"):
        place.done(client=client)


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (CancelledError(), ClusterError, "scheduler was lost"),
        (distributed.comm.CommClosedError("in <TCP>"), ClusterError, "scheduler was lost"),
        (distributed.KilledWorker("part", None, 3), ClusterError, "memory"),
        (FileError("it is gone."), FileError, "gone"),
    ],
    ids=["cancelled", "closed", "killed", "ours"],
)
def test_what_dask_raises_is_told_in_words(error, kind, words):
    with pytest.raises(kind, match=words):
        dask_workers._outcome(SimpleNamespace(status="error"), (type(error), error, None))


@pytest.mark.parametrize("method", ["run", "nthreads", "submit", "cancel"])
def test_a_scheduler_that_is_lost_has_a_name(tmp_path, client, monkeypatch, method):
    def lost(*_, **__):
        raise TimeoutError

    place = written(tmp_path, kind="tif")
    with monkeypatch.context() as patched:
        patched.setattr(client, method, lost)
        if method == "cancel":  # when all is done
            assert place.done(client=client)
            return
        with pytest.raises(ClusterError, match="scheduler was lost: start it again"):
            place.done(client=client)


def test_tasks_that_are_cancelled_with_the_scheduler_are_no_results(place, client):
    def cancel(state):
        if state.done == 5:
            client.cancel([distributed.Future(key, client) for key in list(client.futures)])

    assert "scheduler was lost" in str(place.failure(client=client, progress=cancel).error)


def test_a_scheduler_without_workers_is_named():
    options = {"n_workers": 0, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**options, protocol="tcp") as cluster:
        running = connected(cluster.scheduler_address, seconds=3)
        with pytest.raises(ClusterError, match="has no workers: start some"), running:
            pass


def test_without_the_package_the_command_line_says_what_to_install(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "distributed", None)
    given = ["nl-means", "in.tif", "-o", str(tmp_path), "--workers"]
    assert main([*given, "2"]) == 9
    assert "pip install distributed" in capsys.readouterr().err


def test_a_worker_that_is_killed_costs_its_parts_only(tmp_path):
    import dask.array as da

    place, killed = written(tmp_path), []
    expected, _ = place.done(name="plain")
    with NewWorkers(2, None, str).started() as client:
        before = client.run(os.getpid)
        assert len(before) == 2 and os.getpid() not in before.values()
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
        # The same of a dask array.
        chunks = da.from_array(gd.read(place.input).data, chunks=(1, 50, 22))
        future = client.compute(gd.nl_means(chunks, 20.0, settings=PLAIN, axes="TYX"))
        np.testing.assert_array_equal(future.result(), expected)


@pytest.fixture
def deserted(client, monkeypatch):
    """Return a client whose workers are gone, to the eye, after some tasks, and how many."""
    submit, nthreads, left = client.submit, client.nthreads, [3]

    def refused(*given, **options):
        left[0] -= 1
        if left[0] < 0:
            options |= {"workers": ["tcp://127.0.0.1:9"], "allow_other_workers": False}
        return submit(*given, **options)

    monkeypatch.setattr(client, "submit", refused)
    monkeypatch.setattr(client, "nthreads", lambda: {} if left[0] < 0 else nthreads())
    client.left = left
    return client


@pytest.mark.parametrize("left", [0, 1, 3])
def test_a_run_without_workers_is_stopped_at_once(place, deserted, left):
    """Ctrl-C was not seen, as the progress stayed the same."""
    deserted.left[:] = [left]
    cancel = threading.Event()
    timer = threading.Timer(0.5, cancel.set)
    timer.start()
    assert place.run(client=deserted, cancel=cancel)[0].cancelled


def test_a_run_without_workers_says_so_and_ends(place, deserted, monkeypatch, caplog):
    monkeypatch.setattr(dask_workers, "_ALONE_SAID", 0.02)
    monkeypatch.setattr(dask_workers, "_ALONE_MAX", 0.3)
    with pytest.raises(ClusterError, match=r"no dask worker for 0\.3 s: start some"):
        place.done(client=deserted)
    told = [each.getMessage() for each in caplog.records if each.name == dask_workers.__name__]
    assert [each[:25] for each in told] == ["There is no dask worker: "]


@pytest.mark.parametrize(
    ("address", "why"),
    [
        *((each, "unknown address scheme") for each in ("foo://bar:1", "http://x:1")),
        *((each, "missing port number") for each in ("", "tcp://", "tcp://login1")),
        ("tls://127.0.0.1:9", "check your TLS configuration"),
        ("tcp://127.0.0.1:9", "127.0.0.1:9 after"),
    ],
)
def test_what_is_no_address_of_a_scheduler_is_named(address, why):
    with (
        pytest.raises(ClusterError, match=f"No dask scheduler answers at {address} \\(.*{why}"),
        connected(address, seconds=0.2),
    ):
        pass


def test_a_command_that_reaches_no_scheduler_ends(tmp_path):
    """Python waited, in the end, for a client that had failed."""
    words = ("nl-means", "a.tif", "-o", tmp_path, "--scheduler", "tls://127.0.0.1:9")
    command = [sys.executable, "-m", "napari_gpu_denoise", *words]
    assert subprocess.run(command, capture_output=True, timeout=120).returncode == 9


def test_what_connecting_to_dask_raises(monkeypatch):
    """The dashboard is for this machine only."""

    def cluster(host, dashboard_address, **_):
        assert host == "127.0.0.1"
        raise OSError(dashboard_address)

    monkeypatch.setattr(distributed, "LocalCluster", cluster)
    with (
        pytest.raises(ClusterError, match=r"127\.0\.0\.1:8787"),
        NewWorkers(1, None, str).started(),
    ):
        pass
