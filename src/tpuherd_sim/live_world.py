"""Where the pure world meets time: requests get their moment, and what is due happens by itself."""

import asyncio
import json
import math
from collections.abc import Mapping
from typing import Any, Protocol

from tpuherd.clock import Clock
from tpuherd_sim import handle as model
from tpuherd_sim.model.host_view import HostView
from tpuherd_sim.model.http_types import Request, Response
from tpuherd_sim.model.world import World, written
from tpuherd_sim.tpu import host_reports
from tpuherd_sim.tpu.host_metadata import metadata

#: A laptop that slept has lost its timers' time, not its clock's: look again this often.
NAP_S_MAX = 60.0
NAP_S_MIN = 0.001


class Journal(Protocol):
    """Where requests are noted before they take effect."""

    def write(self, at: float, request: Request) -> None:
        """Fails with OSError where nothing can be noted."""
        ...


class Desk:
    """One world at the present moment, for its server, its hosts and its tests."""

    def __init__(self, world: World, clock: Clock, journal: Journal | None = None) -> None:
        self.world = world
        self._clock = clock
        self._journal = journal
        self._now = 0.0
        self._wakes_at = math.inf
        self._nap: asyncio.Task[None] | None = None
        self._changes: dict[str, asyncio.Event] = {}  #: by host key
        self._stirred: set[str] = set()  #: hosts that changed since `touched` was asked
        self._news = asyncio.Event()
        self._lines = 0  #: of the log, when anybody last looked
        self._written = asyncio.Event()

    def now(self) -> float:
        """The time of the world: the clock's, except that it never goes backwards."""
        self._now = max(self._now, self._clock.now())
        return self._now

    def handle(self, request: Request) -> Response:
        """Let a request happen, now."""
        now = self.now()
        # What is due may put a rule of the weather in force; then a mere reading changes things.
        model.advance(self.world, now)
        if self._journal is not None and changes(self.world, request):
            try:
                self._journal.write(now, request)
            except OSError as error:
                return full(error)
        answer = model.handle(self.world, request, now)
        self._settle()
        return answer

    def view(self, key: str) -> HostView | None:
        """What the host should be like; None when its node is no more."""
        return host_reports.view(self.world, key)

    def views(self) -> dict[str, HostView]:
        """All hosts there should be."""
        return host_reports.views(self.world)

    def metadata(self, key: str) -> dict[str, Any]:
        """The tree under /computeMetadata/v1/ of that host."""
        self._advance()
        return metadata(self.world, key, self._now)

    def logins(self, key: str) -> Mapping[str, tuple[str, ...]]:
        """Which user may come in with which public keys."""
        return host_reports.logins(self.world, key)

    async def changed(self, key: str) -> None:
        """Return when the view or the metadata of that host changes the next time."""
        await self._changes.setdefault(key, asyncio.Event()).wait()

    async def touched(self) -> set[str]:
        """The keys of the hosts that changed since this was asked before, once there are some."""
        await self._news.wait()
        self._news.clear()
        keys, self._stirred = self._stirred, set()
        return keys

    async def logged(self, lines: int) -> None:
        """Return when the log has more lines than these."""
        while written(self.world) <= lines:
            await self._written.wait()

    async def run(self) -> None:
        """Let what is due happen when it is due, without end."""
        while True:
            due = self._advance()
            self._wakes_at = math.inf if due is None else due
            async with asyncio.TaskGroup() as group:
                self._nap = group.create_task(self._sleep(due))
            self._nap = None

    async def _sleep(self, due: float | None) -> None:
        """Until something is due. A request that makes something due earlier ends it."""
        if due is None:
            await asyncio.Event().wait()
        else:
            await self._clock.sleep(min(max(due - self.now(), NAP_S_MIN), NAP_S_MAX))

    def _advance(self) -> float | None:
        model.advance(self.world, self.now())
        return self._settle()

    def _settle(self) -> float | None:
        """Tell who waits what has changed; when something is due next."""
        keys = self.world.touched
        if keys:
            self._stirred |= keys
            self._news.set()
            for key in keys & self._changes.keys():
                self._changes.pop(key).set()
            keys.clear()
        if written(self.world) != self._lines:
            self._lines = written(self.world)
            self._written.set()
            self._written = asyncio.Event()
        due = model.next_due(self.world)
        if due is not None and due < self._wakes_at and self._nap is not None:
            self._nap.cancel()
        return due


def changes(world: World, request: Request) -> bool:
    """Whether the world may be another one afterwards.

    Reading leaves it as it is, unless a rule of the weather is in force, which it may use up.
    """
    if request.method != "GET":
        return True
    return bool(world.weather.rules) and not request.path.startswith("/sim/")


def full(error: OSError) -> Response:
    """The answer where the world can't remember what it would do now."""
    message = f"The world can't write its journal ({error.strerror}); nothing was done. Make room."
    content = {"error": {"code": 503, "message": message, "status": "UNAVAILABLE"}}
    return Response(status=503, body=json.dumps(content).encode())
