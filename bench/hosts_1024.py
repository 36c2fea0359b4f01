"""One node of many hosts in a world on this machine: what it takes, and what commands cost on it.

    .venv/bin/python bench/hosts_1024.py [--hosts 64] [--parts ready,exec,sync] [--peers FOLDER]
    .venv/bin/python bench/hosts_1024.py --hosts 1024 --parts job

ready  from the request until all hosts are up; then memory (the sum of PSS in smaps_rollup, of the
       world's server and its hosts), and processor time while idle
exec   `true` on all hosts: cold (no daemon, no agents), then warm; the peers open connections
sync   a folder of 200 files to all hosts: first, one file edited; the peer is rsync
job    `herd run` of a script: from the launch until it runs on all hosts, again after a
       preemption, and what `ls`, `status`, `logs` and `smi` take meanwhile
FOLDER the bin folder of .venv-clients/fanout: make_venv.sh fanout

The hosts share this machine's cores with their clients: only the ratios of one run carry over. A
host with an agent needs 20 MB, a Python of its job 5 MB more. All use the same key exchange.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.exec import CORES_OF_A_HOST, ZONE, Act, Pod, call, peer_versions, spent
from bench.rigs.figures import write_figures

from tests.conformance.world import HERD, World, started
from tests.integration.users import User

FILES, FILE_LINES = 200, 150
IDLE_S = 5.0
ASK_S, READY_S_MAX, START_S_MAX = 0.5, 300.0, 500.0
SCRIPT = """\
echo "running since $(date +%s.%N)"
exec sleep 100000
"""
SINCE = re.compile(r"running since ([0-9.]+)")
LOOK_S = 3.0  #: between looks at the logs of all hosts, which take the same cores
KINDS = {
    "/sbin/init": "hosts", "herd-agent": "agents", "herd-supervisor": "agents",
    "attach": "agents", "run.sh": "the job",
    "sleep": "the job", "tpuherd-hosts": "zygote", "herd": "server",
}  # fmt: skip
Row = dict[str, Any]


@dataclass
class Book:
    """The rows measured at one size."""

    many: int
    rows: list[Row]

    def note(
        self, figure: str, unit: str, ours: list[float], *, peer: str | None = None,
        theirs: list[float] | None = None, note: str = "",
    ) -> None:  # fmt: skip
        row = {"figure": figure, "unit": unit, "at": self.many, "ours": ours, "note": note}
        self.rows.append({**row, "peer": peer, "theirs": theirs} if theirs else row)
        said = f"{self.many:>5} hosts  {figure:<34} {statistics.median(ours):9.2f} {unit}"
        if theirs:
            ratio = statistics.median(ours) / statistics.median(theirs)
            said += f"   {peer}: {statistics.median(theirs):.2f} {unit}, ratio {ratio:.2f}"
        print(f"{said}   {note}".rstrip(), flush=True)


def seconds(act: Act) -> float:
    begun = perf_counter()
    status = act()
    assert status == 0, status
    return perf_counter() - begun


# ---- memory --------------------------------------------------------------------------------------


def descendants(root: int) -> Iterator[int]:
    yield root
    for task in Path(f"/proc/{root}/task").glob("*/children"):
        for child in task.read_text().split():
            yield from descendants(int(child))


def memory_mb(root: int) -> dict[str, float]:
    """Return the sum of PSS of a world's processes, by what they are."""
    found: dict[str, float] = {}
    for pid in descendants(root):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue  # it ended
        kind = next((name for mark, name in KINDS.items() if mark in command), "others")
        pss = next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
        found[kind] = found.get(kind, 0.0) + pss / 1024
    return found


def available_mb() -> float:
    text = Path("/proc/meminfo").read_text()
    return int(text.partition("MemAvailable:")[2].split()[0]) / 1024


def note_memory(book: Book, world: World, when: str, before_mb: float) -> None:
    kinds = memory_mb(int(world.facts["pid"]))
    parts = ", ".join(f"{name} {mb:.0f}" for name, mb in sorted(kinds.items()))
    taken = f"{parts}; MemAvailable fell by {before_mb - available_mb():.0f}"
    book.note(f"memory, {when}", "MB PSS", [sum(kinds.values())], note=taken)


# ---- parts ---------------------------------------------------------------------------------------


def measure_ready(book: Book, world: World) -> None:
    server, before_mb = int(world.facts["pid"]), available_mb()
    before_s, begun = sum(map(spent, descendants(server))), perf_counter()
    where = f"v2/projects/{world.facts['project']}/locations/{ZONE}/nodes"
    type_ = f"v4-{CORES_OF_A_HOST * book.many}"
    body: Row = {"runtimeVersion": "tpu-ubuntu2204-base", "acceleratorType": type_}
    body["networkConfig"] = {"enableExternalIps": True}
    world.ask("POST", f"{where}?nodeId=pod", body)
    end = begun + READY_S_MAX
    while world.ask("GET", f"{where}/pod")["state"] != "READY":
        assert perf_counter() < end, "the node did not become READY"
        sleep(ASK_S)  # each answer names all hosts, and costs the world their time
    book.note("READY", "s", [perf_counter() - begun])
    used = spent(server)
    taken = sum(map(spent, descendants(server))) - before_s
    book.note("READY, processor time", "s", [taken], note=f"of it the world's server {used:.1f}")
    sleep(IDLE_S)
    busy = 100 * (spent(server) - used) / IDLE_S
    note_memory(book, world, "idle", before_mb)
    book.note("the idle world's processor time", "% of a core", [busy])


def peers_of_exec(pod: Pod, peers: Path | None) -> dict[str, Act]:
    found = {"xargs ssh": pod.many(pod.ips)}
    if peers is None:
        return found
    found["clush"] = pod.clush(peers / "clush", pod.ips)
    found["parallel-ssh"] = pod.parallel_ssh(peers / "python", pod.ips)
    found["ansible -m raw"] = pod.ansible(peers / "ansible", pod.ips)
    return found


def measure_exec(book: Book, pod: Pod, peers: Path | None) -> None:
    all_hosts = pod.herd(book.many)
    warm = [seconds(all_hosts) for _ in range(5)]
    pod.restart_daemon()
    connect = seconds(all_hosts)
    for name, act in peers_of_exec(pod, peers).items():
        try:
            theirs = [seconds(act)]
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            print(f"{book.many:>5} hosts  {name} failed: {error}")
            continue
        book.note("exec, new connections", "s", [connect], peer=name, theirs=theirs)
        book.note("exec, warm", "s", warm, peer=f"{name}, new connections", theirs=theirs)


def write_project(folder: Path) -> None:
    folder.mkdir()
    for number in range(FILES):
        lines = (f"value_{number}_{line} = {line * number}\n" for line in range(FILE_LINES))
        (folder / f"module_{number}.py").write_text("".join(lines))


def measure_sync(book: Book, pod: Pod) -> None:
    code = pod.user.home / "code"
    write_project(code)
    ours = call([HERD, "sync", code, "pod:code"], pod.user.env)
    shell = " ".join(["ssh", *pod.words()])
    line = ["rsync", "-a", "--delete", "-e", shell, f"{code}/", f"{pod.login}@{{}}:peer"]
    text = "\n".join(pod.ips).encode()
    words = ["xargs", "-P", "64", "-I{}", *line]
    theirs: Act = lambda: subprocess.run(words, input=text).returncode  # noqa: E731
    for what in ("first", "one file edited"):
        pair = seconds(ours), seconds(theirs)
        book.note(
            f"sync, {what}", "s", [pair[0]], peer="xargs -P 64 rsync -a", theirs=[pair[1]]
        )  # fmt: skip
        (code / "module_7.py").write_text("value = 7\n")


# ---- the job -------------------------------------------------------------------------------------


@dataclass
class Job:
    """A job of a user, as its commands show it."""

    user: User
    many: int

    def events(self, kind: str) -> list[Row]:
        said = self.user.herd("events", "big", "--json", seconds=120).stdout
        return [one for one in map(json.loads, said.splitlines()) if one["kind"] == kind]

    def find_starts(self, attempt: int) -> list[float]:
        """Return since when the script of an attempt runs, on each host."""
        words = ("logs", "big", "--attempt", str(attempt), "--grep", "running since")
        said = self.user.herd(*words, seconds=120).stdout
        return [float(found) for found in SINCE.findall(said)]

    def wait_for_start(self, attempt: int) -> float:
        """Wait until it runs on all hosts; return how long after the launch the last began."""
        end = perf_counter() + START_S_MAX
        while len(times := self.find_starts(attempt)) < self.many:
            assert perf_counter() < end, f"it runs on {len(times)} hosts"
            sleep(LOOK_S)
        return max(times) - float(self.events("attempt.launched")[-1]["at"])


def measure_job(book: Book, world: World) -> None:
    user, before_mb = User(world.home, world), available_mb()
    code = user.home / "job"
    code.mkdir()
    (code / "run.sh").write_text(SCRIPT)
    type_ = f"v4-{CORES_OF_A_HOST * book.many}"
    words = ("run", "--name", "big", "--accelerator", type_, "--tier", "spot", "--zones", ZONE)
    begun = perf_counter()
    done = user.herd(*words, "--workdir", code, "--detach", "-y", "--", "sh run.sh")
    assert done.returncode == 0, done.stderr
    job = Job(user, book.many)
    for attempt in (1, 2):
        took_s = job.wait_for_start(attempt)
        book.note(f"attempt {attempt}: launch to running on all", "s", [took_s])
        if attempt == 1:
            book.note("submitted to running on all", "s", [perf_counter() - begun])
            note_memory(book, world, "while the job runs", before_mb)
            measure_views(book, user)
            world.herd("preempt", "big-0-*")
            lost = perf_counter()
        else:
            book.note("preempted to running on all", "s", [perf_counter() - lost])
    user.herd("engine", "stop")
    user.leave()


def measure_views(book: Book, user: User) -> None:
    for words in (("ls",), ("status", "big"), ("why", "big"), ("logs", "big", "--tail", "5")):
        took = seconds(call([HERD, *words], user.env))
        book.note(f"herd {words[0]}", "s", [took])
    smi = call([HERD, "smi", "big"], user.env)
    book.note("herd smi, first", "s", [seconds(smi)])
    book.note("herd smi, again", "s", [seconds(smi)])


def measure(book: Book, parts: set[str], peers: Path | None) -> None:
    with started("--time-scale", "600") as world:
        if parts & {"ready", "exec", "sync"}:
            measure_ready(book, world)
        if parts & {"exec", "sync"}:
            before_mb, begun = available_mb(), perf_counter()
            pod = Pod(world, book.many, made=True)
            book.note("exec, cold: agents start, too", "s", [perf_counter() - begun])
            note_memory(book, world, "with agents", before_mb)
            if "exec" in parts:
                measure_exec(book, pod, peers)
            if "sync" in parts:
                measure_sync(book, pod)
            pod.user.leave()
        if "job" in parts:
            measure_job(book, world)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", default="64")
    parser.add_argument("--parts", default="ready,exec,sync")
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--json", type=Path)
    said = parser.parse_args()
    rows: list[Row] = []
    try:
        for word in said.hosts.split(","):
            measure(Book(int(word), rows), set(said.parts.split(",")), said.peers)
    finally:
        if said.json:
            versions = peer_versions(said.peers)
            write_figures(said.json, "One node of many hosts", rows, versions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
