"""Noise of an image: estimating it."""

from napari_gpu_denoise.noise.estimate import NoiseEstimate, estimate_noise

__all__ = ["NoiseEstimate", "estimate_noise"]
