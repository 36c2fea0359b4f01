"""What firewall rules let through."""

import pytest

from tpuherd.cloud.firewall_rules import (
    ANYWHERE,
    MOSH,
    SSH,
    FirewallRule,
    Traffic,
    deciding_rule,
    is_allowed,
    traffic_text,
)

HOME = "203.0.113.7/32"
ALL = Traffic(protocol="all")


def rule(name: str = "r", **fields: object) -> FirewallRule:
    known = {"sources": (ANYWHERE,), "allowed": (SSH,), **fields}
    return FirewallRule(name=name, network="default", **known)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "lets_in"),
    [
        (rule(), True),
        (rule(allowed=(Traffic(protocol="tcp"),)), True),
        (rule(allowed=(ALL,)), True),
        (rule(allowed=(Traffic(protocol="tcp", ports=((1, 1024),)),)), True),
        (rule(sources=("203.0.113.0/24",)), True),
        (rule(sources=("10.0.0.0/8", HOME)), True),
        (rule(allowed=(Traffic(protocol="udp"),)), False),
        (rule(allowed=(Traffic(protocol="tcp", ports=((23, 80),)),)), False),
        (rule(sources=("10.0.0.0/8",)), False),
        (rule(sources=("::/0",)), False),
        (rule(sources=()), False),
        (rule(disabled=True), False),
        (rule(ingress=False), False),
        (rule(partial=True), False),
    ],
    ids=lambda one: str(one)[:60],
)
def test_a_rule_lets_ssh_in_iff_it_covers_port_and_source(one: FirewallRule, lets_in: bool) -> None:
    assert is_allowed([one], SSH, HOME) is lets_in


def denial(**fields: object) -> FirewallRule:
    return rule("no", allowed=(), denied=(ALL,), **fields)


@pytest.mark.parametrize(
    ("priority", "sources", "partial", "lets_in"),
    [
        (999, (ANYWHERE,), False, False),
        (1000, (ANYWHERE,), False, False),  # of equal priority, the denial wins
        (1001, (ANYWHERE,), False, True),
        (999, ("10.0.0.0/8",), False, True),
        (999, ("203.0.113.7/32",), True, False),  # it may be about our hosts
    ],
)
def test_a_denial_counts_by_its_priority(
    priority: int, sources: tuple[str, ...], partial: bool, lets_in: bool
) -> None:
    rules = [rule(), denial(priority=priority, sources=sources, partial=partial)]
    assert is_allowed(rules, SSH, HOME) is lets_in
    assert is_allowed(rules[::-1], SSH, HOME) is lets_in


def test_a_denial_of_a_part_of_the_range_denies_the_range() -> None:
    rules = [rule(), denial(priority=1, sources=("203.0.113.0/24",))]
    assert not is_allowed(rules, SSH, "203.0.0.0/16")
    assert not is_allowed(rules, SSH, HOME)
    assert is_allowed(rules, SSH, "198.51.100.1/32")


def test_the_deciding_rule_is_named_and_a_range_of_ports_must_be_whole() -> None:
    half = rule("half", allowed=(Traffic(protocol="udp", ports=((60000, 60500),)),))
    whole = rule("whole", allowed=(MOSH,), priority=2000)
    assert deciding_rule([half], MOSH, HOME) is None
    assert deciding_rule([half, whole], MOSH, HOME) == whole
    assert deciding_rule([whole], SSH, HOME) is None


def test_traffic_as_text() -> None:
    assert [traffic_text(one) for one in (SSH, MOSH, ALL)] == ["tcp:22", "udp:60000-61000", "all"]
