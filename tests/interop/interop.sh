#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Do the Python libraries load what toller saves, and toller what they save? Ends with "N passed, M failed".
#
#   tests/interop/interop.sh PATH_OF_TOLLER [WORK_FOLDER]
#
# scripts/peers_venvs.sh makes the Python environments once (TOLLER_PEERS names a folder with ready ones). Skips, with the
# reason, when the disk has less than 15 GB. WORK_FOLDER: default build/interop.
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

status=0
venvs=$("$here/../../scripts/peers_venvs.sh" "$here/../../build/peers") || status=$?
if [ "$status" = 3 ]; then
  echo "skipped: the Python environments need 15 GB of disk"
  exit 0
fi
[ "$status" = 0 ] || exit "$status"

minilm=${TOLLER_MINILM:-}
if [ -z "$minilm" ]; then
  minilm=$(cd "$here/../.." && pwd)/models/all-MiniLM-L6-v2
  "$here/../../scripts/fetch_model.sh" "$minilm"
fi
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
exec "$venvs/base/bin/python" "$here/interop.py" --toller "$toller" --venvs "$venvs" --work "$work/run" --minilm "$minilm"
