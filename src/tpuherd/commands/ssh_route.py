"""Finds the way to a host for ssh, which then connects by itself."""

import asyncio
from dataclasses import dataclass, replace
from socket import socket
from typing import TYPE_CHECKING

from tpuherd.commands.command_types import label_hosts, resolve_hosts
from tpuherd.commands.console import Console
from tpuherd.commands.forward_port import PIECE
from tpuherd.errors import HerdError, NotFound, NotReached
from tpuherd.files import atomic_write, file_lock
from tpuherd.ports import Host
from tpuherd.remote.connection_pool import ConnectionPool, ReachedBy
from tpuherd.settings.host_routes import RouteKind, connection_words
from tpuherd.ssh_config.config_text import SshFiles
from tpuherd.ssh_config.host_names import parse_ssh_name
from tpuherd.ssh_proxy import CARRY, CONNECT, EXEC
from tpuherd.targets import split_bid_name

if TYPE_CHECKING:
    from tpuherd.remote.resolve_hosts import RemoteSession
    from tpuherd.settings.project_access import ProjectAccess

ROOT = "root"  #: who may not log in by a key on Google's images


@dataclass(frozen=True, kw_only=True, slots=True)
class SshRequest:
    """What ssh said when it started us."""

    name: str  #: as it was typed: gpt-0-w3, perhaps with the project's suffix
    suffix: str  #: of the project
    login: str


async def find_ssh_route(
    request: SshRequest, files: SshFiles, place: "ProjectAccess", reach: "RemoteSession"
) -> list[str]:
    """Return how ssh_proxy.py gets to the host; afterwards ssh knows the host's key.

    Our own connection comes first: it checks the host key, adds our key where it is missing, and
    shows which route works.
    """
    host = await find_named_host(request.name.removesuffix(f".{request.suffix}"), place, reach)
    try:
        found = await reach.pool.find_route(host)
        if request.login not in (place.login, ROOT):
            await admit_login(request.login, host, reach)
    except HerdError as error:
        label, node = label_hosts([host])[host], reach.directory.find_node(host)
        if node is not None and not node.ready:
            raise NotReached(f"{label}: its node is {node.state}") from error
        raise type(error)(f"{label}: {error.sentence}", hint=error.hint) from error
    keys = reach.pool.pins.pinned_keys(host)
    write_known_host(files, request.suffix, request.name, keys)
    return describe_route(found)


def describe_route(found: ReachedBy) -> list[str]:
    """Return how ssh_proxy.py gets there: by an address, a program, or the daemon."""
    if found.route.kind is RouteKind.IAP:
        return [CARRY]
    words = connection_words(found.route, found.host, found.instance)
    if words:
        return [EXEC, *words]
    return [CONNECT, found.route.host_address(found.host), str(found.host.ssh_port)]


async def carry_ssh(
    request: SshRequest, console: Console, place: "ProjectAccess", reach: "RemoteSession"
) -> None:
    """Be ssh's connection to a host behind Google's proxy, which only our own client reaches."""
    host = await find_named_host(request.name.removesuffix(f".{request.suffix}"), place, reach)
    found = await reach.pool.find_route(host)
    tunnel = await reach.pool.open_iap_tunnel(found.route, found.host, found.instance)
    if tunnel is not None:
        await join_console(tunnel, console)


async def join_console(tunnel: socket, console: Console) -> None:
    """Carry bytes between a socket and the user's files until the socket ends."""
    reader, writer = await asyncio.open_connection(sock=tunnel)

    async def send_input() -> None:
        while piece := await console.read():
            writer.write(piece)
            await writer.drain()
        writer.write_eof()

    sending = asyncio.create_task(send_input())
    try:
        while piece := await reader.read(PIECE):
            await console.write(piece)
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        writer.close()


async def admit_login(login: str, host: Host, reach: "RemoteSession") -> None:
    """Log in as another user, after adding our key for that user where it is missing."""
    pool = reach.pool
    other = ConnectionPool(
        reach.directory, replace(pool.caller, login=login), pool.pins, reach.clock
    )
    try:
        await other.find_route(host)
    finally:
        await other.close()


async def find_named_host(name: str, place: "ProjectAccess", reach: "RemoteSession") -> Host:
    """Return the host of a name for ssh: gpt, gpt-0, gpt-0-w3 or gpt-0.1-w3."""
    parts = parse_ssh_name(name)
    target = parts.node if parts.worker is None else f"{parts.node}/w{parts.worker}"
    try:
        hosts = await resolve_hosts(target, place, reach)
    except NotFound:
        if target == name:
            raise
        hosts = await resolve_hosts(name, place, reach)  # a node's own name may look like this
    if parts.part is not None:
        hosts = [host for host in hosts if host_part(host) == parts.part]
    if not hosts:
        raise NotFound(f"there is no {name}: {parts.node} has no node {parts.part}")
    return hosts[0]


def host_part(host: Host) -> int | None:
    """Return which node of a multislice run the host belongs to."""
    bid = split_bid_name(host.node)
    return None if bid is None else bid.part


def write_known_host(files: SshFiles, suffix: str, name: str, keys: tuple[str, ...]) -> None:
    """Let ssh know the keys of a host by this name, and no others."""
    file = files.known_hosts(suffix)
    new = [f"{name} {key}\n" for key in keys]
    with file_lock(files.folder / f"{suffix}.lock"):
        known = file.read_text().splitlines(keepends=True) if file.exists() else []
        kept = [line for line in known if line.partition(" ")[0] != name]
        if sorted(kept + new) != sorted(known):
            atomic_write(file, "".join(kept + new))
