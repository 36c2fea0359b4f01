"""A minimal protocol buffer codec for libtpu's metrics."""

import struct
from collections.abc import Iterator

VARINT, DOUBLE, BYTES = 0, 1, 2  #: wire types


def encode_varint(number: int) -> bytes:
    """Encode an integer; negative ones take 64 bits."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def number_field(field: int, value: int) -> bytes:
    """Encode an integer, enum or boolean field."""
    return encode_varint(field << 3 | VARINT) + encode_varint(value)


def double_field(field: int, value: float) -> bytes:
    return encode_varint(field << 3 | DOUBLE) + struct.pack("<d", value)


def message_field(field: int, *parts: bytes) -> bytes:
    """Encode a nested message or a string from its parts."""
    content = b"".join(parts)
    return encode_varint(field << 3 | BYTES) + encode_varint(len(content)) + content


def string_field(field: int, value: str) -> bytes:
    return message_field(field, value.encode())


def parse_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of every field; raise ValueError on malformed data."""
    at = 0

    def whole() -> int:
        nonlocal at
        result = shift = 0
        while True:
            if at >= len(data) or shift > 63:
                raise ValueError("a number has no end")
            byte = data[at]
            at += 1
            result |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return result

    while at < len(data):
        key = whole()
        kind = key & 7
        if kind == VARINT:
            yield key >> 3, whole()
            continue
        if kind not in (DOUBLE, BYTES):
            raise ValueError(f"wire type {kind}")
        length = 8 if kind == DOUBLE else whole()
        if at + length > len(data):
            raise ValueError("a field has no end")
        yield key >> 3, data[at : at + length]
        at += length
