"""What the output of many hosts costs the client, compared with ssh and a select loop.

    .venv/bin/python bench/logs.py [--hosts 64] [--megabytes 10] [--rounds 3]

Each host writes lines of 102 bytes as fast as they are read. Ours: `herd exec --output stream`,
which keeps the log, splits lines and prefixes each with its host. Theirs: one `ssh` per host, and
one process that reads from them, 256 kB at a time, and counts lines. The minimum: asyncssh alone,
which discards what it reads. Client CPU includes all processes on this side (also the daemon) and
connecting; all use the same key exchange and cipher. First, the daemon's memory is measured while a
reader sleeps. Hosts are real sshds in a network namespace of this machine and share its cores, so
no times. Needs root.
"""

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter, sleep

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.exec import children_s, spent
from bench.rigs.daemon_hosts import HostCrowd, host_crowd
from bench.rigs.figures import find_version, own_row, pair_row, write_figures

from tests.conformance.hosts_sshd import missing_programs

LINE = "x" * 101
SLEEP_S = 8
MEGABYTE = 1 << 20
SELECT = """
import selectors, subprocess, sys, os
words, hosts = sys.argv[1].split("\\n"), sys.argv[2].split()
selector, lines = selectors.DefaultSelector(), 0
for host in hosts:
    command = [host if word == "HOST" else word for word in words]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    selector.register(process.stdout, selectors.EVENT_READ, process)
while selector.get_map():
    for key, _ in selector.select():
        piece = os.read(key.fd, 1 << 18)
        lines += piece.count(b"\\n")
        if not piece:
            selector.unregister(key.fileobj)
            assert key.data.wait() == 0
print(lines)
"""


#: The same without anything of ours, and without lines.
LEAST = """
import asyncio, asyncssh, sys
key, login, port, command, *ips = sys.argv[1:]
class Reader(asyncssh.SSHClientSession):
    lines = 0
    def data_received(self, data, kind):
        Reader.lines += data.count(b"\\n")
async def one(ip):
    async with asyncssh.connect(
        ip, int(port), username=login, client_keys=[key], known_hosts=None, config=None,
        agent_path=None, kex_algs=["curve25519-sha256"], encryption_algs=["aes128-gcm@openssh.com"],
    ) as connection:
        channel, _ = await connection.create_session(Reader, command, encoding=None)
        await channel.wait_closed()
async def main():
    await asyncio.gather(*map(one, ips))
    print(Reader.lines)
asyncio.run(main())
"""


def text(many: int) -> str:
    return f"yes {LINE} | head -c {many}"


def theirs(pod: HostCrowd, many: int) -> Callable[[], int]:
    """How many lines came."""
    words = "\n".join(pod.ssh("HOST", text(many)))
    command = [sys.executable, "-c", SELECT, words, " ".join(pod.ips)]
    return lambda: int(subprocess.run(command, capture_output=True, check=True).stdout)


def least(pod: HostCrowd, many: int) -> Callable[[], int]:
    """The same, of asyncssh."""
    words = [str(pod.key), pod.login, str(pod.port), text(many), *pod.ips]
    command = [sys.executable, "-c", LEAST, *words]
    return lambda: int(subprocess.run(command, capture_output=True, check=True).stdout)


def ours(pod: HostCrowd, many: int, output: str) -> Callable[[], int]:
    words = pod.herd("-n", "--output", output, "-c", text(many))

    def act() -> int:
        with subprocess.Popen(words, env=pod.env, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            lines = 0
            while piece := os.read(process.stdout.fileno(), 1 << 18):
                lines += piece.count(b"\n")
        assert process.returncode == 0
        return lines

    return act


def cost(pod: HostCrowd, act: Callable[[], int]) -> tuple[float, float, int]:
    """CPU and wall seconds, and lines."""
    resident, children, begun = spent(pod.pid), children_s(), perf_counter()
    lines = act()
    return spent(pod.pid) - resident + children_s() - children, perf_counter() - begun, lines


def memory(pid: int, row: str) -> float:
    """MB."""
    found = dict(one.split(":", 1) for one in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(found[row].split()[0]) / 1024


def peak(pod: HostCrowd, many: int, sleep_s: float) -> tuple[float, float]:
    """Return the daemon's memory before, and its peak while a reader sleeps and then reads all."""
    base = memory(pod.pid, "VmRSS")
    Path(f"/proc/{pod.pid}/clear_refs").write_text("5")  # from now on: the highest
    words = pod.herd("-n", "--output", "stream", "-c", text(many))
    with subprocess.Popen(words, env=pod.env, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        os.read(process.stdout.fileno(), 1)
        sleep(sleep_s)
        while os.read(process.stdout.fileno(), 1 << 18):
            pass
    assert process.returncode == 0
    return base, memory(pod.pid, "VmHWM")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--megabytes", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--alone", action="store_true", help="without the other side")
    said = parser.parse_args()
    many = said.megabytes * MEGABYTE
    whole = said.megabytes * said.hosts
    why = missing_programs(("ip", "ss", "unshare", "ssh-keygen", "ssh"))
    if why:
        print(f"output beside ssh: {why}")
        return 0
    rows: list[dict[str, object]] = []
    with host_crowd(said.hosts) as pod:
        subprocess.run(pod.herd("--", "true"), env=pod.env, check=True)  # agents come up
        for sleep_s in (SLEEP_S, 0):  # first, while the daemon is small
            base, top = peak(pod, many, sleep_s)
            print(
                f"daemon, reader sleeps {sleep_s} s: {base:.0f} MB before, {top:.0f} MB at most:"
                f" {(top - base) / said.hosts:.2f} MB a host"
            )
            figure = f"memory of the daemon a host, if the reader sleeps {sleep_s} s"
            rows.append({**own_row(figure, "MB", [(top - base) / said.hosts]), "at": said.hosts})
        acts = {"herd exec, stream": ours(pod, many, "stream")}
        if not said.alone:
            acts |= {"ssh and select": theirs(pod, many), "asyncssh alone": least(pod, many)}
        acts |= {"herd exec, fold": ours(pod, many, "fold")}
        found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in acts}
        for _ in range(said.rounds):
            for name, act in acts.items():
                found[name].append(cost(pod, act))
        for name, costs in found.items():
            cpu, wall = (statistics.median(one[i] for one in costs) for i in (0, 1))
            print(
                f"{name:<20} {whole} MB  {1000 * cpu / whole:6.2f} ms CPU/MB  {wall:6.1f} s"
                f"  {costs[0][2]} lines",
                flush=True,
            )
    if said.json:
        rows += figure_rows(found, whole, said.hosts)
        write_figures(said.json, "Output of many hosts", rows, {"ssh": find_version("ssh", "-V")})
    return 0


def figure_rows(
    found: dict[str, list[tuple[float, float, int]]], megabytes: int, hosts: int
) -> Iterator[dict[str, object]]:
    """Return ours, as it is and folded, beside each other way."""
    cpu = {name: [1000 * one[0] / megabytes for one in costs] for name, costs in found.items()}
    for name, mine in cpu.items():
        if name.startswith("herd"):
            for peer, theirs in cpu.items():
                if not peer.startswith("herd"):
                    row = pair_row(f"{name}: processor time a MB", "ms", mine, peer, theirs)
                    yield {**row, "at": hosts}


if __name__ == "__main__":
    sys.exit(main())
