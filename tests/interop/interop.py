# SPDX-License-Identifier: Apache-2.0
"""Trains with toller, lets each Python library load the result and the other way round, and compares embeddings.

Called by interop.sh. Every check prints a line; the last line is "N passed, M failed"; the exit status is 1 if M > 0.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

TOLERANCE = 1e-5

TEXTS = ["hello, world!", "a library for reading and writing images", "Which programs use the network?", "x", "!!! ... ,,,",
         "Größe, naïve café, 東京 and Ωmega", "C++20 header-only templates (with concepts); no Python in the process.",
         "the quick brown fox jumps over the lazy dog " * 3, "mail servers keep mail for their users " * 40,
         "e-mail: a@b.c, see https://example.org/x?y=z#1", "UPPER and lower", "  spaces   around\tand between  ",
         "terminal editor for small files", "plays music, lists it by name or by year", "fonts"]

PAIRS = [("image library", "Reads and writes images of many kinds, and turns one kind into another."),
         ("terminal editor", "A small editor for text files that runs in a terminal."),
         ("network monitor", "Shows which programs use the network, and how much."),
         ("card game", "A game in which cards are laid in order, for one player."),
         ("mail server", "Takes mail from other servers and keeps it for its users."),
         ("font viewer", "Shows the letters of a font, large and small."),
         ("music player", "Plays music files, and lists them by name or by year."),
         ("database", "Stores tables of data and answers questions about them.")]


class Interop:
    def __init__(self, toller, venvs, work, minilm):
        self.toller, self.venvs, self.work, self.minilm = toller, venvs, work, minilm
        self.passed = self.failed = 0
        self.encoded = {}  # (model, role) -> what toller encode said
        self.texts = work / "texts.jsonl"
        self.pairs = work / "pairs.jsonl"

    def report(self, name, error):
        self.passed += error is None
        self.failed += error is not None
        print(f"{'ok  ' if error is None else 'FAIL'} {name}{'' if error is None else ': ' + error}", flush=True)

    def run_toller(self, *arguments):
        """None, or what went wrong in one line."""
        done = subprocess.run([self.toller, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode == 0:
            return None
        lines = done.stderr.strip().splitlines() or ["no message"]
        return f"toller {arguments[0]} gave {done.returncode}: {lines[-1]}"

    def run_peer(self, venv, jobs):
        """Runs jobs in an environment; gives {name: "ok" or an error}."""
        files = self.work / f"{venv}.jobs.json", self.work / f"{venv}.results.json"
        files[0].write_text(json.dumps([{k: str(v) for k, v in job.items()} for job in jobs]))
        files[1].unlink(missing_ok=True)
        with open(self.work / f"{venv}.log", "a") as log:
            subprocess.run([self.venvs / venv / "bin/python", Path(__file__).with_name("peers.py"), *files], stdout=log, stderr=log)
        if not files[1].exists():
            return {job["name"]: f"the process ended early, see {log.name}" for job in jobs}
        return json.loads(files[1].read_text())

    def vectors(self, model, who, role):
        return self.work / f"{model}.{who}.{role}.safetensors"

    def compare(self, model, who, role):
        """toller's embeddings of a model against those of a peer."""
        ours, theirs = load_file(self.vectors(model, "toller", role)), load_file(self.vectors(model, who, role))
        if ours.keys() != theirs.keys():
            return f"toller wrote {sorted(ours)}, the other {sorted(theirs)}"
        for name in sorted(ours):
            if ours[name].shape != theirs[name].shape:
                return f"{name}: toller has shape {ours[name].shape}, the other {theirs[name].shape}"
            difference = float(np.abs(ours[name].astype(np.float64) - theirs[name].astype(np.float64)).max())
            if not difference <= TOLERANCE:
                return f"{name}: largest difference {difference:.2e}"
        return None

    def check(self, model, who, role, peer_result):
        if peer_result != "ok":
            self.report(f"{model}, {role}: {who} and toller agree", f"{who}: {peer_result}")
            return
        if (model, role) not in self.encoded:
            self.encoded[model, role] = self.run_toller("encode", "--model", self.work / model, "--input", self.texts, "--field", "text",
                                                        "--role", role, "--output", self.vectors(model, "toller", role))
        error = self.encoded[model, role]
        self.report(f"{model}, {role}: {who} and toller agree", error or self.compare(model, who, role))

    def main(self):
        self.texts.write_text("".join(json.dumps({"text": t}) + "\n" for t in TEXTS))
        self.pairs.write_text("".join(json.dumps({"query": q, "positive": p}) + "\n" for q, p in PAIRS * 2))

        # What toller trains and saves.
        train = ["--model", self.minilm, "--data", self.pairs, "--steps", 3, "--batch-size", 8]
        saved = {name: self.run_toller("train", kind, *train, "--output", self.work / name, *extra)
                 for name, kind, extra in [("toller-dense", "dense", []), ("toller-colbert", "colbert", ["--fresh-head"])]}
        for name, error in saved.items():
            self.report(f"{name}: trained and saved", error)

        # What the peers save. (model, environment that makes it, job, environments and functions that read it back)
        dense, late = "dense_encode", "multi_vector_encode"
        models = [("pylate", "pylate", {"do": "pylate_save", "minilm": self.minilm}, [("pylate", "pylate_encode")]),
                  ("pylate-layers", "pylate", {"do": "pylate_save_layers", "minilm": self.minilm}, [("pylate", "pylate_encode")]),
                  ("stanford", "pylate", {"do": "stanford_save", "minilm": self.minilm}, [("pylate", "pylate_encode")]),
                  ("st5-dense", "pylate", {"do": "dense_save", "minilm": self.minilm}, [("pylate", dense)]),
                  ("st6-dense", "st6", {"do": "dense_save", "minilm": self.minilm}, [("st6", dense)]),
                  ("st6-multi-vector", "st6", {"do": "multi_vector_save", "source": self.minilm}, [("st6", late)]),
                  ("st6-of-pylate", "st6", {"do": "multi_vector_save", "source": self.work / "pylate"}, [("st6", late)])]
        readers = [("toller-dense", "pylate", dense), ("toller-dense", "st6", dense), ("toller-colbert", "pylate", "pylate_encode"),
                   ("toller-colbert", "st6", late)]
        readers = [r for r in readers if saved[r[0]] is None]
        readers += [(name, venv, do) for name, _, _, several in models for venv, do in several]

        results = {}
        for venv in ("pylate", "st6"):  # in this order: st6 reads what pylate saved
            jobs = [{"name": name, **job, "output": self.work / name} for name, maker, job, _ in models if maker == venv]
            jobs += [{"name": f"{name} {role}", "do": do, "model": self.work / name, "texts": self.texts, "role": role,
                      "output": self.vectors(name, venv, role)}
                     for name, reader, do in readers if reader == venv for role in ("query", "document")]
            results[venv] = self.run_peer(venv, jobs)
        for name, maker, _, _ in models:
            if results[maker][name] != "ok":
                self.report(f"{name}: saved by {maker}", results[maker][name])
        for name, venv, _ in readers:
            for role in ("query", "document"):
                self.check(name, venv, role, results[venv][f"{name} {role}"])

        print(f"{self.passed} passed, {self.failed} failed")
        return 1 if self.failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--toller", required=True)
    parser.add_argument("--venvs", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--minilm", type=Path, required=True)
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    sys.exit(Interop(options.toller, options.venvs, options.work, options.minilm).main())


if __name__ == "__main__":
    main()
