"""Checkpoints in Orbax's format, for states that are large or sharded over many hosts."""

from collections.abc import Collection, Mapping
from typing import Any

from tpuherd_host.train.array_trees import named_leaves
from tpuherd_host.train.checkpoint_commit import Commit, DamagedCheckpoint, step_folder
from tpuherd_host.train.lazy_import import LazyModule, jax
from tpuherd_host.train.process_group import ProcessGroup
from tpuherd_host.train.storage import Folder, Place

orbax = LazyModule("orbax.checkpoint", "orbax-checkpoint")
STATE = "state/"


class OrbaxFormat:
    """Holds Orbax's asynchronous writer."""

    def __init__(self, place: Place, circle: ProcessGroup) -> None:
        self.place = place
        self.circle = circle
        self.writer: Any = None

    def start_save(self, step: int, tree: Any) -> Any:
        """Have Orbax copy the tree off the devices; it continues in its own threads."""
        if self.writer is None:
            self.writer = orbax.AsyncCheckpointer(orbax.StandardCheckpointHandler())
        self.writer.save(self._step_path(step), args=orbax.args.StandardSave(tree), force=True)

    def finish_save(self, step: int, begun: Any) -> Mapping[str, int]:
        """Wait for Orbax; on process 0 return all files, each with a checksum."""
        self.writer.wait_until_finished()
        return {} if self.circle.index else self.place.file_checksums(step_folder(step) + STATE)

    def load(self, commit: Commit, like: Any, names: Collection[str]) -> Any:
        """Load these arrays of the tree.

        Process 0 compares checksums: Orbax does not notice a flipped bit.
        """
        damage = self.circle.broadcast_word(
            self._find_damage(commit) if self.circle.index == 0 else ""
        )
        if damage:
            raise DamagedCheckpoint(damage)  # on all: Orbax's processes wait for each other
        read = read_all if set(commit.leaves) == set(names) else read_some
        try:
            return read(self._step_path(commit.step), like, names)
        except Exception as error:  # Orbax raises a bare Exception for damage
            raise DamagedCheckpoint(str(error).partition("\n")[0][:300]) from error

    def _step_path(self, step: int) -> str:
        location = self.place.location
        if isinstance(self.place, Folder):
            location = str(self.place.path.resolve())
        return f"{location}/{step_folder(step)}{STATE}".rstrip("/")

    def _find_damage(self, commit: Commit) -> str:
        sums = self.place.file_checksums(step_folder(commit.step) + STATE)
        for name, recorded in commit.parts.items():
            if name not in sums:
                return f"{name} is missing"
            # 0: a checkpoint in a bucket that is older than the sums
            if recorded and sums[name] != recorded:
                return f"{name} was changed after it was written"
        return ""


def read_all(path: str, like: Any, names: Collection[str]) -> Any:
    target = jax.tree_util.tree_map(abstract_array, like)
    reader = orbax.Checkpointer(orbax.StandardCheckpointHandler())
    return reader.restore(path, args=orbax.args.StandardRestore(target))


def read_some(path: str, like: Any, names: Collection[str]) -> Any:
    """Read these arrays; the others stay, and what only the checkpoint has is not read.

    Orbax reads a tree of the checkpoint's structure, so arrays are found by their paths in it.
    """
    reader = orbax.Checkpointer(orbax.PyTreeCheckpointHandler())
    found = reader.metadata(path)
    found = getattr(found, "item_metadata", found)
    saved = getattr(found, "tree", found)
    places, every = leaf_places(saved), [*named_leaves(like)]
    target = [orbax.PLACEHOLDER] * len(places)
    taken = {}
    for leaf_path, index in leaf_places(like).items():
        name, leaf = every[index]
        if name in names:
            taken[index] = places[leaf_path]
            target[places[leaf_path]] = abstract_array(leaf)
    item = jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(saved), target)
    arguments = orbax.checkpoint_utils.construct_restore_args(item)
    read = jax.tree_util.tree_leaves(
        reader.restore(path, args=orbax.args.PyTreeRestore(item, restore_args=arguments))
    )
    mixed = [
        read[taken[index]] if index in taken else leaf for index, (_, leaf) in enumerate(every)
    ]
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(like), mixed)


def leaf_places(tree: Any) -> Mapping[tuple[str, ...], int]:
    """Return where each path in Orbax's words is among the leaves of a tree."""
    shape = jax.tree_util.tree_structure(tree)
    numbered = jax.tree_util.tree_unflatten(shape, range(shape.num_leaves))
    found: Mapping[tuple[str, ...], int] = orbax.tree.to_flat_dict(numbered)
    return found


def abstract_array(leaf: Any) -> Any:
    if isinstance(leaf, jax.Array):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
    return leaf
