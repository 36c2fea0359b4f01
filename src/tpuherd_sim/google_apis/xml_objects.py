"""Cloud Storage's XML API, as far as clients of the JSON API use it.

That is GET, HEAD, PUT and DELETE of /BUCKET/OBJECT, uploads of numbered parts, and both lists of a
bucket.
"""

import re
from base64 import b64decode
from collections.abc import Collection, Mapping
from dataclasses import replace
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qsl, quote, unquote
from xml.sax.saxutils import escape

from tpuherd_sim.google_apis.bucket_access import storage_error, unserved_error
from tpuherd_sim.google_apis.object_methods import (
    drop_object,
    hash_text,
    join_contents,
    list_page,
    media_response,
    read_token,
    write_token,
)
from tpuherd_sim.google_apis.objects import (
    CONDITIONS,
    check_conditions,
    check_write,
    find_live,
    find_object,
    find_object_if_any,
    object_place,
    publish_object,
)
from tpuherd_sim.google_apis.uploads import (
    add_upload,
    announced_checksums,
    check_checksums,
    drop_upload,
    find_upload,
    received_content,
)
from tpuherd_sim.model.compute_errors import STORAGE, xml_response
from tpuherd_sim.model.compute_state import format_compute_time
from tpuherd_sim.model.http_types import ApiCall, Request, Response, google_host
from tpuherd_sim.model.storage_state import Content, StoredObject, Upload
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu.router import Route

HOST = "storage.googleapis.com"
#: What Google's client for Node asks an emulator, without /storage/v1.
EMULATED = re.compile(r"/(b|projects/[^/]+/serviceAccount)(/|\Z)")
NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
OBJECT = "/_xml/{bucket}/{object}"
#: The headers that say something of an object, by the JSON API's names.
HEADERS = {
    "cacheControl": "cache-control",
    "contentDisposition": "content-disposition",
    "contentEncoding": "content-encoding",
    "contentLanguage": "content-language",
    "contentType": "content-type",
    "storageClass": "x-goog-storage-class",
}
COPY = "x-goog-copy-source"  #: its conditions, such as x-goog-copy-source-if-match, are unserved
UNSERVED = ("x-amz-copy-source", "x-goog-encryption-key", "x-goog-acl")
PARAMETERS = frozenset(("generation", "uploads", "uploadId", "partNumber"))
NUMBER, TAG = rb"<PartNumber>\s*(\d{1,9})\s*</PartNumber>", rb"<ETag>\s*([^<]*?)\s*</ETag>"
PART = re.compile(rb"%s\s*%s|%s\s*%s" % (NUMBER, TAG, TAG, NUMBER))
PARTS_MAX = 10_000
LISTED = frozenset(
    ("list-type", "prefix", "delimiter", "continuation-token", "start-after", "marker", "max-keys",
     "encoding-type")
)  # fmt: skip


def take_bucket_host(request: Request) -> Request:
    """Return a request to BUCKET.storage.googleapis.com as one whose path names the bucket."""
    bucket, found, _ = google_host(request).rpartition(f".{HOST}")
    if not found:
        return request
    headers = {**request.headers, "host": HOST}
    return replace(request, headers=headers, path=f"/{bucket}{request.path}")


def translate_path(world: World, request: Request) -> Request:
    """Return a request for /BUCKET/OBJECT under the path of its route, others as they are."""
    if not google_host(request) and EMULATED.match(request.path):
        return replace(request, path=f"/storage/v1{request.path}")
    bucket, _, name = request.path.removeprefix("/").partition("/")
    ours = google_host(request) == HOST or bucket in world.services.buckets
    served = bucket and (name or request.method == "GET")
    if not served or bucket in STORAGE or not ours:
        return request
    below = f"/{quote(unquote(name), safe='')}" if name else ""
    return replace(request, path=f"/_xml/{bucket}{below}")


def read_query(call: ApiCall, served: Collection[str] = PARAMETERS) -> dict[str, str]:
    """Return the query and the conditions of the headers; refuse what would have to be ignored."""
    query = dict(parse_qsl(call.request.query, keep_blank_values=True))
    for name in query:
        if name not in served and not name.lower().startswith(("x-goog-", "googleaccessid")):
            raise unserved_error(name)
    for name in call.request.headers:
        if name in UNSERVED or name.startswith(f"{COPY}-"):
            raise unserved_error(name)
    for name in CONDITIONS:
        header = "x-goog-" + re.sub("[A-Z]", lambda found: f"-{found[0].lower()}", name)
        if header in call.request.headers:
            query[name] = call.request.headers[header]
    return query


def header_fields(call: ApiCall) -> dict[str, Any]:
    headers = call.request.headers
    fields: dict[str, Any] = {
        name: headers[header] for name, header in HEADERS.items() if header in headers
    }
    start = "x-goog-meta-"
    metadata = {
        name[len(start) :]: text for name, text in headers.items() if name.startswith(start)
    }
    return fields | ({"metadata": metadata} if metadata else {})


def list_xml_objects(world: World, call: ApiCall, now: float) -> Response:
    """List objects in order; `list-type=2` has tokens of pages, without it markers."""
    query = read_query(call, LISTED)
    second = query.get("list-type") == "2"
    marker = query.get("start-after" if second else "marker", "")
    after = (marker, 1 << 63) if marker else ("", 0)  # behind all generations of the name
    if second and "continuation-token" in query:
        after = read_token(query["continuation-token"])
    wanted = {**query, "maxResults": query.get("max-keys", "")}
    wanted = {name: text for name, text in wanted.items() if text}
    items, prefixes, last = list_page(world, call, wanted, after)
    coded = quote if query.get("encoding-type") == "url" else str
    start = {"Name": call.path["bucket"], "Prefix": coded(query.get("prefix", ""))}
    if query.get("delimiter"):
        start["Delimiter"] = coded(query["delimiter"])
    if second:
        start["KeyCount"] = str(len(items) + len(prefixes))
    start["IsTruncated"] = "true" if last else "false"
    if last:
        next_name = "NextContinuationToken" if second else "NextMarker"
        start[next_name] = write_token(last) if second else coded(last[0])
    contents = "".join(
        "<Contents>" + xml_fields({
            "Key": coded(one.name), "Generation": one.generation,
            "MetaGeneration": one.metageneration, "LastModified": format_compute_time(one.updated),
            "ETag": part_etag(one.content), "Size": one.content.size,
        }) + "</Contents>"
        for one in items
    )  # fmt: skip
    for one in prefixes:
        contents += f"<CommonPrefixes>{xml_fields({'Prefix': coded(one)})}</CommonPrefixes>"
    return xml_response(
        "<ListBucketResult xmlns='http://doc.s3.amazonaws.com/2006-03-01'>"
        f"{xml_fields(start)}{contents}</ListBucketResult>"
    )


def xml_fields(fields: Mapping[str, object]) -> str:
    return "".join(f"<{name}>{escape(str(value))}</{name}>" for name, value in fields.items())


def get_xml_object(world: World, call: ApiCall, now: float) -> Response:
    """Get an object's content."""
    query = read_query(call)
    found = find_object_if_any(world, call.request, object_place(call), query, "get")
    if found is None:
        raise storage_error(404, "The specified key does not exist.")
    check_conditions(query, found, reads=True)
    answer = media_response(call.request, found)
    headers = dict(answer.headers) | {"ETag": part_etag(found.content)}
    headers["Last-Modified"] = formatdate(found.updated, usegmt=True)
    return replace(answer, headers=tuple(headers.items()))


def put_xml_object(world: World, call: ApiCall, now: float) -> Response:
    """Store an object, a copy of another one, or a part of an upload."""
    query, place = read_query(call), object_place(call)
    if "uploadId" in query:
        return put_part(world, call, query)
    check_conditions(query, check_write(world, call.request, *place))
    if COPY in call.request.headers:
        return copy_xml_object(world, call, place, now)
    content = received_content(call)
    check_checksums(content, announced_checksums(call))
    new = publish_object(world, call.request, place, content, header_fields(call), now)
    return Response(headers=written_headers(new))


def copy_xml_object(world: World, call: ApiCall, place: tuple[str, str], now: float) -> Response:
    """Copy an object, which the header names, with its fields."""
    bucket, _, name = unquote(call.request.headers[COPY]).removeprefix("/").partition("/")
    source = find_object(world, call.request, (bucket, name), {}, "get")
    replaced = call.request.headers.get("x-goog-metadata-directive") == "REPLACE"
    fields = header_fields(call) if replaced else source.fields
    new = publish_object(world, call.request, place, source.content, fields, now)
    answer = xml_response(
        f"<CopyObjectResult><ETag>{escape(part_etag(new.content))}</ETag></CopyObjectResult>"
    )
    return replace(answer, headers=(*answer.headers, *written_headers(new)))


def written_headers(new: StoredObject) -> tuple[tuple[str, str], ...]:
    return (
        ("ETag", part_etag(new.content)),
        ("x-goog-hash", hash_text(new.content)),
        ("x-goog-generation", str(new.generation)),
    )


def part_etag(content: Content) -> str:
    return f'"{b64decode(content.md5 or content.crc32c).hex()}"'


def delete_xml_object(world: World, call: ApiCall, now: float) -> Response:
    """Delete an object, or abort an upload."""
    query, place = read_query(call), object_place(call)
    if "uploadId" in query:
        numbered_upload(world, query, place)
        drop_upload(world, query["uploadId"])
        return Response(status=204)
    return drop_object(world, call, query, now)


# -- uploads of numbered parts --------------------------------------------------------------------


def numbered_upload(world: World, query: Mapping[str, str], place: tuple[str, str]) -> Upload:
    upload = find_upload(world, query["uploadId"])
    if (upload.bucket, upload.name) != place or upload.finished is not None:
        raise storage_error(404, "The requested upload was not found.")
    return upload


def put_part(world: World, call: ApiCall, query: Mapping[str, str]) -> Response:
    """Store a part; a repeated one replaces the former."""
    upload, number = numbered_upload(world, query, object_place(call)), query.get("partNumber", "")
    if not re.fullmatch("[0-9]{1,9}", number) or not 1 <= int(number) <= PARTS_MAX:
        raise storage_error(400, f"partNumber must be between 1 and {PARTS_MAX}.")
    content, storage = received_content(call), world.services.storage
    check_checksums(content, announced_checksums(call))
    storage.add_references(content.parts)
    before = upload.numbered.get(str(int(number)))
    if before is not None:
        storage.drop_references(before.parts)
    numbered = {**upload.numbered, str(int(number)): content}
    storage.uploads[query["uploadId"]] = replace(upload, numbered=numbered)
    sums = ("x-goog-hash", hash_text(content))
    return Response(headers=(("ETag", part_etag(content)), sums))


def post_xml_object(world: World, call: ApiCall, now: float) -> Response:
    """Begin an upload of parts, or join them to the object."""
    query, place = read_query(call), object_place(call)
    if "uploads" in query:
        check_write(world, call.request, *place)
        conditions = {name: query[name] for name in CONDITIONS if name in query}
        fields = header_fields(call)
        upload = Upload(
            bucket=place[0], name=place[1], fields=fields, conditions=conditions, checksums={}
        )
        number = add_upload(world, upload, now)
        text = f"<UploadId>{number}</UploadId>"
        return result_response("InitiateMultipartUploadResult", place, text)
    if "uploadId" not in query:
        raise storage_error(400, "POST needs uploads or uploadId.")
    upload = numbered_upload(world, query, place)
    content = join_contents(chosen_parts(call, upload))
    check_write(world, call.request, *place)
    check_conditions(upload.conditions, find_live(world, *place))
    new = publish_object(world, call.request, place, content, upload.fields, now)
    drop_upload(world, query["uploadId"])
    text = f"<ETag>{escape(part_etag(content))}</ETag>"
    answer = result_response("CompleteMultipartUploadResult", place, text)
    return replace(answer, headers=(*answer.headers, *written_headers(new)))


def result_response(name: str, place: tuple[str, str], text: str) -> Response:
    start = f"<Bucket>{place[0]}</Bucket><Key>{escape(place[1])}</Key>"
    answer = xml_response(f'<{name} xmlns="{NAMESPACE}">{start}{text}</{name}>')
    # Google's client for Node reads text only.
    return replace(answer, headers=(("Content-Type", "text/xml; charset=UTF-8"),))


def chosen_parts(call: ApiCall, upload: Upload) -> list[Content]:
    """Return the parts that the client names, whose etags must be those of what was stored."""
    found = [part.groups(b"") for part in PART.finditer(call.request.body)]
    named = [(int(first or last), before or after) for first, after, before, last in found]
    if not named or [one[0] for one in named] != sorted({one[0] for one in named}):
        raise storage_error(400, "The list of parts was not in ascending order.")
    contents = []
    for number, etag in named:
        content = upload.numbered.get(str(number))
        sent = etag.decode("latin-1").replace("&quot;", '"').strip('"')
        if content is None or sent != part_etag(content).strip('"'):
            raise storage_error(400, "One or more of the specified parts could not be found.")
        contents.append(content)
    return contents


ROUTES = (
    Route("GET", "/_xml/{bucket}", list_xml_objects),
    Route("GET", OBJECT, get_xml_object),
    Route("HEAD", OBJECT, get_xml_object),
    Route("PUT", OBJECT, put_xml_object),
    Route("POST", OBJECT, post_xml_object),
    Route("DELETE", OBJECT, delete_xml_object),
)
