"""Stores the output of commands, so that it can be read after their hosts are gone."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from tpuherd.clock import Clock
from tpuherd.ports import Host
from tpuherd.settings.project_access import ProjectAccess
from tpuherd.store.log_store import LogInfo, LogStore, LogWriter, log_host
from tpuherd_host.agent.log_records import Record

DAY_S = 86400.0
FLUSH_S = 0.5  #: also the age at which a silent command is recorded


class LogCapture:
    """The log writers of one command. A quick command without output is not recorded."""

    def __init__(self, shelf: LogStore | None, about: LogInfo, clock: Clock) -> None:
        self._shelf = shelf
        self._about = about
        self._clock = clock
        self._writers: dict[Host, LogWriter] = {}
        self._noted = False
        self.lost = False  #: some output could not be stored

    async def flush_regularly(self) -> None:
        """Record a command that takes long, and flush regularly."""
        while True:
            await self._clock.sleep(FLUSH_S)
            self.record_start()
            self.flush()

    def record_start(self) -> None:
        """Record that the command exists, so that it can be found again."""
        if self._noted or self._shelf is None:
            return
        self._noted = True
        try:
            self._shelf.write_info(self._about)
            prune_logs_daily(self._shelf, self._about.started)
        except OSError:
            self._shelf = None  # a full or read-only disk: nothing is stored
            self.lost = True

    def put(self, host: Host, offset: int, record: Record) -> None:
        self.record_start()
        if self._shelf is None:
            return
        writer = self._writers.get(host)
        if writer is None:
            writer = self._writers[host] = self._shelf.open_writer(self._about.id, log_host(host))
        writer.put(offset, record)

    def flush(self) -> None:
        for writer in self._writers.values():
            writer.flush()

    def close(self, host: Host) -> None:
        """Close the log of one host."""
        writer = self._writers.pop(host, None)
        if writer is not None:
            writer.close()
            self.lost = self.lost or writer.lost

    def record_end(self, status: int | None) -> None:
        """Record the end and its exit status; None: it keeps running without us."""
        for host in list(self._writers):
            self.close(host)
        if self._noted and self._shelf is not None and status is not None:
            about = replace(self._about, ended=self._clock.now(), status=status)
            try:
                self._shelf.write_info(about)
            except OSError:
                pass  # it is recorded without its end


@cache
def prune_times(folder: Path) -> set[float]:
    """Return when this process last pruned a folder of logs."""
    del folder
    return set()


def prune_logs_daily(shelf: LogStore, now: float) -> None:
    """Prune old logs, at most once a day, in a thread."""
    times = prune_times(shelf.folder)
    if not times or max(times) < now - DAY_S:
        times.add(now)
        asyncio.get_running_loop().run_in_executor(None, shelf.prune_commands, now)


async def cancel_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they have ended."""
    waiting = list(tasks)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


def open_log_store(place: ProjectAccess) -> LogStore:
    return LogStore(place.logs_folder)
