"""What `herd exec -- true` costs beside ssh, xargs with ssh and clush: cold, and warm.

    .venv/bin/python bench/exec.py [--hosts 1,8,64] [--rounds 5] [--clush PATH]

A simulated pod of 64 hosts; client, hosts and their SSH server share this machine's cores, so only
the ratios of one run mean something. Rounds alternate. Client CPU is all processes of a tool: the
keeper's and the ControlMasters' growth is counted. Same key exchange and cipher for all.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import perf_counter

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.conformance.world import HERD, World, started
from tests.real.users import User

TICK = os.sysconf("SC_CLK_TCK")
ZONE, TYPE = "us-central2-b", "v4-512"
SAME = ("-oKexAlgorithms=curve25519-sha256", "-oCiphers=aes128-gcm@openssh.com")
Act = Callable[[], int]


@dataclass
class Tool:
    """One way to run `true` on some hosts."""

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
    """CPU seconds of a process."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICK


class Pod:
    """The hosts, as a user and as ssh see them."""

    def __init__(self, world: World) -> None:
        node = world.node(ZONE, "pod", acceleratorType=TYPE)
        self.user = User(world.home, world)
        ends = node["networkEndpoints"]
        self.ips = [end["accessConfig"]["externalIp"] for end in ends]
        self.sockets = world.home / "s"
        self.sockets.mkdir()
        first = self.user.herd("exec", "pod", "--", "true", seconds=300)
        assert first.returncode == 0, first.stderr
        self.login = self.user.herd("exec", "pod/w0", "--", "id", "-un").stdout.strip()

    def ssh(self, *options: str) -> list[str]:
        key = self.user.home / ".config/tpuherd/id_ed25519"
        return [
            "ssh", "-F", "/dev/null", "-p", str(self.user.world.facts["ssh_port"]), "-i", str(key),
            "-l", self.login, "-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null",
            "-oLogLevel=ERROR", "-oBatchMode=yes", *SAME, *options,
        ]  # fmt: skip

    def through(self) -> tuple[str, ...]:
        return ("-S", f"{self.sockets}/%h", "-oControlMaster=no")

    def many(self, ips: Sequence[str], *options: str) -> Act:
        words = ["xargs", "-P", "64", "-I{}", *self.ssh(*options), "{}", "true"]

        def act() -> int:
            text = "\n".join(ips).encode()
            return subprocess.run(words, input=text, stdout=subprocess.DEVNULL).returncode

        return act

    def one(self, *options: str) -> Act:
        words = [*self.ssh(*options), self.ips[0], "true"]
        return lambda: subprocess.run(words, stdin=subprocess.DEVNULL).returncode

    def herd(self, many: int) -> Act:
        target = f"pod/w[0-{many - 1}]" if many > 1 else "pod/w0"
        words = [HERD, "exec", target, "--", "true"]
        more = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        return lambda: subprocess.run(words, env=self.user.env, **more).returncode  # type: ignore[call-overload]

    def masters(self, ips: Sequence[str]) -> list[int]:
        """A ControlMaster to each, as long as this runs."""
        for ip in ips:
            words = self.ssh("-S", f"{self.sockets}/%h", "-M", "-N", "-f")
            subprocess.run([*words, ip], check=True)
        found = []
        for ip in ips:
            words = [*self.ssh(*self.through()), "-O", "check", ip]
            said = subprocess.run(words, capture_output=True, text=True).stderr
            found.append(int(said.partition("pid=")[2].partition(")")[0]))
        return found

    def keeper(self) -> list[int]:
        pid = self.user.keeper()
        return [pid] if pid else []

    def clush(self, path: str, ips: Sequence[str], *options: str) -> Act:
        rest = self.ssh(*options)[1:]
        words = [
            path,
            "-q",
            "-f",
            "64",
            "-w",
            ",".join(ips),
            "-o",
            " ".join(rest).replace("%", "%%"),
            "true",
        ]
        more = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        return lambda: subprocess.run(words, **more).returncode  # type: ignore[call-overload]


def tools(pod: Pod, many: int, clush: str | None) -> Iterator[list[Tool]]:
    """Warm ones, then cold ones; the first is ours."""
    ips = pod.ips[:many]
    masters = pod.masters(ips)
    warm = [
        Tool("herd exec", pod.herd(many), pod.keeper),
        Tool("xargs ssh, ControlMaster", pod.many(ips, *pod.through()), lambda: masters),
    ]
    if many == 1:
        warm.append(Tool("ssh, ControlMaster", pod.one(*pod.through()), lambda: masters))
    if clush:
        act = pod.clush(clush, ips, *pod.through())
        warm.append(Tool("clush, ControlMaster", act, lambda: masters))
    pod.herd(many)()
    yield warm
    for pid in masters:
        os.kill(pid, 15)
    cold = [
        Tool("herd exec", pod.herd(many), pod.keeper, lambda: pod.user.herd("keeper", "stop")),
        Tool("xargs ssh", pod.many(ips)),
    ]
    if clush:
        cold.append(Tool("clush", pod.clush(clush, ips)))
    yield cold


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", default="1,8,64")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clush", help="its program, from a venv of your own")
    parser.add_argument("--json", action="store_true")
    said = parser.parse_args()
    rows = []
    with started("--time-scale", "60") as world:
        pod = Pod(world)
        for many in map(int, said.hosts.split(",")):
            for kind, group in zip(("warm", "cold"), tools(pod, many, said.clush), strict=True):
                for _ in range(said.rounds):
                    for tool in group:
                        tool.round()
                rows += [row(kind, many, tool, group[0]) for tool in group]
                if not said.json:
                    print(*map(line, rows[-len(group) :]), sep="\n", flush=True)
        pod.user.leave()
    if said.json:
        print(json.dumps(rows))
    return 0


def row(kind: str, many: int, tool: Tool, ours: Tool) -> dict[str, object]:
    wall, cpu = statistics.median(tool.wall), statistics.median(tool.cpu)
    return {
        "kind": kind, "hosts": many, "tool": tool.name, "wall_s": wall, "client_cpu_s": cpu,
        "ours_to_this_wall": statistics.median(ours.wall) / wall,
        "ours_to_this_cpu": statistics.median(ours.cpu) / max(cpu, 1 / TICK),
    }  # fmt: skip


def line(one: dict[str, object]) -> str:
    return (
        f"{one['kind']}  {one['hosts']:>3} hosts  {one['tool']:<26}"
        f" {1000 * float(str(one['wall_s'])):7.1f} ms wall"
        f" {1000 * float(str(one['client_cpu_s'])):7.1f} ms CPU   ours/this:"
        f" {float(str(one['ours_to_this_wall'])):.2f} wall,"
        f" {float(str(one['ours_to_this_cpu'])):.2f} CPU"
    )


if __name__ == "__main__":
    sys.exit(main())
