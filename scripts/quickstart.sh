#!/usr/bin/env bash
# From a bare Debian 12 to a fine-tuned retriever: installs, builds, fetches a model and text, trains, and prints nDCG@10 and
# MRR@10 of held-out queries before and after. Works again without a network once everything is fetched.
# usage: scripts/quickstart.sh [--recipe colbert|dense] [--model DIR] [--data FILE.jsonl] [--output DIR] [any option of `toller train`]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
recipe=colbert model= data= output= extra=()
while [ $# -gt 0 ]; do
  case $1 in
    --recipe) recipe=${2:?--recipe needs colbert or dense}; shift 2 ;;
    --model) model=${2:?--model needs a folder}; shift 2 ;;
    --data) data=${2:?--data needs a JSONL file}; shift 2 ;;
    --output) output=${2:?--output needs a folder}; shift 2 ;;
    -h|--help) sed -n '2,4s/^# //p' "$0"; exit 0 ;;
    *) extra+=("$1"); shift ;;
  esac
done
case $recipe in colbert|dense) ;; *) echo "quickstart: unknown recipe '$recipe': it must be colbert or dense" >&2; exit 2 ;; esac

scripts/setup.sh
cmake --preset release -DTOLLER_BUILD_TESTS=OFF -DTOLLER_BUILD_BENCHMARKS=OFF >/dev/null
cmake --build build/release --target toller_program -j "$(nproc)"
toller=build/release/examples/toller

if [ -z "$model" ]; then scripts/fetch_model.sh; model=models/all-MiniLM-L6-v2; fi
if [ -z "$data" ]; then scripts/fetch_data.sh; data=data/debian_pairs.jsonl; fi
[ -n "$output" ] || output=models/$recipe-quickstart
python3 scripts/hold_out.py "$data" data/held_out --documents 5000 --queries 500

case $recipe in
  # No markers and no query expansion: the encoder never saw such tokens, and a fresh head starts far better without them. Many
  # negatives a step, and a faster rate for the head, which starts from nothing.
  colbert) set -- --fresh-head --query-prefix "" --document-prefix "" --query-expansion false --batch-size 128 --steps 75 \
               --warmup 7 --lr 1e-4 --head-lr 1e-3 --temperature 0.25 ;;
  dense) set -- --batch-size 32 --steps 200 --warmup 20 --lr 3e-5 ;;
esac
exec "$toller" train "$recipe" --model "$model" --data data/held_out/train.jsonl --eval data/held_out --output "$output" "$@" ${extra[@]+"${extra[@]}"}
