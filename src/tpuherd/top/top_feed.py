"""Reads the store, samples and logs for the screen, in one thread of its own."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tpuherd.clock import Clock
from tpuherd.commands.find_logs import LogQuery, find_logs, submission_times
from tpuherd.commands.log_pages import PageLine, read_log_page
from tpuherd.errors import HerdError
from tpuherd.jobs.live_view import LiveView
from tpuherd.settings.project_access import ProjectScope
from tpuherd.store.database import Database
from tpuherd.store.log_store import COMMAND, LogStore
from tpuherd.store.open_database import open_database
from tpuherd.store.sample_store import SampleStore
from tpuherd.top.detail_lines import JobDetail
from tpuherd.top.tree_rows import Json
from tpuherd.views.overview_rows import overview_event_row

EVENTS = 200
LINES = 300
SERIES_S = 3600.0
POINTS = 120

T = TypeVar("T")


class TopFeed:
    """What the screen asks for. Its methods raise HerdError if the store can't be read now."""

    def __init__(self, scope: ProjectScope, clock: Clock) -> None:
        self._scope = scope
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="herd-top-store")
        # Only the thread's:
        self._store: Database | None = None
        self._view: LiveView | None = None
        self._samples = SampleStore(scope.store_folder)

    async def read_changes(self) -> Json | None:
        """Return all rows if something has changed since the last call."""
        return await self._in_thread(self._look)

    async def read_job(self, job: str, slot: str) -> JobDetail:
        """Return the page of a job, its latest events, and what a slot's script reports."""
        return await self._in_thread(lambda: self._read_job(job, slot))

    async def read_logs(self, target: str) -> list[PageLine]:
        """Return the last lines of a job, slot or host."""
        return await self._in_thread(lambda: self._read_logs(target))

    async def close(self) -> None:
        await self._in_thread(self._close_store)
        self._thread.shutdown(wait=False)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # ---- in the thread -------------------------------------------------------------------------

    def _look(self) -> Json | None:
        try:
            if self._view is None:
                self._store = open_database(self._scope, self._clock.now())
                self._view = LiveView(self._store, self._samples, self._clock)
                self._view.refresh()
                return self._view.build_overview()
            return self._view.build_overview() if self._view.refresh() else None
        except HerdError:
            self._close_store()
            raise

    def _read_job(self, job: str, slot: str) -> JobDetail:
        view, store = self._view, self._store
        assert view is not None and store is not None
        page, now = view.build_job_page(job), self._clock.now()
        recent = store.read_events(job=job, limit=EVENTS, newest=True)
        events = [overview_event_row(seq, event) for seq, event in recent]
        series = self._samples.read_series(
            job, since=now - SERIES_S, until=now, points=POINTS, of=slot
        )
        told = [one for one in series if not one.name.host]
        return JobDetail(page=page, events=events, series=told)

    def _read_logs(self, target: str) -> list[PageLine]:
        shelf = LogStore(self._scope.logs_folder)
        begun = submission_times(target, self._scope, self._clock.now())
        logs = find_logs(LogQuery(target=target), shelf, begun)
        attempts = [log for log in logs if log.about.kind != COMMAND]
        return list(read_log_page(attempts, shelf, LINES, None).lines)

    def _close_store(self) -> None:
        self._view = None
        if self._store is not None:
            self._store.close()
            self._store = None
