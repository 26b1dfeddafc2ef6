#!/usr/bin/env bash
# Brings everything a build needs on Debian 12: compilers and small libraries from apt, LibTorch and Catch2 into .deps/.
# usage: scripts/setup.sh [more apt packages ...]        needs: apt and root (or sudo) only for what is missing
# environment: TOLLER_TORCH_VERSION (default 2.11.0, also tested: 2.15.0), TOLLER_DEPS (default .deps beside this checkout),
#              TOLLER_CUDA=ON for torch with all its CUDA packages (5 GB), which the preset `cuda` wants
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
deps=${TOLLER_DEPS:-$root/.deps}
torch=${TOLLER_TORCH_VERSION:-2.11.0}
cuda=${TOLLER_CUDA:-OFF}
mkdir -p "$deps"

say() { printf '[setup] %s\n' "$*"; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# --- packages of the distribution ------------------------------------------------------------------------------------
packages=(g++ cmake ninja-build git ca-certificates python3-venv librange-v3-dev nlohmann-json3-dev libutf8proc-dev libcli11-dev "$@")
missing=()
for p in "${packages[@]}"; do dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p"); done
if [ ${#missing[@]} -gt 0 ]; then
  say "installing ${missing[*]}"
  as_root apt-get -qq update
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
fi

# --- Catch2 3, from backports, unpacked beside the checkout: the system's package sources stay as they are ------------
fetch_catch2() (
  set -e
  work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
  mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Suite: stable' 2>/dev/null | head -n 1)
  [ -n "$mirror" ] || mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep debian.org | head -n 1)
  mkdir -p "$work/lists/partial" "$work/archives/partial"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bookworm-backports main" > "$work/backports.list"
  apt_private=(-qq -o Dir::Etc::SourceList="$work/backports.list" -o Dir::Etc::SourceParts=/nonexistent
               -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work" -o Dir::Cache::archives="$work/archives" -o APT::Sandbox::User=root)
  apt-get "${apt_private[@]}" update
  cd "$work"
  apt-get "${apt_private[@]}" download libcatch2-dev
  rm -rf "$deps/catch2.part"
  dpkg -x "$work"/libcatch2-dev_*.deb "$deps/catch2.part"
  rm -rf "$deps/catch2"
  mv "$deps/catch2.part" "$deps/catch2"
)
if [ ! -f "$deps/catch2/usr/include/catch2/catch_all.hpp" ]; then
  say "fetching Catch2 3 from bookworm-backports"
  fetch_catch2 || say "no Catch2 from backports: CMake will download it"
fi

# --- LibTorch: the torch wheel without its CUDA packages, and the two NVIDIA wheels that libtorch_cpu.so needs --------
case $torch in 2.1[0-2].*) series=13.0 ;; *) series=13.2 ;; esac
wheels=("torch==$torch" "nvidia-cuda-runtime==$series.*" "nvidia-cuda-cupti==$series.*")
ready=$deps/torch/ready-$torch-cuda-$cuda
if [ ! -f "$ready" ]; then
  rm -rf "$deps/torch"
  python3 -m venv "$deps/torch"
  pip=("$deps/torch/bin/python" -m pip install -q --disable-pip-version-check)
  if [ "$cuda" = ON ]; then
    say "fetching LibTorch $torch with CUDA (5 GB)"
    "${pip[@]}" "torch==$torch" "nvidia-cuda-crt==$series.*" "nvidia-cuda-cccl==$series.*"   # headers that CUDA's own include
  else
    say "fetching LibTorch $torch (530 MB)"
    "${pip[@]}" --no-deps "${wheels[@]}"
  fi
  touch "$ready"
fi
say "ready: $deps"
