"""One curve over all attempts, in W&B or TensorBoard, written by the main process."""

import json
import re
from pathlib import Path
from typing import Any

from tpuherd_host.train import process_env
from tpuherd_host.train.join_pod import FAILED, UNFIT, refuse
from tpuherd_host.train.lazy_import import LazyModule, MissingPackage, is_installed
from tpuherd_host.train.run import Run

weights = LazyModule("wandb")
#: Packages that have a SummaryWriter, the smallest first.
WRITERS = ("tensorboardX", "torch.utils.tensorboard")
#: W&B's errors about a key or a project; for all others another try may help.
NO = re.compile(r"api.?key|\b40[134]\b|permission|denied|logged in|not found|invalid", re.I)
WITHIN_S = 300.0  #: W&B gives up after 90 s, but importing it from a slow disk takes time


class NullTracker:
    """Stands for a tracker on all processes but the main one: it accepts every call."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def wandb(run: Run, **more: Any) -> Any:
    """Return W&B's run of this training, the same in every attempt. All processes call it.

    Arguments go to `wandb.init`. Log with `step=`: a step that is logged twice is kept once. If W&B
    refuses the run, the program ends here with its message.
    """
    log, trouble, status = NullTracker(), "", UNFIT
    if run.is_main:
        environ = process_env.process_environment()
        named: dict[str, Any] = {"resume": "allow", "group": environ.get("HERD_JOB")}
        if "WANDB_SWEEP_ID" not in environ:  # in a sweep, W&B chooses the id
            named["id"] = run.id
        try:
            log = weights.init(**{**named, **more})
        except MissingPackage as error:
            trouble = str(error)
        except weights.Error as error:
            no = isinstance(error, weights.errors.UsageError) or NO.search(str(error))
            status = UNFIT if no else FAILED
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            key = "Give the job `secrets: [WANDB_API_KEY]`, or do" if status == UNFIT else "Do"
            trouble = (
                f"W&B refused the run: {reason.rstrip('.')}. {key} without: env WANDB_MODE=offline"
            )
    word = run.pod.circle.broadcast_word(json.dumps([trouble, status]), within_s=WITHIN_S)
    trouble, status = json.loads(word)
    if trouble:
        refuse(trouble, status)
    return log


def board(run: Run, folder: str | Path) -> Any:
    """Return a SummaryWriter that continues at the run's step. All processes may call it."""
    if not run.is_main:
        return NullTracker()
    for name in WRITERS:
        if is_installed(name):
            return LazyModule(name).SummaryWriter(str(folder), purge_step=run.start)
    raise MissingPackage("this needs a SummaryWriter: pip install tensorboardX")
