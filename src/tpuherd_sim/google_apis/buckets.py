"""Cloud Storage's buckets: their metadata, not their objects."""

import re
from collections.abc import Mapping
from typing import Any

from tpuherd.catalogue import bucket_locations, regions
from tpuherd_sim.google_apis import bucket_access
from tpuherd_sim.google_apis.bucket_access import find_bucket, storage_error
from tpuherd_sim.google_apis.links import is_own_project
from tpuherd_sim.google_apis.pagination import paginate_items
from tpuherd_sim.model.compute_state import Bucket, format_compute_time
from tpuherd_sim.model.http_types import ApiCall, Json, Response
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu.router import Route

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
CLASSES = frozenset(
    {
        "STANDARD", "NEARLINE", "COLDLINE", "ARCHIVE",
        "MULTI_REGIONAL", "REGIONAL", "DURABLE_REDUCED_AVAILABILITY",
    }
)  # fmt: skip


def bucket_json(world: World, bucket: Bucket) -> Json:
    answer: Json = {
        "kind": "storage#bucket",
        "id": bucket.name,
        "selfLink": f"https://www.googleapis.com/storage/v1/b/{bucket.name}",
        "name": bucket.name,
        "projectNumber": str(world.settings.project_number),
        "metageneration": "1",
        "location": bucket.location,
        "locationType": bucket.kind,
        "storageClass": bucket.storage_class,
        "etag": "CAE=",
        "timeCreated": format_compute_time(bucket.created),
        "updated": format_compute_time(bucket.created),
        "iamConfiguration": {
            "bucketPolicyOnly": {"enabled": bucket.uniform},
            "uniformBucketLevelAccess": {"enabled": bucket.uniform},
            "publicAccessPrevention": bucket.public_access,
        },
    }
    if bucket.kind != "region":
        answer["rpo"] = "DEFAULT"
    if bucket.regions:
        answer["customPlacementConfig"] = {"dataLocations": list(bucket.regions)}
    if bucket.labels:
        answer["labels"] = dict(bucket.labels)
    return answer


def get_bucket(world: World, call: ApiCall, now: float) -> Json:
    return bucket_json(world, find_bucket(world, call, "storage.buckets.get"))


def list_buckets(world: World, call: ApiCall, now: float) -> Json:
    check_own_project(world, call)
    prefix = call.query.get("prefix", "")
    buckets = [
        bucket_json(world, bucket)
        for name, bucket in sorted(world.services.buckets.items())
        if is_own_project(world, bucket.project) and name.startswith(prefix)
    ]
    return {"kind": "storage#buckets", **paginate_items(buckets, call.query, most=1000)}


def insert_bucket(world: World, call: ApiCall, now: float) -> Json:
    """Create a bucket. A query that names another project creates one that the world
    may not read.
    """
    project, body = call.query.get("project", ""), call.body
    if not project:
        raise storage_error(400, "Required parameter: project")
    name = body.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name) or ".." in name:
        raise storage_error(400, f"Invalid bucket name: '{name}'")
    known = world.services.buckets.get(name)
    if known is not None and is_own_project(world, known.project):
        raise storage_error(
            409,
            "Your previous request to create the named bucket succeeded and you already own it.",
        )
    if known is not None:
        raise storage_error(
            409,
            "The requested bucket name is not available. The bucket namespace is shared by all "
            "users of the system. Please select a different name and try again.",
        )
    storage_class = body.get("storageClass") or "STANDARD"
    if storage_class not in CLASSES:
        raise storage_error(400, f"Invalid storage class: '{storage_class}'")
    location, kind, placed = bucket_placement(body)
    uniform, public_access = access_settings(body)
    bucket = Bucket(
        name=name,
        project=project,
        location=location,
        kind=kind,
        regions=placed,
        storage_class=storage_class,
        created=now,
        labels=bucket_labels(body),
        uniform=uniform,
        public_access=public_access,
    )
    world.services.buckets[name] = bucket
    return bucket_json(world, bucket)


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


def bucket_labels(body: Json) -> Mapping[str, str]:
    given = body.get("labels") or {}
    if not isinstance(given, dict) or not all(isinstance(one, str) for one in given.values()):
        raise storage_error(400, "Invalid labels: both names and values must be text.")
    return given


def access_settings(body: Json) -> tuple[bool, str]:
    """Return whether access is uniform (the default here), and whether public access is
    prevented.
    """
    given = body.get("iamConfiguration") or {}
    uniform = given.get("uniformBucketLevelAccess") or {} if isinstance(given, dict) else None
    if not isinstance(uniform, dict) or not isinstance(uniform.get("enabled", True), bool):
        raise storage_error(400, "Invalid argument: iamConfiguration.")
    public_access = given.get("publicAccessPrevention", "inherited")
    if public_access not in ("inherited", "enforced"):
        raise storage_error(400, "Invalid argument: publicAccessPrevention.")
    return uniform.get("enabled", True), public_access


def check_own_project(world: World, call: ApiCall) -> None:
    """Refuse a query that does not name the world's project."""
    project = call.query.get("project", "")
    if not project:
        raise storage_error(400, "Required parameter: project")
    if not is_own_project(world, project):
        raise storage_error(404, "The requested project was not found.")


def delete_bucket(world: World, call: ApiCall, now: float) -> Response:
    del world.services.buckets[find_bucket(world, call, "storage.buckets.delete").name]
    return Response(status=204)


ROUTES = (
    Route("GET", "/storage/v1/b", list_buckets),
    Route("POST", "/storage/v1/b", insert_bucket),
    Route("GET", "/storage/v1/b/{bucket}", get_bucket),
    Route("DELETE", "/storage/v1/b/{bucket}", delete_bucket),
    *bucket_access.ROUTES,
)
