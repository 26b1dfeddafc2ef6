#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Splits a JSONL file of pairs into training rows and a held-out retrieval task in BEIR's layout.

usage: hold_out.py PAIRS.jsonl OUT [--documents 5000] [--queries 500]

The documents are those of the file's last rows, the queries belong to the first of these; all earlier rows train. Writes
OUT/train.jsonl, OUT/corpus.jsonl, OUT/queries.jsonl and OUT/qrels/test.tsv. A small file gives at most a fifth of its rows."""
import argparse
import json
import os
import sys


def main():
    parser = argparse.ArgumentParser(description="Hold out a retrieval task")
    parser.add_argument("pairs")
    parser.add_argument("out")
    parser.add_argument("--documents", type=int, default=5000)
    parser.add_argument("--queries", type=int, default=500)
    args = parser.parse_args()
    with open(args.pairs, encoding="utf-8") as file:
        lines = [line for line in file if line.strip()]
    documents = min(args.documents, len(lines) // 5)
    if documents == 0:
        sys.exit(f"hold_out: {args.pairs} has {len(lines)} rows: at least 5 are needed")
    queries = min(args.queries, documents)
    os.makedirs(os.path.join(args.out, "qrels"), exist_ok=True)

    def write(name, rows):
        path = os.path.join(args.out, name)
        with open(path + ".part", "w", encoding="utf-8") as file:
            file.writelines(rows)
        os.replace(path + ".part", path)

    held = []
    for number, line in enumerate(lines[-documents:], len(lines) - documents + 1):
        try:
            row = json.loads(line)
            held.append((row["query"], row["positive"]))
        except (ValueError, KeyError, TypeError) as error:
            sys.exit(f"hold_out: {args.pairs}: row {number}: needs the fields query and positive ({error!r})")
    as_line = lambda row: json.dumps(row, ensure_ascii=False) + "\n"
    write("train.jsonl", lines[:-documents])
    write("corpus.jsonl", (as_line({"_id": f"d{i}", "title": "", "text": text}) for i, (_, text) in enumerate(held)))
    write("queries.jsonl", (as_line({"_id": f"q{i}", "text": query}) for i, (query, _) in enumerate(held[:queries])))
    write("qrels/test.tsv", ["query-id\tcorpus-id\tscore\n"] + [f"q{i}\td{i}\t1\n" for i in range(queries)])


main()
