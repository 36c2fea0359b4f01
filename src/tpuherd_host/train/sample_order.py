"""The order of samples: a pure function of seed and epoch, the same in every Python.

NumPy does not promise the same numbers from one version to the next. Orders that matter to
checkpoints for months are better computed by rules of our own.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import accumulate

WORD = (1 << 64) - 1
ROUNDS = 6


def derive_seed(*parts: object) -> int:
    """Return 64 bits that depend on all of these."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


def scramble_number(number: int) -> int:
    """Map 64-bit numbers one to one to others that look random (splitmix64's last steps)."""
    number = (number + 0x9E3779B97F4A7C15) & WORD
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & WORD
    return number ^ (number >> 31)


class Permutation:
    """range(size) in another order, without a list: each element is computed on request.

    It is a Feistel network over the next power of four; results outside go through it again.
    """

    __slots__ = ("half", "keys", "mask", "size")

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self.half = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
        self.mask = (1 << self.half) - 1
        self.keys = [
            scramble_number((seed + 0x1000003 * number) & WORD) for number in range(ROUNDS)
        ]

    def __getitem__(self, place: int) -> int:
        if not 0 <= place < self.size:
            raise IndexError(place)
        half, mask = self.half, self.mask
        while True:
            left, right = place >> half, place & mask
            for key in self.keys:
                left, right = right, left ^ (scramble_number(right ^ key) & mask)
            place = (left << half) | right
            if place < self.size:
                return place


@dataclass(frozen=True, slots=True)
class Block:
    """Shards whose samples are shuffled together."""

    shards: tuple[int, ...]
    ends: tuple[int, ...]  #: of each shard, counted from the block's first sample
    places: Permutation | range

    @property
    def size(self) -> int:
        return self.ends[-1]

    def locate_sample(self, place: int) -> tuple[int, int]:
        """Return the shard of the block's n-th sample and its index there."""
        found = self.places[place]
        which = bisect_right(self.ends, found)
        return self.shards[which], found - (self.ends[which - 1] if which else 0)


@dataclass(frozen=True, slots=True)
class Blocks:
    """One epoch: the shards in a new order, with samples shuffled inside each few of them.

    Any position is found at once. It suits files that allow random access.
    """

    sizes: tuple[int, ...]  #: samples of each shard
    seed: int
    epoch: int
    window: int = 4  #: this many shards are shuffled together
    shuffled: bool = True
    blocks: tuple[Block, ...] = field(init=False, repr=False, compare=False)
    ends: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        order: Sequence[int] = range(len(self.sizes))
        if self.shuffled:
            key = derive_seed(self.seed, self.epoch, "shards")
            turned = Permutation(len(self.sizes), key)
            order = [shard for shard in (turned[at] for at in order) if self.sizes[shard]]
        else:
            order = [shard for shard in order if self.sizes[shard]]
        blocks = tuple(
            self.make_block(tuple(order[first : first + self.window]), first)
            for first in range(0, len(order), self.window)
        )
        object.__setattr__(self, "blocks", blocks)
        object.__setattr__(self, "ends", tuple(accumulate(block.size for block in blocks)))

    def make_block(self, shards: tuple[int, ...], first: int) -> Block:
        ends = tuple(accumulate(self.sizes[shard] for shard in shards))
        if not self.shuffled:
            return Block(shards, ends, range(ends[-1]))
        return Block(
            shards, ends, Permutation(ends[-1], derive_seed(self.seed, self.epoch, "block", first))
        )

    def locate_sample(self, position: int) -> tuple[int, int]:
        """Return the shard of the epoch's n-th sample and its index there."""
        which = bisect_right(self.ends, position)
        return self.blocks[which].locate_sample(position - (self.ends[which - 1] if which else 0))


@dataclass(frozen=True, slots=True)
class Streams:
    """One epoch as several streams, each of which reads its own shards one after the other.

    A host with some of the streams needs only some of the shards: for tar files in a bucket.
    """

    sizes: tuple[int, ...]
    seed: int
    epoch: int
    length: int  #: of each stream
    block: int = 4096  #: samples of a stream are shuffled within blocks of this size
    shuffled: bool = True
    shards: tuple[int, ...] = field(init=False, repr=False, compare=False)
    ends: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        shards: tuple[int, ...] = tuple(range(len(self.sizes)))
        if self.shuffled:
            turned = Permutation(len(shards), derive_seed(self.seed, self.epoch, "shards"))
            shards = tuple(turned[at] for at in shards)
        object.__setattr__(self, "shards", shards)
        object.__setattr__(self, "ends", tuple(accumulate(self.sizes[one] for one in shards)))

    def sample_position(self, stream: int, place: int) -> int:
        """Return the position of a stream's n-th sample in the sequence of all shards."""
        block, inside = divmod(place, self.block)
        first = block * self.block
        if self.shuffled:
            size = min(self.block, self.length - first)
            inside = Permutation(size, derive_seed(self.seed, self.epoch, stream, block))[inside]
        return stream * self.length + first + inside

    def locate_sample(self, position: int) -> tuple[int, int]:
        """Return the shard at that position of the sequence of all shards, and the index there."""
        which = bisect_right(self.ends, position)
        return self.shards[which], position - (self.ends[which - 1] if which else 0)
