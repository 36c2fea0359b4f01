"""An HTTP proxy from hosts to package registries and git servers, but not to private networks."""

import asyncio
import base64
import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from tpuherd_sim.host_services.accept import close_writer
from tpuherd_sim.host_services.packages import PackageSources

PORTS = (80, 443)
PIECE = 1 << 18
PATIENCE_S = 30.0
#: Addresses of this machine and its neighbours.
PRIVATE = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
        "172.16.0.0/12", "192.168.0.0/16", "224.0.0.0/4", "240.0.0.0/4",
        "::/128", "::1/128", "fc00::/7", "fe80::/10", "ff00::/8",
    )
)  # fmt: skip
#: Headers that concern this connection, not the request.
BETWEEN_US = ("proxy-connection", "proxy-authorization", "connection", "keep-alive")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class ProxyRefusal(Exception):
    """A refused request; the client gets the sentence."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True, kw_only=True, slots=True)
class ProxyRequest:
    """The parsed head of a proxy request."""

    method: str
    host: str
    port: int
    path: str
    headers: tuple[str, ...]  #: header lines to forward
    body_bytes: int

    def forwarded_head(self, target: str, *added: str) -> bytes:
        """Return the head of the request for the next server."""
        lines = [f"{self.method} {target} HTTP/1.1", *self.headers, *added, "Connection: close"]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


class PackageProxy:
    """The proxy of all hosts of a world."""

    def __init__(self, packages: PackageSources, *, internet: bool) -> None:
        self.packages = packages
        self.internet = internet

    async def serve_connection(self, end: socket.socket) -> None:
        """Serve one connection: one request, then bytes in both directions."""
        reader, writer = await asyncio.open_connection(sock=end, limit=PIECE)
        try:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    wanted = parse_request(await reader.readuntil(b"\r\n\r\n"))
                    far = await self.connect_to_server(wanted)
            except ProxyRefusal as no:
                writer.write(refusal_response(no.status, str(no)))
            except TimeoutError:
                writer.write(refusal_response(504, "the server did not respond in time"))
            except (asyncio.LimitOverrunError, OSError) as error:
                writer.write(refusal_response(502, f"the server can't be reached: {error}"))
            else:
                await self.relay_both_ways(wanted, (reader, writer), far)
            await writer.drain()
        finally:
            await close_writer(writer)

    async def relay_both_ways(
        self,
        wanted: ProxyRequest,
        near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        try:
            if wanted.method == "CONNECT":
                near[1].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                async with asyncio.TaskGroup() as group:
                    group.create_task(copy_stream(near[0], far[1]))
                    group.create_task(copy_stream(far[0], near[1]))
                return
            async with asyncio.TaskGroup() as group:
                group.create_task(copy_stream(near[0], far[1], wanted.body_bytes))
                group.create_task(copy_stream(far[0], near[1]))
        finally:
            await close_writer(far[1])

    async def connect_to_server(
        self, wanted: ProxyRequest
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the requested server if it is allowed."""
        if not self.internet:
            raise ProxyRefusal(403, "this world was started with --no-internet")
        mirror = (wanted.host, wanted.port) in self.packages.mirrors
        if wanted.port not in PORTS and not mirror:
            raise ProxyRefusal(403, f"hosts can reach only ports 80 and 443, not {wanted.port}")
        addresses = await resolve_addresses(wanted.host, wanted.port)
        if not mirror and any(is_private(address) for address in addresses):
            raise ProxyRefusal(
                403, f"hosts can't reach {wanted.host}, which is in a private network"
            )
        direct = any(f".{wanted.host}".endswith(f".{end}") for end in self.packages.direct)
        if self.packages.upstream and not direct and "*" not in self.packages.direct:
            return await connect_via_upstream(self.packages.upstream, wanted)
        if not addresses:
            raise ProxyRefusal(502, f"{wanted.host} has no address")
        far = await connect_first(addresses, wanted.port)
        if wanted.method != "CONNECT":
            far[1].write(wanted.forwarded_head(wanted.path))
        return far


def parse_request(head: bytes) -> ProxyRequest:
    """Parse a proxy request: CONNECT host:port or GET http://…."""
    request, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    try:
        method, target, _ = request.split(" ")
        url = urlsplit(f"//{target}" if method == "CONNECT" else target)
        port = url.port or (443 if method == "CONNECT" else 80)
    except ValueError:
        raise ProxyRefusal(400, "this is not a proxy request") from None
    if not url.hostname or (method != "CONNECT" and url.scheme != "http"):
        raise ProxyRefusal(400, "this is a proxy: request http://host/… or CONNECT host:port")
    headers = [line.partition(":")[::2] for line in lines]
    values = {name.lower(): value.strip() for name, value in headers}
    length = values.get("content-length", "0")
    if "transfer-encoding" in values or not length.isdecimal():
        raise ProxyRefusal(411, "a Content-Length is required")
    return ProxyRequest(
        method=method,
        host=url.hostname,
        port=port,
        path=(url.path or "/") + (f"?{url.query}" if url.query else ""),
        headers=tuple(
            f"{name}:{value}" for name, value in headers if name.lower() not in BETWEEN_US
        ),
        body_bytes=int(length),
    )


async def resolve_addresses(host: str, port: int) -> list[Address]:
    """Return the addresses of a name, or none if only an upstream proxy can resolve it."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror:
        return []
    return [ipaddress.ip_address(each[4][0]) for each in found]


def is_private(address: Address) -> bool:
    """Whether an address may belong to this machine or its local network."""
    inner = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return any((inner or address) in network for network in PRIVATE)


async def connect_first(
    addresses: list[Address], port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first of the checked addresses that answers; do not resolve the name again."""
    trouble: OSError | None = None
    for address in addresses:
        try:
            return await asyncio.open_connection(str(address), port, limit=PIECE)
        except OSError as error:
            trouble = error
    raise trouble or OSError("no address")


async def connect_via_upstream(
    upstream: str, wanted: ProxyRequest
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect through the proxy that this machine itself uses."""
    url = urlsplit(upstream if "//" in upstream else f"//{upstream}")
    reader, writer = await asyncio.open_connection(url.hostname, url.port or 3128, limit=PIECE)
    pass_word = []
    if url.username:
        pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
        pass_word = [f"Proxy-Authorization: Basic {base64.b64encode(pair.encode()).decode()}"]
    place = f"{wanted.host}:{wanted.port}"
    if wanted.method != "CONNECT":
        writer.write(wanted.forwarded_head(f"http://{place}{wanted.path}", *pass_word))
        return reader, writer
    lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}", *pass_word, "", ""]
    writer.write("\r\n".join(lines).encode("latin-1"))
    status = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1:2]
    if status != [b"200"]:
        await close_writer(writer)
        raise ProxyRefusal(502, f"the machine's own proxy refused {wanted.host}")
    return reader, writer


async def copy_stream(
    source: asyncio.StreamReader, target: asyncio.StreamWriter, left: int | None = None
) -> None:
    """Copy bytes until the end, or only the first `left`."""
    try:
        while left is None or left > 0:
            piece = await source.read(PIECE if left is None else min(PIECE, left))
            if not piece:
                break
            left = None if left is None else left - len(piece)
            target.write(piece)
            await target.drain()
        if left is None and target.can_write_eof():
            target.write_eof()
    except OSError:
        target.close()  # tell the other side that this one failed


def refusal_response(status: int, why: str) -> bytes:
    """Return a refusal whose sentence pip, git and curl show."""
    line = f"HTTP/1.1 {status} {why}".encode("latin-1", "replace")
    return line + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
