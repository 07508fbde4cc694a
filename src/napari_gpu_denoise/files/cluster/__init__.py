"""Files filtered part by part by workers of dask.distributed, on this machine or on others.

dask.distributed is imported when it is used; it is an extra of this package.
"""

from napari_gpu_denoise.files.cluster.connect import connected
from napari_gpu_denoise.files.cluster.steps import cluster_steps, device_of_workers

__all__ = ["cluster_steps", "connected", "device_of_workers"]
