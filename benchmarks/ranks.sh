#!/usr/bin/env bash
# Two ranks of one thread, in turn with steps in which the same two processes do not know of each other, with the same work a process.
# Prints medians over the rounds: pairs/s, the ranks' share of what the two reach unconnected, and how much of the gradients' sum is
# hidden behind the backward pass; and the most memory of a rank, against one process with as many rows and against one with the rows
# of both.
# usage: benchmarks/ranks.sh [--rounds 7] [--kind "colbert dense"] [--batch 32] [options of ranks_step ...]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
rounds=7 kinds="colbert dense" batch=32 more=()
while [ $# -gt 0 ]; do
  case $1 in
    --rounds) rounds=${2:?}; shift 2 ;;
    --kind) kinds=${2:?}; shift 2 ;;
    --batch) batch=${2:?}; shift 2 ;;
    -h|--help) sed -n '2,7s/^# //p' "$0"; exit 0 ;;
    *) more+=("$1"); shift ;;
  esac
done
scripts/setup.sh >&2
scripts/fetch_model.sh >&2
scripts/fetch_data.sh >&2
cmake --preset release >/dev/null
cmake --build build/release --target toller_benchmark_ranks_step >&2

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
export OMP_NUM_THREADS=1
step() { build/release/benchmarks/ranks_step --data data/debian_pairs.jsonl --model models/all-MiniLM-L6-v2 --kind "$kind" --batch "$batch" "${more[@]}" "$@"; }
rank() { RANK=$1 WORLD_SIZE=2 LOCAL_RANK=$1 LOCAL_WORLD_SIZE=2 TOLLER_INIT_METHOD="file://$results/meeting-$kind" step --rounds "$rounds"; }
for kind in $kinds; do
  echo "[ranks] $kind" >&2
  step --alone > "$results/$kind.one"
  step --alone --batch $((2 * batch)) > "$results/$kind.both"
  rank 0 > "$results/$kind.ranks" & rank 1 > "$results/other"; wait $!
done
python3 - "$results" $kinds <<'PY'
import json
import sys

folder, *kinds = sys.argv[1:]
print("| kind | one process, pairs/s | two unconnected | two ranks | ranks / unconnected, of each round | hidden | peak MB, a rank | / one, as many rows | / one, all rows |")
print("|---|---|---|---|---|---|---|---|---|")
for kind in kinds:
    one, both, ranks = (json.load(open(f"{folder}/{kind}.{name}", encoding="utf8")) for name in ("one", "both", "ranks"))
    rounds = " ".join(f"{r:.3f}" for r in sorted(ranks["ratios"]))
    print(f"| {kind} | {one['pairs_per_s']:.1f} | {ranks['apart_pairs_per_s']:.1f} | {ranks['pairs_per_s']:.1f} | **{ranks['ratio']:.3f}** ({rounds}) | "
          f"{1 - ranks['exposed_ms'] / ranks['all_reduce_ms']:.0%} of {ranks['all_reduce_ms']:.0f} ms | {ranks['peak_mb']:.0f} | "
          f"{ranks['peak_mb'] / one['peak_mb']:.3f} | {ranks['peak_mb'] / both['peak_mb']:.3f} |")
PY
