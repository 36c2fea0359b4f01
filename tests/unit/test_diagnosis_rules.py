"""Each rule explains the log that is its sample, and no rule explains a healthy one."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpuherd.diagnosis.explain import SILENT, FindingRole, explain_lines
from tpuherd.diagnosis.known_rules import RULES
from tpuherd.diagnosis.match_line import BOOK, make_rule_book, match_error, matching_rules
from tpuherd.diagnosis.rule import CLASS_MEANINGS, Rule, RuleClass

LOGS = Path(__file__).parents[1] / "scenarios" / "logs"
SHOWN = [rule for rule in RULES.values() if rule.id != SILENT]
EVIDENCE = {"measured", "source", "report", "assumed"}


def sample(rule: Rule) -> list[str]:
    return (LOGS / f"{rule.id}.log").read_text().split("\n")


def alternatives(pattern: str) -> Iterator[str]:
    """The parts of a pattern between the | that are in no group."""
    depth, part = 0, ""
    for piece in re.findall(r"\\.|\[[^]]*\]|.", pattern):
        depth += {"(": 1, ")": -1}.get(piece, 0)
        if piece == "|" and depth == 0:
            yield part
            part = ""
        else:
            part += piece
    yield part


def test_every_rule_has_a_sample_and_every_sample_a_rule() -> None:
    assert {file.stem for file in LOGS.glob("*.log")} == {rule.id for rule in SHOWN}
    assert set(CLASS_MEANINGS) == set(RuleClass)


@pytest.mark.parametrize("rule", SHOWN, ids=lambda rule: rule.id)
def test_a_sample_is_explained_by_its_rule(rule: Rule) -> None:
    found = explain_lines(sample(rule))
    if rule.kind is RuleClass.INFO:
        assert found == ()
        return
    assert found[0].id == rule.id
    consequence = rule.kind is RuleClass.PEER
    assert found[0].role is (FindingRole.CONSEQUENCE if consequence else FindingRole.CAUSE)
    assert "{" not in found[0].cause and "…" not in found[0].cause
    assert found[0].text in "".join(sample(rule)) or found[0].text.endswith("…")
    assert all(one.role is not FindingRole.CAUSE for one in found[1:])


@pytest.mark.parametrize("rule", SHOWN, ids=lambda rule: rule.id)
def test_a_sample_has_a_line_for_each_part_of_the_pattern(rule: Rule) -> None:
    for part in alternatives(rule.pattern):
        lines = [line for line in sample(rule) if re.search(part, line)]
        assert lines, part
        if not rule.traceback:
            assert any(rule is one for line in lines for one, _ in matching_rules(line)), part


@pytest.mark.parametrize("rule", [rule for rule in SHOWN if rule.words], ids=lambda rule: rule.id)
@settings(max_examples=20)
@given(data=st.data())
def test_every_line_that_matches_has_one_of_the_words(rule: Rule, data: st.DataObject) -> None:
    line = data.draw(st.from_regex(rule.pattern.replace("^", "").replace("$", "")))
    assert any(word in line for word in rule.words)


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.id)
def test_a_rule_is_said_in_plain_sentences(rule: Rule) -> None:
    assert re.fullmatch(r"[a-z0-9-]+", rule.id)
    groups = set(re.compile(rule.pattern).groupindex)
    assert set(re.findall(r"\{(\w+)\}", rule.cause + rule.fix)) <= groups
    for sentence in (rule.cause, rule.fix, rule.source):
        assert sentence and sentence == sentence.strip() and not sentence.endswith(".")
    assert set(rule.evidence.split(", ")) <= EVIDENCE
    assert rule.words or rule.traceback or rule.id == SILENT


@pytest.mark.parametrize("file", sorted(LOGS.glob("healthy/*.log")), ids=lambda file: file.stem)
def test_nothing_is_found_in_a_healthy_log(file: Path) -> None:
    text = file.read_text()
    assert explain_lines(text.split("\n")) == ()
    assert explain_lines(re.split(r"[\r\n]", text)) == ()


def test_an_exit_status_means_one_thing() -> None:
    assert len(BOOK.by_exit) == sum(len(rule.exits) for rule in RULES.values())
    assert {BOOK.by_exit[status].id for status in (137, -9)} == {"killed"}


def test_the_most_telling_rule_comes_first() -> None:
    line = "UNKNOWN: TPU initialization failed: open(/dev/vfio/0): Device or resource busy"
    assert [rule.id for rule, _ in matching_rules(line)] == ["vfio-busy", "tpu-init"]
    line = "Gloo failed: gloo/transport/tcp/device.cc:99] -2 vs 0: No space left on device"
    assert [rule.id for rule, _ in matching_rules(line)] == [
        "disk-full",
        "gloo-host",
        "peer-socket",
    ]
    assert matching_rules("step 3") == []


def test_a_book_tries_rules_without_words_and_replaces_by_id() -> None:
    mine = Rule(id="mine", kind=RuleClass.USER, pattern="oops", cause="c", fix="f")
    book = make_rule_book((*RULES.values(), mine))
    assert [rule.id for rule, _ in matching_rules("oops", book)] == ["mine"]
    assert matching_rules("oops") == []
    again = make_rule_book(
        (mine, Rule(id="mine", kind=RuleClass.NET, pattern="x", cause="", fix=""))
    )
    assert [rule.kind for rule in again.rules.values()] == [RuleClass.NET]
    assert matching_rules("oops", again) == []
    assert match_error("ValueError: x", again) is None


def test_only_the_error_of_a_traceback_is_an_unknown_error() -> None:
    assert explain_lines(["ValueError: the batch is bad"]) == ()
    for line in ("KeyboardInterrupt", "SystemExit: 1", "-- end --"):
        assert match_error(line) is None
    found = match_error("jax.errors.JaxRuntimeError")
    assert found is not None and found[1]["error"] == "jax.errors.JaxRuntimeError"
