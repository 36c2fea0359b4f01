"""Keeps running hosts and their SSH addresses in line with the model."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial

from tpuherd_sim.host_options import PROCESSES, HostEnvironment, HostOptions, HostSetup
from tpuherd_sim.host_services.all_services import ServiceSettings, run_host_services
from tpuherd_sim.host_services.packages import PackageSources
from tpuherd_sim.hosts.host_pool import HostPool, PoolSettings
from tpuherd_sim.hosts.machine_users import REACHABLE, find_other_people
from tpuherd_sim.http.object_contents import OBJECTS, ObjectContents
from tpuherd_sim.model.host_view import HostView
from tpuherd_sim.ssh.ssh_server import SshServer
from tpuherd_sim.state_dir import WorldError

NAMED_MAX = 3  #: of the other users


@contextlib.asynccontextmanager
async def run_hosts(
    packages: PackageSources, options: HostOptions, site: HostEnvironment
) -> AsyncIterator[HostSetup]:
    """Run hosts as the model wants them until the context ends; then end all."""
    keys = site.folder / "host_keys"
    shared = ServiceSettings(
        keys_folder=keys,
        internet=options.internet,
        packages=packages,
        contents=ObjectContents(site.live_world, site.folder / OBJECTS),
        admit=lambda end: pool.mode != PROCESSES or not site.guard.refusal_reason(end),
    )
    mode = PROCESSES if options.hosts == PROCESSES else None
    make = PoolSettings(
        offers=options.offers, mode=mode, services=partial(run_host_services, settings=shared)
    )
    pool = HostPool(site.live_world, site.folder / "hosts", make)
    try:
        await pool.start()
    except OSError as error:
        raise WorldError(f"Can't run hosts here ({error}); `--hosts none` works without") from error
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(pool.close)
        if options.hosts == "namespaces" and pool.mode == PROCESSES:
            why = "; ".join(pool.missing)
            raise WorldError(
                f"Namespaces are not available ({why}); `--hosts processes` works without them"
            )
        if pool.mode == PROCESSES and os.getuid() != 0:
            check_other_users(options, pool.missing, find_other_people())
            pool.note_problem(REACHABLE)
        ssh_server = SshServer(site.live_world, site.ssh_port, pool.hosts.get, keys)
        stack.push_async_callback(ssh_server.close)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        reconciler = group.create_task(reconcile_hosts(site, pool, ssh_server))
        yield HostSetup(mode=pool.mode, missing=pool.missing)
        reconciler.cancel()


def check_other_users(options: HostOptions, missing: Sequence[str], people: Sequence[str]) -> None:
    """Refuse process hosts on a shared machine unless the user asked for them."""
    if options.hosts != PROCESSES and people:
        named = ", ".join(people[:NAMED_MAX])
        raise WorldError(
            f"Can't isolate hosts here ({'; '.join(missing)}), and others use this machine "
            f"({named}): {REACHABLE}. To accept that use `--hosts processes`; `--hosts none` "
            "runs no hosts"
        )


async def reconcile_hosts(site: HostEnvironment, pool: HostPool, ssh_server: SshServer) -> None:
    """Update hosts and addresses whenever they change."""

    async def apply_to_hosts(views: Mapping[str, HostView | None]) -> None:
        """Apply views; booting takes a while, so each call runs in its own task."""
        try:
            await pool.apply_views(views)
        except OSError as error:
            site.tell(f"could not update a host ({error.strerror or error})")

    async with asyncio.TaskGroup() as group:
        keys = set(site.live_world.host_views())
        while True:
            views = {key: site.live_world.host_view(key) for key in keys}
            group.create_task(apply_to_hosts(views))
            try:
                await ssh_server.apply_views(views)
            except OSError as error:
                site.tell(str(error))
            keys = await site.live_world.wait_for_changed_hosts()
