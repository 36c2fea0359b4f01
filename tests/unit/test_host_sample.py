"""What the agent reads for series over time, and what a service on libtpu's port can't do to it."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.test_smi import metric, real, response, whole
from tpuherd_host.agent.host import host_sample
from tpuherd_host.agent.host.host_sample import (
    Counters,
    HostSampler,
    chip_values,
    compare_counters,
    parse_network,
    parse_ticks,
)
from tpuherd_host.agent.host.loopback_grpc import (
    ACK,
    BYTES_MAX,
    DATA,
    END,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    RESET,
    SETTINGS,
    Answers,
    CallFailed,
    NothingServes,
    call_method,
    pack_frame,
    pack_requests,
)
from tpuherd_host.agent.host.runtime_metrics import InvalidMetrics

STAT = "cpu  100 5 45 800 50 0 0 0 70 0\ncpu0 1 2 3\n"
DEVICES = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs
    lo: 999 1 0 0 0 0 0 0 999 1 0 0 0 0 0 0
  ens8: 1000 9 0 0 0 0 0 0 300 7 0 0 0 0 0 0
  eth1:20 9 0 0 0 0 0 0 5 7 0 0 0 0 0 0
docker0: 777 9 0 0 0 0 0 0 777 7 0 0 0 0 0 0
"""
GIB = 1 << 30


def test_counters_of_the_kernel_are_read() -> None:
    assert parse_ticks(STAT) == (150, 1000)
    assert parse_ticks("") is None
    assert parse_network(DEVICES) == (1020, 305)
    assert parse_network("") is None


def test_load_and_rates_are_differences() -> None:
    before = Counters(10.0, (100, 1000), (1000, 50))
    after = Counters(20.0, (175, 1100), (21_000, 60))
    assert compare_counters(before, after) == {"cpu": 75.0, "net": [2000, 1]}
    assert compare_counters(after, before) == {}, "a counter that went back says nothing"
    assert compare_counters(before, Counters(20.0, None, None)) == {}
    assert compare_counters(before, before) == {}


def test_this_machine_has_values(tmp_path: Path) -> None:
    sampler = HostSampler(str(tmp_path))
    sampler.before = sampler.before._replace(at=0.0, ticks=(0, 0), network=(0, 0))
    found = sampler.read_sample()
    assert 0 <= found["cpu"] <= 100
    assert 0 < found["ram"][0] < found["ram"][1]
    assert 0 <= found["disk"][0] <= found["disk"][1]
    assert min(found["net"]) >= 0


def test_values_of_chips_are_checked() -> None:
    used = response(metric(0, whole(3 * GIB)), metric(1, whole(-1)))
    total = response(metric(0, whole(32 * GIB)), metric(1, whole(32 * GIB)))
    duty = response(metric(0, real(float("nan"))), metric(1, real(100.4)))
    assert chip_values([used, total, duty], 2, 1) == [
        [3 * GIB, 32 * GIB, None], [None, 32 * GIB, 100.0],
    ]  # fmt: skip
    assert chip_values([None, total, None], 2, 1)[0] == [None, 32 * GIB, None]
    more = response(metric(0, whole(33 * GIB)), metric(1, whole(1 << 60)))
    assert chip_values([more, total, None], 2, 1) == [
        [None, 32 * GIB, None], [None, 32 * GIB, None],
    ]  # fmt: skip
    pairs = response(*(metric(device, whole(GIB)) for device in range(4)))
    assert chip_values([pairs, None, duty], 2, 2)[0][0] == 2 * GIB
    with pytest.raises(InvalidMetrics):
        chip_values([b"\xff\xff"], 1, 1)


# ---- the connection ------------------------------------------------------------------------------


def data(stream: int, message: bytes, flags: int = 0, padding: bytes = b"") -> bytes:
    body = struct.pack(">BI", 0, len(message)) + message
    if padding:
        body = bytes((len(padding),)) + body + padding
    return pack_frame(DATA, flags | (PADDED if padding else 0), stream, body)


GOOD = (
    pack_frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 1 << 20))
    + pack_frame(HEADERS, 4, 1, b"\x88")
    + data(1, b"one")
    + data(3, b"two", padding=b"\0" * 9)
    + pack_frame(HEADERS, 4 | END, 1, b"\x88")
    + pack_frame(HEADERS, 4 | END, 3, b"\x88")
)


@contextmanager
def served(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A service on a port of its own, for one connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        end, _ = listener.accept()
        with end:
            try:
                serve(end)
            except OSError:
                return

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()
        thread.join(5)


def call(port: int, seconds: float = 0.4) -> list[bytes | None]:
    return call_method(port, "/a.B/C", [b"", b"x"], seconds)


def test_answers_are_read_in_any_pieces() -> None:
    def serve(end: socket.socket) -> None:
        assert end.recv(1 << 16).startswith(PREFACE)
        for byte in GOOD:
            end.sendall(bytes((byte,)))
        while end.recv(1 << 10):
            pass

    with served(serve) as port:
        assert call(port, 5.0) == [b"one", b"two"]


def test_settings_and_pings_are_acknowledged() -> None:
    answers = Answers(1)
    replies = answers.take_bytes(pack_frame(SETTINGS, 0, 0) + pack_frame(PING, 0, 0, b"12345678"))
    assert replies == pack_frame(SETTINGS, ACK, 0) + pack_frame(PING, ACK, 0, b"12345678")
    assert answers.take_bytes(pack_frame(PING, ACK, 0, b"12345678")) == b""


def test_a_call_that_fails_has_no_message() -> None:
    answers = Answers(2)
    answers.take_bytes(
        pack_frame(HEADERS, 4 | END, 1, b"\x88") + pack_frame(RESET, 0, 3, b"\0" * 4)
    )
    assert not answers.awaited and answers.decode_messages() == [None, None]


def test_requests_are_those_of_http_2() -> None:
    import h2.config
    import h2.connection
    import h2.events

    server = h2.connection.H2Connection(
        h2.config.H2Configuration(client_side=False, header_encoding=None)
    )
    events = server.receive_data(pack_requests("/a.B/C", [b"one", b"two"]))
    heads = [dict(e.headers or ()) for e in events if isinstance(e, h2.events.RequestReceived)]
    bodies = [e.data for e in events if isinstance(e, h2.events.DataReceived)]
    assert [head[b":path"] for head in heads] == [b"/a.B/C"] * 2
    assert bodies == [b"\0\0\0\0\3one", b"\0\0\0\0\3two"]


def stay_silent(end: socket.socket) -> None:
    while end.recv(1 << 10):
        pass


def send_too_much(end: socket.socket) -> None:
    end.sendall(data(1, b"x" * 9000) * 8)
    stay_silent(end)


def drip(end: socket.socket) -> None:
    while True:
        end.sendall(pack_frame(PING, ACK, 0, b"12345678")[:1])
        time.sleep(0.05)


def flood(end: socket.socket) -> None:
    while True:
        end.sendall(pack_frame(SETTINGS, ACK, 0) * 1000)


@pytest.mark.parametrize(
    ("serve", "why"),
    [
        (stay_silent, "did not answer in 0.4 s"),
        (drip, "did not answer in 0.4 s|does not speak gRPC"),
        (flood, "too long"),
        (lambda end: end.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "does not speak gRPC"),
        (lambda end: end.sendall(b"SSH-2.0-OpenSSH_9.2\r\n"), "does not speak gRPC"),
        (lambda end: end.sendall(pack_frame(GOAWAY, 0, 0, b"\0" * 8)), "ended the connection"),
        (send_too_much, "too long"),
        (lambda end: end.sendall(GOOD.replace(b"one", b"on") + b"12"), "gRPC|closed|not answer"),
        (lambda end: end.sendall(GOOD[:40]), "closed the connection"),
    ],
)
def test_a_hostile_service_costs_little_and_is_named(
    serve: Callable[[socket.socket], None], why: str
) -> None:
    begun = time.monotonic()
    with served(serve) as port, pytest.raises(CallFailed, match=why):
        call(port)
    assert time.monotonic() - begun < 3


def test_nothing_is_served() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    listener.close()
    with pytest.raises(NothingServes):
        call(port)
    with served(lambda end: end.close()) as port, pytest.raises(NothingServes):
        call(port)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=8), st.integers(0, 9), st.integers(0, 255))
def test_any_bytes_are_taken_or_refused(pieces: list[bytes], kind: int, flags: int) -> None:
    answers = Answers(2)
    try:
        for piece in pieces:
            answers.take_bytes(pack_frame(kind, flags, 1, piece) + piece)
        answers.decode_messages()
    except CallFailed:
        pass
    assert len(answers.buffer) <= BYTES_MAX


def test_chips_without_a_service_have_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_sample, "chip_devices", lambda: ["/dev/accel0", "/dev/accel1"])
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    listener.close()
    rows, why = host_sample.read_chips(port)
    assert rows == [[None, None, None]] * 2
    assert why == f"no program serves metrics of the chips on port {port}"
    with served(lambda end: end.sendall(b"garbage" * 10)) as port:
        assert "tells nothing of the chips" in host_sample.read_chips(port)[1]
    monkeypatch.setattr(host_sample, "chip_devices", list)
    assert host_sample.read_chips(port) == ([], "this host has no chips in /dev")
