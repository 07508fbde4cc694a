"""Make the pictures of the pages on filters: a sample before and after, and beside its truth.

    python docs/make_filter_pictures.py

Writes ``docs/images/filters``. Needs an OpenCL device, and Qt for the words above the images.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
from imagecodecs import jpeg_encode
from qtpy.QtCore import QRect, Qt
from qtpy.QtGui import QGuiApplication, QImage, QPainter

import napari_gpu_denoise as gd

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "sample_data"))
import make_samples  # noqa: E402

FOLDER = HERE / "images" / "filters"
AXES = {"fluorescence": "TYX", "mri": "ZYX", "ultrasound": "TYX", "diffusion": "DZYX"}
# The part of a sample that is shown, and how many times larger.
PARTS = {
    "fluorescence": (np.s_[8, 32:160, 40:168], 2),
    "mri": (np.s_[12, 4:90, 4:90], 3),
    "ultrasound": (np.s_[12, 20:148, 24:152], 2),
    "diffusion": (np.s_[-1, 10], 5),
}
# Of each filter: the sample, and sigma where it is not measured.
SHOWN = {
    "nl_means": ("fluorescence", None),
    "nl_means_pixelwise": ("mri", None),
    "swnlm": ("fluorescence", None),
    "bm3d": ("fluorescence", None),
    "vbm3d": ("fluorescence", None),
    "bm4d": ("mri", None),
    "isoline": ("ultrasound", 50),
    "subspace": ("diffusion", None),
}
TOGETHER = "nl_means", "nl_means_pixelwise", "swnlm", "isoline", "bm3d", "vbm3d"
GAP = 4  # white pixels between two images
HEAD = 20  # pixels, height of the words above an image
QUALITY = 82  # of JPEG, in per cent


def denoise(kind: type, sample: str, noisy: np.ndarray, sigma: float | None) -> np.ndarray:
    """Denoise a sample with the defaults of a filter."""
    return gd.denoise(noisy, kind(), sigma, axes=AXES[sample], dtype="float32").image


def words(text: str, width: int) -> np.ndarray:
    """Draw a text, black on white, in the middle of the head of an image."""
    image = QImage(width, HEAD, QImage.Format.Format_Grayscale8)
    image.fill(255)
    painter = QPainter(image)
    font = painter.font()
    font.setPixelSize(14)
    painter.setFont(font)
    painter.drawText(QRect(0, 0, width, HEAD), Qt.AlignmentFlag.AlignCenter, text)
    painter.end()
    bits = image.constBits()
    bits = bits if isinstance(bits, memoryview) else bits.asstring(image.sizeInBytes())
    return np.frombuffer(bits, np.uint8).reshape(HEAD, -1)[:, :width].copy()


def row(images: dict[str, np.ndarray], low: float, high: float, zoom: int) -> np.ndarray:
    """Stretch images alike, enlarge them, and place them side by side under their names."""
    pieces = []
    for name, image in images.items():
        grey = np.uint8(255 * np.clip((image - low) / (high - low), 0, 1) ** 0.8 + 0.5)
        grey = np.kron(grey, np.ones((zoom, zoom), np.uint8))
        pieces.append(np.vstack([words(name, grey.shape[1]), grey]))
        pieces.append(np.full((len(pieces[0]), GAP), 255, np.uint8))
    return np.hstack(pieces[:-1])


def save(name: str, picture: np.ndarray) -> None:
    """Write a picture, and print its size."""
    path = FOLDER / f"{name}.jpg"
    path.write_bytes(jpeg_encode(picture, level=QUALITY))
    print(f"{path.name}: {picture.shape[1]} x {picture.shape[0]}, {path.stat().st_size} bytes")


def main() -> None:
    """Make all pictures."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    application = QGuiApplication.instance() or QGuiApplication(sys.argv[:1])
    assert application
    FOLDER.mkdir(exist_ok=True)
    samples = {name: getattr(make_samples, name)() for name in AXES}
    kinds = {kind.name: kind for kind in (*gd.FILTERS, gd.Subspace)}
    for name, (sample, sigma) in SHOWN.items():
        (truth, noisy), (part, zoom) = samples[sample], PARTS[sample]
        result = denoise(kinds[name], sample, noisy, sigma)
        low, high = np.percentile(noisy[part], 0.5), np.percentile(truth[part], 99.8)
        title = kinds[name].title + (f", sigma {sigma}" if sigma else "")
        shown = {f"{sample}, noisy": noisy[part], title: result[part], "truth": truth[part]}
        save(name, row(shown, low, high, zoom))

    truth, noisy = samples["fluorescence"]
    part = np.s_[8, 40:136, 56:152]
    shown = {"noisy": noisy[part]}
    for name in TOGETHER:
        shown[kinds[name].title] = denoise(kinds[name], "fluorescence", noisy, None)[part]
    shown = list({**shown, "truth": truth[part]}.items())
    low, high = np.percentile(noisy[part], 0.5), np.percentile(truth[part], 99.8)
    save("all", np.vstack([row(dict(half), low, high, 2) for half in (shown[:4], shown[4:])]))


if __name__ == "__main__":
    main()
