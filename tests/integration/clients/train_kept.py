"""Trains a little and keeps milestones and the best, or restores a part: PLACE FORM WHAT."""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tpuherd_host import train

place, form, what = sys.argv[1:4]
SCORES = {3: 0.5, 6: 0.9, 9: 0.1, 12: 0.7, 15: 0.2, 18: 0.3}  #: of every third step
NEVER = 1e9

pod = train.init()
best = {"best": "typo"} if what == "typo" else {"best": "score"}
keep = train.Retention(newest=2, milestones=(4, 15), best_count=2, better="higher", **best)
run = train.Run(place, seed=1, every_s=NEVER, keep=keep, form=form)
mesh = Mesh(np.array(jax.devices()), ("chips",))
everywhere, shared = NamedSharding(mesh, P()), NamedSharding(mesh, P("chips"))


def ones(width=3):
    return np.ones((8, width), np.float32)


state = {
    "rows": train.placed(ones(), shared),
    "layers": [{"w": train.placed(ones(2), everywhere)}, {"w": train.placed(ones(4), shared)}],
    "half": train.placed(ones().astype(jnp.bfloat16), everywhere),
    "key": jax.jit(lambda: jax.random.key(3), out_shardings=everywhere)(),
    "number": 1.0,
}
partial = what not in ("train", "typo")
if partial:
    # An array less, one more (before the others, so all indexes move), and a new layer.
    state["added"] = train.placed(7 * ones(), shared)
    state["layers"].append({"w": train.placed(7 * ones(), everywhere)})
    del state["half"]
if what == "reshaped":
    state["layers"][1]["w"] = train.placed(ones(5), shared)
if what == "stranger":
    state = {"other": state["added"]}
state = run.restore(state, partial=partial and what != "strict")


def numbers(leaf):
    if not hasattr(leaf, "dtype"):
        return leaf
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    pieces = [one.data for one in leaf.addressable_shards]
    return sorted({float(number) for piece in pieces for number in np.asarray(piece).ravel()})


found = {jax.tree_util.keystr(path): numbers(leaf)
         for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]}  # fmt: skip
print(json.dumps({"start": run.start, "leaves": found}), flush=True)
if what == "partial":
    sys.exit()
grow = jax.jit(lambda tree: jax.tree_util.tree_map(lambda leaf: leaf + 1, tree))
for step in run.steps(20 if not partial else run.start + 1):
    state = {**state, "rows": grow(state["rows"])} if "rows" in state else state
    score = SCORES.get(step + 1)
    run.keep(state, **({"loss": 1.0 / (step + 1)} if score is None else {"score": score}))
