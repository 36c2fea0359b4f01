"""Checkpoints in Orbax's format, for states that are large or sharded over many hosts."""

from collections.abc import Mapping
from typing import Any

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

    def load(self, commit: Commit, like: Any) -> Any:
        """Load the tree. Process 0 compares checksums: Orbax does not notice a flipped bit."""
        damage = self.circle.broadcast_word(
            self._find_damage(commit) if self.circle.index == 0 else ""
        )
        if damage:
            raise DamagedCheckpoint(damage)  # on all: Orbax's processes wait for each other
        target = jax.tree_util.tree_map(abstract_array, like)
        reader = orbax.Checkpointer(orbax.StandardCheckpointHandler())
        try:
            return reader.restore(
                self._step_path(commit.step), args=orbax.args.StandardRestore(target)
            )
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


def abstract_array(leaf: Any) -> Any:
    if isinstance(leaf, jax.Array):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
    return leaf
