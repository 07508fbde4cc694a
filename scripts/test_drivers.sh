#!/bin/sh
# Install the OpenCL implementations for CPUs that Debian and PyPI have, and print for each what the filters make of a
# scene, with its own kernels and with those for GPUs. With --tests, run the contract tests and those of the filters on
# each as well. Tables of docs/develop/drivers.md come from here.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh

make_environment
system_packages pocl-opencl-icd
install_with_extra test

drivers=$PWD/.drivers
mkdir -p "$drivers/none" "$drivers/debian" "$drivers/intel"
cp /etc/OpenCL/vendors/pocl.icd "$drivers/debian"
# Intel's packages hold an .icd with a path that is not there.
if [ ! -e "$drivers/intel_runtime/lib/libintelocl.so" ]; then
    "$(find_python)" -m venv "$drivers/intel_runtime"
    "$drivers/intel_runtime/bin/pip" install --quiet --disable-pip-version-check intel-opencl-rt intel-cmplr-lib-rt
fi
echo "$drivers/intel_runtime/lib/libintelocl.so" >"$drivers/intel/intel.icd"

# Compare one driver: the folder of its .icd, a part of the name of its device or platform, and perhaps an option.
compare() {
    echo
    export OCL_ICD_VENDORS="$drivers/$1"
    .venv/bin/gpu-denoise devices
    .venv/bin/python tests/benchmarks/compare_drivers.py --folder "$drivers/results" --device "$2" --limit 1800 $3
}

# Run tests on the driver that was compared last.
tests() {
    .venv/bin/python -m pytest -n 2 -q --tb no --device "$@" || true
}

# What pip brings is always listed, after those of Debian.
compare debian portable --save
# PoCL names the processor, which may be Intel's.
for driver in debian:portable none:portable "intel:Intel(R) OpenCL"; do
    compare "${driver%:*}" "${driver#*:}"
    [ "${1:-}" = --tests ] || continue
    tests "${driver#*:}" tests/test_contract.py tests/filters
done
