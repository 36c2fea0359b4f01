"""Keeps a copy of an environment in the job's bucket, and gets it from there: one object each.

The object is a snapshot's stream, with the environment's record in its head. Where anything goes
wrong there is no copy, and the environment is installed as without a bucket.
"""

import http.client
import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Tuple
from urllib.parse import quote

from tpuherd_host.agent.environments.record_tree import write_rows
from tpuherd_host.agent.snapshots.blobs import PIECE, CorruptBlob
from tpuherd_host.agent.snapshots.manifest import (
    check_rows,
    content_sizes,
    pack_rows,
    parse_row,
    rows_id,
    unpack_rows,
)
from tpuherd_host.agent.snapshots.stream import (
    BrokenStream,
    ContentReader,
    StreamContent,
    decode_blocks,
    encode_stream,
    read_blocks,
)
from tpuherd_host.agent.snapshots.tree_layout import load_rows, open_blobs

GOOGLE = "https://storage.googleapis.com"
TOKEN = "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token"
WAIT_S, TOKEN_WAIT_S = 60.0, 5.0
LEVEL = 1  #: of compression: a bucket is near
FOLDER = ".herd-environments"
FAILURES = (OSError, ValueError, http.client.HTTPException, BrokenStream, CorruptBlob, LookupError)


class BucketPlace:
    """An object of Cloud Storage, or of an emulator."""

    def __init__(self, url: str, name: str) -> None:
        bucket, _, prefix = url[len("gs://") :].partition("/")
        self.url = f"gs://{bucket}/{'/'.join(filter(None, (prefix.rstrip('/'), FOLDER, name)))}"
        self.bucket = bucket
        self.name = self.url[len(f"gs://{bucket}/") :]
        self.server = (os.environ.get("STORAGE_EMULATOR_HOST") or GOOGLE).rstrip("/")

    def request(self, path: str, **more: Any) -> urllib.request.Request:
        headers = dict(more.pop("headers", {}))
        if self.server == GOOGLE:
            headers["Authorization"] = f"Bearer {service_account_token()}"
        return urllib.request.Request(f"{self.server}{path}", headers=headers, **more)

    def download_request(self) -> urllib.request.Request:
        return self.request(f"/storage/v1/b/{self.bucket}/o/{quote(self.name, safe='')}?alt=media")

    def upload_request(self, file: Any, size: int) -> urllib.request.Request:
        path = f"/upload/storage/v1/b/{self.bucket}/o?uploadType=media&name={quote(self.name)}"
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        return self.request(path, data=file, headers=headers, method="POST")


def service_account_token() -> str:
    """Return an access token of the node's service account."""
    request = urllib.request.Request(TOKEN, headers={"Metadata-Flavor": "Google"})
    with urllib.request.urlopen(request, timeout=TOKEN_WAIT_S) as answer:
        return str(json.load(answer)["access_token"])


def fetch_copy(place: BucketPlace, agent_folder: Path) -> Optional[Dict[str, Any]]:
    """Add the copy to this host's snapshots and return its record; None if there is none."""
    try:
        with urllib.request.urlopen(place.download_request(), timeout=WAIT_S) as answer:
            reader = ContentReader(decode_blocks(read_blocks(lambda: answer.read(PIECE))))
            return store_stream(reader, agent_folder)
    except urllib.error.HTTPError as error:
        if error.code != http.client.NOT_FOUND:
            print_problem(f"{place.url} can't be read: {error}")
    except FAILURES as error:
        print_problem(f"{place.url} can't be read: {error}")
    return None


def store_stream(reader: ContentReader, agent_folder: Path) -> Dict[str, Any]:
    """Store all contents of a stream, then its rows; return the record in its head."""
    head = reader.read_head()
    rows = unpack_rows(reader.read_bytes(int(head["body"])))
    found = check_rows(rows)
    store = open_blobs(agent_folder)
    with store.shared_lock(), store.new_pack() as pack:
        for _ in range(int(head["give"])):
            one = found[reader.read_number()]
            pack.add(reader.read_pieces(one.size), one.id)
        reader.drain()
        if store.missing_ids(content_sizes(found)):
            raise BrokenStream("contents are missing")
    record = dict(head["record"])
    if rows_id(rows).hex() != record["snapshot"]:
        raise BrokenStream("it is another snapshot")
    write_rows(rows, agent_folder)
    return record


def keep_copy(place: BucketPlace, record: Dict[str, Any], agent_folder: Path) -> bool:
    """Write the copy; False if that is not possible, which is only printed."""
    file = agent_folder / "environments" / f"{record['snapshot'][:16]}.{os.getpid()}.copy"
    try:
        with open(str(file), "wb") as target:
            for block in iter_stream(record, agent_folder):
                target.write(block)
        with open(str(file), "rb") as source:
            request = place.upload_request(source, file.stat().st_size)
            with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
                answer.read()
    except FAILURES as error:
        print_problem(f"{place.url} can't be written: {error}")
        return False
    finally:
        if file.exists():
            file.unlink()
    return True


def iter_stream(record: Dict[str, Any], agent_folder: Path) -> Iterator[bytes]:
    """Yield a snapshot's stream, with the record in its head."""
    rows = load_rows(agent_folder, record["snapshot"]) or []
    store = open_blobs(agent_folder)
    first: Dict[bytes, Tuple[int, int]] = {}
    for number, one in enumerate(map(parse_row, rows)):
        first.setdefault(one.id, (number, one.size))
    with store.shared_lock():
        contents = (StreamContent(n, size, store.read_pieces(i)) for i, (n, size) in first.items())
        head = {"give": len(first), "record": record}
        yield from encode_stream(head, pack_rows(rows), contents, lambda: LEVEL)


def print_problem(sentence: str) -> None:
    sys.stdout.write(f"herd: {sentence}\n")
