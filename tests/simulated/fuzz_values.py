"""Values of the fuzz test, requests outside of the TPU API, and words that fit nowhere."""

from collections.abc import Mapping
from typing import Any

from tpuherd_sim.google_apis.routes import HOSTS

Json = dict[str, Any]

ODD_WORDS = (
    "", " ", "-", ".", "..", "a:b", ":stop", "x" * 64, "x" * 3000, "A", "é", "名前", "\u0000",
    "a b", "%", "%2F", "a%b", "a/b", "../..", "0", "None", "projects/demo", "\u202e", "🦙",
    "null", "-1", "1e9", "*", "$", "?", "#", "a;b", "'", '"', "<a>",
)  # fmt: skip
ODD_VALUES: tuple[Any, ...] = (
    None, [], {}, [[]], [None], [{}], {"": ""}, "", " ", 0, -1, 1, 2**31, 2**63, -(2**63), 2**80,
    10**400, 0.5, 1e308, True, False, "true", "é", "\u0000", "\ud800", "x" * 10_000, "3600s",
    "-5s", "1e3s", "99999999999999s", "2026-11-20T10:00:00Z", "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59-12:00", "tomorrow", ["a", 1, None],
    {"a": {"b": {"c": []}}}, {"@type": "type.googleapis.com/google.protobuf.Empty"},
)  # fmt: skip
RAW_BODIES = (
    b"", b" ", b"null", b"[]", b"{", b"}", b"[" * 20_000, b'{"a":' * 5_000, b"\xff\xfe", b"NaN",
    b'{"a":NaN}', b'"text"', b"1", b'{"a":1}{', b'{"a":1,}', b"{'a':1}", b"\x00", b"a=b&c=d",
    b'{"description":"\\ud800"}', b'{"labels":{"a":1,"a":2}}', b"\xef\xbb\xbf{}", b"-" * 1000,
    b'{"a":' + b"9" * 5000 + b"}", b'{"a":1e99999}',
    *(
        b"--b\nContent-Type: application/http\n\n%s\n--b--" % part
        for part in (b"GET /storage/v1/b/data HTTP/1.1\n\n{", b"PUT http://[/", b"PUT //x", b"")
    ),
)  # fmt: skip
HEADERS: tuple[Mapping[str, str], ...] = (
    {},
    {"content-type": "application/json"},
    {"content-type": "application/json; charset=UTF-8", "host": "127.0.0.1:8080"},
    {"content-type": "application/x-www-form-urlencoded"},
    {"content-type": "text/plain", "host": "tpu.googleapis.com"},
    {"x-goog-request-params": "parent=projects/demo", "host": ""},
)
#: Added now and then to requests to any route; the last is the server's, which has the bytes.
ODD_HEADERS: Mapping[str, tuple[str, ...]] = {
    "host": ("[", "nope.googleapis.com", *HOSTS),
    "content-type": ("multipart/mixed; boundary=b", "multipart/x; boundary*=''%ff", "\xff"),
    "x-http-method-override": ("GET", "patch", "PUT", "FOO"),
    "range": ("bytes=0-" + "9" * 5000, "bytes=-"),
    "content-range": ("bytes 0-0/1", "bytes */" + "9" * 5000),
    "x-sim-content": (
        '{"part": ["f", 1], "content": {"parts": [["f", 1]], "crc32c": "AAAAAA=="}}',
    ),
}
#: Of queries and bodies.
FIELDS = (
    "name uploadType upload_id alt pageToken maxResults pageSize generation project filter "
    "uploads rewriteToken matchGlob uploadId partNumber ifGenerationMatch policy bindings labels "
    "metadata items sourceObjects allowed options contentType accountId permissions"
).split()

#: What the weather does in a fuzz; what orders a 5xx (http-error, unreachable-zone) is left out.
STROKES: tuple[tuple[str, Json], ...] = (
    ("preempt", {"target": "TARGET"}),
    ("preempt", {"target": "TARGET", "notice_s": 0}),
    ("maintain", {"target": "TARGET", "notice_s": 30, "duration_s": 60}),
    ("maintain", {"target": "TARGET", "notice_s": 86400}),
    ("reboot", {"target": "TARGET"}),
    ("crash", {"target": "TARGET/w0"}),
    ("hang", {"target": "TARGET", "for": 60}),
    ("network", {"target": "TARGET", "state": "down", "for": 60}),
    ("unhealthy", {"target": "TARGET"}),
    ("capacity", {"zone": "ZONE", "type": "*", "nodes": 3}),
    ("capacity", {"zone": "ZONE", "type": "*", "nodes": "unlimited"}),
    ("drought", {"zone": "ZONE", "for": 600}),
    ("quota", {"zone": "ZONE", "quota": "v4", "limit": 64}),
    ("quota", {"zone": "ZONE", "quota": "*", "limit": 100000}),
    ("slow-operation", {"factor": 5, "times": 1}),
    ("endless-operation", {"times": 1}),
    ("operation-error", {"code": 8, "times": 1}),
    ("lost-response", {"times": 1}),
    ("conflict", {"times": 1}),
    ("delay", {"seconds": 5, "times": 1}),
    ("born-unhealthy", {"times": 1}),
    ("no-external-ip", {"worker": 1, "times": 1}),
    ("unreachable-worker", {"times": 1}),
    ("stuck-suspending", {"times": 1}),
    ("late-fill", {"after_s": 60, "times": 1}),
    ("recycle-ip", {"times": 1}),
    ("slow-keys", {"seconds": 30, "times": 1}),
    ("slow-provisioning", {"factor": 3, "times": 1}),
    ("stale-list", {"age_s": 60, "times": 2}),
    ("clear", {"rule": "all"}),
)

RULE: Json = {
    "name": "mosh",
    "network": "global/networks/default",
    "priority": 1000,
    "direction": "INGRESS",
    "sourceRanges": ["0.0.0.0/0"],
    "allowed": [{"IPProtocol": "udp", "ports": ["60000-61000"]}],
}
PROJECT = "/compute/v1/projects/demo"
PAGES = {"maxResults": "2", "pageToken": "1", "filter": "name eq a.*"}
METRICS = "/v1beta1/projects/demo/services/tpu.googleapis.com/consumerQuotaMetrics"
FINE = {"uniformBucketLevelAccess": {"enabled": False}}
ENTRY = {"entity": "allUsers", "role": "READER"}
SERVICE_CALLS: tuple[tuple[str, str, Mapping[str, str], Any], ...] = (
    ("GET", PROJECT, {}, None),
    (
        "POST",
        f"{PROJECT}/setCommonInstanceMetadata",
        {},
        {"fingerprint": "x", "items": [{"key": "ssh-keys", "value": "me:ssh-ed25519 AAAA"}]},
    ),
    ("GET", f"{PROJECT}/global/firewalls", PAGES, None),
    ("POST", f"{PROJECT}/global/firewalls", {}, RULE),
    ("PATCH", f"{PROJECT}/global/firewalls/mosh", {}, RULE),
    ("PUT", f"{PROJECT}/global/firewalls/default-allow-ssh", {}, RULE),
    ("DELETE", f"{PROJECT}/global/firewalls/mosh", {}, None),
    ("GET", f"{PROJECT}/global/firewalls/default-allow-ssh", {}, None),
    ("GET", f"{PROJECT}/global/networks", PAGES, None),
    ("POST", f"{PROJECT}/global/networks", {}, {"name": "own", "autoCreateSubnetworks": True}),
    ("GET", f"{PROJECT}/global/networks/default", {}, None),
    ("DELETE", f"{PROJECT}/global/networks/own", {}, None),
    ("GET", f"{PROJECT}/global/networks/default/getEffectiveFirewalls", {}, None),
    ("GET", f"{PROJECT}/global/operations", PAGES, None),
    ("GET", f"{PROJECT}/global/operations/operation-1", {}, None),
    ("POST", f"{PROJECT}/global/operations/operation-1/wait", {}, None),
    ("GET", f"{PROJECT}/regions", PAGES, None),
    ("GET", f"{PROJECT}/regions/us-central2", {}, None),
    ("GET", f"{PROJECT}/regions/us-central2/subnetworks", PAGES, None),
    ("GET", f"{PROJECT}/zones", PAGES, None),
    ("GET", f"{PROJECT}/zones/us-central2-b", {}, None),
    ("GET", "/storage/v1/b", {"project": "demo", "maxResults": "1"}, None),
    ("POST", "/storage/v1/b", {"project": "demo"}, {"name": "data", "location": "us-central2"}),
    ("POST", "/storage/v1/b", {"project": "other"}, {"name": "theirs", "location": "NAM4"}),
    ("GET", "/storage/v1/b/data", {"projection": "noAcl"}, None),
    ("GET", "/storage/v1/b/theirs", {}, None),
    ("GET", "/storage/v1/b/data/iam", {}, None),
    (
        "PUT",
        "/storage/v1/b/data/iam",
        {},
        {
            "etag": "AAAAAAAAAAE=",
            "bindings": [{"role": "roles/storage.admin", "members": ["allUsers"]}],
        },
    ),
    (
        "GET",
        "/storage/v1/b/data/iam/testPermissions",
        {"permissions": "storage.objects.get"},
        None,
    ),
    ("PATCH", "/storage/v1/b/data", {}, {"labels": {"a": "b"}, "versioning": {"enabled": True}}),
    ("GET", "/storage/v1/b/data/storageLayout", {}, None),
    ("GET", "/storage/v1/b/data/o", {"maxResults": "1", "matchGlob": "a/**"}, None),
    ("GET", "/storage/v1/b/data/o/x", {"generation": "1", "ifMetagenerationMatch": "1"}, None),
    ("PATCH", "/storage/v1/b/data/o/x", {}, {"contentType": "a/b", "metadata": {"a": None}}),
    ("POST", "/storage/v1/b/data/o/x/compose", {}, {"sourceObjects": [{"name": "y"}]}),
    ("POST", "/storage/v1/b/data/o/x/rewriteTo/b/data/o/y", {"rewriteToken": "WyIiLDBd"}, {}),
    ("POST", "/upload/storage/v1/b/data/o", {"uploadType": "resumable"}, {"name": "x"}),
    ("PUT", "/upload/storage/v1/b/data/o", {"upload_id": "1"}, None),
    ("DELETE", "/storage/v1/b/data", {}, None),
    ("GET", "/storage/v1/b/data", {"softDeleted": "true", "generation": "1"}, None),
    ("POST", "/storage/v1/b/data/restore", {"generation": "1"}, {}),
    ("PATCH", "/storage/v1/b/data", {}, {"iamConfiguration": FINE, "acl": [ENTRY]}),
    ("PATCH", "/storage/v1/b/data", {"projection": "full"}, {"iamConfiguration": FINE}),
    *(
        (method, f"/storage/v1/b/data{place}{entity}", {}, body)
        for place in ("/acl", "/defaultObjectAcl", "/o/x/acl")
        for method, entity, body in (
            ("GET", "", None),
            ("POST", "", ENTRY),
            ("GET", "/allUsers", None),
            ("PATCH", "/allUsers", {"role": "OWNER"}),
            ("DELETE", "/allUsers", None),
        )
    ),
    ("GET", "/storage/v1/b/data/o/x/iam", {}, None),
    ("POST", "/storage/v1/b/data/managedFolders", {}, {"name": "a"}),
    ("GET", "/storage/v1/b/data/managedFolders", PAGES, None),
    ("GET", "/storage/v1/b/data/managedFolders/a%2F/iam", {}, None),
    ("DELETE", "/storage/v1/b/data/managedFolders/a%2F", {"allowNonEmpty": "true"}, None),
    ("POST", "/storage/v1/b/data/o/bulkRestore", {}, {"matchGlobs": ["**"]}),
    ("GET", "/storage/v1/b/data/operations", {"pageSize": "1"}, None),
    ("GET", "/_xml/data", {"list-type": "2", "delimiter": "/", "max-keys": "1"}, None),
    ("POST", "/v1/projects/demo/serviceAccounts", {}, {"accountId": "trainer"}),
    ("GET", "/v1/projects/demo/serviceAccounts", {"pageSize": "1"}, None),
    ("GET", "/v1/projects/-/serviceAccounts/trainer@demo.iam.gserviceaccount.com", {}, None),
    ("DELETE", "/v1/projects/demo/serviceAccounts/trainer@demo.iam.gserviceaccount.com", {}, None),
    ("GET", METRICS, {"pageSize": "3", "pageToken": "3"}, None),
    ("GET", f"{METRICS}/tpu.googleapis.com%2Ftpuv2s", {}, None),
    ("GET", "/v1/projects/demo/services", {"filter": "state:ENABLED"}, None),
    ("POST", "/v1/projects/demo/services/tpu.googleapis.com:enable", {}, {}),
    ("POST", "/v1/projects/demo:testIamPermissions", {}, {"permissions": ["tpu.nodes.get"]}),
    ("POST", "/v1/projects/demo/services/oslogin.googleapis.com:disable", {}, {}),
    (
        "POST",
        "/v1/projects/demo/services:batchEnable",
        {},
        {"serviceIds": ["oslogin.googleapis.com"]},
    ),
    ("POST", "/v1beta1/projects/demo/services/tpu.googleapis.com:generateServiceIdentity", {}, {}),
    ("GET", "/v1/operations/x", {}, None),
    ("GET", "/v1/users/ada@example.com/loginProfile", {}, None),
    ("POST", "/v1/users/ada@example.com:importSshPublicKey", {}, {"key": "ssh-ed25519 AAAA"}),
    ("DELETE", "/v1/users/ada@example.com/sshPublicKeys/x", {}, None),
    ("POST", "/v1/projects/demo:getIamPolicy", {}, {"options": {"requestedPolicyVersion": 3}}),
    (
        "POST",
        "/v3/projects/demo:setIamPolicy",
        {},
        {"policy": {"bindings": [{"role": "roles/owner", "members": ["user:a@b.c"]}]}},
    ),
    ("GET", "/v1/projects/demo", {}, None),
    ("GET", "/v3/projects/demo", {}, None),
    ("POST", "/token", {"grant_type": "refresh_token"}, {"refresh_token": "x"}),
    ("GET", "/tokeninfo", {"access_token": "x"}, None),
    ("GET", "/$discovery/rest", {"version": "v2alpha1"}, None),
    ("GET", "/discovery/v1/apis/tpu/v2/rest", {}, None),
    ("GET", "/sim/v1/weather", {}, None),
    ("GET", "/sim/v1/log", {}, None),
)
