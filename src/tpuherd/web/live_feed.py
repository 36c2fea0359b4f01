"""One view of the store for all open pages: looks for changes, and sends them to each page.

A thread of its own reads the store, so that the event loop never waits for a disk. What changed is
encoded once for all pages. A page that reads too slowly gets `reset` instead of more and more
waiting messages, and fetches everything again. `seq` numbers the states of the view; a page that
comes back says which it knows, and gets what has changed since.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from tpuherd.clock import Clock
from tpuherd.errors import HerdError
from tpuherd.jobs.live_view import Changes, LiveView, join_changes
from tpuherd.store.database import Database
from tpuherd.store.sample_store import SampleStore
from tpuherd.views.job_rows import Json
from tpuherd.web.json_answers import StoreUnavailable, encode_json

LOOK_S = 0.1  #: between two looks at the store while a page is open
IDLE_S = 1.0  #: the same without a page, and after a failure
SHARE = 10  #: a look may take this part of the time
JOURNAL_MAX = 300  #: changes that are remembered for pages that come back
WAITING_MAX = 8 << 20  #: bytes that wait for one slow page
KEEPALIVE_S = 15.0
KEEPALIVE = b": still here\n\n"
RESET = b"event: reset\ndata: {}\n\n"

T = TypeVar("T")


class PageSubscription:
    """What waits to be sent to one page."""

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._news = asyncio.Event()
        self.closed = False  #: the page is gone

    def put(self, message: bytes) -> None:
        """Add a message; if too much waits, all of it becomes a reset."""
        if self._size + len(message) > WAITING_MAX:
            self._waiting.clear()
            self._size, message = 0, RESET
        self._waiting.append(message)
        self._size += len(message)
        self._news.set()

    async def read(self) -> bytes:
        """Return what waits; a comment if nothing comes for a while."""
        try:
            async with asyncio.timeout(KEEPALIVE_S):
                await self._news.wait()
        except TimeoutError:
            return KEEPALIVE
        self._news.clear()
        found = b"".join(self._waiting)
        self._waiting.clear()
        self._size = 0
        return found


class LiveFeed:
    """Keeps the view current while it runs, and answers what pages ask of it."""

    def __init__(self, open_store: Callable[[], Database], clock: Clock) -> None:
        self._open_store = open_store
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="herd-ui-store")
        self._loop = asyncio.get_running_loop()
        self._subscriptions: set[PageSubscription] = set()
        self._arrived = asyncio.Event()
        # From here on only the thread's:
        self._store: Database | None = None
        self._view: LiveView | None = None
        self._seq = int(clock.now() * 1000)  #: larger than any of an earlier process
        self._journal: deque[tuple[int, Changes]] = deque(maxlen=JOURNAL_MAX)
        self._since = self._seq  #: the state before the first change in the journal

    async def run(self) -> None:
        """Look for changes until cancelled."""
        try:
            while True:
                before = self._clock.now()
                pause = LOOK_S if self._subscriptions else IDLE_S
                try:
                    await self._in_thread(self._look)
                except StoreUnavailable:
                    pause = IDLE_S
                took = max(0.0, self._clock.now() - before)
                await self._rest(min(IDLE_S, max(pause, took * SHARE)))
        finally:
            await asyncio.shield(self._in_thread(self._close_store))
            self._thread.shutdown(wait=False, cancel_futures=True)

    @property
    def open_pages(self) -> int:
        return len(self._subscriptions)

    async def read_overview(self) -> tuple[int, Json]:
        """Return the number of the state, and all of it."""
        return await self._in_thread(self._read_overview)

    async def read_job_page(self, name: str) -> Json:
        """Return the page of a job."""
        return await self._in_thread(lambda: self._current_view().build_job_page(name))

    async def read_metrics(self) -> str:
        """Return what Prometheus is told."""
        return await self._in_thread(lambda: self._current_view().build_metrics())

    @contextmanager
    def subscribe(self, after: int | None) -> Iterator[PageSubscription]:
        """Receive all changes after a state; None: those from now on."""
        found = PageSubscription()
        joining = self._loop.run_in_executor(self._thread, self._join, found, after)
        joining.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            yield found
        finally:
            found.closed = True  # it may still be joining
            self._subscriptions.discard(found)
            joining.cancel()

    async def _rest(self, seconds: float) -> None:
        """Wait, but not longer than until a first page is opened."""
        if self._subscriptions:
            await self._clock.sleep(seconds)
            return
        self._arrived.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._arrived.wait()
        except TimeoutError:
            pass

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(self._thread, work)

    # ---- in the thread -------------------------------------------------------------------------

    def _current_view(self) -> LiveView:
        """Return the view after a look at the store; StoreUnavailable if it can't be read."""
        try:
            if self._view is None:
                self._store = self._open_store()
                self._view = LiveView(self._store, SampleStore(self._store.folder), self._clock)
                self._view.refresh()
                self._restart()
            else:
                self._tell_changes(self._view, self._view.refresh())
        except HerdError as error:
            self._close_store()
            raise StoreUnavailable(error.sentence, hint=error.hint) from error
        return self._view

    def _look(self) -> None:
        self._current_view()

    def _read_overview(self) -> tuple[int, Json]:
        view = self._current_view()
        return self._seq, view.build_overview()

    def _restart(self) -> None:
        """Begin a new journal: whatever pages know may be wrong."""
        self._seq = self._since = self._seq + 1
        self._journal.clear()
        self._send(RESET)

    def _tell_changes(self, view: LiveView, changes: Changes) -> None:
        if not changes:
            return
        self._seq += 1
        if len(self._journal) == JOURNAL_MAX:
            self._since = self._journal[0][0]
        self._journal.append((self._seq, changes))
        if self._subscriptions:
            self._send(self._encode_changes(view, changes))

    def _join(self, page: PageSubscription, after: int | None) -> None:
        """Send a page what it missed, and from now on what changes."""
        try:
            view = self._current_view()
        except StoreUnavailable:
            message = RESET
        else:
            after = self._seq if after is None else after
            if not self._since <= after <= self._seq:
                message = RESET
            else:
                missed = join_changes(one for seq, one in self._journal if seq > after)
                message = self._encode_changes(view, missed)
        self._loop.call_soon_threadsafe(self._admit, page, message)

    def _encode_changes(self, view: LiveView, changes: Changes) -> bytes:
        """Return the messages for a change; b"" for none."""
        found: list[tuple[str, object]] = []
        if changes.skipped_events:
            return RESET
        if changes.has_rows:
            found.append(("changes", {**view.change_rows(changes), "seq": self._seq}))
        if changes.events:
            found.append(("events", list(changes.events)))
        if changes.hosts:
            hosts = view.host_rows(changes.hosts)
            found.append(("samples", {"now": self._clock.now(), "hosts": hosts}))
        return b"".join(encode_message(name, content, self._seq) for name, content in found)

    def _send(self, message: bytes) -> None:
        self._loop.call_soon_threadsafe(self._publish, message)

    def _close_store(self) -> None:
        """Let go of the store, so that another process may repair it; pages begin again."""
        store, self._store = self._store, None
        if self._view is not None:
            self._view = None
            self._restart()
        if store is not None:
            store.close()

    # ---- in the loop ---------------------------------------------------------------------------

    def _admit(self, page: PageSubscription, message: bytes) -> None:
        if page.closed:
            return
        self._subscriptions.add(page)
        self._arrived.set()
        if message:
            page.put(message)

    def _publish(self, message: bytes) -> None:
        for page in self._subscriptions:
            page.put(message)


def encode_message(name: str, content: object, id: int) -> bytes:
    """One server-sent event; JSON has no line feeds."""
    return b"event: %s\nid: %d\ndata: %s\n\n" % (name.encode(), id, encode_json(content))
