"""Validates requested nodes and patches before anything starts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tpuherd.catalogue import Accelerator, accelerators, by_topology, runtimes, zones
from tpuherd_sim.model.http_types import ApiError, Json
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu.defaults import complete_network
from tpuherd_sim.tpu.errors import bad_request_error, invalid_request_error
from tpuherd_sim.tpu.names import region_of_zone
from tpuherd_sim.tpu.request_schemas import message_fields, snake_case

DESCRIPTION_CHARS_MAX = 512
LABELS_MAX = 64
LABEL_CHARS_MAX = 63
NOT_IN_LABELS = re.compile(r"[^\w-]|[A-Z]")  #: letters of all languages are allowed
METADATA_KEY = re.compile(r"[A-Za-z0-9_-]{1,128}")
METADATA_BYTES_MAX = 256 * 1024
TAG = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
#: TensorFlow and PyTorch images have more versions than any table.
RUNTIME_FAMILIES = re.compile(r"(v2-alpha|v2-nightly|tpu-vm-(v4-)?(tf|pt)-)[a-z0-9.-]*")
#: The fields that a patch may change: in the mask's camel case, with their paths.
PATCHABLE = ("description", "tags", "labels", "metadata", "dataDisks")
EXTERNAL_IPS = "networkConfig.enableExternalIps"
SUPPORTED = "[description, tags, labels, metadata, network_config.enable_external_ips, data_disks]"


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeRequest:
    """A valid request for a node."""

    type: str
    runtime: str
    spec: Mapping[str, Any]


def validate_node(world: World, zone: str, body: Json, now: float) -> NodeRequest:
    accelerator = requested_type(world, zone, body, now)
    runtime = body.get("runtimeVersion", "")
    if not runtime:
        raise ApiError(400, "INVALID_ARGUMENT", "runtime_version must be set.")
    if not is_known_runtime(runtime):
        raise bad_request_error(
            world, now, f'The runtime version "{runtime}" could not be found in {zone}.'
        )
    if "networkConfig" in body and "networkConfigs" in body:
        raise ApiError(
            400,
            "INVALID_ARGUMENT",
            "network_config and network_configs are mutually exclusive: set only one of them.",
        )
    for card in (*body.get("networkConfigs", ()), body.get("networkConfig", {})):
        if card.get("queueCount", 0) < 0:
            raise ApiError(400, "INVALID_ARGUMENT", "queue_count must not be negative.")
    check_scheduling(body.get("schedulingConfig", {}))
    check_details(zone, body)
    missing = missing_resource(world, zone, body)
    if missing:
        raise bad_request_error(world, now, missing)
    return NodeRequest(type=accelerator.type, runtime=runtime, spec=body)


def is_known_runtime(version: str) -> bool:
    """Whether the image exists, or could belong to a known family."""
    return version in runtimes() or RUNTIME_FAMILIES.fullmatch(version) is not None


def requested_type(world: World, zone: str, body: Json, now: float) -> Accelerator:
    """Return the requested accelerator, by its type or by generation and topology."""
    type, config = body.get("acceleratorType", ""), body.get("acceleratorConfig")
    if not type and config is None:
        text = "accelerator_type or accelerator_config must be set."
        raise ApiError(400, "INVALID_ARGUMENT", text)
    found = accelerators().get(type) if type else None
    if config is not None:
        enum, topology = config.get("type", ""), config.get("topology", "")
        if not enum or not topology:
            text = "accelerator_config needs both a type and a topology."
            raise ApiError(400, "INVALID_ARGUMENT", text)
        shaped = by_topology(enum, topology)
        if type and (found is None or found != shaped):
            text = "accelerator_type and accelerator_config do not name the same accelerator."
            raise ApiError(400, "INVALID_ARGUMENT", text)
        found, type = shaped, type or f"{enum} {topology}"
    if found is None or found.type not in zones()[zone].types:
        text = (
            f'The requested accelerator configuration for accelerator type, "{type}", could not '
            f'be found in the zonal accelerator configurations for "{zone}".; the accelerator '
            f"{type} was not found in zone {zone}"
        )
        raise bad_request_error(world, now, text)
    return found


def check_scheduling(config: Json) -> None:
    """Refuse more than one kind of scheduling."""
    named = [name for name in ("preemptible", "spot", "reserved") if config.get(name)]
    if len(named) > 1:
        raise ApiError(
            400,
            "INVALID_ARGUMENT",
            f"scheduling_config: {' and '.join(named)} are mutually exclusive.",
        )


def missing_resource(world: World, zone: str, body: Json) -> str:
    """Say which network, subnetwork or service account does not exist, in words that are assumed.

    What belongs to another project can't be looked up, so it counts as existing.
    """
    for card in body.get("networkConfigs") or [body.get("networkConfig", {})]:
        full = complete_network(world, zone, card)
        if not has_network(world, full["network"]):
            return f"The resource '{full['network']}' was not found"
        if not has_subnetwork(world, zone, full["network"], full["subnetwork"]):
            return f"The resource '{full['subnetwork']}' was not found"
    email = body.get("serviceAccount", {}).get("email", "")
    own = email.endswith(f"@{world.settings.project}.iam.gserviceaccount.com")
    if own and email not in world.services.accounts:
        return f'Service account "{email}" does not exist.'
    return ""


def own_name(world: World, pattern: str, path: str) -> str | None:
    """Return the name of one of the project's own resources; "" for another project's, None for a
    path that is malformed.
    """
    found = re.fullmatch(rf"projects/([^/]+)/{pattern}/([^/]+)", path)
    if found is None:
        return None
    own = found[1] in (world.settings.project, str(world.settings.project_number))
    return found[2] if own else ""


def has_network(world: World, path: str) -> bool:
    name = own_name(world, "global/networks", path)
    return name == "" or name in world.services.networks


def has_subnetwork(world: World, zone: str, network: str, path: str) -> bool:
    """Whether the subnetwork exists in the region of the zone. Networks without automatic ones have
    any, because a world has no method that creates one.
    """
    name = own_name(world, f"regions/{region_of_zone(zone)}/subnetworks", path)
    if not name:
        return name is not None
    networks = world.services.networks
    above = networks.get(own_name(world, "global/networks", network) or "")
    custom = above is not None and not above.auto
    return custom or (name in networks and networks[name].auto)


def check_details(zone: str, body: Json) -> None:
    """Check description, labels, metadata, tags and disks."""
    if len(body.get("description", "")) > DESCRIPTION_CHARS_MAX:
        text = f"description must have at most {DESCRIPTION_CHARS_MAX} characters."
        raise invalid_request_error(text, field="node.description")
    check_labels(body.get("labels", {}))
    check_metadata(body.get("metadata", {}))
    for tag in body.get("tags", ()):
        if not TAG.fullmatch(tag):
            raise invalid_request_error(f'Tag "{tag}" must be an RFC 1035 name.', field="node.tags")
    # A world has no disks: any name of one in the zone will do.
    for disk in body.get("dataDisks", ()):
        source = disk.get("sourceDisk", "")
        if not re.fullmatch(rf"projects/[^/]+/zones/{zone}/disks/[^/]+", source):
            text = f'data_disks: source_disk "{source}" is no disk of zone {zone}.'
            raise invalid_request_error(text, field="node.data_disks")


def check_labels(labels: Mapping[str, str]) -> None:
    """Refuse bad labels. Google's words on a bad character in a value are recorded, the others
    assumed.
    """
    faults = [f"there are more than {LABELS_MAX}"] if len(labels) > LABELS_MAX else []
    for key, value in labels.items():
        if not key[:1].isalpha():
            faults.append(f'key "{key}" must start with a letter')
        parts = ((key, f'key "{key}"', ""), (value, f'value "{value}"', f' for key "{key}"'))
        for text, shown, place in parts:
            bad = NOT_IN_LABELS.search(text)
            if bad:
                what = f"contains invalid character '{bad[0]}' at index {bad.start()}"
                faults.append(f"{shown} {what}{place}")
            elif len(text) > LABEL_CHARS_MAX:
                faults.append(f"{shown} is longer than {LABEL_CHARS_MAX} characters{place}")
    if faults:
        raise ApiError(400, "INVALID_ARGUMENT", f"resource labels are invalid: {faults[0]}")


def check_metadata(metadata: Mapping[str, str]) -> None:
    for key, value in metadata.items():
        if not METADATA_KEY.fullmatch(key):
            text = f'Metadata key "{key}" must match ^[A-Za-z0-9_-]{{1,128}}$'
            raise invalid_request_error(text, field="node.metadata")
        if len(value.encode()) > METADATA_BYTES_MAX:
            text = f'Metadata value of "{key}" is larger than {METADATA_BYTES_MAX} bytes.'
            raise invalid_request_error(text, field="node.metadata")


def validate_patch(version: str, zone: str, mask: str, body: Json) -> dict[str, Any]:
    """Return the fields that a patch sets (None to clear them); everything else in the body is
    ignored.
    """
    paths = [path.strip() for path in mask.split(",") if path.strip()]
    if not paths:
        raise invalid_request_error("update_mask must be set.", field="update_mask")
    fields: dict[str, Any] = {}
    for path in paths:
        name = camel_case(path)
        if name == EXTERNAL_IPS:
            wanted = body.get("networkConfig", {}).get("enableExternalIps", False)
            fields["networkConfig.enableExternalIps"] = bool(wanted)
        elif name in PATCHABLE:
            fields[name] = body.get(name)
        else:
            known = name.partition(".")[0] in message_fields(version, "Node")
            text = (
                f"update_mask: '{path}' cannot be updated. Supported fields: {SUPPORTED}"
                if known
                else f"update_mask: there is no field '{path}'. Supported fields: {SUPPORTED}"
            )
            raise invalid_request_error(text, field="update_mask")
    check_details(zone, {name: value for name, value in fields.items() if value is not None})
    return fields


def camel_case(path: str) -> str:
    """Return networkConfig.enableExternalIps for network_config.enable_external_ips."""
    plain = snake_case(path)
    return re.sub(r"_([a-z0-9])", lambda found: found.group(1).upper(), plain)
