#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two ranks equal one process under every launcher.

usage: launchers_test.py RANK_PROGRAM [Launchers | Mpirun | Srun | Torchrun ...]
environment: TOLLER_TORCHRUN, the torchrun to use (default: that of build/peers or of TOLLER_PEERS, or on the PATH); TOLLER_SRUN, set
where a missing srun is a failure"""
import os
import random
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

from slurm import Cluster
from support import Processes, Program, finish, free_port, hand_written, mpirun, torchrun

TRAIN = ("colbert", "--fp64")


class UnderLauncher(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="toller-launchers-")
        cls.folder = Path(cls.temporary.name)
        cls.program = Program(PROGRAM, cls.folder)
        cls.expected = cls.program.single(cls.folder / "single", *TRAIN)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def expect_equal(self, *processes, ranks=2):
        """`processes`: (words before the program and its arguments, further arguments, variables) of each to start."""
        out = self.folder / self.id().rpartition(".")[2]
        with Processes() as running:
            for before, arguments, variables in processes:
                running.start([*before, self.program.path, *TRAIN, *arguments, "--all", "--out", out], variables)
            ended = self.program.good(running.wait(120))
            self.assertEqual([name for name in os.listdir(running.temporary) if name.startswith("toller")], [])
        self.assertNotIn("no launcher", "".join(e.err for e in ended))
        outs = [Path(f"{out}.{rank}") for rank in range(ranks)]
        self.assertFalse(Path(f"{out}.{ranks}").exists())
        for other in outs[1:]:
            self.assertEqual(other.read_bytes(), outs[0].read_bytes())
        [found] = self.program.compare((outs[0], self.expected))
        for name, value in found.items():
            self.assertLessEqual(value, 1e-9, (name, found))


class Launchers(UnderLauncher):
    def test_by_hand(self):
        self.expect_equal(*(((), (), variables) for variables in hand_written(2)))

    def test_file(self):
        place = f"file://{self.folder / 'meeting place'}"
        self.expect_equal(*(((), (), {"RANK": r, "WORLD_SIZE": 2, "TOLLER_INIT_METHOD": place}) for r in range(2)))

    def test_file_left_by_an_earlier_run(self):
        place = self.folder / "used"
        place.write_text("127.0.0.1:1\n")
        self.expect_equal(*(((), (), {"RANK": r, "WORLD_SIZE": 2, "TOLLER_INIT_METHOD": f"file://{place}"}) for r in range(2)))

    def test_tcp(self):
        place = f"tcp://localhost:{free_port()}"
        self.expect_equal(*(((), (), {"RANK": r, "WORLD_SIZE": 2, "TOLLER_INIT_METHOD": place}) for r in range(2)))

    def test_pytorchjob(self):
        """Kubernetes says nothing of local ranks; rank 0 is told the name of its own service."""
        port = free_port()
        self.expect_equal(*(((), (), {"PET_NNODES": 2, "PYTHONUNBUFFERED": 1, "MASTER_PORT": port, "MASTER_ADDR": "localhost",
                                      "WORLD_SIZE": 2, "RANK": r}) for r in range(2)))

    def test_slurm(self):
        port = free_port(*random.sample(range(15000, 25000), 100))   # where SLURM's jobs meet
        self.expect_equal(*(((), (), {"SLURM_JOB_ID": 70000 + port - 15000, "SLURM_JOB_NAME": "train", "SLURM_STEP_ID": 0,
                                      "SLURM_PROCID": r, "SLURM_LOCALID": r, "SLURM_STEP_NUM_TASKS": 2, "SLURM_NTASKS": 2,
                                      "SLURM_STEP_TASKS_PER_NODE": 2, "SLURM_NODEID": 0, "SLURM_STEP_NODELIST": "localhost",
                                      "SLURM_JOB_NODELIST": "localhost"}) for r in range(2)))

    def test_spawn(self):
        self.expect_equal(((), ("--spawn", 2), {}))

    def test_spawn_three(self):
        self.expect_equal(((), ("--spawn", 3), {}), ranks=3)


class Mpirun(UnderLauncher):
    def test_on_one_host(self):
        """No address is needed: they meet through a file."""
        self.expect_equal(((*mpirun(), "-n", 2), (), {}))

    def test_with_an_address(self):
        meet = ("-x", "MASTER_ADDR=127.0.0.1", "-x", f"MASTER_PORT={free_port()}")
        self.expect_equal(((*mpirun(), "-n", 2, *meet), (), {}))

    def test_mpich(self):
        """Hydra says rank and size by PMI's variables, as Intel MPI's does."""
        if shutil.which("mpiexec.mpich") is None:
            self.skipTest("no mpiexec.mpich: Debian has it in mpich")
        self.expect_equal((("mpiexec.mpich", "-n", 2), (), {}))


class Srun(UnderLauncher):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster()
        cls.enterClassContext(cls.cluster)
        super().setUpClass()

    def srun(self, *options):
        return ((*self.cluster.srun, *options), (), self.cluster.variables)

    def test_one_node(self):
        self.expect_equal(self.srun("--nodes", 1, "--ntasks", 2))

    def test_two_nodes(self):
        self.expect_equal(self.srun("--nodes", 2, "--ntasks", 4), ranks=4)

    def test_uneven_nodes(self):
        self.expect_equal(self.srun("--nodes", 2, "--ntasks", 3), ranks=3)

    def test_a_script_that_srun_starts(self):
        """The job's name is then bash, as that of an interactive shell."""
        before, arguments, variables = self.srun("--ntasks", 2, "bash", "-c", '"$@"; exit $?', "script")
        self.expect_equal((before, arguments, variables))

    def test_a_batch_script_without_srun(self):
        out = self.folder / "batch.txt"
        with Processes() as running:
            running.start([*self.cluster.inside, "sbatch", "--wait", "--ntasks", 2, "--output", out, "--wrap",
                           " ".join((self.program.path, *TRAIN, "--timeout 3"))], self.cluster.variables)
            [ended] = running.wait(60)
        self.assertNotIn(ended.code, (0, None))
        self.assertIn("SLURM's job has 2 tasks, but no step: in a batch script, start the program by srun", out.read_text())

    def test_two_steps_of_one_job(self):
        """Within salloc, whose steps are named interactive; each meets for itself."""
        train = " ".join(("srun --ntasks=2 --exclusive", self.program.path, *TRAIN, "--all --out", str(self.folder / "step")))
        with Processes() as running:
            running.start([*self.cluster.inside, "salloc", "--nodes", 2, "--ntasks", 4, "sh", "-c",
                           f"{train}1 & {train}2; second=$?; wait $! && exit $second"], self.cluster.variables)
            self.program.good(running.wait(120))
        outs = [self.folder / f"step{step}.{rank}" for step in (1, 2) for rank in range(2)]
        for found in self.program.compare(*((out, self.expected) for out in outs)):
            for name, value in found.items():
                self.assertLessEqual(value, 1e-9, (name, found))

    def test_a_killed_rank(self):
        before, _, variables = self.srun("--nodes", 2, "--ntasks", 3)
        with Processes() as running:
            running.start([*before, self.program.path, *TRAIN, "--fault", "1:kill_inside:2"], variables)
            [ended] = running.wait(120)
        self.assertNotIn(ended.code, (0, None))
        self.assertEqual(ended.left_behind, [])
        self.assertRegex(ended.err, r"rank 0: \[R620\] rank 1 \(.*, pid \d+\)")


class Torchrun(UnderLauncher):
    def test_one_node(self):
        self.expect_equal(((torchrun(), "--no-python", "--nproc-per-node", 2, "--master-port", free_port()), (), {}))

    def test_standalone(self):
        self.expect_equal(((torchrun(), "--no-python", "--standalone", "--nproc-per-node", 2), (), {}))


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    finish(unittest.main(verbosity=2, exit=False))
