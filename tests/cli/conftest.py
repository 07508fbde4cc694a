"""The program in a folder of its own, with and without a device."""

from __future__ import annotations

import pytest
import tifffile

from files.tiffs import image
from napari_gpu_denoise import cli


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder that is the current one, with one image in it."""
    monkeypatch.chdir(tmp_path)
    tifffile.imwrite("in.tif", image())
    return tmp_path


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
