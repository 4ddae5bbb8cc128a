#!/usr/bin/env bash
# Builds the digit classifier and runs it on the 2,000 test digits. Arguments go to the classifier, for example
#   scripts/demo.sh --device cpu --image my_digit.png
# On a fresh Debian 12+ or Ubuntu 24.04+ machine run it as root: it installs what it needs. Safe to run again.
set -euo pipefail
caller=$PWD
cd "$(dirname "$0")/.."
root=$PWD

scripts/packages.sh g++ cmake ninja-build libeigen3-dev libfmt-dev nlohmann-json3-dev libcli11-dev \
  libpng-dev libjpeg-dev zlib1g-dev
options=(-DBURIN_TESTS=OFF -DBURIN_BENCH=OFF -DBURIN_WERROR=OFF)
[ -e /dev/nvidiactl ] || options+=(-DBURIN_CUDA=OFF)  # the CUDA code is most of the build, and useless without a GPU
log=build/demo.log
mkdir -p build
cmake --preset release "${options[@]}" -B build/demo >"$log" 2>&1 || { tail -n 40 "$log" >&2; exit 1; }
if [ -t 1 ]; then
  echo "Building, a few minutes the first time ..."
  cmake --build build/demo --target cnn
else
  cmake --build build/demo --target cnn >>"$log" 2>&1 || { tail -n 40 "$log" >&2; exit 1; }
fi
cd "$caller"  # so that --image takes the caller's paths
exec "$root/build/demo/examples/cnn" "$@"
