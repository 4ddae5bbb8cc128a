#!/usr/bin/env bash
# Formats every C++ and CUDA source with clang-format; --check only tells which differ.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(-i)
[ "${1:-}" = "--check" ] && mode=(--dry-run --Werror)
git ls-files -z '*.h' '*.cpp' '*.cu' '*.cuh' | xargs -0 clang-format "${mode[@]}"
