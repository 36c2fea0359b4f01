"""What `herd exec -- true` costs beside ssh, xargs, clush, pssh and bare asyncssh.

    .venv/bin/python bench/exec.py [--hosts 1,8,64,256] [--rounds 5] [--peers FOLDER] [--late]

The pod is simulated: client, hosts and their SSH server share this machine's cores, so only the
ratios of one run are meaningful. Rounds alternate. Client CPU includes all processes of a tool,
also the daemon and the ControlMasters. All use the same key exchange and cipher.

bare      no daemon, no agent on the hosts          connect  daemon and agents run, no connection
cold      no daemon, agents run                     warm     connections are open
--late    warm only, with 30 ms of delay; 50 calls to one host, and pings within
FOLDER    the bin folder of .venv-clients/fanout: make_venv.sh fanout (clush, parallel-ssh, ansible)
"""

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import clock_gettime, perf_counter

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.rigs.figures import find_version, pair_row, write_figures
from bench.rigs.slow_links import late

from tests.conformance.login import logged_in
from tests.conformance.world import HERD, World, started
from tests.integration.users import User
from tpuherd.clock import WallClock
from tpuherd.ports import RpcRequest
from tpuherd.remote import open_remote
from tpuherd.settings import project_access

ZONE = "us-central2-b"
CORES_OF_A_HOST = 8  #: of v4, as its types count
ROUND_TRIP_S = 0.03
SAME = ("-oKexAlgorithms=curve25519-sha256", "-oCiphers=aes128-gcm@openssh.com")
Act = Callable[[], int]
FLOOR = """
import asyncio, asyncssh, sys
key, login, port, *ips = sys.argv[1:]
async def one(ip):
    async with asyncssh.connect(
        ip, int(port), username=login, client_keys=[key], known_hosts=None, config=None,
        agent_path=None, kex_algs=["curve25519-sha256"], encryption_algs=["aes128-gcm@openssh.com"],
    ) as connection:
        return (await connection.run("true")).exit_status
async def main():
    return max(await asyncio.gather(*map(one, ips)))
sys.exit(asyncio.run(main()))
"""
PARALLEL_SSH = """
import sys
from pssh.clients import ParallelSSHClient
key, login, port, *ips = sys.argv[1:]
client = ParallelSSHClient(ips, user=login, port=int(port), pkey=key, pool_size=64)
outputs = client.run_command("true")
client.join(outputs)
sys.exit(max(one.exit_code for one in outputs))
"""
FORGET = "pkill -9 -f '[p]yz serve'; rm -rf .tpuherd; true"


@dataclass
class Tool:
    """One way to run `true` on hosts."""

    name: str
    run: Act
    stays: Callable[[], Sequence[int]] = tuple  #: processes that outlive a call
    before: Callable[[], object] = lambda: None
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def round(self) -> None:
        self.before()
        resident = {pid: spent(pid) for pid in self.stays()}
        begun, children = perf_counter(), children_s()
        assert self.run() == 0, self.name
        self.wall.append(perf_counter() - begun)
        grown = sum(spent(pid) - resident.get(pid, 0.0) for pid in self.stays())
        self.cpu.append(children_s() - children + grown)


def children_s() -> float:
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def spent(pid: int) -> float:
    """CPU seconds of another process, by its clock (clock_getcpuclockid)."""
    return clock_gettime((~pid << 3) | 2)


class Pod:
    """The hosts, as a user and as ssh see them."""

    def __init__(self, world: World, many: int, *, made: bool = False) -> None:
        if made:
            node = world.settled(ZONE, "pod")
        else:
            node = world.node(ZONE, "pod", acceleratorType=f"v4-{CORES_OF_A_HOST * many}")
        self.user = User(world.home, world)
        self.port = int(world.facts["ssh_port"])
        self.ips = [end["accessConfig"]["externalIp"] for end in node["networkEndpoints"]]
        self.sockets = world.home / "s"
        self.sockets.mkdir()
        first = self.user.herd("exec", "pod", "--", "true", seconds=500)
        assert first.returncode == 0, first.stderr
        self.login = self.user.herd("exec", "pod/w0", "--", "id", "-un").stdout.strip()
        self.key = self.user.home / ".config/tpuherd/id_ed25519"
        self.gcloud_env: dict[str, str] | None = None  #: of a user of gcloud

    def afar(self, port: int) -> "Pod":
        """The same pod, reached by another port."""
        folder = self.user.home / "afar"
        folder.mkdir()
        facts = {**self.user.world.facts, "ssh_port": port}
        (folder / "world.json").write_text(json.dumps(facts))
        other = object.__new__(Pod)
        other.__dict__.update(self.__dict__)
        other.user = User(self.user.home, replace(self.user.world, folder=folder, facts=facts))
        other.port = port
        return other

    def words(self, *options: str) -> list[str]:
        return [
            "-F", "/dev/null", "-p", str(self.port), "-i", str(self.key), "-l", self.login,
            "-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null", "-oLogLevel=ERROR",
            "-oBatchMode=yes", *SAME, *options,
        ]  # fmt: skip

    def through(self) -> tuple[str, ...]:
        return ("-S", f"{self.sockets}/{self.port}-%h", "-oControlMaster=no")

    def many(self, ips: Sequence[str], *options: str, command: str = "true") -> Act:
        words = ["xargs", "-P", "64", "-I{}", "ssh", *self.words(*options), "{}", command]
        text = "\n".join(ips).encode()
        return lambda: subprocess.run(words, input=text, stdout=subprocess.DEVNULL).returncode

    def one(self, *options: str) -> Act:
        return call(["ssh", *self.words(*options), self.ips[0], "true"])

    def herd(self, many: int) -> Act:
        target = f"pod/w[0-{many - 1}]" if many > 1 else "pod/w0"
        return call([HERD, "exec", target, "--", "true"], self.user.env)

    def floor(self, ips: Sequence[str]) -> Act:
        rest = [str(self.key), self.login, str(self.port), *ips]
        return call([sys.executable, "-c", FLOOR, *rest])

    def clush(self, path: Path, ips: Sequence[str], *options: str) -> Act:
        said = " ".join(self.words(*options)).replace("%", "%%")
        return call([path, "-q", "-f", "64", "-w", ",".join(ips), "-o", said, "true"])

    def parallel_ssh(self, path: Path, ips: Sequence[str]) -> Act:
        rest = [str(self.key), self.login, str(self.port), *ips]
        return call([path, "-c", PARALLEL_SSH, *rest])

    def gcloud(self, many: int) -> Act:
        assert self.gcloud_env
        words = ["gcloud", "alpha", *"compute tpus tpu-vm ssh pod --zone".split(), ZONE]
        words += ["--worker", f"0-{many - 1}" if many > 1 else "0", "--batch-size", "all"]
        words += ["--command", "true", *(f"--ssh-flag={one}" for one in SAME)]
        return call(words, self.gcloud_env)

    def ansible(self, path: Path, ips: Sequence[str]) -> Act:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.user.home), "LANG": "C.UTF-8"}
        return call(
            [
                path, "all", "-i", ",".join(ips) + ",", "-f", "64", "-m", "raw", "-a", "true",
                "-u", self.login, "--private-key", self.key,
                "--ssh-common-args", " ".join(self.words()),
            ],
            env,
        )  # fmt: skip

    def masters(self, ips: Sequence[str]) -> list[int]:
        """Keep a ControlMaster to each host."""
        place = f"{self.sockets}/{self.port}-%h"
        for ip in ips:
            words = ["ssh", *self.words("-S", place, "-M", "-N", "-f"), ip]
            subprocess.run(words, check=True)
        found = []
        for ip in ips:
            words = ["ssh", *self.words(*self.through()), "-O", "check", ip]
            said = subprocess.run(words, capture_output=True, text=True).stderr
            found.append(int(said.partition("pid=")[2].partition(")")[0]))
        return found

    def daemon_pid(self) -> list[int]:
        pid = self.user.daemon_pid()
        return [pid] if pid else []

    def stop_daemon(self) -> None:
        done = self.user.herd("engine", "daemon", "stop", "--now")
        assert done.returncode in (0, 1), done.stderr  # 1: none runs
        while self.daemon_pid():
            pass

    def restart_daemon(self) -> None:
        """Start a daemon without connections."""
        self.stop_daemon()
        self.user.herd("exec", "nobody", "--", "true")

    def agents_gone(self, ips: Sequence[str]) -> None:
        self.stop_daemon()
        assert self.many(ips, command=FORGET)() == 0


def call(words: Sequence[str | Path], env: dict[str, str] | None = None) -> Act:
    def act() -> int:
        null = subprocess.DEVNULL
        return subprocess.run(words, env=env, stdin=null, stdout=null).returncode

    return act


def tools(
    pod: Pod, many: int, peers: Path | None, kinds: set[str]
) -> Iterator[tuple[str, list[Tool]]]:
    """Return the tools by what already runs; the first of each is ours."""
    ips = pod.ips[:many]
    if "warm" in kinds:
        masters = pod.masters(ips)
        stay = lambda: masters  # noqa: E731
        group = [
            Tool("herd exec", pod.herd(many), pod.daemon_pid),
            Tool("xargs ssh, ControlMaster", pod.many(ips, *pod.through()), stay),
        ]
        if many == 1:
            group.append(Tool("ssh, ControlMaster", pod.one(*pod.through()), stay))
        if peers:
            act = pod.clush(peers / "clush", ips, *pod.through())
            group.append(Tool("clush, ControlMaster", act, stay))
        pod.herd(many)()
        pod.herd(many)()
        yield "warm", group
        for pid in masters:
            os.kill(pid, 15)
    others = [("xargs ssh", pod.many(ips)), ("asyncssh alone", pod.floor(ips))]
    if peers:
        others += [("clush", pod.clush(peers / "clush", ips))]
        others += [("parallel-ssh", pod.parallel_ssh(peers / "python", ips))]
        others += [("ansible -m raw", pod.ansible(peers / "ansible", ips))]
    if pod.gcloud_env:
        others += [("gcloud ssh", pod.gcloud(many))]
    before = {
        "connect": pod.restart_daemon,
        "cold": pod.stop_daemon,
        "bare": lambda: pod.agents_gone(ips),
    }
    for kind in sorted(kinds & set(before), reverse=True):
        ours = Tool("herd exec", pod.herd(many), pod.daemon_pid, before[kind])
        yield kind, [ours, *(Tool(name, act) for name, act in others)]


async def pings(pod: Pod, many: int, rounds: int) -> list[float]:
    """Measure how long the agents of all hosts take to answer over open links."""
    times = []
    place = project_access.resolve_access(pod.user.env)
    async with open_remote.open_remote_session(place, WallClock()) as reach:
        hosts = (await reach.resolve_hosts("pod"))[:many]
        links = await asyncio.gather(*map(reach.pool.get_link, hosts))
        for _ in range(rounds):
            begun = perf_counter()
            await asyncio.gather(*(link.call(RpcRequest(name="ping")) for link in links))
            times.append(perf_counter() - begun)
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", default="1,8,64")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kinds", default="warm,connect,cold,bare")
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--late", action="store_true")
    parser.add_argument("--json", type=Path)
    said = parser.parse_args()
    counts = [int(word) for word in said.hosts.split(",")]
    kinds = {"warm"} if said.late else set(said.kinds.split(","))
    rows: list[dict[str, object]] = []
    with started("--time-scale", "60") as world, ExitStack() as stack:
        pod = Pod(world, max(counts))
        if said.late:
            pod = pod.afar(stack.enter_context(late(pod.ips, pod.port, ROUND_TRIP_S)))
        if shutil.which("gcloud") and said.peers and not said.late:
            pod.gcloud_env = stack.enter_context(logged_in(world)).env
            assert pod.gcloud(1)() == 0  # once, so that its key is there
        for many in counts:
            for kind, group in tools(pod, many, said.peers, kinds):
                for _ in range(50 if many == 1 and kind == "warm" else said.rounds):
                    for tool in group:
                        tool.round()
                rows += figure_rows(kind + ", 30 ms away" * said.late, many, group)
                print(*(line(kind, many, tool, group[0]) for tool in group), sep="\n", flush=True)
            if "warm" in kinds:
                print(f"pings {many:>3} hosts  {shown(asyncio.run(pings(pod, many, 50)))}")
        pod.user.leave()
    if said.json:
        write_figures(said.json, "Commands on all hosts", rows, peer_versions(said.peers))
    return 0


#: How the kinds are called in results.
STARTS = {
    "warm": "warm", "connect": "new connections", "cold": "no daemon",
    "bare": "no daemon, no agents",
}  # fmt: skip


def figure_rows(kind: str, many: int, group: Sequence[Tool]) -> Iterator[dict[str, object]]:
    first, *_ = kind.split(",")
    ours, *others = group
    for what, of in (("", "wall"), (", processor time of the client", "cpu")):
        figure = f"exec, {STARTS[first]}{kind.removeprefix(first)}{what}"
        for tool in others:
            yield {
                **pair_row(figure, "s", getattr(ours, of), tool.name, getattr(tool, of)),
                "at": many,
            }


def peer_versions(peers: Path | None) -> dict[str, str]:
    found = {"ssh": find_version("ssh", "-V")}
    if peers:
        say = "import importlib.metadata as m; print(m.version('parallel-ssh'))"
        found["gcloud"] = find_version("gcloud", "--version") if shutil.which("gcloud") else "none"
        found["clush"] = find_version(peers / "clush", "--version")
        found["ansible"] = find_version(peers / "ansible", "--version")
        found["parallel-ssh"] = find_version(peers / "python", "-c", say)
    return found


def shown(times: Sequence[float]) -> str:
    ordered = sorted(times)
    return (
        f"p50 {1000 * ordered[len(ordered) // 2]:.1f} ms"
        f" p99 {1000 * ordered[int(0.99 * (len(ordered) - 1))]:.1f} ms"
    )


def line(kind: str, many: int, tool: Tool, ours: Tool) -> str:
    wall, cpu = statistics.median(tool.wall), statistics.median(tool.cpu)
    p99 = sorted(tool.wall)[int(0.99 * (len(tool.wall) - 1))]
    to_wall = statistics.median(ours.wall) / wall
    to_cpu = statistics.median(ours.cpu) / max(cpu, 1e-6)
    return (
        f"{kind:<8}{many:>3} hosts  {tool.name:<26}"
        f" {1000 * wall:7.1f} ms (p99 {1000 * p99:7.1f}) {1000 * cpu:7.1f} ms CPU"
        f"   ours/this: {to_wall:.2f} wall, {to_cpu:.2f} CPU"
    )


if __name__ == "__main__":
    sys.exit(main())
