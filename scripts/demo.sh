#!/usr/bin/env bash
# Builds the sample CNN runner and classifies the 2,000 test digits with it. Arguments go to the runner, for example
#   scripts/demo.sh --device cpu --image my_digit.png
# On a fresh Debian 12+ or Ubuntu 24.04+ machine run it as root: it installs what it needs. Safe to run again.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/packages.sh g++ cmake ninja-build libeigen3-dev libfmt-dev nlohmann-json3-dev libcli11-dev \
  libpng-dev libjpeg-dev zlib1g-dev
log=build/demo.log
mkdir -p build
echo "Building (log: $log) ..."
{
  cmake --preset release -DBURIN_TESTS=OFF -DBURIN_BENCH=OFF -B build/demo
  cmake --build build/demo --target cnn
} >"$log" 2>&1 || { tail -n 40 "$log" >&2; exit 1; }
exec build/demo/examples/cnn "$@"
