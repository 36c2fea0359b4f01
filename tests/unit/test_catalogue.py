"""The tables agree with each other, are dated, and name their sources."""

import re
import subprocess
import sys
from math import prod
from typing import Any

import pytest

from tpuherd import catalogue
from tpuherd.catalogue import reader

TABLES = sorted(path.stem for path in reader.TABLES.glob("*.csv"))
VERSIONS = reader.API_VERSIONS


def product(shape: str, by: str) -> int:
    return prod(int(part) for part in shape.split(by))


@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_a_date_and_a_source(table: str) -> None:
    header, rows = reader.read_table(table)
    assert re.fullmatch(r"20\d\d-[01]\d-[0-3]\d", header["date"])
    assert header["source"]
    assert rows


@pytest.mark.parametrize("version", VERSIONS)
def test_every_discovery_document_has_a_date_and_a_source(version: str) -> None:
    document = catalogue.discovery(version)
    assert document["date"].replace("-", "") == document["revision"]
    assert document["source"]
    assert document["version"] == version


@pytest.mark.parametrize("one", catalogue.accelerators().values(), ids=lambda one: one.type)
def test_sizes_add_up(one: catalogue.Accelerator) -> None:
    generation = catalogue.generations()[one.generation]
    prefix, _, number = one.type.rpartition("-")
    counted = one.chips if generation.name in ("v5e", "v6e") else one.cores
    assert prefix == generation.prefix
    assert int(number) == counted
    assert product(one.topology, "x") == one.chips == one.hosts * one.chips_per_host
    assert one.cores == one.chips * generation.cores_per_chip
    assert product(one.chips_per_host_bounds, ",") == one.chips_per_host
    assert product(one.host_bounds, ",") == one.hosts
    assert one.hbm_gib == one.chips * generation.hbm_gib_per_chip
    assert one.bf16_tflops == one.chips * generation.bf16_tflops_per_chip
    assert one.enum == generation.enum
    assert one.topology.count("x") == generation.torus - 1


def test_bounds_times_chips_are_the_topology() -> None:
    for one in catalogue.accelerators().values():
        chips = [int(part) for part in one.chips_per_host_bounds.split(",")]
        hosts = [int(part) for part in one.host_bounds.split(",")]
        whole = [int(part) for part in one.topology.split("x")] + [1]
        assert [a * b for a, b in zip(chips, hosts, strict=True)] == whole[:3], one.type


def test_a_topology_belongs_to_one_size() -> None:
    for one in catalogue.accelerators().values():
        if one.enum is not None:
            assert catalogue.by_topology(one.enum, one.topology) is one
    assert catalogue.by_topology("V4", "3x3x3") is None


def test_v5p_has_all_96_sizes() -> None:
    assert sum(one.generation == "v5p" for one in catalogue.accelerators().values()) == 96


def test_tpu7x_is_not_in_this_api() -> None:
    sold = {one for zone in catalogue.zones().values() for one in zone.types}
    assert catalogue.generations()["tpu7x"].enum is None
    assert not any(one.startswith("tpu7x") for one in sold)


def test_every_size_of_the_api_is_sold_somewhere() -> None:
    sold = {one for zone in catalogue.zones().values() for one in zone.types}
    assert sold == {one.type for one in catalogue.accelerators().values() if one.enum}


def test_zones_are_in_their_regions() -> None:
    for zone in catalogue.zones().values():
        assert zone.name in catalogue.regions()[zone.region].zones


@pytest.mark.parametrize(
    ("kind", "zone"),
    [
        ("v2-8", "us-central1-f"),
        ("v3-8", "europe-west4-a"),
        ("v3-256", "europe-west4-a"),
        ("v4-32", "us-central2-b"),
        ("v5litepod-64", "europe-west4-b"),
        ("v5litepod-64", "us-central1-a"),
        ("v6e-64", "europe-west4-a"),
        ("v6e-64", "us-east1-d"),
    ],
)
def test_grants_name_known_things(kind: str, zone: str) -> None:
    assert kind in catalogue.zones()[zone].types


def test_every_generation_has_an_image() -> None:
    served = {name for image in catalogue.runtimes().values() for name in image.generations}
    assert served == set(catalogue.generations())


def test_prices_name_known_things() -> None:
    for price in catalogue.prices():
        assert price.generation in catalogue.generations()
        assert price.region in catalogue.regions()
        assert price.sizes in ("single", "pods", "all")
        assert price.spot is None or 0 < price.spot < price.on_demand


def test_egress_is_free_only_within_a_region() -> None:
    assert all((price == 0) == (to == "same") for (_, to), price in catalogue.egress().items())


def test_dual_regions_are_pairs_of_known_regions() -> None:
    for place in catalogue.bucket_locations().values():
        assert place.kind == ("dual-region" if place.regions else "multi-region")
        for name in place.regions:
            assert catalogue.regions()[name].continent == place.continent


def refs(document: Any) -> set[str]:
    if isinstance(document, list):
        return set().union(*(refs(one) for one in document))
    if not isinstance(document, dict):
        return set()
    inner = set().union(*(refs(one) for one in document.values()))
    return inner | ({document["$ref"]} if isinstance(document.get("$ref"), str) else set())


@pytest.mark.parametrize("version", VERSIONS)
def test_discovery_documents_are_complete_and_without_prose(version: str) -> None:
    document = catalogue.discovery(version)
    assert refs(document) <= set(document["schemas"])
    assert "enumDescriptions" not in str(document)
    for schema in document["schemas"].values():
        assert "description" not in schema
        for field in schema.get("properties", {}).values():
            assert "description" not in field


def test_the_api_has_every_enum_of_the_table() -> None:
    config = catalogue.discovery("v2")["schemas"]["AcceleratorConfig"]["properties"]["type"]
    assert {one.enum for one in catalogue.accelerators().values() if one.enum} == set(
        config["enum"]
    ) - {"TYPE_UNSPECIFIED"}


def test_an_unknown_version_has_no_document() -> None:
    with pytest.raises(KeyError):
        catalogue.discovery("v9")


def test_importing_the_package_reads_nothing() -> None:
    code = (
        "import sys, tpuherd.catalogue;"
        "print(*(name for name in sys.modules if name.startswith('tpuherd.catalogue.')))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.split() == []
