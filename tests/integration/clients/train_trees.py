"""The examples of docs/howto/training.md on trees, keys and conversions; warnings are errors."""

import json
import warnings

warnings.simplefilter("error")

import flax.serialization  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
import torch  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

from tpuherd_host import train  # noqa: E402

train.init()


def copies():
    """From one library to the other and back; then the copy is changed."""
    x = jnp.arange(6, dtype=jnp.float32)
    mine = np.array(x)
    mine += 1
    theirs = torch.from_numpy(np.array(x))
    theirs += 1
    tensor = torch.arange(6, dtype=torch.float32)
    back = jnp.array(tensor.numpy())
    tensor += 1
    half = torch.ones(3, dtype=torch.bfloat16)
    halves = jnp.array(half.float().numpy()).astype(jnp.bfloat16)
    again = torch.from_numpy(np.array(halves, np.float32)).bfloat16()
    return [x.tolist(), back.tolist(), mine.tolist(), theirs.tolist(), (again == half).all().item()]


def frozen():
    """Two steps with half of the parameters frozen: what has moved, and which moments are kept."""
    tree = {"embed": {"w": jnp.ones((4, 2))}, "out": {"w": jnp.ones((2, 3)), "b": jnp.zeros(3)}}
    optimizer = train.frozen(optax.adam(0.1), tree, lambda name: "embed" in name)
    state = optimizer.init(tree)
    new = tree
    for _ in range(2):
        slopes = jax.tree.map(jnp.ones_like, new)
        moves, state = optimizer.update(slopes, state, new)
        new = optax.apply_updates(new, moves)
    moved = jax.tree.map(lambda old, new: bool((old != new).any()), tree, new)
    moments = sorted({leaf.shape for leaf in jax.tree.leaves(state)})
    return [moved, moments, train.shapes(tree).splitlines()]


def stored():
    """Parameters in a file of msgpack, and back in the shape of others."""
    tree = {"w": jnp.arange(4.0, dtype=jnp.bfloat16), "n": np.int32(3)}
    text = flax.serialization.to_bytes(tree)
    same = flax.serialization.from_bytes(jax.tree.map(np.zeros_like, tree), text)
    return [same["w"].tolist(), str(same["w"].dtype), int(same["n"])]


def spread():
    """Copies of a tree on all chips, and one of them back."""
    mesh = Mesh(np.array(jax.devices()), ("chips",))
    whole = train.placed({"w": np.arange(8.0, dtype=np.float32)}, NamedSharding(mesh, P()))["w"]
    cut = train.placed(np.arange(8.0, dtype=np.float32), NamedSharding(mesh, P("chips")))
    return [
        len(whole.addressable_shards),
        np.array(whole.addressable_data(0)).tolist(),
        [np.array(one.data).tolist() for one in cut.addressable_shards],
    ]


def chances():
    """A key made on the host's processor; seeds of three processes."""
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        key = jax.random.key(7)
    seeds = []
    for process in range(3):
        run = train.Run(seed=7)
        run.pod = train.Pod(index=process, count=3, circle=run.pod.circle, notices=False)
        seeds.append((run.seed_here("augment"), run.seed_here("noise")))
    keys = [jax.random.key_data(run.key(step)).tolist() for step in (0, 1, 1)]
    return [next(iter(key.devices())).platform, seeds, keys]


print(json.dumps([copies(), frozen(), stored(), spread(), chances()]))
