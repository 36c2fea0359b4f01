"""Random requests made from the discovery documents: valid, nearly valid, and invalid."""

import json
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, urlencode

from tests.simulated.fuzz_values import (
    FIELDS,
    HEADERS,
    ODD_HEADERS,
    ODD_VALUES,
    ODD_WORDS,
    RAW_BODIES,
    SERVICE_CALLS,
    STROKES,
)
from tpuherd.catalogue import accelerators, discovery, runtimes, zones
from tpuherd_sim.google_apis import routes as services
from tpuherd_sim.google_apis.project import metadata_fingerprint
from tpuherd_sim.handle import BATCH_ROUTES, TPU_ROUTES
from tpuherd_sim.model.http_types import Request
from tpuherd_sim.model.world import World

Json = dict[str, Any]

#: Few zones, types and names, so that requests meet each other.
PLACES = ("us-central2-b", "europe-west4-a", "us-central1-a")
NAMES = ("a", "b", "c", "gpt-0", "gpt-1", "pod")
VERSIONS = ("v1", "v2", "v2alpha1")
METHODS = ("GET", "POST", "PATCH", "PUT", "DELETE", "HEAD", "OPTIONS", "BREW")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ApiMethod:
    """A method of the API with what its document says of it."""

    version: str
    id: str
    http: str
    template: str  #: v2/projects/{projectsId}/…
    query: Mapping[str, Json]
    body: str | None


def every_method() -> tuple[ApiMethod, ...]:
    """All methods of all versions."""
    found: list[ApiMethod] = []

    def walk(version: str, resource: Json) -> None:
        for one in resource.get("methods", {}).values():
            found.append(
                ApiMethod(
                    version=version,
                    id=one["id"],
                    http=one["httpMethod"],
                    template=one.get("flatPath", one["path"]),
                    query={
                        name: parameter
                        for name, parameter in one["parameters"].items()
                        if parameter["location"] == "query"
                    },
                    body=one.get("request", {}).get("$ref"),
                )
            )
        for inner in resource.get("resources", {}).values():
            walk(version, inner)

    for version in VERSIONS:
        walk(version, discovery(version))
    return tuple(found)


EVERY_METHOD = every_method()
#: What changes most is asked for most.
WEIGHTS = tuple(
    8 if one.id.endswith(("nodes.create", "queuedResources.create")) and one.version != "v1" else 2
    for one in EVERY_METHOD
)


class RequestAuthor:
    """Writes requests, knowing the world as a client could."""

    def __init__(self, seed: int, world: World) -> None:
        self.chance = random.Random(seed)
        self.world = world

    def happens(self, share: float) -> bool:
        """Something that is so in this share of cases."""
        return self.chance.random() < share

    def request(self) -> Request:
        """The next one."""
        kind = self.chance.choices(KINDS, KIND_WEIGHTS)[0]
        return kind(self)

    # -- the TPU API ------------------------------------------------------------------------------

    def call(self) -> Request:
        """A call of a method of the API, mutated a little or not at all."""
        method = self.chance.choices(EVERY_METHOD, WEIGHTS)[0]
        zone = self.chance.choice(PLACES)
        path = "/" + "/".join(self.segment(segment, zone) for segment in method.template.split("/"))
        query = {
            name: self.parameter(name, shape, zone)
            for name, shape in method.query.items()
            if name in ("nodeId", "queuedResourceId", "updateMask") or self.happens(0.3)
        }
        if self.happens(0.05):
            query[self.chance.choice(["nope", "$alt", "alt", "filter", "pageSize", "force"])] = (
                self.odd_word()
            )
        body = self.body(method, zone)
        return self.sent(method.http, path, query, body)

    def sent(self, http: str, path: str, query: Mapping[str, str], body: Json | None) -> Request:
        """Put a request together; a few get the wrong verb or a broken body."""
        raw = b"" if body is None else json.dumps(body).encode()
        if self.happens(0.04):
            raw = self.chance.choice(RAW_BODIES)
        if self.happens(0.03):
            http = self.chance.choice(METHODS)
        return Request(
            method=http,
            path=path,
            query=urlencode(query),
            headers=dict(self.chance.choice(HEADERS)),
            body=raw,
        )

    def segment(self, segment: str, zone: str) -> str:
        """One part of a path, percent-encoded."""
        name, colon, verb = segment.partition("}")
        if not colon:
            return segment
        if self.happens(0.03):
            return quote(self.odd_word(), safe=self.chance.choice(["", ":~+%-"])) + verb
        known = {
            "{projectsId": "demo" if self.happens(0.9) else "123456789012",
            "{locationsId": zone if self.happens(0.93) else "-",
        }
        return quote(known.get(name) or self.id_of(name.strip("{"), zone), safe="") + verb

    def id_of(self, name: str, zone: str) -> str:
        """The id of something that is there, more often than not."""
        records: dict[str, Mapping[str, Any]] = {
            "nodesId": self.world.nodes,
            "queuedResourcesId": self.world.requests,
            "operationsId": self.world.operations,
        }
        there = [
            key.partition("/")[2] for key in records.get(name, {}) if key.startswith(f"{zone}/")
        ]
        if there and self.happens(0.85):
            return self.chance.choice(there[-8:])
        if name == "acceleratorTypesId":
            return self.chance.choice(sorted(zones()[zone].types))
        if name == "runtimeVersionsId":
            return self.chance.choice(sorted(runtimes()))
        return self.chance.choice(NAMES)

    def parameter(self, name: str, shape: Json, zone: str) -> str:
        """The value of a query parameter."""
        if self.happens(0.06):
            return self.odd_word()
        if name in ("nodeId", "queuedResourceId"):
            return self.chance.choice(NAMES)
        if name == "updateMask":
            fields = [
                "labels",
                "description",
                "metadata",
                "tags",
                "networkConfig.enableExternalIps",
            ]
            fields += [
                "network_config.enable_external_ips",
                "data_disks",
                "dataDisks",
                "state",
                "*",
            ]
            return ",".join(self.chance.sample(fields[: self.chance.choice([4, 6, 10])], 2))
        if name == "requestId":
            return f"00000000-0000-4000-8000-00000000000{self.chance.randrange(4)}"
        if name == "pageSize":
            return str(self.chance.choice([0, 1, 2, 3, 1000]))
        if shape["type"] == "boolean":
            return self.chance.choice(["true", "True", "false", "1"])
        return self.chance.choice(["", "a", "name", "state=READY"])

    def body(self, method: ApiMethod, zone: str) -> Json | None:
        """A body as the method wants it; some are mutated."""
        if method.body is None:
            return None if self.happens(0.9) else {}
        if method.body == "Node":
            made: Json = self.node(zone, method.version)
        elif method.body == "QueuedResource":
            made = self.queued_resource(zone, method.version)
        else:
            made = self.message(method.version, method.body, 0)
        while self.happens(0.2):
            made = self.mutated(made)
        return made

    def node(self, zone: str, version: str) -> Json:
        """A node that could be had."""
        small = [one for one in sorted(zones()[zone].types) if accelerators()[one].hosts <= 4]
        made: Json = {"acceleratorType": self.chance.choice(small)}
        if version == "v1":
            return {**made, "tensorflowVersion": "2.18.0"}
        made["runtimeVersion"] = self.chance.choice(sorted(runtimes()))
        if self.happens(0.1):
            one = accelerators()[made.pop("acceleratorType")]
            made["acceleratorConfig"] = {"type": one.enum, "topology": one.topology}
        extras: dict[str, Any] = {
            "labels": {"a": "b"},
            "metadata": {"ssh-keys": "me:ssh-ed25519 AAAA", "startup-script": "true"},
            "tags": ["x"],
            "description": "é" * 3,
            "networkConfig": {
                "network": "default",
                "enableExternalIps": self.happens(0.7),
            },
            "networkConfigs": [{"network": "default"}] * 2,
            "schedulingConfig": {
                self.chance.choice(["spot", "preemptible", "reserved"]): self.happens(0.8)
            },
            "serviceAccount": {"email": "a@b", "scope": ["s"]},
            "shieldedInstanceConfig": {"enableSecureBoot": True},
            "dataDisks": [{"sourceDisk": f"projects/demo/zones/{zone}/disks/d", "mode": 2}],
        }
        for name in extras:
            if self.happens(0.08 if name == "networkConfigs" else 0.25):
                made[name] = extras[name]
        return made

    def queued_resource(self, zone: str, version: str) -> Json:
        """A queued resource that could be granted."""
        spec: Json = {
            "parent": f"projects/demo/locations/{zone}",
            "node": self.node(zone, version),
        }
        if self.happens(0.3):
            word = "multisliceParams" if version == "v2" else "multiNodeParams"
            spec[word] = {"nodeCount": self.chance.choice([2, 3])}
            if self.happens(0.5):
                spec[word]["nodeIdPrefix"] = self.chance.choice(NAMES)
        else:
            spec["nodeId"] = self.chance.choice(NAMES)
        made: Json = {"tpu": {"nodeSpec": [spec] if self.happens(0.8) else spec}}
        tier = self.chance.choice(["spot", "spot", "guaranteed", "bestEffort", "", ""])
        if tier:
            made[tier] = {}
        if self.happens(0.3):
            made["queueingPolicy"] = self.chance.choice(
                [
                    {"validUntilDuration": "600s"},
                    {"validUntilTime": "2027-01-15T09:00:00Z"},
                    {"validAfterDuration": "300s"},
                    {
                        "validInterval": {
                            "startTime": "2027-01-15T08:10:00Z",
                            "endTime": "2027-01-15T12:00:00Z",
                        }
                    },
                ]
            )
        if version == "v2alpha1" and self.happens(0.15):
            made["provisioningModel"] = "FLEX_START"
            made["runDuration"] = {"maxRunDuration": "1800s"}
        return made

    def message(self, version: str, name: str, depth: int) -> Json:
        """Any message of the API, filled by its schema alone."""
        fields = discovery(version)["schemas"][name].get("properties", {})
        return {
            field: self.value(version, shape, depth)
            for field, shape in fields.items()
            if self.happens(0.4)
        }

    def value(self, version: str, shape: Json, depth: int) -> Any:
        """A value that fits a schema."""
        if "$ref" in shape:
            return self.message(version, shape["$ref"], depth + 1) if depth < 4 else {}
        if "enum" in shape:
            return self.chance.choice([*shape["enum"], self.chance.randrange(20)])
        if shape["type"] == "array":
            return [self.value(version, shape["items"], depth) for _ in range(2)]
        if shape["type"] == "object":
            return {"a": "b"}
        if shape["type"] == "boolean":
            return self.happens(0.5)
        if shape["type"] in ("integer", "number"):
            return self.chance.choice([0, 1, 2, 100, -1, 2**40])
        form = {"google-duration": "60s", "google-datetime": "2027-01-15T08:10:00Z", "int64": "5"}
        return form.get(shape.get("format", ""), self.chance.choice(["0", "a", "default"]))

    def mutated(self, content: Any) -> Any:
        """The same with one place changed, wherever it is."""
        if isinstance(content, dict) and content and self.happens(0.75):
            name = self.chance.choice(sorted(content))
            return {**content, name: self.mutated(content[name])}
        if isinstance(content, list) and content and self.happens(0.75):
            return [self.mutated(content[0]), *content[1:]]
        if isinstance(content, dict):
            turn = self.chance.randrange(3)
            if turn == 0:
                return {**content, self.odd_word(): self.odd_value()}
            if turn == 1 and content:
                gone = self.chance.choice(sorted(content))
                return {name: value for name, value in content.items() if name != gone}
        return self.odd_value()

    def odd_word(self) -> str:
        """Something that no name should be."""
        return self.chance.choice(ODD_WORDS)

    def odd_value(self) -> Any:
        """Something that a field seldom has."""
        return self.chance.choice(ODD_VALUES)

    # -- everything else --------------------------------------------------------------------------

    def service(self) -> Request:
        """A call of one of the other services."""
        http, path, query, body = self.chance.choice(SERVICE_CALLS)
        made = {name: value for name, value in query.items() if self.happens(0.8)}
        if self.happens(0.2):
            path = path.replace(self.chance.choice(["demo", "default", "data"]), self.odd_path())
        content: Any = json.loads(json.dumps(body))
        if content is not None:
            if "fingerprint" in content and self.happens(0.7):
                content["fingerprint"] = self.fingerprint()
            while self.happens(0.3):
                content = self.mutated(content)
        return self.sent(http, path, made, content)

    def fingerprint(self) -> str:
        """What the project's metadata has now."""
        return metadata_fingerprint(self.world.services.metadata)

    def odd_path(self) -> str:
        """A part of a path that no name should be."""
        return quote(self.odd_word(), safe="")

    def weather(self) -> Request:
        """Something happens to the world: what a rule makes of answers is left to its own tests."""
        keys = list(self.world.nodes) or ["us-central2-b/a"]
        target = self.chance.choice(keys)
        kind, body = self.chance.choice(STROKES)
        content: Any = {
            name: target
            if value == "TARGET"
            else target.partition("/")[0]
            if value == "ZONE"
            else value
            for name, value in body.items()
        }
        if self.happens(0.1):
            content = self.mutated(content)
        return self.sent("POST", f"/sim/v1/weather/{kind}", {}, content)

    def report(self) -> Request:
        """A host says something about itself."""
        nodes = [node for node in self.world.nodes.values() if node.workers]
        node = self.chance.choice(nodes) if nodes else None
        worker = self.chance.choice(node.workers) if node else None
        key = f"{node.uid}-{worker.index}" if node and worker else "1-0"
        boot = worker.boot if worker and self.happens(0.8) else self.chance.randrange(5)
        if self.happens(0.2):
            path = f"/sim/v1/hosts/{key}/guest-attributes/hostkeys/ssh-ed25519"
            content: Any = {"value": "AAAA"}
            http = "PUT"
        else:
            path, http = f"/sim/v1/hosts/{key}:report", "POST"
            content = {
                "event": self.chance.choice(["up", "up", "up", "rebooted", "off", "failed"]),
                "boot": boot,
            }
        if self.happens(0.15):
            content = self.mutated(content)
        return self.sent(http, path, {}, content)

    def door(self) -> Request:
        """Something odd to any route of any of Google's hosts."""
        route = self.chance.choice((*TPU_ROUTES, *services.ROUTES, *BATCH_ROUTES))
        words = (*NAMES, "demo", "data", "us-central2-b", "9" * 5000, self.odd_word())
        path = re.sub(
            r"\{\w+\}", lambda _: quote(self.chance.choice(words), safe="?"), route.template
        )
        query = {self.chance.choice(FIELDS): self.chance.choice(words) for _ in range(2)}
        body = {self.chance.choice(FIELDS): self.odd_value() for _ in range(2)}
        made = self.sent(route.method, path, query, body)
        kept = [name for name in ODD_HEADERS if self.happens(0.3)]
        odd = {name: self.chance.choice(ODD_HEADERS[name]) for name in kept}
        return replace(made, headers={**made.headers, **odd})

    def noise(self) -> Request:
        """A path that there is not, or nearly."""
        parts = [
            self.chance.choice(
                ["v2", "v1", "projects", "demo", "locations", "us-central2-b", "nodes", "a", "-",
                 "compute", "storage", "b", "sim", "hosts", "%zz", "%ff", "..", "", self.odd_path()]
            )
            for _ in range(self.chance.randrange(9))
        ]  # fmt: skip
        path = "/" + "/".join(parts)
        return self.sent(self.chance.choice(METHODS), path, {}, {} if self.happens(0.5) else None)


KINDS: tuple[Callable[[RequestAuthor], Request], ...] = (
    RequestAuthor.call,
    RequestAuthor.service,
    RequestAuthor.weather,
    RequestAuthor.report,
    RequestAuthor.noise,
    RequestAuthor.door,
)
KIND_WEIGHTS = (72, 10, 6, 10, 2, 8)
