"""Keeps a swarm of preemptible TPUs working on one W&B sweep, with the functions of TPU Care.

python sweep.py --prefix tune --tpus 8 --config sweep.yaml --repository https://… \\
    --entity lab --project gpt

Started again, it finds its TPUs; pass the printed --sweep to go on with the same search.
"""

import argparse
import dataclasses
from netrc import netrc
from pathlib import Path

import wandb  # type: ignore[import-not-found]
import yaml

from tpuherd.compat.tpucare import (
    delete_all,
    exec_command,
    exec_on_tpu,
    send_to_tpu,
    start_multiple,
)


@dataclasses.dataclass
class Context:
    """What start_fn needs to know; herd keeps it on disk."""

    host: str
    zone: str
    sweep: str
    repository: str


def start_fn(ctx: Context, worker: int) -> None:
    """Let one worker join the sweep."""
    login = netrc().authenticators("api.wandb.ai")
    script = exec_command(
        repository=ctx.repository,
        wandb_key=login[2] if login else None,
        run_command=f"~/.local/bin/wandb agent {ctx.sweep}",
    )
    send_to_tpu(ctx.host, ctx.zone, "setup.sh", script, worker)
    exec_on_tpu(ctx.host, ctx.zone, "bash setup.sh", worker)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prefix", required=True, help="TPUs are called PREFIX-0, PREFIX-1, …")
    parser.add_argument("--tpus", type=int, default=1)
    parser.add_argument("--zone", default="europe-west4-a")
    parser.add_argument("--tpu-version", type=int, default=3)
    parser.add_argument("--slices", type=int, default=1)
    parser.add_argument("--preemptible", type=int, default=1)
    parser.add_argument("--service-account", default="")
    parser.add_argument("--config", default="sweep.yaml")
    parser.add_argument("--entity", default=None)
    parser.add_argument("--project", default=None)
    parser.add_argument("--sweep", default="", help="go on with this sweep: entity/project/id")
    parser.add_argument("--repository", default="")
    parser.add_argument("--cleanup", action="store_true", help="only delete the TPUs")
    asked = parser.parse_args()
    if asked.cleanup:
        delete_all(asked.prefix, asked.zone)
        return
    sweep = asked.sweep
    if not sweep:
        settings = yaml.safe_load(Path(asked.config).read_text())
        id_ = wandb.sweep(settings, entity=asked.entity, project=asked.project)
        sweep = "/".join(part for part in (asked.entity, asked.project, id_) if part)
        print(f"--sweep {sweep}", flush=True)

    def creation_callback(host: str, ctx: Context | None) -> Context:
        return ctx or Context(host=host, zone=asked.zone, sweep=sweep, repository=asked.repository)

    start_multiple(
        prefix=asked.prefix, tpu_version=asked.tpu_version, zone=asked.zone,
        preemptible=bool(asked.preemptible), service_account=asked.service_account,
        slices=asked.slices, start_fn=start_fn, creation_callback=creation_callback,
        tpus=asked.tpus,
    )  # fmt: skip


if __name__ == "__main__":
    main()
