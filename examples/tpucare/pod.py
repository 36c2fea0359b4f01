"""Keeps one preemptible TPU pod training, with the functions of TPU Care.

python pod.py --host big-pod --slices 32 --config config.yaml --repository https://… --run 256-core

Each time the pod is created anew, a configuration is written that continues at the last checkpoint
which W&B knows of. Start the program again after a crash: the pod and its context are still there.
"""

import argparse
import dataclasses
from netrc import netrc
from pathlib import Path
from typing import Any

import wandb  # type: ignore[import-not-found]
import yaml

from tpuherd.compat.tpucare import (
    delete_one_tpu,
    exec_command,
    exec_on_tpu,
    send_to_tpu,
    start_single,
)


@dataclasses.dataclass
class Context:
    """What start_fn needs to know; herd keeps it on disk."""

    host: str
    zone: str
    run: str
    config: str
    repository: str
    retry: int = 0


def steps_done(config: dict[str, Any]) -> int:
    """Return the last step that W&B knows of the run, rounded down to a checkpoint."""
    tracker, every = config["wandb"], config["training"]["checkpoint_interval"]
    for run in wandb.Api().runs(f"{tracker['entity']}/{tracker['project']}"):
        if run.name == tracker["name"]:
            step = int(run.summary.get("_step", 0))
            return step - step % int(every)
    return 0


def write_config(ctx: Context) -> str:
    """Return the configuration of this try: it reads the checkpoint of the one before."""
    config = yaml.safe_load(Path(ctx.config).read_text())
    base = config["training"]["checkpoint_path"]
    config["wandb"]["name"] = f"{ctx.run}-{ctx.retry - 1}"
    config["training"]["start_step"] = steps_done(config) if ctx.retry else 0
    if ctx.retry:
        config["training"]["checkpoint_load_path"] = f"{base}-{ctx.retry - 1}"
    config["training"]["checkpoint_path"] = f"{base}-{ctx.retry}"
    config["wandb"]["name"] = f"{ctx.run}-{ctx.retry}"
    return str(yaml.safe_dump(config))


def start_fn(ctx: Context, worker: int) -> None:
    """Prepare one worker and start the training there; runs in a process for each worker."""
    login = netrc().authenticators("api.wandb.ai")
    script = exec_command(
        repository=ctx.repository,
        wandb_key=login[2] if login else None,
        run_command="CONFIG=~/config.yaml bash run.sh",
    )
    send_to_tpu(ctx.host, ctx.zone, "config.yaml", write_config(ctx), worker)
    send_to_tpu(ctx.host, ctx.zone, "setup.sh", script, worker)
    exec_on_tpu(ctx.host, ctx.zone, "bash setup.sh", worker)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", required=True, help="name of the TPU")
    parser.add_argument("--zone", default="europe-west4-a")
    parser.add_argument("--tpu-version", type=int, default=3)
    parser.add_argument("--slices", type=int, default=1, help="1: v3-8, 4: v3-32, …")
    parser.add_argument("--preemptible", type=int, default=1)
    parser.add_argument("--service-account", default="")
    parser.add_argument("--run", required=True, help="name of the run in W&B")
    parser.add_argument("--config", default="config.yaml")
    parser.add_argument("--repository", required=True)
    parser.add_argument("--cleanup", action="store_true", help="only delete the TPU")
    asked = parser.parse_args()
    if asked.cleanup:
        delete_one_tpu("", asked.host, asked.zone, asynchronous=False)
        return

    def creation_callback(host: str, ctx: Context | None) -> Context:
        if ctx is None:
            return Context(
                host=host, zone=asked.zone, run=asked.run,
                config=asked.config, repository=asked.repository,
            )  # fmt: skip
        ctx.retry += 1
        return ctx

    start_single(
        host=asked.host, tpu_version=asked.tpu_version, zone=asked.zone,
        preemptible=bool(asked.preemptible), service_account=asked.service_account,
        slices=asked.slices, start_fn=start_fn, creation_callback=creation_callback,
    )  # fmt: skip


if __name__ == "__main__":
    main()
