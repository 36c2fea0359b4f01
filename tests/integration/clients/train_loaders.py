"""What four hosts read from seven shards with webdataset and with Grain. Prints JSON."""

import json
import os
import sys

import grain
import webdataset as wds

from tpuherd_host import train

paths = sys.argv[1:]
said = {"pipeline": [], "wrapped": [], "grain": []}
for host in range(4):
    os.environ.update(HERD_PROCESS=str(host), HERD_PROCESSES="4")
    pipeline = wds.DataPipeline(
        wds.SimpleShardList(paths), train.split_by_jax_process, wds.tarfile_to_samples()
    )
    said["pipeline"] += [sample["__key__"] for sample in pipeline]
    wrapped = wds.WebDataset(
        paths, nodesplitter=train.split_by_jax_process, workersplitter=None, shardshuffle=False
    )
    said["wrapped"] += [sample["__key__"] for sample in wrapped]
    shards = train.Shards(paths)
    split = train.Split(sizes=shards.sizes, batch=8, host=host, hosts=4, seed=1)
    batches = train.Batches(shards, split, decode=lambda sample: sample["__key__"], epochs=1)
    found = grain.MapDataset.source(batches)[3:].to_iter_dataset()
    said["grain"].append([list(batch) for batch in found])
print(json.dumps(said))
