"""The filters, one a file; `FILTERS` is the list that every front end reads."""

from napari_gpu_denoise.filters.bm3d import BM3D
from napari_gpu_denoise.filters.isoline import Isoline
from napari_gpu_denoise.filters.nl_means import NLMeans
from napari_gpu_denoise.filters.vbm3d import VBM3D

FILTERS = (NLMeans, BM3D, VBM3D, Isoline)
