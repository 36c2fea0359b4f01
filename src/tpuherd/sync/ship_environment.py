"""Ships a Python environment from a host that has it; this machine need not have its contents."""

import asyncio
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tpuherd.errors import NotFound, OperationFailed
from tpuherd.ports import Link, RpcRequest
from tpuherd.sync.copy_files import read_rows, receive_stream
from tpuherd.sync.ship import deliver_payload
from tpuherd.sync.shipment import Payload, Shipment, ShipOptions
from tpuherd.sync.snapshot_store import Archive
from tpuherd.sync.take_snapshot import Snapshot
from tpuherd_host.agent.snapshots.blobs import PIECE
from tpuherd_host.agent.snapshots.manifest import BadRows, pack_row, rows_id
from tpuherd_host.agent.snapshots.stream import ContentReader, decode_blocks, read_blocks


async def ship_from_host(
    id: str, dest: str, links: Sequence[Link], source: Link, archive: Archive
) -> Shipment:
    """Have `source` put it in place and pass it on to the others."""
    payload = await load_payload(id, source, archive)
    with archive.blobs.shared_lock():
        first = await deliver_payload(
            payload, dest, [source], report=lambda _: None, options=ShipOptions()
        )
        others = [link for link in links if link is not source]
        if first.failed or not others:
            return first
        return await deliver_payload(
            payload,
            dest,
            [source, *others],
            report=lambda _: None,
            options=ShipOptions(unchanged_relay=True),
        )


async def load_payload(id: str, source: Link, archive: Archive) -> Payload:
    """The environment's rows, and its contents as far as they are on this machine."""
    rows = await asyncio.to_thread(archive.load_rows, id)
    if rows is None:
        rows = await fetch_rows(id, source, archive)
    blobs = archive.blobs

    def pieces(content: bytes) -> Iterator[bytes]:
        if content not in blobs:
            name = source.host.name
            raise OperationFailed(f"{name} has the environment but did not pass all of it on")
        yield from blobs.read_pieces(content)

    return Payload(id=id, rows=rows, pieces=pieces, rows_of=archive.load_rows)


async def fetch_rows(id: str, source: Link, archive: Archive) -> list[bytes]:
    """Fetch the list of its files from a host that has it."""
    found: list[bytes] = []

    def take(come: Callable[[], bytes]) -> None:
        reader = ContentReader(decode_blocks(read_blocks(come)))
        found.extend(read_rows(reader)[1])
        reader.drain()
        if rows_id(found).hex() != id:
            raise BadRows("it is another snapshot")

    arguments = {"id": id, "rows_only": True}
    await receive_stream(source, RpcRequest(name="snapshot.give", arguments=arguments), take)
    archive.add(found)
    return found


def snapshot_program(file: Path, archive: Archive) -> Snapshot:
    """A snapshot of one program; NotFound if the file can't be read."""
    mode = stat.S_IFREG | 0o755

    def pieces() -> Iterator[bytes]:
        with file.open("rb") as content:
            while piece := content.read(PIECE):
                yield piece

    try:
        with archive.blobs.shared_lock(), archive.blobs.new_pack() as pack:
            id, size = pack.add(pieces())
    except OSError as error:
        raise NotFound(f"{file} can't be read: {error.strerror}") from error
    shot = archive.add([pack_row(file.name.encode(), mode, size, id)])
    return Snapshot(id=shot.id, rows=shot.rows, size=size, source=str(file))
