"""Real sshds as the hosts of `herd exec`: a daemon that knows them without a cloud."""

import asyncio
import gc
import multiprocessing
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

from bench.rigs.sync import ALIKE

from tests.conformance.hosts_sshd import PORT, SshdHosts, sshd_hosts
from tests.conformance.world import HERD
from tpuherd.clock import Clock, WallClock
from tpuherd.commands.console import Console
from tpuherd.daemon.handshake import SOCKET
from tpuherd.daemon.server import Daemon
from tpuherd.ports import Host
from tpuherd.remote.agent_bundle import current_agent
from tpuherd.remote.client_key import key_pair
from tpuherd.remote.connection_pool import ClientIdentity, ConnectionPool
from tpuherd.remote.host_key_pins import Pins
from tpuherd.remote.resolve_hosts import RemoteSession
from tpuherd.settings import project_access
from tpuherd.settings.endpoints import CredentialSource
from tpuherd.settings.folders import resolve_folders
from tpuherd_host.agent.frames import PROTOCOL

IDLE_S = 600.0


class KnownHosts:
    """A directory of fixed hosts."""

    def unreachable_reason(self, host: Host) -> str | None:
        return None

    async def look_up_host(self, host: Host) -> tuple[Host, str]:
        return host, ""

    async def find_current(self, host: Host) -> Host | None:
        return host

    async def install_key(self, host: Host, login: str, public: str) -> None:
        return None


class NearSession(RemoteSession):
    """Resolve any target to all hosts."""

    def __init__(self, hosts: list[Host], pool: ConnectionPool, clock: Clock) -> None:
        self.everyone, self.pool, self.clock = hosts, pool, clock

    async def resolve_hosts(
        self, target: str, without: Callable[[], Mapping[str, str]] = dict
    ) -> list[Host]:
        return self.everyone


class RigDaemon(Daemon):
    """The daemon, without a cloud."""

    def __init__(self, hosts: list[Host], home: Path, clock: Clock) -> None:
        super().__init__(clock, IDLE_S)
        folders = resolve_folders({"HOME": str(home)})
        self.place = project_access.ProjectAccess(
            world=home, project="", folders=folders, urls=project_access.GOOGLE, ssh_port=PORT,
            login=SshdHosts.login, routes=(), credentials=CredentialSource(),
        )  # fmt: skip
        hello = {"protocol": PROTOCOL, "who": "a bench", "owner": "abc", "epoch": 0}
        keys = key_pair(folders.config)
        caller = ClientIdentity(
            login=SshdHosts.login, keys=keys, hello=hello, bundle=current_agent()
        )
        self.near = NearSession(
            hosts, ConnectionPool(KnownHosts(), caller, Pins(home / "pins"), clock), clock
        )

    async def open_remote(
        self, console: Console
    ) -> tuple[project_access.ProjectAccess, RemoteSession]:
        return self.place, self.near


def keep(pipe: Connection, hosts: list[Host], home: Path) -> None:
    """Run the daemon, as its own process does."""
    os.setsid()
    os.chdir(resolve_folders({"HOME": str(home)}).runtime)
    gc.freeze()
    asyncio.run(reside(pipe, hosts, home))


async def reside(pipe: Connection, hosts: list[Host], home: Path) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.setblocking(False)
    listener.bind(SOCKET)
    listener.listen(1)
    daemon = RigDaemon(hosts, home, WallClock())
    pipe.send(None)
    await daemon.run(listener)


@dataclass(frozen=True)
class HostCrowd:
    """The hosts, as a user and as ssh see them."""

    place: SshdHosts
    ips: list[str]
    env: dict[str, str]
    key: Path
    pid: int  #: the daemon's
    port: int = PORT
    login: str = SshdHosts.login

    def herd(self, *words: str) -> list[str]:
        return [str(HERD), "exec", "n", *words]

    def ssh(self, host: str, command: str) -> list[str]:
        return [
            "ssh", "-F", "/dev/null", "-p", str(self.port), "-i", str(self.key), "-l", self.login,
            "-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null", "-oLogLevel=ERROR",
            "-oBatchMode=yes", *ALIKE, host, command,
        ]  # fmt: skip


@contextmanager
def host_crowd(many: int) -> Iterator[HostCrowd]:
    """Start `many` hosts and a daemon."""
    with sshd_hosts() as place:
        home = place.folder / "user"
        folders = resolve_folders({"HOME": str(home)})
        folders.runtime.mkdir(parents=True, mode=0o700)
        keys = key_pair(folders.config)
        place.keys.write_text(f"{keys.public}\n")
        found = place.node("n", many)
        hosts = [replace(host, host_keys=(place.machine(host).key,)) for host in found]
        context = multiprocessing.get_context("spawn")
        pipe, other = context.Pipe()
        process = context.Process(target=keep, args=(other, hosts, home), daemon=True)
        process.start()
        try:
            pipe.recv()
            assert process.pid is not None
            env = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
            ips = [host.external_ip or host.internal_ip for host in hosts]
            yield HostCrowd(place, ips, env, keys.file, process.pid)
        finally:
            process.terminate()
            process.join()
