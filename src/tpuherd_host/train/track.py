"""One curve over all attempts, in W&B or TensorBoard, written by the main process."""

from pathlib import Path
from typing import Any

from tpuherd_host.train import here
from tpuherd_host.train.late import Late, Missing, there
from tpuherd_host.train.run import Run
from tpuherd_host.train.start import refuse

weights = Late("wandb")
#: Where a SummaryWriter is to be had, the lighter first.
WRITERS = ("tensorboardX", "torch.utils.tensorboard")


class Quiet:
    """Stands for a tracker on all processes but the main one: takes every call, does nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def wandb(run: Run, **more: Any) -> Any:
    """W&B's run of this training: the same one in every attempt. All processes call it.

    What is given goes to `wandb.init`. Log with `step=`: what is told twice is kept once.
    """
    environ = here.environment()
    known = environ.get("WANDB_API_KEY") or Path("~/.netrc").expanduser().exists()
    offline = environ.get("WANDB_MODE") in ("offline", "disabled") or "mode" in more
    ready = not run.is_main or bool(known or offline)
    if run.pod.circle.told("yes" if ready else "") != "yes":
        refuse("W&B has no key: give the job `secrets: [WANDB_API_KEY]`, or WANDB_MODE=offline")
    if not run.is_main:
        return Quiet()
    named = {"id": run.id, "resume": "allow", "group": environ.get("HERD_JOB")}
    return weights.init(**{**named, **more})


def board(run: Run, folder: str | Path) -> Any:
    """A SummaryWriter that goes on at the step where the run does. All processes may call it."""
    if not run.is_main:
        return Quiet()
    for name in WRITERS:
        if there(name):
            return Late(name).SummaryWriter(str(folder), purge_step=run.start)
    raise Missing("this needs a SummaryWriter: pip install tensorboardX")
