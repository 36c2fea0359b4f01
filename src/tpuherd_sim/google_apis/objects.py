"""The objects of Cloud Storage as one table: which generations exist, and how each is shown."""

import re
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, quote

from tpuherd_sim.google_apis.bucket_access import (
    UNIFORM_MORE,
    UNMET,
    caller_name,
    check_permission,
    check_public,
    named_bucket,
    object_bindings,
    storage_error,
    unserved_error,
)
from tpuherd_sim.google_apis.object_rules import (
    DAY,
    HOLDS,
    check_removable,
    due_action,
    retained_until,
)
from tpuherd_sim.google_apis.storage_roles import CLASSES
from tpuherd_sim.model.compute_state import Bucket, format_compute_time
from tpuherd_sim.model.http_types import ApiCall, ApiError, Json, Request, google_host
from tpuherd_sim.model.storage_state import Content, StoredObject
from tpuherd_sim.model.world import World, schedule_event
from tpuherd_sim.model.world_parts import AgendaItem

CONDITIONS = (
    "ifGenerationMatch", "ifGenerationNotMatch",
    "ifMetagenerationMatch", "ifMetagenerationNotMatch",
)  # fmt: skip
ETAG_CONDITIONS = ("if-match", "if-none-match")
#: What a writer may say of an object, and what this world would have to ignore.
TEXTS = (
    "cacheControl", "contentDisposition", "contentEncoding", "contentLanguage", "contentType",
    "customTime", "storageClass",
)  # fmt: skip
UNSERVED = ("acl", "contexts", "kmsKeyName", "retention")
BREAKS = re.compile(r"[\r\n\0]")  #: would end a header
PREDEFINED = ("predefinedAcl", "destinationPredefinedAcl")
#: Whom each predefined list of an object names beside its owner: the role and the member.
PREDEFINED_LISTS: Mapping[str, tuple[str, str]] = {
    "authenticatedRead": ("Reader", "allAuthenticatedUsers"),
    "bucketOwnerFullControl": ("Owner", "projectOwner:{}"),
    "bucketOwnerRead": ("Reader", "projectOwner:{}"),
    "private": ("Owner", ""),
    "publicRead": ("Reader", "allUsers"),
}
UNSERVED_PARAMETERS = frozenset(
    {
        "destinationKmsKeyName", *PREDEFINED, "dropContextGroups", "filter", "kmsKeyName",
        "overrideUnlockedRetention", "predefinedDefaultObjectAcl", "restoreToken", "softDeleted",
    }
)  # fmt: skip
EXPIRE, EXPIRE_BUCKET, LIFECYCLE = "object.expire", "bucket.expire", "bucket.lifecycle"
OBJECT_OWNER = "roles/storage.legacyObjectOwner"


def read_params(call: ApiCall, *served: str) -> dict[str, str]:
    """Return the query; refuse a parameter of Google's that would have to be ignored.

    Google ignores what it does not know, and TensorStore relies on that.
    """
    query = {name: value for name, value in parse_qsl(call.request.query) if value}
    for name in query:
        if name in UNSERVED_PARAMETERS and name not in served:
            raise unserved_error(name)
    headers = call.request.headers
    if any("-encryption-" in name for name in headers):
        raise unserved_error("A key of your own")
    for name in CONDITIONS:
        read_number(query, name)
    return query | {name: headers[name] for name in ETAG_CONDITIONS if name in headers}


def read_flag(query: Mapping[str, str], name: str) -> bool:
    text = query.get(name, "").lower()
    if text not in ("", "false", "true"):
        raise invalid_query(name, text)
    return text == "true"


def read_number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,19}", text):
        raise invalid_query(name, text)
    return int(text)


def invalid_query(name: str, value: str) -> ApiError:
    return storage_error(400, f"Invalid value for query parameter {name}: '{value}'.")


def check_conditions(
    query: Mapping[str, str], found: StoredObject | None, *, reads: bool = False, of: str = ""
) -> None:
    """Check ifGenerationMatch and its like; 0 means that the object does not exist."""
    for name in CONDITIONS:
        wanted = query.get(f"if{of}{name[2:]}")
        if wanted is None:
            continue
        if found is None:
            number = None if "Meta" in name else 0
        else:
            number = found.metageneration if "Meta" in name else found.generation
        negated = name.endswith("NotMatch")
        if (str(number) == wanted) == negated:
            raise storage_error(304 if reads and negated else 412, UNMET)
    for name in ETAG_CONDITIONS:
        sent, negated = query.get(name), name == "if-none-match"
        matches = found is not None and (sent == "*" or object_etag(found) in (sent or ""))
        if sent and not of and matches == negated:
            raise storage_error(304 if reads and negated else 412, UNMET)


def read_fields(body: Json) -> dict[str, Any]:
    """Return what a writer says of an object."""
    for name in UNSERVED:
        if body.get(name):
            raise unserved_error(f"The field {name}")
    found = {name: body[name] for name in (*TEXTS, "metadata") if body.get(name) is not None}
    metadata = found.get("metadata", {})
    texts = [found[name] for name in TEXTS if name in found]
    if isinstance(metadata, dict):
        texts += metadata.values()
    if not isinstance(metadata, dict) or not all(
        isinstance(one, str) and not BREAKS.search(one) for one in texts
    ):
        raise storage_error(400, "Invalid argument: what is said of an object must be texts.")
    if "storageClass" in found:
        found["storageClass"] = storage_class(found["storageClass"])
    return found | {name: True for name in HOLDS if body.get(name) is True}


def storage_class(sent: str) -> str:
    if sent.upper() not in CLASSES:
        raise storage_error(400, f"Invalid storage class: '{sent}'")
    return sent.upper()


# -- the table ------------------------------------------------------------------------------------


def object_place(call: ApiCall) -> tuple[str, str]:
    """Return the bucket and the name of the object of a path."""
    return call.path["bucket"], call.path["object"]


def object_key(bucket: str, name: str) -> str:
    return f"{bucket}/{name}"


def find_live(world: World, bucket: str, name: str) -> StoredObject | None:
    known = world.services.storage.objects.get(object_key(bucket, name), ())
    return known[-1] if known and known[-1].deleted is None else None


def find_object(
    world: World,
    request: Request,
    place: tuple[str, str],
    query: Mapping[str, str],
    permission: str,
    key: str = "generation",
) -> StoredObject:
    """Return the live object, or the generation that the query names, if the caller may."""
    found = find_object_if_any(world, request, place, query, permission, key)
    if found is None:
        raise storage_error(404, "No such object: " + "/".join(place))
    return found


def find_object_if_any(
    world: World,
    request: Request,
    place: tuple[str, str],
    query: Mapping[str, str],
    permission: str,
    key: str = "generation",
) -> StoredObject | None:
    bucket = named_bucket(world, request, place[0], "")
    wanted, soft = read_number(query, key), read_flag(query, "softDeleted")
    if soft and wanted is None:
        raise storage_error(400, "A soft-deleted object needs its generation.")
    found = find_live(world, *place)
    if wanted is not None:
        known = world.services.storage.objects.get(object_key(*place), ())
        named = [one for one in known if one.generation == wanted]
        found = next((one for one in named if (one.expires is not None) == soft), None)
    if permission:
        name = f"storage.objects.{permission}"
        check_permission(world, bucket, request, name, place[1], found)
    return found


def check_write(world: World, request: Request, bucket: str, name: str) -> StoredObject | None:
    """Return the object that a write would replace, if the caller may write."""
    named_bucket(world, request, bucket, "storage.objects.create", name)
    if not name or len(name.encode()) > 1024 or "\n" in name or "\r" in name or name in (".", ".."):
        raise storage_error(400, f"Invalid object name: '{name}'" if name else "Required")
    before = find_live(world, bucket, name)
    if before is not None:
        named_bucket(world, request, bucket, "storage.objects.delete", name)
    return before


def publish_object(
    world: World,
    request: Request,
    place: tuple[str, str],
    content: Content,
    fields: Mapping[str, Any],
    now: float,
) -> StoredObject:
    """Make a new generation the live one, all at once."""
    bucket = world.services.buckets[place[0]]
    bindings = new_bindings(world, bucket, request, fields.get("predefinedAcl", ""))
    fields = {name: value for name, value in fields.items() if name != "predefinedAcl"}
    before = find_live(world, *place)
    if before is not None:
        retire_object(world, before, now)
    if bucket.default_hold:
        fields = {**fields, "eventBasedHold": True}
    storage, key = world.services.storage, object_key(*place)
    storage.newest = max(int(now * 1e6), storage.newest + 1)
    new = StoredObject(
        bucket=place[0],
        name=place[1],
        generation=storage.newest,
        content=content,
        created=now,
        updated=now,
        fields=fields,
        bindings=bindings,
    )
    storage.add_references(content.parts)
    storage.objects[key] = (*storage.objects.get(key, ()), new)
    return new


def predefined_list(query: Mapping[str, str]) -> dict[str, str]:
    """Return the predefined access list that a request names, as a field of the new object."""
    named = [query[name] for name in PREDEFINED if name in query]
    return {"predefinedAcl": named[0]} if named else {}


def new_bindings(
    world: World, bucket: Bucket, request: Request, predefined: str
) -> Mapping[str, tuple[str, ...]] | None:
    """Return who may use a new object; None where access is uniform."""
    if bucket.uniform:
        if predefined:
            text = "Cannot insert legacy ACL for an object when uniform bucket-level access is"
            raise storage_error(400, f"{text} enabled.{UNIFORM_MORE}")
        return None
    usual, owner = object_bindings(bucket), f"serviceAccount:{caller_name(world, request)}"
    if predefined not in ("", "projectPrivate"):
        if predefined not in PREDEFINED_LISTS:
            raise invalid_query("predefinedAcl", predefined)
        role, member = PREDEFINED_LISTS[predefined]
        named = (member.format(bucket.project),) if member else ()
        usual = {f"roles/storage.legacyObject{role}": named}
        check_public(bucket, usual)
    owners = (*usual.get(OBJECT_OWNER, ()), owner)
    return {**usual, OBJECT_OWNER: tuple(dict.fromkeys(owners))}


def retire_object(
    world: World, old: StoredObject, now: float, *, by_generation: bool = False
) -> None:
    """Take a generation away, as the bucket says: noncurrent unless it was named, soft-deleted
    or gone.
    """
    bucket = world.services.buckets[old.bucket]
    if not bucket.versioned or by_generation:
        check_removable(bucket, old, now)
    remove_generation(world, bucket, old, now, by_generation=by_generation)


def remove_generation(
    world: World, bucket: Bucket, old: StoredObject, now: float, *, by_generation: bool
) -> None:
    if bucket.versioned and old.deleted is None and not by_generation:
        replace_generation(world, old, replace(old, deleted=now))
    elif bucket.soft_delete_s:
        expires = now + bucket.soft_delete_s
        replace_generation(world, old, replace(old, deleted=now, expires=expires))
        key = object_key(old.bucket, old.name)
        schedule_event(world, expires, EXPIRE, key, generation=old.generation)
    else:
        replace_generation(world, old, None)


def replace_generation(world: World, old: StoredObject, new: StoredObject | None) -> None:
    storage, key = world.services.storage, object_key(old.bucket, old.name)
    kept = [new if one is old else one for one in storage.objects[key]]
    left = tuple(one for one in kept if one is not None)
    if new is None:
        storage.drop_references(old.content.parts)
    if left:
        storage.objects[key] = left
    else:
        del storage.objects[key]


def expire_object(world: World, due: AgendaItem) -> None:
    """Drop a soft-deleted object whose time is over, if it was not restored."""
    for one in world.services.storage.objects.get(due.target, ()):
        if one.generation == due.args["generation"] and one.expires == due.at:
            replace_generation(world, one, None)


def all_versions(world: World, bucket: str) -> list[StoredObject]:
    objects = world.services.storage.objects
    return [one for key in objects if key.startswith(f"{bucket}/") for one in objects[key]]


def forget_bucket(world: World, name: str) -> None:
    """Forget a soft-deleted bucket, with its soft-deleted objects."""
    if world.services.deleted_buckets.pop(name, None) is not None:
        for one in all_versions(world, name):
            replace_generation(world, one, None)


def expire_bucket(world: World, due: AgendaItem) -> None:
    found = world.services.deleted_buckets.get(due.target)
    if found is not None and found.deleted + found.soft_delete_s == due.at:
        forget_bucket(world, due.target)


def apply_lifecycle(world: World, due: AgendaItem) -> None:
    """Do what the rules of a bucket say, once a day while it has some."""
    bucket = world.services.buckets.get(due.target)
    if bucket is None or not bucket.lifecycle or bucket.lifecycle_since != due.args["since"]:
        return
    objects = world.services.storage.objects
    for key in [key for key in objects if key.startswith(f"{bucket.name}/")]:
        kept = [one for one in objects[key] if one.expires is None]
        for newer, one in enumerate(reversed(kept)):
            apply_rule(world, bucket, one, newer, due.at)
    schedule_event(world, due.at + DAY, LIFECYCLE, bucket.name, since=bucket.lifecycle_since)


def apply_rule(world: World, bucket: Bucket, one: StoredObject, newer: int, now: float) -> None:
    action = due_action(bucket, one, newer, now)
    if action is None:
        return
    if action["type"] == "SetStorageClass":
        fields = {**one.fields, "storageClass": action["storageClass"]}
        replace_generation(world, one, replace(one, fields=fields))
        return
    with suppress(ApiError):  # a hold or the retention keeps it
        check_removable(bucket, one, now)
        gone = one.deleted is not None
        remove_generation(world, bucket, one, now, by_generation=gone)


# -- how it is shown ------------------------------------------------------------------------------


def base_url(request: Request, default: str = "www.googleapis.com") -> str:
    """Return the address by which the client asked: Google's names are always behind TLS."""
    host = request.headers.get("host") or default
    scheme = "https" if google_host(request) or host == default else "http"
    return f"{scheme}://{host}"


def object_etag(one: StoredObject) -> str:
    """Return Google's etag: the two numbers as a message of protobuf in base64."""
    return b64encode(
        b"\x08" + encode_varint(one.generation) + b"\x10" + encode_varint(one.metageneration)
    ).decode()


def encode_varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes((*found, number))


def object_json(request: Request, one: StoredObject, bucket: Bucket | None = None) -> Json:
    path = f"/storage/v1/b/{one.bucket}/o/{quote(one.name, safe='')}"
    base, created = base_url(request), format_compute_time(one.created)
    answer: Json = {
        "kind": "storage#object",
        "id": f"{one.bucket}/{one.name}/{one.generation}",
        "selfLink": base + path,
        "mediaLink": f"{base}/download{path}?generation={one.generation}&alt=media",
        "name": one.name,
        "bucket": one.bucket,
        "generation": str(one.generation),
        "metageneration": str(one.metageneration),
        "contentType": "application/octet-stream",
        "storageClass": "STANDARD",
        "size": str(one.content.size),
        "crc32c": one.content.crc32c,
        "etag": object_etag(one),
        "timeCreated": created,
        "updated": format_compute_time(one.updated),
        "timeStorageClassUpdated": created,
        "timeFinalized": created,
        **one.fields,
    }
    if one.content.md5:
        answer["md5Hash"] = one.content.md5
    if one.content.components:
        answer["componentCount"] = one.content.components
    if one.deleted is not None and one.expires is None:
        answer["timeDeleted"] = format_compute_time(one.deleted)
    if one.deleted is not None and one.expires is not None:
        answer["softDeleteTime"] = format_compute_time(one.deleted)
        answer["hardDeleteTime"] = format_compute_time(one.expires)
    until = retained_until(bucket, one) if bucket else None
    return answer | ({"retentionExpirationTime": format_compute_time(until)} if until else {})


AGENDA = {EXPIRE: expire_object, EXPIRE_BUCKET: expire_bucket, LIFECYCLE: apply_lifecycle}
