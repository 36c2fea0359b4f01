"""A training without JAX: [PLACE] [arrays | imports]. Prints what this host knows, and reads."""

import json
import sys

from tpuherd_host import train

SIZES = (9, 5, 20)

pod = train.init()
if "imports" in sys.argv:
    import jax  # noqa: F401
run = train.Run(sys.argv[1] if sys.argv[1:] else "", seed=1)
split = train.Split(sizes=SIZES, batch=8, host=pod.index, hosts=pod.count, seed=1)
lists = [[[shard, place] for place in range(size)] for shard, size in enumerate(SIZES)]
batches = train.Batches(lists, split, collate=list)
seen = []
for step in run.steps(split.steps):
    seen += batches[step]
    if "arrays" in sys.argv:
        run.keep({"w": 1.0}, loss=step)
    else:
        run.keep(None, loss=step)
shards = list(train.split_by_jax_process(range(8)))
told = {"index": pod.index, "count": pod.count, "is_main": run.is_main, "shards": shards}
print(json.dumps({"start": run.start, **told, "seen": seen}))
