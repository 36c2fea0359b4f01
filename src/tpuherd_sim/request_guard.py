"""Decides who may use a world: its owner, root and its own hosts; no other users, no web pages."""

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from tpuherd.peer_uid import find_owner
from tpuherd_sim.hosts.isolation_modes import HOSTS_UID
from tpuherd_sim.model.http_types import ApiError, Response
from tpuherd_sim.tpu.errors import render_error

#: Of the world for its user, and of its APIs inside a host.
HOME = re.compile(r"localhost|::1|127(\.\d{1,3}){3}|169\.254\.169\.254")
OTHERS = (
    "This world belongs to user {owner} of this machine, and you are user {uid}; "
    "start your own with `herd sim start`."
)
BLIND = (
    "this machine does not show which user made a connection: every user can use the world "
    "and log in to its hosts"
)
GONE = "The world could not determine the user of this connection, because it is already closed."
WEB = (
    "A simulated world accepts requests for 127.0.0.1, localhost and Google's APIs, "
    "not for {name}; web pages may not use it."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class AccessGuard:
    """Admits connections by user id."""

    watches: bool  #: whether this machine shows who connects

    def refusal_reason(self, connection: socket.socket) -> str:
        """Return why a connection is refused; "" if it is accepted."""
        if not self.watches:
            return ""
        try:
            uid = find_owner(connection.getpeername(), connection.getsockname())
        except OSError:
            return GONE
        if uid is None:
            return GONE
        owner = os.getuid()
        if uid in (0, owner) or (uid == HOSTS_UID and owner == 0):
            return ""
        return OTHERS.format(owner=owner, uid=uid)


def refuse_stranger(sentence: str) -> Response:
    """Return the response to another user of this machine."""
    return render_error(ApiError(401, "UNAUTHENTICATED", sentence), "v2")


def refuse_web_page(headers: Mapping[str, str]) -> Response | None:
    """Return the refusal of a browser request from a foreign web page."""
    host, origin = headers.get("host"), headers.get("origin")
    foreign = None
    if host is not None and not is_own_name(host):
        foreign = host
    elif origin is not None:
        asks = origin_host(origin)
        foreign = None if asks == host or is_played_host(host_name(asks)) else origin
    if foreign is None:
        return None
    sentence = WEB.format(name=foreign[:200] or "an empty name")
    return render_error(ApiError(403, "PERMISSION_DENIED", sentence), "v2")


def is_own_name(host: str) -> bool:
    """Whether a Host header, with or without a port, names the world."""
    name = host_name(host)
    return HOME.fullmatch(name) is not None or is_played_host(name)


def host_name(host: str) -> str:
    """Return a host without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def origin_host(origin: str) -> str:
    """Return the host and port of an Origin header; "" for `null` and malformed ones."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def is_played_host(host: str) -> bool:
    """Whether the world stands in for this Google host."""
    return host in NAMES or f"*.{host.partition('.')[2]}" in NAMES


#: The hosts that the world stands in for. A star covers one level.
NAMES = (
    "*.googleapis.com", "googleapis.com", "*.storage.googleapis.com", "accounts.google.com",
    "metadata.google.internal",
)  # fmt: skip
