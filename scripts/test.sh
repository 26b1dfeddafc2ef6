#!/usr/bin/env bash
# Builds and runs every test, from nothing on a bare Debian 12; ends with ctest's summary. Both compilers must be silent.
# usage: scripts/test.sh [ctest options, e.g. -L unit]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
say() { printf '[test] %s (%d s)\n' "$*" "$SECONDS"; }

extra=(openmpi-bin iproute2)   # for the tests of several ranks
command -v clang++ >/dev/null || extra+=(clang)
scripts/setup.sh "${extra[@]}"
scripts/fetch_model.sh
export TOLLER_MINILM=${TOLLER_MINILM:-$root/models/all-MiniLM-L6-v2}

# A compiler takes up to 1.1 GB.
jobs=$(awk -v cores="$(nproc)" '/MemAvailable/ { fit = int($2 / 1153434); print fit < 1 ? 1 : fit < cores ? fit : cores }' /proc/meminfo)
say "building with g++, $jobs jobs"
cmake --preset dev -DTOLLER_MINILM="$TOLLER_MINILM"
cmake --build --preset dev -j "$jobs"
say "building the program and a test with clang++"
cmake --preset clang -DTOLLER_BUILD_BENCHMARKS=OFF
cmake --build --preset clang -j "$jobs" --target toller_program toller_test_core
build/clang/tests/toller_test_core

say "running the tests"
ctest --preset dev -j "$jobs" --no-tests=error "$@"
