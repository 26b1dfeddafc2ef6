# SPDX-License-Identifier: Apache-2.0
"""Starts ranks of a program as a launcher would, reads what they wrote, and leaves no process behind."""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from dataclasses import dataclass
from pathlib import Path

SKIPPED = 4   # the exit status by which ctest knows a skipped test
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_", "TOLLER_INIT", "TOLLER_SPAWN",
             "OMPI_", "PMI", "PMIX_", "MV2_", "JSM_", "LSB_", "SLURM_", "GLOO_", "PET_")
MARK = "TOLLER_RANKS_TEST"
ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
TINY = GOLDEN / "encoders" / "bert_classifier"


def environment(variables=None):
    """This process's variables without those of any launcher, and `variables`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    return {**kept, "OMP_NUM_THREADS": "1", **{name: str(value) for name, value in (variables or {}).items()}}


def free_port(*choices):
    """A port that nobody listens at, one of `choices` if there are any."""
    for port in choices or (0,):
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return s.getsockname()[1]
            except OSError:
                pass
    raise RuntimeError("every port is taken")


def hand_written(ranks, port=None, address="127.0.0.1"):
    """What a user sets by hand for each rank."""
    port = port or free_port()
    return [{"RANK": r, "WORLD_SIZE": ranks, "LOCAL_RANK": r, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": address,
             "MASTER_PORT": port} for r in range(ranks)]


def torchrun():
    """Its path; skips the test where there is none."""
    peers = Path(os.environ.get("TOLLER_PEERS") or ROOT / "build" / "peers")
    if named := os.environ.get("TOLLER_TORCHRUN"):
        assert Path(named).exists(), f"TOLLER_TORCHRUN={named} is not there"
        return named
    for place in (peers / "base/bin/torchrun", shutil.which("torchrun")):
        if place and Path(place).exists():
            return str(place)
    raise unittest.SkipTest("no torchrun: tests/interop makes one in build/peers, or TOLLER_TORCHRUN names one")


def mpirun():
    if shutil.which("mpirun") is None:
        raise unittest.SkipTest("no mpirun: Debian has it in openmpi-bin")
    return "mpirun", "--allow-run-as-root", "--oversubscribe"


@dataclass
class Ended:
    """How a process ended: `code` is negative for a signal, None if it had to be killed because it went on. `left_behind` are
    the command lines of its children that outlived it by a second."""
    code: int | None
    out: str
    err: str
    seconds: float
    left_behind: list[str]


class Processes:
    """Processes in sessions of their own; leaving the `with` block ends all, and all that they started.

        with Processes() as running:
            for variables in hand_written(2): running.start([program, "colbert"], variables)
            ended = running.wait(60)
    """

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="toller-ranks-")
        self.temporary = os.path.join(self.folder, "tmp")   # theirs: what is in there at the end was left
        os.mkdir(self.temporary)
        self.children, self.began, self.lasted = [], time.monotonic(), []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill_all()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, command, variables=None):
        """Its number, by which the other functions know it."""
        number = len(self.children)
        with open(self.file(number, "out"), "wb") as out, open(self.file(number, "err"), "wb") as err:
            mark = {MARK: f"{self.folder}:{number}"}   # children inherit it
            variables = environment({"TMPDIR": self.temporary, **(variables or {}), **mark})
            self.children.append(subprocess.Popen([str(word) for word in command], env=variables, stdout=out, stderr=err,
                                                  stdin=subprocess.DEVNULL, start_new_session=True))
        self.lasted.append(None)
        return number

    def pid(self, number):
        return self.children[number].pid

    def send(self, number, sig):
        self.children[number].send_signal(sig)

    def running(self, number):
        done = self.children[number].poll() is not None
        if done and self.lasted[number] is None:
            self.lasted[number] = time.monotonic() - self.began
        return not done

    def text(self, number, stream="err"):
        """What it has printed so far."""
        return Path(self.file(number, stream)).read_text(errors="replace")

    def wait_for_text(self, number, words, seconds=60, stream="err"):
        """Whether it printed `words` in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if words in self.text(number, stream):
                return True
            if not self.running(number):
                return words in self.text(number, stream)
            time.sleep(0.02)
        return False

    def wait(self, seconds, but=()):
        """Waits for all except the numbers in `but`; how each ended. Those that go on are killed."""
        end = time.monotonic() + seconds
        numbers = [n for n in range(len(self.children)) if n not in but]
        while any([self.running(n) for n in numbers]) and time.monotonic() < end:
            time.sleep(0.01)
        late = {n for n in range(len(self.children)) if self.running(n)}
        left = [[] if n in late else self.left_behind(n) for n in range(len(self.children))]
        self.kill_all()
        return [Ended(None if n in late else child.returncode, self.text(n, "out"), self.text(n),
                      self.lasted[n] or time.monotonic() - self.began, left[n]) for n, child in enumerate(self.children)]

    def left_behind(self, number):
        """The command lines of what it started that still runs, a second later."""
        end = time.monotonic() + 1
        while (found := self.started_by(f"{self.folder}:{number}")) and time.monotonic() < end:
            time.sleep(0.05)
        return list(found.values())

    def started_by(self, mark):
        """Processes with this mark or one that begins so, except those that this program itself started."""
        found, own = {}, {child.pid for child in self.children}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if int(folder.name) not in own and f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                    found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                pass
        return found

    def kill_all(self):
        for child in self.children:
            child.kill()   # nothing if it has ended
        for child in self.children:
            child.wait()
        while left := self.started_by(self.folder):
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def file(self, number, stream):
        return os.path.join(self.folder, f"{number}.{stream}")


class Program:
    """The rank program: trains alone, or as ranks that meet through a file."""

    def __init__(self, path, folder, seconds=120):
        self.path, self.folder, self.seconds = os.path.abspath(path), Path(folder), seconds

    def run(self, command, variables=None):
        """The output of one process, which must succeed."""
        with Processes() as running:
            running.start(command, variables)
            return self.good(running.wait(self.seconds))[0].out

    def single(self, out, *arguments):
        self.run([self.path, arguments[0], *arguments[1:], "--single", "--out", out])
        return out

    def ranks(self, count, out, *arguments):
        """What every rank wrote: OUT.0, OUT.1, ...; and what it printed."""
        meeting = self.folder / f"meeting-{os.urandom(8).hex()}"
        with Processes() as running:
            for rank in range(count):
                running.start([self.path, *arguments, "--all", "--out", out],
                              {"RANK": rank, "WORLD_SIZE": count, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": count,
                               "TOLLER_INIT_METHOD": f"file://{meeting}"})
            ended = self.good(running.wait(self.seconds))
        return [Path(f"{out}.{rank}") for rank in range(count)], [e.out for e in ended]

    def compare(self, *pairs):
        """How far apart the files of each pair are."""
        out = self.run([self.path, "compare", *(file for pair in pairs for file in pair)])
        return [json.loads(line) for line in out.splitlines()]

    @staticmethod
    def good(ended):
        for number, e in enumerate(ended):
            assert e.code == 0, f"process {number} ended with {e.code} after {e.seconds:.1f} s: {e.err}{e.out}"
            assert not e.left_behind, f"process {number} left behind {e.left_behind}"
        return ended


def model_with_dropout(folder):
    """A copy of the tiny model whose configuration has dropout."""
    folder = Path(folder)
    folder.mkdir()
    for file in TINY.iterdir():
        if file.name != "config.json":
            (folder / file.name).symlink_to(file)
    config = json.loads((TINY / "config.json").read_text())
    config.update(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def finish(main):
    """Ends a test program; a run whose every test was skipped is a skipped one."""
    result = main.result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(SKIPPED if result.testsRun <= len(result.skipped) else 0)   # a skipped class is one skip and no test
