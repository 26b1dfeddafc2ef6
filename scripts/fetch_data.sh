#!/usr/bin/env bash
# Makes 58k real retrieval pairs out of Debian's package descriptions: the one-line synopsis is the query, the long text the positive.
# usage: scripts/fetch_data.sh [FILE.jsonl]        default: data/debian_pairs.jsonl of this checkout; does nothing when it is there
# needs: apt (Debian or Ubuntu) and python3; no root, and the system's package lists stay as they are
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
pairs=${1:-$root/data/debian_pairs.jsonl}
[ ! -s "$pairs" ] || { echo "[data] ready: $pairs"; exit 0; }

echo "[data] fetching the package descriptions of this Debian release"
mkdir -p "$(dirname "$pairs")"
work=$(mktemp -d)
trap 'rm -rf "$work" "$pairs.part"' EXIT
mkdir -p "$work/lists/partial"
apt-get -qq -o Acquire::Languages=en -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work" -o APT::Sandbox::User=root update
# The release itself only: its updates and security fixes repeat packages.
find "$work/lists" -name '*_main_i18n_Translation-en*' ! -name '*security*' ! -name '*updates*' ! -name '*backports*' \
  -exec /usr/lib/apt/apt-helper cat-file {} + > "$work/descriptions"
[ -s "$work/descriptions" ] || { echo "[data] apt gave no English descriptions" >&2; exit 1; }

python3 - "$work/descriptions" "$pairs.part" <<'PY'
import json
import random
import re
import sys

UNWANTED = re.compile(r"transitional|dummy|debug symbols|-dbg$")


def packages(path):
    """(name, synopsis, long description) of each stanza."""
    with open(path, encoding="utf8") as file:
        for stanza in file.read().split("\n\n"):
            fields, body = {}, []
            for line in stanza.split("\n"):
                if line[:1] == " ":
                    if line.strip() != ".":
                        body.append(line.strip())
                else:
                    key, _, value = line.partition(": ")
                    fields[key] = value
            yield fields.get("Package", ""), fields.get("Description-en", ""), " ".join(body)


rows, known = [], set()
for package, synopsis, text in packages(sys.argv[1]):
    if not package or not synopsis or len(text) < 80 or UNWANTED.search(package + synopsis):
        continue
    if synopsis in known or text in known:
        continue
    known.update((synopsis, text))
    rows.append((package, synopsis, text))
rows.sort()
random.Random(0).shuffle(rows)
with open(sys.argv[2], "w", encoding="utf8") as out:
    for package, synopsis, text in rows:
        out.write(json.dumps({"id": package, "query": synopsis, "positive": text}) + "\n")
print(f"[data] {len(rows)} pairs")
PY
mv "$pairs.part" "$pairs"
echo "[data] ready: $pairs"
