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
.venv/bin/python scripts/picture.py first_light_noisy.tif first_light.tif first_light.png
say "Open $PWD/first_light.png to see the middle frame, noisy and denoised."
say "The stacks are first_light_noisy.tif and first_light.tif beside it, of 16 bits: for napari or Fiji."
