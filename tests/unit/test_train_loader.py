"""Batches by number, tar shards read at random, and what webdataset and others receive."""

import io
import os
import sys
import tarfile
from collections import Counter
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpuherd_host.train.loader import Batches, of_iterator, split_by_jax_process
from tpuherd_host.train.sample_split import InvalidSetup, Split
from tpuherd_host.train.tar_shards import Shards, split_name, tar_entries

LISTS = [[f"{shard}.{place}" for place in range(size)] for shard, size in enumerate((7, 0, 13, 4))]


def batches(host: int = 0, hosts: int = 1, **more: Any) -> Batches:
    part = Split(sizes=(7, 0, 13, 4), batch=4, host=host, hosts=hosts, seed=5)
    return Batches(LISTS, part, **more)


def test_batches_are_read_by_number_and_prefetched() -> None:
    whole = batches(epochs=2)
    assert len(whole) == 12
    first = [whole[step] for step in range(6)]
    assert Counter(chain(*first)) == Counter(chain(*LISTS))
    assert list(whole.ahead(2, 6, many=1)) == [(step, whole[step]) for step in range(2, 6)]
    halves = [batches(host, 2) for host in range(2)]
    assert [halves[0][step] + halves[1][step] for step in range(6)] == first
    with pytest.raises(IndexError):
        whole[12]


def test_a_closed_reader_ends_and_errors_reach_the_consumer() -> None:
    for step, _ in batches().ahead(0, 1000, many=1):
        if step == 2:
            break

    def broken(sample: str) -> str:
        raise OSError(f"{sample} can't be read")

    with pytest.raises(OSError, match="can't be read"):
        list(batches(decode=broken).ahead(0, 2))


def test_the_split_covers_these_shards() -> None:
    with pytest.raises(InvalidSetup, match="for 4 shards, but there are 2"):
        Batches(LISTS[:2], Split(sizes=(7, 0, 13, 4), batch=4))


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 30), st.integers(0, 3))
@settings(deadline=None)
def test_hosts_share_streamed_shards(hosts: int, each: int, many: int, start: int) -> None:
    parts = [
        list(
            of_iterator(
                range(many),
                Split(sizes=(100,), batch=hosts * each, host=host, hosts=hosts),
                start,
            )
        )
        for host in range(hosts)
    ]
    assert len({len(part) for part in parts}) == 1
    seen = [one for batch in zip(*parts, strict=True) for half in batch for one in half]
    whole = many // (hosts * each) * hosts * each
    assert seen == list(range(min(start * hosts * each, whole), whole))


@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 60), st.integers(0, 4))
def test_hosts_that_stream_their_own_samples_have_as_many_batches(
    hosts: int, each: int, many: int, start: int
) -> None:
    """As TFDS splits it: equal parts, one after the other."""
    size, split_batch = many // hosts, hosts * each
    parts = [
        list(of_iterator(
            range(host * size, (host + 1) * size),
            Split(sizes=(100,), batch=split_batch, host=host, hosts=hosts), start, own=True,
        ))
        for host in range(hosts)
    ]  # fmt: skip
    assert len({len(part) for part in parts}) == 1
    for host, part in enumerate(parts):
        read = [one for batch in part for one in batch]
        whole = size // each * each
        assert read == list(range(host * size + min(start * each, whole), host * size + whole))


def of_torch(worker: int, workers: int) -> Any:
    """What a process of PyTorch's DataLoader would find there."""
    info = SimpleNamespace(id=worker, num_workers=workers)
    return SimpleNamespace(get_worker_info=lambda: info)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("hosts", [1, 2, 3, 4, 8])
def test_each_shard_belongs_to_one_host_and_one_worker(
    monkeypatch: pytest.MonkeyPatch, hosts: int, workers: int
) -> None:
    monkeypatch.setenv("HERD_PROCESSES", str(hosts))

    def read_by(host: int, worker: int, shards: int) -> list[int]:
        monkeypatch.setenv("HERD_PROCESS", str(host))
        monkeypatch.setitem(sys.modules, "torch.utils.data", of_torch(worker, workers))
        return list(split_by_jax_process(iter(range(shards))))

    readers = [(host, worker) for host in range(hosts) for worker in range(workers)]
    for shards in range(3 * len(readers)):
        if shards < len(readers):
            says = f"{shards} shards are too few for {hosts} hosts × {workers} loader workers"
            for reader in readers:  # on all of them: none continues and waits for the others
                with pytest.raises(InvalidSetup, match=says):
                    read_by(*reader, shards)
            continue
        seen = [read_by(*reader, shards) for reader in readers]
        assert sorted(chain(*seen)) == list(range(shards))
        assert max(map(len, seen)) - min(map(len, seen)) <= 1


def write(path: Path, files: dict[str, bytes], kind: int) -> None:
    with tarfile.open(path, "w", format=kind) as archive:
        for name, content in files.items():
            one = tarfile.TarInfo(name)
            one.size = len(content)
            archive.addfile(one, io.BytesIO(content))


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_tar_is_indexed_like_the_library_does(tmp_path: Path, kind: int) -> None:
    long = "d" * 60 + "/" + "e" * 60
    files = {f"a/{n:04}.{end}": os.urandom(n * 37) for n in range(40) for end in ("jpg", "cls")}
    files |= {f"{long}/x.y.jpg": b"deep", "ü.txt": b"", "a/last.cls": b"1"}
    path = tmp_path / "00000.tar"
    write(path, files, kind)
    with tarfile.open(path) as archive:
        known = [(one.name, one.offset_data, one.size) for one in archive if one.isreg()]
    assert list(tar_entries(path)) == known
    shards = Shards([path])
    assert shards.sizes == (43,)
    assert shards[0][3] == {
        "__key__": "a/0003", "__url__": str(path),
        "jpg": files["a/0003.jpg"], "cls": files["a/0003.cls"],
    }  # fmt: skip
    assert shards[0][40]["y.jpg"] == b"deep"
    assert split_name("a.b/c.D.Jpg") == ("a.b/c", "d.jpg")
