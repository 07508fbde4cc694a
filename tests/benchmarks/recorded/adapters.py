"""What the cases call of the package, but for napari, which is in `panels`.

What a redesign renames is changed here, in `panels` and in the tables of `names`, nowhere else.
Here that may be: methods of noise models in `noise_model`; the module with the size from which
files are denoised frame by frame, the only private name, in `_STACKS`; the function behind
``gpu-denoise`` in `command_line`. The cases themselves use classes of noise models, `gd.read`,
`gd.choose` and `gd.errors.DenoiseError`, all public.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import napari_gpu_denoise as gd
from napari_gpu_denoise import samples

from .answers import Answer, numbers_in
from .names import old_keys, renamed_settings, split

FILTERS = {"nl_means": gd.NLMeans, "bm3d": gd.BM3D, "vbm3d": gd.VBM3D, "isoline": gd.Isoline}
# Where the size stands from which files are denoised frame by frame: the newest place first.
_STACKS = ("napari_gpu_denoise.files.one_file", "napari_gpu_denoise.stacks")
COMMANDS = {"nl_means": "nl-means", "bm3d": "bm3d", "vbm3d": "vbm3d", "isoline": "isoline"}


def settings(kind: str, profile: str | None = None, **changes: Any) -> Any:
    """Return settings of a filter; `of` is the public way to start from a profile."""
    return FILTERS[kind].of(profile=profile, **renamed_settings(kind, changes))


def profiles(kind: str) -> list[str]:
    """Return the names of the profiles of a filter."""
    return list(FILTERS[kind].presets)


def denoise(image: Any, kind: str, sigma: Any = None, *, changes=None, profile=None, **options):
    """Return the answer of `gd.denoise`."""
    result = gd.denoise(image, settings(kind, profile, **(changes or {})), sigma, **options)
    return of_record(result.record.as_dict(), result=result.image)


def function(kind: str, image: Any, sigma: Any = None, **options: Any) -> Answer:
    """Return the answer of `gd.bm3d` and its sisters; settings may stand among the options."""
    return Answer({"result": getattr(gd, kind)(image, sigma, **renamed_settings(kind, options))})


def steps(image: Any, kind: str, sigma: Any = None, *, changes=None, **options) -> Answer:
    """Return the answer of `gd.denoise_steps`, driven to its end."""
    frames = options.pop("frames", None)
    run = gd.Run(settings(kind, **(changes or {})), sigma, **options)
    running = gd.denoise_steps(image, run, frames)
    while True:
        try:
            next(running)
        except StopIteration as end:
            return of_record(end.value.record.as_dict(), result=end.value.image)


def stream(kind: str, frames: Any, sigma: Any = None, *, changes=None, **options) -> Answer:
    """Return the frames of `gd.stream`, one after another."""
    found = list(gd.stream(settings(kind, **(changes or {})), iter(frames), sigma, **options))
    return Answer({"result": np.stack(found) if found else np.zeros(0)})


def lazily(array: Any, kind: str, sigma: Any = None, *, changes=None, **options) -> Answer:
    """Return what `gd.denoise_lazy` computes, in one thread."""
    lazy = gd.denoise_lazy(array, settings(kind, **(changes or {})), sigma, **options)
    return Answer({"result": lazy.compute(scheduler="synchronous")})


def isoline_maps(image: Any, sigma: Any = None, *, changes=None, **options) -> Answer:
    """Return classes and directions of `gd.isoline_maps`."""
    found = gd.isoline_maps(image, sigma, **renamed_settings("isoline", changes or {}), **options)
    arrays = {"directions": found.directions}
    if found.classes is not None:
        arrays["classes"] = found.classes
    return Answer(arrays, {"period": found.period})


def estimate(image: Any, axes: str | None = None, model: str = "auto") -> Answer:
    """Return every number of `gd.estimate_noise` as the result, the estimate as the record."""
    return of_estimate(gd.estimate_noise(image, axes, model))


def sample_names() -> tuple[str, ...]:
    """Return the names of the samples."""
    return samples.names()


def sample(name: str) -> tuple[np.ndarray, str]:
    """Return the pixels of a sample, and its axes."""
    picture = gd.read(samples.path(name))
    return picture.data, picture.axes


def of_estimate(found: Any) -> Answer:
    """Return an estimate as an answer; one made of its plain values has to be the same."""
    answer = split(found.as_dict())
    again = gd.NoiseEstimate.from_dict(json.loads(json.dumps(found.as_dict())))
    answer.record["survives JSON"] = again.as_dict() == found.as_dict()
    answer.words["summary"] = found.summary()
    answer.arrays["numbers"] = np.array(numbers_in(answer.record))
    return answer


def noise_model(model: Any, image: Any) -> Answer:
    """Return what a model of noise does with an image."""
    forward = model.stabilise(image)
    arrays = {
        "forward": forward,
        "inverse": (getattr(model, "inverse", None) or model.unstabilise)(forward),
        "variance": model.variance(np.asarray(image, np.float64)),
        "sigma after": np.array(model.sigma_after),
    }
    again = type(model).from_dict(model.as_dict())
    record = {**model.as_dict(), "survives": again == model}
    return Answer(arrays, old_keys(record), {"summary": model.summary()})


def batch(inputs: Any, kind: str, sigma: Any = None, *, changes=None, profile=None, **options):
    """Return the report of `gd.run_batch`, as plain values, without the pixels."""
    chosen = settings(kind, profile, **(changes or {}))
    return split(gd.run_batch(inputs, chosen, sigma, **options).as_dict())


@contextlib.contextmanager
def streaming_from(size: int) -> Iterator[None]:
    """Denoise files frame by frame from so many bytes on: the one private name that is set."""
    found = (name for name in _STACKS if importlib.util.find_spec(name.rpartition(".")[0]))
    module = next(importlib.import_module(name) for name in found if importlib.util.find_spec(name))
    before = module.STREAMED_BYTES
    module.STREAMED_BYTES = size
    try:
        yield
    finally:
        module.STREAMED_BYTES = before


def command_line(*argv: Any) -> Answer:
    """Run ``gpu-denoise`` in this process; JSON that it prints becomes the record."""
    from napari_gpu_denoise.cli import main

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
        code = main([str(word) for word in argv])
    answer = Answer()
    try:
        answer = split(json.loads(said.getvalue()))
    except ValueError:
        text = re.sub(r"(?m)^  device .*\n?", "", said.getvalue())
        answer.words["printed"] = text.replace(os.getcwd() + os.sep, "")
    answer.arrays["exit code"] = np.array(code)
    if "estimate" in argv:
        answer.arrays["numbers"] = np.array(numbers_in(answer.record))
    return answer


def options_of(kind: str, **changes: Any) -> list[str]:
    """Return settings as options of the command line."""
    words = []
    for name, value in renamed_settings(kind, changes).items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        else:
            words += [f"--{option}", str(value)]
    return words


def file(path: Any) -> Answer:
    """Return the pixels of a TIFF file, and what it says of them."""
    picture = gd.read(path)
    record = {"axes": picture.axes, "kind": picture.kind}
    record["history"] = [split(each).record for each in picture.history]
    return Answer({f"file {os.path.basename(path)}": np.asarray(picture.data)}, record)


def of_record(plain: dict[str, Any], **arrays: np.ndarray) -> Answer:
    """Return an answer with the record of a run, as ``Record.as_dict`` gives it."""
    answer = split(plain)
    answer.arrays.update(arrays)
    return answer


def failing(work: Callable[[], Any]) -> Answer:
    """Return the class of the error that something raises, and its text among the words."""
    try:
        work()
    except Exception as error:
        return of_error(error)
    return Answer({"error": np.array("none")})


def of_error(error: Exception) -> Answer:
    """Return an error as an answer."""
    return Answer({"error": np.array(type(error).__name__)}, words={"text": str(error)})


@contextlib.contextmanager
def in_new_folder() -> Iterator[None]:
    """Work in an empty folder that is removed afterwards, so that paths are the same each time."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)
