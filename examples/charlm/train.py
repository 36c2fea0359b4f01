"""Trains a small language model on all chips of a pod: python3 train.py --steps 400."""

import argparse
import hashlib
from functools import partial
from typing import Any

import corpus
import jax
import model
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tpuherd_host import train

WINDOW, BATCH, SEED = 64, 32, 7


def main() -> None:
    """Train as on one machine; only the lines with `run` are for the pod."""
    asked = arguments()
    pod = train.init()
    if BATCH % jax.device_count():
        train.refuse(f"a batch of {BATCH} can't be divided among {jax.device_count()} chips")
    shards = corpus.shards(WINDOW)
    split = train.Split(
        sizes=tuple(map(len, shards)), batch=BATCH, host=pod.index, hosts=pod.count, seed=SEED
    )
    mesh = Mesh(np.array(jax.devices()), ("chips",))
    everywhere, shared = NamedSharding(mesh, P()), NamedSharding(mesh, P("chips"))

    run = train.Run(asked.checkpoints, seed=SEED, every_s=asked.every)
    state = run.restore(train.placed(begun(), everywhere))
    losses = list(run.record.get("losses", ()))
    step_of = stepper(mesh)
    for step in run.steps(asked.steps):
        texts = np.array([shards[one.shard][one.place] for one in split.at(step)], np.int32)
        state, loss = step_of(state, jax.make_array_from_process_local_data(shared, texts))
        losses.append(float(loss))
        run.keep(state, {"losses": losses}, loss=losses[-1])
        if run.is_main and (step + 1) % 25 == 0:
            print(f"step {step + 1:4}  loss {np.mean(losses[-25:]):.3f}", flush=True)
    if run.is_main:
        said = f"{asked.steps} steps, loss {np.mean(losses[-25:]):.3f}"
        print(f"finished: {said}, parameters {fingerprint(state)}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--checkpoints", default="", help="a folder or gs://; else the job's")
    parser.add_argument("--every", type=float, default=0.0, help="seconds between saves")
    return parser.parse_args()


def begun() -> model.Tree:
    """Return the state before the first step."""
    parameters = model.made(SEED, len(corpus.ALPHABET), WINDOW)
    zeros = jax.tree.map(np.zeros_like, parameters)
    count = np.zeros((), np.float32)
    return {"parameters": parameters, "first": zeros, "second": zeros, "count": count}


def stepper(mesh: Mesh) -> Any:
    """Do one step on all chips: each has its part of the batch, and one sum is exchanged.

    Loss and gradients are sent as one vector. By default the compiler sends every array separately,
    which takes six times as long between simulated hosts.
    """

    @partial(jax.shard_map, mesh=mesh, in_specs=(P(), P("chips")), out_specs=P(), check_vma=False)
    def averaged(parameters: model.Tree, text: jax.Array) -> Any:
        flat, whole = ravel_pytree(jax.value_and_grad(model.loss)(parameters, text))
        return whole(jax.lax.pmean(flat, "chips"))

    @partial(jax.jit, donate_argnums=0)
    def step(state: model.Tree, text: jax.Array) -> tuple[model.Tree, jax.Array]:
        loss, gradients = averaged(state["parameters"], text)
        return model.adam(state, gradients), loss

    return step


def fingerprint(state: model.Tree) -> str:
    """Return a hash of the parameters' bits."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(state["parameters"]):
        found.update(np.asarray(leaf.addressable_data(0)).tobytes())
    return found.hexdigest()[:12]


if __name__ == "__main__":
    main()
