"""A host whose disk runs full during a transfer."""

import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulated.sync_hosts import ENVIRONMENT, NearHost, ShipRig, herd, tree, write
from tpuherd.errors import OperationFailed
from tpuherd.sync.snapshot_store import Archive
from tpuherd.sync.take_snapshot import snapshot_folder
from tpuherd_host.agent.snapshots import receive

pytestmark = [pytest.mark.real, pytest.mark.root, pytest.mark.needs("mount")]
SIZE = 4 << 20


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[NearHost]]:
    """Two, the second with a disk of 4 MiB."""
    found = herd(tmp_path, 2)
    home = found[1].home
    words = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(home)]
    if subprocess.run(words, capture_output=True).returncode:
        pytest.skip("may not mount here")
    yield found
    subprocess.run(["umount", "-l", str(home)], check=True)


@pytest.mark.parametrize("share", [0.3, 0.55, 0.8, 1.2])
def test_the_disk_runs_full_during_a_transfer(
    tmp_path: Path, hosts: list[NearHost], monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    monkeypatch.setattr(receive, "MARGIN", -(1 << 40))  # no look ahead
    rig = ShipRig(tmp_path)
    write(rig.code, {"a": "one", "b": "two"})
    assert rig.ship(hosts).failed == {}
    was = tree(rig.code)
    whole = int(SIZE * share)
    write(rig.code, {f"f{n}": random.Random(n).randbytes(whole // 40) for n in range(40)})
    done = rig.ship(hosts)
    if done.failed:
        assert done.failed.keys() == {"pod/w1"}
        assert "disk is full" in done.failed["pod/w1"]
        assert all(tree(host.home / "c") == was for host in hosts)
    else:
        assert all(tree(host.home / "c") == tree(rig.code) for host in hosts)
    assert bool(done.failed) is (share > 0.5)
    for file in rig.code.glob("f*"):
        file.unlink()
    write(rig.code, {"a": "three"})
    assert rig.ship(hosts).failed == {}  # what was half there does not keep it full
    assert all(tree(host.home / "c") == tree(rig.code) for host in hosts)


def test_a_snapshot_larger_than_the_disk_is_refused_before_it_is_sent(
    tmp_path: Path, hosts: list[NearHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receive, "MARGIN", 1 << 18)
    rig = ShipRig(tmp_path)
    write(rig.code, {"big": random.Random(1).randbytes(SIZE)})
    done = rig.ship(hosts)
    assert done.failed.keys() == {"pod/w1"}
    assert "MB are needed" in done.failed["pod/w1"]
    assert shutil.disk_usage(hosts[1].home).used < SIZE // 8


def test_a_full_local_disk_is_named(tmp_path: Path, hosts: list[NearHost]) -> None:
    archive = Archive(hosts[1].home / "archive")  # which is on the small disk
    code = tmp_path / "tree"
    write(code, {f"f{n}": random.Random(n).randbytes(SIZE // 8) for n in range(10)})
    with pytest.raises(
        OperationFailed, match=r"this machine's disk is full: can't write to .*/archive"
    ) as told:
        snapshot_folder(code, archive, ENVIRONMENT)
    assert "free some space" in told.value.hint
    for n in range(5):
        (code / f"f{n}").unlink()
    assert snapshot_folder(
        code, archive, ENVIRONMENT
    ).id  # what was half there does not keep it full
