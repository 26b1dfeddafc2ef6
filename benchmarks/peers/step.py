# SPDX-License-Identifier: Apache-2.0
"""What the Python step benchmarks share: options, the timed loop, the JSON line. Options and keys are those of train_step.cpp."""
import argparse
import json
import os
import resource
import time

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"


def options(kinds):
    parser = argparse.ArgumentParser(description="Times training steps on the processor, dropout on; prints one JSON line.")
    parser.add_argument("--data", required=True, help="JSONL with query and positive")
    parser.add_argument("--model", required=True, help="folder of a BERT model")
    parser.add_argument("--kind", choices=kinds, default=kinds[0])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=12, help="timed steps")
    parser.add_argument("--warmup", type=int, default=3, help="steps before them")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--doc-length", type=int, default=180)
    return parser.parse_args()


def rows_of(args):
    """As many rows as all steps take, from the file's start."""
    wanted = args.batch * (args.steps + args.warmup)
    with open(args.data, encoding="utf8") as file:
        rows = [json.loads(line) for line, _ in zip(file, range(wanted))]
    if len(rows) < wanted:
        raise SystemExit(f"{args.data} has {len(rows)} rows, {wanted} are needed")
    return rows


def run(args, peer, model, loss, tokenize):
    """`tokenize(queries, positives)` gives the two feature dicts of a step."""
    import torch

    rows = rows_of(args)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-6, fused=True)
    seconds, losses, real, computed = [], [], 0, 0
    for step in range(args.warmup + args.steps):
        chunk = rows[step * args.batch:(step + 1) * args.batch]
        begin = time.perf_counter()
        features = tokenize([row["query"] for row in chunk], [row["positive"] for row in chunk])
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.precision == "bf16"):
            value = loss(features, None)
        if isinstance(value, dict):
            value = sum(value.values())
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step >= args.warmup:
            seconds.append(time.perf_counter() - begin)
            real += sum(int(side["attention_mask"].sum()) for side in features)
            computed += sum(side["attention_mask"].numel() for side in features)
        losses.append(value.item())
    print(json.dumps({"peer": peer, "precision": args.precision, "batch": args.batch, "pairs_per_s": args.batch * args.steps / sum(seconds),
                      "median_step": sorted(seconds)[len(seconds) // 2], "tokens": real, "padded": computed,
                      "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                      "first_loss": losses[0], "last_loss": losses[-1]}))
