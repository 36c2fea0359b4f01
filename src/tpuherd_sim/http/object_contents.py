"""The bytes of objects: files in a world's folder, received and sent as streams.

A request's content goes to a file of its own, then the model decides what becomes of it. Files that
no object and no upload needs are deleted; after a kill, that happens at the next start.
"""

import asyncio
import hashlib
import json
import re
import zlib
from base64 import b64encode
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import replace
from email.message import Message
from email.parser import BytesParser
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, NamedTuple
from urllib.parse import parse_qs

from msgspec.json import encode

from tpuherd_sim.google_apis.bucket_access import storage_error
from tpuherd_sim.google_apis.crc32c import encode_crc32c, update_crc32c
from tpuherd_sim.google_apis.uploads import CONTENT_HEADER, Received, parts_to_hash
from tpuherd_sim.google_apis.xml_objects import take_bucket_host, translate_path
from tpuherd_sim.handle import find_route, take_override
from tpuherd_sim.live_world import LiveWorld
from tpuherd_sim.model.http_types import Part, Request
from tpuherd_sim.model.storage_state import Content
from tpuherd_sim.state_dir import WorldError

UPLOADS = ("/upload/storage/", "/resumable/upload/storage/")
CHUNK = 1 << 20
HEAD_BYTES_MAX = 1 << 20  #: of what a multipart upload says before its content
#: What follows the content of a multipart upload is shorter.
TAIL = 1 << 10
OBJECTS = "objects"  #: the folder of the contents in a world's folder


class ObjectContents:
    """The folder of a world's contents."""

    def __init__(self, live_world: LiveWorld, folder: Path) -> None:
        self.live_world = live_world
        self.folder = folder

    def take_request(self, request: Request) -> Request:
        """Return a request as the model knows it: its method, and a route's path if it is XML's."""
        request = take_override(take_bucket_host(request))
        if find_route(request) is not None:
            return request
        return translate_path(self.live_world.world, request)

    async def receive_content(self, request: Request, body: AsyncIterator[bytes]) -> Request:
        """Keep the content of an upload in a file and return the request that names it.

        If the client leaves before the end, nothing is kept.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        query = parse_qs(request.query)
        kind = query.get("uploadType", ["media"])
        multipart = kind == ["multipart"] and "upload_id" not in query
        if kind != ["media"] and request.headers.get("content-encoding") == "gzip":
            body = unpack_chunks(body)
        with NamedTemporaryFile(dir=self.folder, delete=False) as stream:
            name = Path(stream.name).name
            try:
                if multipart:
                    request = await receive_multipart(request, body, stream)
                else:
                    async for chunk in body:
                        stream.write(chunk)
                part = Part(name, stream.tell())
                stream.flush()
                wanted = parts_to_hash(self.live_world.world, request, part)
                content = await asyncio.to_thread(self.hash_parts, wanted) if wanted else None
            except BaseException:
                self.drop_file(name)
                raise
        received = encode(Received(part=part, content=content)).decode()
        return replace(request, headers={**request.headers, CONTENT_HEADER: received})

    def hash_parts(self, parts: tuple[Part, ...]) -> Content:
        md5, crc = hashlib.md5(usedforsecurity=False), 0
        for chunk in self.read_parts(parts):
            md5.update(chunk)
            crc = update_crc32c(crc, chunk)
        digest = b64encode(md5.digest()).decode()
        return Content(parts=parts, crc32c=encode_crc32c(crc), md5=digest)

    def read_parts(self, parts: Iterable[Part]) -> Iterator[bytes]:
        """Yield the bytes of parts; raise OSError if one of the files is gone or too short."""
        for part in parts:
            with (self.folder / part.file).open("rb") as stream:
                stream.seek(part.start)
                left = part.size
                while left:
                    chunk = stream.read(min(left, CHUNK))
                    if not chunk:
                        raise OSError(f"{part.file} is too short")
                    left -= len(chunk)
                    yield chunk

    def delete_freed(self, request: Request) -> None:
        """Delete files that nothing needs any more, after a request was answered."""
        storage = self.live_world.world.services.storage
        text = request.headers.get(CONTENT_HEADER)
        if text is not None:
            name = json.loads(text)["part"][0]
            if name not in storage.files:
                self.drop_file(name)
        while storage.freed:
            self.drop_file(storage.freed.pop())

    def drop_file(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    def clean_folder(self) -> None:
        """Delete files of requests that were never answered."""
        storage = self.live_world.world.services.storage
        storage.freed.clear()
        for entry in self.folder.glob("*"):
            if entry.is_dir():
                raise WorldError(
                    f"{entry} has objects of an earlier version; start the world with the tpuherd "
                    "that created it, or choose another --state-dir"
                )
            if entry.name not in storage.files:
                entry.unlink()


def carries_content(request: Request) -> bool:
    """Whether a request's body is the content of an object, or a part of it."""
    if request.method not in ("POST", "PUT"):
        return False
    if request.path.startswith("/_xml/"):
        return request.method == "PUT"
    starts = "uploadType=resumable" in request.query and "upload_id=" not in request.query
    return request.path.startswith(UPLOADS) and not starts


async def unpack_chunks(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    unpacker = zlib.decompressobj(wbits=31)
    try:
        async for chunk in body:
            yield unpacker.decompress(chunk)
    except zlib.error:
        raise storage_error(400, "The request's body is not in gzip, as its header says.") from None


class MultipartHead(NamedTuple):
    """What a multipart upload has before its content."""

    metadata: bytes
    content_type: str
    line_end: bytes
    rest: bytes  #: the beginning of the content


async def receive_multipart(
    request: Request, body: AsyncIterator[bytes], stream: IO[bytes]
) -> Request:
    """Write the content of a multipart upload to the stream; return a request with the metadata."""
    message = Message()
    message["Content-Type"] = request.headers.get("content-type", "")
    border = re.escape((message.get_boundary() or "").strip("'").encode())
    if not border:
        raise storage_error(400, "Multipart content type without a boundary.")
    head: MultipartHead | None = None
    tail = b""
    async for chunk in body:
        tail += chunk
        if head is None:
            head = read_multipart_head(tail, border)
            tail = tail if head is None else head.rest
        if head is None and len(tail) > HEAD_BYTES_MAX:
            break
        if head is not None and len(tail) > TAIL:
            stream.write(tail[:-TAIL])
            tail = tail[-TAIL:]
    end = re.search((head.line_end if head else b"") + b"--" + border + rb"--\s*$", tail)
    if head is None or end is None:
        raise storage_error(400, "Malformed multipart body.")
    stream.write(tail[: end.start()])
    kind = {"x-upload-content-type": head.content_type} if head.content_type else {}
    return replace(request, body=head.metadata, headers={**request.headers, **kind})


def read_multipart_head(text: bytes, border: bytes) -> MultipartHead | None:
    """Return what is before the content, or None if it is not there yet."""
    found = re.match(
        rb"\s*--%s[ \t]*(\r?\n)(.*?)\1--%s[ \t]*\1(?:\1|(.*?)\1\1)" % (border, border),
        text,
        re.DOTALL,
    )
    if found is None:
        return None
    line_end, first = found[1], found[1] + found[2]
    metadata = first.partition(line_end * 2)[2]
    kind = BytesParser().parsebytes(found[3] or b"", headersonly=True).get("Content-Type", "")
    return MultipartHead(metadata, kind, line_end, text[found.end() :])
