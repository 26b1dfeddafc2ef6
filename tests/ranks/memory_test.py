#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ranks hold at most, against one process: as much with as many rows, much less with their part of the same rows. With a model
of real size, whose weights, moments and gradients count.

usage: memory_test.py RANK_PROGRAM"""
import os
import sys
import tempfile
import unittest
from pathlib import Path

from support import Program, finish

MODEL = os.environ.get("TOLLER_MINILM")
# With so many of these short rows one process holds as much as with 64 package descriptions (benchmarks/ranks.sh).
BATCH = {"colbert": 224, "dense": 240}


@unittest.skipUnless(MODEL, "MiniLM is not there: scripts/fetch_model.sh")
class Memory(unittest.TestCase):
    def peaks(self, kind, ranks, batch):
        """Of each rank, or of one process, in MiB."""
        with tempfile.TemporaryDirectory(prefix="toller-memory-") as folder:
            program = Program(PROGRAM, folder)
            arguments = (kind, "--memory", "--model", MODEL, "--batch", batch, "--rows", 2 * batch, "--steps", 2)
            if ranks > 1:
                printed = program.ranks(ranks, Path(folder) / "out", *arguments)[1]
            else:
                printed = [program.run([program.path, *arguments, "--single"])]
        return [int(text) / 1024 for text in printed]

    def test_ranks(self):
        for kind, batch in BATCH.items():
            [whole], [half], ranks = self.peaks(kind, 1, batch), self.peaks(kind, 1, batch // 2), self.peaks(kind, 2, batch)
            print(f"{kind}: {whole:.0f} MiB alone, {half:.0f} with half of the rows; ranks {ranks}", flush=True)
            for rank in ranks:
                self.assertLessEqual(rank, 1.05 * half)
                self.assertLessEqual(rank, 0.65 * whole)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    finish(unittest.main(verbosity=2, exit=False))
