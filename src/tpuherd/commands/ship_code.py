"""Ships a folder to hosts, or makes it a job's next code: `herd sync`, for programs."""

import asyncio
from functools import partial
from pathlib import Path

from tpuherd.commands.command_types import confirm_foreign_hosts, hosts_of
from tpuherd.jobs.open_project import Desk
from tpuherd.jobs.update_code import recoded
from tpuherd.jobs.upload_consent import consented
from tpuherd.remote.resolve_hosts import Reach
from tpuherd.sync.ship import Shipment, ship
from tpuherd.sync.snapshot_store import archived
from tpuherd.sync.take_snapshot import take


async def ship_folder(path: Path, target: str, dest: str, here: Desk, reach: Reach) -> Shipment:
    """To all hosts of a target or to none."""
    hosts = await hosts_of(target, here.place, reach)
    await confirm_foreign_hosts(hosts, here.talk)
    archive = archived(here.place.folders.state)
    taking = partial(take, path, archive, here.talk.environ)
    snapshot = await consented(await asyncio.to_thread(taking), taking, archive, here.talk)
    assert snapshot is not None, "a caller never says no: it raises"
    links = await asyncio.gather(*map(reach.ways.link, hosts))
    return await ship(snapshot, dest, links, archive=archive)


async def change_code(path: Path, job: str, here: Desk) -> Shipment:
    """The folder is the job's code from its next attempt on; no host has it yet."""
    wish = here.wish(job, hint=f"a node wants a place: dest=… for {job}")
    archive = archived(here.place.folders.state)
    taking = partial(take, path, archive, here.talk.environ)
    snapshot = await consented(await asyncio.to_thread(taking), taking, archive, here.talk)
    assert snapshot is not None, "a caller never says no: it raises"
    recoded(wish, snapshot.id, archive, here)
    return Shipment(
        id=snapshot.id, dest="", got=(), unchanged=(), failed={}, unsure=(), slow={}, kept={},
        bytes_up=0, seconds=0.0,
    )  # fmt: skip
