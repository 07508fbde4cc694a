"""Results that were interrupted and are gone on with: equal to the bit, or refused in words."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace

import numpy as np
import pytest

import napari_gpu_denoise as gd
from files.interrupted import PLAIN, SERIES, Place, check_killed
from napari_gpu_denoise.cli.failures import on_command_line
from napari_gpu_denoise.errors import OutputError
from napari_gpu_denoise.files import resuming
from napari_gpu_denoise.run import job
from scenes import noisy, small

pytestmark = pytest.mark.usefixtures("in_parts")
VIDEO = small(gd.VBM3D, frames_before=2, frames_after=1)
KINDS = ("tif", "zarr")
no_windows = pytest.mark.skipif(os.name == "nt", reason="what is open cannot be removed or renamed")


@pytest.fixture(params=KINDS)
def place(request, tmp_path):
    """A place for an image of each kind."""
    if request.param != "tif":
        pytest.importorskip("zarr", reason="zarr is not installed")
    return Place(tmp_path, request.param)


@pytest.fixture
def tif(tmp_path):
    """A place that holds an image of six planes in a file."""
    return Place(tmp_path).write()


CASES = {
    "video": ("TYX", (50, 24, 26), "uint16", VIDEO, {}),
    "video of channels, float": ("TCYX", (30, 2, 24, 26), "float32", VIDEO, {}),
    "frames": ("TYX", (6, 33, 37), "uint8", PLAIN, {}),
    "planes": ("ZYX", (6, 33, 37), "float64", PLAIN, {}),
    "measurements": ("CZYX", (8, 6, 24, 26), "uint16", SERIES, {}),
    "wide range": ("TYX", (50, 24, 26), "int32", VIDEO, {"sigma": 20.0}),
}
OF_NOISE = {
    "a sigma for each frame": {"sigma": np.linspace(5, 40, 6)},
    "correlated": {"noise": "correlated"},
    "photons": {"noise": "poisson-gaussian"},
    "rows": {"sigma": 20.0, "correct": "rows"},
}
CASES |= {
    name: ("TYX" if "frame" in name else "ZYX", (6, 33, 37), "uint16", small(gd.BM3D), given)
    for name, given in OF_NOISE.items()
}
PAIRS = [("tif", case) for case in CASES]
PAIRS += [("zarr", case) for case in ("video of channels, float", "planes", "measurements")]


@pytest.mark.parametrize(("place", "case"), PAIRS, indirect=["place"])
def test_a_cancelled_run_is_resumed(place, monkeypatch, case):
    axes, shape, dtype, settings, given = CASES[case]
    given = {"sigma": None, **given}
    image = noisy(*shape, dtype=dtype)
    if "correct" in given:
        image[:, ::4] += 60
    place.write(image, axes)
    measured, plain = [], job.resolve_noise
    with monkeypatch.context() as patched:
        patched.setattr(job, "resolve_noise", lambda *each: measured.append(1) or plain(*each))
        report, first = place.run(settings, stop_at=2, **given)
        assert report.cancelled and not place.complete and place.unfinished
        (note,) = report.notes
        where = f"in the hidden folder {place.notes}"
        assert note.startswith(f"The finished parts of {place.output} are kept {where}")
        assert note.endswith("repeat the run with resume=True")
        assert on_command_line(note).endswith("repeat the command with --resume")
        rest = place.resumed(settings, **given)
        assert rest and not set(first) & set(rest)
        assert len(measured) == 1 or "T" in axes
    place.check_as_uninterrupted(settings, **given)
    assert "complete" in place.run(settings, resume=True, **given)[0].skipped[0].skipped


@pytest.mark.parametrize("settings", [VIDEO, PLAIN], ids=["video", "frames"])
def test_a_run_on_two_devices_is_resumed(tmp_path, device, settings):
    # So many parts that some are left whenever the devices notice the stop.
    place = Place(tmp_path).write(noisy(240, 24, 26, dtype="uint16"), "TYX")
    pair = device, replace(device, index=device.index + 100)
    place.run(settings, stop_at=2, device=pair)
    assert place.resumed(settings, device=pair)
    place.check_as_uninterrupted(settings, device=pair)


class Own(gd.NLMeans):
    """A filter of the user's own, of which nothing can be kept."""


def test_a_filter_of_the_users_own_runs_and_leaves_nothing(tif):
    own = Own(**vars(PLAIN))
    report, _ = tif.run(own, stop_at=2)
    assert report.cancelled and not report.notes and not tif.unfinished
    tif.resumed(own)
    tif.check_as_uninterrupted(own)


@pytest.mark.parametrize(
    ("place", "settings"), [("zarr", PLAIN), ("tif", SERIES)], indirect=["place"], ids=KINDS[::-1]
)
def test_a_killed_run_is_resumed(place, settings):
    """Killed in earnest when some parts are written; the rest is done by this process."""
    image = noisy(8, 6, 33, 37, dtype="uint16") if settings is SERIES else None
    place.write(image, "CZYX" if settings is SERIES else "ZYX")
    check_killed(place.input, place.output, settings.name)
    assert not place.complete and place.unfinished
    assert not {0, 1, 2} & set(place.resumed(settings))
    place.check_as_uninterrupted(settings)


@pytest.mark.parametrize("tail", [b"", bytes(300), b"0123456789abcdef [5, [0, 0"])
def test_a_list_that_was_cut_counts_as_far_as_it_is_whole(tif, tail):
    """As by a power cut, after which a file may end with zeros, or in the middle of a line."""
    _, first = tif.run(stop_at=3)
    file = tif.notes / "parts"
    file.write_bytes(file.read_bytes()[:-10] + tail)
    assert tif.resumed() == [*range(len(first) - 1, 6)]
    tif.check_as_uninterrupted()
    tif.run(stop_at=2, overwrite=True)
    file.write_bytes(file.read_bytes()[:30] + tail)
    assert tif.resumed(overwrite=True) == [*range(6)]


def test_other_settings_are_refused(tif):
    """Whatever differs: test_same_input.py."""
    tif.run(stop_at=3)
    said = "was started with a different filter or setting; the partial result was kept: use"
    with pytest.raises(OutputError, match=said) as told:
        tif.resumed(small(gd.NLMeans, strength=0.3))
    assert told.value.code == "unfinished"
    assert tif.unfinished
    assert not {0, 1, 2} & set(tif.resumed())


@pytest.mark.parametrize("change", ["pixel", "size"])
def test_another_input_is_refused(place, change):
    image = noisy(6, 33, 37, dtype="uint16")
    place.write(image).run(stop_at=3)
    if change == "pixel":
        image[0, 0, 0] += 1
    place.write(image if change == "pixel" else image[:5])
    with pytest.raises(OutputError, match="a different input"):
        place.resumed()
    # Without resume it begins anew.
    report, wrote = place.run()
    assert report.done and wrote[0] == 0 and not place.unfinished
    whole = gd.denoise(gd.read(place.input).data, PLAIN, 20.0, axes="ZYX").image
    np.testing.assert_array_equal(gd.read(place.output).data, whole)


def with_line(text):
    """Return how to change a list, as if this had been written, too."""
    line = f"{text}\n".encode()
    return lambda lines: lines + resuming._digest(line) + b" " + line


def says(key, value):
    return with_line(json.dumps([key, value]))


TAMPERED = (
    [5],
    {"tuple": [0, 1, 1]},
    {"tuple": []},
    {"dtype": "<f4"},
    "x",
    {"kind": ["os", "system"]},
)
DAMAGE = {f"{name} {value}": says(name, value) for name in ("job", "parts") for value in TAMPERED}
DAMAGE |= {
    "too long": None,
    "a key that is none": says([1], 2),
    "a range": says(0, 10**9),
    "no numbers": says(0, ["a", 0, 0, 0]),
    "nothing wanted": says("wanted", 5),
    "nested": with_line("[" * 100_000),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_tampered_list_is_refused(tif, monkeypatch, damage):
    tif.run(stop_at=3)
    file = tif.notes / "parts"
    with monkeypatch.context() as patched:
        if DAMAGE[damage] is None:
            patched.setattr(resuming, "_MAX_LIST_BYTES", 100)
        else:
            file.write_bytes(DAMAGE[damage](file.read_bytes()))
        failed = tif.failure(resume=True)
    assert "is corrupt: leave out resume=True" in str(failed.error)
    assert failed.error.code == "unfinished-damaged" and not failed.notes
    assert tif.run()[0].done and not tif.unfinished


def test_a_second_run_is_refused(place):
    place.write()
    seen = []

    def again(step):
        if step.total and not seen:
            seen.append(place.failure())

    report, _ = place.run(progress=again)
    assert "Another run is writing" in str(seen[0].error) and not seen[0].notes
    assert report.done and place.complete and not place.unfinished


@no_windows
def test_a_lock_that_is_removed_by_a_run_that_ends_lets_nobody_in(tmp_path, monkeypatch):
    """The second run opens the lock just before the first removes it; a third has another."""
    import fcntl

    first, second = (resuming.ResumeLedger(tmp_path / "out.tif", {}, False) for _ in range(2))
    plain, begun = fcntl.flock, first.__enter__()

    def after_the_first(*given):
        monkeypatch.setattr(fcntl, "flock", plain)
        begun.__exit__(None, None, None)
        return plain(*given)

    monkeypatch.setattr(fcntl, "flock", after_the_first)
    with pytest.raises(OutputError, match="Another run is writing"), second:
        pass
    assert not list(tmp_path.iterdir())


@no_windows
def test_a_file_system_without_locks_is_no_obstacle(tif, monkeypatch):
    import fcntl

    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    assert tif.run(stop_at=3)[0].cancelled and tif.resumed() and not tif.unfinished


@no_windows
def test_an_unfinished_result_that_is_moved_away_is_not_mixed_with_another(place, tmp_path):
    """That of an OME-Zarr is an error; the pixels of a file are open, and complete."""
    place.write()
    moved = tmp_path / "moved"

    def move(step):
        if step.done == 3 and not moved.exists():
            place.notes.rename(moved)
            # By another run, which is left alone; a chunk in flight may have been here first.
            place.notes.mkdir(exist_ok=True)
            (place.notes / "parts").touch()

    if place.kind == "zarr":
        file = place.failure(progress=move)
        assert "was removed or moved during the run" in str(file.error)
        assert not place.complete
    else:
        place.data, place.record = place.done(progress=move)
    # A chunk in flight may lie beside it.
    assert moved.exists() and (place.notes / "parts").read_bytes() == b""
    place.resumed(overwrite=True)
    place.check_as_uninterrupted()


def test_an_input_that_changes_during_the_run_is_refused(place):
    place.write()
    seen = []

    def change(step):
        if step.done and not seen:
            seen.append(step)
            os.utime(place.input / "0/c/0/0/0" if place.kind == "zarr" else place.input, ns=(1, 1))

    file = place.failure(progress=change)
    assert "was changed during the run" in str(file.error) and not file.notes
    assert not place.complete and place.unfinished
    with pytest.raises(OutputError, match="a different input"):
        place.resumed()


DAMAGED = {
    "lost": None,
    "zeros": lambda held: bytes(len(held)),
    "a bit": lambda held: held[:-1] + bytes([held[-1] ^ 4]),
}


@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize(
    ("place", "settings", "name"),
    [
        ("tif", PLAIN, "pixels"),
        ("tif", VIDEO, "pixels"),
        ("zarr", PLAIN, "image/0/c/0/0/1"),
        ("zarr", PLAIN, "image/0/zarr.json"),
    ],
    ids=["parts", "frames", "chunk", "metadata"],
    indirect=["place"],
)
def test_finished_parts_that_are_lost_are_done_again(place, settings, name, damage):
    place.write(noisy(12, 33, 37, dtype="uint16"), "TYX" if settings is VIDEO else "ZYX")
    place.run(settings, stop_at=3)
    file = place.notes / name
    held = file.read_bytes()
    file.unlink()
    if DAMAGED[damage]:
        file.write_bytes(DAMAGED[damage](held))
    place.resumed(settings)
    place.check_as_uninterrupted(settings)


@pytest.mark.parametrize("place", ["zarr"], indirect=True)
@pytest.mark.parametrize("damage", ["lost", "zeros"])
@pytest.mark.parametrize("shards", [False, True])
def test_a_damaged_chunk_of_several_parts_is_no_part_of_a_result(place, device, damage, shards):
    """Also of values that a filter of zarr rounds when they are stored; or the index of a shard."""
    given = {"shards": (8, 24, 26), "chunks": (2, 24, 26)}
    if not shards:
        from numcodecs import Quantize

        given = {"version": "0.4", "filters": [Quantize(0, "<f4")], "chunks": (7, 24, 26)}
    place.write(noisy(40, 24, 26), "TYX", **given)
    options = {"settings": VIDEO, "device": (device, replace(device, index=device.index + 100))}
    assert place.run(**options, stop_at=3)[0].cancelled
    (file, *_) = sorted((place.notes / "image/0").rglob("c/0/0/0" if shards else "*.0.0"))
    held = file.read_bytes()
    file.unlink()
    if DAMAGED[damage]:
        file.write_bytes(DAMAGED[damage](held))
    if damage == "zeros":
        # To advise resume=True would be in vain.
        with pytest.raises(OutputError, match="is corrupt: leave out resume=True"):
            place.resumed(**options)
        return
    place.resumed(**options)
    np.testing.assert_array_equal(place.data, place.done(VIDEO, name="whole")[0])


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
@pytest.mark.parametrize("inside", ["", "lock", "pixels", "image", "parts", "image/0/c"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_prepared_folder_with_links_or_pipes_is_refused(tif, tmp_path, inside, kind):
    bystander = tmp_path / "bystander"
    bystander.mkdir()
    (bystander / "file").write_text("kept")
    link = tif.notes / inside
    link.parent.mkdir(parents=True, exist_ok=True)
    if kind == "pipe":
        os.mkfifo(link)
    else:
        link.symlink_to(bystander / "file" if inside in ("pixels", "lock", "parts") else bystander)
    for resume in (False, True):
        file = tif.failure(resume=resume)
        assert "is, or holds, a link" in str(file.error) and not file.notes
        assert [each.name for each in bystander.iterdir()] == ["file"]
        assert (bystander / "file").read_text() == "kept"


@pytest.mark.parametrize("place", ["zarr"], indirect=True)
def test_a_result_of_which_chunks_are_removed_during_the_run_is_refused(place):
    place.write(noisy(12, 33, 37, dtype="uint16"))
    seen = []

    def remove(step):
        if step.unit == "part" and step.done > 3 and not seen:
            seen.append((place.notes / "image/0/c/0/0/0").unlink())

    assert "removed or changed during the run" in str(place.failure(progress=remove).error)
    assert not place.complete
    assert place.resumed() == [0]
    place.check_as_uninterrupted()
