#!/usr/bin/env bash
# Builds Burin with warnings as errors and runs every test; the last line counts them. The CUDA code is built where nvcc
# is; its tests are skipped, and counted as skipped, where there is no GPU.
# On a fresh Debian 12+ or Ubuntu 24.04+ machine run it as root: it installs what it needs. Safe to run again.
#   scripts/test.sh [PRESET]      release (default), debug, cpu-only, asan, tsan
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}

scripts/packages.sh g++ cmake ninja-build libeigen3-dev libfmt-dev nlohmann-json3-dev libcli11-dev \
  libpng-dev libjpeg-dev zlib1g-dev libgtest-dev libgmock-dev libbenchmark-dev pkg-config clang-format python3
scripts/format.sh --check

results=$PWD/build/$preset/results
cmake --preset "$preset"
cmake --build --preset "$preset"
rm -rf "$results"
failed=0
GTEST_OUTPUT=xml:$results/ ctest --preset "$preset" --output-junit "$results/ctest.junit" || failed=$?
python3 scripts/count_tests.py "$results"
exit "$failed"
