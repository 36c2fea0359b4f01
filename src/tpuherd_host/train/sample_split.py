"""Which samples a host reads at a step, so that all hosts together see each once an epoch.

A global batch is the same for any number of hosts: a run resumes with more or fewer of them at the
step where it stopped. Every host has the same number of steps, so none waits for another at the end
of an epoch.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from tpuherd_host.train.sample_order import Blocks, Streams

TAILS = ("drop", "pad", "wrap")


class InvalidSetup(ValueError):
    """The samples cannot be split like this; the message says what works."""


class Sample(NamedTuple):
    epoch: int
    shard: int
    place: int  #: in its shard
    weight: int  #: 0 for samples that only fill up the last batch of an epoch


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """One host's share of every step.

    `tail` decides about the epoch's last samples, too few for a batch: "drop" drops them (others in
    the next epoch), "pad" adds samples of weight 0, "wrap" adds samples seen already.
    """

    sizes: tuple[int, ...]  #: samples of each shard
    batch: int  #: samples a step on all hosts together
    host: int = 0
    hosts: int = 1
    seed: int = 0
    tail: str = "drop"
    window: int = 4  #: shards that are shuffled together
    streams: int = 0  #: read shards one after the other in this many streams; 0: random access
    shuffled: bool = True
    samples: int = field(init=False)
    steps: int = field(init=False)  #: of an epoch

    def __post_init__(self) -> None:
        samples = sum(self.sizes)
        steps = samples // self.batch if self.tail == "drop" else -(-samples // self.batch)
        object.__setattr__(self, "samples", samples)
        object.__setattr__(self, "steps", steps)
        check_split(self)

    @property
    def share(self) -> int:
        """Return the samples of a step on one host."""
        return self.batch // self.hosts

    def at(self, step: int) -> list[Sample]:
        """Return what this host reads at that step, counted over all epochs."""
        epoch, step = divmod(step, self.steps)
        if self.streams:
            return self.stream_samples(epoch, step)
        blocks = epoch_of_blocks(self.sizes, self.seed, epoch, self.window, self.shuffled)
        first = step * self.batch + self.host * self.share
        return [
            Sample(epoch, *blocks.locate_sample(place % self.samples), self.sample_weight(place))
            for place in range(first, first + self.share)
        ]

    def stream_samples(self, epoch: int, step: int) -> list[Sample]:
        each = self.batch // self.streams
        streams = epoch_of_streams(self.sizes, self.seed, epoch, self.steps * each, self.shuffled)
        places = [
            streams.sample_position(stream, place)
            for stream in range(self.host, self.streams, self.hosts)
            for place in range(step * each, (step + 1) * each)
        ]
        return [
            Sample(epoch, *streams.locate_sample(place % self.samples), self.sample_weight(place))
            for place in places
        ]

    def sample_weight(self, place: int) -> int:
        return 0 if place >= self.samples and self.tail == "pad" else 1


def check_split(split: Split) -> None:
    """Refuse what would deadlock or lose samples, and say what works."""
    if split.tail not in TAILS:
        raise InvalidSetup(f"tail={split.tail!r} is not one of {', '.join(TAILS)}")
    if split.batch < 1 or split.hosts < 1 or not 0 <= split.host < split.hosts:
        raise InvalidSetup(
            f"host {split.host} of {split.hosts} can't take part in a batch of {split.batch}"
        )
    if split.batch % split.hosts:
        raise InvalidSetup(
            f"a global batch of {split.batch} can't be divided among {split.hosts} hosts; "
            f"use {join_alternatives(hosts_that_fit(split.batch))}"
        )
    if split.streams and split.batch % split.streams:
        raise InvalidSetup(
            f"{split.streams} streams can't fill a batch of {split.batch} evenly: "
            f"take {join_alternatives(hosts_that_fit(split.batch))}"
        )
    if split.streams and split.streams % split.hosts:
        raise InvalidSetup(
            f"{split.streams} streams can't be divided among {split.hosts} hosts; "
            f"use {join_alternatives(hosts_that_fit(split.streams))}"
        )
    if split.steps < 1:
        raise InvalidSetup(
            f"all shards together have {split.samples} samples, fewer than one batch of "
            f"{split.batch}: take a smaller one, or tail='wrap'"
            if split.samples
            else "the shards have no samples"
        )


def hosts_that_fit(number: int) -> list[int]:
    """Return all divisors."""
    return [one for one in range(1, number + 1) if number % one == 0]


def join_alternatives(numbers: list[int]) -> str:
    """Join numbers as in "2, 3 or 4"."""
    words = [str(number) for number in numbers]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


@lru_cache(maxsize=4)
def epoch_of_blocks(
    sizes: tuple[int, ...], seed: int, epoch: int, window: int, shuffled: bool
) -> Blocks:
    return Blocks(sizes, seed, epoch, window, shuffled)


@lru_cache(maxsize=4)
def epoch_of_streams(
    sizes: tuple[int, ...], seed: int, epoch: int, length: int, shuffled: bool
) -> Streams:
    return Streams(sizes, seed, epoch, length, shuffled=shuffled)
