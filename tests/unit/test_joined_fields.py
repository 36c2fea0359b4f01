"""The fields `network` and `stall`: mappings, plain values, and parts that stand outside."""

from typing import Any

import pytest

from tpuherd.cli.job_options import parse_setting, set_field
from tpuherd.jobfile.expand_slots import job_digests
from tpuherd.jobfile.fields import FIELDS
from tpuherd.jobfile.job_diff import JobDiff, diff_documents
from tpuherd.jobfile.job_spec import Network, Stall
from tpuherd.jobfile.joined_fields import PARTS, PLAIN, change_fields
from tpuherd.jobfile.read_job import JobSpec, job_document, read_fields, read_job
from tpuherd.jobfile.yaml_with_lines import YamlDocument

NO_DURATION = "'soon' is not a duration: write 30s, 90m, 2h or 3d, or never"
LEAST = {"name": "gpt", "accelerator": "v4-32"}
#: Fields as stored jobs may have them, what they are now, and the digest of the node.
STORED: tuple[tuple[dict[str, Any], dict[str, Any], str], ...] = (
    ({}, {}, "44136fa355b3678a"),
    ({"network": "n"}, {"network": "n"}, "d607f846d28de109"),
    ({"tags": ["a", "b"]}, {"network": {"tags": ["a", "b"]}}, "5272f2592556de40"),
    ({"external_ips": False}, {"network": {"external_ips": False}}, "03e856a18b2879a4"),
    (
        {"tags": "a", "network": "n", "external_ips": False, "subnetwork": "s"},
        {"network": {"name": "n", "subnetwork": "s", "external_ips": False, "tags": "a"}},
        "b198462a5a7e1ad5",
    ),
    ({"stall": "1h"}, {"stall": "1h"}, "44136fa355b3678a"),
    ({"first_step": "2h"}, {"stall": {"first": "2h"}}, "44136fa355b3678a"),
    (
        {"stall": "never", "first_step": "2h"},
        {"stall": {"step": "never", "first": "2h"}},
        "44136fa355b3678a",
    ),
)


def job(**fields: object) -> JobSpec:
    found = read_fields({**LEAST, **fields})
    assert isinstance(found, JobSpec), found
    return found


def sentences(text: str) -> list[tuple[int, str, str]]:
    found = read_job(f"name: gpt\naccelerator: v4-32\n{text}")
    assert isinstance(found, list), found
    return [(one.line, one.field, one.sentence) for one in found]


def test_the_parts_are_in_fields_that_there_are() -> None:
    assert not PARTS.keys() & FIELDS.keys()
    assert PLAIN.keys() == {field for field, _ in PARTS.values()}
    assert PLAIN.keys() <= FIELDS.keys()


@pytest.mark.parametrize(("stored", "now", "digest"), STORED)
def test_a_stored_job_reads_the_same_and_an_upgrade_is_no_change(
    stored: dict[str, Any], now: dict[str, Any], digest: str
) -> None:
    assert job(**stored) == job(**now)
    assert job_document(job(**stored)) == {**LEAST, **now}
    assert job_digests(job(**stored), "s")[0] == job_digests(job(**now), "s")[0] == digest
    assert diff_documents({**LEAST, **stored}, job_document(job(**stored))) == JobDiff()


def test_a_part_stands_inside_or_outside() -> None:
    assert job(stall="1h").stall == Stall(step=3600.0)
    assert job(stall={"first": "1h"}).stall == job(first_step="1h").stall == Stall(first=3600.0)
    whole = {"name": "n", "tags": ["a"]}
    assert job(network=whole) == job(network="n", tags="a")
    assert job(network={"name": "n"}, tags="a").network == Network(name="n", tags=("a",))


@pytest.mark.parametrize(("text", "line", "field", "sentence"), [
    ("first_step: soon", 3, "stall.first", NO_DURATION),
    ("stall:\n  first: soon", 4, "stall.first", NO_DURATION),
    ("stall: {first: 1h}\nfirst_step: 1h", 4, "first_step",
     "stall.first says this too: keep one of them"),
    ("tags: a\nnetwork: {tags: [a]}", 3, "tags", "network.tags says this too: keep one of them"),
    ("external_ip: false", 3, "external_ip", "unknown field: did you mean network.external_ips?"),
    ("network: {subnet: x}", 3, "network.subnet", "unknown field: did you mean subnetwork?"),
])  # fmt: skip
def test_mistakes_name_the_part_and_its_line(
    text: str, line: int, field: str, sentence: str
) -> None:
    assert sentences(text) == [(line, field, sentence)]


@pytest.mark.parametrize(("before", "word", "after"), [
    ({}, "first_step=1h", {"stall": {"first": "1h"}}),
    ({"stall": "2h"}, "first_step=1h", {"stall": {"step": "2h", "first": "1h"}}),
    ({"stall": "2h"}, "stall.first=1h", {"stall": {"step": "2h", "first": "1h"}}),
    ({"stall": {"first": "2h"}}, "stall=1h", {"stall": {"step": "1h", "first": "2h"}}),
    ({"stall": {"first": "2h"}}, "stall={step: 1h}", {"stall": "1h"}),
    ({"stall": {"step": "1h", "first": "2h"}}, "first_step=", {"stall": "1h"}),
    ({"stall": {"step": "1h", "first": "2h"}}, "stall=", {}),
    ({"network": "n"}, "tags=[a, b]", {"network": {"name": "n", "tags": ["a", "b"]}}),
    ({"network": {"name": "n", "tags": "a"}}, "network.tags=", {"network": "n"}),
    ({"network": {"tags": "a"}}, "network=n", {"network": {"name": "n", "tags": "a"}}),
])  # fmt: skip
def test_setting_a_part_keeps_the_others(
    before: dict[str, Any], word: str, after: dict[str, Any]
) -> None:
    """As `herd set` and `Herd.change` do."""
    page = YamlDocument(value={**LEAST, **before})
    where, value = parse_setting(word)
    set_field(page, where, [value])
    assert job_document(job(**page.value)) == {**LEAST, **after}
    if len(where) == 1:
        changed = change_fields({**LEAST, **before}, {where[0]: value})
        assert job_document(job(**changed)) == {**LEAST, **after}
