"""A training on several slices that prints its peers: train_slices.py [megascale].

With that word it forgets where the engine says that processes meet. What is left is what any script
finds, and what JAX looks for by itself: MEGASCALE_*.
"""

import hashlib
import os
import socket
import sys
import time

if sys.argv[1:] == ["megascale"]:
    for name in ("HERD_COORDINATOR", "HERD_WORKER", "HERD_WORKERS"):
        del os.environ[name]

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tpuherd_host import train

STEPS, ROWS = 40, 32

pod = train.init()
slices, chips = int(os.environ["MEGASCALE_NUM_SLICES"]), jax.device_count()
met = pod.circle.gather_words(f"{os.environ['MEGASCALE_SLICE_ID']}:{socket.gethostname()}")
if pod.is_main:
    print(f"{pod.count} processes, {chips} chips, slices and hosts: {' '.join(met)}", flush=True)

# The outer axis goes between slices; what is sent often belongs on the inner one, in a slice.
mesh = Mesh(np.array(jax.devices()).reshape(slices, chips // slices), ("slices", "chips"))
everywhere, shared = NamedSharding(mesh, P()), NamedSharding(mesh, P(("slices", "chips")))
split = train.Split(sizes=(64, 64), batch=ROWS, host=pod.index, hosts=pod.count, seed=5)
run = train.Run(seed=5, every_s=0.2)
state = run.restore(train.placed({"w": np.ones((8,), np.float32)}, everywhere))


@jax.jit
def stepped(state, x):
    def loss(w):
        return ((x[:, None] * w - 1.0) ** 2).mean()

    value, slope = jax.value_and_grad(loss)(state["w"])
    new = {"w": state["w"] - 0.1 * slope}
    return jax.lax.with_sharding_constraint(new, {"w": everywhere}), value


for step in run.steps(STEPS):
    rows = np.array([one.shard + one.place / 100 for one in split.at(step)], np.float32)
    state, loss = stepped(state, jax.make_array_from_process_local_data(shared, rows))
    run.keep(state, loss=float(loss))
    if pod.is_main:
        print(f"step {step + 1}", flush=True)
    time.sleep(0.25)

bits = hashlib.sha256(np.asarray(state["w"].addressable_data(0)).tobytes()).hexdigest()[:16]
if pod.is_main:
    print(f"finished: {STEPS} steps, parameters {bits}", flush=True)
