"""Checks what the user asked for, before anything is looked at."""

import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping
from typing import Any

from tpuherd.cloud.firewall_rules import ANYWHERE
from tpuherd.errors import InvalidInput
from tpuherd.project_setup.setup_types import SetupRequest
from tpuherd.project_setup.way_goals import own_context
from tpuherd.settings.contexts_file import load_contexts
from tpuherd.settings.host_routes import Route, RouteKind, parse_route
from tpuherd.settings.project_access import ProjectAccess

NETWORK = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
API = re.compile(r"[a-z][a-z0-9-]{1,60}(?:\.googleapis\.com)?")
EMAIL = re.compile(r"[^\s@:]+@[^\s@:]+\.[^\s@:]+")
MEMBER_KINDS = ("user", "serviceAccount", "group")
MACHINES = ".gserviceaccount.com"
WIDE = 8  #: a shorter prefix lets more than 16 million addresses in
PRIVATE = tuple(
    ipaddress.IPv4Network(one) for one in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
)


def read_request(said: Mapping[str, Any], place: ProjectAccess) -> SetupRequest:
    """Return the checked request; `said` has the command's options by name."""
    way = chosen_way(said["way"], place)
    sources = tuple(dict.fromkeys(parse_source(one) for one in said["sources"]))
    check_sources(way, sources, mosh=said["mosh"])
    if not sources and way.kind is RouteKind.EXTERNAL:
        sources = own_public_range()
    network = said["network"]
    if not NETWORK.fullmatch(network):
        raise InvalidInput(f"{network!r} is not a network's name", hint="such as default")
    member = parse_member(said["member"]) if said["member"] else ""
    node_account = parse_member(said["service_account"]) if said["service_account"] else ""
    if said["keys"] == "os-login" and not member.startswith(("user:", "serviceAccount:")):
        raise InvalidInput(
            "OS Login keeps keys by account", hint="name yours: --member YOU@EXAMPLE.COM"
        )
    content = load_contexts(place.folders.config)
    return SetupRequest(
        way=way,
        context=own_context(content, place) if said["way"] else "",
        sources=sources,
        mosh=said["mosh"],
        network=network,
        apis=tuple(parse_api(one) for one in said["apis"]),
        keys=said["keys"],
        member=member,
        node_account=node_account,
    )


def chosen_way(text: str | None, place: ProjectAccess) -> Route:
    """Return the named way, else the first of the context, else the external address."""
    if text:
        return parse_route(text)
    return place.routes[0] if place.routes else Route(kind=RouteKind.EXTERNAL)


def check_sources(way: Route, sources: Iterable[str], *, mosh: bool) -> None:
    if mosh and way.kind not in (RouteKind.EXTERNAL, RouteKind.INTERNAL):
        raise InvalidInput(
            f"mosh sends UDP to the host itself, which {way.kind.value} can't carry",
            hint="use --way external or internal, or leave --mosh out",
        )
    if way.kind is RouteKind.IAP and any(sources):
        raise InvalidInput(
            "connections through IAP come from Google's own range", hint="leave --from out"
        )
    for source in sources if way.kind is RouteKind.EXTERNAL else ():
        if any(ipaddress.IPv4Network(source).subnet_of(one) for one in PRIVATE):
            raise InvalidInput(
                f"{source} is a private range: Google sees the public address of your network",
                hint="name that one, or use --way internal",
            )


def parse_source(text: str) -> str:
    """Return an address range; "anywhere" is all of them."""
    if text == "anywhere":
        return ANYWHERE
    if ":" in text:
        raise InvalidInput(
            f"{text} is an IPv6 range, and TPU VMs have IPv4 addresses", hint="name an IPv4 range"
        )
    try:
        return str(ipaddress.IPv4Network(text))
    except ValueError as error:
        hint = "such as 203.0.113.7, 203.0.113.0/24 or anywhere"
        raise InvalidInput(f"{text!r} is not an address range ({error})", hint=hint) from error


def is_wide(sources: Iterable[str]) -> bool:
    """Whether one of the ranges is so wide that it needs a second question."""
    ranges = (ipaddress.ip_network(one) for one in sources)
    return any(one.prefixlen < WIDE for one in ranges)


def own_public_range() -> tuple[str, ...]:
    """Return this machine's address if it is a public one; behind a NAT it is not known."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # chooses an address, sends nothing
            address = ipaddress.IPv4Address(probe.getsockname()[0])
        except (OSError, ValueError):
            return ()
    return (f"{address}/32",) if address.is_global else ()


def parse_member(text: str) -> str:
    """Return user:ada@example.com, also for ada@example.com."""
    kind, colon, email = text.rpartition(":")
    if not colon:
        kind = "serviceAccount" if email.endswith(MACHINES) else "user"
    if kind not in MEMBER_KINDS or not EMAIL.fullmatch(email):
        hint = "such as ada@example.com or serviceAccount:NAME@PROJECT.iam.gserviceaccount.com"
        raise InvalidInput(f"{text!r} is not an account", hint=hint)
    return f"{kind}:{email}"


def parse_api(text: str) -> str:
    """Return storage.googleapis.com, also for storage."""
    if not API.fullmatch(text):
        raise InvalidInput(f"{text!r} is not the name of an API", hint="such as storage")
    return text if text.endswith(".googleapis.com") else f"{text}.googleapis.com"
