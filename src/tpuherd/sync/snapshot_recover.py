"""Bringing a snapshot back that was lost here: from a host it was shipped to, exactly as it was."""

from collections.abc import Callable

from tpuherd.ports import Link, Verb
from tpuherd.sync.copy_files import drawn
from tpuherd.sync.snapshot_store import Archive
from tpuherd_host.agent.snapshots_rows import BadRows, checked, contents, named, unpacked
from tpuherd_host.agent.snapshots_stream import Source, blocks, plain


async def recover(id: str, link: Link, archive: Archive) -> None:
    """From this host into the archive, every content checked. NotFound: it has not got it."""

    def taken(come: Callable[[], bytes]) -> None:
        keep(id, Source(plain(blocks(come))), archive)

    await drawn(link, Verb(name="snapshot.give", arguments={"id": id}), taken)


def keep(id: str, source: Source, archive: Archive) -> None:
    """Out of its stream. What is not what its id says is not kept, and ends it."""
    head = source.head()
    rows = unpacked(source.take(int(head["body"])))
    if named(rows).hex() != id:
        raise BadRows("this is another snapshot")
    wanted = contents(checked(rows))
    ids = [row[-32:] for row in rows]
    with archive.blobs.held():
        with archive.blobs.writer() as pack:
            for _ in range(int(head["give"])):
                content = ids[source.number()]
                pack.add(source.pieces(wanted[content]), content)
        source.drain()
        if archive.blobs.missing(wanted):
            raise BadRows("contents are missing")
        archive.add(rows)
