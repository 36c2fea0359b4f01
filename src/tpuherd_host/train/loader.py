"""One host's batches in order, from any list of samples, for any loader that reads by index."""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from queue import Full, Queue
from typing import Any, Protocol, TypeVar

from tpuherd_host.train import process_env
from tpuherd_host.train.lazy_import import is_installed, jax, numpy
from tpuherd_host.train.sample_split import InvalidSetup, Sample, Split
from tpuherd_host.train.tar_shards import Shards

T = TypeVar("T")
AHEAD = 4


class ShardList(Protocol):
    """Shards, each a list of samples: Shards, lists of lists, anything with indexes."""

    def __len__(self) -> int: ...

    def __getitem__(self, shard: int) -> Any: ...


class Batches:
    """The batches of this host, indexed by step.

    It has a length and indexes, so every loader takes it as it is:
    `for step, batch in batches.ahead(run.start, total)` in threads of this process,
    `DataLoader(batches, batch_size=None, sampler=range(run.start, total), num_workers=4)`,
    `grain.MapDataset.source(batches)[run.start:]`.
    """

    def __init__(
        self,
        shards: ShardList,
        split: Split,
        *,
        decode: Callable[[Any], Any] | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        epochs: int = 1_000_000,
    ) -> None:
        if len(shards) != len(split.sizes):
            raise InvalidSetup(
                f"the split is made for {len(split.sizes)} shards, but there are {len(shards)}"
            )
        self.shards = shards
        self.split = split
        self.decode = decode
        self.collate = collate or stack_samples
        self.epochs = epochs

    def __len__(self) -> int:
        return self.split.steps * self.epochs

    def __getitem__(self, step: int) -> Any:
        if not 0 <= step < len(self):
            raise IndexError(step)
        samples = self.split.at(step)
        if isinstance(self.shards, Shards):
            self.shards.fetch_shards({sample.shard for sample in samples})
        return self.collate([self._read_sample(sample) for sample in samples])

    def _read_sample(self, sample: Sample) -> Any:
        found = self.shards[sample.shard][sample.place]
        if self.decode is not None:
            found = self.decode(found)
        return (found, sample.weight) if self.split.tail == "pad" else found

    def ahead(self, start: int, until: int, *, many: int = AHEAD) -> Iterator[tuple[int, Any]]:
        """Yield steps with their batches, which a thread reads ahead."""
        ready: Queue[tuple[int, Any, BaseException | None]] = Queue(many)
        over = threading.Event()

        def put(item: tuple[int, Any, BaseException | None]) -> bool:
            while not over.is_set():
                try:
                    ready.put(item, timeout=0.2)
                except Full:
                    continue
                return True
            return False

        def read() -> None:
            for step in range(start, until):
                try:
                    item = (step, self[step], None)
                except Exception as error:  # noqa: BLE001  # raised where the batch is awaited
                    put((step, None, error))
                    return
                if not put(item):
                    return

        threading.Thread(target=read, name="batches", daemon=True).start()
        try:
            for _ in range(start, until):
                step, batch, error = ready.get()
                if error is not None:
                    raise error
                yield step, batch
        finally:
            over.set()


def stack_samples(samples: list[Any]) -> Any:
    """Stack arrays, tuples and dictionaries of arrays; return everything else as a list."""
    first = samples[0]
    if isinstance(first, dict):
        return {name: stack_samples([sample[name] for sample in samples]) for name in first}
    if isinstance(first, tuple):
        return tuple(stack_samples(list(column)) for column in zip(*samples, strict=True))
    if isinstance(first, (int, float)) or hasattr(first, "shape"):
        return numpy.stack(samples)
    return samples


def of_iterator(
    stream: Iterable[T], split: Split, start: int = 0, *, own: bool = False
) -> Iterator[list[T]]:
    """Yield this host's part of every batch of a stream that all hosts read in the same order.

    For data that can only be read sequentially: each host reads all of it, a resumed run reads
    again what it has seen, and samples at the end that do not fill a batch are dropped. `own`: the
    stream has only this host's samples, as many as every other host's; it is then resumed on the
    same number of hosts only.
    """
    samples = iter(stream)
    size = split.share if own else split.batch
    first = 0 if own else split.host * split.share
    next(islice(samples, start * size, start * size), None)
    while True:
        batch = list(islice(samples, size))
        if len(batch) < size:
            return
        yield batch[first : first + split.share]


def process_number() -> tuple[int, int]:
    """Return JAX's process index and count, also in a worker of its data loader."""
    environ = process_env.process_environment()
    if environ.get("HERD_PROCESSES") or not is_installed("jax"):
        return process_env.read_process_number(environ)
    return jax.process_index(), jax.process_count()


def worker_number() -> tuple[int, int]:
    """Return the index and count of PyTorch's DataLoader workers."""
    torch = sys.modules.get("torch.utils.data")
    found = torch.get_worker_info() if torch is not None else None
    return (found.id, found.num_workers) if found is not None else (0, 1)


def split_by_jax_process(shards: Iterable[T]) -> Iterator[T]:
    """Give every host and every loader worker its own shards: for webdataset.

    Pass it as `nodesplitter` with `workersplitter=None`, or put it into a pipeline in place of
    `split_by_worker`: it does the work of both. Each shard is read once over all hosts, but hosts
    with longer shards have more batches. Where samples can be counted, `Split` and `Batches` give
    every host the same number.
    """
    index, count = process_number()
    worker, many = worker_number()
    every = list(shards)
    if len(every) < count * many:
        raise InvalidSetup(
            f"{len(every)} shards are too few for {count} hosts × {many} loader workers: make more "
            "shards, or read samples by Split and Shards, which need no shard for each"
        )
    yield from every[index * many + worker :: count * many]
