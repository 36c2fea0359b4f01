"""Keeps running hosts and their SSH addresses in line with the model."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from functools import partial

from tpuherd_sim.host_options import PROCESSES, HostEnvironment, HostOptions, HostSetup
from tpuherd_sim.host_services.all_services import ServiceSettings, run_host_services
from tpuherd_sim.host_services.packages import PackageSources
from tpuherd_sim.hosts.host_pool import HostPool, PoolSettings
from tpuherd_sim.hosts.machine_users import REACHABLE, find_other_people
from tpuherd_sim.http.gcs_objects import OBJECTS
from tpuherd_sim.ssh.ssh_server import SshServer
from tpuherd_sim.state_dir import WorldError

NAMED_MAX = 3  #: of the other users


@contextlib.asynccontextmanager
async def run_hosts(
    packages: PackageSources, wish: HostOptions, site: HostEnvironment
) -> AsyncIterator[HostSetup]:
    """Run hosts as the model wants them until the context ends; then end all."""
    keys = site.folder / "host_keys"
    around = ServiceSettings(
        keys_folder=keys,
        internet=wish.internet,
        packages=packages,
        objects=site.folder / OBJECTS,
        admit=lambda end: rack.mode != PROCESSES or not site.doorkeeper.refusal_reason(end),
    )
    mode = PROCESSES if wish.hosts == PROCESSES else None
    make = PoolSettings(
        offer=wish.offer, mode=mode, services=partial(run_host_services, around=around)
    )
    rack = HostPool(site.desk, site.folder / "hosts", make)
    try:
        await rack.start()
    except OSError as error:
        raise WorldError(f"Can't run hosts here ({error}); `--hosts none` works without") from error
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(rack.close)
        if wish.hosts == "namespaces" and rack.mode == PROCESSES:
            why = "; ".join(rack.missing)
            raise WorldError(
                f"Namespaces are not available ({why}); `--hosts processes` works without them"
            )
        if rack.mode == PROCESSES and os.getuid() != 0:
            check_other_users(wish, rack.missing, find_other_people())
            rack.note_problem(REACHABLE)
        door = SshServer(site.desk, site.ssh_port, rack.hosts.get, keys)
        stack.push_async_callback(door.close)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        keeper = group.create_task(reconcile_hosts(site, rack, door))
        yield HostSetup(mode=rack.mode, missing=rack.missing)
        keeper.cancel()


def check_other_users(wish: HostOptions, missing: Sequence[str], people: Sequence[str]) -> None:
    """Refuse process hosts on a shared machine unless the user asked for them."""
    if wish.hosts != PROCESSES and people:
        named = ", ".join(people[:NAMED_MAX])
        raise WorldError(
            f"Can't isolate hosts here ({'; '.join(missing)}), and others use this machine "
            f"({named}): {REACHABLE}. To accept that use `--hosts processes`; `--hosts none` "
            "runs no hosts"
        )


async def reconcile_hosts(site: HostEnvironment, rack: HostPool, door: SshServer) -> None:
    """Update hosts and addresses whenever they change."""

    async def match(keys: set[str]) -> None:
        """Apply views; booting takes a while, so each call runs in its own task."""
        try:
            await rack.apply_views({key: site.desk.host_view(key) for key in keys})
        except OSError as error:
            site.tell(f"could not update a host ({error.strerror or error})")

    async with asyncio.TaskGroup() as group:
        keys = set(site.desk.host_views())
        while True:
            group.create_task(match(keys))
            try:
                await door.apply_views({key: site.desk.host_view(key) for key in keys})
            except OSError as error:
                site.tell(str(error))
            keys = await site.desk.wait_for_changed_hosts()
