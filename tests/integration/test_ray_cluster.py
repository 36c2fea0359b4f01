"""`cluster: ray` on hosts that are loopback addresses, with a stand-in for Ray's program.

The stand-in starts processes with Ray's names, as Ray does; no test runs a job on the real one.
"""

import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.conformance.world import until

SRC = Path(__file__).parents[2] / "src"
STAND_IN = """\
import os, subprocess, sys
def main():
    assert sys.argv[1] == "start" and "RAY_ADDRESS" not in os.environ
    for name in ["raylet", *(["gcs_server"] if "--head" in sys.argv else [])]:
        subprocess.Popen([os.path.join("{folder}", name), "600"], start_new_session=True)
"""

BEGUN = "echo begun > begun; exec sleep 600"
#: What a host of another attempt says.
HELLO = '{{"worker": {}, "attempt": "another", "ray": "2.9", "python": "3.11"}}'

pytestmark = pytest.mark.real


@dataclass
class Gang:
    """The hosts of an attempt: their processes, and where each finds Ray."""

    folder: Path
    head: str  #: an address of its own for each test
    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    processes: list["subprocess.Popen[str]"] = field(default_factory=list)

    def install(self, name: str, version: str) -> Path:
        """A folder with Ray of this version."""
        folder = self.folder / name
        about = folder / "lib" / "ray-0.dist-info" / "METADATA"
        about.parent.mkdir(parents=True)
        about.write_text(f"Metadata-Version: 2.1\nName: ray\nVersion: {version}\n")
        for program in ("raylet", "gcs_server"):
            (folder / program).symlink_to("/bin/sleep")
        code = folder / "lib" / "ray" / "scripts" / "scripts.py"
        code.parent.mkdir(parents=True)
        code.write_text(STAND_IN.format(folder=folder))
        (folder / "ray").write_text(f"#!{sys.executable}\n")
        (folder / "ray").chmod(0o755)
        return folder

    def start(
        self, rays: Sequence[Path | None], *command: str, path: str = "", only: int | None = None
    ) -> None:
        """Start every host with the Ray of its place in the list."""
        for worker, ray in enumerate(rays):
            if only not in (None, worker):
                continue
            env = {
                "PATH": path or f"{ray}:/usr/bin:/bin",
                "PYTHONPATH": ":".join(map(str, [SRC, *([ray / "lib"] if ray else [])])),
                "HERD_WORKER": str(worker), "HERD_WORKERS": str(len(rays)),
                "HERD_WORK": self.mark, "RAY_ADDRESS": f"{self.head}:6379",
                "HERD_ADDRESS": self.head if not worker else f"127.0.0.{worker + 1}",
                "HERD_COORDINATOR": "x", "GANG": self.mark,
            }  # fmt: skip
            words = [sys.executable, "-m", "tpuherd_host.ray_cluster", *command]
            pipe = subprocess.PIPE
            self.processes.append(
                subprocess.Popen(
                    words, env=env, cwd=self.folder, text=True, stdout=pipe, stderr=pipe
                )
            )

    def ends(self) -> tuple[list[int], list[str]]:
        """The exit status of every host, and what it printed, once all have ended."""
        printed = ["".join(one.communicate(timeout=120)) for one in self.processes]
        return [one.returncode for one in self.processes], printed

    def left(self, name: str = "") -> list[int]:
        """The processes of this gang that run a program of this name."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                mine = f"GANG={self.mark}".encode() in (folder / "environ").read_bytes()
                words = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if mine and name in words.split(b"\0")[0].decode():
                found.append(int(folder.name))
        return found


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    found = Gang(tmp_path, ".".join(["127", *(str(1 + secrets.randbelow(250)) for _ in range(3))]))
    yield found
    for one in found.processes:
        one.kill()
    for pid in found.left():
        os.kill(pid, signal.SIGKILL)
    for one in found.processes:
        one.communicate()


def test_the_command_runs_on_worker_0_and_nothing_is_left(gang: Gang) -> None:
    ray = gang.install("a", "2.9")
    gang.start([ray] * 3, "sh", "-c", "echo $RAY_ADDRESS $HERD_WORKERS $HERD_COORDINATOR.; exit 3")
    statuses, printed = gang.ends()
    assert statuses == [3, 0, 0]
    assert "Ray 2.9 runs on 3 hosts, started in " in printed[0]
    assert f"{gang.head}:6379 1 .\n" in printed[0]
    assert printed[1:] == ["", ""]
    assert gang.left() == []


@pytest.mark.parametrize("words", [["{}/python", "said"], ["sh", "-c", "cd / && {}/python said"]])
def test_ray_is_found_beside_the_python_that_the_command_names(
    gang: Gang, words: list[str]
) -> None:
    ray = gang.install("a", "2.9")
    (ray / "python").symlink_to("/bin/echo")
    gang.start([ray], *(word.format(ray) for word in words), path="/usr/bin:/bin")
    statuses, (printed,) = gang.ends()
    assert statuses == [0]
    assert "Ray 2.9 runs on 1 host, " in printed and "said\n" in printed


@pytest.mark.parametrize(
    ("versions", "sentence"),
    [
        (["2.9", "2.9", "2.8"], "different versions of Ray: worker 2 has 2.8, others have 2.9;"),
        (["2.9", "", "2.9"], "Ray is not installed on worker 1: add ray to"),
        (["", "", "2.9"], "Ray is not installed on worker 0 and 1 more: add ray to"),
        (["", "", ""], "Ray is not installed on all hosts: add ray to"),
        (["2.8.1"] * 3, "Ray 2.8.1 is too old: pin 2.9 or a newer one in"),
    ],
)
def test_hosts_that_can_not_be_one_cluster_start_nothing(
    gang: Gang, versions: list[str], sentence: str
) -> None:
    known = {one: gang.install(one, one) for one in set(versions) - {""}}
    gang.start([known.get(one) for one in versions], "echo", "ran")
    statuses, printed = gang.ends()
    assert statuses == [78, 78, 78]
    assert sentence in printed[0]
    assert printed[0].count("\n") == 1 and printed[1:] == ["", ""]


def test_a_host_whose_ray_ends_joins_again_and_disturbs_no_other(gang: Gang) -> None:
    gang.start([gang.install("a", "2.9")] * 2, "sh", "-c", BEGUN)
    until(lambda: (gang.folder / "begun").exists(), "the command", seconds=60)
    seen: set[int] = set()
    for _ in range(4):
        (raylet,) = until(lambda: new_raylets(gang, seen), "a raylet", seconds=60)
        seen.add(raylet)
        os.kill(raylet, signal.SIGKILL)
    statuses, printed = gang.ends()
    assert statuses == [76, 1]
    for number in (1, 2, 3):
        assert f"; it joins the cluster again ({number} of 3 times)\n" in printed[1]
    assert printed[1].count("Ray's raylet on this host has ended; its log is in /tmp/ray/") == 4
    assert printed[0].count("worker 1 has left the cluster; see its log") == 1
    assert gang.left() == []


def new_raylets(gang: Gang, seen: set[int]) -> list[int]:
    """The raylet of worker 1 that has not been seen."""
    member = gang.processes[1].pid
    return [pid for pid in gang.left("raylet") if parent(pid) == member and pid not in seen]


def test_a_lost_host_ends_the_attempt_on_all(gang: Gang) -> None:
    gang.start([gang.install("a", "2.9")] * 3, "sh", "-c", BEGUN)
    until(lambda: (gang.folder / "begun").exists(), "the command", seconds=60)
    gang.processes[1].kill()
    statuses, printed = gang.ends()
    assert statuses == [76, -signal.SIGKILL, 0]
    assert "worker 1 has left the cluster; see its log" in printed[0]


@pytest.mark.parametrize("program", ["gcs_server", "raylet"])
def test_a_head_without_a_part_of_ray_ends_the_attempt(gang: Gang, program: str) -> None:
    gang.start([gang.install("a", "2.9")] * 2, "sh", "-c", BEGUN)
    until(lambda: (gang.folder / "begun").exists(), "the command", seconds=60)
    (mine,) = [pid for pid in gang.left(program) if parent(pid) == gang.processes[0].pid]
    os.kill(mine, signal.SIGKILL)
    statuses, printed = gang.ends()
    assert statuses == [1, 0]
    assert f"Ray's {program} on this host has ended; its log is in /tmp/ray/" in printed[0]
    assert gang.left() == []


def test_a_command_that_saves_when_its_cluster_breaks_has_not_succeeded(gang: Gang) -> None:
    saves = "trap 'echo saved; exit 0' TERM; echo begun > begun; while :; do sleep .1; done"
    gang.start([gang.install("a", "2.9")] * 2, "sh", "-c", saves)
    until(lambda: (gang.folder / "begun").exists(), "the command", seconds=60)
    (gcs,) = gang.left("gcs_server")
    os.kill(gcs, signal.SIGKILL)
    statuses, printed = gang.ends()
    assert statuses == [1, 0]
    assert "saved\n" in printed[0]


@pytest.mark.parametrize("port", [6379, 6380])
def test_a_taken_port_is_named(gang: Gang, port: int) -> None:
    with socket.create_server((gang.head, port)):
        gang.start([gang.install("a", "2.9")], "true")
        statuses, (printed,) = gang.ends()
    assert statuses == [1]
    assert printed == (
        f"herd: error: Ray needs port {port} of worker 0, which another program has taken;"
        " if it is a Ray that was started by hand, end it with `ray stop`\n"
    )


def test_a_killed_worker_0_takes_the_others_along(gang: Gang) -> None:
    gang.start([gang.install("a", "2.9")] * 2, "sh", "-c", BEGUN)
    until(lambda: (gang.folder / "begun").exists(), "the command", seconds=60)
    gang.processes[0].kill()
    _, printed = gang.processes[1].communicate(timeout=120)
    assert gang.processes[1].returncode == 76
    assert "worker 0 is gone" in printed


def test_the_command_alone_is_asked_to_stop_and_can_use_the_cluster_until_it_has(
    gang: Gang,
) -> None:
    saves = (
        "trap 'pgrep -f -c raylet; exit 75' TERM; echo begun > begun; while :; do sleep .1; done"
    )
    gang.start([gang.install("a", "2.9")] * 2, "sh", "-c", saves)
    until(lambda: (gang.folder / "begun").exists(), "the command", seconds=60)
    for one in reversed(gang.processes):
        one.terminate()
    statuses, _ = gang.ends()
    assert statuses == [75, 0]
    assert gang.left() == []


def test_a_signal_that_ends_the_command_is_the_jobs(gang: Gang) -> None:
    gang.start([gang.install("a", "2.9")] * 2, "sh", "-c", "kill -SEGV $$")
    assert gang.ends()[0] == [-signal.SIGSEGV, 0]


@pytest.mark.parametrize(
    "words", ["", "GET / HTTP/1.1", "[]", '{"worker": 1}', HELLO.format(1), HELLO.format(7)]
)
def test_strangers_are_turned_away(gang: Gang, words: str) -> None:
    ray = gang.install("a", "2.9")
    gang.start([ray, ray], "true", only=0)
    stranger = until(lambda: connect(gang.head), "worker 0", seconds=60)
    with stranger:
        stranger.sendall(f"{words}\n".encode())
        stranger.settimeout(60)
        assert stranger.recv(1) == b""
    gang.start([ray, ray], "true", only=1)
    assert gang.ends()[0] == [0, 0]


def connect(address: str) -> socket.socket | None:
    try:
        return socket.create_connection((address, 6380))
    except OSError:
        return None


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
