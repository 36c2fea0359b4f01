"""A copy of an environment, here or in a bucket, is used only if the job's own host made it."""

import stat
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.hostile_words import mutate_bytes
from tests.simulated.test_cloud_storage import Server, serving
from tests.simulated.test_environments import KEY, FreshHost, Room, needs_uv, owner_of
from tests.simulated.tiny_wheel import write_wheel
from tpuherd.engine.engine_hosts import EngineHosts
from tpuherd.model.node_spec import EnvironmentNote
from tpuherd.sync.snapshot_store import Archive
from tpuherd_host.agent.environments.bucket_copy import (
    BucketPlace,
    UnusableCopy,
    fetch_copy,
    iter_stream,
)
from tpuherd_host.agent.environments.record_tree import record_tree
from tpuherd_host.agent.snapshots.manifest import pack_row, pack_rows, parse_row
from tpuherd_host.agent.snapshots.stream import StreamContent, encode_stream
from tpuherd_host.agent.snapshots.tree_layout import load_rows, open_blobs

BUCKET = "gs://mine/runs/gpt"
ALTERATIONS = 150


@pytest.fixture
def storage() -> Iterator[str]:
    with serving() as address:
        yield address


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def hosts_with_bucket(folder: Path, storage: str, *names: str) -> list[FreshHost]:
    hosts = [FreshHost(folder, name) for name in names]
    for host in hosts:
        host.more = {"STORAGE_EMULATOR_HOST": storage}
    return hosts


@needs_uv
def test_a_bucket_keeps_it_for_a_new_node(room: Room, tmp_path: Path, storage: str) -> None:
    old, new = hosts_with_bucket(tmp_path, storage, "old", "new")
    assert room.provide(old, bucket=BUCKET) == []
    (name,) = Server.objects
    assert name.startswith(f"runs/gpt/.herd-environments/{owner_of(old)}-{KEY}-linux-")
    assert room.events("installed")[0]["kept"] == f"gs://mine/{name}"
    room.retain(old)
    old.down = True
    assert room.provide(new, bucket=BUCKET) == []
    assert room.events("copied")[0]["source"] == f"gs://mine/{name}"
    assert new.run_in(KEY, "tiny") == "tiny 1.0"
    assert room.times("installed") == 1
    assert not Archive(tmp_path / "archive").blobs.places, "this machine needs no copy"


@needs_uv
def test_a_copy_that_another_job_put_there_is_refused_and_replaced(
    room: Room, tmp_path: Path, storage: str
) -> None:
    evil, old, new, last = hosts_with_bucket(tmp_path, storage, "evil", "old", "new", "last")
    evil.slot = "evil-0"
    write_wheel(evil.home / "herd/gpt/wheels", "6.66")
    assert room.provide(evil, bucket=BUCKET) == []
    (forged,) = Server.objects.values()
    name = next(iter(Server.objects)).replace(owner_of(evil), owner_of(old))
    Server.objects[name] = forged
    assert room.provide(old, bucket=BUCKET) == [], "nothing is noted of this job yet"
    assert room.events("copied") == []
    Server.objects[name] = forged
    old.down = True
    assert room.provide(new, bucket=BUCKET) == []
    assert room.times("installed") == 3
    found = room.events("installed")[-1]
    assert f"gs://mine/{name} does not have what this job's host installed" in found["refused"]
    assert found["refused"] in found["why"]
    assert new.run_in(KEY, "tiny") == "tiny 1.0"
    new.down = True
    assert room.provide(last, bucket=BUCKET) == []
    assert room.events("copied")[-1]["source"] == f"gs://mine/{name}"
    assert last.run_in(KEY, "tiny") == "tiny 1.0"


@needs_uv
def test_a_bucket_that_refuses_the_copy_stops_nothing(
    room: Room, tmp_path: Path, storage: str
) -> None:
    (host,) = hosts_with_bucket(tmp_path, storage, "n0")
    assert room.provide(host, bucket="gs://other/x") == []
    assert room.events("installed")[0]["kept"] == ""
    room.retain(host)
    assert Archive(tmp_path / "archive").blobs.places, "so this machine keeps it"


def forged_streams(rows: list[bytes], contents: list[bytes]) -> Iterator[bytes]:
    """Streams that are whole, and lie: in their rows, in contents, in how much follows."""
    first = parse_row(rows[0])
    more = pack_row(b"zz", first.mode, first.size, first.id)
    executable = pack_row(first.path, stat.S_IFREG | 0o755, first.size, first.id)
    alike = [StreamContent(n, len(one), [one]) for n, one in enumerate(contents)]
    bad = [StreamContent(n, len(one), [one.swapcase()]) for n, one in enumerate(contents)]
    for listed in (rows, [*rows, more], [executable, *rows[1:]], rows[1:], []):
        for head in ({"give": len(contents)}, {"give": 10**12}, {"give": [-1]}, {}):
            for given in (alike, bad, alike[:1], [*bad, *alike], []):
                yield b"".join(encode_stream(head, pack_rows(listed), given, lambda: 1))


def test_whatever_others_write_there_only_what_was_noted_arrives(
    tmp_path: Path, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", storage)
    tree, dice, place = tmp_path / "tree", Random(7), BucketPlace(BUCKET, "copy")
    (tree / "bin").mkdir(parents=True)
    for name in ("a.py", "b.py", "bin/tiny"):
        (tree / name).write_text(f"print({name!r})\n" * 50)
    digest, _ = record_tree(tree, tmp_path / "first")
    rows, store = load_rows(tmp_path / "first", digest) or [], open_blobs(tmp_path / "first")
    contents = [b"".join(store.read_pieces(parse_row(row).id)) for row in rows]
    good = b"".join(iter_stream(digest, tmp_path / "first"))
    streams = [good, *forged_streams(rows, contents)]
    streams += [mutate_bytes(dice.choice(streams), dice) for _ in range(ALTERATIONS)]
    arrived = 0
    for number, stream in enumerate(streams):
        Server.objects[place.name] = stream
        folder = tmp_path / f"host-{number}"
        try:
            assert fetch_copy(place, digest, folder)
        except UnusableCopy as error:
            assert str(error).startswith(f"{place.url} does not have what this job's host")
            assert not list(folder.glob("store/rows/*"))
        else:
            arrived += 1
            assert [one.name for one in folder.glob("store/rows/*")] == [digest]
            assert load_rows(folder, digest) == rows
            found = open_blobs(folder)
            assert [b"".join(found.read_pieces(parse_row(row).id)) for row in rows] == contents
    assert 1 <= arrived < len(streams) / 2


def test_notes_are_of_one_job_of_one_project_and_platform(tmp_path: Path) -> None:
    def hosts(project: str) -> EngineHosts:
        return EngineHosts(None, Archive(tmp_path), {}, project)  # type: ignore[arg-type]

    mine = EnvironmentNote(platform="linux-1", digest="a" * 64)
    other = EnvironmentNote(platform="linux-1", digest="b" * 64)
    hosts("p").note_environment("gpt-1", KEY, mine)
    for job in ("gpt-2", f"gpt-1@{KEY}", "gp", "g*", "../gpt-1", "GPT-1", "x.gpt-1"):
        hosts("p").note_environment(job, KEY, other)
    hosts("q").note_environment("gpt-1", KEY, other)
    assert hosts("p").known_environments("gpt-1", KEY) == {"linux-1": mine}
    (file,) = (tmp_path / "environments").glob(f"engine.p.gpt-1@{KEY}-linux-1")
    file.write_text(f"linux-1\n{'a' * 64}\n")  # as earlier versions wrote it
    assert hosts("p").known_environments("gpt-1", KEY) == {}


def test_a_copy_here_that_was_changed_is_not_complete(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    with archive.blobs.new_pack() as pack:
        id, size = pack.add([b"x"])
    row = pack_row(b"a.py", stat.S_IFREG | 0o644, size, id)
    snapshot = archive.add([row]).id
    hosts = EngineHosts(None, archive, {}, "p")  # type: ignore[arg-type]
    assert hosts.is_complete(snapshot)
    (archive.rows_folder / snapshot).write_bytes(pack_rows([row.replace(b"a.py", b"b.py")]))
    assert not hosts.is_complete(snapshot)
