"""The objects in a world's buckets: files in its folder, served like Cloud Storage."""

import asyncio
import hashlib
import json
import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.parser import BytesParser
from functools import cache, lru_cache
from pathlib import Path
from tempfile import mkstemp
from threading import Lock
from urllib.parse import parse_qs, quote, unquote

from tpuherd_sim.google_apis.bucket_access import HOST_HEADER
from tpuherd_sim.hosts.host_protocols import WorldApi
from tpuherd_sim.model.compute_state import format_compute_time
from tpuherd_sim.model.http_types import Json, Request, Response

#: Prefixes for the JSON API, uploads and downloads, before /b/BUCKET/o or /b/BUCKET/o/OBJECT.
PATHS = re.compile(r"(/upload|/download|/resumable)?/storage/v1/b/([^/]+)/o(?:/(.*))?")
TREES = ("/storage/v1/", "/upload/storage/v1/", "/download/storage/v1/", "/resumable/storage/v1/")
RANGE = re.compile(r"bytes=(\d+)-(\d*)")
PAGE_MAX = 1000
HALF = ".half"  #: incomplete multipart uploads
NEW = ".new"  #: objects that are being written
METADATA = ".metadata"  #: what a client said about an object: by it, pyarrow knows its folders
OBJECTS = "objects"  #: the folder of the objects in a world's folder


class StorageError(Exception):
    """An error of the Storage API."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectRequest:
    """The parsed form of a request about objects."""

    request: Request
    kind: str  #: "", /upload, /download or /resumable
    bucket: str
    name: str
    query: Mapping[str, str]

    def check_preconditions(self, found: int) -> None:
        """Check ifGenerationMatch and ifGenerationNotMatch; 0 means that the object
        does not exist.
        """
        match, other = self.query.get("ifGenerationMatch"), self.query.get("ifGenerationNotMatch")
        if other == str(found) and self.request.method == "GET":
            raise StorageError(304, "Not Modified")
        if (match is not None and match != str(found)) or other == str(found):
            raise StorageError(
                412, "At least one of the pre-conditions you specified did not hold."
            )


class ObjectStore:
    """Answers requests about objects; requests about buckets are left to the model."""

    def __init__(self, live_world: WorldApi, folder: Path) -> None:
        self.live_world = live_world
        self.folder = folder
        self.writing = Lock()  #: keeps preconditions valid until the write is done
        self.newest = 0  #: the highest generation so far

    async def answer_request(self, request: Request) -> Response | None:
        """Return the response, or None if the request is not about objects."""
        path = request.path
        found = PATHS.fullmatch(path)
        if found is None:
            return self.refuse_nonempty_delete(request) if request.method == "DELETE" else None
        query = {name: values[-1] for name, values in parse_qs(request.query).items()}
        wanted = ObjectRequest(
            request=request,
            kind=found[1] or "",
            bucket=found[2],
            name=unquote(found[3] or query.get("name", "")),
            query=query,
        )
        bucket = Request(method="GET", path=f"/storage/v1/b/{wanted.bucket}")
        known = self.live_world.handle_request(bucket)
        if known.status != 200:
            return known
        try:
            self.check_host_access(wanted)
            return await asyncio.to_thread(self.handle_object, wanted)
        except StorageError as no:
            if no.status == 304:  # it has no body
                return Response(status=304)
            details = {"code": no.status, "message": str(no), "errors": [{"message": str(no)}]}
            return Response(status=no.status, body=json.dumps({"error": details}).encode())

    def check_host_access(self, wanted: ObjectRequest) -> None:
        """Refuse a host's request if its account lacks the permission."""
        request = wanted.request
        if HOST_HEADER not in request.headers:
            return
        exists = bool(wanted.name) and self.object_path(wanted.bucket, wanted.name).is_file()
        for permission in needed_permissions(wanted, exists=exists):
            asked = Request(
                method="GET",
                path=f"/sim/v1/buckets/{wanted.bucket}/permissions/{permission}",
                headers={HOST_HEADER: request.headers[HOST_HEADER]},
            )
            answer = self.live_world.handle_request(asked)
            if answer.status != 200:
                raise StorageError(answer.status, json.loads(answer.body)["error"]["message"])

    def refuse_nonempty_delete(self, request: Request) -> Response | None:
        """Refuse to delete a bucket that is not empty."""
        bucket = request.path.removeprefix("/storage/v1/b/")
        if "/" in bucket or next(self.object_names(bucket), None) is None:
            return None
        details = {"code": 409, "message": "The bucket you tried to delete is not empty."}
        return Response(status=409, body=json.dumps({"error": details}).encode())

    def handle_object(self, wanted: ObjectRequest) -> Response:
        method = wanted.request.method
        if wanted.kind in ("/upload", "/resumable"):
            return self.handle_upload(wanted)
        if not wanted.name:
            return self.list_objects(wanted)
        if method == "DELETE":
            with self.writing:
                file = self.existing_file(wanted)
                wanted.check_preconditions(file_generation(file))
                file.unlink()
                self.object_path(wanted.bucket, wanted.name, METADATA).unlink(missing_ok=True)
            return Response(status=204)
        if method == "GET" and (wanted.query.get("alt") == "media" or wanted.kind == "/download"):
            return self.object_content(wanted)
        if method == "GET":
            file = self.existing_file(wanted)
            wanted.check_preconditions(file_generation(file))
            return json_response(self.object_resource(wanted.bucket, wanted.name))
        raise StorageError(405, f"{method} of objects is not supported by this world.")

    def handle_upload(self, wanted: ObjectRequest) -> Response:
        """Store an object at once, or start a resumable upload with its own URL."""
        body = wanted.request.body
        if wanted.kind == "/resumable":
            return self.continue_upload(wanted)
        kind = wanted.query.get("uploadType", "media")
        details: Json = {}
        if kind == "multipart":
            details, body = split_multipart(wanted.request)
        elif kind == "resumable" and body:
            details = json.loads(body)
        name = wanted.name or details.get("name", "")
        if not name:
            raise StorageError(400, "Required")
        if kind == "resumable":
            place = f"/resumable/storage/v1/b/{wanted.bucket}/o/{quote(name, safe='')}"
            folder = self.object_path(wanted.bucket, name).parent
            folder.mkdir(parents=True, exist_ok=True)
            number, half = mkstemp(HALF, dir=folder)
            os.close(number)
            host = wanted.request.headers.get("host", "")
            upload = Path(half).name.removesuffix(HALF)
            conditions = f"{place}?{wanted.request.query}&upload_id={upload}"
            return Response(headers=(("Location", f"http://{host}{conditions}"),))
        self.write_object(wanted, name, body, details.get("metadata"))
        return json_response(self.object_resource(wanted.bucket, name))

    def continue_upload(self, wanted: ObjectRequest) -> Response:
        """Store a part of an upload, or all of it."""
        upload = quote(wanted.query.get("upload_id", ""), safe="")
        half = self.folder / wanted.bucket / f"{upload}{HALF}"
        if not half.is_file():
            raise StorageError(404, "No such upload: it is over, or was never begun.")
        body = wanted.request.body
        content_range = wanted.request.headers.get("content-range", "")
        with half.open("ab") as stream:
            stream.write(body)
            size = stream.tell()
        if content_range.endswith("/*") or (content_range.rpartition("/")[2] or str(size)) != str(
            size
        ):
            return Response(status=308, headers=(("Range", f"bytes=0-{size - 1}"),) if size else ())
        whole = half.read_bytes()
        half.unlink()
        self.write_object(wanted, wanted.name, whole)
        # Google's client requires it here, and nowhere else.
        crc = b64encode(crc32c_checksum(whole).to_bytes(4, "big")).decode()
        return json_response({**self.object_resource(wanted.bucket, wanted.name), "crc32c": crc})

    def write_object(
        self, wanted: ObjectRequest, name: str, content: bytes, metadata: object = None
    ) -> None:
        """Write an object atomically."""
        path = self.object_path(wanted.bucket, name)
        with self.writing:
            before = file_generation(path) if path.is_file() else 0
            wanted.check_preconditions(before)
            path.parent.mkdir(parents=True, exist_ok=True)
            said = self.object_path(wanted.bucket, name, METADATA)
            said.unlink(missing_ok=True)
            if metadata:
                said.write_text(json.dumps(metadata))
            new = self.object_path(wanted.bucket, name, NEW)
            new.write_bytes(content)
            # A disk's clock may have millisecond resolution: two writes within one are two
            # generations.
            self.newest = max(file_generation(new), before + 1, self.newest + 1)
            os.utime(new, ns=(self.newest * 1000, self.newest * 1000))
            new.replace(path)

    def object_content(self, wanted: ObjectRequest) -> Response:
        """Return the object, or the requested range of it."""
        with self.existing_file(wanted).open(
            "rb"
        ) as stream:  # a single generation, whatever is written now
            number = os.fstat(stream.fileno()).st_mtime_ns // 1000
            wanted.check_preconditions(number)
            content = stream.read()
        asked = RANGE.fullmatch(wanted.request.headers.get("range", ""))
        kind = [
            ("Content-Type", "application/octet-stream"),
            ("ETag", f'"{number}"'),
            ("x-goog-generation", str(number)),
            ("x-goog-metageneration", "1"),
            ("x-goog-storage-class", "STANDARD"),
            ("x-goog-stored-content-encoding", "identity"),
            ("x-goog-stored-content-length", str(len(content))),
        ]
        if asked is None:
            kind.append(("x-goog-hash", f"md5={b64encode(hashlib.md5(content).digest()).decode()}"))
            return Response(body=content, headers=tuple(kind))
        first, last = int(asked[1]), int(asked[2] or len(content) - 1)
        if first >= len(content):
            raise StorageError(416, "The requested range cannot be satisfied.")
        last = min(last, len(content) - 1)
        kind.append(("Content-Range", f"bytes {first}-{last}/{len(content)}"))
        return Response(status=206, body=content[first : last + 1], headers=tuple(kind))

    def list_objects(self, wanted: ObjectRequest) -> Response:
        """List names in order; fold those below a delimiter into prefixes."""
        query = wanted.query
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        first, end = query.get("startOffset", ""), query.get("endOffset")
        after = query.get("pageToken", "")
        items: list[Json] = []
        folded: dict[str, None] = {}
        last = ""
        most = min(int(query.get("maxResults", PAGE_MAX)), PAGE_MAX)
        answer: Json = {"kind": "storage#objects"}
        for name in sorted(self.object_names(wanted.bucket)):
            if not name.startswith(prefix) or name < first or (end and name >= end):
                continue
            cut = name.find(delimiter, len(prefix)) if delimiter else -1
            shown = name if cut < 0 else name[: cut + len(delimiter)]
            if shown <= after or shown in folded:
                continue
            if len(items) + len(folded) == most:
                answer["nextPageToken"] = last
                break
            last = shown
            if cut < 0:
                items.append(self.object_resource(wanted.bucket, name))
            else:
                folded[shown] = None
        answer |= {"items": items} if items else {}
        answer |= {"prefixes": list(folded)} if folded else {}
        return json_response(answer)

    def object_resource(self, bucket: str, name: str) -> Json:
        file = self.object_path(bucket, name)
        state, number = file.stat(), str(file_generation(file))
        at = format_compute_time(state.st_mtime)
        said = self.object_path(bucket, name, METADATA)
        return {
            **({"metadata": json.loads(said.read_bytes())} if said.is_file() else {}),
            "kind": "storage#object",
            "id": f"{bucket}/{name}/{number}",
            "name": name,
            "bucket": bucket,
            "generation": number,
            "metageneration": "1",
            "contentType": "application/octet-stream",
            "storageClass": "STANDARD",
            "size": str(state.st_size),
            "md5Hash": md5_hash(file, int(number)),
            "etag": number,
            "timeCreated": at,
            "updated": at,
        }

    def object_names(self, bucket: str) -> Iterator[str]:
        top = self.folder / bucket
        if top.is_dir():
            for entry in os.scandir(top):
                if not entry.name.endswith((HALF, NEW, METADATA)):
                    yield unquote(entry.name.removesuffix(".object"))

    def object_path(self, bucket: str, name: str, end: str = ".object") -> Path:
        """Return the file of an object, which is always inside the folder of its bucket."""
        return self.folder / bucket / (quote(name, safe="") + end)

    def existing_file(self, wanted: ObjectRequest) -> Path:
        path = self.object_path(wanted.bucket, wanted.name)
        if not path.is_file():
            raise StorageError(404, f"No such object: {wanted.bucket}/{wanted.name}")
        return path


def needed_permissions(wanted: ObjectRequest, *, exists: bool) -> tuple[str, ...]:
    """Return what a request about objects needs; replacing an object also deletes the old one."""
    if wanted.kind in ("/upload", "/resumable"):
        both = ("storage.objects.create", "storage.objects.delete")
        return both if exists else both[:1]
    if wanted.request.method == "DELETE":
        return ("storage.objects.delete",)
    return ("storage.objects.get",) if wanted.name else ("storage.objects.list",)


@cache
def crc_table() -> tuple[int, ...]:
    """Return the table for Castagnoli's polynomial."""
    found = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        found.append(byte)
    return tuple(found)


def crc32c_checksum(content: bytes) -> int:
    """Return the CRC32C, which the standard library lacks; slow, so it is left out where clients
    allow.
    """
    crc, row = 0xFFFFFFFF, crc_table()
    for byte in content:
        crc = row[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


@lru_cache(maxsize=4096)
def md5_hash(file: Path, generation: int) -> str:
    """Return the MD5 of a file; cached by generation."""
    return b64encode(hashlib.md5(file.read_bytes()).digest()).decode()


def file_generation(file: Path) -> int:
    """Return a number that grows with later writes."""
    return file.stat().st_mtime_ns // 1000


def json_response(content: Json) -> Response:
    return Response(body=json.dumps(content).encode())


def split_multipart(request: Request) -> tuple[Json, bytes]:
    """Return an upload's metadata and content."""
    head = f"Content-Type: {request.headers.get('content-type', '')}\r\n\r\n".encode()
    message = BytesParser().parsebytes(head + request.body)
    pieces = message.get_payload()
    if not isinstance(pieces, list) or len(pieces) != 2:
        raise StorageError(400, "This is no multipart upload.")
    # The parser changes line ends, so the content is cut out at the boundary instead.
    boundary = b"\r\n--" + str(message.get_boundary()).encode()
    body = request.body.split(boundary)[1].partition(b"\r\n\r\n")[2]
    details = json.loads(str(pieces[0].get_payload()))  # type: ignore[union-attr]
    return details, body
