"""Fetches outputs and the rest of the logs from the hosts of a gang."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tpuherd.clock import Clock
from tpuherd.engine.environments import GangCalls
from tpuherd.engine.host_failures import HostFailure
from tpuherd.engine.host_watcher import HostWatcher, has_ended
from tpuherd.model.node_spec import LaunchSpec
from tpuherd.ports import FetchedFiles

DRAIN_S = 120.0  #: for the rest of a log, before a node is deleted
LOOK_S = 0.2


async def fetch_outputs(
    gang: GangCalls,
    watches: Sequence[HostWatcher],
    order: LaunchSpec | None,
    into: Path,
    within_s: float | None,
) -> tuple[FetchedFiles, list[HostFailure]]:
    """Return what came, by its path in `into`, and what failed. With a time, the last lines of the
    logs come first: they say most."""
    paths = [f"{order.directory or '.'}/{path}" for path in order.outputs] if order else []
    total, hosts, clock = FetchedFiles(), gang.means.hosts, gang.means.clock
    until = None if within_s is None else clock.now() + within_s

    async def fetch(watch: HostWatcher) -> None:
        if watch.link is None:
            return
        name = f"{watch.host.node}.w{watch.host.worker}"
        if until is None:
            add_files(total, await hosts.fetch_files(paths, watch.link, into / name), name)
            await drain_log(watch, clock, DRAIN_S)
            return
        with suppress(TimeoutError):
            await drain_log(watch, clock, (until - clock.now()) / 2)
        left_s = until - clock.now()
        add_files(total, await hosts.fetch_files(paths, watch.link, into / name, left_s), name)

    found = await gang.run_on_all(watches, fetch)
    return total, [one for one in found if isinstance(one, HostFailure)]


async def drain_log(watch: HostWatcher, clock: Clock, within_s: float) -> None:
    """Wait until the rest of the log is here; TimeoutError if it does not come in time."""
    until = clock.now() + within_s
    while any(has_ended(work) and not work.drained for work in watch.status.works):
        if clock.now() >= until:
            raise TimeoutError
        await clock.sleep(LOOK_S)


def add_files(total: FetchedFiles, found: FetchedFiles, folder: str) -> None:
    """Add what came of one host, with the folder in which it is here."""
    total.bytes += found.bytes
    total.came += [f"{folder}/{path}" for path in found.came]
    total.cut_off += [f"{folder}/{path}" for path in found.cut_off]
