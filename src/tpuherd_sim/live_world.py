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
from tpuherd_sim.model.world import World, log_length
from tpuherd_sim.tpu import host_reports
from tpuherd_sim.tpu.host_metadata import metadata_tree

#: A laptop that slept has lost its timers' time, not its clock's: look again this often.
NAP_S_MAX = 60.0
NAP_S_MIN = 0.001


class RequestJournal(Protocol):
    """Where requests are noted before they take effect."""

    def write(self, at: float, request: Request) -> None:
        """Fails with OSError where nothing can be noted."""
        ...


class LiveWorld:
    """One world at the present moment, for its server, its hosts and its tests."""

    def __init__(self, world: World, clock: Clock, journal: RequestJournal | None = None) -> None:
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

    def current_time(self) -> float:
        """The time of the world: the clock's, except that it never goes backwards."""
        self._now = max(self._now, self._clock.now())
        return self._now

    def handle_request(self, request: Request) -> Response:
        """Let a request happen, now."""
        now = self.current_time()
        # What is due may put a rule of the weather in force; then a mere reading changes things.
        model.advance_world(self.world, now)
        if self._journal is not None and may_change_world(self.world, request):
            try:
                self._journal.write(now, request)
            except OSError as error:
                return journal_full_response(error)
        answer = model.handle_request(self.world, request, now)
        self._notify_waiters()
        return answer

    def host_view(self, key: str) -> HostView | None:
        """What the host should be like; None when its node is no more."""
        return host_reports.host_view(self.world, key)

    def host_views(self) -> dict[str, HostView]:
        """All hosts there should be."""
        return host_reports.host_views(self.world)

    def metadata_tree(self, key: str) -> dict[str, Any]:
        """The tree under /computeMetadata/v1/ of that host."""
        self._advance_world()
        return metadata_tree(self.world, key, self._now)

    def login_keys(self, key: str) -> Mapping[str, tuple[str, ...]]:
        """Which user may come in with which public keys."""
        return host_reports.login_keys(self.world, key)

    async def wait_for_change(self, key: str) -> None:
        """Return when the view or the metadata of that host changes the next time."""
        await self._changes.setdefault(key, asyncio.Event()).wait()

    async def wait_for_changed_hosts(self) -> set[str]:
        """The keys of the hosts that changed since this was asked before, once there are some."""
        await self._news.wait()
        self._news.clear()
        keys, self._stirred = self._stirred, set()
        return keys

    async def wait_for_log_lines(self, lines: int) -> None:
        """Return when the log has more lines than these."""
        while log_length(self.world) <= lines:
            await self._written.wait()

    async def run(self) -> None:
        """Let what is due happen when it is due, without end."""
        while True:
            due = self._advance_world()
            self._wakes_at = math.inf if due is None else due
            async with asyncio.TaskGroup() as group:
                self._nap = group.create_task(self._sleep_until_due(due))
            self._nap = None

    async def _sleep_until_due(self, due: float | None) -> None:
        """Until something is due. A request that makes something due earlier ends it."""
        if due is None:
            await asyncio.Event().wait()
        else:
            await self._clock.sleep(min(max(due - self.current_time(), NAP_S_MIN), NAP_S_MAX))

    def _advance_world(self) -> float | None:
        model.advance_world(self.world, self.current_time())
        return self._notify_waiters()

    def _notify_waiters(self) -> float | None:
        """Tell who waits what has changed; when something is due next."""
        keys = self.world.touched
        if keys:
            self._stirred |= keys
            self._news.set()
            for key in keys & self._changes.keys():
                self._changes.pop(key).set()
            keys.clear()
        if log_length(self.world) != self._lines:
            self._lines = log_length(self.world)
            self._written.set()
            self._written = asyncio.Event()
        due = model.next_due_time(self.world)
        if due is not None and due < self._wakes_at and self._nap is not None:
            self._nap.cancel()
        return due


def may_change_world(world: World, request: Request) -> bool:
    """Whether the world may be another one afterwards.

    Reading leaves it as it is, unless a rule of the weather is in force, which it may use up.
    """
    if request.method != "GET":
        return True
    return bool(world.weather.rules) and not request.path.startswith("/sim/")


def journal_full_response(error: OSError) -> Response:
    """The answer where the world can't remember what it would do now."""
    message = (
        f"Can't write the world's journal ({error.strerror}); nothing was done. Free disk space."
    )
    content = {"error": {"code": 503, "message": message, "status": "UNAVAILABLE"}}
    return Response(status=503, body=json.dumps(content).encode())
