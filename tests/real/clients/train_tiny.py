"""A training of a second that can be told to misbehave: --at 7 --who 1 --do term."""

import argparse
import hashlib
import json
import os
import signal
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tpuherd_host import train

parser = argparse.ArgumentParser()
parser.add_argument("place")
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--width", type=int, default=8)
parser.add_argument("--form", default="")
parser.add_argument("--every", type=float, default=1e-6)
parser.add_argument("--at", type=int, default=-1)
parser.add_argument("--who", type=int, default=0)
parser.add_argument("--do", default="")
asked = parser.parse_args()

pod = train.init()
if asked.batch % jax.device_count():
    train.refuse(f"a batch of {asked.batch} can't be shared by {jax.device_count()} chips")
mesh = Mesh(np.array(jax.devices()), ("chips",))
everywhere, shared = NamedSharding(mesh, P()), NamedSharding(mesh, P("chips"))
split = train.Split(sizes=(37, 20, 43), batch=asked.batch, host=pod.index, hosts=pod.count, seed=3)
run = train.Run(asked.place, seed=3, every_s=asked.every, form=asked.form)
tree = {"w": np.ones((16, asked.width), np.float32), "n": np.zeros((), np.int32)}
begun = train.placed(tree, everywhere)
# One array in pieces on all chips, and a random key of the new kind.
begun["rows"] = train.placed(np.zeros((48, 3), np.float32), shared)
begun["key"] = jax.jit(lambda: jax.random.key(3), out_shardings=everywhere)()
state = run.restore(begun)


@jax.jit
def stepped(state, x):
    key, noise = jax.random.split(state["key"])
    x = x + 0.01 * jax.random.normal(noise, x.shape)

    def loss(w):
        return jnp.mean((jnp.outer(x, jnp.ones(w.shape[1])) - w.sum(0)) ** 2)

    value, slope = jax.value_and_grad(loss)(state["w"])
    rows = state["rows"] + value
    new = {"w": state["w"] - 0.001 * slope, "n": state["n"] + 1, "rows": rows, "key": key}
    return jax.lax.with_sharding_constraint(
        new, {"w": everywhere, "n": everywhere, "rows": shared, "key": everywhere}
    ), value


seen = []
for step in run.steps(asked.steps):
    if step == asked.at and pod.index == asked.who:
        if asked.do == "term":
            os.kill(os.getpid(), signal.SIGTERM)
        elif asked.do == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif asked.do == "raise":
            raise RuntimeError("a mistake of the script")
    samples = split.at(step)
    seen.append([step, [[one.shard, one.place] for one in samples]])
    local = np.array([one.shard + one.place / 100 for one in samples], np.float32)
    state, loss = stepped(state, jax.make_array_from_process_local_data(shared, local))
    run.keep(state, {"seen": step + 1}, loss=loss)
    float(loss)
    if asked.do == "term" and step >= asked.at:
        time.sleep(0.3)  # news of a notice travel slower than these steps

bits = hashlib.sha256()
bits.update(np.asarray(state["w"].addressable_data(0)).tobytes())
bits.update(np.asarray(jax.random.key_data(state["key"]).addressable_data(0)).tobytes())
said = {"start": run.start, "n": int(state["n"]), "bits": bits.hexdigest(), "loss": float(loss)}
print(json.dumps({**said, "seen": seen, "record": dict(run.record)}), flush=True)
