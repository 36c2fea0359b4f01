"""How to reach a host: its address, a jump host, Google's proxy, or a proxy command."""

import shlex
from dataclasses import dataclass
from enum import Enum

from tpuherd.errors import InvalidInput
from tpuherd.ports import Host


class RouteKind(Enum):
    EXTERNAL = "external"  #: the host's external address
    INTERNAL = "internal"  #: its internal address, from inside its network
    JUMP = "jump"  #: its internal address, through another SSH server
    IAP = "iap"  #: through Google's Identity-Aware Proxy
    COMMAND = "command"  #: a program connected to it by stdin and stdout, like ProxyCommand


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """One route. If there are several, they are tried in order."""

    kind: RouteKind
    by: str = ""  #: the jump host ([user@]host[:port]), or the command

    @property
    def text(self) -> str:
        """As the user writes it."""
        return f"{self.kind.value}:{self.by}" if self.by else self.kind.value

    def can_reach(self, host: Host) -> bool:
        return self.kind is not RouteKind.EXTERNAL or bool(host.external_ip)

    def host_address(self, host: Host) -> str:
        return host.external_ip or "" if self.kind is RouteKind.EXTERNAL else host.internal_ip


def default_routes(host: Host) -> tuple[Route, ...]:
    """Return the route if none is configured: the external address, or else the internal one."""
    return (Route(kind=RouteKind.EXTERNAL if host.external_ip else RouteKind.INTERNAL),)


def parse_route(text: str) -> Route:
    """external, internal, iap, jump:me@bastion or command:ssh … %h %p"""
    word, _, by = text.partition(":")
    try:
        kind = RouteKind(word)
    except ValueError:
        kind = None
    if kind is None or bool(by) != (kind in (RouteKind.JUMP, RouteKind.COMMAND)):
        raise InvalidInput(
            f"{text!r} is not a route to a host",
            hint="external, internal, iap, jump:[USER@]HOST[:PORT] or command:WORDS "
            "with %h %n %p %z",
        )
    return Route(kind=kind, by=by)


def proxy_command(way: Route, host: Host, instance: str) -> list[str]:
    """Return the proxy command: %h internal address, %n instance name, %z zone, %p port."""
    meanings = {
        "%h": host.internal_ip,
        "%n": instance,
        "%z": host.zone,
        "%p": str(host.ssh_port),
        "%%": "%",
    }
    words = []
    for word in shlex.split(way.by):
        parts = word.replace("%%", "\0").split("\0")
        for mark, meaning in meanings.items():
            parts = [part.replace(mark, meaning) for part in parts]
        words.append("%".join(parts))
    return words


def split_jump_host(by: str) -> tuple[str, str, int]:
    """[USER@]HOST[:PORT] → user, or "", host and port"""
    user, _, rest = by.rpartition("@")
    name, _, port = rest.partition(":")
    return user, name, int(port or 22)


def connection_words(way: Route, host: Host, instance: str) -> list[str]:
    """Return a program that connects its stdin and stdout to the host; empty: a plain address."""
    if way.kind is RouteKind.COMMAND:
        return proxy_command(way, host, instance)
    if way.kind is RouteKind.JUMP:
        user, name, port = split_jump_host(way.by)
        whom = f"{user}@{name}" if user else name
        return ["ssh", "-p", str(port), "-W", f"[{host.internal_ip}]:{host.ssh_port}", whom]
    return []
