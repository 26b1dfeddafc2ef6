# SPDX-License-Identifier: Apache-2.0
"""A SLURM cluster of two nodes on this machine, for as long as a `with` block lasts."""
import os
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from support import free_port

NEEDED = ("slurmctld", "slurmd", "srun", "sinfo", "munged", "unshare", "nsenter")


class Cluster:
    """Nodes n1 and n2 of two processors each, in a mount namespace whose /etc/hosts knows them. `srun` is the words to begin with,
    and `variables` are to be set for it."""

    def __init__(self):
        os.environ["PATH"] += ":/usr/sbin:/sbin"
        lacking = [name for name in NEEDED if shutil.which(name) is None]
        if lacking:
            reason = f"no {', '.join(lacking)}: Debian has them in slurmctld, slurmd, slurm-client, munge and util-linux"
            assert not os.environ.get("TOLLER_SRUN"), f"TOLLER_SRUN is set, but {reason}"
            raise unittest.SkipTest(reason)
        if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0 or os.geteuid() != 0:
            raise unittest.SkipTest("this user may not start SLURM's daemons or make a mount namespace")

    def __enter__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="toller-slurm-"))
        self.daemons, host = [], os.uname().nodename
        place = {name: self.folder / name for name in ("hosts", "key", "socket", "state", "spool")}
        for name in ("state", "spool"):
            place[name].mkdir()
        place["hosts"].write_text(f"127.0.0.1 localhost {host} n1 n2\n")
        place["key"].write_bytes(os.urandom(1024))
        place["key"].chmod(0o600)
        self.folder.chmod(0o755)   # munged wants that nobody else can write here
        ports = [free_port() for _ in range(3)]
        conf = self.folder / "slurm.conf"
        conf.write_text(f"""ClusterName=toller
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={place["socket"]}
StateSaveLocation={place["state"]}
SlurmdSpoolDir={place["spool"]}/%n
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd.%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{ports[1]},{ports[2]}] CPUs=2
PartitionName=all Nodes=ALL Default=YES
""")
        self.variables = {"SLURM_CONF": conf}
        self.inside = []
        holder = self.daemon("unshare", "--mount", "sh", "-c", f"mount --bind {place['hosts']} /etc/hosts && exec sleep infinity")
        self.inside = ["nsenter", "--mount", "--target", str(holder.pid)]
        self.srun = (*self.inside, "srun")
        self.until(lambda: "n1" in self.ask("cat", "/etc/hosts"))
        self.daemon("munged", "--foreground", "--force", "--key-file", place["key"], "--socket", place["socket"],
                    *(f"--{what}-file={self.folder / what}" for what in ("pid", "log", "seed")))
        self.until(place["socket"].exists)
        self.daemon("slurmctld", "-D", "-c")
        for node in ("n1", "n2"):
            self.daemon("slurmd", "-D", "-N", node)
        self.until(lambda: "2 idle" in self.ask("sinfo", "--noheader", "--format=%D %t"))
        return self

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def environment(self):
        return {**os.environ, "SLURM_CONF": str(self.variables["SLURM_CONF"])}

    def daemon(self, *words):
        with open(self.folder / f"daemon.{len(self.daemons)}", "wb") as log:
            started = subprocess.Popen([*self.inside, *map(str, words)], env=self.environment(), stdin=subprocess.DEVNULL, stdout=log,
                                       stderr=log)
        self.daemons.append(started)
        return started

    def ask(self, *words):
        return subprocess.run([*self.inside, *words], env=self.environment(), capture_output=True, text=True).stdout

    def until(self, so, seconds=30):
        end = time.monotonic() + seconds
        while not so():
            if time.monotonic() > end:
                logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in sorted(self.folder.glob("daemon.*")))
                self.__exit__()
                raise AssertionError(f"SLURM did not start:\n{logs}")
            time.sleep(0.1)
