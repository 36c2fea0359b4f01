"""The engine's access to hosts: links, code by snapshot id, and fetched files."""

import asyncio
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from tpuherd.errors import HerdError, NotFound
from tpuherd.model.node_spec import EnvironmentNote
from tpuherd.ports import FetchedFiles, Host, Link
from tpuherd.remote.connection_pool import ConnectionPool
from tpuherd.sync.copy_files import collect_paths
from tpuherd.sync.known_environments import known_environments, note_environment
from tpuherd.sync.ship import ship, ship_stored
from tpuherd.sync.ship_environment import ship_from_host, snapshot_program
from tpuherd.sync.snapshot_recover import recover_snapshot
from tpuherd.sync.snapshot_store import Archive
from tpuherd.sync.take_snapshot import load_snapshot, snapshot_commit
from tpuherd_host.agent.environments.environment_folders import ROOT, TOOLS, platform_name


class EngineHosts:
    """The HostsPort of a project."""

    def __init__(
        self,
        connections: ConnectionPool,
        archive: Archive,
        environment: Mapping[str, str],
        who: str,
    ) -> None:
        self.connections = connections
        self.archive = archive
        self.environment = environment  #: PATH and HOME, for git
        self.who = "engine." + re.sub(
            r"[^\w.-]", "-", who
        )  #: pins snapshots, and owns notes of environments; no job name has a dot
        self._kept: frozenset[str] | None = None
        self._here: set[str] = set()
        self._recovering = asyncio.Lock()

    async def open_link(self, host: Host) -> Link:
        """The link to its agent."""
        return await self.connections.get_link(host)

    async def ship(
        self, snapshot: str, dest: str, links: Sequence[Link], source: Link | None = None
    ) -> Mapping[str, str]:
        """Ship a snapshot by its id, or by `url@commit`, which is fetched here first."""
        if source is not None:
            return (await ship_from_host(snapshot, dest, links, source, self.archive)).failed
        url, at, commit = snapshot.rpartition("@")
        if not at:
            return (await ship_stored(snapshot, dest, links, archive=self.archive)).failed
        taken = await asyncio.to_thread(
            snapshot_commit, url, commit, self.archive, self.environment
        )
        return (await ship(taken, dest, links, archive=self.archive)).failed

    def known_environments(self, job: str, key: str) -> Mapping[str, EnvironmentNote]:
        return known_environments(self.archive, f"{self.who}.{job}", key)

    def note_environment(self, job: str, key: str, note: EnvironmentNote) -> None:
        note_environment(self.archive, f"{self.who}.{job}", key, note)

    def is_complete(self, snapshot: str) -> bool:
        with self.archive.blobs.shared_lock():
            return load_snapshot(snapshot, self.archive) is not None

    async def lend_uv(self, link: Link, platform: str) -> bool:
        """Ship this machine's uv to a host like this machine."""
        uv = shutil.which("uv", path=self.environment.get("PATH", ""))
        if uv is None or libc_platform(platform) != libc_platform(platform_name()):
            return False
        taken = await asyncio.to_thread(snapshot_program, Path(uv).resolve(), self.archive)
        return not (await ship(taken, f"{ROOT}/{TOOLS}", [link], archive=self.archive)).failed

    async def fetch_files(
        self, paths: Sequence[str], link: Link, into: Path, within_s: float | None = None
    ) -> FetchedFiles:
        return await collect_paths(paths, link, into.parent, into.name, within_s)

    def retain_snapshots(self, snapshots: Collection[str]) -> Collection[str]:
        """Pin these snapshots under our name; return those that are not on this machine."""
        wanted = frozenset(one for one in snapshots if "@" not in one)
        if wanted != self._kept:
            self.archive.pin_snapshots(self.who, wanted)
            self._kept = wanted
        self._here &= wanted
        if self._here != wanted:
            with self.archive.blobs.shared_lock():
                self._here |= {
                    one for one in wanted - self._here if load_snapshot(one, self.archive)
                }
        return wanted - self._here

    async def recover_snapshot(self, snapshot: str, links: Sequence[Link]) -> None:
        """Fetch a snapshot from the first host that has it."""
        troubles: list[str] = []
        async with self._recovering:
            if await asyncio.to_thread(load_snapshot, snapshot, self.archive) is not None:
                return
            for link in links:
                try:
                    await recover_snapshot(snapshot, link, self.archive)
                except NotFound:
                    continue
                except HerdError as error:
                    troubles.append(f"; {link.host.name}: {error.sentence}")
                else:
                    return
        raise NotFound(
            f"its code (snapshot {snapshot[:12]}) is neither here nor on a host that could give it:"
            f" herd run again ships it{''.join(troubles[:3])}"
        )


def libc_platform(platform: str) -> str:
    """linux-x86_64-glibc: what a program that needs no Python runs on."""
    return re.split(r"[0-9.]+-python", platform)[0]
