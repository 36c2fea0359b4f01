"""Code that goes to the machine of a context's `via`: only what that machine lacks travels."""

import os
import random
from pathlib import Path

import pytest

from tests.simulated.sync_hosts import write
from tpuherd.jobs.engine_transfer import code, contents, keep, lacking
from tpuherd.sync.snapshot_store import Archive
from tpuherd.sync.take_snapshot import again, take

ENVIRONMENT = {"PATH": os.environ["PATH"]}


def carried(id: str, here: Archive, there: Archive) -> int:
    """Bring a snapshot there as `via` does; so many bytes travelled."""
    only = lacking(contents(id, here), there).__contains__
    bundle = dict(code(id, here, only=only))
    with there.blobs.held(), there.blobs.writer() as fresh:
        for name, content in bundle.items():
            keep(there, fresh, name, content)
    return sum(map(len, bundle.values()))


@pytest.mark.parametrize("seed", [1])
def test_an_edit_costs_what_was_edited(tmp_path: Path, seed: int) -> None:
    folder = tmp_path / "code"
    large = random.Random(seed).randbytes(1_000_000)
    write(folder, {"large": large, "train.py": "print(1)", "same": "print(1)"})
    here, there = Archive(tmp_path / "here"), Archive(tmp_path / "there")
    first = take(folder, here, ENVIRONMENT)
    assert carried(first.id, here, there) > 1_000_000
    assert carried(first.id, here, there) < 1000
    write(folder, {"train.py": "print(2)"})
    second = take(folder, here, ENVIRONMENT)
    assert carried(second.id, here, there) < 1000
    for one in (first, second):
        found = again(one.id, there)
        assert found is not None and found.rows == one.rows
        assert lacking(contents(one.id, here), there) == frozenset()
