"""Cloud Storage's buckets: their metadata, not their objects."""

import re
from base64 import b64encode
from dataclasses import replace
from typing import Any

from tpuherd.catalogue import bucket_locations, regions
from tpuherd_sim.google_apis import access_lists, managed_folders
from tpuherd_sim.google_apis.access_lists import sent_lists, shown_lists
from tpuherd_sim.google_apis.bucket_access import (
    bucket_bindings,
    check_metageneration,
    check_permission,
    find_bucket,
    storage_error,
    unserved_error,
)
from tpuherd_sim.google_apis.links import is_own_project
from tpuherd_sim.google_apis.object_rules import (
    DAY,
    is_set,
    read_rules,
    rules_json,
)
from tpuherd_sim.google_apis.objects import (
    EXPIRE_BUCKET,
    LIFECYCLE,
    all_versions,
    encode_varint,
    forget_bucket,
    read_flag,
    read_params,
    storage_class,
)
from tpuherd_sim.google_apis.pagination import paginate_items, take_page
from tpuherd_sim.model.compute_state import Bucket, format_compute_time
from tpuherd_sim.model.http_types import ApiCall, Json, Response
from tpuherd_sim.model.world import World, schedule_event
from tpuherd_sim.tpu.router import Route

#: What this world would have to ignore.
UNSERVED = (
    "acl", "autoclass", "billing", "defaultObjectAcl", "encryption", "hierarchicalNamespace",
    "ipFilter", "logging", "objectRetention",
)  # fmt: skip
#: What a bucket or the project has none of, with the kinds of the empty lists.
ABSENT = {
    "b/{bucket}/notificationConfigs": "notifications",
    "b/{bucket}/anywhereCaches": "anywhereCaches",
    "b/{bucket}/rapidCaches": "rapidCaches",
    "projects/{project}/hmacKeys": "hmacKeysMetadata",
}
KNOWN = {
    True: "Your previous request to create the named bucket succeeded and you already own it.",
    False: "The requested bucket name is not available. The bucket namespace is shared by all "
    "users of the system. Please select a different name and try again.",
}
SOFT_S = (7 * 86400, 90 * 86400)
NAME = re.compile(
    r"(?!goog|.*(google|g00gle|\.[.-]|-\.)|(\d+\.){3}\d+\Z|.*[^.]{64})[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"
)


def bucket_json(world: World, bucket: Bucket) -> Json:
    answer: Json = {
        "kind": "storage#bucket",
        "id": bucket.name,
        "selfLink": f"https://www.googleapis.com/storage/v1/b/{bucket.name}",
        "name": bucket.name,
        "projectNumber": str(world.settings.project_number),
        "generation": str(int(bucket.created * 1e6)),
        "metageneration": str(bucket.metageneration),
        "location": bucket.location,
        "locationType": bucket.kind,
        "storageClass": bucket.storage_class,
        "etag": b64encode(b"\x08" + encode_varint(bucket.metageneration)).decode(),
        "timeCreated": format_compute_time(bucket.created),
        "updated": format_compute_time(bucket.created),
        "iamConfiguration": {
            "bucketPolicyOnly": {"enabled": bucket.uniform},
            "uniformBucketLevelAccess": {"enabled": bucket.uniform},
            "publicAccessPrevention": bucket.public_access,
        },
        "softDeletePolicy": {
            "retentionDurationSeconds": str(bucket.soft_delete_s),
            "effectiveTime": format_compute_time(bucket.created),
        },
    }
    if bucket.deleted:
        answer["softDeleteTime"] = format_compute_time(bucket.deleted)
        answer["hardDeleteTime"] = format_compute_time(bucket.deleted + bucket.soft_delete_s)
    if bucket.versioned:
        answer["versioning"] = {"enabled": True}
    if bucket.kind != "region":
        answer["rpo"] = "DEFAULT"
    if bucket.regions:
        answer["customPlacementConfig"] = {"dataLocations": list(bucket.regions)}
    if bucket.labels:
        answer["labels"] = dict(bucket.labels)
    return {**answer, **bucket.said, **rules_json(bucket)}


def get_bucket(world: World, call: ApiCall, now: float) -> Json:
    if read_flag(read_params(call, "softDeleted"), "softDeleted"):
        return bucket_json(world, deleted_bucket(world, call, "storage.buckets.get"))
    bucket = find_bucket(world, call, "storage.buckets.get")
    check_metageneration(call, bucket.metageneration)
    return bucket_json(world, bucket) | shown_lists(world, call.request, bucket)


def list_buckets(world: World, call: ApiCall, now: float) -> Json:
    asked_project(world, call)
    soft = read_flag(read_params(call, "softDeleted"), "softDeleted")
    known = world.services.deleted_buckets if soft else world.services.buckets
    prefix = call.query.get("prefix", "")
    buckets = [
        bucket_json(world, bucket) | shown_lists(world, call.request, bucket)
        for name, bucket in sorted(known.items())
        if is_own_project(world, bucket.project) and name.startswith(prefix)
    ]
    return {"kind": "storage#buckets", **paginate_items(buckets, call.query, most=1000)}


def insert_bucket(world: World, call: ApiCall, now: float) -> Json:
    """Create a bucket. A query that names another project creates one that the world
    may not read.
    """
    read_params(call)
    project, body = asked_project(world, call, others=True), call.body
    name = body.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise storage_error(400, f"Invalid bucket name: '{name}'")
    known = world.services.buckets.get(name)
    if known is not None:
        raise storage_error(409, KNOWN[is_own_project(world, known.project)])
    location, kind, placed = bucket_placement(body)
    bucket = Bucket(
        name=name,
        project=project,
        location=location,
        kind=kind,
        regions=placed,
        created=now,
        retention_since=now,
        **{"storage_class": "STANDARD", **read_settings(body)},
    )
    forget_bucket(world, name)
    store_bucket(world, bucket, None, now)
    return bucket_json(world, bucket)


def patch_bucket(world: World, call: ApiCall, now: float) -> Json:
    """Change a bucket's labels, class, access, versions or soft deletion; the rest stays."""
    read_params(call)
    bucket = find_bucket(world, call, "storage.buckets.update")
    check_metageneration(call, bucket.metageneration)
    body = {name: value for name, value in call.body.items() if name not in access_lists.FIELDS}
    changes = read_settings(body, bucket)
    if changes.get("uniform", bucket.uniform) != bucket.uniform:
        if bucket.folders:  # words assumed
            text = "Uniform bucket-level access can't be disabled while there are managed folders."
            raise storage_error(400, text)
        changes["bindings"] = bucket_bindings(bucket)
    changes |= sent_lists(world, call)
    if "bindings" in changes:
        changes["policy_version"] = bucket.policy_version + 1
    if changes.get("retention_s") and not bucket.retention_s:
        changes["retention_since"] = now
    changed = replace(bucket, **changes, metageneration=bucket.metageneration + 1)
    store_bucket(world, changed, bucket, now)
    return bucket_json(world, changed) | shown_lists(world, call.request, changed)


def read_settings(body: Json, before: Bucket | None = None) -> dict[str, Any]:
    """Return the fields of a bucket that its writer sets; refuse what would be ignored."""
    for name in UNSERVED:
        if is_set(body.get(name)):
            raise unserved_error(f"The field {name}")
    found = read_rules(body, before)
    if body.get("storageClass"):
        found["storage_class"] = storage_class(str(body["storageClass"]))
    if "labels" in body:
        given = body["labels"] or {}
        texts = given.values() if isinstance(given, dict) else [0]
        if not all(isinstance(text, str | None) for text in texts):
            raise storage_error(400, "Invalid labels: both names and values must be text.")
        given = {**(before.labels if before else {}), **given}
        found["labels"] = {key: text for key, text in given.items() if text is not None}
    if "iamConfiguration" in body:
        found["uniform"], found["public_access"] = access_settings(body, before)
    versioning, policy = body.get("versioning") or {}, body.get("softDeletePolicy") or {}
    if not isinstance(versioning, dict) or not isinstance(policy, dict):
        raise storage_error(400, "Invalid argument: versioning or softDeletePolicy.")
    if "enabled" in versioning:
        found["versioned"] = versioning["enabled"] is True
    seconds = str(policy.get("retentionDurationSeconds", ""))
    if seconds not in ("", "0") and not (
        re.fullmatch("[0-9]{1,9}", seconds) and SOFT_S[0] <= int(seconds) <= SOFT_S[1]
    ):
        text = "Invalid argument: retentionDurationSeconds must be 0, or between 7 and 90 days."
        raise storage_error(400, text)
    return found | ({"soft_delete_s": int(seconds)} if seconds else {})


def store_bucket(world: World, bucket: Bucket, before: Bucket | None, now: float) -> None:
    if bucket.lifecycle and not (before and before.lifecycle):
        bucket = replace(bucket, lifecycle_since=now)
        schedule_event(world, now + DAY, LIFECYCLE, bucket.name, since=now)
    world.services.buckets[bucket.name] = bucket


def lock_retention(world: World, call: ApiCall, now: float) -> Json:
    """Lock the retention of a bucket: from then on it can only become longer."""
    bucket = find_bucket(world, call, "storage.buckets.update")
    if "ifMetagenerationMatch" not in call.query:
        raise storage_error(400, "Required parameter: ifMetagenerationMatch")
    check_metageneration(call, bucket.metageneration)
    if not bucket.retention_s:
        raise storage_error(400, "The bucket has no retention policy.")  # words assumed
    number = bucket.metageneration + 1
    changed = replace(bucket, retention_locked=True, metageneration=number)
    world.services.buckets[bucket.name] = changed
    return bucket_json(world, changed)


def bucket_placement(body: Json) -> tuple[str, str, tuple[str, ...]]:
    """Return a new bucket's location, location type and custom regions."""
    wanted = body.get("location") or "US"
    location = wanted.upper() if isinstance(wanted, str) else ""
    custom = body.get("customPlacementConfig")
    if custom is not None:
        return location, "dual-region", dual_region_pair(location, custom)
    if location.lower() in regions():
        return location, "region", ()
    known = bucket_locations().get(location)
    if known is None:
        raise storage_error(400, "The specified location constraint is not valid.")
    return location, known.kind, ()


def dual_region_pair(location: str, custom: Any) -> tuple[str, ...]:
    """Return the two regions of a user-defined dual-region."""
    chosen = custom.get("dataLocations") if isinstance(custom, dict) else None
    known = bucket_locations().get(location)
    if (
        known is None
        or known.kind != "multi-region"
        or not isinstance(chosen, list)
        or len(chosen) != 2
        or not all(
            isinstance(name, str)
            and name.lower() in regions()
            and regions()[name.lower()].continent == known.continent
            for name in chosen
        )
    ):
        raise storage_error(400, "The specified custom placement config is not valid.")
    return tuple(name.upper() for name in chosen)


def access_settings(body: Json, before: Bucket | None) -> tuple[bool, str]:
    """Return whether access is uniform (the default here), and whether public access is
    prevented.
    """
    given = body.get("iamConfiguration") or {}
    uniform = given.get("uniformBucketLevelAccess") or {} if isinstance(given, dict) else None
    if not isinstance(uniform, dict) or not isinstance(uniform.get("enabled", True), bool):
        raise storage_error(400, "Invalid argument: iamConfiguration.")
    usual = (before.uniform, before.public_access) if before else (True, "inherited")
    public_access = given.get("publicAccessPrevention", usual[1])
    if public_access not in ("inherited", "enforced"):
        raise storage_error(400, "Invalid argument: publicAccessPrevention.")
    return uniform.get("enabled", usual[0]), public_access


def asked_project(world: World, call: ApiCall, *, others: bool = False) -> str:
    """Return the project of a request; what Google's client says for none is the world's."""
    project = {"project": "", **call.query, **call.path}["project"]
    project = world.settings.project if project == "<none>" else project
    if not project:
        raise storage_error(400, "Required parameter: project")
    if not others and not is_own_project(world, project):
        raise storage_error(404, "The requested project was not found.")
    return project


def storage_account(world: World, call: ApiCall, now: float) -> Json:
    asked_project(world, call)
    email = f"service-{world.settings.project_number}@gs-project-accounts.iam.gserviceaccount.com"
    return {"kind": "storage#serviceAccount", "email_address": email}


def storage_layout(world: World, call: ApiCall, now: float) -> Json:
    """Return a bucket's location, and that its names are no folders."""
    bucket = find_bucket(world, call, "storage.objects.list")
    shown = bucket_json(world, bucket)
    kept = ("location", "locationType", "customPlacementConfig")
    return {
        "kind": "storage#storageLayout",
        "bucket": bucket.name,
        **{name: shown[name] for name in kept if name in shown},
        "hierarchicalNamespace": {"enabled": False},
    }


def deleted_bucket(world: World, call: ApiCall, permission: str) -> Bucket:
    """Return the soft-deleted bucket of the path, which its generation names."""
    found, wanted = world.services.deleted_buckets.get(call.path["bucket"]), call.query
    if "generation" not in wanted:
        raise storage_error(400, "A soft-deleted bucket needs its generation.")
    if found is None or wanted["generation"] != bucket_json(world, found)["generation"]:
        raise storage_error(404, "The specified bucket does not exist.")
    check_permission(world, found, call.request, permission)
    return found


def restore_bucket(world: World, call: ApiCall, now: float) -> Json:
    """Make a live bucket of a soft-deleted one; its objects can be restored then."""
    found = deleted_bucket(world, call, "storage.buckets.restore")
    del world.services.deleted_buckets[found.name]
    bucket = replace(found, deleted=0.0, metageneration=found.metageneration + 1)
    world.services.buckets[bucket.name] = bucket
    return bucket_json(world, bucket)


def delete_bucket(world: World, call: ApiCall, now: float) -> Response:
    """Delete an empty bucket. It can be restored for as long as it says, or until there is a new
    one of its name.
    """
    bucket = find_bucket(world, call, "storage.buckets.delete")
    check_metageneration(call, bucket.metageneration)
    if any(one.expires is None for one in all_versions(world, bucket.name)):
        raise storage_error(409, "The bucket you tried to delete is not empty.")
    del world.services.buckets[bucket.name]
    world.services.deleted_buckets[bucket.name] = replace(bucket, deleted=now)
    if bucket.soft_delete_s:
        schedule_event(world, now + bucket.soft_delete_s, EXPIRE_BUCKET, bucket.name)
    else:
        forget_bucket(world, bucket.name)
    return Response(status=204)


# -- operations, and what there is none of --------------------------------------------------------


def get_operation(world: World, call: ApiCall, now: float) -> Json:
    bucket = find_bucket(world, call, "storage.buckets.get")
    found = bucket.operations.get(call.path["operation"])
    if found is None:
        raise storage_error(404, "The specified operation does not exist.")
    return dict(found)


def cancel_operation(world: World, call: ApiCall, now: float) -> Response:
    """Accept to cancel an operation, each of which has ended already."""
    get_operation(world, call, now)
    return Response(status=204)


def list_operations(world: World, call: ApiCall, now: float) -> Json:
    read_params(call)
    bucket = find_bucket(world, call, "storage.buckets.get")
    page = take_page("operations", [*bucket.operations.values()], call.query, 1000)
    return {"kind": "storage#operations", **page}


def list_nothing(world: World, call: ApiCall, now: float) -> Json:
    """Return an empty list: the world creates nothing of the kind."""
    if "bucket" in call.path:
        find_bucket(world, call, "storage.buckets.get")
    else:
        asked_project(world, call)
    name = call.request.path.strip("/").split("/")[4]
    return {"kind": next(f"storage#{kind}" for path, kind in ABSENT.items() if name in path)}


OPERATIONS = "/storage/v1/b/{bucket}/operations"
ROUTES = (
    Route("GET", "/storage/v1/b", list_buckets),
    Route("POST", "/storage/v1/b", insert_bucket),
    Route("GET", "/storage/v1/b/{bucket}", get_bucket),
    Route("PATCH", "/storage/v1/b/{bucket}", patch_bucket),
    Route("PUT", "/storage/v1/b/{bucket}", patch_bucket),
    Route("DELETE", "/storage/v1/b/{bucket}", delete_bucket),
    Route("GET", "/storage/v1/projects/{project}/serviceAccount", storage_account),
    Route("GET", "/storage/v1/b/{bucket}/storageLayout", storage_layout),
    Route("POST", "/storage/v1/b/{bucket}/restore", restore_bucket),
    Route("POST", "/storage/v1/b/{bucket}/lockRetentionPolicy", lock_retention),
    Route("GET", OPERATIONS, list_operations),
    Route("GET", f"{OPERATIONS}/{{operation}}", get_operation),
    Route("POST", f"{OPERATIONS}/{{operation}}/cancel", cancel_operation),
    *(Route("GET", f"/storage/v1/{path}", list_nothing) for path in ABSENT),
    *access_lists.ROUTES,
    *managed_folders.ROUTES,
)
