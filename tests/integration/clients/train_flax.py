"""A Flax and optax training that reads with a DataLoader and three workers: FOLDER HOW STEPS."""

import json
import os
import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from torch.utils.data import DataLoader

from tpuherd_host import train

SIZES, BATCH = (40, 24, 33), 8
pod = train.init()


class Numbers:
    """Shards of numbers, each with the process that has read it."""

    def __len__(self):
        return len(SIZES)

    def __getitem__(self, shard):
        reader = [pod.index, pod.count, os.getpid()]
        return [
            (np.array([shard + place / 100], np.float32), np.array(reader))
            for place in range(SIZES[shard])
        ]


class Model(nn.Module):
    """Two layers."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(1)(nn.relu(nn.Dense(8)(x)))


def main(folder, how, steps):
    run = train.Run(folder, seed=1, every_s=1e-6)
    mesh = Mesh(np.array(jax.devices()), ("chips",))
    everywhere, shared = NamedSharding(mesh, P()), NamedSharding(mesh, P("chips"))
    model, optimizer = Model(), optax.adam(1e-2)
    parameters = model.init(jax.random.key(1), jnp.ones((1, 1)))
    begun = {"parameters": parameters, "optimizer": optimizer.init(parameters)}
    state = run.restore(train.placed(jax.tree.map(np.asarray, begun), everywhere))

    @jax.jit
    def train_step(state, numbers):
        def loss(parameters):
            return jnp.mean((model.apply(parameters, numbers) - 2 * numbers) ** 2)

        value, slopes = jax.value_and_grad(loss)(state["parameters"])
        moves, optimizer_state = optimizer.update(slopes, state["optimizer"])
        parameters = optax.apply_updates(state["parameters"], moves)
        return {"parameters": parameters, "optimizer": optimizer_state}, value

    split = train.Split(sizes=SIZES, batch=BATCH, host=pod.index, hosts=pod.count, seed=1)
    batches = train.Batches(Numbers(), split)
    loader = DataLoader(
        batches,
        batch_size=None,
        sampler=range(run.start, steps),
        num_workers=3,
        multiprocessing_context=how,
    )
    seen, readers, losses = [], set(), []
    for step, (numbers, told) in zip(run.steps(steps), loader, strict=True):
        seen += [[step, round(float(number), 2)] for number in numbers]
        readers |= {tuple(reader) for reader in told.tolist()}
        whole = jax.make_array_from_process_local_data(shared, numbers.numpy())
        state, loss = train_step(state, whole)
        run.keep(state, loss=loss)
        losses.append(float(loss))
    told = {"me": [pod.index, pod.count, os.getpid()], "readers": sorted(readers)}
    print(json.dumps({"start": run.start, **told, "seen": seen, "losses": losses}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
