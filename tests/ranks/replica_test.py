#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a replica and the ranks do apart from training: each check of replica_program, on two and three ranks and alone.

usage: replica_test.py REPLICA_PROGRAM"""
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from support import Processes, hand_written

PROGRAM = os.path.abspath(sys.argv[1])
CHECKS = ["unused", "find_unused", "static_graph", "local", "few_rows", "many_rows", "idle_table", "on_main", "main_throws",
          "agree"]


def run(case):
    check, ranks = case
    with Processes() as running:
        for known in hand_written(ranks):
            running.start([PROGRAM, check], known)
        ended = running.wait(90)
    wrong = [f"rank {n} ended with {e.code}: {e.err.strip()}" for n, e in enumerate(ended) if e.code != 0]
    return check, ranks, wrong


if __name__ == "__main__":
    failed = 0
    with ThreadPoolExecutor(2) as pool:
        for check, ranks, wrong in pool.map(run, [(check, ranks) for check in CHECKS for ranks in (2, 3)]):
            print(f"{'FAIL' if wrong else 'ok  '} {check} on {ranks} ranks", *wrong, sep="\n     ", flush=True)
            failed += bool(wrong)
    sys.exit(1 if failed else 0)
