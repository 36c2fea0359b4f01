"""What `herd types` shows agrees with the catalogue; slices are refused where it says no."""

from typing import Any

import pytest

from tpuherd import Herd
from tpuherd.catalogue import accelerators, generations, zones
from tpuherd.errors import NotFound
from tpuherd.jobfile.grants import hourly_price
from tpuherd.jobfile.read_job import JobSpec, read_fields
from tpuherd.views.type_pages import type_rows, types_text

OFFERED = [one for one in accelerators().values() if one.enum is not None]


def test_every_offered_type_is_shown_with_what_the_catalogue_has() -> None:
    rows = {row["type"]: row for row in type_rows()}
    assert list(rows) == [one.type for one in OFFERED]
    for one in OFFERED:
        row, kind = rows[one.type], generations()[one.generation]
        assert (row["chips"], row["hosts"], row["hbm_gib"]) == (one.chips, one.hosts, one.hbm_gib)
        assert row["host_cpus"] and row["host_ram_gb"], one.type
        assert [image["version"] for image in row["images"] if image["default"]] == [kind.runtime]
        assert row["images"][0]["default"]
        assert {zone["zone"] for zone in row["zones"]} == {
            zone.name for zone in zones().values() if one.type in zone.types
        }
        for zone in row["zones"]:
            assert zone["spot"] == hourly_price(zone["zone"], one, "spot")


@pytest.mark.parametrize("name", ["v5e", "v5litepod", "V5E"])
def test_a_generation_has_two_names(name: str) -> None:
    assert {row["generation"] for row in type_rows(name)} == {"v5e"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("v4-24", "unknown type v4-24: did you mean v4-16 or v4-32?"),
        ("v5e-16", "unknown type v5e-16: did you mean v5litepod-16?"),
        ("gpu", "unknown type gpu: types begin with v2, v3,"),
        ("tpu7x-8", "tpu7x-8 is only offered through Kubernetes"),
        ("tpu7x", "tpu7x is only offered through Kubernetes"),
    ],
)
def test_an_unknown_type_gets_near_names(name: str, said: str) -> None:
    with pytest.raises(NotFound, match="^" + said.replace("?", r"\?")):
        type_rows(name)


def test_pages_show_everything_in_columns() -> None:
    text = types_text("", type_rows())
    for kind in {one.generation for one in OFFERED}:
        assert f"\n{kind} " in text
    text = types_text("v4", type_rows("v4"))
    assert all(f"\n{one.type} " in text for one in OFFERED if one.generation == "v4")
    text = types_text("v4-32", type_rows("v4-32"))
    assert "4 hosts (ct4p-hightpu-4t), each with 4 chips, 240 vCPUs, 400 GB of RAM" in text
    assert "us-central2-b     $51.52  $14.74" in text
    assert "tpu-ubuntu2204-base        22.04   3.10    default" in text
    assert "Google offers multislice from v4 on" in types_text("v3-8", type_rows("v3-8"))


def test_python_has_the_same() -> None:
    (one,) = Herd(environ={}).types("v4-8")
    assert (one.type, one.multislice, one.images[0].python) == ("v4-8", True, "3.10")


@pytest.mark.parametrize("type_", ["v2-8", "v3-32", "v4-8", "v5litepod-16", "v5p-8", "v6e-8"])
def test_slices_are_refused_where_there_are_none(type_: str) -> None:
    fields: dict[str, Any] = {"name": "gpt", "accelerator": type_, "slices": 2, "run": "true"}
    found = read_fields(fields)
    if generations()[accelerators()[type_].generation].multislice:
        assert isinstance(found, JobSpec)
    else:
        assert not isinstance(found, JobSpec)
        (mistake,) = found
        assert mistake.field == "accelerator" and "only v4 and later can" in mistake.sentence
    assert isinstance(read_fields({**fields, "slices": 1}), JobSpec)
