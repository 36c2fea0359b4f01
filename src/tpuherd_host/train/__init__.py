"""What a training script may import; a script that imports it also runs outside tpuherd."""

from tpuherd_host.train.array_trees import frozen, placed, shapes
from tpuherd_host.train.checkpoints import Checkpoints
from tpuherd_host.train.join_pod import INTERRUPTED, Pod, init, refuse
from tpuherd_host.train.loader import Batches, of_iterator, split_by_jax_process
from tpuherd_host.train.metrics_logger import board, wandb
from tpuherd_host.train.read_checkpoint import list_checkpoints, read_checkpoint
from tpuherd_host.train.retention import Retention
from tpuherd_host.train.run import Run
from tpuherd_host.train.sample_split import Split
from tpuherd_host.train.tar_shards import Shards

__all__ = [
    "INTERRUPTED", "Batches", "Checkpoints", "Pod", "Retention", "Run", "Shards", "Split", "board",
    "frozen", "init", "list_checkpoints", "of_iterator", "placed", "read_checkpoint", "refuse",
    "shapes", "split_by_jax_process", "wandb",
]  # fmt: skip
