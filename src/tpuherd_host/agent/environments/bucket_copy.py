"""Keeps a copy of an environment in the job's bucket, and gets it from there: one object each.

The object is a snapshot's stream. Others may write to the bucket: only a copy whose contents have
the digest that the engine noted is used. Where anything goes wrong there is no copy, and the
environment is installed as without a bucket.
"""

import os
import sys
from pathlib import Path
from typing import Dict, Iterator, Tuple

from tpuherd_host.agent.environments.record_tree import write_rows
from tpuherd_host.agent.snapshots.blobs import CorruptBlob
from tpuherd_host.agent.snapshots.manifest import (
    check_rows,
    content_sizes,
    pack_rows,
    parse_row,
    rows_id,
    unpack_rows,
)
from tpuherd_host.agent.snapshots.receive import check_disk_space
from tpuherd_host.agent.snapshots.stream import (
    BrokenStream,
    ContentReader,
    StreamContent,
    decode_blocks,
    encode_stream,
    read_blocks,
)
from tpuherd_host.agent.snapshots.tree_layout import load_rows, open_blobs
from tpuherd_host.agent.state_machine.transition import CallRefused
from tpuherd_host.cloud_storage import CloudStorage

LEVEL = 1  #: of compression: a bucket is near
FOLDER = ".herd-environments"
ROWS_MAX = 1 << 28  #: bytes of a list of files: about two million of them
FAILURES = (OSError, ValueError, BrokenStream, CorruptBlob, LookupError)


class BucketPlace:
    """An object of Cloud Storage, or of an emulator."""

    def __init__(self, url: str, name: str) -> None:
        bucket, _, prefix = url[len("gs://") :].partition("/")
        self.name = "/".join(filter(None, (prefix.rstrip("/"), FOLDER, name)))
        self.url = f"gs://{bucket}/{self.name}"
        self.storage = CloudStorage(f"gs://{bucket}", os.environ)


class UnusableCopy(Exception):
    """The copy can't be read, or is another one; says which."""


def fetch_copy(place: BucketPlace, digest: str, agent_folder: Path) -> bool:
    """Add the copy to this host's snapshots; False if there is none."""
    pieces = place.storage.iter_pieces(place.name)
    try:
        reader = ContentReader(decode_blocks(read_blocks(lambda: next(pieces, b""))))
        store_stream(reader, digest, agent_folder)
    except FileNotFoundError:
        return False
    except (OSError, CallRefused) as error:
        raise UnusableCopy(f"{place.url} can't be read: {error}") from None
    except Exception:  # noqa: BLE001 - others may have written anything there
        sentence = "does not have what this job's host installed, so it is not used"
        raise UnusableCopy(f"{place.url} {sentence}") from None
    return True


def store_stream(reader: ContentReader, digest: str, agent_folder: Path) -> None:
    """Store the contents of a stream, no more than those of the right rows, then its rows."""
    head = reader.read_head()
    rows = unpack_rows(reader.read_bytes(min(int(head["body"]), ROWS_MAX)))
    if rows_id(rows).hex() != digest:
        raise BrokenStream("it is another snapshot")
    found = check_rows(rows)
    store, sizes = open_blobs(agent_folder), content_sizes(found)
    check_disk_space(store.folder, sum(sizes.values()), len(found))
    with store.shared_lock(), store.new_pack() as pack:
        for _ in range(min(int(head["give"]), len(found))):
            one = found[reader.read_number()]
            pack.add(reader.read_pieces(one.size), one.id)
        if store.missing_ids(sizes):
            raise BrokenStream("contents are missing")
    write_rows(rows, agent_folder)


def keep_copy(place: BucketPlace, snapshot: str, agent_folder: Path) -> bool:
    """Write the copy; False if that is not possible, which is only printed."""
    try:
        place.storage.write_stream(place.name, iter_stream(snapshot, agent_folder))
    except FAILURES as error:
        print_problem(f"{place.url} can't be written: {error}")
        return False
    return True


def iter_stream(snapshot: str, agent_folder: Path) -> Iterator[bytes]:
    """Yield a snapshot's stream."""
    rows = load_rows(agent_folder, snapshot) or []
    store = open_blobs(agent_folder)
    first: Dict[bytes, Tuple[int, int]] = {}
    for number, one in enumerate(map(parse_row, rows)):
        first.setdefault(one.id, (number, one.size))
    with store.shared_lock():
        contents = (StreamContent(n, size, store.read_pieces(i)) for i, (n, size) in first.items())
        yield from encode_stream({"give": len(first)}, pack_rows(rows), contents, lambda: LEVEL)


def print_problem(sentence: str) -> None:
    sys.stdout.write(f"herd: {sentence}\n")
