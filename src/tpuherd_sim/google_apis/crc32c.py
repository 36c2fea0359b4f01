"""CRC32C, by which Cloud Storage knows contents; the standard library lacks it."""

from base64 import b64decode, b64encode
from importlib import import_module
from typing import Any

ZEROS = bytes(1 << 20)
LIBRARY: Any = import_module("google_crc32c")  # it has no types


def update_crc32c(crc: int, content: bytes) -> int:
    """Return the checksum of what had the checksum `crc`, followed by this content."""
    found: int = LIBRARY.extend(crc, content)
    return found


def join_crc32c(first: str, second: str, length: int) -> str:
    """Return the checksum of two contents in a row, of which the second is this long."""
    one, other = (int.from_bytes(b64decode(text), "big") for text in (first, second))
    none = 0  # checksums are linear but for what they begin with, which cancels out
    while length > 0:
        zeros = ZEROS[:length]
        one, none = update_crc32c(one, zeros), update_crc32c(none, zeros)
        length -= len(zeros)
    return encode_crc32c(one ^ none ^ other)


def encode_crc32c(crc: int) -> str:
    return b64encode(crc.to_bytes(4, "big")).decode()
