"""The command line: the same pixels as the function, a sentence and a number for each failure."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile
from numpy.testing import assert_array_equal

import napari_gpu_denoise as gd
from cli.conftest import one_sentence
from files.tiffs import image
from napari_gpu_denoise import errors
from napari_gpu_denoise.cli import commands
from napari_gpu_denoise.cli.failures import EXIT_CODES, exit_code
from napari_gpu_denoise.files import FORMAT_NAMES, one_file, samples
from napari_gpu_denoise.files.batch import BatchProgress
from napari_gpu_denoise.opencl import device as opencl
from napari_gpu_denoise.opencl import device_test
from napari_gpu_denoise.protocol.settings import setting_fields
from napari_gpu_denoise.run.progress import COMPILING, MEASURING
from napari_gpu_denoise.run.request import HostMemory, Run

every_filter = pytest.mark.parametrize("settings", gd.FILTERS, ids=lambda kind: kind.name)


def command_of(settings) -> str:
    return settings.name.replace("_", "-")


@pytest.mark.parametrize("words", ["pri-nlm", "pri_nlm", "assess dct3d"])
def test_a_removed_filter_names_its_successor(here, run, words):
    code, out, err = run(*words.split(), "a.tif")
    assert (code, out) == (2, "")
    assert "was removed: use gpu-denoise bm4d --profile fast, which" in err


def test_a_file_may_be_named_like_a_removed_filter(here, run, device):
    tifffile.imwrite("dct3d", image(1, (40, 44), "uint16"))
    options = ("--sigma", 5, "--device", device.index)
    assert run("nl-means", "dct3d", "-o", "assess", *options)[0] == 0


def test_each_file_as_recommended(here, run, device):
    stack = image(1, (5, 64, 64), "uint16")
    tifffile.imwrite("stack.tif", stack, imagej=True, metadata={"axes": "TYX"})
    tifffile.imwrite("plane.tif", stack[0])
    given = ("auto", "stack.tif", "plane.tif", "--device", device.index)
    code, out, err = run(*given, "-o", "out")
    assert (code, err) == (0, "")
    for name, axes in (("stack", "TYX"), ("plane", "YX")):
        advice = gd.recommend(gd.read(f"{name}.tif").data, axes, device=device)
        expected = gd.denoise(gd.read(f"{name}.tif").data, advice.filter, axes=axes, device=device)
        written = gd.read(f"out/{name}.tif")
        assert_array_equal(written.data, expected.image)
        (record,) = written.history
        assert record["recommended"] == f"{advice.choice}, because {advice.reason}"
        assert (record["filter"], record["source"]) == (advice.filter.name, f"{name}.tif")
        assert record["sigma"] == list(expected.record.sigma)
        assert f"  recommended {record['recommended']}" in out
    assert run(*given, "-o", "out", "--resume")[0] == 0
    with pytest.raises(errors.SettingsError, match=r"gd\.recommend"):
        gd.denoise(stack, gd.Recommended())


def test_every_setting_is_an_option(here, run, calls):
    """Whatever fields the dataclass has, each can be given and is told in the help."""
    for settings in gd.FILTERS:
        command = command_of(settings)
        code, text, _ = run(command, "--help")
        assert code == 0
        given = []
        for spec in setting_fields(settings):
            option = "--" + spec.name.replace("_", "-")
            assert option in text
            assert f"default {spec.default}" in " ".join(text.split())
            flag = option if spec.default else option.replace("--", "--no-", 1)
            given += [flag] if type(spec.default) is bool else [option, str(spec.default)]
        code, _, err = run(command, "in.tif", "-o", "out.tif", "--overwrite", *given)
        assert (code, err) == (0, "")
        assert calls[-1].filter == settings()


def test_arguments_reach_the_run(here, run, calls):
    arguments = (
        "--sigma 1.5,2 --noise rician --axes zyx --nonfinite keep --device 3 --memory-limit 1.5M "
        "--correct found --sigma-factor 1.25 --dtype float32 --patch 5 --step 1 --strength 0.5 "
        "--memory-limit-host 2G"
    )
    assert run("nl-means", "in.tif", "-o", "a.tif", *arguments.split())[0] == 0
    assert calls == [
        Run(
            gd.NLMeans(patch=5, step=1, strength=0.5),
            sigma=[1.5, 2.0],
            noise="rician",
            axes="zyx",
            dtype="float32",
            nonfinite="keep",
            device="3",
            memory_limit=3 * 2**19,
            correct="found",
            sigma_factor=1.25,
            host_memory=HostMemory(1 << 31),
        )
    ]
    assert run("nl-means", "in.tif", "-o", "b.tif", "--sigma", "AUTO")[0] == 0
    assert (calls[1].sigma, calls[1].dtype, calls[1].axes) == (None, None, "YX")
    assert calls[1].noise is calls[1].correct is None
    assert not calls[1].host_memory.given
    sizes = {"7": 7, "2k": 2048, "2GiB": 2**31, "512 MB": 2**29, "1g": 2**30}
    for text, size in sizes.items():
        options = ("--overwrite", "--memory-limit", text)
        assert run("nl-means", "in.tif", "-o", "b.tif", *options)[0] == 0
        assert calls[-1].memory_limit == size


@every_filter
def test_profiles(here, run, calls, settings):
    """Each can be started from; what is given beside it wins, before it or after it."""
    code, text, _ = run(command_of(settings), "--help")
    assert ("--profile" in text) == (len(settings.presets) > 1)
    if len(settings.presets) == 1:
        return
    out = (command_of(settings), "in.tif", "-o", "out.tif", "--overwrite")
    spec = next(s for s in setting_fields(settings) if type(s.default) is int)
    for profile, changes in settings.presets.items():
        told = [f"--{name.replace('_', '-')}={value}" for name, value in changes.items()]
        assert f"{profile} {' '.join(told) or 'the defaults'}" in " ".join(text.split())
        code, said, err = run(*out, "--profile", profile)
        assert (code, err) == (0, "")
        assert f"  profile     {profile}\n" in said
        assert calls[-1].filter == settings.of(profile=profile)
        # An option wins also where it sets something back to the default.
        for number, name in enumerate({**changes, spec.name: None}):
            default = getattr(settings(), name)
            wanted = settings.of(profile=profile, **{name: default})
            options = [f"--profile={profile}", f"--{name.replace('_', '-')}={default}"]
            code, said, err = run(*out, "--json", *options[:: (-1) ** number])
            assert (code, err) == (0, "")
            assert calls[-1].filter == wanted
            assert json.loads(said)["profile"] == wanted.profile_name()
    code, _, err = run(*out, "--profile", "finest")
    assert (code, "'finest'" in err) == (2, True)


def test_a_map_of_sigma_and_fractions_of_a_float_result(here, run, device):
    noise = np.linspace(5, 40, 12 * 14, dtype=np.float32).reshape(12, 14)
    tifffile.imwrite("noise.tif", noise)
    tifffile.imwrite("wide.tif", noise[:, :-1])
    options = ("--dtype", "float32", "--device", device.index, "--sigma-map")
    arguments = ("nl-means", "in.tif", "-o", "out.tif", *options)
    code, out, err = run(*arguments, "noise.tif")
    assert (code, err) == (0, "")
    assert "given as a map" in out
    expected = gd.nl_means(image(), noise, dtype="float32", device=device)
    assert_array_equal(tifffile.imread("out.tif"), expected)
    assert (expected % 1).any()
    code, _, err = run(*arguments, "wide.tif", "--overwrite")
    assert (code, "(12, 13)" in one_sentence(err)) == (2, True)


@pytest.mark.parametrize("more", [(), ("--resume",), ("--overwrite",)])
def test_a_missing_input_is_told_even_if_its_result_exists(here, run, calls, more):
    run("nl-means", "in.tif", "-o", "out.tif")
    os.remove("in.tif")
    code, _, err = run("nl-means", "in.tif", "-o", "out.tif", *more)
    assert (code, "in.tif cannot be read: No such file" in one_sentence(err)) == (4, True)


def test_what_is_printed_at_the_end(here, run, calls):
    code, out, err = run("nl-means", "in.tif", "-o", "out.tif")
    assert (code, err) == (0, "")
    assert out.startswith("out.tif\n") and "denoised" not in out  # a summary is of several
    for text in ("2 (given)", "7 values", "1 values", "a device", "something to know"):
        assert text in out
    assert run("nl-means", "in.tif", "-o", "quiet.tif", "--quiet") == (0, "", "")
    code, out, err = run("nl-means", "in.tif", "-o", "json.tif", "--json")
    (file,) = json.loads(out)["files"]
    assert (file["output"], file["record"]["saturated"]) == ("json.tif", 7)
    changed = ("--patch", "5", "--window", "11", "--step", "1")
    _, out, _ = run("nl-means", "in.tif", "-o", "profile.tif", *changed)
    assert "  profile     fine, window=11\n" in out


def test_several_files(here, run, calls):
    tifffile.imwrite("other.tif", image(1))
    Path("bad.tif").write_text("no image")
    Path("notes.txt").write_text("Monday")
    code, out, err = run("nl-means", "*.tif", "notes.txt", "-o", "out")
    assert code == 4 and "2 denoised, 1 failed, 1 skipped." in out
    assert f"bad.tif is not a {FORMAT_NAMES} file" in err
    assert f"notes.txt is not a {FORMAT_NAMES} file and was skipped" in err
    assert sorted(os.listdir("out")) == ["in.tif", "other.tif"]
    code, out, _ = run("nl-means", "in.tif", "other.tif", "-o", "pair")
    assert code == 0 and "2 denoised" in out
    assert run("nl-means", "*.tif", "-o", "two", "--stop-on-error")[0] == 4
    assert not Path("two").exists()


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, code, text",
    [
        ("in.tif -o out.tif --patch 99", 2, "patch=99"),
        ("none.tif -o out.tif", 4, "none.tif"),
        ("*.png -o out.tif", 4, "No file matches"),
        ("text.tif -o out.tif", 4, f"not a {FORMAT_NAMES} file"),
        ("in.tif -o in.tif", 5, "never replaced"),
        ("in.tif -o ./../HERE/in.tif --overwrite", 5, "never replaced"),
        ("in.tif -o there.tif", 5, "exists"),
        ("in.tif -o out.png", 5, "neither"),
        ("in.tif -o out.tif --sigma-map stack.tif", 2, "one image"),
        ("in.tif -o out.tif --sigma-map none.tif", 4, "none.tif"),
        ("in.tif -o out.tif --sigma-map notes.txt", 4, "not a TIFF"),
    ],
)
def test_failures(here, run, calls, arguments, code, text):
    Path("text.tif").write_text("no image")
    Path("notes.txt").write_text("no image")
    Path("there.tif").write_text("precious")
    tifffile.imwrite("stack.tif", image(0, (3, 12, 14)), photometric="minisblack")
    before = {name: Path(name).read_bytes() for name in os.listdir()}
    got, out, err = run("nl-means", *arguments.replace("HERE", here.name).split())
    assert (got, out) == (code, "")
    assert text in one_sentence(err)
    assert not calls and {name: Path(name).read_bytes() for name in os.listdir()} == before


@pytest.mark.parametrize(
    "arguments, code, text",
    [
        (["--axes", "TYX"], 2, "names 3 axes"),
        (["--device", "no such device"], 3, "no such device"),
        (["--dtype", "complex64"], 2, "complex64"),
    ],
)
def test_failures_of_a_run(here, run, device, arguments, code, text):
    if "--device" not in arguments:
        arguments = [*arguments, "--device", str(device.index)]
    got, out, err = run("nl-means", "in.tif", "-o", "out.tif", *arguments)
    assert (got, out) == (code, "")
    assert text in one_sentence(err)
    assert os.listdir() == ["in.tif"]


@pytest.mark.parametrize(
    "error, code",
    [
        (errors.DeviceMemoryError("The device is too small."), 7),
        (MemoryError(), 7),
        (errors.KernelError("The kernel failed."), 8),
        (ZeroDivisionError("a mistake"), 1),
    ],
)
def test_failures_of_the_device_and_mistakes_of_ours(here, run, calls, monkeypatch, error, code):
    def fail(*args, **options):
        raise error

    monkeypatch.setattr(one_file, "denoise_image", fail)
    got, _, err = run("nl-means", "in.tif", "-o", "out.tif")
    assert got == code and os.listdir() == ["in.tif"]
    if code != 1:
        assert "in.tif: " in one_sentence(err)
        return
    assert "in.tif: ZeroDivisionError: a mistake" in err
    assert "Traceback" in err and "please report" in err
    monkeypatch.setattr(commands, "estimate", fail)
    assert run("estimate", "in.tif")[0] == 1


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "nl-means",
        "nl-means in.tif",
        "nl-means in.tif -o a.tif --sigma much",
        "nl-means in.tif -o a.tif --memory-limit -1",
        "nl-means in.tif -o a.tif --workers 0",
        "blur in.tif",
    ],
)
def test_usage(here, run, arguments):
    code, out, err = run(*arguments.split())
    assert (code, out) == (2, "")
    assert "usage: gpu-denoise" in err
    assert "--workers" not in arguments or "'0' is not a number of at least 1" in err


def test_every_named_error_has_a_code(run):
    """Each class of errors.py has a number of its own kind, and the help tells them all."""
    named = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.DenoiseError)
    ]
    general = {errors.DenoiseError, errors.LayerError}  # a base; only napari knows layers
    for error in named:
        assert (exit_code(error("x")) == 1) == (error in general), error
    numbers = [code for code, _, _ in EXIT_CODES]
    assert len(set(numbers)) == len(numbers)
    code, out, _ = run("--help")
    assert code == 0
    for number, _, text in EXIT_CODES:
        assert re.search(rf"^ +{number}  {re.escape(text)}$", out, re.MULTILINE)


# --- Ctrl-C, progress, speed ----------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_stops_at_the_next_tile(here, run, calls, monkeypatch, number):
    before = signal.getsignal(number)
    bar = commands._Bar.__call__

    def interrupt(self, state):
        bar(self, state)
        if getattr(state, "done", 0) == 1:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(commands._Bar, "__call__", interrupt)
    code, out, err = run("nl-means", "in.tif", "-o", "out.tif")
    assert (code, out) == (130, "")
    assert "Interrupted" in one_sentence(err)
    assert os.listdir() == ["in.tif"]
    assert signal.getsignal(number) == before


def test_second_interrupt_stops_at_once(here, run, calls, monkeypatch):
    def interrupt(*args, **options):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("still running")

    monkeypatch.setattr(one_file, "denoise_image", interrupt)
    code, _, err = run("nl-means", "in.tif", "-o", "out.tif")
    assert code == 130
    assert "Interrupted" in one_sentence(err)
    assert os.listdir() == ["in.tif"]


def test_progress_bar_only_on_a_terminal(here, run, calls, monkeypatch):
    assert run("nl-means", "in.tif", "-o", "a.tif")[2] == ""
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda self: True, raising=False)
    code, out, err = run("nl-means", "in.tif", "-o", "b.tif")
    assert code == 0 and "2/2" not in out
    assert "in.tif" in err and "2/2" in err
    assert run("nl-means", "in.tif", "-o", "c.tif", "--quiet")[2] == ""


def test_what_comes_before_the_parts_is_told_in_words(capsys, monkeypatch):
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda self: True, raising=False)
    with contextlib.closing(commands._Bar(quiet=False)) as bar:
        for unit in ("", MEASURING, COMPILING):
            bar(BatchProgress(Path("in.tif"), 1, 3, 0, 0, unit))
        for done in (0, 1):
            bar(BatchProgress(Path("in.tif"), 1, 3, done, 2, "tile"))
    shown = [line.strip() for line in capsys.readouterr().err.split("\r") if line.strip()]
    name = "in.tif (2/3)"
    assert shown[:3] == [name, f"{name}: measuring noise", f"{name}: compiling"]
    assert "0/2" in shown[3] and "1/2" in shown[-1]


def in_a_process(script: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)


def test_version_and_help_load_nothing_heavy():
    """What the shell waits for: no device is touched and no codec loaded to print a help."""
    done = in_a_process("""
import sys
from napari_gpu_denoise.cli import main
for argv in (["--version"], ["--help"], ["nl-means", "--help"]):
    assert main(argv) == 0
    heavy = {"pyopencl", "tifffile", "scipy", "dask", "napari", "qtpy", "tqdm"}
    if argv == ["--version"]:
        heavy.add("numpy")
    assert not heavy & set(sys.modules), heavy & set(sys.modules)
""")
    assert done.returncode == 0, done.stderr
    assert re.match(r"gpu-denoise \S+\n", done.stdout)


def as_process(*arguments: str, **options) -> subprocess.CompletedProcess:
    """Run the program in a process of its own, where it finds the streams as the shell has them."""
    return subprocess.run([sys.executable, "-m", "napari_gpu_denoise", *arguments], **options)


def test_reader_that_has_enough(here):
    """As in ``gpu-denoise --help | head -1``."""
    for words in (["--help"], ["estimate", "in.tif", "none.tif"]):  # which it never comes to
        reading, writing = os.pipe()
        os.close(reading)
        done = as_process(*words, stdout=writing, stderr=subprocess.PIPE)
        os.close(writing)
        assert (done.returncode, done.stderr) == (0, b"")


def test_names_that_an_encoding_lacks_are_printed_by_numbers(here):
    os.rename("in.tif", "日本.tif")
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252"}
    done = as_process("estimate", "日本.tif", "none.日本", capture_output=True, env=environment)
    assert done.stdout.startswith(rb"\u65e5\u672c.tif (YX, 12 x 14, uint8)")
    assert (done.returncode, rb"none.\u65e5\u672c cannot be read" in done.stderr) == (4, True)
    assert b"Traceback" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_output_that_cannot_be_written_is_said_unless_something_else_is(here):
    with open("/dev/full", "w") as full:
        lost, wrong = (
            as_process(*words, stdout=full, stderr=subprocess.PIPE, text=True)
            for words in (["sample"], ["estimate", "none.tif"])
        )
        assert as_process("sample", "none", stdout=full, stderr=full).returncode == 4
    assert (lost.returncode, "cannot be written: No space" in one_sentence(lost.stderr)) == (
        5,
        True,
    )
    assert wrong.returncode == 4 and "cannot be read" in one_sentence(wrong.stderr)


@pytest.mark.skipif(os.name == "nt", reason="closed by the shell")
@pytest.mark.parametrize(("words", "code"), [(["sample"], 0), (["sample", "none"], 4)])
def test_closed_streams(here, words, code):
    def close():
        os.close(1)
        os.close(2)

    assert as_process(*words, preexec_fn=close).returncode == code


def test_ctrl_c_while_modules_are_imported_ends_in_a_sentence():
    done = in_a_process("""
import sys
class Stop:
    def find_spec(self, name, *_):
        if name == 'napari_gpu_denoise.cli.arguments':
            raise KeyboardInterrupt
sys.meta_path.insert(0, Stop())
from napari_gpu_denoise.cli import main
sys.exit(main(['devices']))
""")
    assert done.returncode == 130
    assert done.stderr == "gpu-denoise: Interrupted; no partial output was left.\n"


# --- the other commands ---------------------------------------------------------------------------


def test_devices(run, device, monkeypatch):
    forgotten = []
    monkeypatch.setattr(device_test, "forget_answers", lambda: forgotten.append(True))
    code, out, err = run("devices")
    assert (code, err) == (0, "") and not forgotten
    for found in gd.devices():
        assert f"{found.index:2}  {found.name}\n" in out
        assert found.platform in out and found.kind in out
    assert f"* {gd.why()}" in out
    code, out, _ = run("devices", "--json")
    report = json.loads(out)
    assert [d["name"] for d in report["devices"]] == [d.name for d in gd.devices()]
    assert (report["used"], report["why"]) == (gd.choose().index, gd.why())
    # They are tested again on request.
    assert run("devices", "--again")[0] == 0 and forgotten


def test_devices_when_there_is_none(run, monkeypatch):
    # A driver without a device, as where a card was taken out: it is listed all the same.
    bare = opencl.Platform("Some driver", "OpenCL 3.0", ())
    monkeypatch.setattr(opencl, "_devices", lambda: ())
    monkeypatch.setattr(opencl, "platforms", lambda: (bare,))
    code, out, err = run("devices")
    assert code == 3
    assert "Some driver" in out and "no usable device" in out
    assert opencl.ADVICE in one_sentence(err)
    code, out, _ = run("devices", "--json")
    report = json.loads(out)
    assert (code, report["used"], report["advice"]) == (3, None, opencl.ADVICE)


def test_sample(here, run):
    code, out, _ = run("sample")
    assert code == 0
    for name in samples.names():
        assert name in out
        file = samples.path(name)
        assert run("sample", name, "-o", f"my_{file.name}")[0] == 0
        assert Path(f"my_{file.name}").read_bytes() == file.read_bytes()
    code, _, err = run("sample", name, "-o", f"my_{file.name}")
    assert (code, "exists" in one_sentence(err)) == (5, True)
    assert run("sample", name, "-o", f"my_{file.name}", "--overwrite")[0] == 0
    code, _, err = run("sample", "lena")
    assert (code, "no sample 'lena'" in one_sentence(err)) == (4, True)
    os.mkdir("folder")
    assert run("sample", name, "-o", "folder")[0] == 0
    ends = ".bval", ".bvec", ".nii.gz"
    assert sorted(os.listdir("folder")) == [f"diffusion{end}" for end in ends]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("map.tif", "nl-means in.tif --sigma-map map.tif -o map.tif"),
        ("map.tif", "nl-means in.tif --sigma-map map.tif -o link.tif"),
        ("link.tif", "nl-means in.tif --sigma-map link.tif -o map.tif"),
        ("noise.tif", "nl-means in.tif --noise noise.tif -o noise.tif"),
        ("noise.tif", "nl-means in.tif --noise hard.tif -o noise.tif"),
    ],
)
def test_no_path_that_a_command_reads_is_replaced(here, run, path, words):
    tifffile.imwrite("map.tif", np.full((12, 14), 5, np.float32))
    (here / "noise.tif").write_text(run("estimate", "in.tif", "--json")[1])
    (here / "link.tif").symlink_to(here / "map.tif")
    (here / "hard.tif").hardlink_to(here / "noise.tif")
    before = (here / path).read_bytes()
    code, _, err = run(*words.split(), "--overwrite")
    assert code == 5 and "is an input, which is never replaced" in one_sentence(err)
    assert (here / path).read_bytes() == before
