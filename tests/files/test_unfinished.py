"""Results that were interrupted and are gone on with: equal to the bit, or refused in words."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import tifffile

import napari_gpu_denoise as gd
from napari_gpu_denoise.cli.failures import on_command_line
from napari_gpu_denoise.errors import OutputError
from napari_gpu_denoise.files import one_file, resuming
from napari_gpu_denoise.files.resuming import digest_of
from napari_gpu_denoise.run import by_parts, job
from napari_gpu_denoise.run import part as parts_of_images
from scenes import noisy, small
from zarr_stores import write_store

VIDEO = small(gd.VBM3D, frames_before=2, frames_after=1)
PLAIN = small(gd.NLMeans)
needs_zarr = pytest.mark.skipif(find_spec("zarr") is None, reason="zarr is not installed")


@pytest.fixture(autouse=True)
def in_parts(monkeypatch):
    """Take every file for a large one, of small parts, and note each part at once."""
    monkeypatch.setattr(one_file, "STREAMED_BYTES", 0)
    monkeypatch.setattr(parts_of_images, "PART_BYTES", 1)
    monkeypatch.setattr(parts_of_images, "_FRAMES_PER_MARGIN", 1)
    monkeypatch.setattr(resuming, "_SECONDS", 0)
    monkeypatch.setattr(resuming, "_SHARE", float("inf"))


@pytest.fixture
def prepared(monkeypatch):
    """Tell how often noise was measured, or another thing prepared for a whole image."""
    seen = []
    plain = job.resolve_noise

    def counted(*given):
        seen.append(given)
        return plain(*given)

    monkeypatch.setattr(job, "resolve_noise", counted)
    return seen


def written(folder, image, axes, kind="tif"):
    if kind == "tif":
        path = folder / "in.tif"
        tifffile.imwrite(path, image, metadata={"axes": axes})
        return path
    chunks = (*(1,) * (image.ndim - 2), 24, 24)
    return write_store(folder / "in.ome.zarr", image, axes, chunks=chunks)


def denoise(path, settings=PLAIN, sigma=20.0, *, stop_at=None, name="out", **options):
    """Run a batch of one file; with `stop_at`, cancel it when so many parts are done.

    Return the report, the target, and the numbers of the parts that were written.
    """
    cancel, wrote = threading.Event(), []
    plain = resuming.ResumeLedger.wrote

    def counted(self, number, *given):
        if cancel.is_set():
            time.sleep(0.05)  # for the run to notice, while the next part is computed
        plain(self, number, *given)
        wrote.append(number)
        if len(wrote) == stop_at:
            cancel.set()

    target = path.with_name(name + "".join(path.suffixes))
    options = {"output": target, "cancel": cancel, **options}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(resuming.ResumeLedger, "wrote", counted)
        report = gd.run_batch(path, settings, sigma, **options)
    return report, target, wrote


def resumed(path, *given, **options):
    report, target, wrote = denoise(path, *given, resume=True, **options)
    if report.failed:
        raise report.failed[0].error
    return report.done[0].record, gd.read(target).data, wrote


def uninterrupted(path, *given, **options):
    report, target, _ = denoise(path, *given, name="whole", **options)
    return report.done[0].record, gd.read(target).data


def hidden(path):
    return [each for each in path.parent.iterdir() if each.name.startswith(".gpu-denoise-")]


def assert_resumed_as_uninterrupted(path, settings, sigma, **options):
    report, target, first = denoise(path, settings, sigma, stop_at=2, **options)
    assert report.cancelled and not target.exists()
    (note,) = report.notes
    assert str(hidden(path)[0]) in note
    record, data, rest = resumed(path, settings, sigma, **options)
    assert rest and not set(first) & set(rest)
    expected, whole = uninterrupted(path, settings, sigma, **options)
    np.testing.assert_array_equal(data, whole)
    assert data.dtype == whole.dtype
    assert replace(record, date="") == replace(expected, date="")
    assert not hidden(path)


CASES = {
    "video": ("TYX", (50, 24, 26), "uint16", VIDEO),
    "video of channels, float": ("TCYX", (30, 2, 24, 26), "float32", VIDEO),
    "frames": ("TYX", (6, 33, 37), "uint8", PLAIN),
    "planes": ("ZYX", (6, 33, 37), "float64", PLAIN),
    "wide range": ("TYX", (50, 24, 26), "int32", VIDEO),
}


@pytest.mark.parametrize("kind", ["tif", pytest.param("zarr", marks=needs_zarr)])
@pytest.mark.parametrize("case", CASES)
def test_a_cancelled_run_is_resumed(tmp_path, prepared, case, kind):
    axes, shape, dtype, settings = CASES[case]
    path = written(tmp_path, noisy(*shape, dtype=dtype), axes, kind)
    sigma = None if case != "wide range" else 20.0
    assert_resumed_as_uninterrupted(path, settings, sigma)


def test_a_series_with_a_sigma_for_each_frame_is_resumed(tmp_path):
    path = written(tmp_path, noisy(50, 24, 26, dtype="uint16"), "TYX")
    assert_resumed_as_uninterrupted(path, PLAIN, np.linspace(5, 40, 50))


def test_a_result_of_another_map_of_equal_extremes_is_another(tmp_path):
    path = written(tmp_path, noisy(33, 37, dtype="uint8"), "YX")
    first, other = (np.where(np.arange(33)[:, None] < rows, 10.0, 30.0) for rows in (5, 20))
    first, other = (np.broadcast_to(one, (33, 37)) for one in (first, other))
    assert denoise(path, PLAIN, first)[0].done
    assert denoise(path, PLAIN, first, resume=True)[0].skipped
    (failed,) = denoise(path, PLAIN, other, resume=True)[0].failed
    assert "another noise" in str(failed.error)


@pytest.mark.parametrize("settings", [VIDEO, PLAIN], ids=["video", "frames"])
def test_a_run_on_two_devices_is_resumed(tmp_path, monkeypatch, device, settings):
    monkeypatch.setattr(parts_of_images, "PART_BYTES", 1)
    monkeypatch.setattr(parts_of_images, "_FRAMES_PER_MARGIN", 1)
    path = written(tmp_path, noisy(60, 24, 26, dtype="uint16"), "TYX")
    pair = device, replace(device, index=device.index + 100)
    assert_resumed_as_uninterrupted(path, settings, 20.0, device=pair)


class Own(gd.NLMeans):
    """A filter of the user's own, of which nothing can be kept."""


def test_a_filter_of_the_users_own_runs_and_leaves_nothing(tmp_path):
    path = written(tmp_path, noisy(6, 33, 37, dtype="uint16"), "ZYX")
    own = Own(**vars(PLAIN))
    report, _, _ = denoise(path, own, stop_at=2)
    assert report.cancelled and not report.notes and not hidden(path)
    np.testing.assert_array_equal(resumed(path, own)[1], uninterrupted(path)[1])


def test_noise_is_measured_once(tmp_path, prepared):
    path = written(tmp_path, noisy(6, 33, 37, dtype="uint16"), "ZYX")
    denoise(path, sigma=None, stop_at=3)
    assert len(prepared) == 1
    resumed(path, sigma=None)
    assert len(prepared) == 1


@pytest.mark.parametrize("noise", ["correlated", "poisson-gaussian"])
def test_models_of_noise_are_kept(tmp_path, noise):
    path = written(tmp_path, noisy(6, 33, 37, dtype="uint16"), "ZYX")
    assert_resumed_as_uninterrupted(path, small(gd.BM3D), None, noise=noise)


def test_a_correction_is_kept(tmp_path):
    image = noisy(6, 33, 37, dtype="uint16")
    image[:, ::4] += 60
    path = written(tmp_path, image, "ZYX")
    assert_resumed_as_uninterrupted(path, PLAIN, 20.0, correct="rows")


@pytest.mark.parametrize("kind", ["tif", pytest.param("zarr", marks=needs_zarr)])
def test_a_run_that_fails_in_the_middle_of_a_part_is_resumed(tmp_path, monkeypatch, kind):
    path = written(tmp_path, noisy(6, 33, 37, dtype="uint16"), "ZYX", kind)
    plain, calls = by_parts.Block.of, itertools.count()

    def failing(*given):
        if next(calls) == 4:
            raise OSError("the network is gone")
        return plain(*given)

    with monkeypatch.context() as patched:
        patched.setattr(by_parts.Block, "of", failing)
        report, target, _ = denoise(path)
    (file,) = report.failed
    assert "the network is gone" in str(file.error) and "are kept" in file.notes[0]
    assert not target.exists()
    _, data, _ = resumed(path)
    np.testing.assert_array_equal(data, uninterrupted(path)[1])


@pytest.mark.parametrize("kind", ["tif", pytest.param("zarr", marks=needs_zarr)])
def test_a_killed_run_is_resumed(tmp_path, kind):
    """Killed in earnest when some parts are written; the rest is done by this process."""
    path = written(tmp_path, noisy(8, 33, 37, dtype="uint16"), "ZYX", kind)
    script = (
        "import os, signal, sys, pathlib\n"
        "import napari_gpu_denoise as gd\n"
        "from napari_gpu_denoise.files import one_file, resuming\n"
        "from napari_gpu_denoise.run import part as parts_of_images\n"
        "from scenes import small\n"
        "one_file.STREAMED_BYTES, parts_of_images.PART_BYTES, resuming._SECONDS = 0, 1, 0\n"
        "resuming._SHARE = float('inf')\n"
        "def progress(step):\n"
        "    if step.done == 4:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "gd.run_batch(sys.argv[1], small(gd.NLMeans), 20.0, output=sys.argv[2], progress=progress)"
    )
    if not hasattr(os, "kill") or os.name == "nt":
        pytest.skip("no SIGKILL")
    target = path.with_name("out" + "".join(path.suffixes))
    command = [sys.executable, "-c", script, str(path), str(target)]
    known = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run(command, env=known, check=False)
    assert ended.returncode == -9 and not target.exists()
    assert len(hidden(path)) == 1
    _, data, wrote = resumed(path)
    if resuming.boot_id():
        assert min(wrote) >= 3
    np.testing.assert_array_equal(data, uninterrupted(path)[1])
    assert not hidden(path)


def test_after_a_power_cut_only_what_reached_the_disk_counts(tmp_path, monkeypatch):
    path = written(tmp_path, noisy(6, 33, 37, dtype="uint16"), "ZYX")
    monkeypatch.setattr(resuming.ResumeLedger, "__exit__", lambda self, *error: self.notes.free())
    denoise(path, stop_at=3)
    monkeypatch.undo()
    monkeypatch.setattr(one_file, "STREAMED_BYTES", 0)
    monkeypatch.setattr(parts_of_images, "PART_BYTES", 1)
    monkeypatch.setattr(resuming, "boot_id", lambda: "another")
    _, data, wrote = resumed(path)
    assert wrote[0] == 0
    np.testing.assert_array_equal(data, uninterrupted(path)[1])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"settings": small(gd.NLMeans, strength=0.3)}, "filter or setting"),
        ({"sigma": 21.0}, "sigma"),
        ({"noise": "correlated", "sigma": None}, "sigma and noise"),
        ({"correct": "rows"}, "correction"),
        ({"dtype": "float32"}, "type of the result"),
    ],
    ids=["settings", "sigma", "noise", "correct", "dtype"],
)
def test_other_settings_are_refused(tmp_path, changed, said):
    path = written(tmp_path, noisy(6, 33, 37, dtype="uint16"), "ZYX")
    denoise(path, stop_at=3)
    with pytest.raises(
        OutputError, match=f"was started with a different {said}; the partial result was kept: use"
    ) as told:
        resumed(path, **changed)
    assert told.value.code == "unfinished"
    assert hidden(path)
    assert min(resumed(path)[2]) >= 3


@pytest.mark.parametrize("kind", ["tif", pytest.param("zarr", marks=needs_zarr)])
@pytest.mark.parametrize("change", ["pixel", "size"])
def test_another_input_is_refused(tmp_path, kind, change):
    image = noisy(6, 33, 37, dtype="uint16")
    path = written(tmp_path, image, "ZYX", kind)
    denoise(path, stop_at=3)
    if change == "pixel":
        image[0, 0, 0] += 1
    written(tmp_path, image if change == "pixel" else image[:5], "ZYX", kind)
    with pytest.raises(OutputError, match="a different input"):
        resumed(path)
    # Without resume it begins anew.
    _, target, wrote = denoise(path)
    assert wrote[0] == 0 and not hidden(path)
    np.testing.assert_array_equal(gd.read(target).data, uninterrupted(path)[1])


def with_digest(held):
    return json.dumps([digest_of(held), held]).encode()


def ledger_with(**changed):
    """Return how to change what a ledger says, as if that had been written."""
    return lambda text: with_digest(json.dumps(json.loads(json.loads(text)[1]) | changed))


def job_with(old, new):
    """Return how to change what a job says, as if that had been written."""

    def changed(text):
        job = json.loads(text)[1]
        assert old in job
        return with_digest(job.replace(old, new, 1))

    return changed


ANY = {
    "cut": lambda text: text[:-20],
    "empty": lambda text: b"",
    "random bytes": lambda text: bytes(range(256)),
    "another value": lambda text: b"[5]",
    "nested": lambda text: b"[" * 100_000,
    "changed": lambda text: text.replace(b"0", b"1"),
}
DAMAGE = {f"{what} {name}": (name, how) for what, how in ANY.items() for name in ("job", "parts")}
DAMAGE |= {f"{what} ledger": ("ledger", how) for what, how in ANY.items()}
TAMPERED = "[5]", '{"tuple": [0, 1, 1]}', '{"tuple": []}', '{"dtype": "<f4"}', '"x"'
DAMAGE |= {
    f"{held} for {name}": (name, lambda text, held=held: with_digest(held))
    for name in ("job", "parts")
    for held in TAMPERED
}
DAMAGE |= {
    "long ledger": ("ledger", lambda text: text + b" " * (1 << 16)),
    "ledger with a range": ("ledger", ledger_with(done=[[0, 10**9]])),
    "ledger without numbers": ("ledger", ledger_with(done=[["a", 0, 0, 0]])),
    "ledger without parts": ("ledger", ledger_with(done=5)),
    "lines of random bytes": ("written", lambda text: bytes(range(256))),
    "a job with models that are none": (
        "job",
        job_with('"models": {"tuple": []}', '"models": {"tuple": [5]}'),
    ),
    "a job of a type that is none": ("job", job_with('{"dtype": "<u2"}', '"rician"')),
    "a job without an end": ("job", lambda text: b'["' + b"0" * (1 << 17)),
    "many lines": ("written", lambda text: text + b"0 0 0 0\n" * (1 << 14)),
}


@pytest.mark.parametrize(("name", "damage"), DAMAGE.values(), ids=list(DAMAGE))
def test_damaged_notes_are_refused(tmp_path, monkeypatch, name, damage):
    monkeypatch.setattr(resuming, "_MOST_BYTES", 1 << 16)
    monkeypatch.setattr(resuming, "_MOST_BYTES_MEASURED", 1 << 16)
    path = written(tmp_path, noisy(6, 33, 37, dtype="uint16"), "ZYX")
    denoise(path, stop_at=3)
    file = hidden(path)[0] / (name if name == "written" else f"{name}.json")
    file.write_bytes(damage(file.read_bytes() if file.exists() else b""))
    (failed,) = denoise(path, resume=True)[0].failed
    assert "is corrupt: leave out resume=True" in str(failed.error)
    assert failed.error.code == "unfinished-damaged" and not failed.notes
    report, _, _ = denoise(path)
    assert len(report.done) == 1 and not hidden(path)


def test_what_is_kept_is_said_in_the_words_of_the_command_line(tmp_path):
    path = written(tmp_path, noisy(6, 33, 37, dtype="uint16"), "ZYX")
    (note,) = denoise(path, stop_at=3)[0].notes
    assert note.endswith("repeat the run with resume=True")
    assert on_command_line(note).endswith("repeat the command with --resume")


def test_a_second_run_is_refused(tmp_path):
    path = written(tmp_path, noisy(6, 33, 37, dtype="uint16"), "ZYX")
    seen = []

    def again(step):
        if step.total and not seen:
            seen.append(denoise(path)[0])

    report, target, _ = denoise(path, progress=again)
    assert "Another run is writing" in str(seen[0].failed[0].error)
    assert len(report.done) == 1 and target.exists() and not hidden(path)


@pytest.mark.skipif(os.name == "nt", reason="what is open cannot be removed")
def test_a_lock_that_is_removed_by_a_run_that_ends_keeps_nobody_out(tmp_path, monkeypatch):
    """The second run opens the lock just before the first removes it: a third is kept out."""
    first, second, third = (resuming.notes_on(tmp_path / "out.tif") for _ in range(3))
    assert first.acquire()
    plain = resuming.locked

    def after_the_first(handle):
        monkeypatch.setattr(resuming, "locked", plain)
        first.close()
        return plain(handle)

    monkeypatch.setattr(resuming, "locked", after_the_first)
    assert second.acquire()
    assert second.holds() and not third.acquire()
    third.free()
    second.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name == "nt", reason="what is open cannot be renamed")
@pytest.mark.parametrize("kind", ["tif", pytest.param("zarr", marks=needs_zarr)])
def test_an_unfinished_result_that_is_moved_away_is_no_success(tmp_path, kind):
    path = written(tmp_path, noisy(6, 33, 37, dtype="uint16"), "ZYX", kind)
    moved = []

    def move(step):
        if step.done == 3 and not moved:
            moved.append(hidden(path)[0].rename(tmp_path / "moved"))

    report, target, _ = denoise(path, progress=move)
    assert "was removed or moved during the run" in str(report.failed[0].error)
    assert not target.exists() and moved[0].exists()
    # What is left over is no obstacle.
    assert denoise(path)[0].done


@pytest.mark.parametrize("kind", ["tif", pytest.param("zarr", marks=needs_zarr)])
def test_an_input_that_changes_during_the_run_is_refused(tmp_path, kind):
    path = written(tmp_path, noisy(6, 33, 37, dtype="uint16"), "ZYX", kind)
    file = path if kind == "tif" else path / "0" / "c" / "0" / "0" / "0"
    seen = []

    def change(step):
        if step.done and not seen:
            seen.append(os.utime(file, ns=(1, 1)))

    report, target, _ = denoise(path, progress=change)
    assert "was changed during the run" in str(report.failed[0].error)
    assert not target.exists()
    with pytest.raises(OutputError, match="a different input"):
        resumed(path)


def test_what_is_left_of_a_complete_result_is_removed(tmp_path):
    path = written(tmp_path, noisy(6, 33, 37, dtype="uint16"), "ZYX")
    _, target, _ = denoise(path)
    resuming.notes_on(target).folder.mkdir()
    report, _, _ = denoise(path, resume=True)
    assert report.skipped and not hidden(path)


@pytest.mark.parametrize(
    "changed",
    [
        {"sigma": 21.0},
        {"sigma": None},
        {"sigma": None, "noise": gd.PoissonGaussian(1.0, 20.0)},
        {"sigma": np.full((33, 37), 20.0) + np.eye(33, 37)},
        {"correct": "rows"},
        {"sigma_factor": 1.5},
    ],
    ids=["sigma", "measured", "model", "map", "correct", "strength"],
)
def test_complete_results_of_other_noise_are_refused(tmp_path, changed):
    path = written(tmp_path, noisy(2, 33, 37, dtype="uint16"), "ZYX")
    for first, second in (({}, changed), (changed, {})):
        denoise(path, **first, overwrite=True)
        same, _, _ = denoise(path, **first, resume=True)
        assert same.skipped and not same.failed
        with pytest.raises(OutputError, match="was made with"):
            resumed(path, **second)


@pytest.mark.parametrize("damage", ["lost", "cut", "emptied"])
@pytest.mark.parametrize(
    ("axes", "settings", "kind", "name"),
    [
        ("ZYX", PLAIN, "tif", "pixels"),
        ("TYX", VIDEO, "tif", "pixels"),
        pytest.param("ZYX", PLAIN, "zarr", "image/0/c/0/0/1", marks=needs_zarr),
        pytest.param("ZYX", PLAIN, "zarr", "image/0/zarr.json", marks=needs_zarr),
    ],
    ids=["parts", "frames", "chunk", "metadata"],
)
def test_finished_parts_that_are_lost_are_done_again(tmp_path, axes, settings, kind, name, damage):
    path = written(tmp_path, noisy(12, 33, 37, dtype="uint16"), axes, kind)
    denoise(path, settings, stop_at=3)
    file = hidden(path)[0] / name
    if damage == "lost":
        file.unlink()
    elif damage == "cut":
        os.truncate(file, file.stat().st_size // 7)
    else:
        file.write_bytes(b"")
    record, data, _ = resumed(path, settings)
    expected, whole = uninterrupted(path, settings)
    np.testing.assert_array_equal(data, whole)
    assert replace(record, date="") == replace(expected, date="")


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
@pytest.mark.parametrize("inside", ["", "lock", "pixels", "image", "ledger.new", "image/0/c"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_prepared_folder_with_links_or_pipes_is_refused(tmp_path, inside, kind):
    path = written(tmp_path, noisy(2, 33, 37, dtype="uint16"), "ZYX")
    bystander = tmp_path / "bystander"
    bystander.mkdir()
    (bystander / "file").write_text("kept")
    link = resuming.notes_on(path.with_name("out.tif")).folder / inside
    link.parent.mkdir(parents=True, exist_ok=True)
    if kind == "pipe":
        os.mkfifo(link)
    else:
        link.symlink_to(bystander / "file" if inside in ("pixels", "lock") else bystander)
    for resume in (False, True):
        (file,) = denoise(path, resume=resume)[0].failed
        assert "is, or holds, a link" in str(file.error) and not file.notes
        assert [each.name for each in bystander.iterdir()] == ["file"]
        assert (bystander / "file").read_text() == "kept"


MAP = np.full((33, 37), 20.0)
TOLD = "given as a map from 20 to 20"


@pytest.mark.parametrize(
    ("record", "sigma", "noise"),
    [
        ({"sigma_source": "given", "sigma": 20}, 20.0, None),
        ({"sigma_source": "given", "sigma": [20.0], "noise": [5]}, 20.0, None),
        ({"sigma_source": TOLD, "sigma": 5}, MAP, None),
        ({"sigma_source": TOLD, "sigma": ["20"]}, MAP, None),
        ({"sigma_source": "estimated", "noise": [5]}, None, "rician"),
        ({"sigma_source": "estimated", "noise": {"model": "rician"}}, None, "rician"),
        ({"sigma_source": "estimated", "noise": [{"model": ["rician"]}]}, None, "rician"),
        ({"sigma_source": "given", "noise": [[]]}, None, gd.Gaussian(20.0)),
    ],
)
def test_a_record_that_a_stranger_has_changed_is_of_no_such_result(record, sigma, noise):
    assert not one_file.record_matches_noise(record, sigma, noise)


@needs_zarr
def test_a_result_of_which_chunks_are_removed_during_the_run_is_refused(tmp_path):
    path = written(tmp_path, noisy(12, 33, 37, dtype="uint16"), "ZYX", "zarr")
    seen = []

    def remove(step):
        if step.unit == "part" and step.done > 3 and not seen:
            seen.append((hidden(path)[0] / "image/0/c/0/0/0").unlink())

    report, target, _ = denoise(path, progress=remove)
    assert "removed or changed during the run" in str(report.failed[0].error)
    assert not target.exists()
    _, data, wrote = resumed(path)
    assert wrote == [0]
    np.testing.assert_array_equal(data, uninterrupted(path)[1])
