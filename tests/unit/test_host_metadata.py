"""The metadata server's answers are a function of the tree and the request."""

import json
from typing import Any

import pytest

from tpuherd_sim.model.http_types import Request, Response
from tpuherd_sim.tpu.metadata_replies import (
    ROOT,
    ChangeWait,
    metadata_response,
    requested_wait,
    response_etag,
)

TREE: dict[str, Any] = {
    "instance": {
        "attributes": {"accelerator-type": "v4-16", "my-own_Key": "x", "ssh-keys": "a:b\nc:d"},
        "id": 4711,
        "name": "t1v-n-0-w-0",
        "preempted": "FALSE",
        "tags": ["one", "two"],
        "upcoming-maintenance": {"error": "no notifications have been received yet"},
        "machine-type": "projects/1/machineTypes/ct4p",
        "network-interfaces": {
            "0": {"ip": "10.0.0.2", "access-configs": {"0": {"external-ip": "127.64.0.1"}}}
        },
        "service-accounts": {
            "default": {
                "email": "e@x",
                "scopes": ["s1", "s2"],
                "token": {"access_token": "t", "expires_in": 5, "token_type": "Bearer"},
            }
        },
        "guest-attributes": {"hostkeys": {"ssh-ed25519": "AAAA"}},
    },
    "project": {"project-id": "demo"},
}
GOOGLE = {"metadata-flavor": "Google"}


def get(path: str, query: str = "", **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = Request(method="GET", path=ROOT + path, query=query, headers={**GOOGLE, **named})
    return metadata_response(TREE, request)


@pytest.mark.parametrize(
    ("path", "query", "kind", "body"),
    [
        ("/", "", "application/text", "instance/\nproject/\n"),
        ("/instance/name", "", "application/text", "t1v-n-0-w-0"),
        ("/instance/id", "", "application/text", "4711"),
        ("/instance/name", "alt=json", "application/json", '"t1v-n-0-w-0"'),
        ("/instance/id", "alt=json", "application/json", "4711"),
        ("/instance/attributes/", "", "application/text",
         "accelerator-type\nmy-own_Key\nssh-keys\n"),
        ("/instance/attributes/ssh-keys", "", "application/text", "a:b\nc:d"),
        ("/instance/network-interfaces/", "", "application/text", "0/\n"),
        ("/instance/network-interfaces/0/access-configs/0/external-ip", "", "application/text",
         "127.64.0.1"),
        ("/instance/tags", "alt=json", "application/json", '["one","two"]'),
        ("/instance/service-accounts/default/scopes", "", "application/text", "s1\ns2\n"),
        ("/instance/service-accounts/default/", "", "application/text", "email\nscopes\ntoken\n"),
        (
            "/instance/service-accounts/default/token", "", "application/json",
            '{"access_token":"t","expires_in":5,"token_type":"Bearer"}',
        ),
        (
            "/instance/service-accounts/default/", "recursive=true", "application/json",
            '{"email":"e@x","scopes":["s1","s2"]}',
        ),
        ("/instance/service-accounts/default", "recursive=True", "application/json",
         '{"email":"e@x","scopes":["s1","s2"]}'),
        ("/instance/attributes/", "recursive=true", "application/json",
         '{"accelerator-type":"v4-16","my-own_Key":"x","ssh-keys":"a:b\\nc:d"}'),
        ("/instance/network-interfaces/", "recursive=true&alt=text", "application/text",
         "0/access-configs/0/external-ip 127.64.0.1\n0/ip 10.0.0.2\n"),
        ("/instance/guest-attributes/hostkeys/", "recursive=true", "application/json",
         '{"ssh-ed25519":"AAAA"}'),
        ("/instance/", "alt=json", "application/json", None),
        ("/instance/%6eame", "", "application/text", "t1v-n-0-w-0"),
    ],
)  # fmt: skip
def test_values(path: str, query: str, kind: str, body: str | None) -> None:
    said = get(path, query)
    headers = dict(said.headers)
    assert said.status == 200
    assert body is None or said.body.decode() == body
    assert headers["Content-Type"] == kind
    assert headers["Metadata-Flavor"] == "Google"
    assert len(headers["ETag"]) == 16


def test_the_whole_tree_in_json() -> None:
    whole = json.loads(get("/", "recursive=true").body)
    assert whole["instance"]["networkInterfaces"] == [
        {"ip": "10.0.0.2", "accessConfigs": [{"externalIp": "127.64.0.1"}]}
    ]
    assert whole["instance"]["attributes"]["my-own_Key"] == "x"
    assert whole["instance"]["guestAttributes"] == {"hostkeys": {"ssh-ed25519": "AAAA"}}
    assert whole["instance"]["machineType"].endswith("ct4p")
    assert whole["project"] == {"projectId": "demo"}
    assert "token" not in whole["instance"]["serviceAccounts"]["default"]
    assert "upcomingMaintenance" not in whole["instance"]


def test_refusals() -> None:
    bare = Request(method="GET", path=ROOT + "/instance/name")
    assert metadata_response(TREE, bare).status == 403
    assert b"Metadata-Flavor" in metadata_response(TREE, bare).body
    assert get("/instance/name", x_forwarded_for="1.2.3.4").status == 403
    assert get("/instance/nothing").status == 404
    assert get("/instance/name/deeper").status == 404
    assert get("/instance/service-accounts/default/token/access_token").status == 404
    assert get("/../etc").status == 404
    post = Request(method="POST", path=ROOT + "/instance/name", headers=GOOGLE)
    assert metadata_response(TREE, post).status == 405
    none = get("/instance/upcoming-maintenance")
    assert (none.status, json.loads(none.body)["error"][:16]) == (404, "no notifications")
    old = Request(
        method="GET", path=ROOT + "/instance/id", headers={"x-google-metadata-request": "True"}
    )
    assert metadata_response(TREE, old).body == b"4711"


def test_access_rules() -> None:
    assert metadata_response(TREE, Request(method="GET", path="/")).body == b"computeMetadata/\n"
    there = Request(method="GET", path="/computeMetadata/", headers=GOOGLE)
    assert metadata_response(TREE, there).body == b"v1/\n"
    moved = get("/instance")
    assert moved.status == 301
    assert dict(moved.headers)["Location"].endswith("/computeMetadata/v1/instance/")


def test_the_etag_depends_only_on_the_value() -> None:
    assert response_etag(get("/instance/tags")) == response_etag(get("/instance/tags", "alt=json"))
    assert response_etag(get("/instance/tags")) != response_etag(get("/instance/name"))
    before = response_etag(get("/", "recursive=true"))
    TREE["instance"]["service-accounts"]["default"]["token"]["expires_in"] -= 1
    assert response_etag(get("/", "recursive=true")) == before


@pytest.mark.parametrize(
    ("query", "wait"),
    [
        ("", None),
        ("wait_for_change=false", None),
        ("wait_for_change=true", ChangeWait(last_etag=None, timeout_s=None)),
        (
            "wait_for_change=true&last_etag=0&timeout_sec=5",
            ChangeWait(last_etag="0", timeout_s=5.0),
        ),
        ("wait_for_change=true&timeout_sec=0", ChangeWait(last_etag=None, timeout_s=None)),
        ("wait_for_change=true&timeout_sec=x", ChangeWait(last_etag=None, timeout_s=None)),
    ],
)
def test_waiting_for_a_change(query: str, wait: ChangeWait | None) -> None:
    assert requested_wait(Request(method="GET", path="/", query=query)) == wait
