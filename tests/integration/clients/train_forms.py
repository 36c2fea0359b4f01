"""Saves a state of many types, or loads it into others: PLACE FORM save | load."""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tpuherd_host import train
from tpuherd_host.train import array_trees

place, form, what = sys.argv[1:]
TYPES = {"save": ("float32", "float32", "bfloat16"), "load": ("bfloat16", "float16", "float32")}
rows, numbers, halves = (jnp.dtype(name) for name in TYPES[what])

pod = train.init()
run = train.Run(place, seed=1, every_s=1e-6, keep=4, form=form)
mesh = Mesh(np.array(jax.devices()), ("chips",))
everywhere, shared = NamedSharding(mesh, P()), NamedSharding(mesh, P("chips"))
count = np.arange(24, dtype=np.float32).reshape(8, 3) / 7
state = {
    "rows": train.placed((count if what == "save" else 0 * count).astype(rows), shared),
    "halves": train.placed((count if what == "save" else 0 * count).astype(halves), everywhere),
    "numbers": (count if what == "save" else 0 * count).astype(numbers),  # NumPy's own
    "step": train.placed(np.zeros((), np.int32), everywhere),
    "key": jax.jit(lambda: jax.random.key(3), out_shardings=everywhere)(),
    "best": 0.5 if what == "save" else 0.0,
}
state = run.restore(state)


def describe(leaf):
    """Its type, and its numbers as far as they are on this host."""
    if not hasattr(leaf, "dtype"):
        return [type(leaf).__name__, leaf]
    if array_trees.is_key(leaf):
        return ["key", np.asarray(jax.random.key_data(leaf).addressable_data(0)).tolist()]
    pieces = [one.data for one in getattr(leaf, "addressable_shards", ())] or [leaf]
    found = [np.asarray(piece, np.float32).tolist() for piece in pieces]
    return [str(leaf.dtype), found if leaf is state["rows"] else found[0]]


said = {"start": run.start, **{name: describe(leaf) for name, leaf in state.items()}}
print(json.dumps(said), flush=True)
if what == "save":
    for step in run.steps(4):
        run.keep({**state, "step": state["step"] + step + 1})
