"""Ships a folder to hosts, or makes it a job's next code: `herd sync` for Python."""

import asyncio
from functools import partial
from pathlib import Path

from tpuherd.commands.command_types import confirm_foreign_hosts, resolve_hosts
from tpuherd.jobs.change_code import change_code
from tpuherd.jobs.open_project import Session
from tpuherd.jobs.upload_consent import ask_upload_consent
from tpuherd.remote.resolve_hosts import RemoteSession
from tpuherd.sync.ship import Shipment, ShipOptions, ship
from tpuherd.sync.snapshot_store import open_archive
from tpuherd.sync.take_snapshot import snapshot_folder


async def ship_folder(
    path: Path, target: str, dest: str, here: Session, reach: RemoteSession
) -> Shipment:
    """Ship to all hosts of a target, or to none."""
    hosts = await resolve_hosts(target, here.place, reach)
    await confirm_foreign_hosts(hosts, here.prompter)
    archive = open_archive(here.place.folders.state)
    taking = partial(snapshot_folder, path, archive, here.prompter.environ)
    snapshot = await ask_upload_consent(
        await asyncio.to_thread(taking), taking, archive, here.prompter
    )
    assert snapshot is not None, "a caller never declines: it raises"
    links = await asyncio.gather(*map(reach.pool.get_link, hosts))
    options = ShipOptions(in_code=True)
    return await ship(snapshot, dest, links, archive=archive, options=options)


async def change_job_code(path: Path, job: str, here: Session) -> Shipment:
    """Make a folder the job's code, or that part of it, from its next attempt on."""
    made = await change_code(
        job,
        lambda archive: snapshot_folder(path, archive, here.prompter.environ),
        path,
        here,
        hint=f"for a node, pass dest=…: {job}",
    )
    assert made is not None, "a caller never declines: it raises"
    return Shipment(
        id=made.snapshot, dest="", got=(), unchanged=(), failed={}, unsure=(), slow={}, kept={},
        bytes_up=0, seconds=0.0,
    )  # fmt: skip
