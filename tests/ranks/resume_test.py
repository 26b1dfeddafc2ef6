#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run of several ranks that is stopped and started again ends with the bits of one that was not; also on another number of
ranks, to rounding.

usage: resume_test.py RANK_PROGRAM"""
import filecmp
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

from support import Program, model_with_dropout


class Resume(unittest.TestCase):
    def test_resume(self):
        with tempfile.TemporaryDirectory(prefix="toller-resume-") as name:
            folder = Path(name)
            program = Program(PROGRAM, folder)
            given = ("colbert", "--steps", 9, "--weights-only", "--dropout", "--model", model_with_dropout(folder / "model"))
            whole, _ = program.ranks(2, folder / "whole", *given)
            checkpoint = ("--checkpoint", folder / "checkpoints")
            program.ranks(2, folder / "part", *given, *checkpoint, "--stop-after", 4)
            saved = sorted(p.name for p in (folder / "checkpoints").iterdir())
            self.assertEqual(saved, ["step-4"])   # rank 0 alone wrote it, at the step at which all stopped
            rest, _ = program.ranks(2, folder / "rest", *given, *checkpoint)
            for a, b in zip(whole, rest):
                found = program.compare((b, a))[0]
                self.assertEqual(found["weights"], 0.0)
            (step_9,) = [p for p in (folder / "checkpoints").iterdir() if p.name == "step-9"]
            shutil.rmtree(step_9)
            more, _ = program.ranks(3, folder / "more", *given, *checkpoint)
            self.assertLess(program.compare((more[0], whole[0]))[0]["weights"], 1e-6)
            self.assertTrue(filecmp.cmp(more[0], more[1], shallow=False) and filecmp.cmp(more[0], more[2], shallow=False))


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
