#!/usr/bin/env bash
# Two ranks of one thread against one, and against two processes that do not know of each other, with the same work a process; in turn,
# within one run. Prints medians over the rounds: pairs/s, the ranks' share of what the two unconnected processes reach, how much of
# the gradients' sum is hidden behind the backward pass; and the most memory of a rank, against one process with as many rows and
# against one with the rows of both.
# usage: benchmarks/ranks.sh [--rounds 3] [--kind "colbert dense"] [--batch 32] [options of ranks_step ...]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
rounds=3 kinds="colbert dense" batch=32 more=()
while [ $# -gt 0 ]; do
  case $1 in
    --rounds) rounds=${2:?}; shift 2 ;;
    --kind) kinds=${2:?}; shift 2 ;;
    --batch) batch=${2:?}; shift 2 ;;
    -h|--help) sed -n '2,6s/^# //p' "$0"; exit 0 ;;
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
rank() { RANK=$1 WORLD_SIZE=2 LOCAL_RANK=$1 LOCAL_WORLD_SIZE=2 TOLLER_INIT_METHOD="file://$results/meeting-$2" step; }
for kind in $kinds; do
  for round in $(seq "$rounds"); do
    echo "[ranks] $kind, round $round of $rounds" >&2
    step --alone >> "$results/$kind.one"
    step --alone --batch $((2 * batch)) --steps 3 >> "$results/$kind.both"
    step --alone >> "$results/$kind.left" & step --alone --offset 20000 >> "$results/$kind.right"; wait $!
    rank 0 "$kind-$round" >> "$results/$kind.rank0" & rank 1 "$kind-$round" > "$results/other"; wait $!
  done
done
python3 - "$results" $kinds <<'PY'
import json
import statistics
import sys

folder, *kinds = sys.argv[1:]
print("| kind | one process, pairs/s | two unconnected | two ranks | ranks / unconnected | ranks / one | hidden | peak MB, a rank | / one, as many rows | / one, all rows |")
print("|---|---|---|---|---|---|---|---|---|---|")
for kind in kinds:
    read = lambda name: [json.loads(line) for line in open(f"{folder}/{kind}.{name}", encoding="utf8")]
    one, both, left, right, ranks = read("one"), read("both"), read("left"), read("right"), read("rank0")
    apart = [a["pairs_per_s"] + b["pairs_per_s"] for a, b in zip(left, right)]
    apart_ms = [max(a["step_ms"], b["step_ms"]) for a, b in zip(left, right)]
    ratio = statistics.median(r["pairs_per_s"] / a for r, a in zip(ranks, apart))
    hidden = statistics.median(1 - max(0.0, r["step_ms"] - a) / r["all_reduce_ms"] for r, a in zip(ranks, apart_ms))
    speed = lambda runs: statistics.median(r["pairs_per_s"] for r in runs)
    peak = lambda runs: statistics.median(r["peak_mb"] for r in runs)
    print(f"| {kind} | {speed(one):.1f} | {statistics.median(apart):.1f} | {speed(ranks):.1f} | {ratio:.3f} | {speed(ranks) / speed(one):.2f} | "
          f"{hidden:.0%} of {statistics.median(r['all_reduce_ms'] for r in ranks):.0f} ms | {peak(ranks):.0f} | "
          f"{peak(ranks) / peak(one):.3f} | {peak(ranks) / peak(both):.3f} |")
PY
