"""Every sample once an epoch, equal steps on all hosts, the same batches for any hosts."""

from collections import Counter
from itertools import chain

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tpuherd_host.train.sample_order import Blocks, Permutation, Streams
from tpuherd_host.train.sample_split import TAILS, InvalidSetup, Sample, Split, hosts_that_fit

SIZES = st.lists(st.integers(0, 13), min_size=1, max_size=12).map(tuple)
HOSTS = st.sampled_from([1, 2, 3, 4, 6, 8])
BATCH = st.sampled_from([24, 48])
STREAMS = st.sampled_from([0, 24])
patient = settings(deadline=None, suppress_health_check=list(HealthCheck))


@given(st.integers(0, 3000), st.integers(0, 1 << 64))
@settings(patient, max_examples=60)
def test_a_permutation_contains_every_index_once(size: int, seed: int) -> None:
    turned = Permutation(size, seed)
    assert sorted(turned[place] for place in range(size)) == list(range(size))
    with pytest.raises(IndexError):
        turned[size]


def test_the_order_never_changes() -> None:
    """Checkpoints store a position in it: who changes the rules makes them worthless."""
    assert [Permutation(10, 7)[place] for place in range(10)] == [3, 1, 0, 6, 7, 4, 9, 2, 5, 8]
    split = Split(sizes=(5, 3, 0, 8), batch=4, seed=1)
    assert [sample[1:3] for sample in split.at(0)] == [(1, 2), (3, 7), (1, 0), (0, 0)]


@given(SIZES, st.integers(0, 99), st.integers(0, 3), st.integers(1, 5), st.booleans())
@settings(patient, max_examples=200)
def test_an_epoch_has_every_sample_once(
    sizes: tuple[int, ...], seed: int, epoch: int, window: int, shuffled: bool
) -> None:
    every = [(shard, place) for shard, size in enumerate(sizes) for place in range(size)]
    blocks = Blocks(sizes, seed, epoch, window, shuffled)
    found = [blocks.locate_sample(position) for position in range(len(every))]
    assert sorted(found) == every
    assert shuffled or found == every
    streams = Streams(sizes, seed, epoch, max(1, len(every)), block=7, shuffled=shuffled)
    assert (
        sorted(
            streams.locate_sample(streams.sample_position(0, place)) for place in range(len(every))
        )
        == every
    )


def read(splits: list[Split], first: int, last: int) -> dict[int, list[Sample]]:
    """What all hosts read, batch by batch."""
    return {step: list(chain(*(split.at(step) for split in splits))) for step in range(first, last)}


@given(SIZES, st.integers(0, 99), BATCH, st.sampled_from(TAILS), STREAMS, st.data())
@settings(patient, max_examples=300)
def test_other_hosts_continue_within_an_epoch(
    sizes: tuple[int, ...], seed: int, batch: int, tail: str, streams: int, data: st.DataObject
) -> None:
    assume(sum(sizes) >= batch)

    def splits(hosts: int) -> list[Split]:
        return [
            Split(sizes=sizes, batch=batch, host=host, hosts=hosts, seed=seed, tail=tail,
                  window=3, streams=streams)
            for host in range(hosts)
        ]  # fmt: skip

    steps = splits(1)[0].steps
    cut = data.draw(st.integers(0, steps), label="cut")
    before, after = data.draw(HOSTS, label="before"), data.draw(HOSTS, label="after")
    whole = read(splits(1), 0, steps)
    parts = read(splits(before), 0, cut) | read(splits(after), cut, steps)
    assert set(parts) == set(whole) == set(range(steps))
    for step in whole:
        same = sorted if streams else list  # streams are dealt to hosts in turn
        assert same(parts[step]) == same(whole[step])
    seen = Counter(sample[1:3] for sample in chain(*parts.values()) if sample.weight)
    every = sum(sizes)
    if tail == "drop":
        assert set(seen.values()) == {1}
        assert every - batch < len(seen) == steps * batch <= every
    elif tail == "pad":
        assert set(seen.values()) == {1}
        assert len(seen) == every
    else:
        assert len(seen) == every
        assert sum(seen.values()) == steps * batch
        assert max(seen.values()) <= 2


LAYOUTS = [(9,), (5, 3), (4, 0, 5), (1,) * 8, (2, 7, 1, 3)]  #: samples of each shard
EPOCHS = 2


@pytest.mark.parametrize("streams", [0, 4])
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("sizes", LAYOUTS)
def test_any_hosts_continue_from_any_stop(sizes: tuple[int, ...], tail: str, streams: int) -> None:
    """All of (hosts, shards, position, epochs), small: nothing is left to chance."""
    splits = {
        hosts: [
            Split(sizes=sizes, batch=4, host=host, hosts=hosts, seed=9, tail=tail, streams=streams)
            for host in range(hosts)
        ]
        for hosts in (1, 2, 4)
    }
    steps = splits[1][0].steps
    total = EPOCHS * steps
    read_by = {
        (hosts, first, last): read(splits[hosts], first, last)
        for hosts in splits
        for cut in range(total + 1)
        for first, last in ((0, cut), (cut, total))
    }
    whole = {step: sorted(batch) for step, batch in read_by[1, 0, total].items()}
    for (_, first, last), batches in read_by.items():
        assert batches.keys() == set(range(first, last))
        assert all(sorted(batch) == whole[step] for step, batch in batches.items())
    for epoch in range(EPOCHS):
        seen = Counter(
            sample[1:3]
            for step in range(epoch * steps, (epoch + 1) * steps)
            for sample in whole[step]
            if sample.weight
        )
        every = {(shard, place) for shard, size in enumerate(sizes) for place in range(size)}
        assert set(seen) <= every
        if tail != "wrap":
            assert set(seen.values()) == {1}
        if tail != "drop":
            assert set(seen) == every
        assert sum(seen.values()) == (len(every) if tail == "pad" else steps * 4)


@given(SIZES, BATCH, STREAMS)
@settings(patient, max_examples=60)
def test_each_epoch_has_its_own_order(sizes: tuple[int, ...], batch: int, streams: int) -> None:
    assume(sum(sizes) >= batch)
    split = Split(sizes=sizes, batch=batch, streams=streams)
    epochs = [sample.epoch for step in range(3 * split.steps) for sample in split.at(step)]
    assert epochs == sorted(epochs)
    assert Counter(epochs) == dict.fromkeys(range(3), split.steps * batch)


def test_two_epochs_differ() -> None:
    split = Split(sizes=(100, 100, 100), batch=300)
    first, second = ([sample[1:3] for sample in split.at(step)] for step in (0, 1))
    assert sorted(first) == sorted(second)
    assert first != second


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"hosts": 5}, "24 can't be divided among 5 hosts; use 1, 2, 3, 4, 6, 8, 12 or 24"),
        (
            {"hosts": 3, "streams": 8},
            "8 streams can't be divided among 3 hosts; use 1, 2, 4 or 8",
        ),
        ({"streams": 7}, "7 streams can't fill a batch of 24 evenly"),
        ({"sizes": (10, 10)}, "have 20 samples, fewer than one batch of 24"),
        ({"sizes": ()}, "the shards have no samples"),
        ({"tail": "cut"}, "tail='cut' is not one of drop, pad, wrap"),
        ({"host": 2, "hosts": 2}, "host 2 of 2 can't take part"),
    ],
)
def test_impossible_numbers_are_refused_with_possible_ones(
    wrong: dict[str, object], says: str
) -> None:
    asked: dict[str, object] = {"sizes": (100, 100), "batch": 24}
    with pytest.raises(InvalidSetup, match=says.replace("(", r"\(")):
        Split(**(asked | wrong))  # type: ignore[arg-type]


def test_numbers_that_fit() -> None:
    assert hosts_that_fit(12) == [1, 2, 3, 4, 6, 12]
