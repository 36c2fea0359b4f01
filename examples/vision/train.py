"""Trains an image classifier on all chips of a pod, from tar shards: python3 train.py."""

# mypy: ignore-errors
# JAX is not installed where types are checked.

import argparse
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import model
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from pictures import FORMS
from sample import decoded

from tpuherd_host import train

BATCH, SEED, RATE, DRAG = 64, 7, 0.02, 0.9


def main() -> None:
    """Train; batches are read by number, so it resumes mid-epoch on any number of hosts."""
    asked = arguments()
    pod = train.init()
    if BATCH % jax.device_count():
        train.refuse(f"a batch of {BATCH} can't be divided among {jax.device_count()} chips")
    shards, tests = (train.Shards(f"{asked.data}/{name}-*.tar") for name in ("train", "test"))
    split = train.Split(sizes=shards.sizes, batch=BATCH, host=pod.index, hosts=pod.count, seed=SEED)
    batches = train.Batches(shards, split, decode=decoded)
    mesh = Mesh(np.array(jax.devices()), ("chips",))
    everywhere, shared = NamedSharding(mesh, P()), NamedSharding(mesh, P("chips"))

    run = train.Run(asked.checkpoints, seed=SEED, every_s=asked.every)
    flat, whole = ravel_pytree(model.made(SEED, len(FORMS)))
    begun = {"parameters": np.asarray(flat), "speed": np.zeros_like(flat)}
    state = run.restore(train.placed(begun, everywhere))
    losses = list(run.record.get("losses", ()))
    step_of = stepper(mesh, whole)
    read = batches.ahead(run.start, asked.steps)
    for step, (_, batch) in zip(run.steps(asked.steps), read, strict=True):
        batch = [jax.make_array_from_process_local_data(shared, part) for part in batch]
        state, loss = step_of(state, *batch)
        losses.append(float(loss))
        run.keep(state, {"losses": losses}, loss=losses[-1])
        if run.is_main and (step + 1) % 25 == 0:
            print(f"step {step + 1:4}  loss {np.mean(losses[-25:]):.3f}", flush=True)
    if run.is_main:
        share = right(whole(np.asarray(state["parameters"].addressable_data(0))), tests)
        print(f"finished: {asked.steps} steps, {share:.0%} of new pictures right", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="~/pictures", help="shards of pictures.py; or gs://")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--checkpoints", default="", help="a folder or gs://; else the job's")
    parser.add_argument("--every", type=float, default=0.0, help="seconds between saves")
    return parser.parse_args()


def stepper(mesh: Mesh, whole: Any) -> Any:
    """Do one step on all chips: each has its part of the batch, and one vector is exchanged.

    Parameters are one vector already, and the loss is sent as its last number.
    """

    @partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(P(), P("chips"), P("chips")),
        out_specs=P(),
        check_vma=False,
    )
    def averaged(flat: jax.Array, pictures: jax.Array, labels: jax.Array) -> jax.Array:
        def loss(vector: jax.Array) -> jax.Array:
            return model.loss(whole(vector), pictures, labels)

        value, gradient = jax.value_and_grad(loss)(flat)
        return jax.lax.pmean(jnp.append(gradient, value), "chips")

    @partial(jax.jit, donate_argnums=0)
    def step(state: model.Tree, pictures: jax.Array, labels: jax.Array) -> Any:
        told = averaged(state["parameters"], pictures, labels)
        speed = DRAG * state["speed"] - RATE * told[:-1]
        return {"parameters": state["parameters"] + speed, "speed": speed}, told[-1]

    return step


def right(parameters: model.Tree, tests: train.Shards) -> float:
    """Return the share of held-out pictures that are classified correctly."""
    samples = [
        decoded(tests[at][place]) for at, size in enumerate(tests.sizes) for place in range(size)
    ]
    pictures, labels = (np.stack(column) for column in zip(*samples, strict=True))
    scores = jax.jit(model.scores)(parameters, pictures)
    return float(np.mean(np.argmax(np.asarray(scores), axis=-1) == labels))


if __name__ == "__main__":
    main()
