"""Decides whether firewall rules let SSH in, and whether they let too much in: pure functions."""

from collections.abc import Iterable, Iterator, Sequence

from tpuherd.checks.check_results import CheckResult, CheckStatus
from tpuherd.checks.judge_access import DEFAULT_NETWORK, SETUP, uses_iap
from tpuherd.cloud.firewall_rules import (
    ANYWHERE,
    IAP_RANGE,
    MOSH,
    SSH,
    FirewallRule,
    Traffic,
    contains,
    is_allowed,
    overlaps,
    parse_range,
    traffic_text,
)
from tpuherd.settings.host_routes import Route, RouteKind

INSIDE = "10.0.0.0/8"  #: the addresses that networks of Google Cloud have
AUTO_RANGE = "10.128.0.0/9"  #: of all automatic subnetworks
#: Addresses that only machines within a network have.
PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
ALL_OF_WORLD = (ANYWHERE, "::/0")
PORTS_MANY = 1_024  #: a rule with more ports for everyone is called wide open
#: What the hosts of a pod say to each other: coordinator, meeting points and metrics.
PEERS = Traffic(protocol="tcp", ports=((8431, 8431), (8470, 8482)))


def judge_firewall(
    where: str, network: str, rules: Sequence[FirewallRule], routes: Sequence[Route], *, auto: bool
) -> list[CheckResult]:
    """`auto`: whether the network has automatic subnetworks."""
    active = [one for one in rules if one.ingress and not one.disabled]
    found = [judge_ssh(where, network, active, source) for source in ssh_sources(routes)]
    found += judge_peers(where, network, active, auto=auto)
    found += judge_openness(where, network, active)
    wrong = [one for one in found if one.status is not CheckStatus.OK]
    return wrong or found[:1]


def ssh_sources(routes: Sequence[Route]) -> list[str]:
    """Return from where SSH must get in, by how hosts are reached."""
    sources: dict[str, None] = {}
    for route in routes:
        if route.kind is RouteKind.EXTERNAL:
            sources[ANYWHERE] = None
        elif route.kind in (RouteKind.INTERNAL, RouteKind.JUMP):
            sources[AUTO_RANGE] = None
        elif uses_iap([route]):
            sources[IAP_RANGE] = None
    return list(sources) or [ANYWHERE]


def judge_ssh(where: str, network: str, rules: Sequence[FirewallRule], source: str) -> CheckResult:
    """Return the result for SSH from one range of addresses."""
    if is_allowed(rules, SSH, source):
        said = "from anywhere" if source == ANYWHERE else f"from {source}"
        mosh = ", and mosh" if source == ANYWHERE and is_allowed(rules, MOSH, source) else ""
        return firewall_result(where, CheckStatus.OK, f"network {network} lets SSH in {said}{mosh}")
    openings = [one for one in rules if any(it.includes("tcp", 22, 22) for it in one.allowed)]
    near = [one for one in openings if touches_range(one, source)]
    denying = next((one for one in rules if denies_ssh(one, source)), None)
    if denying is not None and any(one.priority >= denying.priority for one in near):
        return firewall_result(
            where,
            CheckStatus.PROBLEM,
            f"rule {denying.name} of network {network} keeps SSH from {source} out",
            f"gcloud compute firewall-rules delete {denying.name}, or change it",
        )
    whole = [one for one in near if not one.partial]
    if whole and source == ANYWHERE:
        ranges = ", ".join(dict.fromkeys(it for one in whole for it in one.sources))
        return firewall_result(
            where,
            CheckStatus.OK,
            f"network {network} lets SSH in from {ranges} only; that must include your address",
        )
    if near:
        names = ", ".join(one.name for one in near)
        return firewall_result(
            where,
            CheckStatus.WARNING,
            f"network {network} lets SSH in from {source} only in part ({names}: for some hosts"
            " or sources)",
            f"give your nodes the tags of that rule, or {open_command(network, source)}",
        )
    return firewall_result(
        where,
        CheckStatus.PROBLEM,
        f"no rule of network {network} lets SSH in from {source}",
        open_command(network, source),
    )


def firewall_result(
    where: str, status: CheckStatus, found: str, remedy: str = "", matters: str = ""
) -> CheckResult:
    return CheckResult(
        check="firewall", where=where, status=status, found=found, remedy=remedy, matters=matters
    )


def open_command(network: str, source: str) -> str:
    """Return the commands that let SSH in from there."""
    who = "YOUR_ADDRESS/32" if source == ANYWHERE else source
    other = "" if network == DEFAULT_NETWORK else f" --network {network}"
    return (
        f"{SETUP}{other}, or: gcloud compute firewall-rules create allow-ssh"
        f" --network={network} --allow=tcp:22 --source-ranges={who}"
    )


def touches_range(rule: FirewallRule, source: str) -> bool:
    wanted = parse_range(source)
    if rule.partial and not rule.sources:
        return True
    return any(
        overlaps(parse_range(one), wanted)
        for one in rule.sources
        if source != ANYWHERE or is_public(one)
    )


def is_public(text: str) -> bool:
    """Whether machines outside of Google Cloud may have addresses of this range."""
    inside = (*PRIVATE, IAP_RANGE)
    return not any(contains(parse_range(one), parse_range(text)) for one in inside)


def denies_ssh(rule: FirewallRule, source: str) -> bool:
    about = any(one.touches("tcp", 22, 22) for one in rule.denied)
    return about and touches_range(rule, source)


def judge_peers(
    where: str, network: str, rules: Sequence[FirewallRule], *, auto: bool
) -> Iterator[CheckResult]:
    """Yield a warning if the hosts of a pod can't reach each other."""
    if auto:
        reached = is_allowed(rules, PEERS, AUTO_RANGE)
    else:
        reached = any(lets_in(one, PEERS) and touches_range(one, INSIDE) for one in rules)
    if not reached:
        source = AUTO_RANGE if auto else "RANGE"
        yield firewall_result(
            where,
            CheckStatus.WARNING,
            f"network {network} does not let hosts talk to each other ({traffic_text(PEERS)})",
            f"gcloud compute firewall-rules create allow-internal --network={network}"
            f" --source-ranges={source} --allow=tcp,udp,icmp",
            matters="Programs on several hosts hang when they start",
        )


def lets_in(rule: FirewallRule, wanted: Traffic) -> bool:
    return all(
        any(one.includes(wanted.protocol, first, last) for one in rule.allowed)
        for first, last in wanted.ports
    )


def judge_openness(
    where: str, network: str, rules: Iterable[FirewallRule]
) -> Iterator[CheckResult]:
    """Yield a warning for each rule that opens almost everything to everyone."""
    for rule in rules:
        open_to_all = any(one in ALL_OF_WORLD for one in rule.sources)
        wide = [one for one in rule.allowed if is_wide(one)]
        if open_to_all and wide:
            what = ", ".join(map(traffic_text, wide))
            yield firewall_result(
                where,
                CheckStatus.WARNING,
                f"rule {rule.name} of network {network} lets {what} in from anywhere",
                f"gcloud compute firewall-rules delete {rule.name} (`herd forward` reaches any"
                " port through SSH)",
                matters="Everyone can reach every server on your hosts: notebooks, dashboards,"
                " the ports of training programs",
            )


def is_wide(traffic: Traffic) -> bool:
    if traffic.protocol not in ("all", "tcp", "udp"):
        return False
    return not traffic.ports or any(last - first >= PORTS_MANY for first, last in traffic.ports)
