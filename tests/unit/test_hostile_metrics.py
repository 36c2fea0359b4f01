"""Whatever answers on libtpu's port: it is said in a sentence, in time, and in bounded memory."""

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import h2.config
import h2.connection
import h2.events
import pytest

from tpuherd.commands.assign_values import ReadMetrics, list_chip_readings, why_missing
from tpuherd.commands.chip_use import ChipHolder, ChipUse, MetricsServer
from tpuherd.commands.read_port_metrics import read_port_metrics
from tpuherd.errors import NotReached
from tpuherd.model.chip_readings import HostReading
from tpuherd.ports import Host
from tpuherd.views.printable import json_text, show_lines
from tpuherd.views.smi_table import csv_text, list_chip_objects, smi_text

SERVER = MetricsServer(port=8431)
HOST = Host(node="n", zone="z", worker=0, incarnation="i", internal_ip="10.0.0.2", external_ip=None)
Answer = Callable[[bytes], bytes]


@dataclass
class FakeTunnel:
    """Both ends of a connection: what we send is answered by a function; b"" ends it."""

    answer: Answer
    waiting: list[bytes] = field(default_factory=list)
    heard: int = 0
    is_closed: bool = False

    async def read(self, n: int = -1, /) -> bytes:
        await asyncio.sleep(0)
        piece = self.waiting.pop(0) if self.waiting else self.answer(b"")
        self.heard += len(piece)
        return piece

    def write(self, data: bytes, /) -> None:
        if data:
            self.waiting.append(self.answer(data))

    async def drain(self) -> None: ...
    def write_eof(self) -> None: ...
    def close(self) -> None:
        self.is_closed = True


def read(tunnel: Any, seconds: float = 5.0) -> ReadMetrics:
    async def open_tunnel(host: Host, port: int) -> Any:
        if isinstance(tunnel, Exception):
            raise tunnel
        return tunnel, tunnel

    reach: Any = SimpleNamespace(pool=SimpleNamespace(open_tunnel=open_tunnel))
    return asyncio.run(read_port_metrics(HOST, SERVER, reach, seconds=seconds))


def grpc_server(reply: bytes, status: str = "0", message: str = "") -> Answer:
    """Answer every call with this message and status."""
    http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    http.initiate_connection()

    def answer(data: bytes) -> bytes:
        for event in http.receive_data(data) if data else ():
            if isinstance(event, h2.events.StreamEnded):
                assert event.stream_id is not None
                http.send_headers(event.stream_id, [(":status", "200")])
                http.send_data(event.stream_id, struct.pack(">BI", 0, len(reply)) + reply)
                end = [("grpc-status", status), ("grpc-message", message)]
                http.send_headers(event.stream_id, end, end_stream=True)
        return http.data_to_send()

    return answer


def test_a_silent_service_is_given_up_in_time() -> None:
    class Silent(FakeTunnel):
        async def read(self, n: int = -1, /) -> bytes:
            await asyncio.Event().wait()
            raise AssertionError

    tunnel = Silent(lambda data: b"")
    assert read(tunnel, seconds=0.05).trouble == "libtpu's metrics did not answer in 0.05 s"
    assert tunnel.is_closed


SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
PING = b"\x00\x00\x08\x06\x00\x00\x00\x00\x00" + bytes(8)
UNKNOWN = b"\x00\x00\x00\x77\x00\x00\x00\x00\x00"  #: a frame that HTTP/2 says to ignore


@pytest.mark.parametrize(
    ("piece", "why"),
    [
        (b"<html><script>alert(1)</script></html>", "it does not speak gRPC"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "it does not speak gRPC"),
        (b"\xff" * 4096, "it does not speak gRPC"),
        (SETTINGS + UNKNOWN * 7000, "its answer is too long"),
        (SETTINGS + PING * 3500, "its answer is too long"),
    ],
)
def test_an_endless_answer_ends_after_bounded_bytes(piece: bytes, why: str) -> None:
    tunnel = FakeTunnel(lambda data: piece * (1 + 60_000 // len(piece)))
    assert read(tunnel, seconds=60).trouble == f"port 8431 is not libtpu's: {why}"
    assert tunnel.heard < 2 << 20
    assert tunnel.is_closed


def test_a_port_that_closes_at_once_is_silent() -> None:
    assert read(FakeTunnel(lambda data: b"")).is_silent
    assert read(NotReached("it does not answer on port 8431")).is_silent


@pytest.mark.parametrize("reply", [b"", b"\x0a", b"\xff" * 40, b"\x0a\x05ab"])
def test_messages_that_are_no_metrics_are_refused(reply: bytes) -> None:
    assert read(FakeTunnel(grpc_server(reply))).trouble.startswith("libtpu's metrics make no sense")


def test_hostile_words_are_shown_and_have_no_effect() -> None:
    word = "%1B[2J%0A<script>%E2%80%AE"
    metrics = read(FakeTunnel(grpc_server(b"", status="13", message=word)))
    bad = ChipHolder(device="/dev/accel0", pid=1, user="<b>", command="<img src=x>\x1b]0;x\x07")
    use = ChipUse(holders=(bad,), devices=("/dev/accel0", "/dev/accel\x1b[1m"))
    chips = list_chip_readings(use, [metrics], "v4")
    host = HostReading(
        host="gpt-0/w0", node="n", zone="z", read_at=0.0, chips=chips,
        why=why_missing(use, [metrics], chips), notice="\x1b[31mx",
    )  # fmt: skip
    shown = (
        show_lines(smi_text([host], 0.0, 120)),
        csv_text([host], 0.0, heading=True),
        json_text(list_chip_objects([host], 0.0)),
    )
    for text in shown:
        assert not set(text) & {"\x1b", "\x07", "\u202e"}
    assert "libtpu's metrics: \\x1b[2J <script>\\u202e" in shown[0]
