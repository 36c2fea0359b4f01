"""Shipping a snapshot: once over the user's uplink, and all hosts filled before any switches."""

import asyncio
from collections.abc import Sequence

from tpuherd.errors import NotFound, Unfit
from tpuherd.ports import Link, host_labels
from tpuherd.sync.shipment import TERMS, Cargo, Progress, Report, Shipment, Terms
from tpuherd.sync.snapshot_store import Archive
from tpuherd.sync.take_snapshot import Snapshot, again
from tpuherd.sync.transfer import Voyage

__all__ = [
    "TERMS",
    "Cargo",
    "Progress",
    "Report",
    "Shipment",
    "Terms",
    "deliver",
    "labelled",
    "ship",
    "ship_id",
]


async def ship(
    snapshot: Snapshot,
    dest: str,
    links: Sequence[Link],
    *,
    archive: Archive,
    report: Report = lambda progress: None,
    terms: Terms = TERMS,
) -> Shipment:
    """A snapshot to a destination on all these hosts. If one can't be filled none switches."""
    if not links:
        raise Unfit("there is no host to ship to")
    blobs = archive.blobs
    with blobs.held():
        cargo = Cargo(
            id=snapshot.id,
            rows=snapshot.rows,
            pieces=blobs.pieces,
            rows_of=archive.rows,
            kept=blobs.__contains__,
        )
        return await deliver(cargo, dest, links, report=report, terms=terms)


async def ship_id(id: str, dest: str, links: Sequence[Link], *, archive: Archive) -> Shipment:
    """The same with one that was taken before, exactly as it was; NotFound if it is here no more.
    It may be asked as often as one likes: a host that has it says so."""
    snapshot = await asyncio.to_thread(again, id, archive)
    if snapshot is None:
        raise NotFound(f"the snapshot {id[:12]} is here no more", hint="take another: herd sync")
    return await ship(snapshot, dest, links, archive=archive)


def labelled(links: Sequence[Link]) -> dict[str, Link]:
    """By what users call their hosts."""
    return dict(zip(host_labels([link.host for link in links]), links, strict=True))


async def deliver(
    cargo: Cargo, dest: str, links: Sequence[Link], *, report: Report, terms: Terms
) -> Shipment:
    """The same for anything that can be shipped."""
    begun = asyncio.get_running_loop().time()
    voyage = Voyage(cargo, dest, labelled(links), report, terms)
    try:
        await voyage.fill()
        if voyage.failed and not terms.partial:
            await voyage.abandon()
        else:
            await voyage.switch()
    except BaseException:
        await asyncio.shield(voyage.abandon())
        raise
    return Shipment(
        id=cargo.id,
        dest=dest,
        got=tuple(n for n in voyage.links if n in voyage.switched or n in voyage.unchanged),
        unchanged=tuple(sorted(voyage.unchanged)),
        failed=voyage.failed,
        unsure=tuple(sorted(voyage.unsure)),
        slow={name: way for name, way in voyage.slow.items() if name not in voyage.failed},
        kept=voyage.kept,
        bytes_up=voyage.sent,
        seconds=asyncio.get_running_loop().time() - begun,
    )
