"""Calls as users write them, for type checkers alone: basedpyright reads them in CI."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from threading import Event
from typing import assert_type

import dask.array as da
import numpy as np

import napari_gpu_denoise as gd


def images(image: np.ndarray, stack: list[list[float]], lazy: da.Array) -> None:
    assert_type(gd.bm3d(image), np.ndarray)
    assert_type(gd.bm3d(stack, 20, profile="high", dtype="float32"), np.ndarray)
    gd.vbm3d(image, sigma=(4.0, 5.0), axes="TCYX", frames_before=2, device="0,1")
    gd.nl_means(image, noise=gd.PoissonGaussian(gain=2.0, read_noise=5.0), cancel=Event())
    gd.nl_means(image, noise="auto", settings=gd.NLMeans(patch=5, step=1), correct=("rows", "hum"))
    gd.bm4d(image, progress=lambda done, total: print(done / total), memory_limit="2G")
    gd.isoline(image, image.std(axis=0), criterion="multiplicative", looks=4)
    gd.remove_outliers(gd.remove_stripes(image, kind="rows"), threshold=5.0)
    assert_type(gd.denoise_lazy(lazy, gd.BM3D.of(profile="fast"), axes="TYX"), da.Array)


def results(image: np.ndarray) -> None:
    result = gd.denoise(image, gd.NLMeans(), 20, frames=slice(0, 4), out=np.empty_like(image))
    assert_type(result, gd.Result)
    assert_type(result.image, np.ndarray)
    assert_type(result.record.sigma, tuple[float, ...])
    estimate = gd.estimate_noise(image, "ZYX", device=gd.devices()[0])
    assert_type(estimate, gd.NoiseEstimate)
    assert_type(gd.recommend(image, noise=estimate).choice, str)
    assert_type(gd.assess(image, gd.SWNLM(), noise=estimate, spacing=0.1, unit="µm"), gd.Assessment)
    run = gd.Run(gd.FILTERS[0](), noise=estimate.models, axes="YX")
    print(gd.why(run.device), gd.choose().name, gd.find_structure(image).summary())


def files(paths: list[Path], frames: list[np.ndarray]) -> None:
    picture = gd.read(paths[0])
    gd.write("out.tif", gd.bm3d(picture.data), like=picture, overwrite=True)
    report = gd.run_batch(paths, gd.Recommended(), output="denoised", resume=True)
    print([file.error for file in report.failed], gd.samples.names(), gd.errors.FileError("none"))
    stream = gd.stream(gd.VBM3D(), frames, sigma=lambda number: 20.0 + number, live=True)
    assert_type(stream, Generator[np.ndarray, None, None])


def refused(image: np.ndarray) -> None:
    # That these are errors is what is checked: a comment that is not needed is one itself.
    gd.bm3d(image, sigm=20)  # pyright: ignore[reportCallIssue]
    gd.bm3d(image, step_basic="3")  # pyright: ignore[reportArgumentType]
    gd.removed_filter(image)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
