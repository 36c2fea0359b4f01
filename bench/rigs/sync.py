"""The rig of the `herd sync` benchmark: a slow uplink, and rsync to the same hosts."""

import asyncio
import multiprocessing
import os
import resource
import subprocess
from collections.abc import Sequence
from math import inf
from multiprocessing.connection import Connection
from pathlib import Path

from bench.rigs.slow_links import Line

from tests.conformance.hosts_sshd import SshdHosts

UP, DOWN, DELAY_S = 20e6 / 8, 100e6 / 8, 0.015
PIECE = 1 << 14
AHEAD = 1 << 18  #: bytes that wait in the proxy for each connection
ALIKE = ["-o", "KexAlgorithms=curve25519-sha256", "-o", "Ciphers=aes128-gcm@openssh.com"]


# ---- the uplink ----------------------------------------------------------------------------------


async def proxy(pipe: Connection, addresses: Sequence[str], thin: bool) -> None:
    """A port for each host; tells the bytes that went up whenever it is asked."""
    delay_s, rates = (DELAY_S, (UP, DOWN)) if thin else (0.0, (inf, inf))
    up, down = (Line(delay_s, rate, PIECE, AHEAD // PIECE) for rate in rates)
    ports, servers = [], []
    for address in addresses:

        async def meet(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str = address
        ) -> None:
            there, onward = await asyncio.open_connection(address, 22)
            await asyncio.gather(
                up.carry(reader, onward), down.carry(there, writer), return_exceptions=True
            )
            onward.close()
            writer.close()

        server = await asyncio.start_server(meet, "127.0.0.1", 0)
        servers.append(server)
        ports.append(server.sockets[0].getsockname()[1])
    pipe.send(ports)

    over = asyncio.Event()

    def asked() -> None:
        try:
            pipe.recv()
        except EOFError:  # the caller was killed
            over.set()
        else:
            pipe.send(up.carried)

    loop = asyncio.get_running_loop()
    loop.add_reader(pipe.fileno(), asked)
    await over.wait()
    loop.remove_reader(pipe.fileno())


def proxied(pipe: Connection, addresses: Sequence[str], thin: bool) -> None:
    asyncio.run(proxy(pipe, addresses, thin))


class Uplink:
    """That process."""

    def __init__(self, addresses: Sequence[str], thin: bool) -> None:
        self.pipe, other = multiprocessing.get_context("spawn").Pipe()
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(target=proxied, args=(other, addresses, thin), daemon=True)
        self.process.start()
        self.ports: list[int] = self.pipe.recv()

    def carried(self) -> int:
        self.pipe.send(None)
        many: int = self.pipe.recv()
        return many


# ---- the peer ------------------------------------------------------------------------------------


class Rsync:
    """rsync to all hosts at once."""

    def __init__(self, place: SshdHosts, folder: Path, uplink: Uplink, code: Path) -> None:
        self.folder, self.uplink, self.code = folder, uplink, code
        self.key = folder / "peer"
        make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key)]
        subprocess.run(make, check=True)
        with place.keys.open("a") as file:
            file.write(self.key.with_suffix(".pub").read_text())
        self.masters: list[int] = []

    def ssh(self, port: int, *more: str) -> list[str]:
        known = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
        quiet = ["-o", "LogLevel=ERROR", "-F", "/dev/null", "-i", str(self.key), "-l", "root"]
        shared = ["-o", f"ControlPath={self.folder}/m-{port}"]
        return ["ssh", *ALIKE, *known, *quiet, *shared, "-p", str(port), *more]

    def hold(self) -> None:
        """A ControlMaster for each host."""
        for port in self.uplink.ports:
            words = self.ssh(port, "-MNf", "127.0.0.1")
            subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
            said = subprocess.run(
                self.ssh(port, "-O", "check", "127.0.0.1"), capture_output=True, text=True
            )
            self.masters.append(int(said.stderr.partition("pid=")[2].partition(")")[0]))

    def release(self) -> None:
        for port in self.uplink.ports:
            words = self.ssh(port, "-O", "exit", "127.0.0.1")
            subprocess.run(words, capture_output=True, check=False)
        self.masters.clear()

    def cpu(self) -> float:
        """Of all that have ended, and of the masters that have not."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        ticks = 0
        for pid in self.masters:
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(words[11]) + int(words[12])
        return used.ru_utime + used.ru_stime + ticks / os.sysconf("SC_CLK_TCK")

    def run(self, flags: str) -> None:
        started = []
        for port in self.uplink.ports:
            words = ["rsync", flags, "--delete", "--exclude=.git", "-e", " ".join(self.ssh(port))]
            started.append(subprocess.Popen([*words, f"{self.code}/", f"127.0.0.1:{flags}"]))
        assert all(process.wait() == 0 for process in started)
