"""Ships a snapshot once over the user's uplink; all hosts receive it before any switches to it."""

import asyncio
from collections.abc import Sequence

from tpuherd.errors import InvalidInput, NotFound
from tpuherd.ports import Link, host_labels
from tpuherd.sync.shipment import (
    DEFAULT_OPTIONS,
    Payload,
    Progress,
    ProgressCallback,
    Shipment,
    ShipOptions,
)
from tpuherd.sync.snapshot_store import Archive
from tpuherd.sync.take_snapshot import Snapshot, load_snapshot
from tpuherd.sync.transfer import Transfer

__all__ = [
    "DEFAULT_OPTIONS",
    "Payload",
    "Progress",
    "ProgressCallback",
    "ShipOptions",
    "Shipment",
    "deliver_payload",
    "links_by_label",
    "ship",
    "ship_stored",
]


async def ship(
    snapshot: Snapshot,
    dest: str,
    links: Sequence[Link],
    *,
    archive: Archive,
    report: ProgressCallback = lambda progress: None,
    options: ShipOptions = DEFAULT_OPTIONS,
) -> Shipment:
    """Ship a snapshot to all hosts. If one host can't receive it, none switches."""
    if not links:
        raise InvalidInput("no host to ship to")
    blobs = archive.blobs
    with blobs.shared_lock():
        payload = Payload(
            id=snapshot.id,
            rows=snapshot.rows,
            pieces=blobs.read_pieces,
            rows_of=archive.load_rows,
        )
        return await deliver_payload(payload, dest, links, report=report, options=options)


async def ship_stored(id: str, dest: str, links: Sequence[Link], *, archive: Archive) -> Shipment:
    """Ship a snapshot from the archive; NotFound if it is no longer there. Repeating this is cheap,
    as hosts that have it say so."""
    snapshot = await asyncio.to_thread(load_snapshot, id, archive)
    if snapshot is None:
        raise NotFound(
            f"the snapshot {id[:12]} is no longer on this machine", hint="take a new one: herd sync"
        )
    return await ship(snapshot, dest, links, archive=archive)


def links_by_label(links: Sequence[Link]) -> dict[str, Link]:
    """The links by their hosts' labels, such as gpt/w0."""
    return dict(zip(host_labels([link.host for link in links]), links, strict=True))


async def deliver_payload(
    payload: Payload,
    dest: str,
    links: Sequence[Link],
    *,
    report: ProgressCallback,
    options: ShipOptions,
) -> Shipment:
    """Ship a snapshot or a copy: fill all hosts, then switch them, or abandon it on all."""
    begun = asyncio.get_running_loop().time()
    transfer = Transfer(payload, dest, links_by_label(links), report, options)
    try:
        await transfer.fill_hosts()
        if transfer.failed and not options.partial:
            await transfer.abandon_all()
        else:
            await transfer.switch_hosts()
    except BaseException:
        await asyncio.shield(transfer.abandon_all())
        raise
    return Shipment(
        id=payload.id,
        dest=dest,
        got=tuple(n for n in transfer.links if n in transfer.switched or n in transfer.unchanged),
        unchanged=tuple(sorted(transfer.unchanged)),
        failed=transfer.failed,
        unsure=tuple(sorted(transfer.unsure)),
        slow={
            name: reason for name, reason in transfer.slow.items() if name not in transfer.failed
        },
        kept=transfer.kept,
        only_home=tuple(n for n, have in transfer.haves.items() if have.get("only_home")),
        bytes_up=transfer.sent,
        seconds=asyncio.get_running_loop().time() - begun,
    )
