"""Leads the model through everything that herd asks of a cloud, and keeps its replies.

The tour is what the model serves: no list of its fields has to be kept beside it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tpuherd_sim.handle import advance_world, handle_request, new_world
from tpuherd_sim.model.http_types import Request
from tpuherd_sim.model.world import World
from tpuherd_sim.model.world_parts import Settings

Json = dict[str, Any]
START = 1_800_000_000.0
STEP_S = 20.0
HOUR_S = 3600.0
ZONE = "us-central2-b"
PLACE = f"/v2/projects/demo/locations/{ZONE}"
EVERYWHERE = "/v2/projects/demo/locations/-"
RUNTIME = "tpu-ubuntu2204-base"
#: Any method may fail with these; other errors are a method's own.
EVERYWHERE_CODES = (401, 403, 429, 500, 503, 504)
BARE: Json = {"acceleratorType": "v4-8", "runtimeVersion": RUNTIME}
POD: Json = {"acceleratorType": "v4-16", "runtimeVersion": RUNTIME}
FULL: Json = {
    **BARE,
    "description": "all fields",
    "labels": {"a": "b"},
    "metadata": {"ssh-keys": "a:b"},
    "tags": ["a"],
    "networkConfig": {"enableExternalIps": True, "canIpForward": True, "queueCount": 2},
    "schedulingConfig": {"spot": True},
    "dataDisks": [{"sourceDisk": f"projects/demo/zones/{ZONE}/disks/d", "mode": "READ_WRITE"}],
    "shieldedInstanceConfig": {"enableSecureBoot": True},
    "serviceAccount": {
        "email": "a@demo.iam.gserviceaccount.com",
        "scope": ["https://www.googleapis.com/auth/cloud-platform"],
    },
}
INNER: Json = {**BARE, "networkConfig": {"enableExternalIps": False}}
CARDS: Json = {**POD, "networkConfigs": [{"enableExternalIps": True}, {"network": "other"}]}


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelReply:
    """What the model replied to one request."""

    method: str
    path: str
    body: Json | None
    status: int
    reply: Json


@dataclass(kw_only=True)
class Tourist:
    """Asks the model, at any time it likes."""

    world: World = field(default_factory=lambda: new_world(Settings(seed=1, created=START)))
    now: float = START
    found: list[ModelReply] = field(default_factory=list)

    def ask(self, method: str, target: str, body: Json | None = None) -> None:
        """Send a request and keep the reply."""
        path, _, query = target.partition("?")
        sent = b"" if body is None else json.dumps(body).encode()
        request = Request(method=method, path=path, query=query, body=sent)
        answer = handle_request(self.world, request, self.now)
        reply = json.loads(answer.body) if answer.body else {}
        self.found.append(
            ModelReply(
                method=method,
                path=path.lstrip("/"),
                body=body,
                status=answer.status,
                reply=reply,
            )
        )

    def disturb(self, kind: str, **arguments: Any) -> None:
        """Let the weather do something."""
        self.ask("POST", f"/sim/v1/weather/{kind}", arguments)
        self.found.pop()

    def watch(self, seconds: float, step_s: float = STEP_S) -> None:
        """Look at everything while time passes."""
        end = self.now + seconds
        while self.now < end:
            self.look_around()
            self.now += step_s
            advance_world(self.world, self.now)
        self.look_around()

    def look_around(self) -> None:
        for kind in ("nodes", "queuedResources", "operations"):
            self.ask("GET", f"{EVERYWHERE}/{kind}")

    def create(self, name: str, body: Json) -> None:
        self.ask("POST", f"{PLACE}/nodes?nodeId={name}", body)

    def queue(self, name: str, node: Json = BARE, nodes: int = 1, **more: Any) -> None:
        """Request nodes; bare for on-demand."""
        spec: Json = {"parent": PLACE.removeprefix("/v2/"), "node": node}
        if nodes == 1:
            spec["nodeId"] = f"{name}-n"
        else:
            spec["multisliceParams"] = {"nodeCount": nodes, "nodeIdPrefix": name}
        body = {"tpu": {"nodeSpec": [spec]}, **more}
        self.ask("POST", f"{PLACE}/queuedResources?queuedResourceId={name}", body)

    def publish_key(self, node: str) -> None:
        """Do what the guest agent of the first host does at its boot."""
        uid = self.world.nodes[f"{ZONE}/{node}"].uid
        path = f"/sim/v1/hosts/{uid}-0/guest-attributes/hostkeys/ssh-ed25519"
        self.ask("PUT", path, {"value": "AAAA"})
        self.found.pop()

    def delete(self, kind: str, name: str, query: str = "") -> None:
        self.ask("DELETE", f"{PLACE}/{kind}/{name}{query}")


def tour_model() -> tuple[ModelReply, ...]:
    """Return every reply of the whole tour."""
    return tuple(one for visit in VISITS for one in follow_visit(visit))


def follow_visit(visit: Any) -> Iterator[ModelReply]:
    """Make one visit, in a world of its own."""
    tourist = Tourist()
    visit(tourist)
    yield from tourist.found


def visit_nodes(tourist: Tourist) -> None:
    """Nodes of all kinds, from their creation to their end."""
    kinds = {"bare": BARE, "full": FULL, "pod": POD, "cards": CARDS, "inner": INNER}
    for name, body in kinds.items():
        tourist.create(name, body)
        tourist.watch(2, 1)
    tourist.create("old", {**BARE, "schedulingConfig": {"preemptible": True}})
    tourist.watch(600)
    tourist.publish_key("full")
    for path in (f"{PLACE}/nodes/full", f"{PLACE}/nodes/bare"):
        tourist.ask("GET", path)
        tourist.ask("POST", f"{path}:getGuestAttributes", {"workerIds": [""]})
        tourist.ask("PATCH", f"{path}?updateMask=metadata", {"metadata": {"a": "b"}})
    tourist.watch(20, 1)
    tourist.ask("POST", f"{PLACE}/nodes/bare:stop", {})
    tourist.watch(120)
    tourist.ask("POST", f"{PLACE}/nodes/bare:start", {})
    tourist.disturb("preempt", target="full")
    tourist.disturb("maintain", target="pod", notice_s=120)
    tourist.disturb("crash", target="cards/w0")
    tourist.watch(140)
    tourist.disturb("maintain", target="pod", notice_s=10)  # while it is maintained already
    tourist.watch(760)
    tourist.disturb("unhealthy", target="bare")
    tourist.watch(40)
    tourist.now += 25 * HOUR_S  # a preemptible node ends
    tourist.watch(40)
    for name in (*kinds, "old"):
        tourist.delete("nodes", name)
    tourist.watch(300)


def visit_requests(tourist: Tourist) -> None:
    """Queued resources, from their creation to their end."""
    tourist.queue("spot", FULL, spot={})
    tourist.queue("bare")
    tourist.queue("held", guaranteed={}, queueingPolicy={"validUntilDuration": "9000s"})
    tourist.queue("many", POD, nodes=2, spot={})
    tourist.watch(20, 0.5)
    tourist.watch(600)
    for kind in ("nodes", "queuedResources", "operations"):
        tourist.ask("GET", f"{EVERYWHERE}/{kind}?pageSize=1")
    for name in ("spot", "bare"):
        tourist.ask("GET", f"{PLACE}/queuedResources/{name}")
        tourist.ask("GET", f"{PLACE}/nodes/{name}-n")
    tourist.disturb("preempt", target="spot-n")
    tourist.delete("nodes", "bare-n")
    tourist.watch(240, 5)
    tourist.ask("POST", f"{PLACE}/queuedResources/many:reset", {})
    tourist.watch(400)
    for name, query in (("spot", ""), ("bare", ""), ("held", "?force=true"), ("many", "")):
        tourist.delete("queuedResources", name, query)
    tourist.watch(10, 1)
    for _ in range(2):
        tourist.delete("queuedResources", "many", "?force=true")
    tourist.watch(300)


def visit_refusals(tourist: Tourist) -> None:
    """Requests that fail at once or later, with every code that has a text."""
    tourist.queue("late", spot={}, queueingPolicy={"validUntilDuration": "60s"})
    tourist.disturb("drought", zone=ZONE, type="*")
    tourist.create("refused", BARE)
    tourist.watch(200)
    tourist.disturb("clear", rule="all")
    tourist.disturb("capacity", zone=ZONE, type="*", nodes="unlimited")
    for code in (1, 4, 5, 7, 8, 9, 10, 13, 14):
        tourist.disturb("operation-error", code=code, method="nodes.create", times=1)
        tourist.create(f"refused-{code}", BARE)
        tourist.watch(40)
    tourist.disturb("operation-error", code=13, method="queuedResources.create", times=1)
    tourist.queue("failing", spot={})
    tourist.watch(900)
    for code in EVERYWHERE_CODES:
        tourist.disturb("http-error", http=code, times=1)
        tourist.ask("GET", f"{EVERYWHERE}/nodes")
    tourist.disturb("unreachable-zone", zone="us-east5-b", times=3)
    tourist.ask("GET", f"{EVERYWHERE}/nodes")
    tourist.ask("GET", f"{EVERYWHERE}/queuedResources")
    tourist.ask("GET", "/v2/projects/demo/locations/us-east5-b/nodes")
    tourist.disturb("clear", rule="all")
    for number in range(100):  # more creates than a minute allows
        tourist.create(f"many-{number}", BARE)
    tourist.disturb("quota", zone=ZONE, quota="*", limit=0)
    tourist.create("over", BARE)
    tourist.queue("over", spot={})


def visit_mistakes(tourist: Tourist) -> None:
    """Requests for what is not there, or may not be."""
    tourist.create("n", BARE)
    tourist.create("n", BARE)
    tourist.ask("POST", f"{PLACE}/nodes/n:getGuestAttributes", {"workerIds": [""]})
    tourist.create("gone", BARE)
    for _ in range(2):  # before it has machines
        tourist.delete("nodes", "gone")
    tourist.queue("q", spot={})
    tourist.queue("q", spot={})
    tourist.ask("PATCH", f"{PLACE}/nodes/n?updateMask=metadata", {"metadata": {}})
    tourist.watch(400)
    tourist.delete("queuedResources", "q")
    for verb in ("start", "stop"):
        tourist.ask("POST", f"{PLACE}/nodes/q-n:{verb}", {})
        tourist.ask("POST", f"{PLACE}/nodes/absent:{verb}", {})
    for kind in ("nodes", "queuedResources", "operations", "acceleratorTypes", "runtimeVersions"):
        tourist.ask("GET", f"{PLACE}/{kind}/absent")
        tourist.ask("GET", f"{PLACE}/{kind}?pageSize=1")
        tourist.ask("GET", f"{PLACE}/{kind}")
        tourist.ask("GET", f"/v2/projects/demo/locations/us-moon1-a/{kind}")
        tourist.ask("GET", f"/v2/projects/other/locations/{ZONE}/{kind}")
        tourist.delete(kind, "absent")
    tourist.ask("POST", f"{PLACE}/nodes/absent:getGuestAttributes", {"workerIds": [""]})
    tourist.ask("PATCH", f"{PLACE}/nodes/absent?updateMask=metadata", {"metadata": {}})
    tourist.ask("GET", f"{PLACE}/nodes?pageToken=wrong")
    tourist.create("bad", {"acceleratorType": "v4-7", "runtimeVersion": RUNTIME})
    tourist.create("bad", {"acceleratorType": "v4-8", "runtimeVersion": "absent"})
    tourist.create("Bad_Name", BARE)
    tourist.create("bad", {**BARE, "wrong": 1})
    tourist.ask("GET", "/v2/projects/demo/locations")
    tourist.ask("GET", PLACE)
    tourist.ask("GET", "/v2/nothing")


def visit_other_services(tourist: Tourist) -> None:
    """The parts of Compute, Storage, IAM and Service Usage that herd calls."""
    project = "/compute/v1/projects/demo"
    tourist.ask("GET", project)
    fingerprint = tourist.found[-1].reply["commonInstanceMetadata"]["fingerprint"]
    items = [{"key": "ssh-keys", "value": "a:b"}]
    wanted = {"fingerprint": fingerprint, "items": items}
    for _ in range(2):
        tourist.ask("POST", f"{project}/setCommonInstanceMetadata", wanted)
    tourist.ask("GET", project)
    tourist.ask("GET", "/compute/v1/projects/other")
    bucket = "/storage/v1/b/a-bucket"
    tourist.ask("GET", bucket)
    uniform = {"uniformBucketLevelAccess": {"enabled": True}}
    more = {"iamConfiguration": {**uniform, "publicAccessPrevention": "enforced"}}
    two = {"customPlacementConfig": {"dataLocations": ["US-EAST1", "US-EAST4"]}}
    tourist.ask("POST", "/storage/v1/b?project=demo", {"name": "b-bucket", "location": "US", **two})
    for _ in range(2):
        tourist.ask("POST", "/storage/v1/b?project=demo", {"name": "a-bucket", **more})
    near = {"name": "c-bucket", "location": "US-WEST4", **more}
    tourist.ask("POST", "/storage/v1/b?project=demo", near)
    for one in (bucket, "/storage/v1/b/c-bucket", "/storage/v1/b/b-bucket"):
        tourist.ask("GET", one)
        tourist.ask("GET", f"{one}/iam/testPermissions?permissions=storage.objects.get")
        tourist.ask("GET", f"{one}/iam/testPermissions?permissions=storage.objects.none")
        tourist.ask("GET", f"{one}/iam?optionsRequestedPolicyVersion=3")
    policy = tourist.found[-1].reply
    added = [{"role": "roles/storage.objectAdmin", "members": ["user:a@b.c"]}]
    wanted = {**policy, "bindings": [*policy.get("bindings", []), *added]}
    for _ in range(2):
        tourist.ask("PUT", "/storage/v1/b/b-bucket/iam", wanted)
    tourist.ask("GET", "/storage/v1/b/absent/iam")
    accounts = "/v1/projects/demo/serviceAccounts"
    for _ in range(2):
        tourist.ask(
            "POST", accounts, {"accountId": "herd-a", "serviceAccount": {"displayName": "a"}}
        )
    tourist.ask("GET", f"{accounts}/herd-a@demo.iam.gserviceaccount.com")
    tourist.ask("GET", f"{accounts}/absent@demo.iam.gserviceaccount.com")
    tourist.ask("GET", "/v1/projects/demo")
    tourist.ask("POST", "/v1/projects/demo:getIamPolicy", {})
    asked = {"permissions": ["tpu.nodes.create", "tpu.nodes.none"]}
    tourist.ask("POST", "/v1/projects/demo:testIamPermissions", asked)
    metrics = "/v1beta1/projects/demo/services/tpu.googleapis.com/consumerQuotaMetrics?view=FULL"
    tourist.ask("GET", metrics)
    tourist.ask("GET", f"{metrics}&pageSize=1")


def visit_project_lists(tourist: Tourist) -> None:
    """The lists of a project that `herd check` reads."""
    for path in ("global/firewalls", "global/networks", "regions"):
        tourist.ask("GET", f"/compute/v1/projects/demo/{path}?maxResults=500")
    tourist.ask("GET", "/v1beta1/projects/demo/services?filter=state:ENABLED&pageSize=200")


VISITS = (
    visit_nodes,
    visit_requests,
    visit_refusals,
    visit_mistakes,
    visit_other_services,
    visit_project_lists,
)
