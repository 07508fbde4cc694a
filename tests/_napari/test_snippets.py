"""Copied commands: the program's own parser reads them back as the panel was set."""

import shlex
import sys

import numpy as np
import pytest
import tifffile

from _napari.noise_records import estimate
from napari_gpu_denoise._napari.layers.source import Source
from napari_gpu_denoise._napari.run import Request
from napari_gpu_denoise._napari.snippets import command_with_remarks, python_call
from napari_gpu_denoise.cli.arguments import build_parser
from napari_gpu_denoise.cli.commands import chosen_settings
from napari_gpu_denoise.files import samples
from napari_gpu_denoise.filters import FILTERS, VBM3D, NLMeans
from napari_gpu_denoise.noise.models import Correlated, Rician
from napari_gpu_denoise.run.request import Run

CORRELATED = Correlated(3.0, tuple(tuple(0.5 ** (y + x) for x in range(5)) for y in range(5)))

posix = pytest.mark.skipif(sys.platform == "win32", reason="shlex reads POSIX quoting only")


def requested(
    settings, axes, sigma=None, *, name="a", path=None, multiscale=False, frame=None, **given
):
    """The request of a run of a layer without data."""
    source = Source(name, None, path=path, multiscale=multiscale)
    cut = {} if frame is None else {"frames": frame}
    return Request(source, Run(settings, sigma, axes=axes, **given), cut)


def command_line(request):
    return command_with_remarks(request)[0]


def parsed(line):
    words = shlex.split(line)
    assert words[0] == "gpu-denoise"
    return build_parser(words[1:]).parse_args(words[1:])


@posix
def test_everything_set_is_read_back_and_defaults_are_left_out():
    settings = NLMeans(patch=6, step=1, frames_before=2, strength=0.75)
    path = "/data/my cells' movie.ome.tif"
    given = {"dtype": "float32", "nonfinite": "keep", "correct": "stripes", "device": "NVIDIA H200"}
    options = parsed(command_line(requested(settings, "TYXC", (3.5, 4.0), path=path, **given)))
    assert options.inputs == [path]
    assert options.output == "/data/my cells' movie_nl-means.ome.tif"
    assert (list(options.sigma), options.axes) == ([3.5, 4.0], "TYXC")
    assert {name: getattr(options, name) for name in given} == given
    assert chosen_settings(options) == settings
    line = command_line(requested(NLMeans(), ".YX"))
    assert line == "gpu-denoise nl-means INPUT.tif -o INPUT_nl-means.tif --axes .YX"
    options = parsed(line)
    assert options.sigma is None and options.device is None
    # The result has the format of the file.
    for suffix in ("OME.TIF", "nii.gz"):
        line = command_line(requested(NLMeans(), "ZYX", path=f"a.{suffix}"))
        assert parsed(line).output == f"a_nl-means.{suffix}"
    # It has no option for one frame.
    one = requested(VBM3D(), "TYX", frame=12)
    assert command_line(one) == command_line(requested(VBM3D(), "TYX"))


@posix
@pytest.mark.parametrize("kind", FILTERS)
def test_profiles_are_read_back(kind):
    name = kind.name.replace("_", "-")
    start = f"gpu-denoise {name} INPUT.tif -o INPUT_{name}.tif --axes YX"
    for profile in kind.presets:
        option = "" if kind.of(profile=profile) == kind() else f" --profile {profile}"
        line = command_line(requested(kind.of(profile=profile), "YX"))
        assert line == start + option
        assert chosen_settings(parsed(line)) == kind.of(profile=profile)


def test_python_call():
    output = {"dtype": "float32", "nonfinite": "keep", "correct": "found"}
    full = python_call(
        requested(NLMeans(step=2), "ZYX", 4.0, **output, device=1, name="it's", multiscale=True)
    )
    assert full.splitlines()[2:4] == [
        'image = viewer.layers["it\'s"].data[0]',
        "denoised = gd.nl_means(image, sigma=4.0, axes='ZYX', step=2, dtype='float32', "
        "nonfinite='keep', correct='found', device=1)",
    ]


@posix
@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"sigma": None, "noise": "auto"}, "--noise auto"),
        ({"sigma": 4.0, "noise": "auto"}, "--sigma 4.0"),
        ({"sigma": None, "noise": estimate()}, "--sigma 10.0"),
        ({"sigma": None, "noise": estimate((Rician(3.0),))}, "--noise rician"),
        ({"sigma": None, "noise": estimate((CORRELATED,))}, "--noise correlated"),
    ],
)
def test_noise_on_the_command_line(choices, said):
    line = command_line(requested(NLMeans(), "YX", path="a.tif", **choices))
    assert line == f"gpu-denoise nl-means a.tif -o a_nl-means.tif {said} --axes YX"
    assert (parsed(line).noise is not None) == ("--noise" in said)


def test_the_result_never_has_the_name_of_the_file(tmp_path):
    path = tmp_path / "a.tif"
    path.write_bytes(samples.path("fluorescence").read_bytes())
    request = requested(NLMeans(), "TYX", path=str(path))
    text, remarks = command_with_remarks(request)
    assert parsed(text).output == str(tmp_path / "a_nl-means.tif") and remarks == []
    (tmp_path / "a_nl-means.tif").touch()
    text, (remark,) = command_with_remarks(request)
    assert "--overwrite" not in text and "kept unless you add --overwrite" in remark
    sample = requested(NLMeans(), "TYX", path=str(samples.path("fluorescence")))
    assert parsed(command_line(sample)).output == "fluorescence_nl-means.tif"
    picture = requested(NLMeans(), "YXS", path="photo.png")
    text, (remark,) = command_with_remarks(picture)
    assert parsed(text).inputs == ["INPUT.tif"] and "Replace INPUT.tif" in remark


def test_a_layer_that_is_a_part_of_its_file(tmp_path):
    path = tmp_path / "a.ome.tif"
    whole = np.zeros((2, 3, 16, 16), np.uint8)
    tifffile.imwrite(path, whole, photometric="minisblack", metadata={"axes": "CTYX"})
    remark = "It filters the whole file, whose axes are CTYX."
    for data, axes, said in ((whole[0], "TYX", [remark]), (whole, "CTYX", [])):
        source = Source("a", data, path=str(path))
        text, remarks = command_with_remarks(Request(source, Run(VBM3D(), axes=axes)))
        assert remarks == said and (parsed(text).axes is None) == bool(said)
    source = Source("a", whole[0], path=str(path), split=0)
    text, remarks = command_with_remarks(Request(source, Run(VBM3D(), axes="TYX")))
    assert remarks == ["It filters all channels of the file."] and parsed(text).axes == "CTYX"
