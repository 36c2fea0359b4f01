"""Keeps the running hosts and their SSH addresses as the model wishes them."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from functools import partial

from tpuherd_sim.host_options import PROCESSES, Lodging, Site, Wish
from tpuherd_sim.host_services.all_services import Surroundings, services
from tpuherd_sim.host_services.packages import Packages
from tpuherd_sim.hosts.host_pool import Make, Rack
from tpuherd_sim.hosts.machine_users import REACHABLE, find_other_people
from tpuherd_sim.http.gcs_objects import OBJECTS
from tpuherd_sim.ssh.ssh_server import Door
from tpuherd_sim.state_dir import Trouble

NAMED_MAX = 3  #: of the people who share a machine


@contextlib.asynccontextmanager
async def lodged(packages: Packages, wish: Wish, site: Site) -> AsyncIterator[Lodging]:
    """Boot what is to run, end what is not, until the context does; then end all."""
    keys = site.folder / "host_keys"
    around = Surroundings(
        keys_folder=keys,
        internet=wish.internet,
        packages=packages,
        objects=site.folder / OBJECTS,
        admit=lambda end: rack.mode != PROCESSES or not site.doorkeeper.admit(end),
    )
    mode = PROCESSES if wish.hosts == PROCESSES else None
    make = Make(offer=wish.offer, mode=mode, services=partial(services, around=around))
    rack = Rack(site.desk, site.folder / "hosts", make)
    try:
        await rack.start()
    except OSError as error:
        raise Trouble(f"Hosts can't run here ({error}): `--hosts none` does without") from error
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(rack.close)
        if wish.hosts == "namespaces" and rack.mode == PROCESSES:
            why = "; ".join(rack.missing)
            raise Trouble(f"Namespaces can't be had ({why}): `--hosts processes` does without them")
        if rack.mode == PROCESSES and os.getuid() != 0:
            check_neighbours(wish, rack.missing, find_other_people())
            rack.note(REACHABLE)
        door = Door(site.desk, site.ssh_port, rack.hosts.get, keys)
        stack.push_async_callback(door.close)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        keeper = group.create_task(keep(site, rack, door))
        yield Lodging(mode=rack.mode, missing=rack.missing)
        keeper.cancel()


def check_neighbours(wish: Wish, missing: Sequence[str], people: Sequence[str]) -> None:
    """Where others use the machine, hosts that are processes of ours are only had if asked for."""
    if wish.hosts != PROCESSES and people:
        named = ", ".join(people[:NAMED_MAX])
        raise Trouble(
            f"Hosts can't be isolated here ({'; '.join(missing)}), and others use this machine "
            f"({named}): {REACHABLE}. `--hosts processes` takes them so, `--hosts none` does "
            "without"
        )


async def keep(site: Site, rack: Rack, door: Door) -> None:
    """Bring hosts and addresses in line whenever something of them changes."""

    async def match(keys: set[str]) -> None:
        """Booting takes its time; nobody else waits for it."""
        try:
            await rack.match({key: site.desk.view(key) for key in keys})
        except OSError as error:
            site.tell(f"a host did not do as it should ({error.strerror or error})")

    async with asyncio.TaskGroup() as group:
        keys = set(site.desk.views())
        while True:
            group.create_task(match(keys))
            try:
                await door.match({key: site.desk.view(key) for key in keys})
            except OSError as error:
                site.tell(str(error))
            keys = await site.desk.touched()
