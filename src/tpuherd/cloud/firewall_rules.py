"""Firewall rules as values, and what they let through. Only the classic rules of a network count:
policies of an organization are not asked for.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

Range = ipaddress.IPv4Network | ipaddress.IPv6Network
ANYWHERE = "0.0.0.0/0"
IAP_RANGE = "35.235.240.0/20"  #: from where Identity-Aware Proxy connects
NUMBERS = {"6": "tcp", "17": "udp", "1": "icmp"}
PORT_MAX = 65535


@dataclass(frozen=True, kw_only=True, slots=True)
class Traffic:
    """A protocol with ranges of ports; without any it is about all ports."""

    protocol: str  #: tcp, udp, …, or all
    ports: tuple[tuple[int, int], ...] = ()

    def includes(self, protocol: str, first: int, last: int) -> bool:
        """Whether all these ports are in it."""
        return self._is_about(protocol) and (
            not self.ports or any(low <= first and last <= high for low, high in self.ports)
        )

    def touches(self, protocol: str, first: int, last: int) -> bool:
        """Whether any of these ports is in it."""
        return self._is_about(protocol) and (
            not self.ports or any(low <= last and first <= high for low, high in self.ports)
        )

    def _is_about(self, protocol: str) -> bool:
        return self.protocol in ("all", protocol)


SSH = Traffic(protocol="tcp", ports=((22, 22),))
MOSH = Traffic(protocol="udp", ports=((60000, 61000),))


@dataclass(frozen=True, kw_only=True, slots=True)
class FirewallRule:
    """A rule for what may reach the hosts of a network."""

    name: str
    network: str
    sources: tuple[str, ...]  #: address ranges
    allowed: tuple[Traffic, ...] = ()
    denied: tuple[Traffic, ...] = ()
    priority: int = 1000  #: the lowest number decides
    description: str = ""
    disabled: bool = False
    ingress: bool = True
    #: It is about some hosts only, or its sources are not all ranges: we can't tell whether it
    #: applies.
    partial: bool = False


def is_allowed(rules: Iterable[FirewallRule], wanted: Traffic, source: str) -> bool:
    """Whether the rules let all of the wanted traffic from all of that range reach every host."""
    return deciding_rule(rules, wanted, source) is not None


def deciding_rule(
    rules: Iterable[FirewallRule], wanted: Traffic, source: str
) -> FirewallRule | None:
    """Return the rule that lets it through; None if it does not get through, as far as we know.

    A rule that denies any part of it comes first among rules of equal priority. One that is
    partial may deny but never allows.
    """
    ranges = wanted.ports or ((0, PORT_MAX),)
    inside = parse_range(source)
    found: FirewallRule | None = None
    for first, last in ranges:
        found = None
        for rule in sorted(rules, key=lambda one: (one.priority, not one.denied)):
            if rule.disabled or not rule.ingress:
                continue
            if any(one.touches(wanted.protocol, first, last) for one in rule.denied):
                if any(overlaps(inside, parse_range(one)) for one in rule.sources):
                    return None
            elif (
                not rule.partial
                and any(one.includes(wanted.protocol, first, last) for one in rule.allowed)
                and any(contains(parse_range(one), inside) for one in rule.sources)
            ):
                found = rule
                break
        if found is None:
            return None
    return found


@lru_cache(maxsize=1024)
def parse_range(text: str) -> Range:
    """Return 10.128.0.0/9 as a network; raises ValueError."""
    return ipaddress.ip_network(text, strict=False)


def overlaps(one: Range, other: Range) -> bool:
    return one.version == other.version and one.overlaps(other)


def contains(outer: Range, inner: Range) -> bool:
    if isinstance(outer, ipaddress.IPv4Network) and isinstance(inner, ipaddress.IPv4Network):
        return inner.subnet_of(outer)
    if isinstance(outer, ipaddress.IPv6Network) and isinstance(inner, ipaddress.IPv6Network):
        return inner.subnet_of(outer)
    return False


def traffic_text(traffic: Traffic) -> str:
    """tcp:22, udp:60000-61000, icmp"""
    if not traffic.ports:
        return traffic.protocol
    ports = (str(low) if low == high else f"{low}-{high}" for low, high in traffic.ports)
    return f"{traffic.protocol}:{','.join(ports)}"
