"""Every method of Google's discovery documents, called on the model of the world.

It answers with what fits the document, or refuses as Google does. How many it answers stands in
docs/explanation/simulator.md, so that no number falls in silence.
"""

import json
import pickle
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conformance.schema import Document, document
from tests.conformance.world import ROOT, borrow
from tests.simulated.test_fuzz import faults_of
from tests.simulated.tpu_user import ONE_HOST, PARENT, ZONE, User
from tpuherd_sim.google_apis.project import metadata_fingerprint
from tpuherd_sim.google_apis.uploads import CONTENT_HEADER
from tpuherd_sim.handle import handle_request, world_router
from tpuherd_sim.model.http_types import Request, Response

APIS = (
    "storage v1", "compute v1", "iam v1", "cloudresourcemanager v1", "cloudresourcemanager v3",
    "serviceusage v1", "serviceusage v1beta1", "oslogin v1", "tpu v1", "tpu v2", "tpu v2alpha1",
)  # fmt: skip
STORED = {"parts": [["f", 3]], "crc32c": "aaaaaa==", "md5": "bQ=="}
CONTENT = json.dumps({"part": ["f", 3], "content": STORED})
RUNTIME, TCP = "tpu-ubuntu2204-base", [{"IPProtocol": "tcp"}]
KEY = {"key": "ssh-ed25519 AAAAC3Nz ada"}
NEW = {"body": {"name": "new"}}
SPEC = {"parent": PARENT, "nodeId": "new", "node": ONE_HOST}
BINDING = {"role": "roles/viewer", "members": ["user:ada@example.com"]}
#: What calls are made of, by the names of parameters.
VALUES: Mapping[str, Any] = {
    "project": "demo", "projectsId": "demo", "projectId": "demo", "resource": "demo",
    "locationsId": ZONE, "zone": ZONE, "region": "us-central2", "firewall": "default-allow-ssh",
    "network": "default", "subnetwork": "default", "acceleratorTypesId": "v4-8", "nodesId": "n",
    "runtimeVersionsId": RUNTIME, "tensorflowVersionsId": RUNTIME, "queuedResourcesId": "q",
    "bucket": "data", "sourceBucket": "data", "destinationBucket": "data", "object": "x",
    "sourceObject": "x", "destinationObject": "new", "permissions": "storage.objects.get",
    "serviceAccountsId": "trainer@demo.iam.gserviceaccount.com", "usersId": "ada@example.com",
    "servicesId": "tpu.googleapis.com", "limitsId": "/project/zone", "v1Id": "projects",
    "v1Id1": "demo", "v1beta1Id": "projects", "v1beta1Id1": "demo",
    "consumerQuotaMetricsId": "tpu.googleapis.com/tpuv2s", "managedFolder": "m/",
    "entity": "project-viewers-123456789012",
}  # fmt: skip
ENTRIES = {"insert": {"body": {"entity": "allUsers", "role": "READER"}}}
#: The same for single methods, with their bodies.
SPECIAL: Mapping[str, Mapping[str, Any]] = {
    **{f"{noun}AccessControls.{verb}": {"bucket": "lists"} | ENTRIES.get(verb, {})
       for noun in ("bucket", "defaultObject", "object")
       for verb in ("delete", "get", "insert", "list", "patch", "update")},
    "buckets.restore": {"bucket": "gone"}, "objects.getIamPolicy": {"bucket": "lists"},
    "objects.setIamPolicy": {"bucket": "lists"},
    "managedFolders.insert": {"body": {"name": "n"}},
    "buckets.delete": {"bucket": "empty"}, "buckets.insert": NEW, "networks.insert": NEW,
    "buckets.setIamPolicy": {"body": {"bindings": []}}, "objects.insert": {"name": "new"},
    "objects.compose": {"body": {"sourceObjects": [{"name": "x"}]}},
    "objects.restore": {"object": "gone"}, "networks.delete": {"network": "own"},
    "firewalls.insert": {"body": {"name": "new", "allowed": TCP}},
    "firewalls.update": {"body": {"name": "default-allow-ssh", "allowed": TCP}},
    "serviceAccounts.create": {"body": {"accountId": "trainer-2"}},
    "projects.setIamPolicy": {"body": {"policy": {"bindings": [BINDING]}}},
    "projects.testIamPermissions": {"body": {"permissions": ["tpu.nodes.get"]}},
    "projects.setCommonInstanceMetadata": {"body": {"fingerprint": metadata_fingerprint({})}},
    "services.batchEnable": {"body": {"serviceIds": ["tpu.googleapis.com"]}},
    "users.importSshPublicKey": {"body": KEY}, "nodes.create": {"nodeId": "new", "body": ONE_HOST},
    "nodes.patch": {"updateMask": "labels", "body": {"labels": {"a": "b"}}},
    "nodes.start": {"nodesId": "stopped"}, "nodes.performMaintenance": {"nodesId": "ill"},
    "nodes.reimage": {"body": {"tensorflowVersion": RUNTIME}},
    "queuedResources.create": {"queuedResourceId": "new", "body": {"tpu": {"nodeSpec": [SPEC]}}},
    "queuedResources.delete": {"force": "true"},
    "queuedResources.performMaintenanceQueuedResource": {
        "body": {"nodeNames": [f"{PARENT}/nodes/q-n"]}
    },
}  # fmt: skip


class Method(NamedTuple):
    host: str
    path: str  #: /storage/v1/b/{bucket}
    spec: Mapping[str, Any]
    document: Document
    given: Mapping[str, Any]  #: what a call that should succeed has

    def call(self, **more: str) -> Request:
        path, query = self.path, dict(more)
        for name, shape in self.spec.get("parameters", {}).items():
            usual = shape.get("required") or (name in self.given and name != "generation")
            if shape["location"] == "query" and usual:
                query.setdefault(name, self.given.get(name, "none"))
        for name in re.findall(r"\{(\w+)\}", path):
            path = path.replace(f"{{{name}}}", quote(self.given.get(name) or "none", safe=""))
        body = json.dumps(self.given.get("body", {})) if "request" in self.spec else ""
        return Request(
            method=self.spec["httpMethod"], path=path, query=urlencode(query), body=body.encode(),
            headers={"host": self.host, CONTENT_HEADER: CONTENT},
        )  # fmt: skip

    def faults(self, request: Request, response: Response) -> list[str]:
        """What is wrong with a response, whatever was asked."""
        found = faults_of(request, response)
        if found or not response.body or response.status >= 300 or "response" not in self.spec:
            return found
        return self.document.faults(self.spec["id"], json.loads(response.body))


def every_method(
    source: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]
) -> Iterator[Method]:
    host, found = urlsplit(source["rootUrl"]).netloc, document(source)
    for spec in found.methods.values():
        path = f"/{source['servicePath']}{spec.get('flatPath', spec['path'])}"
        if "mediaUpload" in spec:
            path = spec["mediaUpload"]["protocols"]["simple"]["path"]
        own = SPECIAL.get(".".join(spec["id"].split(".")[-2:]), {})
        given = {**known.get(source["name"], {}), **known.get(spec["id"], {}), **own}
        yield Method(host, path, spec, found, {**VALUES, **given})


class Sweep:
    """A world in which something of everything exists, and the methods of the documents."""

    def __init__(self, documents: Any) -> None:
        user = User()
        for name in ("n", "ill", "stopped"):
            user.ready(name)
        user.active()
        node = user.verb("stop", "stopped")
        for name in ("ill", "q-n"):
            user.weather("maintain", target=name, notice_s=9e5, duration_s=300)
        for name in ("data", "empty", "lists", "gone"):
            access = {"uniformBucketLevelAccess": {"enabled": name != "lists"}}
            body = {"name": name, "iamConfiguration": access}
            bucket = user.post("/storage/v1/b?project=demo", body)
        user.ask("DELETE", "/storage/v1/b/gone")
        for name in ("lists/o?name=x", "data/o?name=x", "data/o?name=y", "data/o?name=gone"):
            upload = f"/upload/storage/v1/b/{name}&uploadType=media"
            stored = user.ask("POST", upload, headers={CONTENT_HEADER: CONTENT}).said
        user.ask("DELETE", "/storage/v1/b/data/o/gone")
        user.post("/storage/v1/b/data/managedFolders", {"name": "m"})
        restored = user.post("/storage/v1/b/data/o/bulkRestore", {"matchGlobs": ["none"]})
        user.post("/v1/projects/demo/serviceAccounts", {"accountId": "trainer"})
        profile = user.post("/v1/users/ada@example.com:importSshPublicKey", KEY)["loginProfile"]
        service = user.post("/v1/projects/demo/services/oslogin.googleapis.com:disable")
        network = user.post("/compute/v1/projects/demo/global/networks", {"name": "own"})
        user.wait(60)
        self.now, self.world = user.now, pickle.dumps(user.world)
        known: Mapping[str, Mapping[str, Any]] = {
            "tpu": {"operationsId": node.rpartition("/")[2]},
            "storage.buckets.restore": {"generation": bucket["generation"]},
            "storage": {
                "generation": stored["generation"],
                "operationId": restored["name"].split("/")[-1],
            },
            "compute": {"operation": network["name"]},
            "serviceusage": {"operationsId": service["name"].rpartition("/")[2]},
            "oslogin": {"sshPublicKeysId": next(iter(profile["sshPublicKeys"]))},
        }
        self.methods = {
            api: list(every_method(json.loads(documents.get_static_doc(*api.split())), known))
            for api in APIS
        }
        every = (one for some in self.methods.values() for one in some)
        find = world_router().find
        self.served = [one for one in every if find(one.spec["httpMethod"], one.call().path)]

    def ask(self, request: Request) -> Response:
        """Answer a request to a new copy of the world."""
        return handle_request(pickle.loads(self.world), request, self.now)


@pytest.fixture(scope="module")
def sweep() -> Sweep:
    borrow("light")
    return Sweep(pytest.importorskip("googleapiclient.discovery_cache"))


@pytest.mark.parametrize("api", APIS)
def test_every_method_is_answered_or_refused(sweep: Sweep, api: str) -> None:
    served, every = Counter[str](), Counter[str]()
    for method in sweep.methods[api]:
        request = method.call()
        response = sweep.ask(request)
        assert not method.faults(request, response), request
        noun = method.spec["id"].split(".")[-2]
        every[noun] += 1
        served[noun] += response.status < 300
    nouns = ", ".join(f"{noun} {many} of {every[noun]}" for noun, many in served.items() if many)
    row = f"| {api} | {served.total()} of {every.total()} | {nouns} |"
    assert row in (ROOT / "docs/explanation/simulator.md").read_text(), f"it has to say\n{row}"


FIELDS = st.sampled_from(["role", "members", "IPProtocol", "ports", "name", "key", "email", "@"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(FIELDS, inner, max_size=3),
    max_leaves=5,
)
RAW = st.sampled_from([b"", b"{", b"null", b"\xff", b"[" * 9000, b'{"a":' * 9000, b'{"a":1e999}'])
ODD = st.sampled_from(["", "-1", "0", "9" * 40, "true", "a" * 2000, "/", "..", "*"]) | st.text()


@settings(max_examples=400, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_malformed_calls_are_refused_as_google_refuses(sweep: Sweep, data: Any) -> None:
    method = data.draw(st.sampled_from(sweep.served))
    names = [*method.spec.get("parameters", {}), "nope", "alt", "fields", "filter"]
    odd = data.draw(st.dictionaries(st.sampled_from(names), ODD, max_size=3))
    request = method._replace(given={**method.given, **odd}).call(**odd)
    if data.draw(st.integers(0, 3)) == 0:
        request = replace(request, body=data.draw(RAW))
    elif "request" in method.spec:
        fields = method.document.schemas[method.spec["request"]["$ref"]].get("properties", {})
        names = [*fields, "nope"]
        content = data.draw(st.dictionaries(st.sampled_from(names), JSON, max_size=3))
        body = json.dumps({**method.given.get("body", {}), **content})
        request = replace(request, body=body.encode())
    response = sweep.ask(request)
    assert not method.faults(request, response), request
