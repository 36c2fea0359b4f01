"""What hosts read from a small TFDS dataset, with random access and as streams. Prints JSON."""

import json
import sys
import tempfile
from itertools import chain

import numpy as np
import tensorflow_datasets as tfds

from tpuherd_host import train


class Tiny(tfds.core.GeneratorBasedBuilder):
    """43 numbers and their names."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = {"number": np.int64, "name": tfds.features.Text()}
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(43)}

    def _generate_examples(self, many):
        for number in range(many):
            yield number, {"number": number, "name": f"n{number}"}


def numbers(batches):
    return [[int(sample["number"]) for sample in batch] for batch in batches]


with tempfile.TemporaryDirectory() as folder:
    builder = Tiny(data_dir=folder, file_format="array_record")
    builder.download_and_prepare()
    source = builder.as_data_source(split="train")

    def read(host, hosts, first, until):
        """With random access: batches of one host."""
        split = train.Split(sizes=(len(source),), batch=8, host=host, hosts=hosts, seed=1)
        batches = train.Batches([source], split, collate=list)
        return numbers(batch for _, batch in batches.ahead(first, until))

    def stream(host, start):
        """As a stream: this host's part, from a step on."""
        part = tfds.even_splits("train", 4, drop_remainder=True)[host]
        split = train.Split(sizes=(len(source),), batch=8, host=host, hosts=4)
        return numbers(
            train.of_iterator(builder.as_data_source(split=part), split, start, own=True)
        )

    before = list(chain(*(chain(*read(host, 4, 0, 3)) for host in range(4))))
    after = list(chain(*(chain(*read(host, 2, 3, 5)) for host in range(2))))
    stacked = train.Batches([source], train.Split(sizes=(len(source),), batch=8))[0]
    told = {
        "random": before + after,
        "stacked": {name: list(map(str, np.shape(column))) for name, column in stacked.items()},
        "streams": [stream(host, 0) for host in range(4)],
        "resumed": [stream(host, 3) for host in range(4)],
        "tensorflow": "tensorflow" in sys.modules,
    }
print(json.dumps(told))
