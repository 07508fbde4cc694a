"""Small noisy stacks that come with the package, to try the filters."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from napari_gpu_denoise.errors import FileError

_HERE = Path(__file__).resolve().parents[1]
# In the installed package; in a checkout the folder is at its root.
_FOLDERS = (_HERE / "sample_data", _HERE.parents[1] / "sample_data")


@dataclass(frozen=True)
class Sample:
    """Description of one sample.

    `file`, which tells its axes and pixel size, lies in the folder ``sample_data``; `noise` tells
    type and strength of the noise; `sigma` is what to give a filter, None where the estimate is
    right; `licence` is an SPDX name.
    """

    name: str
    title: str
    file: str
    noise: str
    sigma: float | None = None
    origin: str = "simulated by sample_data/make_samples.py"
    licence: str = "BSD-3-Clause"


_SAMPLES = {
    sample.name: sample
    for sample in (
        Sample(
            name="fluorescence",
            title="Fluorescence time-lapse (simulated)",
            file="fluorescence.tif",
            noise="Poisson-Gaussian: 2.2 grey levels per electron, read noise 2.4 electrons, "
            "offset 100; standard deviation 10 in the background",
        ),
        Sample(
            name="mri",
            title="MRI slices (measured, noise added)",
            file="mri.ome.tif",
            noise="Rician, sigma 36; weaker outside the head, where an estimate would measure it",
            sigma=36.0,
            origin="example4d.nii.gz of NiBabel, noise added by sample_data/make_samples.py",
            licence="MIT",
        ),
        Sample(
            name="ultrasound",
            title="Ultrasound cine (simulated)",
            file="ultrasound.tif",
            noise="fully developed speckle, log-compressed over 55 dB, correlated between pixels",
            sigma=22.0,
        ),
        Sample(
            name="diffusion",
            title="Diffusion MRI (simulated)",
            file="diffusion.nii.gz",
            noise="Rician, sigma 10",
        ),
    )
}


def names() -> tuple[str, ...]:
    """Names of the samples.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> from napari_gpu_denoise import samples
    >>> samples.names()
    ('fluorescence', 'mri', 'ultrasound', 'diffusion')
    """
    return tuple(_SAMPLES)


def path(name: str) -> Path:
    """Path of a sample's file.

    Parameters
    ----------
    name : str
        One of `names`.

    Returns
    -------
    Path

    Raises
    ------
    FileError
        If there is no sample of this name, or its file is missing.
    """
    file = info(name).file
    for folder in _FOLDERS:
        if (folder / file).is_file():
            return folder / file
    raise FileError(f"The sample {file} is not installed: it is in sample_data of the repository.")


def info(name: str) -> Sample:
    """Description of a sample: noise, origin, licence.

    Parameters
    ----------
    name : str
        One of `names`.

    Returns
    -------
    Sample

    Raises
    ------
    FileError
        If there is no sample of this name.
    """
    try:
        return _SAMPLES[name]
    except KeyError:
        near = difflib.get_close_matches(str(name), _SAMPLES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(_SAMPLES)}."
        raise FileError(f"There is no sample {name!r}: {hint}") from None
