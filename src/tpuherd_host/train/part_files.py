"""The files of a checkpoint in our own form: slices of arrays, each with a checksum.

Only NumPy is needed here. `docs/reference/checkpoints.md` describes the bytes.
"""

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from tpuherd_host.train.checkpoint_commit import DamagedCheckpoint
from tpuherd_host.train.lazy_import import LazyModule, is_installed, numpy
from tpuherd_host.train.storage import Bytes, Readable

LENGTH = struct.Struct("<Q")  #: before the table at a part's beginning
TABLE_BYTES_MAX = 1 << 28
BFLOAT16 = "bfloat16"
ml_dtypes = LazyModule("ml_dtypes")


@dataclass(frozen=True, slots=True)
class ArraySlice:
    """A slice of one array, as copied off a device."""

    leaf: str
    whole: tuple[int, ...]  #: the array's shape
    start: tuple[int, ...]
    content: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class SliceEntry:
    """A slice in a part's table."""

    leaf: str
    dtype: str
    whole: tuple[int, ...]
    start: tuple[int, ...]
    shape: tuple[int, ...]
    first: int  #: byte in the part, after its table
    length: int
    crc: int


def encode_part(boxes: Sequence[ArraySlice]) -> list[Bytes]:
    """Return a part's bytes: the table's length, the table, the contents."""
    table: list[dict[str, Any]] = []
    bodies: list[Bytes] = []
    first = 0
    for box in boxes:
        flat = numpy.ascontiguousarray(box.content).reshape(-1)
        body = memoryview(flat.view(numpy.uint8))
        entry = SliceEntry(
            leaf=box.leaf,
            dtype=str(flat.dtype),
            whole=tuple(box.whole),
            start=box.start,
            shape=box.content.shape,
            first=first,
            length=len(body),
            crc=zlib.crc32(body),
        )
        table.append(asdict(entry))
        bodies.append(body)
        first += len(body)
    head = json.dumps(table).encode()
    return [LENGTH.pack(len(head)), head, *bodies]


def numpy_type(name: str) -> Any:
    """Return NumPy's type of this name. Without ml_dtypes, bfloat16 is read as its 16 bits."""
    try:
        return numpy.dtype(name)
    except TypeError:
        if is_installed("ml_dtypes"):
            return numpy.dtype(getattr(ml_dtypes, name))
        if name == BFLOAT16:
            return numpy.dtype(numpy.uint16)
        raise


class PartReader:
    """Reads slices of arrays from the parts of one checkpoint."""

    def __init__(self, place: Readable, names: Sequence[str]) -> None:
        self.place = place
        self.at: dict[str, list[tuple[str, int, SliceEntry]]] = {}
        self.seen: dict[tuple[str, int], Any] = {}
        for name in names:
            first, table = self._read_table(name)
            for entry in table:
                self.at.setdefault(entry.leaf, []).append((name, first, entry))

    def find_entry(self, leaf: str) -> SliceEntry:
        """Return a slice of this array, which has the array's shape and type."""
        entries = self.at.get(leaf)
        if not entries:
            raise DamagedCheckpoint(f"{leaf} is missing from all parts")
        return entries[0][2]

    def require_shape(self, leaf: str, shape: Sequence[int]) -> None:
        """Raise DamagedCheckpoint if the parts have an array of another shape."""
        if any(entry.whole != tuple(shape) for _, _, entry in self.at.get(leaf, ())):
            raise DamagedCheckpoint(f"{leaf} has another shape in a part")

    def read_slice(self, leaf: str, index: Sequence[slice]) -> Any:
        """Assemble a slice of an array from all entries that it touches."""
        first = self.find_entry(leaf)
        cut = [one.indices(size)[:2] for one, size in zip(index, first.whole, strict=True)]
        out = numpy.empty([end - start for start, end in cut], numpy_type(first.dtype))
        missing = out.size
        for part_name, offset, entry in self.at[leaf]:
            into, taken = [], []
            for (start, end), at, size in zip(cut, entry.start, entry.shape, strict=True):
                low, high = max(start, at), min(end, at + size)
                into.append(slice(low - start, high - start))
                taken.append(slice(low - at, high - at))
            if all(one.start < one.stop for one in into):
                content = self._read_entry(part_name, offset, entry)[tuple(taken)]
                out[tuple(into)] = content
                missing -= content.size
        if missing:
            raise DamagedCheckpoint(f"{missing} numbers of {leaf} are missing from all parts")
        return out

    def read_whole(self, leaf: str) -> Any:
        return self.read_slice(leaf, [slice(None)] * len(self.find_entry(leaf).whole))

    def _read_table(self, name: str) -> tuple[int, list[SliceEntry]]:
        try:
            (length,) = LENGTH.unpack(self.place.read(name, 0, LENGTH.size))
            if length > TABLE_BYTES_MAX:
                raise ValueError("its table is too long")
            rows = json.loads(self.place.read(name, LENGTH.size, length))
            return LENGTH.size + length, [parse_entry(row) for row in rows]
        except FileNotFoundError:
            raise DamagedCheckpoint(f"{name} is missing") from None
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError, SyntaxError,
                struct.error) as error:  # fmt: skip
            raise DamagedCheckpoint(f"{name} can't be read: {error}") from error

    def _read_entry(self, name: str, offset: int, entry: SliceEntry) -> Any:
        """Read a slice as it was written, or raise DamagedCheckpoint."""
        key = (name, entry.first)
        if key not in self.seen:
            try:
                body = self.place.read(name, offset + entry.first, entry.length)
            except FileNotFoundError:
                raise DamagedCheckpoint(f"{name} is missing or too short") from None
            if len(body) != entry.length or zlib.crc32(body) != entry.crc:
                raise DamagedCheckpoint(f"{name} was changed after it was written, at {entry.leaf}")
            content = numpy.frombuffer(body, numpy_type(entry.dtype))
            self.seen[key] = content.reshape(entry.shape)
        return self.seen[key]


def parse_entry(row: Mapping[str, Any]) -> SliceEntry:
    """Parse a row of the table; an error if it is invalid, as whoever writes it may lie."""
    boxes = {name: tuple(row[name]) for name in ("whole", "start", "shape")}
    entry = SliceEntry(**{**row, **boxes})
    numbers = (*entry.whole, *entry.start, *entry.shape, entry.first, entry.length, entry.crc)
    counts = all(isinstance(number, int) and number >= 0 for number in numbers)
    if not (counts and isinstance(entry.leaf, str) and isinstance(entry.dtype, str)):
        raise ValueError("a slice has values that no slice has")
    dtype = numpy_type(entry.dtype)
    size = prod(entry.shape) * dtype.itemsize
    if dtype.hasobject or size != entry.length or len({*map(len, boxes.values())}) > 1:
        raise ValueError(f"a slice of {entry.leaf} has another size than its type and shape")
    return entry
