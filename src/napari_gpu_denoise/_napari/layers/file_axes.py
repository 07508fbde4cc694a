"""Axes and pixel size that the file of a layer names, but napari's own reader does not read."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

from napari.layers import Image
from qtpy.QtWidgets import QPushButton

from napari_gpu_denoise._napari.layers import provenance
from napari_gpu_denoise._napari.layers.source import clear_letters, finest
from napari_gpu_denoise._napari.loading import Loading
from napari_gpu_denoise._napari.parts import wrapped
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.files import formats
from napari_gpu_denoise.files.image_file import SYMBOLS


def attributes_in_file(layer: Image) -> dict[str, Any]:
    """Return what the file of a layer tells and the layer lacks: labels of axes, scale and units.

    Nothing if the file does not hold what the layer does.
    """
    path, shape = layer.source.path, tuple(finest(layer).shape)
    if not path or provenance.file_origin(layer.metadata) is not None:
        return {}
    found: dict[str, Any] = {}
    with suppress(DenoiseError), formats.open_stack(path) as picture:
        lengths = tuple(picture.data.shape)
        order = provenance.layer_order(picture.axes, layer.rgb)
        if len(lengths) != len(shape):
            order = [i for i in order if lengths[i] > 1]  # napari drops the others
        if tuple(lengths[i] for i in order) == shape:
            axes = "".join(picture.axes[i] for i in order)[: layer.ndim]
            found = provenance.placing(picture, axes)
            if clear_letters(layer.axis_labels, layer.ndim) or not set(axes) & set("TZC"):
                del found["axis_labels"]
            placed = set(map(str, layer.units)) != {"pixel"} or set(layer.scale) != {1}
            if placed or not picture.pixel_metadata.steps:
                del found["scale"], found["units"]
    return found


class FileAxes(QPushButton):
    """Offers axes and pixel size of the file of a layer; a click gives them to the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.hide()
        self._layer: Image | None = None
        self._found: dict[str, Any] = {}
        self.clicked.connect(self._give)

    def offer(self, layer: Image | None) -> None:
        """Look into the file of a layer, off the GUI thread; hide where it tells nothing new."""
        self.hide()
        self._layer = layer
        if layer is not None and layer.source.path:
            Loading(partial(attributes_in_file, layer), partial(self._show, layer), self)

    def _show(self, layer: Image, found: dict[str, Any] | None) -> None:
        if not found or layer is not self._layer:
            return
        self._found = found
        axes = "".join(label[:1].upper() for label in found.get("axis_labels", ()))
        self.setText(f"{axes or 'Pixel size'} of the file")
        told = [f"the axes {axes}"] if axes else []
        if "scale" in found:
            symbols = (SYMBOLS.get(unit, unit) for unit in found["units"])
            sizes = (f"{step:g} {unit}" for step, unit in zip(found["scale"], symbols, strict=True))
            told.append(f"pixels of {' x '.join(sizes)}")
        self.setToolTip(wrapped(f"The file names {' and '.join(told)}. Give them to the layer."))
        self.show()

    def _give(self) -> None:
        self.hide()
        for name, value in self._found.items():
            setattr(self._layer, name, value)
