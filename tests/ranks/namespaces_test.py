#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two machines with two ranks each, as two network namespaces joined by a cable, equal one process: by hand, torchrun and mpirun.

usage: namespaces_test.py RANK_PROGRAM        needs root and `ip` (Debian: iproute2), else it is skipped"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from support import Processes, Program, finish, mpirun, torchrun

ADDRESSES = ("10.213.77.1", "10.213.77.2")
PORT = 29500   # nobody else is in there
TRAIN = ("colbert", "--fp64")
RENAMED = ("unshare", "--uts", "sh", "-c", 'echo toller-host-{host} > /proc/sys/kernel/hostname && exec "$@"', "sh")


def ip(*words, check=True):
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if check and done.returncode != 0:
        raise unittest.SkipTest(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Namespaces(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0:
            raise unittest.SkipTest("network namespaces need root")
        if shutil.which("ip") is None:
            raise unittest.SkipTest("no ip: Debian has it in iproute2")
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))   # which cleans up
        for name in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.split():
            if name.startswith("toller-") and not Path("/proc", name.split("-")[1]).exists():
                ip("netns", "del", name, check=False)   # of a run that was killed
        mark = os.getpid()
        cls.names, cls.cables = [f"toller-{mark}-{i}" for i in range(2)], [f"tl{mark}{c}" for c in "ab"]
        cls.addClassCleanup(cls.remove)   # also when something below fails
        for name in cls.names:
            ip("netns", "add", name)
        ip("link", "add", cls.cables[0], "type", "veth", "peer", "name", cls.cables[1])
        for name, cable, address in zip(cls.names, cls.cables, ADDRESSES):
            ip("link", "set", cable, "netns", name)
            ip("-n", name, "addr", "add", f"{address}/24", "dev", cable)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", cable, "up")
        temporary = tempfile.TemporaryDirectory(prefix="toller-namespaces-")
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = Path(temporary.name)
        cls.program = Program(PROGRAM, cls.folder)
        cls.expected = cls.program.single(cls.folder / "single", *TRAIN)

    @classmethod
    def remove(cls):
        ip("link", "del", cls.cables[0], check=False)
        for name in cls.names:
            ip("netns", "del", name, check=False)

    def expect_equal(self, *processes):
        """`processes`: (number of the namespace, words before the program, variables) of each to start; four ranks in all."""
        out = self.folder / self.id().rpartition(".")[2]
        with Processes() as running:
            for host, before, variables in processes:
                running.start(["ip", "netns", "exec", self.names[host], *before, self.program.path, *TRAIN, "--all", "--out", out],
                              variables)
            self.program.good(running.wait(120))
        outs = [Path(f"{out}.{rank}") for rank in range(4)]
        for other in outs[1:]:
            self.assertEqual(other.read_bytes(), outs[0].read_bytes())
        [found] = self.program.compare((outs[0], self.expected))
        for name, value in found.items():
            self.assertLessEqual(value, 1e-9, (name, found))

    def ranks(self, variables_of, *before):
        """Ranks 0 and 1 here, 2 and 3 there; the first namespace has the store."""
        for rank in range(4):
            host = rank // 2
            yield host, [word.format(host=host) for word in before], {
                "RANK": rank, "WORLD_SIZE": 4, "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": PORT, **variables_of(rank, host)}

    def test_by_hand(self):
        self.expect_equal(*self.ranks(lambda rank, host: {"LOCAL_RANK": rank % 2, "LOCAL_WORLD_SIZE": 2}))

    def test_named_interfaces(self):
        self.expect_equal(*self.ranks(lambda rank, host: {"LOCAL_RANK": rank % 2, "GLOO_SOCKET_IFNAME": self.cables[host]}))

    def test_host_names_that_nobody_knows(self):
        """Each namespace has a host name that no look-up finds; local ranks are counted by it."""
        if subprocess.run([*(word.format(host=0) for word in RENAMED), "true"], capture_output=True).returncode != 0:
            self.skipTest("unshare --uts: cannot name a host here")
        self.expect_equal(*self.ranks(lambda rank, host: {}, *RENAMED))

    def test_torchrun(self):
        """An agent on each machine; the first one's holds the store."""
        agent = (torchrun(), "--no-python", "--nnodes", 2, "--nproc-per-node", 2, "--master-addr", ADDRESSES[0], "--master-port", PORT)
        self.expect_equal(*((host, (*agent, "--node-rank", host), {}) for host in range(2)))

    def test_mpirun(self):
        """The other machine's ranks are started by a remote shell, which `ip netns exec` stands in for."""
        shell = self.folder / "remote_shell"
        shell.write_text(f'#!/bin/sh\nshift\nexec ip netns exec {self.names[1]} sh -c "$*"\n')
        shell.chmod(0o755)
        hosts = ",".join(f"{address}:2" for address in ADDRESSES)
        self.expect_equal((0, (*mpirun(), "-n", 4, "-H", hosts, "--mca", "plm_rsh_agent", shell, "-x", f"MASTER_ADDR={ADDRESSES[0]}"), {}))


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    finish(unittest.main(verbosity=2, exit=False))
