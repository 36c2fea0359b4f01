"""A job's environment is installed once, and every other host gets it from one that has it."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.simulated.sync_hosts import NearHost
from tests.simulated.tiny_wheel import REQUIREMENTS, write_wheel
from tpuherd.clock import WallClock
from tpuherd.engine.engine_hosts import EngineHosts
from tpuherd.engine.environments import provide_environment
from tpuherd.engine.gang_client import GangClient
from tpuherd.engine.host_failures import HostFailure
from tpuherd.engine.host_watcher import HostWatcher, WatcherDeps
from tpuherd.model.node_spec import EnvironmentSpec, LaunchSpec
from tpuherd.ports import Host, RpcRequest
from tpuherd.remote.agent_bundle import current_agent
from tpuherd.store.log_store import LogStore
from tpuherd.sync.snapshot_store import Archive
from tpuherd_host.agent.environments import rpc_environments
from tpuherd_host.agent.environments.environment_folders import ROOT

KEY = "0123456789abcdef"
UV = str(Path(sys.executable).parent)
needs_uv = pytest.mark.skipif(shutil.which("uv", path=UV) is None, reason="needs uv")


class FreshHost(NearHost):
    """A host whose setup steps really run, as processes of this machine."""

    def __init__(self, folder: Path, name: str, path: str = UV) -> None:
        super().__init__(folder / name, 0)
        write_wheel(self.home / "herd/gpt/wheels")
        (self.home / "herd/gpt/requirements.txt").write_text(REQUIREMENTS)
        self.host = Host(
            node=name,
            zone="us-central2-b",
            worker=0,
            incarnation=name,
            internal_ip="127.0.0.1",
            external_ip=None,
        )
        self.slot = "gpt-0"
        self.path = f"{path}:/usr/bin:/bin"
        self.more: dict[str, str] = {}
        self.began: Callable[[int], None] = lambda pid: None

    async def call(self, verb: RpcRequest) -> Mapping[str, Any]:
        if verb.name == "ping":
            return {"time": time.time()}
        if verb.name == "setup":
            return await self.set_up(verb.arguments)
        return await super().call(verb)

    async def set_up(self, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
        (step,) = wanted["steps"]
        process = await asyncio.create_subprocess_exec(
            *self.words(step["argv"]),
            cwd=self.home,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.began(process.pid)
        text, _ = await process.communicate()
        code = process.returncode or 0
        return {
            "id": wanted["id"],
            "kind": "setup",
            "phase": "ended",
            "exit": code if code >= 0 else None,
            "signal": -code if code < 0 else None,
            "tail": text.decode().splitlines()[-20:],
            "stage_name": step["name"],
            "asked": time.time(),
        }

    def words(self, argv: list[str]) -> list[str]:
        """What runs: this Python, and the agent's file."""
        file = self.home.parent / "agent-0123456789abcdef.pyz"
        if not file.exists():
            file.write_bytes(current_agent().content)
        return [sys.executable, *(str(file) if one == "$AGENT" else one for one in argv[1:])]

    @property
    def env(self) -> dict[str, str]:
        """What its processes have; there is no index to ask for anything."""
        own = {"HOME": str(self.home), "HERD_AGENT": self.house, "PATH": self.path}
        return {**own, "PIP_NO_INDEX": "1", "UV_OFFLINE": "1", **self.more}

    def run_in(self, key: str, *words: str) -> str:
        """What a program of the environment prints."""
        place = self.home / ROOT / key / "bin"
        done = subprocess.run([place / words[0], *words[1:]], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def owner_of(host: FreshHost) -> str:
    """The job that the host belongs to."""
    return f"{host.slot.rpartition('-')[0]}-5ab"


@dataclass
class Room:
    """A user's machine."""

    folder: Path
    told: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    def gang(self, hosts: list[FreshHost]) -> tuple[GangClient, list[HostWatcher]]:
        archive = Archive(self.folder / "archive")
        hosts_port: Any = EngineHosts(None, archive, {"PATH": ""}, "me")  # type: ignore[arg-type]
        means = WatcherDeps(
            hosts=hosts_port,
            shelf=LogStore(self.folder / "logs"),
            clock=WallClock(),
            stir=lambda: None,
            tell=lambda kind, slot, facts: self.told.append((kind, facts)),
        )
        client = GangClient(means, lambda work: None)
        watches = []
        for one in hosts:
            watch = HostWatcher(one.host, one.slot, means)
            watch.link = one
            watches.append(watch)
        client._watches = {watch.host.node: [watch] for watch in watches}
        return client, watches

    def provide(self, *hosts: FreshHost, beside: tuple[FreshHost, ...] = (), **spec: str) -> Any:
        """Bring it to these hosts; others are there, too."""
        fields = {"key": KEY, "requirements": "requirements.txt", "job": owner_of(hosts[0])}
        wanted = EnvironmentSpec(**{**fields, **spec})
        order = LaunchSpec(environment=wanted, dest="herd/gpt", directory="herd/gpt")

        async def work() -> list[HostFailure]:
            client, watches = self.gang([*hosts, *beside])
            return await provide_environment(client, watches[: len(hosts)], order, {})

        return asyncio.run(work())

    def events(self, kind: str) -> list[Mapping[str, Any]]:
        return [facts for one, facts in self.told if one == f"environment.{kind}"]

    def retain(self, *hosts: FreshHost) -> None:
        """Fetch what this machine wants to keep."""

        async def work() -> None:
            client, _ = self.gang(list(hosts))
            for one in hosts:
                known = client.means.hosts.known_environments(owner_of(one), KEY).values()
                job = one.slot.rpartition("-")[0]
                await client.retain_code({job: [note.digest for note in known if not note.kept]})

        asyncio.run(work())

    def times(self, kind: str) -> int:
        return len(self.events(kind))


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


@needs_uv
def test_one_host_installs_and_the_others_get_it(room: Room, tmp_path: Path) -> None:
    hosts = [FreshHost(tmp_path, f"n{number}") for number in range(4)]
    assert room.provide(*hosts) == []
    assert (room.times("installed"), room.times("copied")) == (1, 1)
    for host in hosts:
        assert host.run_in(KEY, "python", "-c", "import tiny; print(tiny.version)") == "1.0"
        assert host.run_in(KEY, "tiny") == "tiny 1.0"  # a script starts the Python beside it
        assert str(host.home) in host.run_in(KEY, "python", "-c", "import sys; print(sys.prefix)")
        assert (host.home / ROOT / "current").resolve().name == KEY
        assert list((host.home / ROOT).glob(".new*")) == []
    assert room.provide(*hosts) == []
    assert (room.times("installed"), room.times("copied")) == (1, 1)  # nothing is left to do


@needs_uv
def test_a_new_node_gets_it_from_a_neighbour_and_else_from_this_machine(
    room: Room, tmp_path: Path
) -> None:
    old, new, last = (FreshHost(tmp_path, name) for name in ("old", "new", "last"))
    assert room.provide(old) == []
    assert room.provide(new, beside=(old,)) == []
    assert room.told[-1][1]["source"] == "old/w0"
    room.retain(old, new)
    old.down = new.down = True
    assert room.provide(last) == []
    assert room.told[-1][1]["source"] == "this machine"
    assert last.run_in(KEY, "tiny") == "tiny 1.0"
    assert room.times("installed") == 1


@needs_uv
@pytest.mark.parametrize("slot", ["evil-0", "gpt-1"], ids=["another", "an-earlier-of-its-name"])
def test_a_host_of_another_job_passes_nothing_on(room: Room, tmp_path: Path, slot: str) -> None:
    evil, victim, late = (FreshHost(tmp_path, name) for name in ("evil", "victim", "late"))
    evil.slot = slot
    write_wheel(evil.home / "herd/gpt/wheels", "6.66")  # under the key of the other job
    assert room.provide(evil, job="evil-1") == []
    room.retain(evil)
    assert room.provide(victim, beside=(evil,)) == []
    assert victim.run_in(KEY, "tiny") == "tiny 1.0"
    assert (room.times("installed"), room.times("copied")) == (2, 0)
    room.retain(victim, evil)
    victim.down = True
    assert room.provide(late, beside=(evil,)) == []
    assert room.told[-1][1]["source"] == "this machine"
    assert late.run_in(KEY, "tiny") == "tiny 1.0"


@needs_uv
def test_a_record_that_another_job_forged_is_not_followed(room: Room, tmp_path: Path) -> None:
    evil, victim = FreshHost(tmp_path, "evil"), FreshHost(tmp_path, "victim")
    evil.slot = "evil-0"
    write_wheel(evil.home / "herd/gpt/wheels", "6.66")
    assert room.provide(evil, key="f" * 16) == []
    records = evil.home / ".tpuherd/environments"
    (records / f"{KEY}.json").write_text((records / f"{'f' * 16}.json").read_text())
    assert room.provide(victim, beside=(evil,)) == []
    assert victim.run_in(KEY, "tiny") == "tiny 1.0"
    assert room.times("copied") == 0


@needs_uv
def test_without_a_copy_anywhere_it_is_installed_again(room: Room, tmp_path: Path) -> None:
    old, new = FreshHost(tmp_path, "old"), FreshHost(tmp_path, "new")
    assert room.provide(old) == []
    old.down = True
    assert room.provide(new) == []
    assert room.times("installed") == 2


@needs_uv
def test_an_impossible_installation_is_one_sentence_and_not_retried(
    room: Room, tmp_path: Path
) -> None:
    hosts = [FreshHost(tmp_path, name) for name in ("n0", "n1")]
    (hosts[0].home / "herd/gpt/requirements.txt").write_text(REQUIREMENTS + "tiny==9.9\n")
    (failure,) = room.provide(*hosts)
    assert failure.host == "n0/w0"
    assert failure.unfit
    assert failure.sentence.startswith("requirements.txt can't be installed: Because ")
    assert "tiny==9.9" in failure.sentence
    assert list((hosts[0].home / ROOT).iterdir()) == []
    (failure,) = room.provide(*hosts, requirements="absent.txt")
    assert (failure.unfit, "absent.txt" in failure.sentence) == (True, True)
    (failure,) = room.provide(*hosts, python="3.99", requirements="")
    assert (failure.unfit, "3.99" in failure.sentence) == (True, True)
    assert room.times("installed") == 0


@needs_uv
def test_kill_9_in_the_middle_leaves_nothing_and_the_next_try_succeeds(
    room: Room, tmp_path: Path
) -> None:
    host = FreshHost(tmp_path, "n0")
    host.began = lambda pid: os.kill(pid, signal.SIGKILL)
    (failure,) = room.provide(host)
    assert (failure.unfit, room.times("installed")) == (False, 0)
    assert "killed by signal 9" in failure.sentence or "signal 9" in failure.sentence
    leftover = host.home / ROOT / f".new-{KEY}"
    leftover.mkdir(parents=True)
    (leftover / "half").write_text("of a file")
    host.began = lambda pid: None
    assert room.provide(host) == []
    assert not leftover.exists()
    assert not (host.home / ROOT / KEY / "half").exists()


@needs_uv
def test_two_jobs_at_once_install_it_once(room: Room, tmp_path: Path) -> None:
    host = FreshHost(tmp_path, "n0")
    recipe = {"key": KEY, "requirements": "requirements.txt", "directory": "herd/gpt"}
    words = host.words(["python3", "$AGENT", "environment", json.dumps(recipe)])
    both = [
        subprocess.Popen(words, cwd=host.home, env=host.env, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    told = [one.communicate()[0] for one in both]
    assert [one.returncode for one in both] == [0, 0]
    assert sum("Installed 1 package" in text or "+ tiny==1.0" in text for text in told) == 1


@needs_uv
def test_a_host_keeps_the_three_used_last(room: Room, tmp_path: Path) -> None:
    host = FreshHost(tmp_path, "n0")
    keys = [f"{number}" * 16 for number in range(5)]
    for number, key in enumerate(keys):
        assert room.provide(host, key=key) == []
        file = host.home / ".tpuherd/environments" / f"{key}.used"
        os.utime(file, (number, number))
    assert room.provide(host, key=keys[-1]) == []
    left = {one.name for one in (host.home / ROOT).iterdir() if one.is_dir()}
    assert left - {"current"} == set(keys[-rpc_environments.KEPT :])
    assert host.run_in(keys[2], "tiny") == "tiny 1.0"


@needs_uv
def test_a_host_without_that_python_says_so(room: Room, tmp_path: Path) -> None:
    old, new = FreshHost(tmp_path, "old"), FreshHost(tmp_path, "new")
    assert room.provide(old) == []
    python = old.home / ROOT / KEY / "bin/python"
    python.unlink()
    python.symlink_to("/nowhere/python3")
    (failure,) = room.provide(old)
    assert "this host has none that works there" in failure.sentence
    assert room.provide(new) == []


PROJECT = """\
[project]
name = "mine"
version = "1"
requires-python = ">=3.PYTHON"
dependencies = ["tiny"]
"""
LOCK = """\
version = 1
requires-python = ">=3.PYTHON"

[[package]]
name = "mine"
version = "1"
source = { virtual = "." }
dependencies = [{ name = "tiny" }]

[[package]]
name = "tiny"
version = "1.0"
source = { registry = "wheels" }
wheels = [{ path = "tiny-1.0-py3-none-any.whl" }]
"""


def write_project(host: FreshHost, python: str) -> None:
    for name, text in (("pyproject.toml", PROJECT), ("uv.lock", LOCK)):
        (host.home / "herd/gpt" / name).write_text(text.replace("PYTHON", python))


@needs_uv
def test_a_project_of_uv_is_installed_as_it_is_locked(room: Room, tmp_path: Path) -> None:
    host = FreshHost(tmp_path, "n0")
    write_project(host, "8")
    assert room.provide(host, requirements="uv.lock") == []
    assert host.run_in(KEY, "tiny") == "tiny 1.0"
    assert "mine" not in host.run_in(KEY, "pip", "list")
    write_project(host, "99")
    (failure,) = room.provide(host, key="f" * 16, requirements="uv.lock")
    assert failure.unfit
    assert failure.sentence.startswith("a Python for uv.lock (this host has 3.")


def test_without_uv_the_host_uses_pip(room: Room, tmp_path: Path) -> None:
    host = FreshHost(tmp_path, "n0", path="/nowhere")
    assert room.provide(host) == []
    assert room.told[0][1]["tool"] == "pip"
    assert host.run_in(KEY, "tiny") == "tiny 1.0"
    for at, file in enumerate(("uv.lock", "pyproject.toml")):
        (failure,) = room.provide(host, key=f"{at}" * 16, requirements=file)
        assert f"{file} needs uv" in failure.sentence
