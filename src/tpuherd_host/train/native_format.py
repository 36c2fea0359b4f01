"""Trees of arrays as bytes: each process writes what it alone holds, and reads what it needs."""

import json
from collections.abc import Collection, Mapping
from typing import Any

from tpuherd_host.train.array_trees import is_key, named_leaves
from tpuherd_host.train.checkpoint_commit import Commit, step_folder
from tpuherd_host.train.lazy_import import jax, numpy
from tpuherd_host.train.part_files import ArraySlice, PartReader, encode_part
from tpuherd_host.train.process_group import ProcessGroup
from tpuherd_host.train.storage import Place, Readable

WRITE_S = 600.0


class NativeFormat:
    """The default format of checkpoints, which needs only NumPy."""

    def __init__(self, place: Place, circle: ProcessGroup, launched: int = 0) -> None:
        self.place = place
        self.circle = circle
        #: In the names of parts, so that two attempts at one step never mix theirs.
        self.ending = f"-{launched}" if launched else ""

    def start_save(self, step: int, tree: Any) -> Any:
        """Copy off the devices what this process writes."""
        return own_slices(tree, self.circle.index), writer_processes(tree)

    def finish_save(self, step: int, begun: Any) -> Mapping[str, int]:
        """Write it; on process 0 return all parts of all processes and their sizes."""
        content, others = begun
        summary = ""
        if self.circle.index in others:
            name = f"{step_folder(step)}part-{self.circle.index}{self.ending}"
            pieces = encode_part(content)
            self.place.write(name, pieces)
            summary = json.dumps([name, sum(len(one) for one in pieces)])
        words = [summary]
        if others != {0}:
            words = self.circle.gather_words(summary, f"saved/{step}", WRITE_S)
        return dict(json.loads(word) for word in words if word)

    def load(self, commit: Commit, like: Any, names: Collection[str]) -> Any:
        return load_tree(self.place, commit, like, names)


def load_tree(place: Readable, commit: Commit, like: Any, names: Collection[str]) -> Any:
    """Read arrays in the sharding and type of this tree, whose shapes are the same."""
    reader = PartReader(place, sorted(commit.parts))
    found = [
        read_leaf(reader, name, leaf) if name in names else leaf
        for name, leaf in named_leaves(like)
    ]
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(like), found)


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


def read_leaf(reader: PartReader, name: str, like: Any) -> Any:
    reader.require_shape(name, numpy.shape(jax.random.key_data(like) if is_key(like) else like))
    if is_key(like):
        content = read_array(reader, name, jax.random.key_data(like))
        return jax.random.wrap_key_data(content, impl=jax.random.key_impl(like))
    if isinstance(like, jax.Array):
        return read_array(reader, name, like)
    content = reader.read_whole(name)
    if isinstance(like, numpy.ndarray):
        return content.astype(like.dtype, copy=False)
    return type(like)(content)


def read_array(reader: PartReader, name: str, like: Any) -> Any:
    return jax.make_array_from_callback(
        like.shape,
        like.sharding,
        lambda index: reader.read_slice(name, index).astype(like.dtype, copy=False),
    )
