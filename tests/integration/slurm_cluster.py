"""Slurm on this machine: a controller and several nodes, each a slurmd of its own; no munge."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

CONFIG = """\
ClusterName=herd
SlurmctldHost={machine}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={spool}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
MpiDefault=none
SwitchType=switch/none
KillWait=2
SlurmctldTimeout=600
SlurmdTimeout=0
GresTypes=tpu
PartitionName=tpu Nodes=ALL Default=YES State=UP
"""
NODE = "NodeName={name} NodeHostname={machine} NodeAddr=127.0.0.1 Port={port} Gres=tpu:4 CPUs=1\n"
PATIENCE_S = 200.0


def free_ports(count: int) -> list[int]:
    """Return ports that no program has now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class SlurmCluster:
    """A running cluster. A node is lost by `lose`: its slurmd and all that ran there are killed."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder = folder
        self.spool = TemporaryDirectory(prefix="slurm-")  # its sockets need a short path
        self.names = [f"n{at}" for at in range(nodes)]
        machine = socket.gethostname().partition(".")[0]
        ports = free_ports(nodes + 1)
        text = CONFIG.format(machine=machine, folder=folder, spool=self.spool.name, ports=ports)
        head, last = text.rsplit("PartitionName", 1)
        for name, port in zip(self.names, ports[1:], strict=True):
            head += NODE.format(name=name, machine=machine, port=port)
        (folder / "state").mkdir()
        (folder / "slurm.conf").write_text(f"{head}PartitionName{last}")
        (folder / "gres.conf").write_text("Name=tpu Count=4\n")
        self.environ = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self.start("slurmctld")
        for name in self.names:
            self.start("slurmd", "-N", name)
        self.wait_for("all nodes", lambda: self.read("sinfo", "-h", "-t", "idle", "-o", "%D") ==
                      str(len(self.names)))  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        self.read("scancel", "--state=PENDING,RUNNING", "--user=root")
        for daemon in self.daemons.values():
            daemon.kill()
            daemon.wait()
        for name in self.names:
            for pid in node_processes(name, self.folder):
                kill_process(pid)
        self.spool.cleanup()

    def start(self, program: str, *words: str) -> None:
        log = (self.folder / f"{program}{''.join(words)}.out").open("wb")
        with log:
            self.daemons["".join(words[1:]) or program] = subprocess.Popen(
                [program, "-D", *words, "-f", str(self.folder / "slurm.conf")],
                stdout=log, stderr=log, env=self.environ,
            )  # fmt: skip

    def read(self, *words: str) -> str:
        """Run a command of Slurm and return what it says."""
        ran = subprocess.run(
            words, env=self.environ, cwd=self.folder, capture_output=True, text=True, check=False
        )
        return ran.stdout.strip()

    def submit(self, script: str) -> str:
        """Submit a script and return the job's id."""
        file = self.folder / "job.sh"
        file.write_text(script)
        job = self.read("sbatch", "--parsable", file.name)
        assert job.isdecimal(), job
        return job

    def lose(self, name: str) -> None:
        """Kill a node; Slurm is told at once instead of after its timeout."""
        self.daemons[name].kill()
        for pid in node_processes(name, self.folder):
            kill_process(pid)
        self.read("scontrol", "update", f"nodename={name}", "state=down", "reason=lost")

    def state(self, job: str) -> str:
        """Return a job's state; a pending one that only waits for its time begins very soon.

        Not in the second in which it was killed: slurmd then takes its new start for the old one.
        """
        found = self.read("scontrol", "show", "job", "--oneliner", job)
        words = dict(word.split("=", 1) for word in found.split() if "=" in word)
        soon = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 2))
        if (words.get("JobState"), words.get("Reason")) == ("PENDING", "BeginTime") and (
            words["StartTime"] > soon
        ):
            self.read("scontrol", "update", f"jobid={job}", f"StartTime={soon}")
        return words.get("JobState", "")

    def wait_for_state(self, job: str, *wanted: str) -> None:
        self.wait_for(f"job {job} in {wanted}", lambda: self.state(job) in wanted)

    def wait_for(self, what: str, is_there: Callable[[], bool]) -> None:
        """Wait for a condition; the time is only how long a hopeless test waits."""
        end = time.monotonic() + PATIENCE_S
        while not is_there():
            if time.monotonic() > end:
                logs = [one.read_text(errors="replace")[-2000:]
                        for one in sorted(self.folder.glob("*.log"))]  # fmt: skip
                raise AssertionError(f"no {what}:\n" + "\n".join(logs))
            time.sleep(0.1)


def node_processes(name: str, folder: Path) -> set[int]:
    """Return the processes of a node's jobs in this cluster, and those that look after them."""
    found = set()
    mine = [f"SLURMD_NODENAME={name}".encode(), f"SLURM_CONF={folder}/slurm.conf".encode()]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environ = (process / "environ").read_bytes().split(b"\0")
            if not all(word in environ for word in mine):
                continue
            found.add(int(process.name))
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            if (Path("/proc") / parent / "comm").read_text().startswith("slurmstepd"):
                found.add(int(parent))
        except OSError:  # ended meanwhile
            continue
    return found


def kill_process(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
