"""The methods of Cloud Storage's objects: get, list, change, copy, compose, move, restore."""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tpuherd_sim.google_apis.access_lists import sent_lists, shown_object
from tpuherd_sim.google_apis.bucket_access import named_bucket, storage_error, unserved_error
from tpuherd_sim.google_apis.crc32c import join_crc32c
from tpuherd_sim.google_apis.object_rules import HOLDS, check_removable
from tpuherd_sim.google_apis.objects import (
    CONDITIONS,
    PREDEFINED,
    check_conditions,
    check_write,
    find_live,
    find_object,
    invalid_query,
    object_etag,
    object_json,
    object_place,
    predefined_list,
    publish_object,
    read_fields,
    read_flag,
    read_number,
    read_params,
    replace_generation,
    retire_object,
)
from tpuherd_sim.model.http_types import ApiCall, Json, Part, Request, Response
from tpuherd_sim.model.storage_state import Content, StoredObject
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu.router import Route

SOURCE_CONDITIONS = tuple(f"ifSource{name[2:]}" for name in CONDITIONS)
RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")
HEADER_NAME = re.compile(r"[A-Za-z0-9._-]+")
PAGE_MAX = 1000
COMPONENTS_MAX = 32
MIB = 1 << 20
Place = tuple[str, int]  #: in a list: a name or a prefix, and a generation
GLOB = re.compile(r"\*\*/?|\*|\?|\[[^]]+\]|[{},]|\\?.", re.DOTALL)


def get_object(world: World, call: ApiCall, now: float) -> Json | Response:
    """Get an object's metadata, or with `alt=media` its content."""
    query = read_params(call, "generation", "softDeleted", *CONDITIONS)
    found = find_object(world, call.request, object_place(call), query, "get")
    check_conditions(query, found, reads=True)
    wanted = query.get("alt", "json")
    if wanted == "media" or call.version == "download":
        return media_response(call.request, found)
    if wanted != "json":
        raise invalid_query("alt", wanted)
    return shown_object(world, call.request, found)


def media_response(request: Request, found: StoredObject) -> Response:
    """Return an object's content, or the requested range of it."""
    size = found.content.size
    fields = {"contentType": "application/octet-stream", **found.fields}
    headers = [
        *((name, str(fields[key])) for name, key in (
            ("Content-Type", "contentType"), ("Cache-Control", "cacheControl"),
            ("Content-Encoding", "contentEncoding"), ("Content-Language", "contentLanguage"),
            ("Content-Disposition", "contentDisposition"),
        ) if key in fields),
        *((f"x-goog-meta-{key}", value) for key, value in fields.get("metadata", {}).items()
          if HEADER_NAME.fullmatch(key)),
        ("ETag", f'"{object_etag(found)}"'),
        ("Accept-Ranges", "bytes"),
        ("x-goog-generation", str(found.generation)),
        ("x-goog-metageneration", str(found.metageneration)),
        ("x-goog-storage-class", str(fields.get("storageClass", "STANDARD"))),
        ("x-goog-stored-content-encoding", str(fields.get("contentEncoding", "identity"))),
        ("x-goog-stored-content-length", str(size)),
        ("x-goog-hash", hash_text(found.content)),
    ]  # fmt: skip
    cut = byte_range(request.headers.get("range", ""), size)
    if cut is None:
        return Response(parts=found.content.parts, headers=tuple(headers))
    first, end = cut
    headers.append(("Content-Range", f"bytes {first}-{end - 1}/{size}"))
    parts = cut_parts(found.content.parts, first, end)
    return Response(status=206, parts=parts, headers=tuple(headers))


def hash_text(content: Content) -> str:
    return f"crc32c={content.crc32c}" + (f",md5={content.md5}" if content.md5 else "")


def byte_range(text: str, size: int) -> tuple[int, int] | None:
    """Return the first byte and the end of a range; None if there is none, so all is meant."""
    found = RANGE.fullmatch(text)
    if found is None or found[0] == "bytes=-":
        return None
    if found[1]:
        first, end = int(found[1]), min(int(found[2]) + 1 if found[2] else size, size)
        if found[2] and int(found[2]) < first:
            return None
    else:
        first, end = max(0, size - int(found[2])), size
    if first >= size:
        raise storage_error(416, "The requested range cannot be satisfied.")
    return first, end


def cut_parts(parts: tuple[Part, ...], first: int, end: int) -> tuple[Part, ...]:
    """Return the parts of the bytes from `first` up to `end`."""
    found, at = [], 0
    for part in parts:
        low, high = max(first - at, 0), min(end - at, part.size)
        if low < high:
            found.append(Part(part.file, high - low, part.start + low))
        at += part.size
    return tuple(found)


def delete_object(world: World, call: ApiCall, now: float) -> Response:
    return drop_object(world, call, read_params(call, "generation", *CONDITIONS), now)


def drop_object(world: World, call: ApiCall, query: Mapping[str, str], now: float) -> Response:
    found = find_object(world, call.request, object_place(call), query, "delete")
    check_conditions(query, found)
    retire_object(world, found, now, by_generation="generation" in query)
    return Response(status=204)


def patch_object(world: World, call: ApiCall, now: float) -> Json:
    """Change an object's metadata: PATCH keeps what it does not name, PUT does not."""
    query = read_params(call, "generation", *CONDITIONS)
    found = find_object(world, call.request, object_place(call), query, "update")
    check_conditions(query, found)
    fields = {name: value for name, value in call.body.items() if name != "acl"}
    bindings = sent_lists(world, call).get("bindings", found.bindings)
    if call.request.method == "PATCH":  # as JSON merge patch: null removes
        fields = {**found.fields, **fields}
        if isinstance(metadata := call.body.get("metadata"), dict):
            merged = {**found.fields.get("metadata", {}), **metadata}
            fields["metadata"] = {key: text for key, text in merged.items() if text is not None}
    fields = read_fields(fields)
    number = found.metageneration + 1
    new = replace(found, fields=fields, bindings=bindings, updated=now, metageneration=number)
    if "eventBasedHold" in found.fields.keys() - fields.keys():
        new = replace(new, released=now)
    replace_generation(world, found, new)
    return shown_object(world, call.request, new)


# -- lists ----------------------------------------------------------------------------------------


def list_objects(world: World, call: ApiCall, now: float) -> Json:
    """List objects in order; fold those below a delimiter into prefixes."""
    query = read_params(
        call, "prefix", "delimiter", "startOffset", "endOffset", "pageToken", "maxResults",
        "versions", "softDeleted", "matchGlob", "includeTrailingDelimiter",
        "includeFoldersAsPrefixes",
    )  # fmt: skip
    items, folded, last = list_page(world, call, query, read_token(query.get("pageToken", "")))
    answer: Json = {"kind": "storage#objects"}
    if last is not None:
        answer["nextPageToken"] = write_token(last)
    if items:
        answer["items"] = [shown_object(world, call.request, one) for one in items]
    return answer | ({"prefixes": folded} if folded else {})


def list_page(
    world: World, call: ApiCall, query: Mapping[str, str], after: Place
) -> tuple[list[StoredObject], list[str], Place | None]:
    """Return the objects and prefixes after a place, and where the page ends if there are more."""
    bucket, prefix = call.path["bucket"], query.get("prefix", "")
    named_bucket(world, call.request, bucket, "storage.objects.list", prefix)
    most = min(read_number(query, "maxResults") or PAGE_MAX, PAGE_MAX)
    items: list[StoredObject] = []
    folded: dict[str, None] = {}
    last: Place = ("", 0)
    for shown, one in listed_objects(world, bucket, query):
        is_prefix = one is None or shown != one.name
        place = (shown, 0 if one is None or is_prefix else one.generation)
        if place <= after or (is_prefix and shown in folded):
            continue
        if len(items) + len(folded) == most:
            return items, list(folded), last
        last = place
        if one is not None and not is_prefix and not is_folded(shown, query):
            items.append(one)
            continue
        folded[shown] = None
        if one is not None and not is_prefix and read_flag(query, "includeTrailingDelimiter"):
            items.append(one)
    return items, list(folded), None


def listed_objects(
    world: World, bucket: str, query: Mapping[str, str]
) -> list[tuple[str, StoredObject | None]]:
    """Return what a list is about, each with the name or the prefix that it is shown by."""
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    first, end = query.get("startOffset", ""), query.get("endOffset")
    matches = glob_pattern(query["matchGlob"]).fullmatch if "matchGlob" in query else None
    soft, versions = read_flag(query, "softDeleted"), read_flag(query, "versions")
    if soft and versions:
        raise storage_error(400, "versions and softDeleted can't be asked for together.")
    found: list[tuple[str, StoredObject | None]] = []
    if read_flag(query, "includeFoldersAsPrefixes") and delimiter == "/" and not matches:
        for folder in world.services.buckets[bucket].folders:
            if folder.startswith(prefix) and folder != prefix:
                found.append((folder[: folder.find("/", len(prefix)) + 1], None))
    objects, start = world.services.storage.objects, len(bucket) + 1
    for key in sorted(key for key in objects if key.startswith(f"{bucket}/{prefix}")):
        name = key[start:]
        if name < first or (end and name >= end) or (matches and not matches(name)):
            continue
        cut = name.find(delimiter, len(prefix)) if delimiter else -1
        shown = name if cut < 0 else name[: cut + len(delimiter)]
        for one in objects[key]:
            if (one.expires is not None) == soft and (soft or versions or one.deleted is None):
                found.append((shown, one))
    return sorted(found, key=lambda item: item[0])


def is_folded(shown: str, query: Mapping[str, str]) -> bool:
    """Whether a name is itself a prefix, because it ends with the delimiter."""
    delimiter, prefix = query.get("delimiter", ""), query.get("prefix", "")
    return bool(delimiter) and shown != prefix and shown.endswith(delimiter)


def write_token(place: Place) -> str:
    return b64encode(json.dumps(place).encode()).decode()


def read_token(token: str) -> Place:
    try:
        name, generation = json.loads(b64decode(token, validate=True)) if token else ("", 0)
        return str(name), int(generation)
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise invalid_query("pageToken", token) from None


def glob_pattern(glob: str) -> re.Pattern[str]:
    """Return a glob of Google's: `*` and `?` stop at a slash, `**` does not, `{a,b}` chooses."""
    found, depth = "", 0
    for token in GLOB.findall(glob):
        if token == "{":
            found, depth = found + "(?:", depth + 1
        elif token == "}" and depth:
            found, depth = found + ")", depth - 1
        elif token == "," and depth:
            found += "|"
        elif token.startswith("**"):
            found += "(?:.*/)?" if token.endswith("/") else ".*"
        elif token in "*?":
            found += "[^/]*" if token == "*" else "[^/]"
        elif token.startswith("[") and len(token) > 1:
            inside = token[1:-1].replace("\\", r"\\")
            found += f"[^{inside[1:]}]" if inside.startswith(("!", "^")) else f"[{inside}]"
        else:
            found += re.escape(token.removeprefix("\\") or token)
    try:
        return re.compile(found, re.DOTALL)
    except re.error:
        raise invalid_query("matchGlob", glob) from None


# -- objects made of others -----------------------------------------------------------------------


def compose_object(world: World, call: ApiCall, now: float) -> Json:
    """Make an object of others in a row; their bytes are not copied."""
    query = read_params(call, "ifGenerationMatch", "ifMetagenerationMatch", *PREDEFINED)
    place = object_place(call)
    check_conditions(query, check_write(world, call.request, *place))
    sources = call.body.get("sourceObjects")
    if not isinstance(sources, list) or not 1 <= len(sources) <= COMPONENTS_MAX:
        text = f"The number of source components must be between 1 and {COMPONENTS_MAX}."
        raise storage_error(400, text)
    found = [compose_source(world, call, one) for one in sources]
    destination = call.body.get("destination") or {}
    fields = read_fields(destination) if isinstance(destination, dict) else {}
    fields |= predefined_list(query)
    content = join_contents([one.content for one in found])
    new = publish_object(world, call.request, place, content, fields, now)
    return object_json(call.request, new)


def compose_source(world: World, call: ApiCall, source: Any) -> StoredObject:
    name = source.get("name") if isinstance(source, dict) else None
    if not isinstance(name, str):
        raise storage_error(400, "Required")
    wanted = {"generation": str(source["generation"])} if source.get("generation") else {}
    found = find_object(world, call.request, (call.path["bucket"], name), wanted, "get")
    conditions = source.get("objectPreconditions")
    wanted = conditions if isinstance(conditions, dict) else {}
    check_conditions({name: str(value) for name, value in wanted.items()}, found)
    return found


def join_contents(contents: list[Content]) -> Content:
    """Return contents in a row: their checksums are joined, an MD5 can't be."""
    crc32c = contents[0].crc32c
    for one in contents[1:]:
        crc32c = join_crc32c(crc32c, one.crc32c, one.size)
    return Content(
        parts=tuple(part for one in contents for part in one.parts),
        crc32c=crc32c,
        components=sum(max(one.components, 1) for one in contents),
    )


def rewrite_object(world: World, call: ApiCall, now: float) -> Json:
    """Copy an object, in several calls if the client limits the bytes of one."""
    query = read_params(
        call, "sourceGeneration", "rewriteToken", "maxBytesRewrittenPerCall", *PREDEFINED,
        *CONDITIONS, *SOURCE_CONDITIONS,
    )  # fmt: skip
    source, place = copy_source(world, call, query)
    most, done = read_number(query, "maxBytesRewrittenPerCall"), 0
    if most is not None and (not most or most % MIB):
        raise storage_error(400, "maxBytesRewrittenPerCall must be a multiple of 1 MiB.")
    if "rewriteToken" in query:
        name, done = read_token(query["rewriteToken"])
        if name != f"{source.generation}:{'/'.join(place)}":
            raise invalid_query("rewriteToken", query["rewriteToken"])
    size = source.content.size
    answer: Json = {"kind": "storage#rewriteResponse", "objectSize": str(size)}
    if most is not None and done + most < size:
        token = write_token((f"{source.generation}:{'/'.join(place)}", done + most))
        copied = {"totalBytesRewritten": str(done + most), "done": False, "rewriteToken": token}
        return {**answer, **copied}
    new = publish_copy(world, call, source, place, now)
    return {**answer, "totalBytesRewritten": str(size), "done": True, "resource": new}


def copy_source(
    world: World, call: ApiCall, query: Mapping[str, str]
) -> tuple[StoredObject, tuple[str, str]]:
    """Return the source of a copy and the place of its destination, if both may be used."""
    source = find_object(
        world, call.request, object_place(call), query, "get", key="sourceGeneration"
    )
    for name in SOURCE_CONDITIONS:
        read_number(query, name)
    check_conditions(query, source, of="Source")
    place = (call.path.get("target_bucket", source.bucket), call.path["target"])
    check_conditions(query, check_write(world, call.request, *place))
    return source, place


def publish_copy(
    world: World, call: ApiCall, source: StoredObject, place: tuple[str, str], now: float
) -> Json:
    given = read_fields(call.body)
    kept = {name: value for name, value in source.fields.items() if name not in HOLDS}
    fields = given if given.keys() - {"storageClass"} else {**kept, **given}
    fields = {**fields, **predefined_list(call.query)}
    new = publish_object(world, call.request, place, source.content, fields, now)
    return object_json(call.request, new)


def copy_object(world: World, call: ApiCall, now: float) -> Json:
    query = read_params(call, "sourceGeneration", *PREDEFINED, *CONDITIONS, *SOURCE_CONDITIONS)
    return publish_copy(world, call, *copy_source(world, call, query), now)


def move_object(world: World, call: ApiCall, now: float) -> Json:
    """Rename an object: at no time are there two, or none."""
    query = read_params(call, *CONDITIONS, *SOURCE_CONDITIONS)
    source, place = copy_source(world, call, query)
    named_bucket(world, call.request, source.bucket, "storage.objects.delete", source.name)
    if place == (source.bucket, source.name):
        raise storage_error(400, "The source and the destination of a move must differ.")
    check_removable(world.services.buckets[source.bucket], source, now)
    new = publish_again(world, call, source, place, now)
    retire_object(world, source, now)
    return object_json(call.request, new)


def publish_again(
    world: World, call: ApiCall, source: StoredObject, place: tuple[str, str], now: float
) -> StoredObject:
    """Publish an object anew with all that is said of it, and who may use it."""
    new = publish_object(world, call.request, place, source.content, source.fields, now)
    kept = replace(new, bindings=source.bindings)
    replace_generation(world, new, kept)
    return kept


def restore_object(world: World, call: ApiCall, now: float) -> Json:
    """Make a live object of a soft-deleted one."""
    query = read_params(call, "generation", "copySourceAcl", *CONDITIONS)
    place = object_place(call)
    before = check_write(world, call.request, *place)
    found = find_object(world, call.request, place, {**query, "softDeleted": "true"}, "create")
    check_conditions(query, before)
    source = found if read_flag(query, "copySourceAcl") else replace(found, bindings=None)
    new = publish_again(world, call, source, place, now)
    replace_generation(world, found, None)
    return object_json(call.request, new)


def bulk_restore(world: World, call: ApiCall, now: float) -> Json:
    """Restore the newest soft-deleted version of all names that match, in an operation."""
    bucket = named_bucket(world, call.request, call.path["bucket"], "storage.objects.create")
    globs, flags = call.body.get("matchGlobs") or ["**"], ("allowOverwrite", "copySourceAcl")
    if others := call.body.keys() - {"matchGlobs", *flags}:
        raise unserved_error(f"The field {min(others)}")
    if not isinstance(globs, list) or not all(isinstance(glob, str) for glob in globs):
        raise storage_error(400, "Invalid argument: matchGlobs must be a list of texts.")
    overwrites, keeps_list = (call.body.get(name) is True for name in flags)
    if overwrites:
        named_bucket(world, call.request, bucket.name, "storage.objects.delete")
    found: dict[str, StoredObject] = {}
    for glob in globs:
        query = {"softDeleted": "true", "matchGlob": glob}
        found |= {one.name: one for _, one in listed_objects(world, bucket.name, query) if one}
    for name, one in found.items():
        if overwrites or find_live(world, bucket.name, name) is None:
            source = one if keeps_list else replace(one, bindings=None)
            publish_again(world, call, source, (bucket.name, name), now)
            replace_generation(world, one, None)
    id = f"{world.services.dice.random_bits():x}"
    name = f"projects/_/buckets/{bucket.name}/operations/{id}"
    operation: Json = {"kind": "storage#operation", "name": name, "done": True, "response": {}}
    changed = replace(bucket, operations={**bucket.operations, id: operation})
    world.services.buckets[bucket.name] = changed
    return operation


OBJECT = "/storage/v1/b/{bucket}/o/{object}"
ROUTES = (
    Route("GET", "/storage/v1/b/{bucket}/o", list_objects),
    Route("GET", OBJECT, get_object),
    Route("GET", f"/download{OBJECT}", get_object),
    Route("DELETE", OBJECT, delete_object),
    Route("PATCH", OBJECT, patch_object),
    Route("PUT", OBJECT, patch_object),
    Route("POST", f"{OBJECT}/compose", compose_object),
    Route("POST", f"{OBJECT}/rewriteTo/b/{{target_bucket}}/o/{{target}}", rewrite_object),
    Route("POST", f"{OBJECT}/copyTo/b/{{target_bucket}}/o/{{target}}", copy_object),
    Route("POST", f"{OBJECT}/moveTo/o/{{target}}", move_object),
    Route("POST", f"{OBJECT}/restore", restore_object),
    Route("POST", "/storage/v1/b/{bucket}/o/bulkRestore", bulk_restore),
)
