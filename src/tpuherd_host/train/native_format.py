"""Trees of arrays as bytes: each process writes what it alone holds, and reads what it needs."""

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tpuherd_host.train.array_trees import is_key, named_leaves
from tpuherd_host.train.checkpoint_commit import Commit, DamagedCheckpoint, step_folder
from tpuherd_host.train.lazy_import import jax, numpy
from tpuherd_host.train.process_group import ProcessGroup
from tpuherd_host.train.storage import Bytes, Place

LENGTH = struct.Struct("<Q")  #: before the table at a part's beginning
TABLE_BYTES_MAX = 1 << 28
WRITE_S = 600.0


class NativeFormat:
    """The default format of checkpoints, which needs only NumPy."""

    def __init__(self, place: Place, circle: ProcessGroup) -> None:
        self.place = place
        self.circle = circle

    def start_save(self, step: int, tree: Any) -> Any:
        """Copy off the devices what this process writes."""
        return own_slices(tree, self.circle.index), writer_processes(tree)

    def finish_save(self, step: int, begun: Any) -> Mapping[str, int]:
        """Write it; on process 0 return all parts of all processes and their sizes."""
        content, others = begun
        summary = ""
        if self.circle.index in others:
            name = f"{step_folder(step)}part-{self.circle.index}"
            pieces = encode_part(content)
            self.place.write(name, pieces)
            summary = json.dumps([name, sum(len(one) for one in pieces)])
        words = [summary]
        if others != {0}:
            words = self.circle.gather_words(summary, f"saved/{step}", WRITE_S)
        return dict(json.loads(word) for word in words if word)

    def load(self, commit: Commit, like: Any) -> Any:
        return PartReader(self.place, sorted(commit.parts)).read_tree(like)


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


def own_slices(tree: Any, process: int) -> list[ArraySlice]:
    """Return all that this process writes; the first holder of a replica writes it."""
    found = []
    for name, leaf in named_leaves(tree):
        if is_key(leaf):
            leaf = jax.random.key_data(leaf)
        if not isinstance(leaf, jax.Array):
            if process == 0:
                found.append(ArraySlice(name, numpy.shape(leaf), (0,) * numpy.ndim(leaf), leaf))
            continue
        for shard in leaf.addressable_shards:
            if shard.replica_id == 0:
                shard.data.copy_to_host_async()
                start = tuple(cut.start or 0 for cut in shard.index)
                found.append(ArraySlice(name, leaf.shape, start, shard.data))
    # Copies: arrays on a CPU device may be donated to the next step.
    return [ArraySlice(one.leaf, one.whole, one.start, numpy.array(one.content)) for one in found]


def writer_processes(tree: Any) -> set[int]:
    """Return the processes that write something: all processes compute the same."""
    found = {0}
    for _, leaf in named_leaves(tree):
        if isinstance(leaf, jax.Array) and leaf.is_fully_replicated:
            first = next(iter(leaf.sharding.devices_indices_map(leaf.shape)))
            found.add(first.process_index)
        elif isinstance(leaf, jax.Array):
            shards = leaf.global_shards
            found |= {one.device.process_index for one in shards if one.replica_id == 0}
    return found


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


class PartReader:
    """Reads what this process needs from the parts of one checkpoint."""

    def __init__(self, place: Place, names: Sequence[str]) -> None:
        self.place = place
        self.at: dict[str, list[tuple[str, int, SliceEntry]]] = {}
        self.seen: dict[tuple[str, int], Any] = {}
        for name in names:
            first, table = self._read_table(name)
            for entry in table:
                self.at.setdefault(entry.leaf, []).append((name, first, entry))

    def read_tree(self, like: Any) -> Any:
        """Read the arrays in the sharding and type of this tree, whose shapes are the same."""
        found = [self._read_leaf(name, leaf) for name, leaf in named_leaves(like)]
        return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(like), found)

    def _read_table(self, name: str) -> tuple[int, list[SliceEntry]]:
        try:
            (length,) = LENGTH.unpack(self.place.read(name, 0, LENGTH.size))
            if length > TABLE_BYTES_MAX:
                raise ValueError("its table is too long")
            rows = json.loads(self.place.read(name, LENGTH.size, length))
            return LENGTH.size + length, [parse_entry(row) for row in rows]
        except FileNotFoundError:
            raise DamagedCheckpoint(f"{name} is missing") from None
        except (ValueError, TypeError, KeyError, struct.error) as error:
            raise DamagedCheckpoint(f"{name} can't be read: {error}") from error

    def _read_leaf(self, name: str, like: Any) -> Any:
        if is_key(like):
            content = self._read_array(name, jax.random.key_data(like))
            return jax.random.wrap_key_data(content, impl=jax.random.key_impl(like))
        if isinstance(like, jax.Array):
            return self._read_array(name, like)
        content = self._read_slice(name, tuple(slice(0, size) for size in numpy.shape(like)))
        if isinstance(like, numpy.ndarray):
            return content.astype(like.dtype, copy=False)
        return type(like)(content)

    def _read_array(self, name: str, like: Any) -> Any:
        return jax.make_array_from_callback(
            like.shape,
            like.sharding,
            lambda index: self._read_slice(name, index).astype(like.dtype, copy=False),
        )

    def _read_slice(self, name: str, index: tuple[slice, ...]) -> Any:
        """Assemble a slice of an array from all entries that it touches."""
        entries = self.at.get(name)
        if not entries:
            raise DamagedCheckpoint(f"{name} is missing from all parts")
        first = entries[0][2]
        cut = [one.indices(size)[:2] for one, size in zip(index, first.whole, strict=True)]
        out = numpy.empty([end - start for start, end in cut], jax.numpy.dtype(first.dtype))
        missing = out.size
        for part_name, offset, entry in entries:
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
            raise DamagedCheckpoint(f"{missing} numbers of {name} are missing from all parts")
        return out

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
            content = numpy.frombuffer(body, jax.numpy.dtype(entry.dtype))
            self.seen[key] = content.reshape(entry.shape)
        return self.seen[key]


def parse_entry(row: Mapping[str, Any]) -> SliceEntry:
    """Parse a row of the table; TypeError or KeyError if it is invalid."""
    boxes = {name: tuple(row[name]) for name in ("whole", "start", "shape")}
    return SliceEntry(**{**row, **boxes})
