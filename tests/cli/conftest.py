"""The program in a folder of its own, with and without a device."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tifffile

from napari_gpu_denoise import cli
from napari_gpu_denoise.files import batch, one_file
from napari_gpu_denoise.run.record import Record, Result


def image(seed: int = 0, shape: tuple[int, ...] = (12, 14), dtype: str = "uint8") -> np.ndarray:
    return (np.random.default_rng(seed).random(shape) * 200).astype(dtype)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder that is the current one, with one image in it."""
    monkeypatch.chdir(tmp_path)
    tifffile.imwrite("in.tif", image())
    return tmp_path


@pytest.fixture
def calls(monkeypatch):
    """Stand in for the device; tells what was asked of it."""
    asked = []

    def stand_in(data, run, progress):
        asked.append(run)
        for done in range(3):
            progress.tell(done, 2)
        kind = str(data.dtype)
        notes = ("something to know",)
        record = Record(
            "0", "nl_means", {}, (2.0,), "given", "YX", kind, kind, "a device", 7, 1, notes, "2026"
        )
        return Result(data, record)

    monkeypatch.setattr(one_file, "denoise_image", stand_in)
    here = SimpleNamespace(shares_cores=False)
    monkeypatch.setattr(batch, "choose_devices", lambda device, *_: device or (here,))
    return asked


@pytest.fixture
def run(capsys):
    """Run the program; returns its exit code, and what it prints and complains."""

    def run_it(*argv: object) -> tuple[int, str, str]:
        code = cli.main([str(argument) for argument in argv])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run_it


def one_sentence(err: str) -> str:
    (line,) = err.splitlines()
    assert line.startswith("gpu-denoise: ") and line.endswith(".") and "Traceback" not in err
    return line
