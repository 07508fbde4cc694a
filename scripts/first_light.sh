#!/bin/sh
# Install napari-gpu-denoise into .venv, denoise a built-in sample stack, and say where the result is.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh

install_with_extra cpu
# The OpenCL that pip brings for the CPU is too old for newer processors; Debian's is not. Root is asked for only then.
has_device || system_packages pocl-opencl-icd

.venv/bin/gpu-denoise devices
.venv/bin/gpu-denoise sample fluorescence -o first_light_noisy.tif --overwrite
.venv/bin/gpu-denoise nl-means first_light_noisy.tif -o first_light.tif --overwrite
say "The noisy stack is in $PWD/first_light_noisy.tif, the denoised one in $PWD/first_light.tif."
