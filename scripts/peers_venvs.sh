#!/usr/bin/env bash
# Makes the Python environments of the libraries toller is compared with, which share one torch: DIR/{base,pylate,st6}.
# usage: peers=$(scripts/peers_venvs.sh DIR)         prints the folder to use; does nothing where they are ready
# environment: TOLLER_PEERS, a folder where they are ready, is used as it is
# needs: python3 with venv, 15 GB of disk; exit status 3 and a reason when there is less
#
# scripts/peers/*.txt hold every version, those of dependencies too: what was compared stays what is compared. To renew one, install
# what its message below names into a fresh environment, and write the output of `pip list --format=freeze` back without base's.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
peers=${TOLLER_PEERS:-${1:?usage: scripts/peers_venvs.sh DIR}}
say() { printf '[peers] %s\n' "$*" >&2; }
works() {   # the classes that are used: both libraries import theirs, and those of Transformers, only when asked for
  "$peers/pylate/bin/python" -c 'from pylate.models import ColBERT; from transformers import BertModel' &&
    "$peers/st6/bin/python" -c 'from sentence_transformers import SentenceTransformer, MultiVectorEncoder; from transformers import BertModel'
}

if [ -n "${TOLLER_PEERS:-}" ] || [ -f "$peers/ready" ]; then
  if works >/dev/null 2>&1; then echo "$peers"; exit 0; fi
  if [ -n "${TOLLER_PEERS:-}" ]; then say "TOLLER_PEERS=$peers holds no working pylate/ and st6/"; exit 1; fi
fi

mkdir -p "$peers"
peers=$(cd "$peers" && pwd)
free=$(df -Pk "$peers" | awk 'NR == 2 { print int($4 / 1048576) }')
if [ "$free" -lt 15 ]; then say "$free GB of disk are free in $peers, 15 are needed"; exit 3; fi

rm -rf "$peers"/{base,pylate,st6,ready}
install() { "$peers/$1/bin/python" -m pip install -q --no-cache-dir --disable-pip-version-check -r "$here/peers/$1.txt" >&2; }
site() { "$peers/$1/bin/python" -c 'import site; print(site.getsitepackages()[0])'; }
say "torch 2.11.0, numpy, safetensors"
python3 -m venv "$peers/base"
install base
for name in pylate st6; do
  python3 -m venv "$peers/$name"
  site base > "$(site "$name")/base.pth"   # the shared packages come after its own
done
say "pylate 1.6.0, sentence-transformers 5.3.0, transformers 5.3.0"
install pylate
say "sentence-transformers[train] 6.2.0"
install st6
works >&2
touch "$peers/ready"
echo "$peers"
