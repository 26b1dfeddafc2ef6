#!/usr/bin/env bash
# Brings everything a build needs on Debian 12: compilers and small libraries from apt, LibTorch and Catch2 into .deps/.
# usage: scripts/setup.sh            needs: apt and root (or sudo) only for what is missing
# environment: TOLLER_TORCH_VERSION (default 2.11.0), TOLLER_DEPS (default .deps beside this checkout)
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
deps=${TOLLER_DEPS:-$root/.deps}
torch=${TOLLER_TORCH_VERSION:-2.11.0}
mkdir -p "$deps"

say() { printf '[setup] %s\n' "$*"; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# --- packages of the distribution ------------------------------------------------------------------------------------
packages=(g++ cmake ninja-build git python3-venv librange-v3-dev nlohmann-json3-dev libutf8proc-dev libcli11-dev)
missing=()
for p in "${packages[@]}"; do dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p"); done
if [ ${#missing[@]} -gt 0 ]; then
  say "installing ${missing[*]}"
  as_root apt-get -qq update
  DEBIAN_FRONTEND=noninteractive as_root apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
fi

# --- Catch2 3, from backports, unpacked beside the checkout: the system's package sources stay as they are ------------
if [ ! -f "$deps/catch2/usr/include/catch2/catch_all.hpp" ]; then
  say "fetching Catch2 3 from bookworm-backports"
  work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
  mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Suite: stable' 2>/dev/null | head -n 1)
  [ -n "$mirror" ] || mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -m1 debian.org)
  mkdir -p "$work/lists/partial" "$work/archives/partial"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bookworm-backports main" > "$work/backports.list"
  apt_private=(-qq -o Dir::Etc::SourceList="$work/backports.list" -o Dir::Etc::SourceParts=/nonexistent
               -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work" -o Dir::Cache::archives="$work/archives" -o APT::Sandbox::User=root)
  apt-get "${apt_private[@]}" update
  (cd "$work" && apt-get "${apt_private[@]}" download libcatch2-dev)
  rm -rf "$deps/catch2.part"; dpkg -x "$work"/libcatch2-dev_*.deb "$deps/catch2.part"
  rm -rf "$deps/catch2"; mv "$deps/catch2.part" "$deps/catch2"
fi

# --- LibTorch: the torch wheel without its CUDA packages, and the two NVIDIA wheels that libtorch_cpu.so needs --------
have=$("$deps/torch/bin/python" -c 'import importlib.metadata as m; print(m.version("torch"))' 2>/dev/null || true)
if [ "$have" != "$torch" ]; then
  say "fetching LibTorch $torch (530 MB)"
  rm -rf "$deps/torch"
  python3 -m venv "$deps/torch"
  case $torch in 2.1[0-2].*) cuda=13.0 ;; *) cuda=13.2 ;; esac
  "$deps/torch/bin/pip" install -q --no-deps --disable-pip-version-check \
    "torch==$torch" "nvidia-cuda-runtime==$cuda.*" "nvidia-cuda-cupti==$cuda.*"
fi
say "ready: $deps"
