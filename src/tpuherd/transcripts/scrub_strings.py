"""Which strings of the cloud's JSON a transcript may keep: an allow-list, by field."""

import re
from collections.abc import Mapping
from functools import cache

from tpuherd.catalogue import accelerators, bucket_locations, runtimes
from tpuherd.transcripts.placeholders import Placeholders
from tpuherd.transcripts.scrub_messages import message_shape

ENUM = re.compile(r"[A-Z][A-Z0-9_]{1,63}")
TYPE = re.compile(r"(v\d[a-z]?|v5lite(pod)?|v5litepod|tpu7x)-\d{1,6}")
TOPOLOGY = re.compile(r"\d{1,3}(x\d{1,3}){1,2}")
RUNTIME = re.compile(
    r"(v2-(alpha|nightly)|tpu-vm|tpu-ubuntu\d{4})(-(tf|pt|jax|base|pod|lite|tpuv?\d[a-z]?|[\d.]+))*"
)
PLACE = re.compile(
    r"(africa|asia|australia|europe|me|northamerica|southamerica|us)"
    r"-(north|south|east|west|central|northeast|northwest|southeast|southwest)\d{1,2}(-[a-z]\d?)?",
    re.I,
)
DURATION = re.compile(r"\d{1,12}(\.\d{1,9})?s")
SERVICE = re.compile(
    r"((tpu|compute|storage|iam|serviceusage|cloudresourcemanager)\.)?googleapis\.com"
)
TYPE_URL = re.compile(r"type\.googleapis\.com/google(\.[a-z0-9]{1,20}){1,4}\.[A-Z][A-Za-z]{1,40}")
#: Names of limits are Google's, in two styles.
QUOTA = re.compile(
    r"TPU[A-Za-z0-9]{1,60}ForTPUAPI|tpu\.googleapis\.com/[a-z0-9_]{1,60}|qps/[a-z]{1,20}"
    r"|1(/(\{(project|zone|region)\}|min))*"
)
#: By field: what its value must be to stay as it is.
PATTERNS: Mapping[str, re.Pattern[str]] = {
    "@type": TYPE_URL,
    "acceleratorType": TYPE,
    "type": TYPE,
    "resourceType": TYPE,
    "topology": TOPOLOGY,
    "runtimeVersion": RUNTIME,
    "version": RUNTIME,
    "kind": re.compile(r"(compute|storage)#[a-zA-Z]{1,30}"),
    "reason": re.compile(
        r"[A-Z][A-Z0-9_]{2,63}|notFound|forbidden|conflict|duplicate|invalid|required|badRequest"
        r"|conditionNotMet|resourceInUseByAnotherResource|resourceNotReady|quotaExceeded"
        r"|rateLimitExceeded|backendError|accessNotConfigured|authError|alreadyExists"
    ),
    "service": SERVICE,
    "unit": QUOTA,
    "metric": QUOTA,
    "displayName": QUOTA,
    "quota_limit": QUOTA,
    "quota_metric": QUOTA,
    "role": re.compile(r"roles/(storage|tpu|iam|compute)\.[a-zA-Z]{1,40}"),
    "permission": re.compile(r"(tpu|storage|iam|compute)\.[a-zA-Z]{1,30}\.[a-zA-Z]{1,30}"),
}
PLACES = frozenset(
    "location locationId region zone quota_location dataLocations supportedLocations".split()
)
#: Values that are words of the API, by field.
WORDS: Mapping[str, frozenset[str]] = {
    "apiVersion": frozenset({"v1", "v2", "v2alpha1"}),
    "verb": frozenset(
        "create delete update start stop reset reimage performMaintenance setMetadata "
        "performMaintenanceQueuedResource simulateMaintenanceEvent insert patch".split()
    ),
    "domain": frozenset({"global", "usageLimits", "googleapis.com", "iam.googleapis.com"}),
    "namespace": frozenset({"hostkeys", "guestInventory"}),
    "key": frozenset(
        "ssh-keys sshKeys ssh-ed25519 ssh-rsa ecdsa-sha2-nistp256 hostname enable-oslogin "
        "block-project-ssh-keys startup-script shutdown-script".split()
    ),
    "IPProtocol": frozenset({"tcp", "udp", "icmp", "esp", "ah", "sctp", "ipip", "all"}),
    "locationType": frozenset({"region", "dual-region", "multi-region"}),
    "publicAccessPrevention": frozenset({"inherited", "enforced"}),
    "scope": frozenset(
        f"https://www.googleapis.com/auth/{one}"
        for one in "devstorage.read_write devstorage.full_control devstorage.read_only "
        "logging.write monitoring.write service.management servicecontrol cloud-platform "
        "pubsub".split()
    ),
    "view": frozenset({"FULL", "BASIC"}),
    "force": frozenset({"true", "false", "True", "False"}),
}
#: Sentences: of them, only known words stay.
MESSAGES = frozenset({"message", "healthDescription", "details", "statusDetail", "why"})
#: What kind of thing a field names.
KINDS: Mapping[str, str] = {
    "nodeId": "node",
    "nodeIdPrefix": "node",
    "queuedResourceId": "request",
    "pageToken": "token",
    "nextPageToken": "token",
    "etag": "token",
    "fingerprint": "token",
    "project": "project",
    "projectId": "project",
    "member": "account",
    "members": "account",
}
#: Words of paths that are the API's own, with the kind of the name that follows.
COLLECTIONS: Mapping[str, str] = {
    "projects": "project",
    "locations": "zone",
    "zones": "zone",
    "regions": "zone",
    "nodes": "node",
    "queuedResources": "request",
    "operations": "operation",
    "reservations": "reservation",
    "acceleratorTypes": "type",
    "runtimeVersions": "runtime",
    "networks": "network",
    "subnetworks": "network",
    "firewalls": "firewall",
    "disks": "disk",
    "users": "account",
    "serviceAccounts": "account",
    "services": "service",
    "b": "bucket",
    "o": "object",
}
SEGMENTS = frozenset(
    "v1 v2 v2alpha1 v1beta1 compute storage global iam testPermissions consumerQuotaMetrics "
    "setCommonInstanceMetadata aggregated loginProfile".split()
) | frozenset(COLLECTIONS)
VERBS = frozenset(
    "start stop reset cancel reimage getGuestAttributes generateServiceIdentity performMaintenance "
    "simulateMaintenanceEvent getMaintenanceInfo performMaintenanceQueuedResource enable "
    "batchEnable disable getIamPolicy setIamPolicy testIamPermissions importSshPublicKey".split()
)
RESOURCE = re.compile(
    r"(//[a-z]+\.googleapis\.com/|https://[a-z.]+/compute/v1/)?(projects|global|regions|zones)/"
)


@cache
def known_words() -> frozenset[str]:
    """Return what the catalogue lists: types, images and locations."""
    return frozenset({*accelerators(), *runtimes(), *bucket_locations()})


def is_public(kind: str, value: str) -> bool:
    """Whether the name of a thing of this kind is Google's, not the user's."""
    if kind == "zone":
        return value == "-" or bool(PLACE.fullmatch(value)) or value in known_words()
    pattern = {"type": TYPE, "runtime": RUNTIME, "service": SERVICE}.get(kind)
    return pattern is not None and (value in known_words() or bool(pattern.fullmatch(value)))


def scrub_path(path: str, hide: Placeholders) -> str:
    """Return a path with the API's own words, and placeholders for the rest."""
    *before, last = path.split("/")
    verb = ""
    name, colon, word = last.rpartition(":")
    if colon and word in VERBS:
        last, verb = name, f":{word}"
    shown, kind = [], "id"
    for segment in (*before, last):
        if segment in SEGMENTS or not segment:
            shown.append(segment)
            kind = COLLECTIONS.get(segment, "id")
            continue
        shown.append(segment if is_public(kind, segment) else hide.hide_value(kind, segment))
        kind = "id"
    return "/".join(shown) + verb


def scrub_resource(value: str, hide: Placeholders) -> str | None:
    """Return a resource's name or address; None if it is neither."""
    found = RESOURCE.match(value)
    if found is None:
        return None
    head = found[1] or ""
    return head + scrub_path(value[len(head) :], hide)


def is_clear(field: str, value: str) -> bool:
    """Whether a value of this field is a known word or a public name."""
    if field in PLACES:
        return is_public("zone", value)
    if field in WORDS:
        return value in WORDS[field]
    pattern = PATTERNS.get(field)
    return pattern is not None and bool(pattern.fullmatch(value))


def scrub_string(field: str, value: str, hide: Placeholders) -> str:
    """Return what may stay of a string that is not an enum."""
    if is_clear(field, value):
        return value
    if field in MESSAGES:
        return message_shape(value)
    resource = scrub_resource(value, hide)
    return resource if resource is not None else hide.hide_text(value, KINDS.get(field, "text"))
