"""Hundreds of faults of real processes: `python -m tests.integration.real_faults --help`.

A user works through jobs on two hosts. At random moments something is killed with kill -9 (the
engine, the daemon, an agent, the world with all its hosts), the network is cut, another process
holds the store's lock, or the disk is slow. Each job must end as if nothing had happened; what is
not so is printed, and its files are kept.
"""

import argparse
import ctypes
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.conformance.world import HERD, serving, started, until
from tests.integration.engines import Owner
from tpuherd.settings.folders import logs_folder

LINES = 30
COUNTING = (
    f"echo begin-$HERD_WORK; for i in $(seq {LINES}); do echo line-$i; sleep 0.3; done;"
    " echo end-$HERD_ATTEMPT"
)
PAUSES_S = (0.0, 0.1, 0.5, 1.5)
CUTS_S = (0.5, 3.0, 12.0, 40.0)
STALLS_S = (0.5, 4.0, 14.0, 30.0)  #: the store waits for 10 s
ROUND_S = 600.0
LEFT_S = 90.0
RSS_MAX = 200 << 20  #: of the engine, whatever happens to it
KINDS = "engine,engine,engine,engine,agent,agent,supervisor,daemon,world"  #: the engine most often
CLONE_NEWNET = 0x40000000
Logs = Mapping[str, list[str]]


@dataclass
class Stage:
    """A user, his world, and what has happened so far."""

    user: Owner
    dice: Random
    done: Counter[str] = field(default_factory=Counter)
    seen: dict[str, list[str]] = field(default_factory=dict)  #: the stored logs at the last fault
    found: list[str] = field(default_factory=list)
    world: "subprocess.Popen[bytes] | None" = None  #: started again by us
    rss_max: int = 0

    # ---- faults ----------------------------------------------------------------------------------

    def kill_engine(self) -> bool:
        pid = self.user.engine()
        if pid is not None:
            self.rss_max = max(self.rss_max, memory_of(pid))
        return pid is not None and kill(pid)

    def kill_daemon(self) -> bool:
        self.user.herd("hosts")  # starts one
        pid = self.user.daemon_pid()
        return pid is not None and kill(pid)

    def kill_agent(self) -> bool:
        return self.kill_one([pid for pid in self.agents() if listens(pid)])

    def kill_supervisor(self) -> bool:
        """The only witness of how an attempt ends: a node fault, and another attempt."""
        return self.kill_one([pid for pid in self.agents() if not listens(pid)])

    def agents(self) -> list[int]:
        """Of the hosts of this world, which are its descendants."""
        world = (serving(self.user.world.folder / "world.json") or {}).get("pid", 0)
        return [pid for pid in find_agents() if world in list(ancestors(pid))]

    def kill_one(self, pids: list[int]) -> bool:
        return bool(pids) and kill(self.dice.choice(pids))

    def kill_world(self) -> bool:
        """With all its hosts; it is started again, as a machine that reboots would."""
        facts = serving(self.user.world.folder / "world.json")
        if facts is None or not facts["pid"] or not kill(facts["pid"]):
            return False
        time.sleep(self.dice.choice(PAUSES_S))
        words = [str(HERD), "sim", "start", "--state-dir", str(self.user.world.folder)]
        with (self.user.home / "world.out").open("ab") as out:
            self.world = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        until(lambda: serving(self.user.world.folder / "world.json"), "the world", seconds=60)
        return True

    def cut_network(self) -> bool:
        """Nothing arrives any more for a while: neither data nor refusals."""
        loopback("down")
        try:
            time.sleep(self.dice.choice(CUTS_S))
        finally:
            loopback("up")
        return True

    def lock_store(self) -> bool:
        """Another process writes, and takes its time."""
        file = self.user.store_folder / "store.db"
        if not file.exists():
            return False
        connection = sqlite3.connect(file, timeout=30, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(self.dice.choice(STALLS_S))
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return False
        finally:
            connection.close()
        return True

    # ---- what must hold --------------------------------------------------------------------------

    def compare_logs(self) -> None:
        """What was once stored stays, and grows at its end only."""
        logs = self.user.said()
        for name, lines in self.seen.items():
            now = logs.get(name, [])
            if lines and now[: len(lines) - 1] != lines[:-1]:  # the last may have been half a line
                self.found.append(f"{name} had {lines[-3:]} and has {now[-3:]}")
        self.seen = dict(logs)

    def judge(self, job: str, *, again: bool) -> None:
        """Whether a job has ended as if nothing had happened; `again`: after another attempt."""
        events = [event for event in self.user.events() if event.job == job]
        launched = {e.facts["attempt"] for e in events if e.kind == "attempt.launched"}
        verdicts = [e.facts["verdict"] for e in events if e.kind == "attempt.ended"]
        if not again and len(launched) != 1:
            self.found.append(f"{job} was launched {len(launched)} times")
        if verdicts[-1:] != ["success"] or "failure" in verdicts:
            self.found.append(f"{job} ended {verdicts}")
        logs = {name: lines for name, lines in self.seen.items() if name.startswith(f"{job}-")}
        self.found += [f"{name}: {said}" for name, lines in logs.items() for said in faults(lines)]
        ends = [name for name, lines in logs.items() if lines[-1:] and "end-" in lines[-1]]
        if len(ends) < 2:
            self.found.append(f"{job} has {len(ends)} complete logs of 2")


FAULTS: Mapping[str, Callable[[Stage], bool]] = {
    "engine": Stage.kill_engine,
    "daemon": Stage.kill_daemon,
    "agent": Stage.kill_agent,
    "supervisor": Stage.kill_supervisor,
    "world": Stage.kill_world,
    "cut": Stage.cut_network,
    "lock": Stage.lock_store,
}


def faults(lines: list[str]) -> Iterator[str]:
    """What is wrong with the log of one attempt on one host."""
    if sum(line.startswith("begin-") for line in lines) > 1:
        yield "begun twice"
    numbers = [int(line[5:]) for line in lines if line.startswith("line-")]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"lines {numbers}"
    if "end-" in "".join(lines[-1:]) and len(numbers) != LINES:
        yield f"has an end and {len(numbers)} lines"


def kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def find_agents() -> Iterator[int]:
    """Every agent and supervisor on this machine, of whatever world."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name = (folder / "comm").read_text().strip()
        except OSError:
            continue
        if name in ("herd-agent", "herd-supervisor"):
            yield int(folder.name)


def listens(pid: int) -> bool:
    """Whether it is an agent: its supervisor, a fork of it, listens to nobody."""
    try:
        rows = [line.split() for line in Path(f"/proc/{pid}/net/unix").read_text().splitlines()]
        files = [str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return False
    return any(f"socket:[{row[6]}]" in files for row in rows if row[3] == "00010000")


def ancestors(pid: int) -> Iterator[int]:
    """The parent of a process, its parent, and so on."""
    while pid > 1:
        try:
            found = Path(f"/proc/{pid}/status").read_text().split("PPid:")[1]
        except (OSError, IndexError):
            return
        yield (pid := int(found.split()[0]))


def memory_of(pid: int) -> int:
    """The resident bytes of a process; 0 if it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def enter_network() -> None:
    """A network of our own, which can be cut without harm to others; needs root."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        raise SystemExit("cutting the network needs root")
    loopback("up")


def loopback(state: str) -> None:
    subprocess.run(["ip", "link", "set", "lo", state], check=True)


def play_round(stage: Stage, number: int, kinds: list[str], most: int) -> None:
    """One job, disturbed until it is done."""
    user, job = stage.user, f"job{number}"
    user.job(job, COUNTING, retry={"failures": 0})
    before, end = stage.done.copy(), time.monotonic() + ROUND_S
    while not any(event.job == job for event in user.events("slot.done", "slot.gave_up")):
        if time.monotonic() > end:
            stage.found.append(f"{job} is not done after {ROUND_S:.0f} s")
            return
        time.sleep(stage.dice.choice(PAUSES_S))
        if stage.done.total() < most:
            kind = stage.dice.choice(kinds)
            stage.done[kind] += FAULTS[kind](stage)
            stage.compare_logs()
            started = user.herd("engine", "start")
            if started.returncode:
                stage.found.append(f"engine start: {started.stderr.strip()[-300:]}")
    stage.compare_logs()
    again = any(stage.done[kind] > before[kind] for kind in ("world", "supervisor"))
    stage.judge(job, again=again)
    try:
        until(lambda: not user.all_there_is(), "nothing to be left", seconds=LEFT_S)
    except AssertionError as error:
        stage.found.append(f"{error}: {user.all_there_is()}")
    if stage.rss_max > RSS_MAX:
        stage.found.append(f"the engine had {stage.rss_max >> 20} MB")


def keep_files(stage: Stage, folder: Path, number: int) -> None:
    """Everything that may explain what went wrong."""
    into = folder / f"round-{number}"
    for source in (stage.user.store_folder, stage.user.world.folder, logs_of(stage.user)):
        shutil.copytree(source, into / source.name, dirs_exist_ok=True, ignore=special_files)
    (into / "found").write_text("\n".join(stage.found) + "\n")


def special_files(folder: str, names: list[str]) -> list[str]:
    """Sockets and the like, and the hosts' own files."""
    here = Path(folder)
    return [name for name in names if name == "hosts" or not is_plain(here / name)]


def is_plain(path: Path) -> bool:
    return path.is_file() or path.is_dir()


def logs_of(user: Owner) -> Path:
    return logs_folder(user.home / ".local/state/tpuherd", world=user.world.folder, project="demo")


def campaign(many: int, kinds: list[str], seed: int, keep: Path) -> int:
    """This many faults; how many rounds were not clean."""
    bad = number = 0
    with started("--time-scale", "60") as world:
        stage = Stage(Owner(world.home, world), Random(seed))
        try:
            while stage.done.total() < many:
                number += 1
                stage.found.clear()
                try:
                    play_round(stage, number, kinds, many)
                except (subprocess.TimeoutExpired, AssertionError) as error:
                    stage.found.append(f"{type(error).__name__}: {str(error)[-300:]}")
                if stage.found:
                    bad += 1
                    print(f"round {number}:", *stage.found[:8], sep="\n    ", flush=True)
                    keep_files(stage, keep, number)
                if number % 10 == 0:
                    print(f"{number} jobs, {dict(stage.done)}, {bad} not clean", flush=True)
        finally:
            stage.user.leave_all()
            if stage.world is not None:
                stage.world.terminate()
                stage.world.wait(60)
    rss = f"engine at most {stage.rss_max >> 20} MB"
    print(f"{number} jobs, {stage.done.total()} faults {dict(stage.done)}, {rss}, {bad} not clean")
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(prog="real_faults", description=__doc__)
    parser.add_argument("--faults", type=int, default=500)
    parser.add_argument("--kinds", default=KINDS, help=", ".join(FAULTS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path("unclean"), help="files of such rounds")
    chosen = parser.parse_args()
    kinds = chosen.kinds.split(",")
    if unknown := set(kinds) - FAULTS.keys():
        parser.error(f"unknown kinds: {', '.join(sorted(unknown))}")
    if "cut" in kinds:
        enter_network()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    return bool(campaign(chosen.faults, kinds, chosen.seed, chosen.keep))


if __name__ == "__main__":
    sys.exit(main())
