"""What four hosts read from seven shards with PyTorch's loaders and worker processes. Prints JSON.

    train_torch.py HOW TAR…

One host after the other plays its part; after some steps two hosts take over from the four.
"""

import json
import os
import sys
import warnings

import jax
import numpy as np
import torch
import webdataset as wds
from torch.utils.data import DataLoader

from tpuherd_host import train

BATCH, CUT = 8, 3


def decoded(sample):
    """A restarted worker must find it by its name."""
    return np.frombuffer(sample["txt"], np.uint8), sample["__key__"]


def by_number(paths, host, hosts, until, start=0, **words):
    """Steps of one host, by a DataLoader over Batches."""
    shards = train.Shards(paths)
    split = train.Split(sizes=shards.sizes, batch=BATCH, host=host, hosts=hosts, seed=1)
    batches = train.Batches(shards, split, decode=decoded)
    steps = range(start, until or split.steps)
    loader = DataLoader(batches, batch_size=None, sampler=steps, **words)
    found = []
    for text, keys in loader:
        assert isinstance(text, torch.Tensor)
        assert text.shape == (BATCH // hosts, 2)
        found.append(list(keys))
    return found


def pipeline(paths, workers):
    """Whole shards to hosts and their workers, by webdataset's own loader."""
    data = wds.DataPipeline(
        wds.SimpleShardList(paths), train.split_by_jax_process, wds.tarfile_to_samples()
    )
    loader = wds.WebLoader(data, batch_size=None, num_workers=workers)
    return [sample["__key__"] for sample in loader]


if __name__ == "__main__":
    how, *paths = sys.argv[1:]
    jax.numpy.zeros(3).block_until_ready()  # JAX's threads are there before the loaders' workers
    said = {"numbers": [], "pipeline": []}
    with warnings.catch_warnings():
        if how != "fork":
            warnings.simplefilter("error")
        words = {"num_workers": 0 if how == "none" else 2}
        if words["num_workers"]:
            words["multiprocessing_context"] = how
        for host in range(4):
            os.environ.update(HERD_PROCESS=str(host), HERD_PROCESSES="4")
            said["numbers"].append(by_number(paths, host, 4, CUT, **words))
        for host in range(2):
            said["numbers"].append(by_number(paths, host, 2, 0, CUT, **words))
    if how == "fork":  # webdataset asks for no other way to begin its workers
        for host in range(3):
            os.environ.update(HERD_PROCESS=str(host), HERD_PROCESSES="3")
            said["pipeline"] += pipeline(paths, 2)
    print(json.dumps(said))
