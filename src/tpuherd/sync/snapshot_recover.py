"""Recovers a snapshot that is missing here from a host it was shipped to."""

from collections.abc import Callable

from tpuherd.ports import Link, RpcRequest
from tpuherd.sync.copy_files import WriteLimit, read_rows, receive_stream
from tpuherd.sync.snapshot_store import Archive
from tpuherd_host.agent.snapshots.manifest import (
    BadRows,
    check_rows,
    content_sizes,
    rows_id,
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
    give, rows = read_rows(source)
    if rows_id(rows).hex() != id:
        raise BadRows("it is another snapshot")
    wanted = content_sizes(check_rows(rows))
    ids = [row[-32:] for row in rows]
    with archive.blobs.shared_lock():
        with archive.blobs.new_pack() as pack:
            limit = WriteLimit.from_free_disk(archive.blobs.folder)
            for _ in range(give):
                content = ids[source.read_number()]
                pack.add(limit.count_pieces(source.read_pieces(wanted[content])), content)
        source.drain()
        if archive.blobs.missing_ids(wanted):
            raise BadRows("contents are missing")
        archive.add(rows)
