"""Keeps the connections of every project that is in use, and closes those not used for long."""

import asyncio
from dataclasses import dataclass, field

from tpuherd.clock import Clock
from tpuherd.remote import open_remote
from tpuherd.remote.resolve_hosts import RemoteSession
from tpuherd.settings.project_access import ProjectAccess


@dataclass(slots=True)
class OpenProject:
    """A project whose connections are open."""

    reach: asyncio.Future[RemoteSession]
    task: asyncio.Task[None]
    used_at: float
    over: asyncio.Event = field(default_factory=asyncio.Event)


class OpenProjects:
    """Opens a project at its first use and closes it when it is no longer used."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[ProjectAccess, OpenProject] = {}

    async def get_session(self, place: ProjectAccess) -> RemoteSession:
        """Return the session that reaches its hosts."""
        now = self._clock.now()
        one = self._open.get(place)
        if one is None or one.task.done():
            reach: asyncio.Future[RemoteSession] = asyncio.get_running_loop().create_future()
            over = asyncio.Event()
            task = asyncio.create_task(self._hold_open(place, reach, over))
            one = self._open[place] = OpenProject(reach, task, now, over)
        one.used_at = now
        return await asyncio.shield(one.reach)

    async def _hold_open(
        self, place: ProjectAccess, reach: asyncio.Future[RemoteSession], over: asyncio.Event
    ) -> None:
        """Open and close the session in the same task, as its TaskGroup demands."""
        try:
            async with open_remote.open_remote_session(place, self._clock) as found:
                reach.set_result(found)
                await over.wait()
        except Exception as error:
            if reach.done():
                raise
            reach.set_exception(error)

    def close_unused(self, before: float) -> None:
        """Close what was not used since then."""
        for place, one in list(self._open.items()):
            if one.used_at < before:
                one.over.set()
                del self._open[place]

    def project_titles(self) -> list[str]:
        return [place.title for place in self._open]

    async def close(self) -> None:
        tasks = [one.task for one in self._open.values()]
        for one in self._open.values():
            one.over.set()
        self._open.clear()
        await asyncio.gather(*tasks, return_exceptions=True)
