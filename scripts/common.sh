# Shared by first_light.sh and test.sh: system packages and a virtual environment. Sourced, not run.

say() { printf '%s\n' "$*" >&2; }

fail() {
    say "$*"
    exit 1
}

# Install Debian packages that are missing; elsewhere the user's system is trusted to have them.
system_packages() {
    if ! command -v apt-get >/dev/null; then
        say "No apt-get here: these packages of Debian, or yours of the like, are taken as installed: $*"
        return
    fi
    missing=
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    root=
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || fail "Root is needed to install$missing: run this as root, or install sudo."
        root=sudo
    fi
    say "Installing$missing"
    # A list that cannot be refreshed may still do.
    $root apt-get update -qq || say "The package lists could not be refreshed; going on with those at hand."
    # shellcheck disable=SC2086
    $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null ||
        fail "apt-get could not install$missing: see above."
}

find_python() {
    for python in python3.11 python3.12 python3.13 python3; do
        if command -v "$python" >/dev/null && "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
            echo "$python"
            return
        fi
    done
    fail "Python 3.11 or newer is needed: install it first."
}

# Make the virtual environment .venv, if it is not there. With the pip of Python 3.11 it takes thrice as long to find
# out what to install.
make_environment() {
    .venv/bin/python -m pip --version >/dev/null 2>&1 && return
    python=$(find_python)
    "$python" -c 'import ensurepip' 2>/dev/null || system_packages python3-venv
    "$python" -m venv --clear --upgrade-deps .venv || fail "$python could not make a virtual environment in .venv."
}

# Install this checkout with the given extra into .venv. What is never imported is not compiled.
install_with_extra() {
    make_environment
    say "Installing napari-gpu-denoise[$1] into .venv"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --editable ".[$1]" ||
        fail "pip could not install napari-gpu-denoise[$1]: see above."
}

# Whether there is an OpenCL device that passes its test.
has_device() {
    .venv/bin/python -c 'import napari_gpu_denoise as gd; gd.choose()' 2>/dev/null
}

# Install an OpenCL for processors for which the one that pip brings is too old: Debian's, or without root Intel's from
# pip, which runs on AMD's processors as well.
newer_cpu_driver() {
    if [ "$(id -u)" = 0 ] || command -v sudo >/dev/null; then
        system_packages pocl-opencl-icd
        return
    fi
    say "Without root, Intel's OpenCL for CPUs is installed into .venv (0.8 GB)."
    .venv/bin/python -m pip install --quiet --disable-pip-version-check intel-opencl-rt intel-cmplr-lib-rt ||
        fail "pip could not install Intel's OpenCL: see above."
    # Its packages hold an .icd with a path that is not there.
    mkdir -p .venv/etc
    echo "$PWD/.venv/lib/libintelocl.so" >.venv/etc/intel.icd
    export OCL_ICD_VENDORS="$PWD/.venv/etc"
    say "Before you use the environment again: export OCL_ICD_VENDORS=$OCL_ICD_VENDORS"
}
