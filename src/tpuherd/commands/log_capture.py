"""Keeps what commands say, so that it can be read when their hosts are gone."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from tpuherd.clock import Clock
from tpuherd.commands.command_types import log_place
from tpuherd.ports import Host
from tpuherd.settings.project_access import ProjectAccess
from tpuherd.store.log_store import LogInfo, LogStore, LogWriter
from tpuherd_host.agent.log_records import Record

DAY_S = 86400.0
FLUSH_S = 0.5  #: and what takes longer is written down though it said nothing yet


class LogCapture:
    """The writers of one command. What says nothing and ends at once leaves no trace."""

    def __init__(self, shelf: LogStore | None, about: LogInfo, clock: Clock) -> None:
        self._shelf = shelf
        self._about = about
        self._clock = clock
        self._writers: dict[Host, LogWriter] = {}
        self._noted = False
        self.lost = False  #: something that was said could not be kept

    async def flush_regularly(self) -> None:
        """Note it when it takes long, and flush now and then."""
        while True:
            await self._clock.sleep(FLUSH_S)
            self.record_start()
            self.flush()

    def record_start(self) -> None:
        """Write down that there is such a command, by which it is found again."""
        if self._noted or self._shelf is None:
            return
        self._noted = True
        try:
            self._shelf.write_info(self._about)
            prune_logs_daily(self._shelf, self._about.started)
        except OSError:
            self._shelf = None  # a full disk, or one that may not be written: nothing is kept
            self.lost = True

    def put(self, host: Host, offset: int, record: Record) -> None:
        """A record of a host's log."""
        self.record_start()
        if self._shelf is None:
            return
        writer = self._writers.get(host)
        if writer is None:
            writer = self._writers[host] = self._shelf.open_writer(self._about.id, log_place(host))
        writer.put(offset, record)

    def flush(self) -> None:
        """To the disk's care."""
        for writer in self._writers.values():
            writer.flush()

    def close(self, host: Host) -> None:
        """It says nothing more."""
        writer = self._writers.pop(host, None)
        if writer is not None:
            writer.close()
            self.lost = self.lost or writer.lost

    def record_end(self, status: int | None) -> None:
        """All is over, with this exit status; None: it goes on without us."""
        for host in list(self._writers):
            self.close(host)
        if self._noted and self._shelf is not None and status is not None:
            about = replace(self._about, ended=self._clock.now(), status=status)
            try:
                self._shelf.write_info(about)
            except OSError:
                pass  # it was noted; how it ended was not


@cache
def prune_times(folder: Path) -> set[float]:
    """When this process last tidied a folder of logs."""
    del folder
    return set()


def prune_logs_daily(shelf: LogStore, now: float) -> None:
    """Forget logs of long ago, once a day, in a thread."""
    times = prune_times(shelf.folder)
    if not times or max(times) < now - DAY_S:
        times.add(now)
        asyncio.get_running_loop().run_in_executor(None, shelf.prune_commands, now)


async def cancel_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """End what only accompanied something."""
    waiting = list(tasks)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


def open_log_store(place: ProjectAccess) -> LogStore:
    """Where this place's logs are kept."""
    return LogStore(place.logs_folder)
