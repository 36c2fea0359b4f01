"""Runs the pure world in real or virtual time: requests now, events when they are due."""

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

#: Timers stop while a laptop sleeps, its clock does not: check this often.
NAP_S_MAX = 60.0
NAP_S_MIN = 0.001


class RequestJournal(Protocol):
    """Stores requests before they take effect."""

    def write(self, at: float, request: Request) -> None:
        """Raise OSError if the entry can't be stored."""
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
        #: hosts changed since `wait_for_changed_hosts` last returned
        self._changed_hosts: set[str] = set()
        self._news = asyncio.Event()
        self._lines = 0  #: of the log, at the last check
        self._written = asyncio.Event()

    def current_time(self) -> float:
        """Return the clock's time; never goes backwards."""
        self._now = max(self._now, self._clock.now())
        return self._now

    def handle_request(self, request: Request) -> Response:
        """Apply a request now and return the response."""
        now = self.current_time()
        # A due event may start a weather rule, which even a read can use up.
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
        """Return the wanted state of the host, or None if its node is deleted."""
        return host_reports.host_view(self.world, key)

    def host_views(self) -> dict[str, HostView]:
        return host_reports.host_views(self.world)

    def metadata_tree(self, key: str) -> dict[str, Any]:
        """Return the host's tree under /computeMetadata/v1/."""
        self._advance_world()
        return metadata_tree(self.world, key, self._now)

    def login_keys(self, key: str) -> Mapping[str, tuple[str, ...]]:
        """Return the public keys that may log in, by user."""
        return host_reports.login_keys(self.world, key)

    async def wait_for_change(self, key: str) -> None:
        """Wait until the view or the metadata of the host changes."""
        await self._changes.setdefault(key, asyncio.Event()).wait()

    async def wait_for_changed_hosts(self) -> set[str]:
        """Wait for changes; return the keys of all hosts changed since the previous call."""
        await self._news.wait()
        self._news.clear()
        keys, self._changed_hosts = self._changed_hosts, set()
        return keys

    async def wait_for_log_lines(self, lines: int) -> None:
        """Wait until the log has more lines than this."""
        while log_length(self.world) <= lines:
            await self._written.wait()

    async def run(self) -> None:
        """Apply events when they are due, forever."""
        while True:
            due = self._advance_world()
            self._wakes_at = math.inf if due is None else due
            async with asyncio.TaskGroup() as group:
                self._nap = group.create_task(self._sleep_until_due(due))
            self._nap = None

    async def _sleep_until_due(self, due: float | None) -> None:
        """Sleep until an event is due; a request that schedules an earlier one wakes this up."""
        if due is None:
            await asyncio.Event().wait()
        else:
            await self._clock.sleep(min(max(due - self.current_time(), NAP_S_MIN), NAP_S_MAX))

    def _advance_world(self) -> float | None:
        model.advance_world(self.world, self.current_time())
        return self._notify_waiters()

    def _notify_waiters(self) -> float | None:
        """Wake up those who wait for a change; return the time of the next event."""
        keys = self.world.touched
        if keys:
            self._changed_hosts |= keys
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
    """Whether the request may change the world.

    Reads don't, unless a weather rule is in force, which they may use up.
    """
    if request.method != "GET":
        return True
    return bool(world.weather.rules) and not request.path.startswith("/sim/")


def journal_full_response(error: OSError) -> Response:
    """Return the response when the journal can't be written."""
    message = (
        f"Can't write the world's journal ({error.strerror}); nothing was done. Free disk space."
    )
    content = {"error": {"code": 503, "message": message, "status": "UNAVAILABLE"}}
    return Response(status=503, body=json.dumps(content).encode())
