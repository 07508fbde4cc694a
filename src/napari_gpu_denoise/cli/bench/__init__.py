"""Time filters on a device, on synthetic input: ``gpu-denoise bench``."""

from napari_gpu_denoise.cli.bench.command import add_arguments, run
from napari_gpu_denoise.cli.bench.inputs import SIGMA, synthetic
from napari_gpu_denoise.cli.bench.kernels import Timing, measure
from napari_gpu_denoise.cli.bench.report import table

__all__ = ["SIGMA", "Timing", "add_arguments", "measure", "run", "synthetic", "table"]
