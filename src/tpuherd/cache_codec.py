"""Encodes dataclasses for files that herd can rebuild, and decodes them by their field types."""

from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar

from tpuherd.lazy_modules import import_lazily

if TYPE_CHECKING:
    import msgspec
else:  # importing it takes 20 ms, which `herd ls` does not need until the event log is long
    msgspec = import_lazily("msgspec")

T = TypeVar("T")


def encode_cache(value: Any) -> bytes:
    """Encode a dataclass as MessagePack, which has infinity and tuple keys, unlike JSON.

    What it can't write, such as half a character, gives nothing, which `decode_cache` ignores.
    """
    try:
        return type_digest(type(value)) + msgspec.msgpack.encode(value)
    except (UnicodeEncodeError, OverflowError):
        return b""


def decode_cache(kind: type[T], content: bytes) -> T | None:
    """Decode a value; None if it is damaged, or written when the types had other fields."""
    digest = type_digest(kind)
    if not content.startswith(digest):
        return None
    try:
        return msgspec.msgpack.decode(memoryview(content)[len(digest) :], type=kind)
    except msgspec.DecodeError:
        return None


def type_digest(kind: Any) -> bytes:
    """Identify a type with all types in it, their fields and defaults."""
    return sha256(repr(msgspec.inspect.type_info(kind)).encode()).digest()
