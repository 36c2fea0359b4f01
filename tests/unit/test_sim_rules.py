"""Small rules of the simulator: sizes, quotas, times, routes, addresses."""

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulated.tpu_user import User, fresh
from tpuherd.catalogue import accelerators, discovery, zones
from tpuherd_sim import handle
from tpuherd_sim.tpu import ip_addresses
from tpuherd_sim.tpu.durations import DURATIONS
from tpuherd_sim.tpu.quota_and_stock import QUOTAS, quota_id, quota_ids
from tpuherd_sim.tpu.request_schemas import (
    NUMBERS,
    message_fields,
    method_schemas,
    snake_case,
)
from tpuherd_sim.tpu.timestamps import format_timestamp, parse_duration, parse_time
from tpuherd_sim.tpu.validate import camel_case

VERSIONS = ("v1", "v2", "v2alpha1")
TYPES = sorted(one.type for one in accelerators().values() if one.enum)
QUOTA = re.compile(r"TPU(V2s|V3s|V4s|V5s|V5P|V6E)(Preemptible)?(Pod|Litepod|LitepodServing)?"
                   r"PerProjectPer(Zone|Region)ForTPUAPI")  # fmt: skip


@pytest.mark.parametrize("type", TYPES)
def test_every_type_can_be_created_with_all_its_hosts(type: str) -> None:
    user = User()
    one = accelerators()[type]
    zone = min(name for name, here in zones().items() if type in here.types)
    place = f"/v2/projects/demo/locations/{zone}/nodes"
    config = {"type": one.enum, "topology": one.topology}
    body = {"acceleratorConfig": config, "runtimeVersion": "v2-alpha"}
    user.post(f"{place}?nodeId=n", body)
    user.wait(3600)
    node = user.get(f"{place}/n")
    assert (node["state"], node["acceleratorType"]) == ("READY", type)
    assert node["acceleratorConfig"] == config
    assert len(node["networkEndpoints"]) == one.hosts


@pytest.mark.parametrize("type", TYPES)
def test_every_type_has_a_well_formed_quota(type: str) -> None:
    for spot in (False, True):
        id, amount = quota_id(type, spot)
        assert QUOTA.fullmatch(id) and ("Preemptible" in id) == spot
        assert amount in (accelerators()[type].cores, accelerators()[type].chips)


def test_a_family_names_its_quotas() -> None:
    assert set(QUOTAS) == {one.generation for one in accelerators().values() if one.enum}
    for family in QUOTAS:
        ids = quota_ids(family)
        own = {quota_id(type, spot)[0] for type in TYPES for spot in (False, True)
               if accelerators()[type].generation == family}  # fmt: skip
        assert set(ids) == own
    assert quota_ids("v5litepod") == quota_ids("v5e")
    assert quota_ids("none") == []


def test_duration_ranges_are_low_to_high() -> None:
    assert all(0.0 < low <= high for low, high in DURATIONS.values())


@given(st.integers(-62135596800 * 10**6, 253402300799 * 10**6))
def test_timestamps_are_parsed_as_rendered(micros: int) -> None:
    at = micros / 1e6
    text = format_timestamp(at)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", text)
    read = parse_time(text)
    assert read is not None and abs(read - at) < 1e-4
    if at > 0:
        assert text[:19] == datetime.fromtimestamp(int(at), UTC).isoformat()[:19]


@given(st.integers(0, 10**15))
def test_durations_are_parsed(nanos: int) -> None:
    assert parse_duration(f"{nanos / 1e9:.9f}s") == pytest.approx(nanos / 1e9, abs=1e-8)


@pytest.mark.parametrize("text", ["", "s", "5", "5 s", "1h", "--5s", "1e3s", "٣s"])
def test_invalid_durations(text: str) -> None:
    assert parse_duration(text) is None


@pytest.mark.parametrize(
    "text", ["", "now", "2026-13-01T00:00:00Z", "2026-01-01", "2026-01-01T00:00:00"]
)
def test_invalid_times(text: str) -> None:
    assert parse_time(text) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_every_method_of_the_documents_has_a_route(version: str) -> None:
    """⇔: no route is served that the documents don't know, either."""
    documented = set()

    def walk(resources: dict[str, object]) -> None:
        for resource in resources.values():
            assert isinstance(resource, dict)
            for one in resource.get("methods", {}).values():
                verb = one["flatPath"].partition(":")[2]
                path = re.sub(r"\{[^}]*\}", "x", "/" + one["flatPath"])
                documented.add((one["httpMethod"], path, ".".join(one["id"].split(".")[-2:])))
                assert verb == "" or path.endswith(f":{verb}")
            walk(resource.get("resources", {}))

    walk(discovery(version)["resources"])
    for method, path, name in documented:
        found = handle.world_router().find(method, path)
        assert found is not None and found.name == name, (method, path)
    served = {
        (route.method, re.sub(r"\{[^}]*\}", "x", route.template))
        for route in handle.TPU_ROUTES
        if route.template.startswith(f"/{version}/")
    }
    assert served == {(method, path) for method, path, _ in documented}


def test_a_verb_is_split_off_only_if_there_is_one() -> None:
    find = handle.world_router().find
    place = "/v2/projects/p/locations/z/nodes"
    for path, name, node in (
        (f"{place}/n:stop", "nodes.stop", "n"),
        (f"{place}/a:b:stop", "nodes.stop", "a:b"),
        (f"{place}/a%3Astop", "nodes.stop", "a"),
    ):
        found = find("POST", path)
        assert found is not None and (found.name, found.path["node"]) == (name, node)
    found = find("GET", f"{place}/n:stop")
    assert found is not None and found.path["node"] == "n:stop"
    assert find("GET", f"{place}/") is not None
    assert find("GET", "/v2/projects//locations/z/nodes") is None
    assert find("GET", f"{place}/n/x") is None


@pytest.mark.parametrize("version", ["v2", "v2alpha1"])
def test_masks_name_fields_in_either_case(version: str) -> None:
    for name, (_, _) in message_fields(version, "Node").items():
        assert (
            camel_case(name)
            == camel_case(snake_case(name))
            == message_fields(version, "Node")[name][0]
        )


@pytest.mark.parametrize("version", VERSIONS)
def test_enum_numbers_match_the_documents(version: str) -> None:
    schemas = discovery(version)["schemas"]
    for place, names in NUMBERS.items():
        schema, _, field = place.partition(".")
        if schema in schemas:
            known = set(schemas[schema]["properties"][field]["enum"])
            assert set(names.values()) <= known


def test_every_method_is_identified_by_its_parameters() -> None:
    assert method_schemas("v2")["nodes.create"].body == "Node"
    assert method_schemas("v2")["nodes.create"].query == {"nodeId": "string"}
    assert "requestId" in method_schemas("v2alpha1")["nodes.create"].query


def test_addresses_are_used_in_turn_and_reused_late() -> None:
    world = fresh(network=9)
    first = ip_addresses.allocate_external(world)
    assert first == "127.9.0.1"
    ip_addresses.release_external(world, first)
    assert ip_addresses.allocate_external(world) == "127.9.0.2"
    assert ip_addresses.allocate_external(world, recycled=True) == "127.9.0.1"
    world.books.external_made = ip_addresses.EXTERNAL_MAX
    assert ip_addresses.allocate_external(world) is None
    for released in ("127.9.0.2", "127.9.0.1"):
        ip_addresses.release_external(world, released)
    assert ip_addresses.allocate_external(world) == "127.9.0.2"


def test_every_external_address_is_in_its_network() -> None:
    world = fresh(network=9)
    every = [ip_addresses.allocate_external(world) for _ in range(ip_addresses.EXTERNAL_MAX)]
    assert len(set(every)) == ip_addresses.EXTERNAL_MAX and None not in every
    for address in every:
        assert address is not None
        first, network, third, fourth = (int(part) for part in address.split("."))
        assert (first, network) == (127, 9)
        assert 0 <= third < 256 and 0 < fourth < 255


@pytest.mark.parametrize("made", [0, 253, 254, 65023, 65024, 128 * 254, 300 * 254])
def test_internal_addresses_are_in_googles_network(made: int) -> None:
    world = fresh()
    world.books.internal_made = made
    first, second, third, fourth = (
        int(part) for part in ip_addresses.allocate_internal(world).split(".")
    )
    assert first == 10 and 128 <= second <= 255
    assert 0 <= third < 256 and 0 < fourth < 255
    assert (second, third) != (128, 0)


def test_a_released_address_is_reused_late_and_few_are_remembered() -> None:
    """A world through months of preemptions does not remember millions of addresses."""
    world = fresh()
    first = ip_addresses.allocate_external(world), ip_addresses.allocate_internal(world)
    seen, reused_at = {first}, []
    ip_addresses.release_external(world, first[0])
    ip_addresses.release_internal(world, first[1])
    for number in range(3 * ip_addresses.FREE_MAX):
        pair = ip_addresses.allocate_external(world), ip_addresses.allocate_internal(world)
        if pair in seen:
            reused_at.append(number)
        seen.add(pair)
        ip_addresses.release_external(world, pair[0])
        ip_addresses.release_internal(world, pair[1])
    assert reused_at[0] >= ip_addresses.FREE_MAX
    assert len(world.books.external_free) <= ip_addresses.FREE_MAX + 1
    assert len(world.books.internal_free) <= ip_addresses.FREE_MAX + 1
