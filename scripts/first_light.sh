#!/bin/sh
# Install napari-gpu-denoise into .venv, denoise a built-in sample stack, and say where the result is.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh

install_with_extra cpu
has_device || newer_cpu_driver

.venv/bin/gpu-denoise devices
.venv/bin/gpu-denoise sample fluorescence -o first_light_noisy.tif --overwrite
.venv/bin/gpu-denoise nl-means first_light_noisy.tif -o first_light.tif --overwrite
say "The noisy stack is in $PWD/first_light_noisy.tif, the denoised one in $PWD/first_light.tif."
