"""Kept files in a bucket that refuses, cuts and loses things, beside code, and without herd."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulated.kept_hosts import RUN, KeptHost, list_tree, shared_folder
from tests.simulated.sync_hosts import NearHost, ShipRig
from tests.simulated.test_cloud_storage import QuickTime, Server, serving
from tests.simulated.test_kept_files import write_odd_files
from tpuherd_host import cloud_storage
from tpuherd_host.agent.keep.copy_files import Copied
from tpuherd_host.agent.keep.kept_manifest import (
    Generation,
    Manifest,
    Part,
    Row,
    format_manifest,
    manifest_name,
)
from tpuherd_host.agent.keep.kept_store import README, BucketStore, FolderStore
from tpuherd_host.cloud_storage import Unreachable

URL = f"gs://mine/tpuherd-kept/{RUN}"
PREFIX = f"tpuherd-kept/{RUN}/"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[BucketStore]:
    monkeypatch.setattr(cloud_storage, "time", QuickTime())
    with serving() as address:
        yield BucketStore(URL, {"STORAGE_EMULATOR_HOST": address})


@pytest.mark.needs("rsync")
def test_a_bucket_keeps_and_brings_back(tmp_path: Path, store: BucketStore) -> None:
    host = KeptHost(tmp_path / "a", store)
    host.begin(1)
    write_odd_files(host.folder)
    copied = host.copy(1)
    assert all(name.startswith(PREFIX) for name in Server.objects)
    new = KeptHost(tmp_path / "b", store)
    assert new.begin(2).files == copied.files
    assert new.tree() == host.tree()
    words = ["rsync", "-naAXci", "--delete", f"{host.folder}/", f"{new.folder}/"]
    assert subprocess.run(words, capture_output=True, check=True).stdout == b""
    host = KeptHost(tmp_path / "c", store)
    host.begin(3)
    for number in range(4):
        host.put("ckpt/a", str(number))
        host.copy(number)
    assert {name.split("/")[-2] for name in Server.objects if "generations" in name} == {
        "000000001.0000000001", "000000003.0000000002", "000000003.0000000003",
    }  # fmt: skip


@pytest.mark.parametrize("fault", ["503", "cut", "lost", "closed"])
def test_whatever_is_lost_a_whole_generation_comes_back(
    tmp_path: Path, store: BucketStore, fault: str
) -> None:
    """One request after another goes wrong; the client repeats it, and nothing is half."""
    at, done = 0, False
    while not done:
        for kept in (Server.objects, Server.halves, Server.faults):
            kept.clear()
        Server.faults.extend([""] * at + [fault])
        host = KeptHost(tmp_path / f"{at}a", store)
        host.begin(1)
        host.put("ckpt", "1" * 3000)
        assert isinstance(host.copy(1), Copied)
        host.put("ckpt", "2" * 3000)
        assert host.copy(2).is_new
        new = KeptHost(tmp_path / f"{at}b", store)
        new.begin(2)
        assert (new.folder / "ckpt").read_text() == "2" * 3000
        done, at = bool(Server.faults), at + 1
    assert at > 20


@pytest.mark.parametrize("status", ["403", "503"])
def test_a_store_that_refuses_costs_copies_and_nothing_else(
    tmp_path: Path, store: BucketStore, status: str
) -> None:
    host = KeptHost(tmp_path / "a", store)
    host.begin(1)
    host.put("ckpt", "1")
    host.copy(1)
    for skip in range(5):
        host.put("ckpt", f"new {skip}")
        Server.faults[:] = [""] * skip + [status] * 500
        missed = host.miss(2 + skip)
        assert URL.split("/tpuherd")[0] in missed.sentence and not missed.passed
    Server.faults[:] = ["403"]
    with pytest.raises(Unreachable):
        KeptHost(tmp_path / "b", store).begin(2)
    Server.faults.clear()
    new = KeptHost(tmp_path / "c", store)
    new.begin(2)
    assert (new.folder / "ckpt").read_text() == "1"


def test_what_may_not_be_removed_is_told_and_costs_no_copy(
    tmp_path: Path, store: BucketStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = KeptHost(tmp_path / "a", store)
    host.begin(1)
    monkeypatch.setattr(Server, "do_DELETE", lambda self: self.fail("403"))
    for number in range(4):
        host.put("ckpt", str(number))
        host.copy(number)
    assert "HTTP 403" in host.keeper.old.unremoved


def test_a_rule_of_the_bucket_that_removes_parts_is_noticed(
    tmp_path: Path, store: BucketStore
) -> None:
    host = KeptHost(tmp_path / "a", store)
    host.begin(1)
    host.put("ckpt", "1")
    host.copy(1)
    for name in [name for name in Server.objects if "/parts/" in name]:
        del Server.objects[name]
    host.put("more")
    host.copy(2), host.copy(3)
    new = KeptHost(tmp_path / "b", store)
    new.begin(2)
    assert (new.folder / "ckpt").read_text() == "1"


# ---- without herd --------------------------------------------------------------------------------

GCLOUD = """#!/bin/sh -e
[ "$1" = storage ] && command=$2 && shift 2
case $command in
ls) for one in ${1#gs://mine/}*; do echo "gs://mine/$one/"; done;;
cp) if [ "$1" = --read-paths-from-stdin ]; then
        while read -r one; do cp "${one#gs://mine/}" "$OLDPWD_/$2"; done
    else cp ${1#gs://mine/} "$OLDPWD_/$2"; fi;;
esac
"""


def test_the_readme_brings_everything_back(tmp_path: Path, store: BucketStore) -> None:
    """Each line as it is, with a gcloud that copies from a folder."""
    host = KeptHost(tmp_path / "a", store)
    host.begin(1)
    write_odd_files(host.folder)
    host.put("state", "old")
    host.copy(1)
    host.put("state", "new"), host.put("gone")
    host.copy(2)
    (host.folder / "gone").unlink()
    host.copy(3)
    bucket, here = tmp_path / "bucket", tmp_path / "here"
    for name, content in Server.objects.items():
        (bucket / name).parent.mkdir(parents=True, exist_ok=True)
        (bucket / name).write_bytes(content)
    here.mkdir()
    (tmp_path / "gcloud").write_text(GCLOUD.replace("-e\n", f"-e\nOLDPWD_=$PWD; cd {bucket}\n", 1))
    (tmp_path / "gcloud").chmod(0o755)
    readme = Server.objects[f"{PREFIX}README.txt"].decode()
    assert readme == README.replace("@URL@", URL)
    commands = "\n".join(re.findall(r"^    (.*)", readme, re.MULTILINE))
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = ["bash", "-euo", "pipefail", "-c", commands]
    done = subprocess.run(words, cwd=here, env=path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected, found = dict(list_tree(host.folder)), dict(list_tree(here / "folder"))
    files = {path: state for path, state in expected.items() if path not in (b".", b"ckpt")}
    assert {path: state for path, state in found.items() if path in files} == files
    assert found.keys() == expected.keys()
    assert (here / "folder/ckpt/only-hole").stat().st_blocks < 100


# ---- beside code ---------------------------------------------------------------------------------


class CodeHost(KeptHost):
    """A host that gets code."""

    def __init__(self, near: NearHost, store: FolderStore) -> None:
        super().__init__(near.home, store)
        self.near = near

    def ship(self, rig: ShipRig, **files: str) -> None:
        for name, text in files.items():
            (rig.code / f"{name}.py").write_text(text)
        assert rig.ship([self.near], "herd/gpt").failed == {}


@pytest.fixture
def rig(tmp_path: Path) -> ShipRig:
    return ShipRig(tmp_path)


def code_host(rig: ShipRig, tmp_path: Path, worker: int) -> CodeHost:
    host = CodeHost(NearHost(tmp_path, worker), shared_folder(tmp_path / "store"))
    host.folder.rmdir()
    host.ship(rig)
    return host


def change_code(host: CodeHost) -> None:
    """A script that changes, removes and adds what may be code."""
    host.put("mine.py", "the script's"), host.put("both.py", "the script's")
    for name in ("gone.py", "gone2.py"):
        (host.folder / name).unlink()
    host.put("new.py", "the script's"), host.put("same.py", "agreed")


CODE = dict.fromkeys("mine both gone gone2 still same dropped".split(), "shipped")
NEWER = {"both": "yours", "gone2": "yours", "new": "yours", "same": "agreed"}
AFTER = {
    "mine.py": "the script's", "both.py": "yours", "both.py.kept": "the script's",
    "gone2.py": "yours", "new.py": "yours", "new.py.kept": "the script's", "same.py": "agreed",
    "still.py": "shipped", "dropped.py.kept": "the script's",
}  # fmt: skip


def test_code_is_kept_only_where_the_script_changed_it(rig: ShipRig, tmp_path: Path) -> None:
    for name, text in CODE.items():
        (rig.code / f"{name}.py").write_text(text)
    host = code_host(rig, tmp_path, 0)
    host.begin(1)
    assert host.paths(host.copy(1)) == []
    change_code(host)
    host.put("dropped.py", "the script's")
    copied = host.copy(2)
    changed = ["both.py", "dropped.py", "mine.py", "new.py", "same.py"]
    assert host.paths(copied) == changed
    assert sorted(host.manifest(copied).gone)[0][0] == b"gone.py"

    new = code_host(rig, tmp_path, 1)
    assert new.begin(2).beside == ()
    assert {p.name: p.read_text() for p in new.folder.iterdir()} == {
        p.name: p.read_text() for p in host.folder.iterdir()
    }
    assert new.paths(new.copy(1)) == changed

    (rig.code / "dropped.py").unlink()
    last = code_host(rig, tmp_path, 2)
    last.ship(rig, **NEWER)
    beside = last.begin(3).beside
    assert sorted(beside) == [b"both.py.kept", b"dropped.py.kept", b"new.py.kept"]
    assert {p.name: p.read_text() for p in last.folder.iterdir()} == AFTER
    assert set(last.paths(last.copy(1))) == {"mine.py", *(name.decode() for name in beside)}


def test_a_switch_of_code_on_the_same_node_loses_nothing(rig: ShipRig, tmp_path: Path) -> None:
    for name, text in CODE.items():
        (rig.code / f"{name}.py").write_text(text)
    host = code_host(rig, tmp_path, 0)
    (host.folder / "model").write_text("what setup made")
    host.begin(1)
    change_code(host)
    host.put("dropped.py", "the script's")
    host.put("ckpt/1")
    host.copy(1)
    (rig.code / "dropped.py").unlink()
    host.ship(rig, **{**NEWER, "still": "yours"})
    restored = host.begin(2, same_node=True)
    found = {p.name: p.read_text() for p in host.folder.iterdir() if p.is_file()}
    expected = {**AFTER, "still.py": "yours", "model": "what setup made"}
    # The script's own new.py and the shipped one: the shipping itself decides.
    for name in ("new.py", "new.py.kept"):
        expected.pop(name), found.pop(name, None)
    assert found == expected
    assert sorted(restored.beside) == [b"both.py.kept", b"dropped.py.kept"]
    assert "model" not in host.paths(host.copy(1)), "it only moved"


# ---- liars and full disks ------------------------------------------------------------------------


def test_a_manifest_of_a_liar_harms_nothing_outside(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    store = shared_folder(tmp_path / "store")
    part, one = Part("parts/w0000/000000001.0000000001.0000.tar", 512), Generation(1, 1)
    sha = "076a27c79e5ace2a3d47f9dd2e83e4ff6ea8872b3c2218f66c92b89b55f36560"  # 512 zeros
    link = Row(b"x", "l", 0o777, 1, part=part.name, target=os.fsencode(outside))
    file = Row(b"x/evil", "f", 0o644, 1, 512, sha, part.name, 0)
    lies: list[tuple[Row, ...]] = [
        (link, file),
        (file, link),
        (link, Row(b"x", "d", 0o755, 1, part=part.name)),
        (Row(os.fsencode(outside / "evil"), "f", 0o644, 1, 512, sha, part.name, 0),),
        (file._replace(path=b"big", size=1 << 49),),
        (file._replace(path=b"big", offset=1 << 49),),
        (file._replace(path=b"y", sha256="0" * 64),),
    ]
    for number, rows in enumerate(lies):
        store.write("parts/w0000/000000001.0000000001.0000.tar", [bytes(512)])
        text = format_manifest(Manifest(one, 0, 1.0, (part,), rows))
        store.write(manifest_name(one, 0), [text])
        store.write(manifest_name(one, 0, "files"), [b"x"])
        store.write("attempts/000000001.json", [ATTEMPT])
        for name in ("attempts/000000002.json", f"damaged/{one}"):
            store.remove(name)
        host = KeptHost(tmp_path / f"w{number}", store)
        try:
            assert host.begin(2).refused or number == 2
        except OSError:
            pass
        assert list(outside.iterdir()) == [], rows


ATTEMPT = b"""{"version": 1, "attempt": 1, "workers": 1, "at": 1.0, "source": null,
"source_workers": 0, "restores": true}"""


@pytest.mark.root
def test_a_full_disk_costs_a_copy_or_ends_the_restore(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=300k", "none", str(disk)]
    if subprocess.run(words, capture_output=True).returncode:
        pytest.skip("may not mount here")
    try:
        host = KeptHost(tmp_path / "a", FolderStore(disk / "store"))
        host.begin(1)
        host.put("ckpt", "1")
        host.copy(1)
        host.put("ckpt", os.urandom(1 << 20))
        assert "No space left" in host.miss(2).sentence
        host.put("ckpt", "3")
        copied = host.copy(3)
        assert host.content(copied, "ckpt") == b"3"
        assert list((disk / "store").glob(".new*")) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)
