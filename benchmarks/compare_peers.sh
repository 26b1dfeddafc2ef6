#!/usr/bin/env bash
# Times training steps of toller and of the Python libraries on the same rows, threads and steps, dropout on, one after the other in
# turn, and prints medians over the rounds, ratios to toller, computed / real tokens and peak memory.
# usage: benchmarks/compare_peers.sh [--rounds 3] [--precision "fp32 bf16"] [--kind "colbert dense"] [options of train_step ...]
# environment: TOLLER_PEERS, a folder with ready pylate/ and st6/; without it they are made in build/peers (15 GB)
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
rounds=3 precisions="fp32 bf16" kinds="colbert dense" more=()
while [ $# -gt 0 ]; do
  case $1 in
    --rounds) rounds=${2:?}; shift 2 ;;
    --precision) precisions=${2:?}; shift 2 ;;
    --kind) kinds=${2:?}; shift 2 ;;
    -h|--help) sed -n '2,5s/^# //p' "$0"; exit 0 ;;
    *) more+=("$1"); shift ;;
  esac
done

scripts/setup.sh >&2
scripts/fetch_model.sh >&2
scripts/fetch_data.sh >&2
peers=$(scripts/peers_venvs.sh build/peers)
cmake --preset release >/dev/null
cmake --build build/release --target toller_benchmark_train_step >&2

results=$(mktemp)
trap 'rm -f "$results"' EXIT
common=(--data data/debian_pairs.jsonl --model models/all-MiniLM-L6-v2 --threads "$(nproc)")
run() {   # LABEL KIND PRECISION COMMAND...: appends the JSON line of one run
  local label=$1 kind=$2 precision=$3 line
  shift 3
  line=$("$@" "${common[@]}" --precision "$precision" "${more[@]}" 2>/dev/null | grep '^{' | tail -n 1) || { echo "$label failed: $*" >&2; return 1; }
  printf '%s\t%s\t%s\t%s\n' "$kind" "$precision" "$label" "$line" >> "$results"
}
for kind in $kinds; do
  case $kind in
    colbert) rival=mve ;;
    dense) rival=dense ;;
    *) echo "compare_peers: unknown kind '$kind': it must be colbert or dense" >&2; exit 2 ;;
  esac
  for precision in $precisions; do
    for round in $(seq "$rounds"); do
      echo "[compare] $kind $precision, round $round of $rounds" >&2
      run toller "$kind" "$precision" build/release/benchmarks/train_step --kind "$kind"
      run "$([ "$kind" = colbert ] && echo "PyLate 1.6" || echo "Sentence Transformers 5.3")" "$kind" "$precision" \
        "$peers/pylate/bin/python" benchmarks/peers/pylate_step.py --kind "$kind"
      run "Sentence Transformers 6.2" "$kind" "$precision" "$peers/st6/bin/python" benchmarks/peers/st6_step.py --kind "$rival"
    done
  done
done

python3 - "$results" <<'PY'
import collections
import json
import statistics
import sys

runs = collections.defaultdict(list)
for line in open(sys.argv[1], encoding="utf8"):
    kind, precision, label, result = line.rstrip("\n").split("\t")
    runs[kind, precision, label].append(json.loads(result))
median = lambda rows, key: statistics.median(row[key] for row in rows)
print("| kind | precision | library | pairs/s | toller is faster by | computed / real tokens | peak memory, GB |")
print("|---|---|---|---|---|---|---|")
for (kind, precision, label), rows in runs.items():
    speed = median(rows, "pairs_per_s")
    ratio = median(runs[kind, precision, "toller"], "pairs_per_s") / speed
    print(f"| {kind} | {precision} | {label} | {speed:.1f} | {'' if label == 'toller' else f'{ratio:.2f} x'} "
          f"| {median(rows, 'padded') / median(rows, 'tokens'):.2f} | {median(rows, 'peak_mb') / 1024:.2f} |")
PY
