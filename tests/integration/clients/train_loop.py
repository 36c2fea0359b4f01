"""A training whose loop is left early, or that keeps only some of its steps: FOLDER HOW."""

import json
import sys
from functools import partial

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tpuherd_host import train

folder, how = sys.argv[1:]
pod = train.init()
run = train.Run(folder, seed=1, every_s=1e9)  # one save early, and none by time
mesh = Mesh(np.array(jax.devices()), ("chips",))
begun = {"w": np.zeros(4, np.float32), "n": np.zeros((), np.int32)}
state = run.restore(train.placed(begun, NamedSharding(mesh, P())))
ones = train.placed(np.ones(jax.device_count(), np.float32), NamedSharding(mesh, P("chips")))


@partial(jax.jit, donate_argnums=0)
def train_step(state, ones):
    """All hosts wait for each other in it."""
    return {"w": state["w"] + ones.mean(), "n": state["n"] + 1}


for step in run.steps(12):
    state = train_step(state, ones)
    if how == "break-before-keep" and step == 5:
        break
    if how != "some" or step % 3 == 0:
        run.keep(state)
    if how == "raise" and step == 5 and pod.index == 1:
        raise RuntimeError("a mistake of the script")
    if how in ("break", "finish") and step == 5:
        break
if how == "finish":
    run.finish()
print(json.dumps({"start": run.start, "n": int(state["n"]), "newest": run.checkpoints.newest}))
