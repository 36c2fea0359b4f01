"""A training of one second that can misbehave on request: --at 7 --who 1 --do term.

In a story (gate.py) it stops at the moments that the test watches, and does what the test says.
"""

import argparse
import hashlib
import json
import os
import pathlib
import signal
import time

import gate
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tpuherd_host import train
from tpuherd_host.train.join_pod import NOTICE

parser = argparse.ArgumentParser()
parser.add_argument("place", nargs="?", default="")
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--width", type=int, default=8)
parser.add_argument("--form", default="")
parser.add_argument("--every", type=float, default=1e-6)
parser.add_argument("--at", type=int, default=-1)
parser.add_argument("--who", type=int, default=0)
parser.add_argument("--do", default="")
parser.add_argument("--shards", type=int, default=0)
asked = parser.parse_args()
SIZES = (37, 20, 43)


def heard():
    """Whether all hosts know of a notice, so that they will agree on a step to stop before."""
    if pod.count == 1:
        return NOTICE.heard
    told = pod.circle.line.key_value_dir_get("PREEMPTION_CURRENT_COUNTER/")
    return len(told) == pod.count


story = gate.Gate(int(os.environ.get("HERD_WORKER", "0")), heard)
pod = train.init()
write_bytes = pathlib.Path.write_bytes


def compiling(event, **_):
    if event == "/jax/compilation_cache/compile_requests_use_cache":
        story.reached("compile")


def written(path, content):
    """As pathlib does it; what JAX has compiled is only half there for a moment."""
    if path.name.endswith("-cache"):
        write_bytes(path, content[: len(content) // 2])
        story.reached("keep-program")
    return write_bytes(path, content)


jax.monitoring.register_event_listener(compiling)
pathlib.Path.write_bytes = written

split = train.Split(sizes=SIZES, batch=asked.batch, host=pod.index, hosts=pod.count, seed=3)
if asked.shards:
    list(train.split_by_jax_process(range(asked.shards)))
if asked.batch % jax.device_count():
    train.refuse(f"a batch of {asked.batch} can't be divided among {jax.device_count()} chips")
mesh = Mesh(np.array(jax.devices()), ("chips",))
everywhere, shared = NamedSharding(mesh, P()), NamedSharding(mesh, P("chips"))
run = train.Run(asked.place, seed=3, every_s=asked.every, form=asked.form)
place = run.checkpoints.place
read, write = place.read, place.write


def reading(name, *where):
    if "/part-" in name:
        story.reached("restore")
    return read(name, *where)


def writing(name, pieces):
    step, _, file = name.partition("/")
    if step.startswith("step-"):
        moment = "commit" if file == "whole.json" else "save"
        story.reached(f"{moment}-{int(step[5:])}")
    write(name, pieces)


place.read, place.write = reading, writing
tree = {"w": np.ones((16, asked.width), np.float32), "n": np.zeros((), np.int32)}
tree["tally"] = np.zeros(sum(SIZES), np.int32)  # how often each sample has made the weights
begun = train.placed(tree, everywhere)
# One array in pieces on all chips, and a random key of the new kind.
begun["rows"] = train.placed(np.zeros((48, 3), np.float32), shared)
begun["key"] = jax.jit(lambda: jax.random.key(3), out_shardings=everywhere)()
state = run.restore(begun)


@jax.jit
def stepped(state, x, samples):
    key, noise = jax.random.split(state["key"])
    x = x + 0.01 * jax.random.normal(noise, x.shape)

    def loss(w):
        return jnp.mean((jnp.outer(x, jnp.ones(w.shape[1])) - w.sum(0)) ** 2)

    value, slope = jax.value_and_grad(loss)(state["w"])
    new = {
        "w": state["w"] - 0.001 * slope,
        "n": state["n"] + 1,
        "rows": state["rows"] + value,
        "key": key,
        "tally": state["tally"].at[samples].add(1),
    }
    wanted = dict.fromkeys(new, everywhere) | {"rows": shared}
    return jax.lax.with_sharding_constraint(new, wanted), value


def misbehave():
    if asked.do == "term":
        os.kill(os.getpid(), signal.SIGTERM)
        while not heard():
            time.sleep(0.05)
    elif asked.do == "kill":
        while asked.place and not any(name.endswith("whole.json") for name in place.names()):
            time.sleep(0.05)  # the first save is written beside the steps
        os.kill(os.getpid(), signal.SIGKILL)
    elif asked.do == "raise":
        raise RuntimeError("a mistake of the script")


seen = []
for step in run.steps(asked.steps):
    if step == asked.at and pod.index == asked.who:
        misbehave()
    story.reached(f"step-{step}")
    samples = split.at(step)
    seen.append([step, [[one.shard, one.place] for one in samples]])
    values = np.array([one.shard + one.place / 100 for one in samples], np.float32)
    numbers = np.array([sum(SIZES[: one.shard]) + one.place for one in samples], np.int32)
    of_all = [jax.make_array_from_process_local_data(shared, one) for one in (values, numbers)]
    state, loss = stepped(state, *of_all)
    run.keep(state, {"seen": step + 1}, loss=loss)
    float(loss)

bits = hashlib.sha256()
here = {name: np.asarray(state[name].addressable_data(0)) for name in ("w", "tally")}
for array in (here["w"], np.asarray(jax.random.key_data(state["key"]).addressable_data(0))):
    bits.update(array.tobytes())
said = {"start": run.start, "n": int(state["n"]), "bits": bits.hexdigest(), "loss": float(loss)}
said["tally"] = here["tally"].tolist()
print(json.dumps({**said, "seen": seen, "record": dict(run.record)}), flush=True)
