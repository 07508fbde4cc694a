"""Copied commands: the program's own parser reads them back as the panel was set."""

import shlex
import sys

import pytest

import napari_gpu_denoise as gd
from _napari.noise_records import estimate
from napari_gpu_denoise._napari.snippets import Choices, command_line, python_call
from napari_gpu_denoise.cli.arguments import build_parser
from napari_gpu_denoise.cli.commands import chosen_settings
from napari_gpu_denoise.filters import FILTERS, VBM3D, NLMeans
from napari_gpu_denoise.noise.models import Correlated, Gaussian, Rician

CORRELATED = Correlated(3.0, tuple(tuple(0.5 ** (y + x) for x in range(5)) for y in range(5)))

posix = pytest.mark.skipif(sys.platform == "win32", reason="shlex reads POSIX quoting only")


def parsed(line):
    words = shlex.split(line)
    assert words[0] == "gpu-denoise"
    return build_parser(words[1:]).parse_args(words[1:])


@posix
def test_everything_set_is_read_back():
    choices = Choices(
        settings=NLMeans(patch=6, step=1, frames_before=2, strength=0.75),
        sigma=(3.5, 4.0),
        axes="TYXC",
        dtype="float32",
        nonfinite="keep",
        device="NVIDIA H200",
    )
    given = parsed(command_line(choices, "/data/my cells' movie.ome.tif"))
    assert given.inputs == ["/data/my cells' movie.ome.tif"]
    assert given.output == "/data/my cells' movie_nl-means.tif"
    assert list(given.sigma) == [3.5, 4.0]
    assert (given.axes, given.dtype, given.nonfinite) == ("TYXC", "float32", "keep")
    assert given.device == "NVIDIA H200"
    assert chosen_settings(given) == choices.settings


@posix
@pytest.mark.parametrize("kind", FILTERS)
def test_profiles_are_read_back(kind):
    name = kind.name.replace("_", "-")
    start = f"gpu-denoise {name} INPUT.tif -o INPUT_{name}.tif --axes YX"
    for profile in kind.presets:
        option = "" if kind.of(profile=profile) == kind() else f" --profile {profile}"
        line = command_line(Choices(kind.of(profile=profile), None, "YX"), None)
        assert line == start + option
        assert chosen_settings(parsed(line)) == kind.of(profile=profile)


@posix
def test_a_profile_and_what_it_lacks():
    choices = Choices(NLMeans(patch=5, step=1, window=11), 3.0, "YX")
    line = command_line(choices, "a.tif")
    assert line.endswith("--sigma 3.0 --axes YX --profile fine --window 11")
    assert chosen_settings(parsed(line)) == choices.settings
    call = python_call(choices, "a")
    assert "gd.nl_means(image, sigma=3.0, profile='fine', window=11)" in call


@posix
def test_defaults_are_left_out():
    line = command_line(Choices(NLMeans(), None, ".YX"), None)
    assert line == "gpu-denoise nl-means INPUT.tif -o INPUT_nl-means.tif --axes .YX"
    given = parsed(line)
    assert given.sigma is None and given.device is None


def test_python_call():
    assert python_call(Choices(NLMeans(), None, ".YX"), "cells") == (
        "import napari_gpu_denoise as gd\n\n"
        "image = viewer.layers['cells'].data\n"
        "denoised = gd.nl_means(image)\n"
    )
    full = python_call(
        Choices(NLMeans(step=2), 4.0, "ZYX", "float32", "keep", 1), "it's", multiscale=True
    )
    assert full.splitlines()[2:] == [
        'image = viewer.layers["it\'s"].data[0]',
        "denoised = gd.nl_means(image, sigma=4.0, axes='ZYX', step=2, dtype='float32', "
        "nonfinite='keep', device=1)",
    ]


def test_python_call_of_one_frame():
    call = python_call(Choices(VBM3D(), None, "TYX", frame=12), "cells")
    assert call.splitlines()[-1] == (
        "denoised = gd.denoise(image, gd.VBM3D(), axes='TYX', frames=12).image"
    )
    settings = VBM3D.of(profile="fast", threshold=2.5)
    call = python_call(Choices(settings, 4.0, "ZTYX", "float32", "keep", frame=3), "cells")
    assert call.splitlines()[-1] == (
        "denoised = gd.denoise(image, gd.VBM3D.of(profile='fast', threshold=2.5), sigma=4.0, "
        "axes='ZTYX', frames=3, dtype='float32', nonfinite='keep').image"
    )


def test_the_command_line_has_no_option_for_one_frame():
    choices = Choices(VBM3D(), None, "TYX", frame=12)
    whole = Choices(VBM3D(), None, "TYX")
    assert command_line(choices, "a.tif") == command_line(whole, "a.tif")


@posix
@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"sigma": None, "noise": "auto"}, "--noise auto"),
        ({"sigma": 4.0, "noise": "auto"}, "--sigma 4.0"),
        ({"sigma": None, "noise": estimate()}, "--sigma 10.0"),
        ({"sigma": None, "noise": estimate((Rician(3.0),))}, "--noise rician"),
        ({"sigma": None, "noise": estimate((CORRELATED,))}, "--noise auto"),
    ],
)
def test_noise_on_the_command_line(choices, said):
    line = command_line(Choices(NLMeans(), axes="YX", **choices), "a.tif")
    assert line == f"gpu-denoise nl-means a.tif -o a_nl-means.tif {said} --axes YX"
    given = parsed(line)
    assert (given.noise is not None) == ("--noise" in said)


@pytest.mark.parametrize(
    ("models", "said"),
    [
        ((Rician(3.5),), "gd.Rician(sigma=3.5)"),
        (
            (Gaussian(1.0), Gaussian(2.0)),
            "(gd.Gaussian(sigma=1.0), gd.Gaussian(sigma=2.0))",
        ),
    ],
)
def test_models_as_code(models, said):
    call = python_call(Choices(NLMeans(), None, "YX", noise=estimate(models)), "a")
    assert call.endswith(f"gd.nl_means(image, noise={said})\n")
    kept = eval(call.rpartition("noise=")[2].rpartition(")")[0], {"gd": gd})
    assert kept == (models if len(models) > 1 else models[0])
    whole = python_call(Choices(NLMeans(), None, "TYX", frame=3, noise="auto"), "a")
    assert "gd.denoise(image, gd.NLMeans(), noise='auto', axes='TYX', frames=3)" in whole


def test_models_with_tables_as_code():
    call = python_call(Choices(NLMeans(), None, "YX", noise=estimate((CORRELATED,))), "a")
    assert eval(call.rpartition("noise=")[2].rpartition(")")[0], {"gd": gd}) == CORRELATED
