#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bytes that `toller plan` computes are those that 2 and 4 ranks count.

usage: plan_test.py RANK_PROGRAM TOLLER_PROGRAM [TEST ...]"""
import array
import json
import re
import struct
import sys
import tempfile
import unittest
from pathlib import Path

from support import Processes, Program, TINY

ROWS, BATCH, DIM = 40, 8, 16


def documents():
    """The texts of the rank program's rows: of each its positive, then its negative if it has one."""
    source = (Path(__file__).resolve().parents[1] / "support" / "tiny.hpp").read_text()
    pairs = [json.loads(f"[{pair}]") for pair in re.findall(r'\{("[^"]*", "[^"]*")\}', source)]
    assert len(pairs) == 10, pairs
    texts = []
    for i in range(ROWS):
        a, b = pairs[i % 10], pairs[(i * 7 + 3) % 10]
        texts.append(a[1] + " " + b[0])
        if i % 3 == 0:
            texts.append(b[1] + (" " + a[1] if i % 2 == 0 else ""))
    return texts


class Plan(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="toller-plan-")
        self.folder = Path(self.temporary.name)
        self.program = Program(RANKS, self.folder)

    def tearDown(self):
        self.temporary.cleanup()

    def toller(self, *arguments):
        with Processes() as running:
            running.start([TOLLER, *arguments])
            return Program.good(running.wait(120))[0].out

    def counted(self, kind, ranks):
        """Bytes of a step by collective, as a mean over the ranks and over the second epoch's steps: every row once."""
        totals = []
        for steps in (ROWS // BATCH, 2 * ROWS // BATCH):
            _, printed = self.program.ranks(ranks, self.folder / f"out-{steps}", kind, "--steps", steps, "--batch", BATCH, "--counts")
            total = {}
            for name, _, count in re.findall(r"^(\w+) (\d+) (\d+)$", "".join(printed), re.M):
                total[name] = total.get(name, 0) + int(count)
            totals.append(total)
        return {name: (totals[1][name] - totals[0].get(name, 0)) / (ROWS / BATCH) / ranks for name in totals[1]}

    def vectors(self):
        """How many vectors the ColBERT model keeps of all documents."""
        pairs, texts, model, out = (self.folder / name for name in ("pairs.jsonl", "texts.jsonl", "model", "vectors"))
        pairs.write_text('{"query": "a", "positive": "b"}\n' * 2)
        texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents()))
        self.toller("train", "colbert", "--model", TINY, "--fresh-head", "--dim", DIM, "--query-length", 12, "--document-length", 24,
                    "--data", pairs, "--output", model, "--steps", 1, "--batch-size", 2)
        self.toller("encode", "--model", model, "--input", texts, "--output", out)
        raw = out.read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        begin, end = json.loads(raw[8:8 + length])["offsets"]["data_offsets"]
        offsets = array.array("q", raw[8 + length + begin:8 + length + end])
        return offsets[-1]

    def check(self, kind, *more):
        per_row = len(documents()) / ROWS
        for ranks in (2, 4):
            plan = json.loads(self.toller("plan", "--model", TINY, "--kind", kind, "--ranks", ranks, "--batch-size", BATCH,
                                          "--documents", per_row, "--json", *more))
            (line,) = plan["fixed_global"]
            counted = self.counted(kind, ranks)
            planned = {"all_reduce": line["gradients"], "all_gather": line["announcements"] + line["meetings"],
                       "all_to_all": line["vectors"] + line["vector_grads"] + line["numbers"]}
            for name, bytes_planned in planned.items():
                self.assertAlmostEqual(counted[name], bytes_planned, delta=1e-6 * bytes_planned, msg=f"{kind} {ranks} {name}")
            self.assertAlmostEqual(sum(counted.values()), line["total"], delta=1e-6 * line["total"])

    def test_dense(self):
        self.check("dense")

    def test_colbert(self):
        self.check("colbert", "--dim", DIM, "--document-tokens", self.vectors() / len(documents()))


if __name__ == "__main__":
    RANKS, TOLLER = sys.argv[1:3]
    result = unittest.main(argv=sys.argv[:1] + sys.argv[3:], exit=False).result
    sys.exit(0 if result.wasSuccessful() and result.testsRun > 0 else 1)
