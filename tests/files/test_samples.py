"""The sample stacks: there, small, as described, and with the noise they are said to have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tifffile

from napari_gpu_denoise import NLMeans, Rician, bm4d, cli, denoise, estimate_noise
from napari_gpu_denoise.errors import FileError
from napari_gpu_denoise.files import formats, samples
from tools.conftest import load

FOLDER = Path(__file__).parents[2] / "sample_data"


@pytest.fixture(scope="module")
def made():
    """The script that makes the samples, as a module."""
    return load("make_samples", "sample_data")


@pytest.mark.parametrize("name", samples.names())
def test_file_is_as_described(name):
    known = samples.info(name)
    picture = formats.read(samples.path(name))
    assert picture.data.ndim == 3 + (name == "diffusion")
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert f"`{known.file}`" in text
    assert known.licence.split("-")[0] in text


def test_unknown_names_are_told():
    with pytest.raises(FileError, match="did you mean 'mri'"):
        samples.path("mr")
    with pytest.raises(FileError, match="fluorescence, mri, ultrasound"):
        samples.info("zebra")


def stored(name):
    return tifffile.imread(samples.path(name)).astype(np.float64)


def test_the_noise_of_each_sample_is_found(made):
    def measured(name, axes):
        return estimate_noise(tifffile.imread(samples.path(name)), axes)

    photons = measured("fluorescence", "TYX")
    assert photons.name == "poisson-gaussian"
    assert photons.models[0].gain == pytest.approx(made.GAIN, rel=0.08)
    levels = made.OFFSET + np.array([30.0, 100.0])
    variance = made.GAIN * (levels - made.OFFSET) + (made.GAIN * made.READ_NOISE) ** 2
    np.testing.assert_allclose(photons.models[0].variance(levels), variance, rtol=0.08)
    magnitudes = measured("mri", "ZYX")
    assert magnitudes.name == "rician"
    assert magnitudes.sigma[0] == pytest.approx(made.RICIAN_SIGMA, rel=0.03)
    series = estimate_noise(formats.read(samples.path("diffusion")).pixels, "DZYX")
    assert series.name == "rician"
    assert series.sigma[0] == pytest.approx(made.DIFFUSION_SIGMA, rel=0.03)
    speckle = measured("ultrasound", "TYX")
    assert speckle.name == "correlated"
    assert speckle.models[0].autocorrelation[0][1] == pytest.approx(0.8, rel=0.3)


def test_sigma_said_is_worth_giving(made):
    for name in samples.names():
        clean, noisy = getattr(made, name)()
        plane, sigma = len(clean) // 2, samples.info(name).sigma
        out = denoise(noisy[plane], NLMeans(), sigma, dtype="float32").image
        before, after = (
            np.mean((image.astype(float) - clean[plane]) ** 2) for image in (noisy[plane], out)
        )
        assert after < 0.75 * before, name


def test_a_series_comes_with_its_tables_and_is_filtered_better_than_its_volumes(made, tmp_path):
    assert cli.main(["sample", "diffusion", "-o", str(tmp_path)]) == 0
    path, target = tmp_path / "diffusion.nii.gz", tmp_path / "clean.nii.gz"
    assert cli.main(["subspace", str(path), "-o", str(target)]) == 0
    for end in (".bval", ".bvec"):
        assert (tmp_path / f"clean{end}").read_bytes() == (FOLDER / f"diffusion{end}").read_bytes()
    clean, noisy = (each[::4] for each in made.diffusion())
    results = formats.read(target).pixels[::4], bm4d(noisy, noise=Rician(10.0), axes=".ZYX")
    together, apart = (float(np.mean(np.square(one - clean))) for one in results)
    assert together < 0.7 * apart
