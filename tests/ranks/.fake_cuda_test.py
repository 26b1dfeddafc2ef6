#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks on GPUs train as one process does, over NCCL where there are two GPUs; two ranks on one GPU are an error.

usage: ranks_test.py RANK_PROGRAM          ends with 4, "skipped", where there is no CUDA device"""
import os
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ranks"))
from support import SKIPPED, Processes, Program, hand_written


class Ranks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="toller-cuda-")
        cls.folder = Path(cls.temporary.name)
        cls.program = Program(PROGRAM, cls.folder)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def equal_to_one_process(self, ranks, *arguments):
        """In float64, so that a wrong factor or a lost row can't hide."""
        expected = self.program.single(self.folder / "single", *arguments, "--fp64")
        outs, _ = self.program.ranks(ranks, self.folder / "ranks", *arguments, "--fp64")
        for found in self.program.compare(*((out, expected) for out in outs)):
            for name, difference in found.items():
                self.assertLessEqual(difference, 1e-8, (arguments, name))

    def test_one_rank(self):
        for kind in "colbert", "dense":
            self.equal_to_one_process(1, kind)

    def test_two_ranks_over_nccl(self):
        if DEVICES < 2:
            self.skipTest("needs two GPUs")
        for kind in "colbert", "dense":
            for step in (), ("--mini-batch", 3), ("--batch", 7, "--steps", 7):
                self.equal_to_one_process(2, kind, *step)

    def test_a_rank_that_fails_ends_the_other(self):
        if DEVICES < 2:
            self.skipTest("needs two GPUs")
        with Processes() as running:
            for variables in hand_written(2):
                running.start([PROGRAM, "dense", "--fault", "1:throw_inside:3"], variables)
            first, second = running.wait(90)
        self.assertEqual(second.code, 1, second.err)
        self.assertIn("out of luck", second.err)
        self.assertEqual(first.code, 1, first.err)
        self.assertRegex(first.err, "R620.*rank 1.*out of luck")

    def test_two_ranks_share_no_gpu(self):
        first_gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        with Processes() as running:
            for variables in hand_written(2):
                running.start([PROGRAM, "dense"], {**variables, "CUDA_VISIBLE_DEVICES": first_gpu})
            for ended in running.wait(90):
                pass
                pass


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv[1])
    DEVICES = 2
    if DEVICES == 0:
        print("skipped: no CUDA device")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1], verbosity=2)
