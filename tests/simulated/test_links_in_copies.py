"""Copies and outputs are written below their destination, whatever links a host sends or leaves."""

import asyncio
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulated.sync_hosts import NearHost, NearStream, ShipRig, herd, write
from tpuherd.clock import WallClock
from tpuherd.engine.engine_hosts import EngineHosts
from tpuherd.engine.gang_client import GangClient
from tpuherd.engine.host_failures import HostFailure
from tpuherd.engine.host_watcher import HostWatcher, WatcherDeps
from tpuherd.errors import DiskFilled, HerdError
from tpuherd.model.node_spec import LaunchSpec
from tpuherd.ports import RpcRequest
from tpuherd.store.log_store import LogStore
from tpuherd.sync.copy_files import (
    WriteLimit,
    collect_paths,
    copy_from,
    copy_to,
    unpack_files,
)
from tpuherd.sync.snapshot_store import Archive
from tpuherd_host.agent.snapshots.manifest import (
    UNHASHED,
    BadRows,
    pack_row,
    pack_rows,
    parse_row,
)
from tpuherd_host.agent.snapshots.stream import StreamContent, encode_stream
from tpuherd_host.agent.snapshots.tree import remove_known
from tpuherd_host.agent.snapshots.tree_layout import find_destination

KEY = "the user's own key\n"
EVIL = "a key of the job\n"
RIVALS = int(os.environ.get("HERD_RIVALS", "25"))  #: trees that a rival changes meanwhile
WHEN = 1_500_000_000_000_000_000

Entry = str | tuple[str] | None  #: a file's content, a link's target, a folder
NAMES = st.sampled_from(["a", "b", "authorized_keys"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
TARGETS = st.sampled_from(
    ["{home}", "{home}/a", "../home", "../../home", "../../../home", "..", ".", "a", "b"]
)
ENTRIES = st.one_of(st.just(EVIL), st.none(), TARGETS.map(lambda target: (target,)))
TREES = st.dictionaries(PATHS, ENTRIES, min_size=1, max_size=5)
VICTIMS = [  # what an old tree's rows may name
    parse_row(pack_row(path, stat.S_IFREG | 0o644, 1, UNHASHED))
    for path in (b"a", b"b", b"a/b", b"b/a", b"authorized_keys", b"a/authorized_keys")
]


def stream(entries: Mapping[str, Entry], home: Path) -> Callable[[], bytes]:
    """What a hostile host sends: these entries, as far as they lead through folders only."""
    rows = {}
    for path, entry in entries.items():
        above = [path[:at] for at, letter in enumerate(path) if letter == "/"]
        if any(entries.get(one) is not None for one in above):
            continue
        content = entry if isinstance(entry, str) else (entry or ("",))[0].format(home=home)
        kind = stat.S_IFREG if isinstance(entry, str) else stat.S_IFLNK if entry else stat.S_IFDIR
        row = pack_row(path.encode(), kind | 0o777, len(content.encode()), UNHASHED, WHEN)
        rows[row] = content.encode()
    files = [
        StreamContent(number, len(content), [content])
        for number, (row, content) in enumerate(sorted(rows.items()))
        if content
    ]
    pieces = encode_stream({"give": len(files)}, pack_rows(sorted(rows)), files, lambda: 1)
    blocks = [b"".join(pieces), b""]
    return lambda: blocks.pop(0)


def victim(folder: Path) -> Path:
    """A home with keys, which no copy is to change."""
    home = folder / "home"
    write(home, {"authorized_keys": KEY, "a/b": KEY, "b/a": KEY})
    for path in (*home.rglob("*"), home, folder):
        path.chmod(0o700)
        os.utime(path, ns=(WHEN // 2, WHEN // 2))
    return home


def all_facts(*folders: Path) -> dict[Path, tuple[int, int, bytes]]:
    """Mode, time and content of all that is in these folders, and of themselves."""
    return {
        path: (path.lstat().st_mode, path.lstat().st_mtime_ns,
               path.read_bytes() if path.is_file() else b"")
        for folder in folders for path in (folder, *folder.rglob("*"))
    }  # fmt: skip


#: Puts links to a home in the place of all folders below some others and takes them away again,
#: as fast as it can, until it reads another line.
RIVAL = """
import contextlib, os, select, sys
for line in sys.stdin:
    home, *sides = line.split()
    while not select.select([sys.stdin], [], [], 0)[0]:
        for side in sides:
            for above, folders, _ in os.walk(side):
                for name in folders:
                    path = os.path.join(above, name)
                    with contextlib.suppress(OSError):
                        if os.path.islink(path) or name.endswith(".aside"):
                            continue
                        os.rename(path, path + ".aside")
                        os.symlink(home, path)
                        os.stat(path)
                        os.unlink(path)
                    with contextlib.suppress(OSError):
                        os.rename(path + ".aside", path)
    sys.stdin.readline()
    print("idle", flush=True)
"""


class Rival:
    """A process that exchanges folders and links below a host's and our folders."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    @contextmanager
    def swapping(self, home: Path, *sides: Path) -> Iterator[None]:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(home, *sides, file=self._process.stdin, flush=True)
        try:
            yield
        finally:
            print(file=self._process.stdin, flush=True)
            assert self._process.stdout.readline() == "idle\n"


@pytest.fixture(scope="module")
def rival() -> Iterator[Rival]:
    words = [sys.executable, "-c", RIVAL]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Rival(process)


@settings(max_examples=RIVALS, deadline=None)
@given(streams=st.lists(TREES, min_size=2, max_size=4), there=TREES)
def test_no_rival_leads_a_collection_outside(
    rival: Rival, streams: list[dict[str, Entry]], there: dict[str, Entry]
) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary)
        (host,) = herd(base, 1)
        home, into = victim(base), base / "into"
        into.mkdir()
        for number, entries in enumerate((*streams, there)):
            with suppress(HerdError, BadRows, OSError):
                unpack_files(stream(entries, home), host.home, f"out{number}")
                unpack_files(stream(entries, home), into, "w0")
        before = all_facts(home) | {base: all_facts(base)[base]}
        names = sorted(path.name for path in base.iterdir())
        with rival.swapping(home, host.home, into):
            for _ in range(2):
                with suppress(HerdError, OSError):
                    asyncio.run(collect_paths(["out0", "out0/*", "out?"], host, into, "w0"))
            for entries in streams:
                with suppress(HerdError, BadRows, OSError):
                    unpack_files(stream(entries, home), into, "w0")
        assert all_facts(home) | {base: all_facts(base)[base]} == before
        assert sorted(path.name for path in base.iterdir()) == names


@settings(max_examples=max(1, RIVALS // 3), deadline=None)
@given(versions=st.lists(TREES, min_size=2, max_size=5), made=TREES)
def test_no_rival_leads_what_arrives_on_a_host_outside(
    rival: Rival, versions: list[dict[str, Entry]], made: dict[str, Entry]
) -> None:
    """Snapshots, of which environments are some; versions follow each other, and old ones go."""
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary)
        rig, (host,) = ShipRig(base), herd(base, 1)
        home = victim(base)
        before = all_facts(home)
        for entries in versions:
            with suppress(HerdError, BadRows, OSError):
                unpack_files(stream(entries, home), base, "code")
            with suppress(HerdError, BadRows, OSError):
                unpack_files(stream(made, home), host.home, "c")
            with rival.swapping(home, host.home / "c"):
                with suppress(HerdError, OSError):
                    rig.ship([host])
                with suppress(HerdError, OSError):
                    asyncio.run(copy_to([base / "code"], "c", [host]))
                spot = find_destination(Path(host.house), host.home, "c", force=True)
                for old in spot.folder.iterdir():
                    with suppress(OSError):
                        remove_known(os.fsencode(old), os.fsencode(spot.dest), VICTIMS)
        assert all_facts(home) == before


def limit(folder: Path, *, size: int = 1000, entries: int = 1000, spared: int = 0) -> WriteLimit:
    return WriteLimit(folder=folder, bytes_left=size, entries_left=entries, bytes_spared=spared)


@pytest.mark.parametrize(
    ("bound", "came"),
    [
        ({"size": 7}, {"a/1": "123", "a/2": "456"}),
        ({"entries": 3}, {"a/1": "123", "a/2": "456"}),
        ({"entries": 1}, {}),
        ({"spared": 1 << 62}, {}),
    ],
)
def test_a_copy_stops_at_its_limit_and_what_came_whole_stays(
    tmp_path: Path, bound: dict[str, int], came: dict[str, str]
) -> None:
    entries: dict[str, Entry] = {"a": None, "a/1": "123", "a/2": "456", "a/3": "789"}
    sent = stream(entries, tmp_path)
    with pytest.raises(DiskFilled, match="stopped before it fills this machine's disk"):
        unpack_files(sent, tmp_path, "w0", limit(tmp_path, **bound))
    there = {
        str(path.relative_to(tmp_path / "w0")): path.read_text()
        for path in (tmp_path / "w0").rglob("*") if path.is_file()
    }  # fmt: skip
    assert there == came
    assert not list(tmp_path.rglob(".herd-*"))


def test_the_paths_of_a_collection_have_one_limit(tmp_path: Path) -> None:
    free = limit(tmp_path, size=10)
    for name in ("a", "b", "c"):
        unpack_files(stream({name: "123"}, tmp_path), tmp_path, "w0", free)
    with pytest.raises(DiskFilled):
        unpack_files(stream({"d": "123"}, tmp_path), tmp_path, "w0", free)
    assert sorted(path.name for path in (tmp_path / "w0").iterdir()) == ["a", "b", "c"]


def test_a_limit_leaves_a_twentieth_of_what_is_free(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    free = disk.f_bavail * disk.f_frsize
    found = WriteLimit.from_free_disk(tmp_path)
    assert found.bytes_left == pytest.approx(free * 0.95, rel=0.02)
    assert found.bytes_left + found.bytes_spared == pytest.approx(free, rel=0.02)
    with pytest.raises(DiskFilled):
        found.count_bytes(found.bytes_left + 1)


@pytest.mark.parametrize(
    "row",
    [
        pack_row(b"x", stat.S_IFLNK | 0o777, 1 << 40, UNHASHED, 1),  # would be read into memory
        pack_row(b"x" * 5000, stat.S_IFREG | 0o777, 1, UNHASHED, 1),
    ],
)
def test_rows_that_no_file_can_have_are_refused(tmp_path: Path, row: bytes) -> None:
    blocks = [b"".join(encode_stream({"give": 0}, pack_rows([row]), [], lambda: 1)), b""]
    with pytest.raises(BadRows):
        unpack_files(lambda: blocks.pop(0), tmp_path, "w0")


@settings(max_examples=300, deadline=None)
@given(
    streams=st.lists(st.tuples(TREES, st.sampled_from([None, "", "w0"])), min_size=2, max_size=4),
    name=st.sampled_from(["into", "into/new"]),
)
def test_no_stream_changes_what_is_outside(
    streams: list[tuple[dict[str, Entry], str | None]], name: str
) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary)
        (base / "into").mkdir()
        home = victim(base)
        before = all_facts(home) | {base: all_facts(home)[home]}
        for entries, folder in streams:
            try:
                unpack_files(stream(entries, home), base / name, folder)
            except (HerdError, BadRows, OSError):
                pass  # refused: what is in the folder by then stays
            assert not list((base / "into").rglob(".herd-*"))
        assert all_facts(home) | {base: all_facts(home)[home]} == before
        assert sorted(path.name for path in base.iterdir()) == ["home", "into"]


@settings(max_examples=60, deadline=None)
@given(there=TREES, coming=TREES)
def test_no_copy_to_a_host_is_written_through_its_links(
    there: dict[str, Entry], coming: dict[str, Entry]
) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary)
        (host,) = herd(base, 1)
        home = victim(base)
        unpack_files(stream(there, home), host.home / "into", "here")
        unpack_files(stream(coming, home), base, "here")
        before = all_facts(home)
        asyncio.run(copy_to([base / "here"], "into", [host]))
        assert all_facts(home) == before


def test_links_arrive_as_links_again_and_again(tmp_path: Path) -> None:
    (host,) = herd(tmp_path, 1)
    write(host.home, {"out/step-1/w": "1", "out/step-2/w": "2"})
    (host.home / "out" / "nowhere").symlink_to("gone")
    (tmp_path / "back").mkdir()
    for step in ("step-1", "step-2"):
        (host.home / "out" / "latest").unlink(missing_ok=True)
        (host.home / "out" / "latest").symlink_to(step)
        assert asyncio.run(copy_from(["out"], [host], tmp_path / "back")).failed == {}
        assert (tmp_path / "back/out/latest").readlink() == Path(step)
    assert (tmp_path / "back/out/nowhere").readlink() == Path("gone")


def test_a_second_copy_is_not_written_through_a_link_of_the_first(tmp_path: Path) -> None:
    home, (host,) = victim(tmp_path), herd(tmp_path, 1)
    (tmp_path / "work").mkdir()
    write(host.home, {"results/log": "1"})
    (host.home / "results" / "ck").symlink_to(home)
    before = all_facts(home)
    assert asyncio.run(copy_from(["results"], [host], tmp_path / "work")).failed == {}
    (host.home / "results" / "ck").unlink()
    write(host.home, {"results/ck/authorized_keys": EVIL})
    (host.home / "results" / "ck").chmod(0o777)
    done = asyncio.run(copy_from(["results"], [host], tmp_path / "work"))
    link = tmp_path / "work" / "results" / "ck"
    assert done.failed == {
        "pod/w0": f"{link}: is a link, and nothing is written through a link;"
        " move it away and try again"
    }
    assert all_facts(home) == before
    link.unlink()
    assert asyncio.run(copy_from(["results"], [host], tmp_path / "work")).failed == {}
    assert (link / "authorized_keys").read_text() == EVIL


def test_a_host_cannot_put_a_link_in_the_place_of_the_destination(tmp_path: Path) -> None:
    home = victim(tmp_path)
    before = all_facts(home)
    with pytest.raises(BadRows, match="a link in the place of"):
        unpack_files(stream({"x": (str(home),)}, home), tmp_path / "new")
    unpack_files(stream({"authorized_keys": EVIL}, home), tmp_path / "new")
    assert (tmp_path / "new").read_text() == EVIL
    assert all_facts(home) == before


def test_a_host_cannot_lead_the_files_of_several_hosts_elsewhere(tmp_path: Path) -> None:
    home, hosts = victim(tmp_path), herd(tmp_path, 2)
    before = all_facts(home)
    (tmp_path / "into").mkdir()
    unpack_files(stream({"pod-w1": (str(home),)}, home), tmp_path / "into", "")
    for host in hosts:
        write(host.home, {"authorized_keys": EVIL})
    done = asyncio.run(copy_from(["authorized_keys"], hosts, tmp_path / "into"))
    assert list(done.failed) == ["pod/w1"]
    assert "pod-w1: is a link" in done.failed["pod/w1"]
    assert (tmp_path / "into" / "pod-w0" / "authorized_keys").read_text() == EVIL
    assert all_facts(home) == before


@pytest.mark.parametrize("field", ["skipped", "only_home"])
@pytest.mark.parametrize("lie", [5, "a/b", {"a": 1}, [1], [None]])
def test_a_reply_that_names_no_paths_is_that_hosts_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, lie: object
) -> None:
    hosts = herd(tmp_path, 2)
    for host in hosts:
        write(host.home, {"out": "x"})
    told = NearStream.reply

    async def reply(stream: NearStream) -> Mapping[str, Any]:
        return {**await told(stream), **({field: lie} if stream.host is hosts[1] else {})}

    monkeypatch.setattr(NearStream, "reply", reply)
    done = asyncio.run(copy_from(["out"], hosts, tmp_path / "into"))
    assert list(done.failed) == ["pod/w1"] and "malformed" in done.failed["pod/w1"]
    assert list(done.got) == ["pod/w0"]


def test_folders_arrive_with_their_modes_and_no_privileged_bits(tmp_path: Path) -> None:
    (host,) = herd(tmp_path, 1)
    write(host.home, {"out/tool": "x", "out/closed/w": "x"})
    (host.home / "out" / "tool").chmod(0o4755)
    (tmp_path / "back").mkdir()
    for _ in range(2):
        (host.home / "out" / "closed").chmod(0o2555)
        assert asyncio.run(copy_from(["out"], [host], tmp_path / "back")).failed == {}
        assert (tmp_path / "back/out/tool").stat().st_mode & 0o7777 == 0o755
        assert (tmp_path / "back/out/closed").stat().st_mode & 0o7777 == 0o755


def test_what_a_host_made_is_not_carried_over_through_a_link_of_the_new_code(
    tmp_path: Path,
) -> None:
    home, rig, (host,) = victim(tmp_path), ShipRig(tmp_path), herd(tmp_path, 1)
    before = all_facts(home)
    write(rig.code, {"data/a": "1", "train.py": ""})
    assert rig.ship([host]).failed == {}
    write(host.home, {"c/data/authorized_keys2": EVIL, "c/notes/x": "kept"})
    (rig.code / "data/a").unlink()
    (rig.code / "data").rmdir()
    (rig.code / "data").symlink_to(home)
    assert rig.ship([host]).failed == {}
    assert (host.home / "c/data").readlink() == home
    assert (host.home / "c/notes/x").read_text() == "kept"
    assert all_facts(home) == before
    assert [path.read_text() for path in host.home.rglob("authorized_keys2")] == [EVIL]


class SwappingHost(NearHost):
    """A host whose job exchanges a folder and a link each time that files are read."""

    def __init__(self, folder: Path, victim: Path) -> None:
        super().__init__(folder, 0)
        write(self.home, {"out/log": "1", "spare/authorized_keys": EVIL})
        (self.home / "out" / "ck").symlink_to(victim)
        (self.home / "spare").chmod(0o777)

    @asynccontextmanager
    async def open_stream(self, verb: RpcRequest) -> AsyncIterator[NearStream]:
        async with super().open_stream(verb) as opened:
            yield opened
        ck, spare = self.home / "out" / "ck", self.home / "spare"
        ck.rename(self.home / "aside")
        spare.rename(ck)
        (self.home / "aside").rename(spare)


def test_all_outputs_of_an_attempt_are_one_tree(tmp_path: Path) -> None:
    home = victim(tmp_path)
    before = all_facts(home)
    host = SwappingHost(tmp_path, home)
    order = LaunchSpec(outputs=("out", "ou?", "o*t"), directory="")

    async def collect() -> list[HostFailure]:
        archive = Archive(tmp_path / "archive")
        means = WatcherDeps(
            hosts=EngineHosts(None, archive, {"PATH": ""}, "me"),  # type: ignore[arg-type]
            shelf=LogStore(tmp_path / "logs"),
            clock=WallClock(),
            stir=lambda: None,
            tell=lambda kind, slot, facts: None,
        )
        client, watch = GangClient(means, lambda work: None), HostWatcher(host.host, "gpt-0", means)
        watch.link = host
        client._watches = {"pod": [watch]}
        found = await client.collect_outputs("pod", order, tmp_path / "outputs" / "a1")
        return found[1]

    for _ in range(2):
        (failure,) = asyncio.run(collect())
        assert "out/ck: is a link, and nothing is written through a link" in failure.sentence
    assert all_facts(home) == before
    assert (tmp_path / "outputs/a1/pod.w0/out/log").read_text() == "1"
