"""The parts of Compute that TPU users need: metadata, firewall rules, networks, zones."""

import json
import re
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulated.in_process_world import Asker
from tpuherd.catalogue import regions
from tpuherd_sim.google_apis.compute_lists import KINDS, ListedKind
from tpuherd_sim.google_apis.pagination import paginate_items
from tpuherd_sim.model.http_types import ApiError
from tpuherd_sim.model.project_metadata import project_metadata
from tpuherd_sim.model.world_codec import dump_world, load_world

PROJECT = "/compute/v1/projects/demo"
FIREWALLS = f"{PROJECT}/global/firewalls"
KEY = {"key": "ssh-keys", "value": "me:ssh-ed25519 AAAA me"}


@pytest.fixture
def world() -> Asker:
    return Asker()


def set_metadata(world: Asker, *items: dict[str, Any]) -> Any:
    seen = world.get(PROJECT)["commonInstanceMetadata"]["fingerprint"]
    return world.post(
        f"{PROJECT}/setCommonInstanceMetadata", {"fingerprint": seen, "items": list(items)}
    )


# -- the project ----------------------------------------------------------------------------------


def test_a_fresh_project_has_no_metadata(world: Asker) -> None:
    project = world.get(PROJECT)
    assert project["name"] == "demo"
    assert project["id"] == "123456789012"
    assert "items" not in project["commonInstanceMetadata"]


def test_the_project_is_found_by_its_number(world: Asker) -> None:
    assert world.get("/compute/v1/projects/123456789012") == world.get(PROJECT)


def test_another_project_is_not_found(world: Asker) -> None:
    answer = world.ask("GET", "/compute/v1/projects/other")
    assert answer.status == 404
    assert answer.message == "The resource 'projects/other' was not found"
    assert answer.reason == "notFound"


def test_metadata_is_replaced_with_the_current_fingerprint(world: Asker) -> None:
    operation = set_metadata(world, KEY)
    assert operation["kind"] == "compute#operation"
    assert world.get(PROJECT)["commonInstanceMetadata"]["items"] == [KEY]
    assert project_metadata(world.world) == {"ssh-keys": KEY["value"]}


def test_metadata_is_not_replaced_with_an_old_fingerprint(world: Asker) -> None:
    old = world.get(PROJECT)["commonInstanceMetadata"]["fingerprint"]
    set_metadata(world, KEY)
    answer = world.ask(
        "POST", f"{PROJECT}/setCommonInstanceMetadata", {"fingerprint": old, "items": []}
    )
    assert answer.status == 412
    assert answer.reason == "conditionNotMet"
    assert project_metadata(world.world) == {"ssh-keys": KEY["value"]}


@pytest.mark.parametrize(
    "items",
    [
        "text",
        ["text"],
        [{"value": "no key"}],
        [{"key": "a b", "value": ""}],
        [{"key": "twice", "value": "1"}, {"key": "twice", "value": "2"}],
        [{"key": "number", "value": 5}],
        [{"key": "long", "value": "x" * 300_000}],
        [{"key": f"much-{number}", "value": "x" * 200_000} for number in range(3)],
    ],
    ids=lambda items: str(items)[:30],
)
def test_invalid_metadata_is_refused(world: Asker, items: object) -> None:
    seen = world.get(PROJECT)["commonInstanceMetadata"]["fingerprint"]
    answer = world.ask(
        "POST", f"{PROJECT}/setCommonInstanceMetadata", {"fingerprint": seen, "items": items}
    )
    assert (answer.status, answer.reason) == (400, "invalid")
    assert project_metadata(world.world) == {}


def test_new_project_metadata_reaches_every_host(world: Asker) -> None:
    world.post(
        "/v2/projects/demo/locations/us-central2-b/nodes?nodeId=n1",
        {"acceleratorType": "v4-16", "runtimeVersion": "tpu-ubuntu2204-base"},
    )
    world.wait(3600)
    world.world.touched.clear()
    set_metadata(world, KEY)
    assert len(world.world.touched) == 2


# -- operations -----------------------------------------------------------------------------------


def test_an_operation_is_done_a_moment_later(world: Asker) -> None:
    name = set_metadata(world, KEY)["name"]
    path = f"{PROJECT}/global/operations/{name}"
    assert world.get(path)["status"] == "RUNNING"
    world.wait(2)
    done = world.get(path)
    assert (done["status"], done["progress"]) == ("DONE", 100)
    assert done["targetLink"].endswith("/projects/demo")


def test_waiting_for_an_operation_delays_the_answer(world: Asker) -> None:
    name = set_metadata(world, KEY)["name"]
    answer = world.ask("POST", f"{PROJECT}/global/operations/{name}/wait")
    assert answer.said["status"] == "DONE"
    assert 0 < answer.response.delay_s <= 1
    world.wait(2)
    assert world.ask("POST", f"{PROJECT}/global/operations/{name}/wait").response.delay_s == 0


def test_operations_are_listed_and_expire(world: Asker) -> None:
    for _ in range(600):
        set_metadata(world, KEY)
    assert len(world.world.services.changes) == 500
    page = world.get(f"{PROJECT}/global/operations")
    assert len(page["items"]) == 500
    assert "nextPageToken" not in page


# -- firewall rules -------------------------------------------------------------------------------


def test_the_default_network_has_its_four_rules(world: Asker) -> None:
    answer = world.get(FIREWALLS)
    assert answer["kind"] == "compute#firewallList"
    rules = {rule["name"]: rule for rule in answer["items"]}
    assert sorted(rules) == [
        "default-allow-icmp",
        "default-allow-internal",
        "default-allow-rdp",
        "default-allow-ssh",
    ]
    ssh = rules["default-allow-ssh"]
    assert ssh["allowed"] == [{"IPProtocol": "tcp", "ports": ["22"]}]
    assert ssh["priority"] == 65534
    assert ssh["network"].endswith("/projects/demo/global/networks/default")


MOSH = {"name": "mosh", "allowed": [{"IPProtocol": "udp", "ports": ["60000-61000"]}]}


def test_a_firewall_rule_from_insert_to_delete(world: Asker) -> None:
    assert world.post(FIREWALLS, MOSH)["operationType"] == "insert"
    rule = world.get(f"{FIREWALLS}/mosh")
    assert rule["sourceRanges"] == ["0.0.0.0/0"]
    assert (rule["direction"], rule["priority"], rule["disabled"]) == ("INGRESS", 1000, False)

    assert world.ask("PATCH", f"{FIREWALLS}/mosh", {"priority": 5}).status == 200
    assert world.get(f"{FIREWALLS}/mosh") == {**rule, "priority": 5}

    replaced = {"name": "mosh", "allowed": [{"IPProtocol": "tcp"}], "sourceRanges": ["10.0.0.0/8"]}
    assert world.ask("PUT", f"{FIREWALLS}/mosh", replaced).status == 200
    rule = world.get(f"{FIREWALLS}/mosh")
    assert (rule["sourceRanges"], rule["priority"]) == (["10.0.0.0/8"], 1000)

    assert world.ask("DELETE", f"{FIREWALLS}/mosh").said["operationType"] == "delete"
    answer = world.ask("GET", f"{FIREWALLS}/mosh")
    assert answer.status == 404
    assert answer.message == "The resource 'projects/demo/global/firewalls/mosh' was not found"


def test_a_name_can_be_taken_once(world: Asker) -> None:
    world.post(FIREWALLS, MOSH)
    answer = world.ask("POST", FIREWALLS, MOSH)
    assert (answer.status, answer.reason) == (409, "alreadyExists")
    assert answer.message == "The resource 'projects/demo/global/firewalls/mosh' already exists"


@pytest.mark.parametrize(
    "change",
    [
        {"name": "Mosh"},
        {"name": None},
        {"allowed": []},
        {"denied": [{"IPProtocol": "tcp"}]},
        {"allowed": [{"ports": ["22"]}]},
        {"allowed": [{"IPProtocol": "tcp", "ports": ["70000"]}]},
        {"allowed": [{"IPProtocol": "tcp", "ports": ["90-80"]}]},
        {"allowed": [{"IPProtocol": "tcp", "ports": [22]}]},
        {"sourceRanges": ["everywhere"]},
        {"sourceRanges": "10.0.0.0/8"},
        {"priority": -1},
        {"priority": "first"},
        {"direction": "SIDEWAYS"},
        {"direction": "EGRESS", "sourceRanges": ["10.0.0.0/8"]},
        {"network": "global/networks/none"},
        {"network": 7},
        {"disabled": "no"},
        {"targetTags": [""]},
    ],
    ids=str,
)
def test_an_invalid_rule_is_refused(world: Asker, change: dict[str, Any]) -> None:
    answer = world.ask("POST", FIREWALLS, {**MOSH, **change})
    assert (answer.status, answer.reason) == (400, "invalid")
    assert len(world.get(FIREWALLS)["items"]) == 4


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("name=default-allow-ssh", 1),
        ('name="default-allow-ssh"', 1),
        ("(name = default-allow-ssh)", 1),
        ("name eq default-allow-.*", 4),
        ("name ne .*ssh", 3),
        ("name != default-allow-ssh", 3),
        ("name:SSH", 1),
        ("direction=EGRESS", 0),
        ("name=default-allow-ssh AND direction=INGRESS", 1),
        ("(name = a) OR (name = default-allow-rdp) AND (direction = INGRESS)", 1),
        ("name:default-allow-R*", 1),
        ("name=*-allow-i*", 2),
        ("allowed.IPProtocol=tcp", 3),
        ("disabled=false", 4),
        ("NOT logConfig:enable", 0),
        ('(name eq ".*(ssh|rdp)") (direction ne EGRESS)', 2),
    ],
)
def test_a_list_is_filtered(world: Asker, condition: str, found: int) -> None:
    answer = world.get(f"{FIREWALLS}?{urlencode({'filter': condition})}")
    assert len(answer.get("items", [])) == found
    assert ("items" in answer) == (found > 0)


def test_a_list_comes_in_pages(world: Asker) -> None:
    first = world.get(f"{FIREWALLS}?maxResults=3")
    rest = world.get(f"{FIREWALLS}?maxResults=3&pageToken={first['nextPageToken']}")
    assert (len(first["items"]), len(rest["items"])) == (3, 1)
    assert "nextPageToken" not in rest


@pytest.mark.parametrize("query", ["maxResults=many", "maxResults=-1", "pageToken=x", "filter=%3D"])
def test_an_invalid_page_token_is_refused(world: Asker, query: str) -> None:
    assert world.ask("GET", f"{FIREWALLS}?{query}").status == 400


def test_a_list_is_in_the_order_asked_for(world: Asker) -> None:
    names = [rule["name"] for rule in world.get(FIREWALLS)["items"]]
    assert names == sorted(names)
    world.wait(60)
    world.post(FIREWALLS, {"name": "mosh", "allowed": [{"IPProtocol": "udp"}]})
    newest = world.get(f"{FIREWALLS}?orderBy=creationTimestamp%20desc&maxResults=1")["items"]
    assert [rule["name"] for rule in newest] == ["mosh"]
    refused = world.ask("GET", f"{FIREWALLS}?orderBy=priority")
    assert (refused.status, refused.reason) == (400, "invalid")


NAMES = ("a", "b", "ab")
ITEMS = [{"name": n, "parts": [{"n": m} for m in ms]} for n in NAMES for ms in ("", "a", "ab")]
FIELDS, SIGNS = st.sampled_from(["name", "parts.n"]), st.sampled_from(["=", "!=", ":"])
LEAVES = st.tuples(FIELDS, SIGNS, st.sampled_from([*NAMES, "a*", "*"]))
JOINTS = st.sampled_from(["AND", "OR", "", "NOT"])
TREES = st.recursive(
    LEAVES, lambda below: st.tuples(JOINTS, st.lists(below, min_size=1, max_size=4)), max_leaves=20
)


def write_filter(tree: Any) -> str:
    if len(tree) == 3:
        return " ".join(tree)
    if tree[0] == "NOT":
        return f"NOT ({write_filter(tree[1][0])})"
    return "(" + f") {tree[0]} (".join(map(write_filter, tree[1])) + ")"


def is_match(tree: Any, item: Any) -> bool:
    if len(tree) == 2:
        parts = [is_match(one, item) for one in tree[1]]
        return {"OR": any(parts), "NOT": not parts[0]}.get(tree[0], all(parts))
    field, sign, wanted = map(str, tree)
    values = [item["name"]] if field == "name" else [part["n"] for part in item["parts"]]
    if sign == ":" and "*" not in wanted:
        return any(wanted in value for value in values)
    found = any(fnmatchcase(value, wanted) for value in values)
    return found == (sign != "!=")


@given(TREES)
def test_any_filter_finds_what_a_naive_reading_finds(tree: Any) -> None:
    found = paginate_items(ITEMS, {"filter": write_filter(tree)}).get("items", [])
    assert found == [item for item in ITEMS if is_match(tree, item)]


WORDS = st.sampled_from(["(", ")", "AND", "OR", "NOT", "name", "=", "!=", ":", "eq", "a", "'", '"'])


@given(st.lists(WORDS, max_size=12).map(" ".join) | st.text() | st.just("(" * 500))
def test_a_filter_is_understood_or_refused(text: str) -> None:
    try:
        found = paginate_items(ITEMS, {"filter": text}).get("items", [])
    except ApiError as refused:
        assert (refused.http, text in refused.message) == (400, True)
    else:
        assert found == ITEMS or re.search("[:=]| eq ", text)


# -- networks and places --------------------------------------------------------------------------


def test_the_default_network_reaches_every_region(world: Asker) -> None:
    networks = world.get(f"{PROJECT}/global/networks")["items"]
    assert [network["name"] for network in networks] == ["default"]
    assert len(networks[0]["subnetworks"]) == len(regions())
    here = f"{PROJECT}/regions/us-central2/subnetworks/default"
    assert world.get(here)["ipCidrRange"].endswith(".0.0/20")


def test_a_network_with_rules_cannot_be_deleted(world: Asker) -> None:
    world.post(f"{PROJECT}/global/networks", {"name": "own", "autoCreateSubnetworks": False})
    assert world.ask("POST", f"{PROJECT}/global/networks", {"name": "own"}).status == 409
    world.post(FIREWALLS, {**MOSH, "network": "projects/demo/global/networks/own"})
    effective = world.get(f"{PROJECT}/global/networks/own/getEffectiveFirewalls")
    assert [rule["name"] for rule in effective["firewalls"]] == ["mosh"]
    refused = world.ask("DELETE", f"{PROJECT}/global/networks/own")
    assert refused.status == 400
    assert "already being used by 'projects/demo/global/firewalls/mosh'" in refused.message
    world.ask("DELETE", f"{FIREWALLS}/mosh")
    assert world.ask("DELETE", f"{PROJECT}/global/networks/own").status == 200
    assert world.ask("GET", f"{PROJECT}/global/networks/own").status == 404


def test_regions_and_zones_exist(world: Asker) -> None:
    assert len(world.get(f"{PROJECT}/regions")["items"]) == len(regions())
    zones = world.get(f"{PROJECT}/zones")["items"]
    assert len(zones) == sum(len(region.zones) for region in regions().values())
    assert len({zone["id"] for zone in zones}) == len(zones)
    assert world.get(f"{PROJECT}/zones/us-central2-b")["region"].endswith("/regions/us-central2")
    refused = world.ask("GET", f"{PROJECT}/zones/mars/instances")
    assert refused.message == "Invalid value for field 'zone': 'mars'. Unknown zone."


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.plural)
def test_every_kind_is_listed_by_place(world: Asker, kind: ListedKind) -> None:
    set_metadata(world, KEY)
    rows: dict[str, Any] = {}
    for place in kind.list_places():
        path = f"{PROJECT}/{place}/{kind.plural}".replace("//", "/")
        page = world.get(path)
        rows[place] = page.get("items", [])
        assert page["kind"] == f"compute#{kind.noun}List"
        assert page["selfLink"].endswith(path)
        assert world.ask("GET", f"{path}/none").status == 404
        assert all(world.get(f"{path}/{one['name']}") == one for one in rows[place])
    full = "firewall network operation region subnetwork zone".split()
    assert any(rows.values()) == (kind.noun in full)
    if kind.scopes[-1] in ("zones", "regions"):
        page = world.get(f"{PROJECT}/aggregated/{kind.plural}")["items"]
        assert {place: one.get(kind.plural, []) for place, one in page.items()} == rows
        warned = {place for place, one in page.items() if "warning" in one}
        assert warned == {place for place in rows if not rows[place]}


# -- all of it ------------------------------------------------------------------------------------


def test_the_services_survive_saving(world: Asker) -> None:
    set_metadata(world, KEY)
    world.post(FIREWALLS, MOSH)
    world.post("/storage/v1/b?project=demo", {"name": "data", "location": "nam4"})
    again = load_world(json.loads(json.dumps(dump_world(world.world))))
    assert again.services == world.world.services


def test_the_same_seed_gives_the_same_project() -> None:
    assert Asker().get(FIREWALLS) == Asker().get(FIREWALLS)
