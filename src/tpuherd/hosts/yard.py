"""The hosts of a place as the engine uses them: links, code by its id, files brought back."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from tpuherd.hosts.copy import fetch
from tpuherd.hosts.snapshot import take_commit
from tpuherd.hosts.snapshot_archive import Archive
from tpuherd.hosts.ssh import Ways
from tpuherd.hosts.sync import ship, ship_id
from tpuherd.ports import Host, Link


class Yard:
    """The HostsPort of a place."""

    def __init__(self, ways: Ways, archive: Archive, environment: Mapping[str, str]) -> None:
        self.ways = ways
        self.archive = archive
        self.environment = environment  #: PATH and HOME, for git

    async def open(self, host: Host) -> Link:
        """The link to its agent."""
        return await self.ways.link(host)

    async def ship(self, snapshot: str, dest: str, links: Sequence[Link]) -> Mapping[str, str]:
        """By its id, or as `url@commit`: then it is fetched here, unless it was before."""
        url, at, commit = snapshot.rpartition("@")
        if not at:
            return (await ship_id(snapshot, dest, links, archive=self.archive)).failed
        taken = await asyncio.to_thread(take_commit, url, commit, self.archive, self.environment)
        return (await ship(taken, dest, links, archive=self.archive)).failed

    async def fetch(self, paths: Sequence[str], link: Link, into: Path) -> None:
        """Into a folder."""
        await fetch(paths, link, into, new=True)
