"""The filters, one a file; `FILTERS` is the list that every front end reads."""

from napari_gpu_denoise.filters.bm3d.filter import BM3D
from napari_gpu_denoise.filters.bm4d.filter import BM4D
from napari_gpu_denoise.filters.dct3d.filter import DCT3D
from napari_gpu_denoise.filters.isoline.filter import Isoline
from napari_gpu_denoise.filters.nl_means.filter import NLMeans
from napari_gpu_denoise.filters.pixelwise.filter import NLMeansPixelwise
from napari_gpu_denoise.filters.pri_nlm.filter import PRINLM
from napari_gpu_denoise.filters.swnlm.filter import SWNLM
from napari_gpu_denoise.filters.vbm3d.filter import VBM3D

FILTERS = (NLMeans, NLMeansPixelwise, SWNLM, BM3D, VBM3D, BM4D, PRINLM, DCT3D, Isoline)
