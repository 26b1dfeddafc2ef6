#!/usr/bin/env bash
# Checks a machine with a GPU in under five minutes: the tests that need one, then training steps of a ColBERT and a dense model.
# usage: scripts/gpu_check.sh [FOLDER]     FOLDER: one built elsewhere with the preset `cuda`, so that nothing is compiled here
# environment: TOLLER_LIBTORCH (a LibTorch with CUDA; default: the one of python3, else scripts/setup.sh brings one),
#              TOLLER_MINILM (the model to time; default: random weights of its shape)
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build/cuda}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
failed=0
say() { printf '[gpu] %s (%d s)\n' "$*" "$SECONDS"; }
step() { # NAME SECONDS COMMAND...: what it printed is shown if it fails
  local name=$1 limit=$2 status=0; shift 2
  timeout -k 5 "$limit" "$@" >"$work/log" 2>&1 || status=$?
  if [ $status = 0 ]; then say "$name: ok"; return; fi
  say "$name: FAILED with $status"; tail -n 40 "$work/log"; failed=1; return 1
}

libtorch=${TOLLER_LIBTORCH:-$(python3 -c 'import torch; print(torch.__path__[0])' 2>/dev/null)}
if [ -z "$libtorch" ] && [ $# = 0 ]; then
  export TOLLER_CUDA=ON TOLLER_DEPS=${TOLLER_DEPS:-$root/.deps/cuda}
  "$root/scripts/setup.sh" || exit 1
  libtorch=$TOLLER_DEPS/torch
fi
home=$(find -L "$libtorch" -maxdepth 6 -name libtorch_cuda.so -printf '%h\n' -quit 2>/dev/null)
[ -n "$home" ] || { say "no libtorch_cuda.so in ${libtorch:-this machine}: set TOLLER_LIBTORCH"; exit 1; }

if [ $# = 0 ]; then
  targets=(toller_test_cuda toller_rank_program toller_benchmark_train_step)
  step configure 60 cmake -S "$root" --preset cuda -B "$build" -DTOLLER_LIBTORCH="$libtorch" || exit 1
  step build 240 cmake --build "$build" -j "$(nproc)" --target "${targets[@]}" || exit 1
else   # its programs look for LibTorch where they were built
  LD_LIBRARY_PATH=$(printf '%s:' "$home" "$home"/../../nvidia/*/lib "$build")${LD_LIBRARY_PATH:-}
  export LD_LIBRARY_PATH TOLLER_GOLDEN=$root/tests/golden
fi
devices=$(timeout 60 "$build/tests/toller_rank_program" devices)
[ "${devices:-0}" -gt 0 ] || { say "no CUDA device can be used"; exit 1; }
say "$devices CUDA device(s): $(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | sort | uniq -c | xargs)"

if [ $# = 0 ]; then
  step tests 150 ctest --test-dir "$build" -L cuda --output-on-failure --no-tests=error
else   # ctest knows the programs by where they were built
  step tests 90 "$build/tests/toller_test_cuda"
  step ranks 90 python3 "$root/tests/cuda/ranks_test.py" "$build/tests/toller_rank_program"
fi

python3 - "$work" "$root/tests/golden/encoders/bert_classifier" <<'PYTHON' || exit 1
"""Pairs of random words, and a model of MiniLM's shape with random weights: how long a step takes is the same."""
import array, json, pathlib, random, shutil, struct, sys
work, tiny = map(pathlib.Path, sys.argv[1:])
draw = random.Random(7)
words = [w for w in json.loads((tiny / "tokenizer.json").read_text())["model"]["vocab"] if w.isalpha()]
text = lambda mean: " ".join(draw.choices(words, k=draw.randint(mean // 2, mean * 3 // 2)))
(work / "pairs.jsonl").write_text("".join(json.dumps({"query": text(8), "positive": text(100)}) + "\n" for _ in range(8000)))
shutil.copytree(tiny, work / "model")
config = json.loads((tiny / "config.json").read_text())
H, I, L = 384, 1536, 6
config.update(vocab_size=30522, hidden_size=H, intermediate_size=I, num_hidden_layers=L, num_attention_heads=12,
              max_position_embeddings=512, type_vocab_size=2, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
(work / "model/config.json").write_text(json.dumps(config))
shapes = {f"embeddings.{n}_embeddings.weight": [r, H] for n, r in (("word", 30522), ("position", 512), ("token_type", 2))}
def add(name, *shape):
    shapes.update({name + ".weight": list(shape), name + ".bias": list(shape[:1])})
add("embeddings.LayerNorm", H)
for i in range(L):
    at = f"encoder.layer.{i}."
    for name, *shape in (("attention.self.query", H, H), ("attention.self.key", H, H), ("attention.self.value", H, H),
                         ("attention.output.dense", H, H), ("attention.output.LayerNorm", H), ("intermediate.dense", I, H),
                         ("output.dense", H, I), ("output.LayerNorm", H)):
        add(at + name, *shape)
noise, header, data = array.array("f", (draw.gauss(0, 0.02) for _ in range(99991))), {}, bytearray()
for name, shape in shapes.items():
    count, begin = shape[0] * (shape[1] if len(shape) > 1 else 1), len(data)
    values = array.array("f", [1.0]) * count if name.endswith("LayerNorm.weight") else (noise * (count // len(noise) + 1))[:count]
    data += values.tobytes()
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
text = json.dumps(header).encode()
(work / "model/model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
PYTHON

for kind in colbert dense; do
  for precision in fp32 bf16; do
    step "$kind in $precision" 40 "$build/benchmarks/train_step" --device cuda --kind $kind --precision $precision \
      --model "${TOLLER_MINILM:-$work/model}" --data "$work/pairs.jsonl" --batch 128 --steps 20 --warmup 5 || continue
    tail -n 1 "$work/log" | tee -a "$work/times"
  done
done

say "$([ $failed = 0 ] && echo "all good" || echo "FAILED") on $devices device(s)"
exit $failed
