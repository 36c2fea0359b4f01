"""In which order samples are seen: a pure function of seed and epoch, the same for every Python.

NumPy does not promise the same numbers from one version to the next. What is stored in
checkpoints for months is better computed by rules that stand here.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import accumulate

WORD = (1 << 64) - 1
ROUNDS = 6


def derive_seed(*parts: object) -> int:
    """64 bits that depend on all of these."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


def scramble_number(number: int) -> int:
    """A bijection of 64-bit numbers that looks like chance (splitmix64's last steps)."""
    number = (number + 0x9E3779B97F4A7C15) & WORD
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & WORD
    return number ^ (number >> 31)


class Permutation:
    """range(size) in another order, without a list: each place is computed when it is asked for.

    A Feistel network over the next power of four; what falls outside goes through it again.
    """

    __slots__ = ("half", "keys", "mask", "size")

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self.half = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
        self.mask = (1 << self.half) - 1
        self.keys = [scramble_number((seed + 0x1000003 * turn) & WORD) for turn in range(ROUNDS)]

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
    """Some shards whose samples are shuffled together."""

    shards: tuple[int, ...]
    ends: tuple[int, ...]  #: of each shard, counted from the block's first sample
    places: Permutation | range

    @property
    def size(self) -> int:
        return self.ends[-1]

    def locate_sample(self, place: int) -> tuple[int, int]:
        """Shard and place in it of the block's n-th sample."""
        found = self.places[place]
        which = bisect_right(self.ends, found)
        return self.shards[which], found - (self.ends[which - 1] if which else 0)


@dataclass(frozen=True, slots=True)
class Blocks:
    """One epoch: the shards in a new order, and inside each few of them the samples, too.

    Any position is found at once. Whoever reads from files that can be read anywhere wants this.
    """

    sizes: tuple[int, ...]  #: samples of each shard
    seed: int
    epoch: int
    window: int = 4  #: so many shards are shuffled together
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
        """Shard and place in it of the epoch's n-th sample."""
        which = bisect_right(self.ends, position)
        return self.blocks[which].locate_sample(position - (self.ends[which - 1] if which else 0))


@dataclass(frozen=True, slots=True)
class Streams:
    """One epoch as so many streams, each of which reads its own shards one after the other.

    A host that holds some of the streams needs some of the shards only: for tar files in a bucket.
    """

    sizes: tuple[int, ...]
    seed: int
    epoch: int
    length: int  #: of each stream
    block: int = 4096  #: inside so many samples of a stream their order is shuffled
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
        """Where the n-th sample of a stream stands in the sequence of all shards."""
        block, inside = divmod(place, self.block)
        first = block * self.block
        if self.shuffled:
            size = min(self.block, self.length - first)
            inside = Permutation(size, derive_seed(self.seed, self.epoch, stream, block))[inside]
        return stream * self.length + first + inside

    def locate_sample(self, position: int) -> tuple[int, int]:
        """Shard and place in it at that position of the sequence of all shards."""
        which = bisect_right(self.ends, position)
        return self.shards[which], position - (self.ends[which - 1] if which else 0)
