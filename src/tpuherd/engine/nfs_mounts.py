"""Mounts a job's NFS folders on the hosts of a gang, before its setup.

The agents keep each mount over a reboot; a node's reboot or replacement prepares it anew, and what
is mounted and answers is left alone.
"""

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from tpuherd.engine.agent_call import call_agent
from tpuherd.engine.host_failures import HostFailure
from tpuherd.engine.host_watcher import HostWatcher
from tpuherd.jobfile.nfs_folders import WORKER_0

MOUNT_S = 900.0  #: with the installation of a package; the agent's own limits are shorter
VERSION = "4.2"  #: what our own servers speak; with others, both sides choose


class RunOnAll(Protocol):
    """How the hosts of a gang are reached: a GangClient."""

    async def run_on_all(
        self,
        watches: Collection[HostWatcher],
        work: Callable[[HostWatcher], Coroutine[Any, Any, Any]],
    ) -> list[Any]: ...


async def mount_nfs_folders(
    gang: RunOnAll, watches: Sequence[HostWatcher], folders: Mapping[str, str]
) -> list[HostFailure]:
    """Mount every folder on every host; return the failures by host."""
    for folder, server in folders.items():
        failures = await mount_nfs_folder(gang, watches, folder, server)
        if failures:
            return failures
    return []


async def mount_nfs_folder(
    gang: RunOnAll, watches: Sequence[HostWatcher], folder: str, server: str
) -> list[HostFailure]:
    """Export it first, if worker 0 serves it; then mount it on the others."""
    clients, asked = watches, {"folder": folder, "source": server}
    if server == WORKER_0:
        first, clients = watches[0], watches[1:]
        addresses = [one.host.internal_ip for one in clients]
        asked = {"folder": folder, "source": f"{first.host.internal_ip}:{folder}",
                 "version": VERSION}  # fmt: skip

        async def export(watch: HostWatcher) -> None:
            wanted = {"folder": folder, "clients": addresses}
            await call_agent(watch, "nfs.export", wanted, MOUNT_S)

        found = await gang.run_on_all([first], export)
        if any(isinstance(one, HostFailure) for one in found):
            return found

    async def mount_on_host(watch: HostWatcher) -> None:
        await call_agent(watch, "nfs.mount", asked, MOUNT_S)

    found = await gang.run_on_all(clients, mount_on_host)
    return [one for one in found if isinstance(one, HostFailure)]
