"""The Compute project and its metadata, which every host sees."""

import base64
import hashlib
import re
from typing import Any

from tpuherd_sim.google_apis.compute_operations import record_operation
from tpuherd_sim.google_apis.links import own_project_path, resource_url
from tpuherd_sim.model.compute_errors import invalid_value_error
from tpuherd_sim.model.compute_state import format_compute_time
from tpuherd_sim.model.http_types import ApiCall, ApiError, Json
from tpuherd_sim.model.world import World, log_event
from tpuherd_sim.model.world_parts import default_account_email
from tpuherd_sim.tpu.router import Route

KEY = r"[a-zA-Z0-9_-]{1,128}"
VALUE_MAX = 256 * 1024
TOTAL_MAX = 512 * 1024


def metadata_fingerprint(metadata: dict[str, str]) -> str:
    """Return the fingerprint that a writer must send to replace this metadata."""
    text = repr(sorted(metadata.items())).encode("utf-8", "backslashreplace")
    return base64.urlsafe_b64encode(hashlib.blake2b(text, digest_size=8).digest()).decode()


def get_project(world: World, call: ApiCall, now: float) -> Json:
    """Return the project with its metadata; gcloud reads it before every ssh."""
    own_project_path(world, call)
    settings = world.settings
    items = [{"key": key, "value": value} for key, value in world.services.metadata.items()]
    metadata: Json = {
        "kind": "compute#metadata",
        "fingerprint": metadata_fingerprint(world.services.metadata),
    }
    if items:
        metadata["items"] = items
    return {
        "kind": "compute#project",
        "id": str(settings.project_number),
        "creationTimestamp": format_compute_time(settings.created),
        "name": settings.project,
        "commonInstanceMetadata": metadata,
        "selfLink": resource_url(world, ""),
        "defaultServiceAccount": default_account_email(settings.project_number),
        "xpnProjectStatus": "UNSPECIFIED_XPN_PROJECT_STATUS",
        "defaultNetworkTier": "PREMIUM",
        "vmDnsSetting": "ZONAL_ONLY",
    }


def set_metadata(world: World, call: ApiCall, now: float) -> Json:
    """Replace the project's metadata if the fingerprint is current."""
    own_project_path(world, call)
    metadata = read_metadata(call.body)
    if call.body.get("fingerprint") != metadata_fingerprint(world.services.metadata):
        raise ApiError(
            412,
            "FAILED_PRECONDITION",
            "Supplied fingerprint does not match current metadata fingerprint.",
        )
    world.services.metadata = metadata
    world.touched.update(
        f"{node.uid}-{worker.index}" for node in world.nodes.values() for worker in node.workers
    )
    log_event(world, now, "project.metadata", keys=sorted(metadata))
    return record_operation(world, now, "compute.projects.setCommonInstanceMetadata", "", 0)


def read_metadata(body: Json) -> dict[str, str]:
    items = body.get("items") or []
    if not isinstance(items, list):
        raise invalid_value_error("metadata.items", items, "Must be a list.")
    metadata: dict[str, str] = {}
    for index, item in enumerate(items):
        key, value = read_item(item, f"metadata.items[{index}]")
        if key in metadata:
            raise invalid_value_error("metadata.items", key, "Metadata has duplicate key.")
        metadata[key] = value
    if sum(len(key) + len(value) for key, value in metadata.items()) > TOTAL_MAX:
        raise invalid_value_error("metadata", len(metadata), "Metadata is longer than 512 KiB.")
    return metadata


def read_item(item: Any, place: str) -> tuple[str, str]:
    if not isinstance(item, dict):
        raise invalid_value_error(place, item, "Must be a key and a value.")
    key, value = item.get("key"), item.get("value", "")
    if not isinstance(key, str) or not re.fullmatch(KEY, key):
        raise invalid_value_error(f"{place}.key", key, f"Must be a match of regex '{KEY}'")
    if not isinstance(value, str) or len(value) > VALUE_MAX:
        raise invalid_value_error(
            f"{place}.value", f"(of {key})", "Must be text of at most 256 KiB."
        )
    return key, value


ROUTES = (
    Route("GET", "/compute/v1/projects/{project}", get_project),
    Route("POST", "/compute/v1/projects/{project}/setCommonInstanceMetadata", set_metadata),
)
