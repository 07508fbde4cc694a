"""``gpu-denoise recommend``: the advice, and a command that follows it."""

import json
import shlex
import sys

import pytest

from napari_gpu_denoise import cli, samples
from napari_gpu_denoise.cli.arguments import build_parser
from napari_gpu_denoise.cli.commands import chosen_settings
from napari_gpu_denoise.filters import VBM3D


@pytest.mark.skipif(sys.platform == "win32", reason="shlex reads POSIX quoting only")
def test_the_command_follows_the_advice(capsys, tmp_path):
    path = tmp_path / "my cells.tif"
    path.write_bytes(samples.path("fluorescence").read_bytes())
    assert cli.main(["recommend", str(path), "--axes", "TYX", "--effort", "fast", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    words = shlex.split(found["command"])
    given = build_parser(words[1:]).parse_args(words[1:])
    assert chosen_settings(given) == VBM3D.of(profile="fast")
    assert (given.inputs, given.axes) == ([str(path)], "TYX")
    assert given.output == str(tmp_path / "my cells_vbm3d.tif") and not given.overwrite


def test_the_advice_in_words(capsys):
    assert cli.main(["recommend", str(samples.path("mri")), "missing.tif"]) == 4
    shown = capsys.readouterr()
    assert "  use         BM4D, profile normal\n" in shown.out
    assert "  noise       Rician noise" in shown.out
    assert "missing.tif" in shown.err
