"""What a training script may import: it runs without, and loses nothing with it."""

from tpuherd_host.train.checkpoints import Checkpoints
from tpuherd_host.train.run import Run
from tpuherd_host.train.split import Split
from tpuherd_host.train.start import INTERRUPTED, Pod, init, refuse
from tpuherd_host.train.trees import placed

__all__ = ["INTERRUPTED", "Checkpoints", "Pod", "Run", "Split", "init", "placed", "refuse"]
