#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Losses, gradients and weights of several ranks equal those of one process, however the step is done.

usage: equal_test.py RANK_PROGRAM [TEST ...]"""
import itertools
import re
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from support import Program, model_with_dropout

ACCUMULATE_2, ACCUMULATE_3 = ("--accumulate", 2), ("--accumulate", 3)
CACHES = {"one text": ("--mini-batch", 1), "a non-divisor": ("--mini-batch", 3), "more than the batch": ("--mini-batch", 1000),
          "by tokens": ("--mini-batch-tokens", 100)}
PLAIN = ()
EXACT, ROUNDED = ("--fp64",), ()
# Batches: 8 of 40 rows, 5 steps; 7 of 40, whose sixth has 5 rows; 2, fewer than ranks.
EVEN, UNEVEN, FEW = (), ("--batch", 7, "--steps", 7), ("--batch", 2)


class Equal(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="toller-equal-")
        cls.folder = Path(cls.temporary.name)
        cls.program = Program(PROGRAM, cls.folder)
        cls.dropout = ("--dropout", "--model", model_with_dropout(cls.folder / "dropout"))
        cls.numbers = itertools.count()

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def out(cls):
        return cls.folder / f"out-{next(cls.numbers)}"

    # A reference is shared by the cases that it serves.
    @classmethod
    @cache
    def single(cls, *arguments):
        return cls.program.single(cls.out(), *arguments)

    def expect(self, found, *, exact, what):
        limits = {"losses": 1e-9, "gradients": 1e-9, "worst gradient": 1e-9, "weights": 1e-9} if exact else \
                 {"losses": 1e-6, "gradients": 1e-6, "weights": 1e-6}
        for name, limit in limits.items():
            self.assertLessEqual(found[name], limit, (what, name, found))
        key = "fp64" if exact else "fp32"
        for name, value in found.items():
            WORST[key][name] = max(WORST[key].get(name, (0, "")), (value, str(what)))

    def run_case(self, case):
        """Rank 0's file and that of one process; the other ranks' are the same as rank 0's."""
        kind, exact, ranks, step, reference, batch, dropout = case
        common = (kind, *(EXACT if exact else ROUNDED), *batch, *(self.dropout if dropout else ()))
        expected = self.single(*common, *reference)
        outs, _ = self.program.ranks(ranks, self.out(), *common, *step)
        self.same(outs, case)
        return outs[0], expected

    def same(self, outs, what):
        first = outs[0].read_bytes()
        for out in outs[1:]:
            self.assertEqual(out.read_bytes(), first, (what, "ranks differ"))
            out.unlink()

    def all_of(self, cases):
        """Each case: (kind, float64?, ranks, how the step is done, how the one process does it, batches, dropout?)."""
        with ThreadPoolExecutor(2) as pool:
            pairs = list(pool.map(self.run_case, cases))
        for case, found in zip(cases, self.program.compare(*pairs), strict=True):
            self.expect(found, exact=case[1], what=case)

    def test_plain(self):
        self.all_of([(kind, exact, ranks, PLAIN, PLAIN, EVEN, False)
                     for kind in KINDS for exact in (True, False) for ranks in (1, 2, 3, 4) if ranks > 1 or exact])

    def test_grad_cache(self):
        cases = []
        for i, step in enumerate(CACHES.values()):
            a, b = KINDS[i % 2], KINDS[(i + 1) % 2]
            cases += [(a, True, 1, step, PLAIN, EVEN, False), (b, False, 2, step, PLAIN, EVEN, False),
                      (b, True, 3, step, PLAIN, UNEVEN, False), (a, i < 2, 4, step, PLAIN, FEW if i % 2 else EVEN, False)]
        self.all_of(cases)

    def test_accumulation(self):
        self.all_of([("colbert", True, 1, ACCUMULATE_3, ACCUMULATE_3, EVEN, False),
                     ("colbert", True, 2, ACCUMULATE_2, ACCUMULATE_2, EVEN, False),
                     ("colbert", False, 3, ACCUMULATE_2, ACCUMULATE_2, EVEN, False),
                     ("dense", False, 2, ACCUMULATE_3, ACCUMULATE_3, UNEVEN, False),
                     ("dense", True, 4, ACCUMULATE_3, ACCUMULATE_3, EVEN, True),
                     ("dense", True, 3, ACCUMULATE_2, ACCUMULATE_2, FEW, False)])   # a row a part: empty ranks in each

    def test_dropout(self):
        self.all_of([("colbert", True, 1, PLAIN, PLAIN, EVEN, True),
                     ("colbert", True, 2, PLAIN, PLAIN, EVEN, True),
                     ("colbert", False, 2, PLAIN, PLAIN, EVEN, True),
                     ("dense", True, 3, PLAIN, PLAIN, UNEVEN, True),
                     ("colbert", True, 3, CACHES["a non-divisor"], PLAIN, UNEVEN, True),
                     ("colbert", True, 2, CACHES["by tokens"], PLAIN, EVEN, True),
                     ("dense", True, 2, CACHES["one text"], PLAIN, EVEN, True),
                     ("dense", False, 4, CACHES["by tokens"], PLAIN, EVEN, True)])
        for kind in KINDS:   # it does something
            [found] = self.program.compare((self.single(kind, "--fp64", *self.dropout), self.single(kind, "--fp64")))
            self.assertGreater(found["losses"], 1e-3)

    def test_uneven_and_empty_ranks(self):
        self.all_of([(kind, exact, ranks, PLAIN, PLAIN, batch, False)
                     for kind, exact, ranks, batch in [("colbert", True, 2, UNEVEN), ("colbert", False, 3, UNEVEN),
                                                       ("dense", True, 3, UNEVEN), ("dense", False, 4, UNEVEN),
                                                       ("colbert", True, 3, FEW), ("colbert", False, 4, FEW),
                                                       ("dense", True, 4, FEW), ("dense", False, 3, FEW)]])

    def test_hundreds_of_rows(self):
        self.all_of([("colbert", True, 2, CACHES["by tokens"], PLAIN, ("--batch", 100, "--rows", 200, "--steps", 2), False)])

    def test_local_negatives(self):
        """Every rank compares its own rows alone: another loss, but still one model."""
        for kind in KINDS:
            outs, _ = self.program.ranks(3, self.out(), kind, "--fp64", "--local")
            self.same(outs, kind)
            [found] = self.program.compare((outs[0], self.single(kind, "--fp64")))
            self.assertGreater(found["losses"], 1e-2)
            self.assertGreater(found["gradients"], 1e-2)

    def counts(self, ranks, *arguments):
        """Collectives that the fourth step makes, by name: the same on every rank."""
        _, printed = self.program.ranks(ranks, self.out(), *arguments, "--counts", "--steps", 4)
        found = [{name: int(calls) for name, calls in re.findall(r"^step (\w+) (\d+) \d+$", text, re.M)} for text in printed]
        for other in found[1:]:
            self.assertEqual(other, found[0])
        return {name: calls for name, calls in found[0].items() if calls > 0}

    def test_collectives_of_a_step(self):
        """Three small exchanges (the step begins, what will be gathered, the step's loss), three of what is gathered (numbers,
        values, their gradients), one sum a bucket of gradients: however the step is cut, and whatever the number of ranks."""
        gathered, alone = {"all_gather": 3, "all_to_all": 3}, {"all_gather": 2}
        for kind in KINDS:
            plain = self.counts(2, kind)
            buckets = {"all_reduce": plain.pop("all_reduce")}
            self.assertGreater(buckets["all_reduce"], 3)
            self.assertEqual(plain, gathered)
            self.assertEqual(self.counts(3, kind, *CACHES["one text"]), {**gathered, **buckets})
        self.assertEqual(self.counts(2, kind, "--local"), {**alone, **buckets})
        # A part of an accumulated batch is gathered for itself; the parameters' sums are still the step's.
        self.assertEqual(self.counts(2, kind, *ACCUMULATE_3), {"all_gather": 2 + 3, "all_to_all": 3 * 3, **buckets})


KINDS = ("colbert", "dense")
WORST = {"fp64": {}, "fp32": {}}
if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    try:
        unittest.main(verbosity=2)
    finally:
        for precision, worst in WORST.items():
            for name, (value, case) in worst.items():
                print(f"{precision} {name}: at most {value:.2g}, {case}")
