"""Packs and parses the messages of JAX's profiler service. Pure.

They are protocol buffers with these fields: ProfileRequest{duration_ms=1, opts=4,
repository_root=5, session_id=6, host_name=7}, ProfileOptions{host_tracer_level=2,
device_tracer_level=3, python_tracer_level=4, version=5, enable_hlo_proto=7, duration_ms=9},
ProfileResponse{empty_trace=7}.
"""

from dataclasses import dataclass

from tpuherd_host.agent.host.runtime_metrics import BYTES, VARINT, parse_integer

SERVICE = "/tensorflow.ProfilerService/Profile"


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceOrder:
    """What JAX shall trace, and where it puts the file on its host."""

    milliseconds: int
    folder: str  #: absolute
    session: str
    name: str  #: of the file, without .xplane.pb


def pack_varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def pack_number(field: int, number: int) -> bytes:
    return pack_varint(field << 3 | VARINT) + pack_varint(number)


def pack_bytes(field: int, content: bytes) -> bytes:
    return pack_varint(field << 3 | BYTES) + pack_varint(len(content)) + content


def profile_request(order: TraceOrder) -> bytes:
    """Return the request. Python calls are not traced: that slows a step most of all."""
    options = b"".join(
        pack_number(field, value)
        for field, value in ((2, 2), (3, 1), (4, 0), (5, 1), (7, 1), (9, order.milliseconds))
    )
    return b"".join(
        (
            pack_number(1, order.milliseconds),
            pack_bytes(4, options),
            pack_bytes(5, order.folder.encode()),
            pack_bytes(6, order.session.encode()),
            pack_bytes(7, order.name.encode()),
        )
    )


def is_trace_empty(response: bytes) -> bool:
    """Whether nothing happened while it traced; InvalidMetrics if the response makes no sense."""
    return bool(parse_integer(response, 7))
