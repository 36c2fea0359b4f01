"""Uploads to Cloud Storage: at once, or in several requests that nothing shows before the last.

The server keeps the bytes of a request in a file of its own and names it in CONTENT_HEADER, with
the checksums that `parts_to_hash` asked for. An upload publishes only when these cover all of it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, quote

import msgspec

from tpuherd_sim.google_apis.bucket_access import named_bucket, storage_error
from tpuherd_sim.google_apis.object_methods import cut_parts
from tpuherd_sim.google_apis.objects import (
    CONDITIONS,
    PREDEFINED,
    base_url,
    check_conditions,
    check_write,
    find_live,
    invalid_query,
    object_json,
    predefined_list,
    publish_object,
    read_fields,
    read_params,
)
from tpuherd_sim.model.http_types import ApiCall, ApiError, Json, Part, Request, Response
from tpuherd_sim.model.storage_state import Content, Upload
from tpuherd_sim.model.world import World, schedule_event
from tpuherd_sim.model.world_parts import AgendaItem
from tpuherd_sim.tpu.router import Route

#: Added to uploads by the world's server. No client can send it.
CONTENT_HEADER = "x-sim-content"
CHUNK = re.compile(r"bytes (?:(\d{1,19})-(\d{1,19}|\*)|\*)/(\d{1,19}|\*)")
QUANTUM = 256 << 10  #: of all requests of an upload but the last
LIFE_S = 7 * 86400.0
EXPIRE = "upload.expire"


@dataclass(frozen=True, kw_only=True, slots=True)
class Received:
    """What the server keeps of a request's body."""

    part: Part
    content: Content | None = None  #: what was asked to be hashed


def read_received(call: ApiCall) -> Received:
    text = call.request.headers.get(CONTENT_HEADER)
    if text is None:
        raise storage_error(411, "You must provide the Content-Length HTTP header.")
    return msgspec.json.decode(text, type=Received)


def insert_object(world: World, call: ApiCall, now: float) -> Json | Response:
    """Store an object at once, or start or continue an upload in several requests."""
    query = read_params(call, "name", "contentEncoding", "upload_id", *PREDEFINED, *CONDITIONS)
    if "upload_id" in query:
        return continue_upload(world, call, now)
    kind, headers, bucket = query.get("uploadType", "media"), call.request.headers, call.path
    if kind not in ("media", "multipart", "resumable"):
        raise invalid_query("uploadType", kind)
    name = query.get("name") or call.body.get("name")
    place = (bucket["bucket"], name if isinstance(name, str) else "")
    fields = {**read_fields(call.body), **predefined_list(query)}
    said = headers.get("x-upload-content-type") or (
        headers.get("content-type") if kind == "media" else None
    )
    if said:
        fields.setdefault("contentType", said)
    if "contentEncoding" in query:
        fields["contentEncoding"] = query["contentEncoding"]
    check_conditions(query, check_write(world, call.request, *place))
    checksums = announced_checksums(call)
    if kind == "resumable":
        conditions = {name: query[name] for name in CONDITIONS if name in query}
        upload = Upload(
            bucket=place[0],
            name=place[1],
            fields=fields,
            conditions=conditions,
            checksums=checksums,
        )
        number = add_upload(world, upload, now)
        place_text = f"{call.request.path}?uploadType=resumable&name={quote(place[1], safe='')}"
        url = f"{base_url(call.request)}{place_text}&upload_id={number}"
        return Response(headers=(("Location", url), ("X-GUploader-UploadID", number)))
    content = received_content(call)
    check_checksums(content, checksums)
    new = publish_object(world, call.request, place, content, fields, now)
    return object_json(call.request, new)


def received_content(call: ApiCall) -> Content:
    """Return the content of a request that carries all of it."""
    content = read_received(call).content
    if content is None:
        raise storage_error(503, "Internal error. Please try again")
    return content


def announced_checksums(call: ApiCall) -> dict[str, str]:
    """Return the checksums that the writer says the content has."""
    found = {name: str(call.body[name]) for name in ("crc32c", "md5Hash") if call.body.get(name)}
    for one in call.request.headers.get("x-goog-hash", "").split(","):
        name, _, value = one.strip().partition("=")
        if name in ("crc32c", "md5"):
            found["md5Hash" if name == "md5" else name] = value
    if call.request.headers.get("content-md5"):
        found["md5Hash"] = call.request.headers["content-md5"]
    return found


def check_checksums(content: Content, announced: Mapping[str, str]) -> None:
    for name, label, value in (
        ("crc32c", "CRC32C", content.crc32c),
        ("md5Hash", "MD5 hash", content.md5),
    ):
        wanted = announced.get(name, value)
        if wanted != value and value:
            text = f'Provided {label} "{wanted}" doesn\'t match calculated {label} "{value}".'
            raise storage_error(400, text)


# -- in several requests --------------------------------------------------------------------------


def add_upload(world: World, upload: Upload, now: float) -> str:
    dice = world.services.dice
    number = f"{dice.random_bits():016x}{dice.random_bits():016x}"
    world.services.storage.uploads[number] = upload
    schedule_event(world, now + LIFE_S, EXPIRE, number)
    return number


def find_upload(world: World, number: str) -> Upload:
    upload = world.services.storage.uploads.get(number)
    if upload is None:
        raise storage_error(404, "No such upload: it is cancelled or too old, or never began.")
    return upload


def upload_number(request: Request) -> str:
    return dict(parse_qsl(request.query)).get("upload_id", "")


def continue_upload(world: World, call: ApiCall, now: float) -> Json | Response:
    """Store a chunk of an upload, tell what of it was received, or finish it."""
    read_params(call, "name", "contentEncoding", "upload_id", *PREDEFINED, *CONDITIONS)
    number = upload_number(call.request)
    upload = find_upload(world, number)
    if upload.finished is not None:
        return dict(upload.finished)
    received = read_received(call)
    text = call.request.headers.get("content-range", "")
    parts, last = place_chunk(upload, text, received.part)
    if last:
        return finish_upload(world, call, number, (received.content, parts), now)
    storage = world.services.storage
    storage.add_references(parts)
    storage.drop_references(upload.parts)
    upload = replace(upload, parts=parts)
    storage.uploads[number] = upload
    size = upload.received_bytes
    headers = (("Range", f"bytes=0-{size - 1}"),) if size else ()
    if call.request.headers.get("x-guploader-no-308") == "yes":  # Go's client can't read a 308
        return Response(headers=(*headers, ("X-HTTP-Status-Code-Override", "308")))
    return Response(status=308, headers=headers)


def place_chunk(upload: Upload, text: str, part: Part) -> tuple[tuple[Part, ...], bool]:
    """Return all parts of an upload with a new one, and whether it is the last.

    Bytes that were received before are ignored, so a chunk may be repeated.
    """
    size, received = part.size, upload.received_bytes
    found = CHUNK.fullmatch(text or f"bytes 0-*/{size}")
    if found is None:
        raise storage_error(400, "Failed to parse Content-Range header.")
    first = received if found[1] is None else int(found[1])
    total = None if found[3] == "*" else int(found[3])
    if found[2] == "*" and total is None:  # the end of the request is that of the object
        total = first + size
    named = int(found[2]) + 1 - first if found[2] not in (None, "*") else size
    if named != size or (found[1] is None and size):
        text = f"Invalid request. The request has {size} bytes, and Content-Range says otherwise."
        raise storage_error(400, text)
    if first > received:
        raise storage_error(
            400,
            "Invalid request. According to the Content-Range header, the upload offset is "
            f"{first} byte(s), which exceeds already uploaded size of {received} byte(s).",
        )
    reached = max(received, first + size)
    if total is not None and reached > total:
        text = f"Invalid request. The upload has {reached} bytes already, but {total} in all."
        raise storage_error(400, text)
    parts = (*upload.parts, *cut_parts((part,), received - first, size))
    if reached == total:
        return parts, True
    if found[1] is not None and size < QUANTUM:
        raise storage_error(
            400,
            "Invalid request. The number of bytes uploaded is required to be equal or greater "
            f"than {QUANTUM}, except for the final request (it's recommended to be the exact "
            f"multiple of {QUANTUM}). The received request contained {size} bytes, which does "
            "not meet this requirement.",
        )
    return cut_parts(parts, 0, reached // QUANTUM * QUANTUM), False


def parts_to_hash(world: World, request: Request, part: Part) -> tuple[Part, ...]:
    """Return the bytes whose checksums the request needs; () if it does not end an upload."""
    number = upload_number(request)
    if not number:
        return (part,)
    upload = world.services.storage.uploads.get(number)
    if upload is None or upload.finished is not None:
        return ()
    try:
        parts, last = place_chunk(upload, request.headers.get("content-range", ""), part)
    except ApiError:
        return ()
    return parts if last else ()


def finish_upload(
    world: World,
    call: ApiCall,
    number: str,
    whole: tuple[Content | None, tuple[Part, ...]],
    now: float,
) -> Json:
    """Publish an upload if what was hashed is all of it; one that may not be published is over."""
    upload, (content, parts) = find_upload(world, number), whole
    if not parts:
        content = EMPTY
    if content is None or content.parts != parts:  # another request came between
        raise storage_error(503, "Internal error. Please try again")
    place = (upload.bucket, upload.name)
    try:
        named_bucket(world, call.request, upload.bucket, "")
        check_conditions(upload.conditions, find_live(world, *place))
        check_checksums(content, {**upload.checksums, **announced_checksums(call)})
    except ApiError:
        drop_upload(world, number)
        raise
    new = publish_object(world, call.request, place, content, upload.fields, now)
    answer = object_json(call.request, new)
    storage = world.services.storage
    storage.drop_references(upload.parts)
    storage.uploads[number] = replace(upload, parts=(), finished=answer)
    return answer


def drop_upload(world: World, number: str) -> None:
    storage = world.services.storage
    upload = storage.uploads.pop(number)
    storage.drop_references(upload.parts)
    for content in upload.numbered.values():
        storage.drop_references(content.parts)


def cancel_upload(world: World, call: ApiCall, now: float) -> Response:
    """Cancel an upload: nothing of it is published."""
    number = upload_number(call.request)
    if find_upload(world, number).finished is not None:
        raise storage_error(404, "The upload is finished already.")
    drop_upload(world, number)
    return Response(status=499)


def expire_upload(world: World, due: AgendaItem) -> None:
    if due.target in world.services.storage.uploads:
        drop_upload(world, due.target)


#: An upload that ends without a byte.
EMPTY = Content(parts=(), crc32c="AAAAAA==", md5="1B2M2Y8AsgTpgAmY7PhCfg==")
ROUTES = tuple(
    Route(method, f"{tree}/storage/v1/b/{{bucket}}/o", answer)
    for tree in ("/upload", "/resumable/upload")
    for method, answer in (
        ("POST", insert_object), ("PUT", continue_upload), ("DELETE", cancel_upload),
    )
)  # fmt: skip
AGENDA = {EXPIRE: expire_upload}
