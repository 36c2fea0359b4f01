"""A snapshot lost here is recovered from a host, exactly as it was or not at all."""

import asyncio
import os
import random
from pathlib import Path

import pytest

from tests.simulated.sync_hosts import NearHost, herd, tree, write
from tpuherd.errors import NotFound, OperationFailed
from tpuherd.sync.ship import ship, ship_stored
from tpuherd.sync.snapshot_recover import recover_snapshot
from tpuherd.sync.snapshot_store import Archive
from tpuherd.sync.take_snapshot import load_snapshot, snapshot_folder

ENVIRONMENT = {"PATH": os.environ["PATH"]}


def shipped(folder: Path, host: NearHost) -> str:
    """The id of code that the host has."""
    code = folder / "code"
    write(code, {"a": "a", "sub/b": random.Random(1).randbytes(300_000), "same": "a", "none": ""})
    write(code, {"odd ü\n": "x"})
    (code / "link").symlink_to(".//sub")
    (code / "a").chmod(0o755)
    archive = Archive(folder / "before")
    snapshot = snapshot_folder(code, archive, ENVIRONMENT)
    done = asyncio.run(ship(snapshot, "c", [host], archive=archive))
    assert done.failed == {}
    return snapshot.id


def test_a_recovered_snapshot_can_be_shipped_again(tmp_path: Path) -> None:
    old, new = herd(tmp_path, 2)
    id = shipped(tmp_path, old)
    (old.home / "c" / "a").write_text("edited")  # trees are the host's; what was shipped is kept
    archive = Archive(tmp_path / "after")
    assert load_snapshot(id, archive) is None
    asyncio.run(recover_snapshot(id, old, archive))
    found = load_snapshot(id, archive)
    assert found is not None
    assert found.id == id
    assert asyncio.run(ship_stored(id, "c", [new], archive=archive)).failed == {}
    assert tree(new.home / "c") == tree(tmp_path / "code")
    asyncio.run(recover_snapshot(id, old, archive))  # again is as good


@pytest.mark.parametrize("id", ["0" * 64, "../../../etc/passwd", ""])
def test_a_host_without_the_snapshot_says_so(tmp_path: Path, id: str) -> None:
    (host,) = herd(tmp_path, 1)
    shipped(tmp_path, host)
    archive = Archive(tmp_path / "after")
    with pytest.raises(NotFound, match="is not on this host"):
        asyncio.run(recover_snapshot(id, host, archive))
    assert list(archive.rows_folder.iterdir()) == []


@pytest.mark.parametrize("what", ["content", "rows"])
def test_files_damaged_on_the_host_are_not_taken(tmp_path: Path, what: str) -> None:
    (host,) = herd(tmp_path, 1)
    id = shipped(tmp_path, host)
    store = Path(host.house) / "store"
    files = store / "rows" if what == "rows" else store / "blobs"
    file = next(one for one in files.iterdir() if one.suffix != ".index" and one.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    archive = Archive(tmp_path / "after")
    with pytest.raises((OperationFailed, NotFound)):
        asyncio.run(recover_snapshot(id, host, archive))
    assert load_snapshot(id, archive) is None
