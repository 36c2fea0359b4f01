"""Train on all hosts of a pod: a configuration, a module beside the script, a package."""

import json
import sys
from pathlib import Path

import jax
import tiny
from toolbox.model import gradient

try:
    import wandb
except ImportError:
    wandb = None

config = json.loads(Path(sys.argv[1]).read_text())
jax.distributed.initialize()
from jax.experimental import multihost_utils  # noqa: E402

value = float(config["start"])
for step in range(config["steps"]):
    mine = gradient(value, shard=jax.process_index())
    value -= config["lr"] * float(multihost_utils.process_allgather(mine).mean())
    if jax.process_index() == 0:
        print(f"{step=} {value=:.4f}", flush=True)
if jax.process_index() == 0:
    Path("ckpt").mkdir(exist_ok=True)
    Path("ckpt/final.json").write_text(
        json.dumps({"value": value, "processes": jax.process_count(), "tiny": tiny.version})
    )
print("finished", jax.process_index(), "of", jax.process_count(), "tracked:", wandb is not None)
