"""Logs as texts of many hosts, as windows of what is too large, and rules as a user writes them."""

import json
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from tpuherd.cli.via_client import is_remote_command
from tpuherd.commands.log_windows import LogWindow, large_notices
from tpuherd.diagnosis.explain import explain_hosts
from tpuherd.diagnosis.log_scanner import LINE_CHARS_MAX, NARROW_LINES, LogScanner, cut_line
from tpuherd.diagnosis.match_line import BOOK, narrow_book
from tpuherd.diagnosis.parse_rules import CHARS_MAX, RULES_MAX, parse_rules
from tpuherd.diagnosis.rule import RuleClass
from tpuherd.diagnosis.scan_text import scan_text, split_label
from tpuherd.errors import InvalidInput

FULL = "OSError: [Errno 28] No space left on device"
GLOO = "JaxRuntimeError: UNKNOWN: Gloo AllGather failed: Connection reset by peer"


def test_the_lines_of_hosts_in_one_text_are_taken_apart() -> None:
    lines = ["-- 1  gpt-0-a1-7kq  11:40:00  gpt-0"]
    for second in range(30):
        lines += [f"11:40:{second:02d} gpt-0/w{host}: well" for host in range(3)]
    lines += [
        f"11:41:00 gpt-0/w0: {GLOO}",
        f"11:40:59 gpt-0/w2: {FULL}",
        f"11:41:00 gpt-0/w1: {GLOO}",
    ]
    scans = scan_text([(1, "\n".join(lines))])
    assert [scan.host for scan in scans] == ["gpt-0/w0", "gpt-0/w1", "gpt-0/w2"]
    found = explain_hosts(scans)
    assert (found[0].id, found[0].host, found[0].number) == ("disk-full", "gpt-0/w2", 93)
    assert found[1].hosts == ("gpt-0/w0", "gpt-0/w1")


@pytest.mark.parametrize(
    ("line", "label", "at", "rest"),
    [
        ("gpt-0/w3: a: b", "gpt-0/w3", None, "a: b"),
        ("10:02:01 us-a/gpt/w0: x", "us-a/gpt/w0", 36121.0, "x"),
        ("gpt/w[0-2,4]:  x", "gpt/w[0-2,4]", None, " x"),
        ("(Trainer pid=12, ip=10.0.0.3) x", "Trainer pid=12, ip=10.0.0.3", None, "x"),
        ("(run(gpt) pid=12) x", "run(gpt) pid=12", None, "x"),
        ("gpt/w0 x", "", None, "gpt/w0 x"),
        ("w0: x", "", None, "w0: x"),
        ("see gpt/w0: x", "", None, "see gpt/w0: x"),
    ],
)
def test_labels(line: str, label: str, at: float | None, rest: str) -> None:
    assert split_label(line) == (label, at, rest)


def test_a_text_counts_as_one_host_unless_most_lines_are_named() -> None:
    few = ["gpt/w0: x", "y", FULL]
    assert [scan.host for scan in scan_text([(1, "\n".join(few))], "log")] == ["log"]
    half = ["gpt/w0: x", "y"] * 20
    assert [scan.host for scan in scan_text([(1, "\n".join(half))])] == [""]
    more = [*["gpt/w0: x", "y"] * 19, "gpt/w0: x", *["y"] * 90]
    assert [scan.host for scan in scan_text([(1, "\n".join(more[1:]))])] == [""]
    most = ["", "gpt/w0: x", "", "y", "gpt/w1: z"]
    assert [scan.host for scan in scan_text([(1, "\n".join(most))])] == ["gpt/w0", "gpt/w1"]
    assert [scan.lines for scan in scan_text([])] == [0]


def test_many_lines_at_once_are_read_as_one_by_one() -> None:
    text = "\n".join([*["well"] * NARROW_LINES, f"10 %\r20 %\r{FULL}", "", "bye", ""])
    scanner = LogScanner()
    scanner.feed_text(text)
    scanner.feed_text("\n".join(["on", GLOO]), number=90)
    scanner.feed_text("")
    scan = scanner.finish()
    assert [match.number for match in scan.matches] == [NARROW_LINES + 1, 91]
    assert [match.text for match in scan.matches] == [FULL, GLOO]
    assert scan.lines == 91
    narrow = narrow_book(BOOK, text)
    assert {rule.id for _, rules in narrow.by_word for rule in rules} == {"disk-full"}


def test_of_an_overlong_line_both_ends_are_read() -> None:
    assert cut_line("x" * LINE_CHARS_MAX) == "x" * LINE_CHARS_MAX
    half = LINE_CHARS_MAX // 2
    assert cut_line("a" + "x" * LINE_CHARS_MAX + "b") == f"a{'x' * (half - 1)}\n{'x' * (half - 1)}b"
    for line in (FULL + "x" * LINE_CHARS_MAX, "x" * LINE_CHARS_MAX + FULL):
        assert [match.rule.id for match in scan_text([(1, line)])[0].matches] == ["disk-full"]
        assert [match.rule.id for match in scan_text([(1, f"a/w0: {line}")])[0].matches] != []


def test_a_window_keeps_the_beginning_and_the_end() -> None:
    window = LogWindow(4, 6)
    window.add_all([b"a\nb\n", b"c\nd\n"])
    assert (window.text_parts(), window.skipped) == ([(1, "a\nb\nc\nd\n")], 0)
    window.add_all([b"e\nf\n", b"g\nh\n", b"i\n"])
    assert window.text_parts() == [(1, "a\nb\n"), (7, "g\nh\ni\n")]
    assert (window.skipped, window.size, window.head) == (8, 18, b"a\nb\n")
    window = LogWindow(2, 6)
    window.add(b"a\nb\xff")
    assert window.text_parts() == [(1, "a\nb\ufffd")]


def test_what_is_left_out_is_one_sentence() -> None:
    assert large_notices({}) == []
    assert large_notices({"a": 3 << 20}) == [
        "a is large: 3 MiB in the middle of it were not searched"
    ]
    assert large_notices({"a": 1 << 20, "b": 3 << 19}) == [
        "2 logs are large: 2 MiB in the middle of them were not searched"
    ]


GOOD: Mapping[str, Any] = {
    "id": "no-shards",
    "class": "user",
    "pattern": r"no shards in (?P<folder>\S+)",
    "sample": "E\nValueError: no shards in gs://x",
    "cause": "the data in {folder} was not prepared",
    "fix": "run prepare.py first",
    "source": "our wiki",
    "evidence": "seen often",
}


def test_rules_of_a_user() -> None:
    (rule,) = parse_rules(json.dumps([GOOD]), "rules.json")
    assert (rule.id, rule.kind, rule.words) == ("no-shards", RuleClass.USER, ())
    assert (rule.cause, rule.fix) == (GOOD["cause"], GOOD["fix"])
    assert (rule.source, rule.evidence) == ("our wiki", "seen often")
    least = {name: GOOD[name] for name in ("id", "pattern", "cause", "fix")}
    assert parse_rules(json.dumps([least, {**GOOD, "id": "b", "class": "hw"}]), "r")[1].kind == "hw"
    assert parse_rules("[]", "r") == ()
    assert parse_rules(json.dumps([{**GOOD, "cause": "x" * CHARS_MAX}]), "r")
    assert len(parse_rules(json.dumps([{**GOOD, "id": f"r{n}"} for n in range(RULES_MAX)]), "r"))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "r.json is not JSON: "),
        ("{}", "r.json: rules are a list of objects"),
        ("[3]", "r.json: rule 1 is no object"),
        (json.dumps([GOOD] * (RULES_MAX + 1)), "r.json has 1001 rules; at most 1000 are read"),
        (json.dumps([GOOD, GOOD]), "r.json: rule 2: another rule has the id no-shards, too"),
        ({"fixx": "x"}, "rule 1 (no-shards): there is no field fixx; did you mean fix?"),
        ({"colour": "x"}, "rule 1 (no-shards): there is no field colour; there are id, pattern"),
        ({"fix": None}, "rule 1 (no-shards): fix is missing"),
        ({"fix": 3}, "rule 1 (no-shards): fix is no text"),
        ({"source": []}, "rule 1 (no-shards): source is no text"),
        ({"cause": " "}, "rule 1 (no-shards): cause is empty"),
        ({"cause": "x" * (CHARS_MAX + 1)}, "rule 1 (no-shards): cause is longer than 2000"),
        ({"id": "a b"}, "rule 1: id must be of letters, digits and -"),
        ({"id": 3}, "rule 1: id is no text"),
        ({"class": "discs"}, "rule 1 (no-shards): class 'discs' is unknown; did you mean disk?"),
        ({"pattern": "("}, "rule 1 (no-shards): pattern is no regular expression: "),
        ({"pattern": "x*"}, "rule 1 (no-shards): pattern matches every line"),
        ({"sample": "shards"}, "rule 1 (no-shards): pattern does not match the rule's sample"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_rule_is_a_sentence(content: Any, sentence: str) -> None:
    if isinstance(content, dict):
        row = {name: value for name, value in {**GOOD, **content}.items() if value is not None}
        content = json.dumps([row])
    with pytest.raises(InvalidInput) as refused:
        parse_rules(content, "r.json")
    assert sentence in refused.value.sentence and "\n" not in refused.value.sentence
    assert refused.value.sentence.startswith("r.json")


def test_logs_of_this_machine_are_not_looked_for_on_another(tmp_path: Path) -> None:
    (tmp_path / "train.log").touch()
    with chdir(tmp_path):
        for words in (["explain", "-"], ["explain", "./gpt"], ["explain", "train.log"]):
            assert not is_remote_command(words)
        for target in ("gpt", "gpt-0/w3"):
            assert is_remote_command(["explain", target, "--json"])
