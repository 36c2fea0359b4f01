"""The parts of Storage, Service Usage, tokens and discovery that TPU users need."""

import json
import re
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from tests.simulated.in_process_world import Asker
from tpuherd.catalogue import discovery
from tpuherd_sim.google_apis.bucket_access import HOST_HEADER
from tpuherd_sim.model.world_codec import dump_world


@pytest.fixture
def world() -> Asker:
    return Asker()


# -- buckets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "location", "kind"),
    [
        ({}, "US", "multi-region"),
        ({"location": "us-central2"}, "US-CENTRAL2", "region"),
        ({"location": "EUROPE-WEST4"}, "EUROPE-WEST4", "region"),
        ({"location": "nam4"}, "NAM4", "dual-region"),
        (
            {
                "location": "US",
                "customPlacementConfig": {"dataLocations": ["us-east1", "US-EAST4"]},
            },
            "US",
            "dual-region",
        ),
    ],
    ids=str,
)
def test_a_bucket_has_a_location(
    world: Asker, wanted: dict[str, Any], location: str, kind: str
) -> None:
    made = world.post("/storage/v1/b?project=demo", {"name": "data-1", **wanted})
    assert (made["location"], made["locationType"]) == (location, kind)
    assert world.get("/storage/v1/b/data-1?projection=noAcl&prettyPrint=false") == made
    if "customPlacementConfig" in wanted:
        assert made["customPlacementConfig"] == {"dataLocations": ["US-EAST1", "US-EAST4"]}


def test_buckets_are_listed_and_deleted(world: Asker) -> None:
    for name in ("one", "two", "three"):
        world.post("/storage/v1/b?project=demo", {"name": name})
    listed = world.get("/storage/v1/b?project=demo&prefix=t")
    assert [bucket["name"] for bucket in listed["items"]] == ["three", "two"]
    assert world.ask("DELETE", "/storage/v1/b/two").status == 204
    answer = world.ask("GET", "/storage/v1/b/two")
    assert (answer.status, answer.message) == (404, "The specified bucket does not exist.")


def test_a_foreign_bucket_cannot_be_read(world: Asker) -> None:
    world.post("/storage/v1/b?project=other", {"name": "theirs"})
    answer = world.ask("GET", "/storage/v1/b/theirs")
    assert (answer.status, answer.reason) == (403, "forbidden")
    assert "storage.buckets.get" in answer.message
    assert "items" not in world.get("/storage/v1/b?project=demo")
    taken = world.ask("POST", "/storage/v1/b?project=demo", {"name": "theirs"})
    assert (taken.status, taken.reason) == (409, "conflict")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": "UPPER"},
        {"name": 5},
        {"name": "data", "location": "mars"},
        {"name": "data", "location": 7},
        {"name": "data", "storageClass": "GOLD"},
        {"name": "data", "labels": ["a"]},
        {
            "name": "data",
            "location": "US",
            "customPlacementConfig": {"dataLocations": ["US-EAST1"]},
        },
        {
            "name": "data",
            "location": "EU",
            "customPlacementConfig": {"dataLocations": ["US-EAST1", "US-EAST4"]},
        },
    ],
    ids=str,
)
def test_an_invalid_bucket_is_refused(world: Asker, body: dict[str, Any]) -> None:
    answer = world.ask("POST", "/storage/v1/b?project=demo", body)
    assert (answer.status, answer.reason) == (400, "invalid")
    assert world.ask("POST", "/storage/v1/b", {"name": "data"}).status == 400


# -- service usage --------------------------------------------------------------------------------

USAGE = "/v1beta1/projects/demo/services/tpu.googleapis.com/consumerQuotaMetrics"


def test_quota_metrics_have_limits_with_buckets(world: Asker) -> None:
    metrics = world.get(USAGE)["metrics"]
    assert metrics
    for metric in metrics:
        assert metric["metric"].startswith("tpu.googleapis.com/")
        assert metric["name"].endswith(quote(metric["metric"], safe=""))
        assert world.get(f"/v1beta1/{metric['name']}") == metric
        for limit in metric["consumerQuotaLimits"]:
            assert limit["metric"] == metric["metric"]
            assert limit["quotaBuckets"][0].get("dimensions", {}) == {}
            assert world.get(f"/v1beta1/{limit['name']}") == limit


def test_a_reduced_quota_is_shown(world: Asker) -> None:
    world.post("/sim/v1/weather/quota", {"zone": "us-central2-b", "quota": "v4", "limit": 32})
    shown = {
        bucket["dimensions"].get("zone"): bucket["effectiveLimit"]
        for metric in world.get(USAGE)["metrics"]
        for limit in metric["consumerQuotaLimits"]
        for bucket in limit["quotaBuckets"]
        if bucket.get("dimensions")
    }
    assert shown["us-central2-b"] == "32"


def test_quota_metrics_come_in_pages(world: Asker) -> None:
    every = world.get(USAGE)["metrics"]
    first = world.get(f"{USAGE}?pageSize=2")
    second = world.get(f"{USAGE}?pageSize=2&pageToken={first['nextPageToken']}")
    assert first["metrics"] + second["metrics"] == every[:4]


def test_the_api_is_enabled(world: Asker) -> None:
    service = world.get("/v1/projects/demo/services/tpu.googleapis.com")
    assert service["state"] == "ENABLED"
    done = world.post("/v1/projects/demo/services/tpu.googleapis.com:enable")
    assert done["done"] is True
    assert done["response"]["service"] == service
    assert service in world.get("/v1/projects/demo/services?filter=state:ENABLED")["services"]
    assert world.ask("GET", "/v1/projects/demo/services/none.googleapis.com").status == 403
    assert world.ask("GET", "/v1/projects/other/services/tpu.googleapis.com").status == 403


# -- tokens and projects --------------------------------------------------------------------------

FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize(
    ("path", "form"),
    [
        (
            "/token",
            {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": "a.b.c"},
        ),
        ("/token", {"grant_type": "refresh_token", "refresh_token": "1//x"}),
        ("/oauth2/v4/token", {"grant_type": "authorization_code", "code": "4/x"}),
    ],
    ids=str,
)
def test_a_token_is_issued(world: Asker, path: str, form: dict[str, str]) -> None:
    answer = world.ask("POST", path, raw=urlencode(form).encode(), headers=FORM)
    assert answer.status == 200
    assert answer.said["access_token"]
    assert (answer.said["expires_in"], answer.said["token_type"]) == (3599, "Bearer")
    facts = world.get(f"/tokeninfo?access_token={answer.said['access_token']}")
    assert facts["email"].endswith("@developer.gserviceaccount.com")


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({}, "unsupported_grant_type"),
        ({"grant_type": "wish"}, "unsupported_grant_type"),
        ({"grant_type": "refresh_token"}, "invalid_request"),
    ],
    ids=str,
)
def test_an_invalid_token_request_is_refused(
    world: Asker, form: dict[str, str], error: str
) -> None:
    answer = world.ask("POST", "/token", raw=urlencode(form).encode(), headers=FORM)
    assert (answer.status, answer.said["error"]) == (400, error)


def test_tokens_do_not_change_the_world(world: Asker) -> None:
    before = json.dumps(dump_world(world.world))
    form = urlencode({"grant_type": "refresh_token", "refresh_token": "1//x"}).encode()
    world.ask("POST", "/token", raw=form, headers=FORM)
    assert json.dumps(dump_world(world.world)) == before


def test_an_account_may_be_used_from_anywhere(world: Asker) -> None:
    path = "/v1/projects/-/serviceAccounts/a@b.iam.gserviceaccount.com/allowedLocations"
    assert world.ask("GET", path).status == 404


def test_the_resource_manager_knows_the_project(world: Asker) -> None:
    project = world.get("/v1/projects/demo")
    assert (project["projectId"], project["projectNumber"]) == ("demo", "123456789012")
    assert project["lifecycleState"] == "ACTIVE"
    assert world.get("/v3/projects/123456789012")["state"] == "ACTIVE"
    assert world.ask("GET", "/v1/projects/other").status == 403
    wanted = {"permissions": ["tpu.nodes.create"]}
    assert world.post("/v1/projects/demo:testIamPermissions", wanted) == wanted


# -- discovery ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("/$discovery/rest", "v2"),
        ("/%24discovery/rest?version=v2alpha1", "v2alpha1"),
        ("/discovery/v1/apis/tpu/v1/rest", "v1"),
    ],
)
def test_the_api_describes_itself(world: Asker, path: str, version: str) -> None:
    document = world.get(path)
    assert document["version"] == version
    assert document["schemas"] == discovery(version)["schemas"]
    assert document["rootUrl"] == "https://tpu.googleapis.com/"


def test_the_document_has_the_address_that_the_caller_used(world: Asker) -> None:
    straight = world.ask("GET", "/$discovery/rest", headers={"host": "127.0.0.1:8080"})
    assert straight.said["rootUrl"] == straight.said["baseUrl"] == "http://127.0.0.1:8080/"
    through = world.ask("GET", "/$discovery/rest", headers={"host": "tpu.googleapis.com:443"})
    assert through.said["rootUrl"] == "https://tpu.googleapis.com/"


def test_there_is_no_document_of_an_unknown_api(world: Asker) -> None:
    assert world.ask("GET", "/$discovery/rest?version=v9").status == 404
    assert world.ask("GET", "/discovery/v1/apis/drive/v3/rest").status == 404


# -- hosts, methods, batches ----------------------------------------------------------------------

NODES, MINE = "/v2/projects/demo/locations/us-central2-b/nodes", "/storage/v1/b/mine"
#: A path, and the hosts that serve it.
SERVED = {
    NODES: ("tpu", "us-east1-tpu"),
    "/$discovery/rest?version=v1": ("tpu", "us-east1-tpu"),
    "/compute/v1/projects/demo": ("compute", "www"),
    "/storage/v1/b?project=demo": ("storage", "www"),
    "/v1/projects/demo/serviceAccounts": ("iam",),
    "/v1/projects/demo/services": ("serviceusage",),
    "/v1/projects/demo": ("cloudresourcemanager",),
    "/tokeninfo?access_token=x": ("oauth2", "www"),
    "/discovery/v1/apis/tpu/v2/rest": ("discovery", "www"),
    "/v2/projects/<b>/pods": (),
}


def test_a_path_belongs_to_hosts_and_an_unknown_one_is_a_page(world: Asker) -> None:
    hosts = sorted({host for known in SERVED.values() for host in known} | {"logging"})
    for path, known in SERVED.items():
        addresses = {"127.0.0.1:8080": bool(known)}
        addresses |= {f"{host}.googleapis.com:443": host in known for host in hosts}
        for host, served in addresses.items():
            answer = world.ask("GET", path, headers={"host": host})
            assert answer.status == (200 if served else 404), (path, host)
            assert served or "<title>Error 404 (Not Found)!!1</title>" in answer.said
            assert "<b>/" not in str(answer.said)
    assert world.ask("PUT", NODES).said.startswith("<!DOCTYPE html>")
    assert world.ask("GET", "/sim/v1/nothing").message == "Method not found."


def test_a_post_can_mean_another_method(world: Asker) -> None:
    world.post("/storage/v1/b?project=demo", {"name": "mine"})
    means_get = {**FORM, "x-http-method-override": "GET"}
    for path, form in (
        (f"{NODES}?prettyPrint=true", "pageSize=2"),
        ("/compute/v1/projects/demo/zones?prettyPrint=true", "maxResults=1"),
        ("/storage/v1/b?prefix=m", "project=demo"),
    ):
        said = world.ask("POST", path, raw=form.encode(), headers=means_get).said
        assert said == world.get(f"{path}&{form}")
    world.ask("POST", MINE, {"labels": {"a": "b"}}, headers={"x-http-method-override": "patch"})
    assert world.get(MINE)["labels"] == {"a": "b"}


def send_batch(world: Asker, *parts: str, path: str = "/batch", **headers: str) -> list[int]:
    """Send a batch and return the statuses of its parts, or its own if it is refused."""
    head = "--b\nContent-Type: application/http\nContent-ID: <x + {}>\n\n"
    rows = [f"{head.format(number)}{part}\n" for number, part in enumerate(parts)]
    headers["content-type"] = "multipart/mixed; boundary=b"
    answer = world.ask("POST", path, raw="".join([*rows, "--b--"]).encode(), headers=headers)
    found = re.findall(r"-ID: <response-x \+ (\d+)>\r\n\r\nHTTP/1.1 (\d+) \w", str(answer.said))
    assert [int(number) for number, _ in found] == list(range(len(found)))
    return [int(status) for _, status in found] or [answer.status]


def test_each_part_of_a_batch_is_a_request_of_its_own(world: Asker) -> None:
    create = 'POST /storage/v1/b?project=demo HTTP/1.1\nX-A: b\n\n{"name": "mine"}'
    change = f'PATCH {MINE}\n\n{{"labels": {{"k": "é"}}}}'
    far, nodes = f"GET https://www.googleapis.com{MINE}\n", f"GET {NODES}\nHost: evil\n"
    wanted = [200, 409, 200, 200, 404, 200]
    assert send_batch(world, create, create, change, far, "GET /no", nodes) == wanted
    assert world.get(MINE)["labels"] == {"k": "é"}
    world.post("/sim/v1/weather/http-error", {"http": 503, "method": "nodes.list", "times": 1})
    assert send_batch(world, nodes, nodes, far) == [503, 200, 200]


def test_a_batch_does_nothing_that_its_caller_may_not(world: Asker) -> None:
    world.post("/storage/v1/b?project=demo", {"name": "mine"})
    get, delete, path = f"GET {MINE}", f"DELETE {MINE}", "/batch/storage/v1"
    forged = f"{get}\n{HOST_HEADER}: 7-0\n"  # a host that is gone has no rights
    assert send_batch(world, get, forged, path=path) == [200, 200]
    assert send_batch(world, get, forged, path=path, **{HOST_HEADER: "7-0"}) == [403, 403]
    others = (f"GET {NODES}", "GET /sim/v1/weather", f"POST {path}", f"POST /upload{MINE}/o")
    assert send_batch(world, *others, path=path) == [404] * 4
    assert send_batch(world, *others) == [200, 404, 404, 404]
    assert send_batch(world, get, others[0], host="storage.googleapis.com") == [200, 404]
    assert send_batch(world, *[get] * 100, path=path) == [200] * 100
    for bad in ("GET", "", "GET /é", "GET http://["):
        assert send_batch(world, delete, bad, path=path) == [400]
    assert send_batch(world, *[delete] * 101, path=path) == [400]
    assert world.get(MINE)["name"] == "mine"
