"""The table of weather kinds: complete, parsable in bare words, and shown as sentences."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from tpuherd_sim.model.strike_rules import is_rule_match
from tpuherd_sim.model.world_parts import LogEntry
from tpuherd_sim.weather import arguments
from tpuherd_sim.weather.arguments import TYPES, InvalidWeather
from tpuherd_sim.weather.kinds import KINDS, ONE_OFFS, RULE, RULES
from tpuherd_sim.weather.log_text import SENTENCES, format_duration, log_sentence
from tpuherd_sim.weather.match_hosts import is_spelled
from tpuherd_sim.weather.reference import kind_rows, reference_page


def samples() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every kind as its example says it."""
    for kind in KINDS.values():
        name, *said = kind.example.split()
        yield (
            name,
            arguments.fill_arguments(arguments.find_kind(name), arguments.parse_words(kind, said)),
        )


def test_names_are_unique_and_have_their_arguments() -> None:
    assert len(KINDS) == len(RULES) + len(ONE_OFFS)
    for kind in KINDS.values():
        assert kind.example.split()[0] == kind.name
        own = [argument.name for argument in kind.own]
        assert len(own) == len(set(own)) and not set(own) & set(kind.match)
        assert all(argument.type in TYPES for argument in kind.arguments.values())
        assert not kind.undo or (kind.undo in KINDS and "for" in kind.arguments)


def test_every_example_parses() -> None:
    assert {name for name, _ in samples()} == set(KINDS)


@pytest.mark.parametrize(
    ("said", "filled"),
    [
        ("preempt gpt-1 notice_s=0",
         {"target": "gpt-1", "notice_s": 0.0, "flag": True, "acpi": True}),
        ("preempt gpt-1 1m flag=no pick=2",
         {"target": "gpt-1", "notice_s": 60.0, "flag": False, "acpi": True, "pick": 2}),
        ("network gpt-0/w2 down", {"target": "gpt-0/w2", "state": "down"}),
        ("capacity us-central2-b v4-8 unlimited",
         {"zone": "us-central2-b", "type": "v4-8", "nodes": "unlimited"}),
        ("delay", {"seconds": 10.0, "share": 1.0}),
        ("skew gpt-0 -90", {"target": "gpt-0", "seconds": -90.0}),
        ("http-error 429 message=a=b share=.5",
         {"http": 429, "message": "a=b", "share": 0.5}),
    ],
)  # fmt: skip
def test_bare_words_fill_the_first_free_arguments(said: str, filled: dict[str, Any]) -> None:
    name, *words = said.split()
    kind = arguments.find_kind(name)
    assert arguments.fill_arguments(kind, arguments.parse_words(kind, words)) == filled


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("prempt x", "'prempt' is not a kind of weather; did you mean 'preempt'?"),
        ("preempt", "preempt needs 'target': nodes: NAME or ZONE/NAME; patterns allowed"),
        ("reboot a b", "'pick' of reboot must be a whole number of at least 1, not 'b'"),
        ("crash a 1 c", "'c' is an extra argument for crash; example: crash gpt-*/w0 pick=1"),
        ("clear a b", "'b' is an extra argument for clear; example: clear all"),
        (
            "preempt gpt-1 notice=3",
            "'notice' is not an argument of preempt; did you mean 'notice_s'?",
        ),
        ("preempt gpt-1 soon", "'notice_s' of preempt must be a duration such as 90s, 10m,"),
        ("hang gpt-1 pick=0", "'pick' of hang must be a whole number of at least 1, not '0'"),
        ("quota us-central2-b v4 few", "'limit' of quota must be a whole number of at least 0"),
        ("http-error 900", "'http' of http-error must be an HTTP status from 400 to 599"),
        ("delay 5 zone=us-central2", "'zone' of delay must be a zone"),
        ("drought us-central2-b v4-7", "'type' of drought must be an accelerator type"),
    ],
)
def test_invalid_weather_is_refused_with_a_sentence(said: str, why: str) -> None:
    name, *words = said.split()
    with pytest.raises(InvalidWeather) as caught:
        kind = arguments.find_kind(name)
        given = arguments.fill_arguments(kind, arguments.parse_words(kind, words))
        pytest.fail(f"taken as {given}")
    assert caught.value.sentence.startswith(why)


def test_every_kind_has_a_row_and_a_section() -> None:
    written = reference_page()
    assert [row["name"] for row in kind_rows()] == list(KINDS)
    for kind in KINDS.values():
        assert f"\n### {kind.name}\n" in written
        assert f"herd sim weather {kind.example}\n" in written
        assert all(f"`{argument.name}`" in written for argument in kind.arguments.values())


def test_every_one_off_effect_has_its_own_sentence() -> None:
    strokes = {kind.name for kind in KINDS.values() if kind.family != RULE}
    assert strokes <= {name.removeprefix("weather.") for name in SENTENCES}


@pytest.mark.parametrize(
    ("name", "facts", "said"),
    [
        ("weather.preempt",
         {"target": "us-central2-b/pod", "notice_s": 30.0, "flag": True, "acpi": True},
         "preempted us-central2-b/pod (30 s notice)"),
        ("weather.preempt",
         {"target": "us-central2-b/pod", "notice_s": 0.0, "flag": True, "acpi": True},
         "preempted us-central2-b/pod (no notice)"),
        ("weather.preempt",
         {"target": "us-central2-b/pod", "notice_s": 90.0, "flag": False, "acpi": False},
         "preempted us-central2-b/pod (1.5 min notice, without flag and ACPI)"),
        ("weather.hang", {"target": "us-central2-b/pod/w1", "for": 600.0},
         "froze us-central2-b/pod/w1, for 10 min"),
        ("weather.skew", {"target": "us-central2-b/pod/w1", "seconds": -300.0},
         "shifted the clock of us-central2-b/pod/w1 5 min behind"),
        ("weather.drought", {"zone": "us-central2-b", "type": "*", "before": "unlimited"},
         "drought in us-central2-b (capacity was unlimited)"),
        ("weather.capacity",
         {"zone": "us-central2-b", "type": "v4-8", "before": "unlimited", "nodes": 4},
         "capacity of v4-8 in us-central2-b is 4 (was unlimited)"),
        ("weather.rule",
         {"rule": "http-error-1", "kind": "http-error", "http": 503, "share": 0.5, "times": 3},
         "rule http-error-1 started: http=503, 0.5 of them, 3 times"),
        ("weather.struck", {"rule": "delay-1", "kind": "delay", "zone": "-", "method": "x.list"},
         "rule delay-1 applied: zone=- method=x.list"),
        ("weather.missed", {"kind": "crash", "why": "no node or host matches 'gpt-*'"},
         "crash had no effect: no node or host matches 'gpt-*'"),
        ("something.new", {"node": "us-central2-b/pod", "so": 1},
         "something.new node=us-central2-b/pod so=1"),
        ("weather.preempt", {"odd": 1}, "weather.preempt odd=1"),
    ],
)  # fmt: skip
def test_sentences(name: str, facts: dict[str, Any], said: str) -> None:
    assert log_sentence(LogEntry(at=0.0, name=name, facts=facts)) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.5, "0.5 s"), (30, "30 s"), (60, "1 min"), (5400, "1.5 h"), (86400 * 2, "2 d")],
)
def test_durations_use_their_largest_unit(seconds: float, said: str) -> None:
    assert format_duration(seconds) == said


@pytest.mark.parametrize(
    ("target", "hosts"),
    [
        ("gpt-0", {"a/gpt-0/w0", "a/gpt-0/w1"}),
        ("gpt-*", {"a/gpt-0/w0", "a/gpt-0/w1", "b/gpt-1/w0"}),
        ("*", {"a/gpt-0/w0", "a/gpt-0/w1", "b/gpt-1/w0", "b/w0/w0"}),
        ("a/gpt-0", {"a/gpt-0/w0", "a/gpt-0/w1"}),
        ("b/*", {"b/gpt-1/w0", "b/w0/w0"}),
        ("gpt-0/w1", {"a/gpt-0/w1"}),
        ("gpt-?/w0", {"a/gpt-0/w0", "b/gpt-1/w0"}),
        ("b/gpt-1/w*", {"b/gpt-1/w0"}),
        ("b/w0", {"b/w0/w0"}),
        ("*1", {"b/gpt-1/w0"}),
        ("gpt-0/w[12]", {"a/gpt-0/w1"}),
        ("b/gpt-0", set()),
        ("", set()),
        ("a/gpt-0/w1/x", set()),
    ],
)
def test_targets(target: str, hosts: set[str]) -> None:
    world = [("a", "gpt-0", 0), ("a", "gpt-0", 1), ("b", "gpt-1", 0), ("b", "w0", 0)]
    hit = {
        f"{zone}/{node}/w{worker}"
        for zone, node, worker in world
        if is_spelled(
            target.split("/"),
            [node],
            [zone, node],
            [node, f"w{worker}"],
            [zone, node, f"w{worker}"],
        )
    }
    assert hit == hosts


def test_a_rule_matches_iff_every_pattern_matches_its_fact() -> None:
    patterns, facts = (None, "*", "a*", "b"), (None, "a", "ab", "b")
    alike: dict[str | None, set[str | None]] = {
        None: {None, "a", "ab", "b"},
        "*": {"a", "ab", "b"},
        "a*": {"a", "ab"},
        "b": {"b"},
    }
    for zone, node in product(patterns, repeat=2):
        match = {name: p for name, p in (("zone", zone), ("node", node)) if p is not None}
        for here, one in product(facts, repeat=2):
            known = {name: f for name, f in (("zone", here), ("node", one)) if f is not None}
            assert is_rule_match(match, known) == (here in alike[zone] and one in alike[node])
