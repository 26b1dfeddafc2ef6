#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the toller program as a user would: every command, and every kind of bad input.

usage: cli_test.py PROGRAM EXAMPLES_DIR GOLDEN_DIR"""
import array
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM, EXAMPLES, GOLDEN = (os.path.abspath(path) for path in sys.argv[1:4])
TINY = os.path.join(GOLDEN, "encoders", "bert_classifier")
WORDS = "image file network mail music game font table python library editor terminal server module cards data".split()


def read_safetensors(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        body = file.read()
    tensors = {}
    for name, about in header.items():
        if name == "__metadata__":
            continue
        begin, end = about["data_offsets"]
        values = array.array({"F32": "f", "I64": "q"}[about["dtype"]])
        values.frombytes(body[begin:end])
        tensors[name] = (about["shape"], values)
    return tensors


class Program(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="toller-cli-")
        cls.pairs = cls.file("pairs.jsonl", "".join(
            json.dumps({"query": f"{a} {b}", "positive": f"This package is a {a} for every {b}."}) + "\n"
            for a in WORDS[:6] for b in WORDS[6:12]))
        cls.beir = os.path.join(cls.dir, "beir")
        os.makedirs(os.path.join(cls.beir, "qrels"))
        rows = [json.loads(line) for line in open(cls.pairs)]
        with open(os.path.join(cls.beir, "corpus.jsonl"), "w") as f:
            f.writelines(json.dumps({"_id": f"d{i}", "title": "", "text": r["positive"]}) + "\n" for i, r in enumerate(rows))
        with open(os.path.join(cls.beir, "queries.jsonl"), "w") as f:
            f.writelines(json.dumps({"_id": f"q{i}", "text": r["query"]}) + "\n" for i, r in enumerate(rows))
        with open(os.path.join(cls.beir, "qrels", "test.tsv"), "w") as f:
            f.write("query-id\tcorpus-id\tscore\n")
            f.writelines(f"q{i}\td{i}\t1\n" for i in range(len(rows)))
        for kind in ("dense", "colbert"):
            cls.good("train", kind, "--model", TINY, "--fresh-head", "--data", cls.pairs, "--output", cls.path(kind), "--steps", "3", "--batch-size", "8")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.dir)

    @classmethod
    def path(cls, name):
        return os.path.join(cls.dir, name)

    @classmethod
    def file(cls, name, text):
        data = text if isinstance(text, bytes) else text.encode()
        with open(cls.path(name), "wb") as f:
            f.write(data)
        return cls.path(name)

    @classmethod
    def run_program(cls, *args, stdin="", env=None):
        data = stdin if isinstance(stdin, bytes) else stdin.encode()
        return subprocess.run([PROGRAM, *map(str, args)], input=data, capture_output=True, timeout=300, env={**os.environ, **(env or {})})

    @classmethod
    def good(cls, *args, stdin=""):
        done = cls.run_program(*args, stdin=stdin)
        assert done.returncode == 0, (args, done.stderr.decode())
        return done.stdout.decode()

    def bad(self, *args, says, stdin="", code=1):
        """The run fails with one line that says all of `says`, and leaves nothing at --output."""
        output = args[args.index("--output") + 1] if "--output" in args else None
        before = output and os.path.exists(output)
        done = self.run_program(*args, stdin=stdin)
        error = done.stderr.decode()
        self.assertEqual(done.returncode, code, error)
        lines = [line for line in error.split("\n") if line.startswith("toller: ")]
        self.assertEqual(len(lines), 1, error)
        for part in [says] if isinstance(says, str) else says:
            self.assertIn(part, lines[0])
        self.assertNotIn("Exception raised from", error)
        if output:
            self.assertEqual(bool(before), os.path.exists(output))
            parent = os.path.dirname(output)
            if os.path.isdir(parent):
                self.assertEqual([n for n in os.listdir(parent) if ".part" in n], [])

    def train_bad(self, says, model=None, data=None, *more, kind="dense"):
        given = {"--steps": "1", "--batch-size": "2", **dict(zip(more[::2], more[1::2]))}
        self.bad("train", kind, "--model", model or TINY, "--fresh-head", "--in-order", "--data", data or self.pairs, "--output", self.path("never"),
                 *[word for option in given.items() for word in option], says=says)

    def model_with(self, name, change):
        """A copy of the tiny encoder's folder, changed."""
        folder = self.path(name)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(TINY, folder)
        for file in os.listdir(folder):
            os.chmod(os.path.join(folder, file), 0o644)
        change(folder)
        return folder

    def edit_config(self, name, **changes):
        def change(folder):
            path = os.path.join(folder, "config.json")
            config = json.load(open(path))
            config.update(changes)
            json.dump(config, open(path, "w"))
        return self.model_with(name, change)

    def edit_header(self, name, edit):
        """The folder with its safetensors header changed by edit(header, body) -> (header, body)."""
        def change(folder):
            path = os.path.join(folder, "model.safetensors")
            raw = open(path, "rb").read()
            (length,) = struct.unpack("<Q", raw[:8])
            header, body = edit(json.loads(raw[8:8 + length]), raw[8 + length:])
            text = json.dumps(header).encode()
            text += b" " * (-len(text) % 8)
            open(path, "wb").write(struct.pack("<Q", len(text)) + text + body)
        return self.model_with(name, change)

    # --- every command ---------------------------------------------------------------------------------------------
    def test_help(self):
        for command in ([], ["train"], ["train", "colbert"], ["train", "dense"], ["evaluate"], ["encode"], ["tokenize"], ["info"], ["doctor"], ["plan"]):
            self.assertIn("--help", self.good(*command, "--help"))
        self.assertRegex(self.good("--version"), r"^\d+\.\d+\.\d+")

    def test_tokenize(self):
        out = self.good("tokenize", "--model", TINY, stdin='{"text": "python library"}\n\n{"text": "a", "pair": "b"}\n')
        rows = [json.loads(line) for line in out.splitlines()]
        self.assertEqual(len(rows), 2)
        self.assertEqual(len(rows[0]["ids"]), len(rows[0]["attention"]))
        query = json.loads(self.good("tokenize", "--model", self.path("colbert"), "--role", "query", stdin='{"text": "python"}\n'))
        self.assertEqual(len(query["ids"]), 32)
        self.assertEqual(query["attention"][-1], 0)
        cut = json.loads(self.good("tokenize", "--model", TINY, "--max-length", "4", stdin='{"text": "a b c d e f g h"}\n'))
        self.assertEqual(len(cut["ids"]), 4)

    def test_encode_dense(self):
        self.good("encode", "--model", self.path("dense"), "--input", self.pairs, "--field", "positive", "--output", self.path("d.safetensors"))
        shape, values = read_safetensors(self.path("d.safetensors"))["embeddings"]
        self.assertEqual(shape[0], 36)
        self.assertAlmostEqual(sum(v * v for v in values[:shape[1]]), 1, places=5)

    def test_encode_colbert(self):
        out = self.good("encode", "--model", self.path("colbert"), "--input", self.pairs, "--field", "query", "--role", "query",
                        "--threads", "1", "--output", self.path("c.safetensors"), "--json")
        self.assertEqual(json.loads(out)["texts"], 36)
        tensors = read_safetensors(self.path("c.safetensors"))
        self.assertEqual(tensors["vectors"][0], [36 * 32, 128])
        self.assertEqual(list(tensors["offsets"][1]), [32 * i for i in range(37)])

    def test_encode_bf16_is_close(self):
        found = {}
        for precision in ("fp32", "bf16"):
            self.good("encode", "--model", self.path("dense"), "--input", self.pairs, "--field", "query", "--precision", precision, "--output", self.path("p.safetensors"))
            found[precision] = read_safetensors(self.path("p.safetensors"))["embeddings"][1]
        self.assertLess(max(abs(a - b) for a, b in zip(found["fp32"], found["bf16"])), 0.03)

    def test_info(self):
        info = json.loads(self.good("info", "--model", self.path("colbert"), "--text", "python library!", "--json"))
        self.assertEqual(info["dimension"], 128)
        self.assertEqual(info["query"]["max_length"], 32)
        self.assertEqual(info["document"]["marker"], "[D] ")
        self.assertAlmostEqual(info["text"]["norm"], 1, places=5)
        self.assertIn("embeddings.word_embeddings.weight", self.good("info", "--model", self.path("dense")))

    def test_evaluate(self):
        for kind in ("dense", "colbert"):
            metrics = json.loads(self.good("evaluate", "--model", self.path(kind), "--data", self.beir, "--json"))
            for name in ("ndcg@10", "mrr@10", "map@100", "recall@100", "accuracy@1"):
                self.assertTrue(0 <= metrics[name] <= 1, name)
            self.assertGreater(metrics["recall@100"], 0.99)
        self.assertIn("nDCG@10", self.good("evaluate", "--model", self.path("dense"), "--data", self.beir))

    def test_train_improves_and_repeats(self):
        def run():
            return json.loads(self.good("train", "colbert", "--model", TINY, "--fresh-head", "--data", self.pairs, "--output", self.path("again"), "--epochs", "12",
                                        "--batch-size", "12", "--lr", "1e-3", "--eval", self.beir, "--seed", "5", "--threads", "1", "--json"))
        first, second = run(), run()
        self.assertEqual(first["steps"], 36)
        self.assertGreater(first["after"]["ndcg@10"], first["before"]["ndcg@10"])
        self.assertEqual(first["after"], second["after"])
        self.assertEqual(first["loss"], second["loss"])

    def test_train_negatives_and_goes_on_from_a_saved_model(self):
        rows = [json.loads(line) for line in open(self.pairs)]
        data = self.file("triplets.jsonl", "".join(json.dumps({**r, "negative": rows[i - 1]["positive"]}) + "\n" for i, r in enumerate(rows)))
        for kind in ("dense", "colbert"):
            self.good("train", kind, "--model", self.path(kind), "--data", data, "--output", self.path("more"), "--steps", "2", "--batch-size", "4", "--precision", "bf16")

    def test_hub_name_in_the_cache(self):
        cache = self.path("hub")
        snapshot = os.path.join(cache, "models--someone--tiny", "snapshots", "abc")
        shutil.rmtree(cache, ignore_errors=True)
        os.makedirs(os.path.join(cache, "models--someone--tiny", "refs"))
        shutil.copytree(TINY, snapshot)
        open(os.path.join(cache, "models--someone--tiny", "refs", "main"), "w").write("abc")
        os.environ["HF_HUB_CACHE"] = cache
        try:
            self.good("tokenize", "--model", "someone/tiny", stdin='{"text": "a"}\n')
            self.bad("tokenize", "--model", "someone/other", says="hf download someone/other")
        finally:
            del os.environ["HF_HUB_CACHE"]

    def test_examples(self):
        for name, model in (("colbert", TINY), ("dense", self.path("dense"))):
            done = subprocess.run([os.path.join(EXAMPLES, "example_" + name), model, self.pairs, "made-" + name], cwd=self.dir, capture_output=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.good("info", "--model", self.path("made-" + name))
        self.assertTrue(os.listdir(self.path("runs")))

    def test_resume(self):
        common = ["train", "colbert", "--model", TINY, "--fresh-head", "--data", self.pairs, "--epochs", "3", "--batch-size", "6", "--threads", "1", "--json"]
        whole = json.loads(self.good(*common, "--output", self.path("whole")))
        saves = ["--checkpoint", self.path("checkpoints"), "--checkpoint-every", "5", "--resume"]
        run = subprocess.Popen([PROGRAM, *common, "--output", self.path("killed"), *saves], stderr=subprocess.PIPE, stdout=subprocess.PIPE)
        while run.poll() is None and not os.path.exists(os.path.join(self.path("checkpoints"), "step-5")):
            time.sleep(0.01)
        run.kill()
        run.communicate()
        resumed = json.loads(self.good(*common, "--output", self.path("resumed"), *saves))
        self.assertEqual(resumed["loss"], whole["loss"])
        for name in ("model.safetensors", os.path.join("1_Dense", "model.safetensors")):
            with open(os.path.join(self.path("whole"), name), "rb") as a, open(os.path.join(self.path("resumed"), name), "rb") as b:
                self.assertEqual(a.read(), b.read())
        self.bad(*common, "--output", self.path("never"), *saves, "--seed", "9", says="another run")

    def test_interrupt_saves(self):
        run = subprocess.Popen([PROGRAM, "train", "dense", "--model", TINY, "--fresh-head", "--data", self.pairs, "--output", self.path("stopped"), "--steps", "100000",
                                "--batch-size", "4"], stderr=subprocess.PIPE)
        time.sleep(4)
        run.send_signal(signal.SIGINT)
        _, error = run.communicate(timeout=60)
        self.assertEqual(run.returncode, 130, error)
        self.assertIn("stopped by Ctrl-C after step", error.decode())
        self.assertIn(self.path("stopped"), error.decode())
        self.good("info", "--model", self.path("stopped"))

    # --- several ranks ----------------------------------------------------------------------------------------------
    def train_args(self, kind, output, *more):
        return ["train", kind, "--model", TINY, "--fresh-head", "--data", self.pairs, "--output", self.path(output), "--steps", "4",
                "--batch-size", "9", "--threads", "1", *more]

    def expect_same_model(self, a, b):
        for folder, _, files in os.walk(self.path(a)):
            if "model.safetensors" not in files:
                continue
            ours = read_safetensors(os.path.join(folder, "model.safetensors"))
            theirs = read_safetensors(os.path.join(folder.replace(self.path(a), self.path(b)), "model.safetensors"))
            self.assertEqual(ours.keys(), theirs.keys())
            for name, (shape, values) in ours.items():
                if name.endswith("attention.self.key.bias"):
                    continue   # its gradient is zero, and Adam turns rounding into steps
                self.assertEqual(shape, theirs[name][0])
                self.assertLess(max(abs(x - y) for x, y in zip(values, theirs[name][1])), 1e-6, name)

    def left_behind(self, word):
        """Processes that still run with this word in their command line, or in no time at all."""
        found = []
        for _ in range(20):
            found = []
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open(f"/proc/{pid}/cmdline", "rb") as file:
                        command = file.read()
                    if word.encode() in command and int(pid) != os.getpid():
                        found.append(int(pid))
                except OSError:
                    pass
            if not found:
                break
            time.sleep(0.05)
        return found

    def children(self, process, count):
        """The ranks that it started, rank 0 first."""
        path, ranks = f"/proc/{process.pid}/task/{process.pid}/children", []
        for _ in range(500):
            with open(path) as file:
                ranks = [int(pid) for pid in file.read().split()]
            if len(ranks) == count:
                return ranks
            time.sleep(0.01)
        self.fail(f"{ranks} instead of {count} ranks")

    def launched(self, ranks, args, of_rank=lambda rank: [], hosts=False):
        """Each rank's exit status, output and errors, started by hand; `hosts`: as the only one of its host."""
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        running = [subprocess.Popen([PROGRAM, *args, *of_rank(r)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                    env={**os.environ, "RANK": str(r), "WORLD_SIZE": str(ranks),
                                         "LOCAL_RANK": "0" if hosts else str(r),
                                         "LOCAL_WORLD_SIZE": "1" if hosts else str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
                   for r in range(ranks)]
        try:
            ended = [(*process.communicate(timeout=120), process.returncode) for process in running]
        finally:
            for process in running:
                process.kill()
        return [(code, out.decode(), error.decode()) for out, error, code in ended]

    def test_ranks_train_as_one_process(self):
        for kind, step in (("dense", []), ("colbert", ["--mini-batch", "3"]), ("colbert", [])):
            one = json.loads(self.good(*self.train_args(kind, "one", "--json")))
            two = json.loads(self.good(*self.train_args(kind, "two", "--ranks", "2", "--json", *step)))
            self.assertEqual(two["ranks"], 2)
            self.assertAlmostEqual(one["loss"], two["loss"], delta=1e-6 * one["loss"])
            self.expect_same_model("two", "one")

    def test_ranks_by_hand(self):
        self.good(*self.train_args("dense", "one"))
        ended = self.launched(2, self.train_args("dense", "by_hand", "--eval", self.beir, "--save-on-each-node"))
        self.assertEqual([code for code, _, _ in ended], [0, 0], ended)
        self.assertEqual(ended[0][1].count("nDCG@10"), 2)
        self.assertEqual(ended[1][1:], ("", ""))
        self.expect_same_model("by_hand", "one")

    def test_each_node_saves(self):
        """Two ranks that are each the only one of their host: both write the model and checkpoints, or rank 0 alone."""
        for saves, written in ((["--save-on-each-node"], [True, True]), ([], [True, False])):
            place = "each" if saves else "first"
            folders = [(self.path(f"{place}_{r}"), self.path(f"{place}_{r}_at")) for r in range(2)]
            ended = self.launched(2, [*self.train_args("dense", "unused"), "--checkpoint-every", "2", *saves], hosts=True,
                                  of_rank=lambda r: ["--output", folders[r][0], "--checkpoint", folders[r][1]])
            self.assertEqual([code for code, _, _ in ended], [0, 0], ended)
            for (model, checkpoints), there in zip(folders, written):
                self.assertEqual(os.path.exists(os.path.join(model, "model.safetensors")), there, model)
                self.assertEqual(os.path.exists(os.path.join(checkpoints, "step-4")), there, checkpoints)
        self.expect_same_model("each_0", "each_1")

    def test_one_rank_is_quiet(self):
        done = self.run_program(*self.train_args("dense", "one", "--ranks", "auto"))
        self.assertEqual(done.returncode, 0)
        self.assertNotIn(b"launcher", done.stderr)

    def test_batch_sizes_and_steps(self):
        args = self.train_args("dense", "one")
        at = args.index("--batch-size")
        per_rank = args[:at] + ["--batch-size-per-rank", "3"] + args[at + 2:]
        for more in (["--ranks", "2"], ["--ranks", "2", "--accumulate", "2"], ["--mini-batch-tokens", "50"], ["--accumulate", "3"]):
            self.good(*per_rank, *more)
        self.bad(*self.train_args("dense", "never", "--batch-size-per-rank", "3"), says=["R127", "--batch-size-per-rank"])
        self.bad(*self.train_args("dense", "never", "--accumulate", "2", "--mini-batch", "2"), says="R135", code=2)
        self.bad(*self.train_args("dense", "never", "--mini-batch", "2", "--mini-batch-tokens", "9"), says="R135", code=2)
        self.bad(*self.train_args("dense", "never", "--ranks", "none"), says="R135", code=2)
        self.good(*self.train_args("dense", "one", "--timeout", "2min"))
        self.bad(*self.train_args("dense", "never", "--timeout", "2parsec"), says="R135", code=2)

    def test_ranks_within_a_launcher(self):
        done = self.run_program(*self.train_args("dense", "never", "--ranks", "2"),
                                env={"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"})
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr.decode(), r"^toller: rank 0: \[R138\] --ranks 2: .*\n$")
        done = self.run_program(*self.train_args("dense", "never"), env={"RANK": "0"})
        self.assertRegex(done.stderr.decode(), r"^toller: \[R600\] .*WORLD_SIZE.*\n$")

    def test_failing_rank(self):
        for name, change, says in (("broken", lambda a: a + ["--data", self.file("broken.jsonl", "{nope\n")], "[R203]"),
                                   ("a_file", lambda a: a + ["--output", self.file("a_file", "x")], "[R132]"),
                                   ("nan", lambda a: a + ["--lr", "1e30"], "[R501]")):
            with self.subTest(name):
                done = self.run_program(*change(self.train_args("dense", "failing", "--ranks", "2")))
                error = done.stderr.decode()
                self.assertEqual(done.returncode, 1, error)
                lines = [line for line in error.split("\n") if line.startswith("toller: ")]
                self.assertEqual(sorted(line[:16] for line in lines), ["toller: rank 0: ", "toller: rank 1: "], error)
                self.assertIn(says, lines[0] + lines[1])
                self.assertFalse(os.path.exists(self.path("failing")))
                self.assertEqual(self.left_behind(self.path("failing")), [])

    def long_run(self, output):
        run = subprocess.Popen([PROGRAM, *self.train_args("dense", output, "--ranks", "2", "--steps", "1000000", "--checkpoint", self.path(output) + "-at",
                                                          "--checkpoint-every", "3")], stderr=subprocess.PIPE)
        ranks = self.children(run, 2)
        while run.poll() is None and not os.path.exists(self.path(output) + "-at"):
            time.sleep(0.01)
        return run, ranks

    def test_interrupt_to_the_launcher_and_to_a_rank(self):
        for name, sent, whom, says in (("launcher", signal.SIGINT, lambda run, ranks: run.pid, "stopped by Ctrl-C on rank"),
                                       ("rank", signal.SIGTERM, lambda run, ranks: ranks[1], "stopped by SIGTERM on rank 1")):
            with self.subTest(name):
                run, ranks = self.long_run("stopped_" + name)
                os.kill(whom(run, ranks), sent)
                _, error = run.communicate(timeout=60)
                self.assertEqual(run.returncode, 130, error)
                self.assertEqual(error.decode().count("toller: "), 1, error)
                self.assertIn(says, error.decode())
                self.good("info", "--model", self.path("stopped_" + name))
                self.assertEqual(self.left_behind(self.path("stopped_" + name)), [])

    def test_killed_rank(self):
        run, ranks = self.long_run("killed_rank")
        os.kill(ranks[1], signal.SIGKILL)
        _, error = run.communicate(timeout=60)
        self.assertEqual(run.returncode, 1, error)
        self.assertIn("rank 1", error.decode())
        self.assertIn("signal 9", error.decode())
        self.assertFalse(os.path.exists(self.path("killed_rank")))
        self.assertEqual(self.left_behind(self.path("killed_rank")), [])

    def test_ranks_resume(self):
        common = ["--epochs", "3", "--steps", "0", "--ranks", "2", "--json"]
        whole = json.loads(self.good(*self.train_args("dense", "one", *common)))
        saves = ["--checkpoint", self.path("ranks_at"), "--checkpoint-every", "5", "--resume"]
        self.good(*self.train_args("dense", "one", *common, *saves))
        shutil.rmtree(os.path.join(self.path("ranks_at"), "step-12"))
        self.assertIn("step-10", os.listdir(self.path("ranks_at")))
        resumed = json.loads(self.good(*self.train_args("dense", "two", *common, *saves)))
        self.assertEqual(resumed["loss"], whole["loss"])
        self.expect_same_model("two", "one")

    def test_doctor(self):
        alone = json.loads(self.good("doctor", "--json"))
        self.assertEqual((len(alone["ranks"]), alone["faults"]), (1, []))
        self.assertGreater(alone["ranks"][0]["free_memory"], 0)
        two = json.loads(self.good("doctor", "--ranks", "2", "--megabytes", "4", "--threads", "1", "--json"))
        self.assertEqual([rank["rank"] for rank in two["ranks"]], [0, 1])
        self.assertEqual(len({rank["pid"] for rank in two["ranks"]}), 2)
        self.assertEqual(two["ranks"][1]["launcher"], "spawn")
        self.assertGreater(two["all_reduce"]["gbit_per_second"], 0)
        table = self.good("doctor", "--ranks", "2", "--megabytes", "1", "--threads", "1")
        self.assertIn("no fault found", table)
        self.assertEqual(len(table.splitlines()), 5, table)
        by_hand = self.launched(2, ["doctor", "--megabytes", "1", "--threads", "1", "--json"])
        self.assertEqual([code for code, _, _ in by_hand], [0, 0], by_hand)
        self.assertEqual(json.loads(by_hand[0][1])["ranks"][1]["launcher"], "environment")

    def test_doctor_finds_faults(self):
        running = [subprocess.Popen([PROGRAM, "doctor"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
        for process in running:
            out, error = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 1, error)
            self.assertIn(b"thinks that it is alone", out)
            for other in running:
                self.assertIn(str(other.pid).encode(), out)
        self.bad("doctor", "--threads", "500", says=["R139", "500 threads"])
        done = self.run_program("doctor", "--ranks", "2", "--threads", "400", "--megabytes", "1")
        self.assertEqual((done.returncode, done.stdout.decode().count("fault: ")), (1, 2))
        for env, says in (({"FLUX_TASK_RANK": "3", "FLUX_JOB_SIZE": "4"}, "RANK=$FLUX_TASK_RANK"), ({"MASTER_ADDR": "a"}, "MASTER_ADDR is a"),
                          ({"RANK": "0", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}, "R139")):
            done = self.run_program("doctor", env=env)
            self.assertEqual(done.returncode, 1)
            self.assertIn(says, done.stderr.decode())

    def test_plan(self):
        plan = json.loads(self.good("plan", "--model", self.path("colbert"), "--ranks", "8..4096", "--batch-size", "4096", "--document-tokens", "100", "--json"))
        self.assertEqual([line["ranks"] for line in plan["fixed_global"]], [2 ** n for n in range(3, 13)])
        info = json.loads(self.good("info", "--model", self.path("colbert"), "--json"))
        self.assertEqual(plan["parameters"], info["parameter_count"])
        line = plan["fixed_global"][1]
        self.assertEqual((line["rows_per_rank"], line["gradients"]), (256, 2 * 15 / 16 * 4 * plan["parameters"]))
        self.assertEqual(line["vectors"], 15 * 256 * 100 * 128 * 4)
        self.assertIn("4096", self.good("plan", "--model", TINY, "--kind", "colbert", "--dim", "64"))
        self.assertIn("Gbit/s", self.good("plan", "--model", self.path("dense"), "--ranks", "8,64,512", "--gbit", "400"))
        for ranks in ("8..", "x", "16..8", "0", ""):
            self.bad("plan", "--model", TINY, "--ranks", ranks, says="R138")

    # --- bad input -------------------------------------------------------------------------------------------------
    def test_usage(self):
        self.assertEqual(self.run_program().returncode, 2)
        self.assertEqual(self.run_program("train", "dense").returncode, 2)
        self.assertEqual(self.run_program("train", "sparse").returncode, 2)
        self.assertEqual(self.run_program("encode", "--precision", "fp8").returncode, 2)

    def test_bad_rows(self):
        good = '{"query": "a", "positive": "b"}\n'
        for name, text, says in [("broken", good + "{nope\n", ":2"), ("field", '{"title": "a", "body": "b"}\n', ":1"),
                                 ("type", good + '{"query": 3, "positive": "b"}\n', [":2", "query"]),
                                 ("cut", good + '{"query": "a", "positive": "', ":2"),
                                 ("empty", "", "empty"), ("few", good, ["1 rows", "2"])]:
            with self.subTest(name):
                self.train_bad(says, None, self.file(name + ".jsonl", text))
        self.train_bad(":2", None, self.file("latin.jsonl", good.encode() + b'{"query": "\xff", "positive": "b"}\n'))
        self.train_bad("missing.jsonl", None, self.path("missing.jsonl"))
        self.train_bad(self.dir, None, self.dir)

    def test_bad_weights(self):
        raw = open(os.path.join(TINY, "model.safetensors"), "rb").read()

        def put(data):
            return lambda folder: open(os.path.join(folder, "model.safetensors"), "wb").write(data)
        self.train_bad("model.safetensors", self.model_with("truncated", put(raw[:len(raw) // 2])))
        self.train_bad("model.safetensors", self.model_with("tiny", put(b"abc")))
        self.train_bad("model.safetensors", self.model_with("huge", put(struct.pack("<Q", 1 << 60) + raw[8:])))
        self.train_bad("model.safetensors", self.model_with("tail", put(raw + b"12345678")))
        self.train_bad(["config.json"], self.model_with("noconfig", lambda f: os.remove(os.path.join(f, "config.json"))))

        def bin_only(folder):
            os.rename(os.path.join(folder, "model.safetensors"), os.path.join(folder, "pytorch_model.bin"))
        self.train_bad(["pytorch_model.bin", "safetensors"], self.model_with("bin", bin_only))
        key = "bert.encoder.layer.0.attention.self.query.weight"

        def drop(header, body):
            header["unused"] = header.pop(key)
            return header, body

        def reshape(header, body):
            shape = header[key]["shape"]
            header[key]["shape"] = [shape[0] * 2, shape[1] // 2]
            return header, body

        def overlap(header, body):
            names = [n for n in header if n != "__metadata__"]
            header[names[0]]["data_offsets"] = header[names[1]]["data_offsets"]
            return header, body
        self.train_bad("encoder.layer.0.attention.self.query.weight", self.edit_header("missing_tensor", drop))
        self.train_bad("encoder.layer.0.attention.self.query.weight", self.edit_header("shape", reshape))
        self.train_bad("model.safetensors", self.edit_header("overlap", overlap))

    def test_bad_config(self):
        self.train_bad("t5", self.edit_config("t5", model_type="t5"))
        self.train_bad("config.json", self.model_with("badjson", lambda f: open(os.path.join(f, "config.json"), "w").write("{")))
        self.train_bad("num_attention_heads", self.edit_config("heads", num_attention_heads=5))

        def other_tokenizer(folder):
            path = os.path.join(folder, "tokenizer.json")
            tokenizer = json.load(open(path))
            tokenizer["model"] = {"type": "SentencePiece"}
            json.dump(tokenizer, open(path, "w"))
        self.train_bad(["tokenizer.json", "SentencePiece"], self.model_with("othertok", other_tokenizer))
        self.train_bad("tokenizer.json", self.model_with("notok", lambda f: os.remove(os.path.join(f, "tokenizer.json"))))

        def more_words(folder):
            path = os.path.join(folder, "tokenizer.json")
            tokenizer = json.load(open(path))
            tokenizer["model"]["vocab"].update({f"word{i}": 900 + i for i in range(50)})
            json.dump(tokenizer, open(path, "w"))
        self.train_bad(["950", "900"], self.model_with("morewords", more_words))
        self.train_bad("positions", None, None, "--document-length", "100000")
        self.bad("encode", "--model", TINY, "--input", self.pairs, "--field", "query", "--output", self.path("never"), says="--fresh-head")
        self.bad("encode", "--model", self.path("nowhere"), "--input", self.pairs, "--field", "query", "--output", self.path("never"), says="nowhere")

    def test_bad_numbers(self):
        self.train_bad("temperature", None, None, "--temperature", "0")
        self.train_bad("lr", None, None, "--lr", "-1")
        self.train_bad("the loss of step", None, None, "--lr", "1e30", "--steps", "5")
        self.train_bad("fewer than one batch", None, None, "--batch-size", "1000")

    def test_bad_devices(self):
        self.train_bad("--device", None, None, "--device", "tpu")

    def test_bad_output(self):
        file = self.file("a_file", "x")
        self.bad("train", "dense", "--model", TINY, "--fresh-head", "--data", self.pairs, "--output", file, "--steps", "1", says="a_file")
        self.bad("train", "dense", "--model", TINY, "--fresh-head", "--data", self.pairs, "--output", "/proc/never", "--steps", "1", says="/proc/never")

    def test_bad_stdin(self):
        self.bad("tokenize", "--model", TINY, stdin='{"text": "a"}\nnope\n', says="standard input:2")
        self.bad("tokenize", "--model", TINY, stdin='{"txt": "a"}\n', says=["standard input:1", "text"])

    def test_bad_beir(self):
        broken = self.path("broken_beir")
        shutil.rmtree(broken, ignore_errors=True)
        shutil.copytree(self.beir, broken)
        os.remove(os.path.join(broken, "queries.jsonl"))
        self.bad("evaluate", "--model", self.path("dense"), "--data", broken, says="queries.jsonl")
        self.bad("evaluate", "--model", self.path("dense"), "--data", self.beir, "--split", "dev", says="dev.tsv")
        with open(os.path.join(self.beir, "qrels", "odd.tsv"), "w") as f:
            f.write("query-id\tcorpus-id\tscore\nq0\td0\tmany\n")
        self.bad("evaluate", "--model", self.path("dense"), "--data", self.beir, "--split", "odd", says="odd.tsv:2")


if __name__ == "__main__":
    result = unittest.main(argv=sys.argv[:1] + sys.argv[4:], exit=False, verbosity=1).result
    sys.exit(0 if result.wasSuccessful() and result.testsRun > 0 else 1)
