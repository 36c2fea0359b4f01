"""A store that moves to another machine is used in one place only, whatever is interrupted."""

import io
import socket
import tarfile
from pathlib import Path

import pytest

from tpuherd.errors import InvalidInput, OperationFailed
from tpuherd.jobs import engine_transfer
from tpuherd.model.slots_and_plan import Goal, HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.ports import LeaseHolder
from tpuherd.settings.endpoints import CredentialSource, ServiceUrls
from tpuherd.settings.folders import LocalFolders
from tpuherd.settings.project_access import ProjectAccess
from tpuherd.store import moved_marker
from tpuherd.store.database import Database
from tpuherd.sync.snapshot_store import open_archive
from tpuherd.sync.take_snapshot import load_snapshot, snapshot_folder

NOW = 1_800_000_000.0
WORLD = Path("/world")


def place(folder: Path) -> ProjectAccess:
    """A machine with the same world."""
    return ProjectAccess(
        world=WORLD,
        project="demo",
        urls=ServiceUrls(tpu="", compute=""),
        ssh_port=22,
        login="ada",
        routes=(),
        credentials=CredentialSource(),
        folders=LocalFolders(
            config=folder / "config", state=folder / "state", runtime=folder / "run"
        ),
    )


def store_of(where: ProjectAccess) -> Path:
    return engine_transfer.part_folders(where)[engine_transfer.STORE]


def stored_job(snapshot: str) -> StoredJob:
    document = {"name": "gpt", "accelerator": ["v4-8"], "run": "x"}
    return StoredJob(
        job="gpt", goal=Goal.RUN, document=document, snapshot=snapshot, made_at=NOW,
        changed_at=NOW, who="ada",
    )  # fmt: skip


@pytest.fixture
def here(tmp_path: Path) -> ProjectAccess:
    """With a job, its code, a secret, a log, and a lease that somebody had."""
    found = place(tmp_path / "here")
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("words")
    snapshot = snapshot_folder(code, open_archive(found.folders.state), {"PATH": "/usr/bin:/bin"})
    store = Database(store_of(found), NOW)
    store.put_job(
        stored_job(snapshot.id), [HistoryEvent(at=NOW, kind="job.submitted", job="gpt", facts={})]
    )
    store.secrets.put("gpt", "TOKEN", "k1")
    store.take_lease(LeaseHolder(pid=1, host=socket.gethostname() + "-other"), NOW, 1e9)
    store.close()
    engine_transfer.write_private_file(
        engine_transfer.part_folders(found)[engine_transfer.LOGS] / "a/b", b"line"
    )
    return found


def packed(here: ProjectAccess) -> bytes:
    into = io.BytesIO()
    engine_transfer.pack_transfer(here, into, moved_marker.read_stored_jobs(store_of(here)))
    return into.getvalue()


def test_a_moved_store_is_complete_and_used_only_there(here: ProjectAccess, tmp_path: Path) -> None:
    there = place(tmp_path / "there")
    moved_marker.leave_marker(store_of(here), to="vm", token="t1")
    with pytest.raises(InvalidInput, match="were moved to vm"):
        Database(store_of(here), NOW)
    assert not moved_marker.refuse_second_store(store_of(there), "t1")
    engine_transfer.unpack_transfer(there, io.BytesIO(packed(here)), "t1")
    store = Database(store_of(there), NOW)
    found = store.stored_jobs()["gpt"]
    assert [event.kind for _, event in store.read_events()] == ["job.submitted"]
    assert store.secrets.get("gpt") == {"TOKEN": "k1"}
    assert store.lease_holder(NOW) is None
    before = int(NOW * 1000)
    epoch = store.take_lease(LeaseHolder(pid=2, host="vm"), NOW - 5, 30)  # its clock is behind
    assert epoch is not None
    assert epoch > before
    store.close()
    assert load_snapshot(found.snapshot, open_archive(there.folders.state)) is not None
    assert (
        engine_transfer.part_folders(there)[engine_transfer.LOGS] / "a/b"
    ).read_bytes() == b"line"
    assert moved_marker.refuse_second_store(store_of(there), "t1")  # the second time it knows


@pytest.mark.parametrize("part", [0.0, 0.3, 0.6, 0.9, 1.0])
def test_an_interrupted_move_has_no_effect(
    here: ProjectAccess, tmp_path: Path, part: float
) -> None:
    there = place(tmp_path / "there")
    whole = packed(here)
    end = whole.rindex(b"end\0")
    with pytest.raises(OperationFailed, match="is incomplete"):
        engine_transfer.unpack_transfer(there, io.BytesIO(whole[: int(end * part)]), "t1")
    assert not (store_of(there) / "store.db").exists()
    assert moved_marker.last_arrival(store_of(there)) == ""
    engine_transfer.unpack_transfer(there, io.BytesIO(whole), "t1")
    assert [one.job for one in moved_marker.read_stored_jobs(store_of(there))] == ["gpt"]


def test_two_stores_with_jobs_are_never_merged(here: ProjectAccess, tmp_path: Path) -> None:
    there = place(tmp_path / "there")
    store = Database(store_of(there), NOW)
    assert not moved_marker.refuse_second_store(
        store_of(there), "t1"
    )  # it has no jobs: it may be replaced
    store.put_job(stored_job(""))
    store.close()
    with pytest.raises(InvalidInput, match="two stores can't be merged"):
        moved_marker.refuse_second_store(store_of(there), "t1")
    moved_marker.leave_marker(store_of(there), to="elsewhere", token="t0")
    assert not moved_marker.refuse_second_store(
        store_of(there), "t1"
    )  # they were moved away: they come back now
    engine_transfer.unpack_transfer(there, io.BytesIO(packed(here)), "t1")
    assert moved_marker.read_moved_marker(store_of(there)) is None
    Database(store_of(there), NOW).close()


def test_a_path_outside_the_store_is_refused(here: ProjectAccess, tmp_path: Path) -> None:
    into = io.BytesIO()
    with tarfile.open(fileobj=into, mode="w|") as tar:
        engine_transfer.add_tar_file(tar, "secrets/../../../out", b"x")
    with pytest.raises(OperationFailed, match="leads out of"):
        engine_transfer.unpack_transfer(
            place(tmp_path / "there"), io.BytesIO(into.getvalue()), "t1"
        )
