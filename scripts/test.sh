#!/bin/sh
# Install what the tests need, system packages included, and run them all, in two processes.
# Arguments go to pytest: `--all-devices` tests every OpenCL device, not only the one in use.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh

# This may itself need a system package; those that follow are installed beside those of Python.
make_environment
# An OpenCL for the CPU, and a screen and OpenGL for napari.
system_packages pocl-opencl-icd xvfb xauth libegl1 libgl1 libgl1-mesa-dri libglx-mesa0 \
    libxkbcommon-x11-0 libxcb-cursor0 libxcb-icccm4 libxcb-keysyms1 libxcb-shape0 \
    libxcb-render-util0 libxcb-image0 libdbus-1-3 libfontconfig1 libglib2.0-0 &
install_with_extra test
wait $!  # ends this script if they could not be installed

# Tests start many processes, each of which would compile all that it imports.
unset PYTHONDONTWRITEBYTECODE

.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/typos
.venv/bin/lint-imports
.venv/bin/python -m pytest -n 2 --dist worksteal --durations=10 "$@"
