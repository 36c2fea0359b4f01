"""A tunnel to a host's SSH port through Google's Identity-Aware Proxy (IAP).

The proxy takes a websocket and connects it to a port of a VM. Each message is a frame: a tag of two
bytes, then what belongs to it (numbers are big-endian):

    SESSION  length (4), id          the proxy has reached the port; sent first
    DATA     length (4), bytes       at most DATA_MAX bytes, both ways
    ACK      total (8)               number of bytes received so far, both ways

Google documents none of this; it is known from its open clients. A broken websocket could be
resumed with the session's id. We don't: the connection counts as lost, and is opened again when
needed.
"""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from tpuherd.errors import HerdError, NotAllowed, NotReached, OperationFailed
from tpuherd.lazy_modules import import_lazily
from tpuherd.ports import Host

if TYPE_CHECKING:
    import websockets.asyncio.client as websocket_client
    import websockets.exceptions as websocket_errors
    import websockets.typing as websocket_types
else:
    websocket_client = import_lazily("websockets.asyncio.client")
    websocket_errors = import_lazily("websockets.exceptions")
    websocket_types = import_lazily("websockets.typing")

SESSION, DATA, ACK = 1, 4, 7
DATA_MAX = 16_384
ACK_AFTER = 2 * DATA_MAX  #: acknowledge when more than this was received since the last time
MESSAGE_MAX = 1 << 20
SUBPROTOCOL = "relay.tunnel.cloudproxy.app"
ORIGIN = "bot:iap-tunneler"
INTERFACE = "nic0"
PATIENCE_S = 20.0  #: until the proxy has reached the port
#: What a closed websocket says about the host: its status, and what to do.
CLOSED = {
    4003: ("IAP can't reach port {port} of {instance}",
           "does a firewall rule allow it from 35.235.240.0/20? herd setup gcp --way iap"),
    4033: ("your account may not use IAP for {instance}",
           "ask for roles/iap.tunnelResourceAccessor, or: herd setup gcp --way iap"),
    4047: ("IAP can't find {instance}", "is the node READY?"),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    tag: int
    data: bytes = b""
    total: int = 0  #: of an ACK


def encode_data(data: bytes) -> bytes:
    return struct.pack(">HI", DATA, len(data)) + data


def encode_ack(total: int) -> bytes:
    return struct.pack(">HQ", ACK, total)


def decode_frame(message: bytes) -> Frame:
    """Read a message; raises OperationFailed if it is none of IAP's. Unknown tags are kept."""
    try:
        (tag,) = struct.unpack_from(">H", message)
        if tag == ACK:
            return Frame(tag=tag, total=struct.unpack_from(">Q", message, 2)[0])
        if tag in (SESSION, DATA):
            (length,) = struct.unpack_from(">I", message, 2)
            if len(message) < 6 + length:
                raise struct.error("it is cut off")
            return Frame(tag=tag, data=message[6 : 6 + length])
    except struct.error as error:
        raise OperationFailed(f"IAP sent a malformed message ({error})") from error
    return Frame(tag=tag)


@dataclass(kw_only=True)
class IapRelay:
    """Opens tunnels for one project, and keeps what carries their bytes."""

    url: str  #: wss://tunnel.cloudproxy.app/v4
    project: str
    auth_headers: Callable[[], Awaitable[Mapping[str, str]]]
    _carriers: set[asyncio.Task[None]] = field(default_factory=set)

    async def open_tunnel(self, host: Host, instance: str) -> socket.socket:
        """Return a socket that is connected to the host's SSH port."""
        if not instance:
            raise NotReached(
                "its instance name is not known yet, which IAP needs",
                hint="try again in a minute: the host publishes it when it has booted",
            )
        websocket = await self._connect(host, instance)
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=ours)
        task = asyncio.create_task(carry_bytes(websocket, reader, writer))
        self._carriers.add(task)
        task.add_done_callback(self._carriers.discard)
        return theirs

    async def close(self) -> None:
        """Close all tunnels."""
        for task in self._carriers:
            task.cancel()
        await asyncio.gather(*self._carriers, return_exceptions=True)

    async def _connect(self, host: Host, instance: str) -> "websocket_client.ClientConnection":
        """Open a websocket and wait until the proxy has reached the port."""
        query = {
            "project": self.project,
            "zone": host.zone,
            "instance": instance,
            "interface": INTERFACE,
            "port": host.ssh_port,
            "newWebsocket": "True",
        }
        try:
            websocket = await websocket_client.connect(
                f"{self.url}/connect?{urlencode(query)}",
                origin=websocket_types.Origin(ORIGIN),
                subprotocols=[websocket_types.Subprotocol(SUBPROTOCOL)],
                additional_headers=await self.auth_headers(),
                compression=None,
                max_size=MESSAGE_MAX,
                open_timeout=PATIENCE_S,
            )
        except websocket_errors.InvalidStatus as error:
            raise refusal_error(error.response.status_code) from error
        except (OSError, TimeoutError, websocket_errors.WebSocketException) as error:
            raise NotReached(
                f"IAP can't be reached ({error})", hint="is the network up?"
            ) from error
        try:
            async with asyncio.timeout(PATIENCE_S):
                while (await receive_frame(websocket)).tag != SESSION:
                    pass
        except BaseException as error:
            await websocket.close()
            if isinstance(error, TimeoutError):
                text = f"IAP did not reach {instance} within {PATIENCE_S:g} s"
                raise NotReached(text) from error
            if isinstance(error, websocket_errors.ConnectionClosed):
                raise closed_error(error, instance, host.ssh_port) from error
            raise
        return websocket


async def receive_frame(websocket: "websocket_client.ClientConnection") -> Frame:
    message = await websocket.recv()
    return decode_frame(message if isinstance(message, bytes) else message.encode())


async def carry_bytes(
    websocket: "websocket_client.ClientConnection",
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Carry bytes both ways until one side ends; then end the other."""
    try:
        async with websocket, asyncio.TaskGroup() as group:
            sending = group.create_task(send_bytes(websocket, reader))
            receiving = group.create_task(receive_bytes(websocket, writer))
            sending.add_done_callback(lambda _: receiving.cancel())
            receiving.add_done_callback(lambda _: sending.cancel())
    except* (OSError, HerdError, websocket_errors.ConnectionClosed):
        pass  # the SSH connection notices that its socket is closed
    finally:
        writer.close()


async def send_bytes(
    websocket: "websocket_client.ClientConnection", reader: asyncio.StreamReader
) -> None:
    while data := await reader.read(DATA_MAX):
        await websocket.send(encode_data(data))


async def receive_bytes(
    websocket: "websocket_client.ClientConnection", writer: asyncio.StreamWriter
) -> None:
    received = acknowledged = 0
    while True:
        frame = await receive_frame(websocket)
        if frame.tag != DATA:
            continue  # an ACK: we keep nothing to send again
        writer.write(frame.data)
        await writer.drain()
        received += len(frame.data)
        if received - acknowledged > ACK_AFTER:
            await websocket.send(encode_ack(received))
            acknowledged = received


def refusal_error(status: int) -> HerdError:
    """The error for a websocket that the proxy refuses."""
    if status in (401, 403):
        return NotAllowed(
            f"IAP refuses the connection (HTTP {status})",
            hint="enable iap.googleapis.com and ask for roles/iap.tunnelResourceAccessor, "
            "or: herd setup gcp --way iap",
        )
    return NotReached(f"IAP refuses the connection (HTTP {status})")


def closed_error(error: "websocket_errors.ConnectionClosed", instance: str, port: int) -> HerdError:
    """The error for a websocket that is closed before the port was reached."""
    code = error.rcvd.code if error.rcvd else 0
    reason = error.rcvd.reason if error.rcvd else ""
    if code in CLOSED:
        sentence, hint = CLOSED[code]
        kind = NotAllowed if code == 4033 else NotReached
        return kind(sentence.format(instance=instance, port=port), hint=hint)
    said = f"{code} {reason}".strip() if code else "without a status"
    return NotReached(f"IAP closed the connection ({said})")
