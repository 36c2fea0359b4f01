"""A store that goes to another machine: it is used at one place only, whatever is cut."""

import io
import socket
import tarfile
from pathlib import Path

import pytest

from tpuherd.errors import Broken, Unfit
from tpuherd.jobs import engine_transfer
from tpuherd.model.slots_and_plan import Event, Goal
from tpuherd.model.stored_job import Wish
from tpuherd.ports import Holder
from tpuherd.settings.endpoints import Credentials, Urls
from tpuherd.settings.folders import Folders
from tpuherd.settings.project_access import Place
from tpuherd.store import moved_marker
from tpuherd.store.database import Database
from tpuherd.sync.snapshot_store import archived
from tpuherd.sync.take_snapshot import again, take

NOW = 1_800_000_000.0
WORLD = Path("/world")


def place(folder: Path) -> Place:
    """A machine with the same world."""
    return Place(
        world=WORLD,
        project="demo",
        urls=Urls(tpu="", compute=""),
        ssh_port=22,
        login="ada",
        ways=(),
        credentials=Credentials(),
        folders=Folders(config=folder / "config", state=folder / "state", runtime=folder / "run"),
    )


def store_of(where: Place) -> Path:
    return engine_transfer.folders(where)[engine_transfer.STORE]


def wish(snapshot: str) -> Wish:
    document = {"name": "gpt", "accelerator": ["v4-8"], "run": "x"}
    return Wish(
        job="gpt", goal=Goal.RUN, document=document, snapshot=snapshot, made_at=NOW,
        changed_at=NOW, who="ada",
    )  # fmt: skip


@pytest.fixture
def here(tmp_path: Path) -> Place:
    """With a job, its code, a secret, a log, and a lease that somebody had."""
    found = place(tmp_path / "here")
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("words")
    snapshot = take(code, archived(found.folders.state), {"PATH": "/usr/bin:/bin"})
    store = Database(store_of(found), NOW)
    store.put(wish(snapshot.id), [Event(at=NOW, kind="wish.made", job="gpt", facts={})])
    store.secrets.put("gpt", "TOKEN", "k1")
    store.take(Holder(pid=1, host=socket.gethostname() + "-other"), NOW, 1e9)
    store.close()
    engine_transfer.write(engine_transfer.folders(found)[engine_transfer.LOGS] / "a/b", b"line")
    return found


def packed(here: Place) -> bytes:
    into = io.BytesIO()
    engine_transfer.pack(here, into, moved_marker.wished(store_of(here)))
    return into.getvalue()


def test_all_of_it_arrives_and_is_used_there_only(here: Place, tmp_path: Path) -> None:
    there = place(tmp_path / "there")
    moved_marker.leave(store_of(here), to="vm", token="t1")
    with pytest.raises(Unfit, match="were moved to vm"):
        Database(store_of(here), NOW)
    assert not moved_marker.refuse_two(store_of(there), "t1")
    engine_transfer.unpack(there, io.BytesIO(packed(here)), "t1")
    store = Database(store_of(there), NOW)
    found = store.wishes()["gpt"]
    assert [event.kind for _, event in store.events()] == ["wish.made"]
    assert store.secrets.get("gpt") == {"TOKEN": "k1"}
    assert store.holder(NOW) is None
    before = int(NOW * 1000)
    epoch = store.take(Holder(pid=2, host="vm"), NOW - 5, 30)  # its clock is behind
    assert epoch is not None
    assert epoch > before
    store.close()
    assert again(found.snapshot, archived(there.folders.state)) is not None
    assert (engine_transfer.folders(there)[engine_transfer.LOGS] / "a/b").read_bytes() == b"line"
    assert moved_marker.refuse_two(store_of(there), "t1")  # said again it knows


@pytest.mark.parametrize("part", [0.0, 0.3, 0.6, 0.9, 1.0])
def test_what_is_cut_counts_for_nothing(here: Place, tmp_path: Path, part: float) -> None:
    there = place(tmp_path / "there")
    whole = packed(here)
    end = whole.rindex(b"end\0")
    with pytest.raises(Broken, match="not whole"):
        engine_transfer.unpack(there, io.BytesIO(whole[: int(end * part)]), "t1")
    assert not (store_of(there) / "store.db").exists()
    assert moved_marker.arrived(store_of(there)) == ""
    engine_transfer.unpack(there, io.BytesIO(whole), "t1")
    assert [one.job for one in moved_marker.wished(store_of(there))] == ["gpt"]


def test_two_stores_with_jobs_are_never_made_one(here: Place, tmp_path: Path) -> None:
    there = place(tmp_path / "there")
    store = Database(store_of(there), NOW)
    assert not moved_marker.refuse_two(
        store_of(there), "t1"
    )  # it wishes nothing: it may be replaced
    store.put(wish(""))
    store.close()
    with pytest.raises(Unfit, match="two stores can't be one"):
        moved_marker.refuse_two(store_of(there), "t1")
    moved_marker.leave(store_of(there), to="elsewhere", token="t0")
    assert not moved_marker.refuse_two(
        store_of(there), "t1"
    )  # they were moved away: they come back now
    engine_transfer.unpack(there, io.BytesIO(packed(here)), "t1")
    assert moved_marker.stone(store_of(there)) is None
    Database(store_of(there), NOW).close()


def test_a_name_that_leads_elsewhere_is_refused(here: Place, tmp_path: Path) -> None:
    into = io.BytesIO()
    with tarfile.open(fileobj=into, mode="w|") as tar:
        engine_transfer.put(tar, "secrets/../../../out", b"x")
    with pytest.raises(Broken, match="leads elsewhere"):
        engine_transfer.unpack(place(tmp_path / "there"), io.BytesIO(into.getvalue()), "t1")
