"""Recovers a snapshot that is missing here from a host it was shipped to."""

from collections.abc import Callable

from tpuherd.ports import Link, RpcRequest
from tpuherd.sync.copy_files import receive_stream
from tpuherd.sync.snapshot_store import Archive
from tpuherd_host.agent.snapshots.manifest import (
    BadRows,
    check_rows,
    content_sizes,
    rows_id,
    unpack_rows,
)
from tpuherd_host.agent.snapshots.stream import (
    ContentReader,
    decode_blocks,
    read_blocks,
)


async def recover_snapshot(id: str, link: Link, archive: Archive) -> None:
    """Copy it from this host into the archive and verify it; NotFound if the host lacks it."""

    def taken(come: Callable[[], bytes]) -> None:
        store_snapshot(id, ContentReader(decode_blocks(read_blocks(come))), archive)

    await receive_stream(link, RpcRequest(name="snapshot.give", arguments={"id": id}), taken)


def store_snapshot(id: str, source: ContentReader, archive: Archive) -> None:
    """Store a snapshot from its stream; raises if contents do not match their ids."""
    head = source.read_head()
    rows = unpack_rows(source.read_bytes(int(head["body"])))
    if rows_id(rows).hex() != id:
        raise BadRows("it is another snapshot")
    wanted = content_sizes(check_rows(rows))
    ids = [row[-32:] for row in rows]
    with archive.blobs.shared_lock():
        with archive.blobs.new_pack() as pack:
            for _ in range(int(head["give"])):
                content = ids[source.read_number()]
                pack.add(source.read_pieces(wanted[content]), content)
        source.drain()
        if archive.blobs.missing_ids(wanted):
            raise BadRows("contents are missing")
        archive.add(rows)
