"""Code for the machine of a context's `via`: only what that machine lacks travels."""

import io
import os
import random
import tarfile
from pathlib import Path

import pytest

from tests.simulated.sync_hosts import write
from tpuherd.errors import OperationFailed
from tpuherd.jobs.code_transfer import (
    missing_contents,
    read_tar_files,
    snapshot_contents,
    snapshot_entries,
    store_code,
)
from tpuherd.sync.snapshot_store import Archive
from tpuherd.sync.take_snapshot import load_snapshot, snapshot_folder

ENVIRONMENT = {"PATH": os.environ["PATH"]}


def carried(id: str, here: Archive, there: Archive) -> int:
    """Send a snapshot as `via` does; return the bytes sent."""
    only = missing_contents(snapshot_contents(id, here), there).__contains__
    bundle = dict(snapshot_entries(id, here, only=only))
    with there.blobs.shared_lock(), there.blobs.new_pack() as fresh:
        for name, content in bundle.items():
            store_code(there, fresh, name, content)
    return sum(map(len, bundle.values()))


@pytest.mark.parametrize("seed", [1])
def test_an_edit_costs_what_it_changes(tmp_path: Path, seed: int) -> None:
    folder = tmp_path / "code"
    large = random.Random(seed).randbytes(1_000_000)
    write(folder, {"large": large, "train.py": "print(1)", "same": "print(1)"})
    here, there = Archive(tmp_path / "here"), Archive(tmp_path / "there")
    first = snapshot_folder(folder, here, ENVIRONMENT)
    assert carried(first.id, here, there) > 1_000_000
    assert carried(first.id, here, there) < 1000
    write(folder, {"train.py": "print(2)"})
    second = snapshot_folder(folder, here, ENVIRONMENT)
    assert carried(second.id, here, there) < 1000
    for one in (first, second):
        found = load_snapshot(one.id, there)
        assert found is not None and found.rows == one.rows
        assert missing_contents(snapshot_contents(one.id, here), there) == frozenset()


def test_a_path_outside_the_folder_is_refused() -> None:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w|") as tar:
        tar.addfile(tarfile.TarInfo("secrets/../../../out"))
    whole.seek(0)
    with pytest.raises(OperationFailed, match="leads out of"):
        list(read_tar_files(whole))
