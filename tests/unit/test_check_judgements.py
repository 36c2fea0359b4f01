"""The judgements of hosts: recorded facts, one file for each fault, and whatever a host may say.

A file of tests/scenarios/checks has hosts that differ from healthy_host.json by a merge patch, and
what is found on them: the check (after "wN" if there are several hosts), status and words.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.check_scenes import HEALTHY, apply_patch, make_host
from tpuherd.checks.check_results import CheckResult, CheckStatus
from tpuherd.checks.check_table import HOST_CHECKS, add_reason
from tpuherd.checks.host_facts import InvalidFacts, parse_host_facts
from tpuherd.checks.judge_hosts import ALL_HOSTS, EACH_HOST, LINE_MAX, judge_hosts
from tpuherd.checks.judgement import CLEAN
from tpuherd.views.printable import show_controls

FOLDER = Path(__file__).parents[1] / "scenarios/checks"
FILES = sorted(file for file in FOLDER.glob("*.json") if file.name != "healthy_host.json")
WRONG = (CheckStatus.WARNING, CheckStatus.PROBLEM)


def judged(case: dict[str, Any]) -> list[CheckResult]:
    hosts = [make_host(at, one) for at, one in enumerate(case["hosts"])]
    return [add_reason(one) for one in judge_hosts(hosts)]


def name_of(result: CheckResult, case: dict[str, Any]) -> str:
    host = f"{result.where.partition('/')[2]} " if len(case["hosts"]) > 1 else ""
    return f"{host}{result.check}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_fault_is_found_and_nothing_else(file: Path) -> None:
    case = json.loads(file.read_text())
    wrong = [one for one in judged(case) if one.status in WRONG]
    assert [name_of(one, case) for one in wrong] == list(case["finds"])
    for one, words in zip(wrong, case["finds"].values(), strict=True):
        status, _, found = words.partition(": ")
        assert (one.status, found in one.found) == (status, True), one
        assert one.matters and one.remedy
        assert one.fix in ("", CLEAN) and (not one.fix or "herd clean pod" in one.remedy)


def test_every_check_is_in_the_table_and_finds_something_in_a_file() -> None:
    judges = {*EACH_HOST, *ALL_HOSTS}
    assert judges | {"reach", "collective"} == {kind.id for kind in HOST_CHECKS}
    found = {name.split()[-1] for file in FILES for name in json.loads(file.read_text())["finds"]}
    assert found == judges


def test_every_host_gets_a_result_of_every_check() -> None:
    results = judged({"hosts": [{}, {}, {}]})
    judges = {*EACH_HOST, *ALL_HOSTS}
    assert {(one.where, one.check) for one in results} == {
        (f"pod/w{at}", check) for at in range(3) for check in judges
    }
    assert judge_hosts([]) == []


def paths(content: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All places in a JSON value."""
    found = [above]
    if isinstance(content, list):
        content = dict(enumerate(content))
    for name, value in content.items() if isinstance(content, dict) else ():
        found += paths(value, (*above, name))
    return found


RUBBISH = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=50),
    st.sampled_from([1 << 70, -1, "x" * 5000, "\x1b]0;t\x07", "\u202e", [], {}, [[]], [0] * 999]),
)  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(paths(HEALTHY)), RUBBISH), min_size=1, max_size=4))
def test_a_lying_host_is_refused_or_judged_in_short_clean_lines(
    lies: list[tuple[tuple[Any, ...], Any]],
) -> None:
    content = json.loads(json.dumps(HEALTHY))
    for path, value in lies:
        content = replace_at(content, path, value)
    try:
        facts = parse_host_facts(content)
    except InvalidFacts as error:
        assert len(str(error)) <= 300
        return
    for one in judge_hosts([make_host(0, {}), make_host(1, {}, facts)]):
        line = one.found + one.remedy
        assert len(line) <= 2 * LINE_MAX + 2 and "\n" not in line
        assert show_controls(line) == line


def replace_at(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The content with another value at a place, if the place is still there."""
    if not path:
        return value
    try:
        content[path[0]] = replace_at(content[path[0]], path[1:], value)
    except (KeyError, IndexError, TypeError):
        pass
    return content


def test_a_merge_patch_replaces_what_it_names() -> None:
    assert apply_patch({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": 3}, "d": []}) == {
        "a": {"b": 3, "c": 2}, "d": [],
    }  # fmt: skip
