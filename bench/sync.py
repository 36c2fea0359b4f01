"""What a sync costs compared with rsync on the same hosts: bytes sent, client CPU and wall time.

The hosts are real sshds in a network namespace of this machine, so they share its cores with the
client. The uplink is a TCP proxy in its own process: 20 Mbit/s up, 100 Mbit/s down for all
connections together, 15 ms each way; then again without a limit. Ours is a resident process with
open connections, like the daemon; in a cold round it does not know the files either. rsync uses the
same key exchange and cipher, cold with new connections, warm with ControlMasters, whose CPU counts.
Needs root, sshd and rsync. Both alternate; the output is the median, and the ratio ours / rsync.
Bytes are TCP payload. At the end come the targets; there, our wall times include the start of the
command line, as long as `herd --version` takes. A TMPDIR in memory avoids the disk.
"""

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter, process_time, sleep

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.rigs.figures import find_version, own_row, pair_row, write_figures
from bench.rigs.sync import Rsync, Uplink

from tests.conformance.host_backends import opened
from tests.conformance.hosts_sshd import SshdHosts, missing_programs, sshd_hosts
from tpuherd.ports import Host
from tpuherd.remote.agent_bundle import current_agent
from tpuherd.remote.connection_pool import ConnectionPool
from tpuherd.sync.ship import ship
from tpuherd.sync.snapshot_store import Archive
from tpuherd.sync.take_snapshot import snapshot_folder
from tpuherd.sync.transfer import COMPRESSOR
from tpuherd_host.agent.snapshots.rpc_snapshots import TIDY_S

FILES = 800
HERD = Path(sys.executable).with_name("herd")
STATUS = ["git", "--no-optional-locks", "status", "--porcelain"]
ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
BYTES, CPU, WALL = range(3)

Figures = tuple[float, float, float]  #: bytes up, CPU seconds, wall seconds
Tool = tuple[str, Callable[[], float], Callable[[], None]]  #: its name, its CPU, and have it work
Key = tuple[bool, int, str, str]  #: through the thin uplink, hosts, case, tool


@dataclass(frozen=True)
class Plan:
    """What is to be compared."""

    thin: bool
    many: int
    times: int
    cold: tuple[str, ...]  #: peers of the cold case
    warm: bool = False


PLANS = (
    Plan(True, 1, 3, ("-az",)),
    Plan(True, 8, 3, ("-az",), warm=True),
    Plan(True, 64, 1, ("-az",)),
    Plan(False, 1, 5, ("-a", "-az")),
    Plan(False, 64, 3, ("-a", "-az")),
)


@dataclass(frozen=True)
class Target:
    """A ratio that was asked for."""

    number: int
    what: str
    ours: Key
    peer: str
    figure: int
    most: float
    start: bool = False  #: the command line's start is ours, too


TARGETS = (
    Target(1, "bytes, cold, 8 hosts", (True, 8, "cold", ""), "-az", BYTES, 1 / 6.5),
    Target(2, "bytes, cold, 64 hosts", (True, 64, "cold", ""), "-az", BYTES, 1 / 40),
    Target(4, "CPU, cold, 64 hosts", (False, 64, "cold", ""), "-a", CPU, 1 / 3),
    Target(5, "CPU, cold, 1 host", (False, 1, "cold", ""), "-az", CPU, 4.0),
    Target(6, "wall, cold, 8 hosts", (True, 8, "cold", ""), "-az", WALL, 1 / 2.5, start=True),
    Target(7, "wall, cold, 64 hosts", (True, 64, "cold", ""), "-az", WALL, 1 / 8, start=True),
    Target(8, "wall, cold, 1 host", (True, 1, "cold", ""), "-az", WALL, 1.1, start=True),
    Target(9, "wall, one file edited", (True, 8, "one edit", ""), "-a", WALL, 1 / 2, start=True),
    Target(10, "bytes, one file edited", (True, 8, "one edit", ""), "-a", BYTES, 1 / 25),
    Target(11, "wall, no change", (True, 8, "no change", ""), "-a", WALL, 1 / 3, start=True),
)


@dataclass
class Book:
    """All that was measured."""

    rows: dict[Key, list[Figures]] = field(default_factory=dict)
    linked: dict[tuple[bool, int], float] = field(default_factory=dict)  #: bytes for links, agents
    ratios: dict[str, float] = field(default_factory=dict)  #: of snapshots to git status
    figures: list[dict[str, object]] = field(default_factory=list)

    def middle(self, key: Key) -> Figures:
        up, cpu, wall = (statistics.median(each) for each in zip(*self.rows[key], strict=True))
        return up, cpu, wall


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
        self.loop, self.code, self.folder = loop, code, folder
        self.archives = 0
        self.links: list[object] = []
        self.forget()

    def forget(self) -> None:
        """As before the first sync of these files."""
        self.archives += 1
        self.archive = Archive(self.folder / f"archive{self.archives}")

    async def connect(self, connections: ConnectionPool, hosts: Sequence[Host]) -> None:
        self.links = list(await asyncio.gather(*(connections.get_link(host) for host in hosts)))

    async def sync(self) -> None:
        shot = await asyncio.to_thread(snapshot_folder, self.code, self.archive, ENVIRONMENT)
        done = await ship(shot, "c", self.links, archive=self.archive)  # type: ignore[arg-type]
        assert (done.failed, done.slow) == ({}, {}), done

    def work(self) -> None:
        asyncio.run_coroutine_threadsafe(self.sync(), self.loop).result()


async def series(
    place: SshdHosts, folder: Path, plan: Plan, book: Book, connections: ConnectionPool
) -> None:
    """All cases with this many hosts."""
    hosts = place.node("n", plan.many)
    uplink = Uplink([host.external_ip or host.internal_ip for host in hosts], plan.thin)
    near = [
        replace(host, external_ip="127.0.0.1", ssh_port=port)
        for host, port in zip(hosts, uplink.ports, strict=True)
    ]
    code = folder / "code"
    code.mkdir(parents=True)
    payload(code)
    ours = Ours(asyncio.get_running_loop(), code, folder)
    peer = Rsync(place, folder, uplink, code)
    homes = [machine.folder / "home" for machine in place.nodes["n"].machines]
    try:
        await ours.connect(connections, near)
        book.linked[plan.thin, plan.many] = uplink.carried()
        await asyncio.to_thread(compare, plan, book, ours, peer, homes)
    finally:
        peer.release()
        uplink.process.kill()


def compare(plan: Plan, book: Book, ours: Ours, peer: Rsync, homes: Sequence[Path]) -> None:
    """Ours, then each of the others, again and again."""

    def turn(case: str, flags: Sequence[str]) -> None:
        tools: list[Tool] = [("herd sync", process_time, ours.work)]
        tools += [(f"rsync {flag}", peer.cpu, partial(peer.run, flag)) for flag in flags]
        for tool, cpu, work in tools:
            key = (plan.thin, plan.many, case, tool)
            book.rows.setdefault(key, []).append(measured(peer.uplink, cpu, work))

    for _ in range(plan.times):
        for home in homes:
            for name in ("-a", "-az", ".tpuherd/store", ".tpuherd/trees", "c"):
                shutil.rmtree(home / name, ignore_errors=True)
        ours.forget()
        turn("cold", plan.cold)
    if plan.warm:
        peer.hold()
        peer.run("-a")
        sleep(2.1)  # files that are younger would be read again
        ours.work()
        for number in range(plan.times + 2):
            sleep(TIDY_S + 1)  # hosts remove old trees, with the cores of this machine
            with (ours.code / "abc.py").open("a") as file:
                file.write(f"# {number}\n")
            turn("one edit", ("-a",))
        for _ in range(plan.times + 2):
            turn("no change", ("-a",))
    show(plan, book)


def show(plan: Plan, book: Book) -> None:
    """The measurements with this many hosts."""
    print(
        f"{'thin' if plan.thin else 'wide'} uplink; links and agents, where there were none:",
        end="",
    )
    print(f" {book.linked[plan.thin, plan.many] / plan.many:,.0f} B a host")
    for key in [key for key in book.rows if key[:2] == (plan.thin, plan.many)]:
        found, mine = book.middle(key), book.middle((*key[:3], "herd sync"))
        up, cpu, wall = found
        line = f"{plan.many:3} hosts, {key[2]:10} {key[3]:10} {up:12,.0f} B {cpu:7.3f} s CPU"
        line += f" {wall:7.3f} s"
        if found != mine:
            ratios = [a / b if b else 0 for a, b in zip(mine, found, strict=True)]
            line += "  ours/it: bytes {:.3f}, CPU {:.2f}, wall {:.2f}".format(*ratios)
        print(line, flush=True)


#: What a case is called in results.
CASES = {"cold": "first", "one edit": "one file edited", "no change": "nothing changed"}


def figure_rows(book: Book) -> Iterator[dict[str, object]]:
    """Return ours beside each rsync."""
    for (thin, many, case, tool), theirs in book.rows.items():
        if tool == "herd sync":
            continue
        ours = book.rows[thin, many, case, "herd sync"]
        line = "20 Mbit/s, 30 ms" if thin else "no limit"
        held = "; rsync has a ControlMaster to each host" if case != "cold" else ""
        for at, unit, of in (
            (WALL, "s", ""), (CPU, "s", ", processor time"), (BYTES, "kB", ", bytes sent"),
        ):  # fmt: skip
            part = 1e-3 if at == BYTES else 1.0
            mine, peer = ([one[at] * part for one in both] for both in (ours, theirs))
            yield {
                **pair_row(f"sync, {CASES[case]}, {line}{of}", unit, mine, tool, peer),
                "at": many, "note": f"{FILES} files{held}",
            }  # fmt: skip


def judge(book: Book, start_s: float) -> None:
    """The targets of which there are figures."""
    found: list[tuple[int, str, float, float]] = []
    for one in TARGETS:
        ours, peer = (*one.ours[:3], "herd sync"), (*one.ours[:3], f"rsync {one.peer}")
        if ours in book.rows and peer in book.rows:
            mine = book.middle(ours)[one.figure] + (start_s if one.start else 0.0)
            found.append((one.number, one.what, mine / book.middle(peer)[one.figure], one.most))
    few, many = (True, 1, "cold", "herd sync"), (True, 64, "cold", "herd sync")
    if few in book.rows and many in book.rows:
        further = (book.middle(many)[BYTES] - book.middle(few)[BYTES]) / 63
        found.append((3, "bytes for a further host", further, 12_000))
    found += [(12, f"snapshot of {files} files", r, 1.5) for files, r in book.ratios.items()]
    for number, what, ratio, most in sorted(found):
        verdict = "reached" if ratio <= most else "MISSED"
        print(f"{number:3} {what:28} {ratio:10.3f}  at most {most:10.3f}  {verdict}")


def manifests(files: int, book: Book) -> float:
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
        cold = timed(lambda: snapshot_folder(code, archive, ENVIRONMENT))
        sleep(2.1)  # what is younger would be read again
        snapshot_folder(code, archive, ENVIRONMENT)
        mine, git = [], []
        for _ in range(9):
            mine.append(timed(lambda: snapshot_folder(code, archive, ENVIRONMENT)))
            git.append(timed(partial(subprocess.run, STATUS, cwd=code, capture_output=True)))
        a, b = statistics.median(mine), statistics.median(git)
        row = pair_row("a snapshot of unchanged files", "s", mine, "git status", git)
        book.figures.append({**row, "at": files, "note": "at: files"})
        print(f"snapshot of {files} files: cold {cold:.3f} s, unchanged {a:.3f} s; ", end="")
        print(f"git status {b:.3f} s; ours/it: {a / b:.2f}", flush=True)
        return a / b


def timed(work: Callable[[], object]) -> float:
    begun = perf_counter()
    work()
    return perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--thin", action="store_true", help="through the thin uplink only")
    parser.add_argument("--wide", action="store_true", help="without it only")
    parser.add_argument("--hosts", default="1,8,64")
    parser.add_argument("--times", type=int, default=5, help="at most so many rounds")
    parser.add_argument("--files", default="10000,100000", help="of snapshots; empty: none")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    book = Book()
    for files in filter(None, asked.files.split(",")):
        book.ratios[files] = manifests(int(files), book)
    why = missing_programs(("ip", "ss", "unshare", "ssh-keygen", "ssh", "rsync"))
    if why:
        print(f"sync beside rsync: {why}")
        return
    hosts = {int(many) for many in filter(None, asked.hosts.split(","))}
    start_s = statistics.median(
        timed(partial(subprocess.run, [HERD, "--version"], capture_output=True)) for _ in range(9)
    )
    print(f"the command line starts in {start_s:.3f} s; compressor: {COMPRESSOR.__module__}")
    for plan in (replace(one, times=min(one.times, asked.times)) for one in PLANS):
        if plan.many in hosts and not (asked.wide if plan.thin else asked.thin):
            with sshd_hosts() as place, tempfile.TemporaryDirectory(prefix="bench-sync-") as folder:
                way = opened(place, Path(folder), current_agent())
                way.run(partial(series, place, Path(folder) / "s", plan, book))
    judge(book, start_s)
    if asked.json:
        versions = {"rsync": find_version("rsync", "--version"), "ssh": find_version("ssh", "-V")}
        book.figures.append(own_row("the start of the command line", "s", [start_s]))
        write_figures(
            asked.json, "Code to all hosts", [*figure_rows(book), *book.figures], versions
        )


if __name__ == "__main__":
    main()
