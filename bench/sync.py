"""What a sync costs beside rsync on the same hosts: bytes up, client CPU and wall time.

The hosts are real sshd's in a network namespace of this machine, so they share its cores with the
client. The uplink is a TCP proxy in a process of its own: 20 Mbit/s up, 100 Mbit/s down for all
connections together, 15 ms each way; then again, as fast as it carries. Ours is a resident process
with its connections open, as the keeper is; rsync has the same key exchange and cipher, cold by new
connections, warm by ControlMasters, whose CPU counts. Needs root, sshd and rsync. Both alternate;
the median of --times is shown, and the ratio ours / rsync. Bytes are TCP's payload.
"""

import argparse
import asyncio
import multiprocessing
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter, process_time, sleep

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.conformance.hosts_ground import opened
from tests.conformance.hosts_sshd import Town, lacking, town
from tpuherd.hosts.snapshot import take
from tpuherd.hosts.snapshot_archive import Archive
from tpuherd.hosts.ssh import Ways
from tpuherd.hosts.sync import ship
from tpuherd.hosts.zipapp import agent
from tpuherd.ports import Host

FILES = 800
UP, DOWN, DELAY_S = 20e6 / 8, 100e6 / 8, 0.015
AHEAD = 1 << 18  #: bytes that wait in the proxy for each connection
ALIKE = ["-o", "KexAlgorithms=curve25519-sha256", "-o", "Ciphers=aes128-gcm@openssh.com"]
STATUS = ["git", "--no-optional-locks", "status", "--porcelain"]
ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}

Figures = tuple[float, float, float]  #: bytes up, CPU seconds, wall seconds


# ---- the uplink ----------------------------------------------------------------------------------


class Line:
    """One direction of all connections: so many bytes a second, so late."""

    def __init__(self, rate: float, delay_s: float) -> None:
        self.rate, self.delay_s = rate, delay_s
        self.free_at = 0.0
        self.carried = 0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(AHEAD >> 14)

        async def arrive() -> None:
            while True:
                at, piece = await queue.get()
                await asyncio.sleep(max(0.0, at - loop.time()))
                if not piece:
                    break
                writer.write(piece)
                await writer.drain()
            writer.write_eof()

        task = asyncio.ensure_future(arrive())
        with suppress(OSError):
            while piece := await reader.read(1 << 14):
                self.carried += len(piece)
                self.free_at = max(self.free_at, loop.time()) + len(piece) / self.rate
                await queue.put((self.free_at + self.delay_s, piece))
        await queue.put((loop.time() + self.delay_s, b""))
        with suppress(OSError):
            await task


async def proxy(pipe: Connection, addresses: Sequence[str], thin: bool) -> None:
    """A port for each host; tells the bytes that went up whenever it is asked."""
    up = Line(UP, DELAY_S) if thin else Line(1e12, 0)
    down = Line(DOWN, DELAY_S) if thin else Line(1e12, 0)
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

    def asked() -> None:
        pipe.recv()
        pipe.send(up.carried)

    asyncio.get_running_loop().add_reader(pipe.fileno(), asked)
    await asyncio.Event().wait()


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

    def __init__(self, place: Town, folder: Path, uplink: Uplink, code: Path) -> None:
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


# ---- both ----------------------------------------------------------------------------------------


def payload(code: Path) -> None:
    """Python's own sources, as a repository."""
    library, many = Path(os.__file__).parent, 0
    for file in sorted(library.rglob("*.py")):
        if "site-packages" not in file.parts and many < FILES:
            place = code / file.relative_to(library)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)
            many += 1
    subprocess.run(["git", "init", "-q"], cwd=code, check=True)
    for file in code.rglob("*.py"):
        os.utime(file, (1_700_000_000, 1_700_000_000))


def measured(uplink: Uplink, cpu: Callable[[], float], work: Callable[[], None]) -> Figures:
    before, used, begun = uplink.carried(), cpu(), perf_counter()
    work()
    wall, after = perf_counter() - begun, cpu()
    sleep(0.1)
    return uplink.carried() - before, after - used, wall


class Ours:
    """Our side, in this process, with its links open."""

    def __init__(self, loop: asyncio.AbstractEventLoop, code: Path, folder: Path) -> None:
        self.loop, self.code = loop, code
        self.archive = Archive(folder / "archive")
        self.links: list[object] = []

    async def connect(self, ways: Ways, hosts: Sequence[Host]) -> None:
        self.links = list(await asyncio.gather(*(ways.link(host) for host in hosts)))

    async def work(self, dest: str) -> None:
        shot = await asyncio.to_thread(take, self.code, self.archive, ENVIRONMENT)
        done = await ship(shot, dest, self.links, archive=self.archive)  # type: ignore[arg-type]
        assert (done.failed, done.slow) == ({}, {}), done


async def series(place: Town, folder: Path, many: int, thin: bool, times: int, ways: Ways) -> None:
    """All cases with so many hosts."""
    hosts = place.node(f"n{many}", many)
    uplink = Uplink([host.external_ip or host.internal_ip for host in hosts], thin)
    try:
        await compare(place, ways, folder / f"{many}", hosts, uplink, times)
    finally:
        uplink.process.kill()


async def compare(
    place: Town, ways: Ways, folder: Path, hosts: Sequence[Host], uplink: Uplink, times: int
) -> None:
    code = folder / "code"
    code.mkdir(parents=True)
    payload(code)
    peer = Rsync(place, folder, uplink, code)
    loop = asyncio.get_running_loop()
    ours = Ours(loop, code, folder)
    near = [
        replace(host, external_ip="127.0.0.1", ssh_port=port)
        for host, port in zip(hosts, uplink.ports, strict=True)
    ]
    await ours.connect(ways, near)
    found: dict[str, dict[str, list[Figures]]] = {}

    async def round(case: str, dest: str, flags: Sequence[str]) -> None:
        rows = found.setdefault(case, {})
        row = await asyncio.to_thread(
            measured, uplink, process_time,
            lambda: asyncio.run_coroutine_threadsafe(ours.work(dest), loop).result(),
        )  # fmt: skip
        rows.setdefault("herd sync", []).append(row)
        for flag in flags:
            row = await asyncio.to_thread(measured, uplink, peer.cpu, partial(peer.run, flag))
            rows.setdefault(f"rsync {flag}", []).append(row)

    def wiped() -> None:
        for machine in place.nodes[hosts[0].node].machines:
            home = machine.folder / "home"
            for name in ("-a", "-az", ".tpuherd/store", ".tpuherd/trees", "c"):
                shutil.rmtree(home / name, ignore_errors=True)

    for _ in range(times):
        wiped()
        await round("cold", "c", ("-a", "-az"))
    peer.hold()
    for turn in range(times):
        with (code / "abc.py").open("a") as file:
            file.write(f"# {turn}\n")
        await round("one file edited", "c", ("-a",))
    for _ in range(times):
        await round("no change", "c", ("-a",))
    peer.release()
    show(len(hosts), found)


def show(many: int, found: dict[str, dict[str, list[Figures]]]) -> None:
    for case, rows in found.items():
        middle = {
            name: [statistics.median(each) for each in zip(*row, strict=True)]
            for name, row in rows.items()
        }
        mine = middle["herd sync"]
        for name, (up, cpu, wall) in middle.items():
            line = (
                f"{many} hosts, {case:15}  {name:10} {up:12,.0f} B {cpu:7.3f} s CPU {wall:7.3f} s"
            )
            if name != "herd sync":
                ratios = [a / b if b else 0 for a, b in zip(mine, (up, cpu, wall), strict=True)]
                line += "  ours/it: bytes {:.3f}, CPU {:.2f}, wall {:.2f}".format(*ratios)
            print(line, flush=True)


def manifests(files: int) -> None:
    """How long a snapshot of many unchanged files takes where it is resident, beside git status."""
    with tempfile.TemporaryDirectory(prefix="bench-sync-") as folder:
        code = Path(folder) / "code"
        for number in range(files):
            file = code / f"d{number % 97}" / f"e{number % 17}" / f"f{number}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"number = {number}\n" * 20)
            os.utime(file, (1_700_000_000, 1_700_000_000))
        for words in (["init", "-q"], ["add", "-A"], ["status", "--porcelain"]):
            subprocess.run(["git", *words], cwd=code, check=True, capture_output=True)
        archive = Archive(Path(folder) / "archive")
        cold = timed(lambda: take(code, archive, ENVIRONMENT))
        sleep(2.1)  # what is younger would be read again
        take(code, archive, ENVIRONMENT)
        mine, git = [], []
        for _ in range(5):
            mine.append(timed(lambda: take(code, archive, ENVIRONMENT)))
            git.append(timed(partial(subprocess.run, STATUS, cwd=code, capture_output=True)))
        a, b = statistics.median(mine), statistics.median(git)
        print(f"snapshot of {files} files: cold {cold:.3f} s, unchanged {a:.3f} s; ", end="")
        print(f"git status {b:.3f} s; ours/it: {a / b:.2f}", flush=True)


def timed(work: Callable[[], object]) -> float:
    begun = perf_counter()
    work()
    return perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--thin", action="store_true", help="through the thin uplink only")
    parser.add_argument("--wide", action="store_true", help="without it only")
    parser.add_argument("--hosts", default="1,8")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--files", default="10000,100000", help="of snapshots; empty: none")
    asked = parser.parse_args()
    for files in filter(None, asked.files.split(",")):
        manifests(int(files))
    why = lacking(("ip", "ss", "unshare", "ssh-keygen", "ssh", "rsync"))
    if why:
        print(f"sync beside rsync: {why}")
        return
    for thin in [True] * (not asked.wide) + [False] * (not asked.thin):
        print("20 Mbit/s up, 30 ms there and back:" if thin else "as fast as the proxy carries:")
        for many in map(int, asked.hosts.split(",")):
            with town() as place, tempfile.TemporaryDirectory(prefix="bench-sync-") as folder:
                way = opened(place, Path(folder), agent())
                way.run(partial(series, place, Path(folder), many, thin, asked.times))


if __name__ == "__main__":
    main()
