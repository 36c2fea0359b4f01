"""The parts of Storage, Service Usage, tokens and discovery that TPU users need."""

import json
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from tests.simulated.in_process_world import Asker
from tpuherd.catalogue import discovery
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
